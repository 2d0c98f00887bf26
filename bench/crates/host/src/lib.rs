//! Process accounting of Linux, and the best case of this machine.
//!
//! * [`process`]: CPU time, memory, written bytes and open files of a process, or of a process tree
//! * [`probe`]: writes with a sync on a disk, and a hop over loopback
//!
//! Brokers are measured from outside by `/proc`, so that all are measured the same way and none
//! needs an agent. The crate has few dependencies, because the repository's chores use it too.

pub mod probe;
pub mod process;
