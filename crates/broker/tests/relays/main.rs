//! Lease sessions and appends at nodes that do not lead the shard, on three nodes in one process; and all that
//! is asked of a shard at a node that has nothing of it, on four.

mod appends;
mod harness;
mod moves;
mod repeats;
mod sessions;
mod spread;
mod spread_sessions;
