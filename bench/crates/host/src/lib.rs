//! What Linux says of processes, and what this machine can do at best.
//!
//! * [`process`]: CPU time, memory, written bytes and open files of a process, or of it and all that
//!   descend from it
//! * [`probe`]: writes with a sync on a disk, and a hop over loopback
//!
//! Brokers are measured from outside by `/proc`, so that all of them are measured alike and none
//! needs an agent. The crate depends on little, because the repository's chores use it too.

pub mod probe;
pub mod process;
