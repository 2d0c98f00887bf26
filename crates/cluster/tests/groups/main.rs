//! Groups of several nodes over real sockets of this machine.

mod faults;
mod node;
mod replication;
mod snapshots;
