//! Lease sessions and appends at nodes that do not lead the shard, on three nodes in one process; and all
//! requests to a shard at a node without a replica, on four.

mod appends;
mod harness;
mod moves;
mod reconnects;
mod repeats;
mod sessions;
mod spread;
mod spread_sessions;
mod transfers;
