//! Lease sessions at nodes that do not lead the shard, on three nodes in one process.

mod harness;
mod moves;
mod sessions;
