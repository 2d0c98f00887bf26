//! Lease sessions and appends at nodes that do not lead the shard, on three nodes in one process.

mod appends;
mod harness;
mod moves;
mod sessions;
