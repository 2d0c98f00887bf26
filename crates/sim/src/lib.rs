//! Simulated faults, and the checkers of the surviving state.
//!
//! A run is a node (gateways, broker, consensus, journal) in a world that a seed fixes: disk, clocks, random
//! numbers, the order of its tasks and the duration of each piece of work of its threads. So the same seed is the
//! same run, byte for byte, and a failing seed is a reproducible bug. A run consists of consecutive lives of the
//! node: each ends by a crash or a stop, and the next begins with the disk's content. The last two have no faults,
//! and every reply that clients received is compared with the final state.
//!
//! The nodes of a cluster are a separate world (`cluster`).
//!
//! * [`run`]: a seed; [`report`]: its result; [`panics`]: panics of any task
//! * [`profile`]: the possible faults of a run
//! * [`node`]: a node in a simulated world
//! * [`network`]: its gateways, and connections to them
//! * [`disk`]: its disk, whose changes are traced
//! * [`faults`]: faults of a running node
//! * [`trace`]: the events of a run, and their hash
//! * [`verdict`]: the invariants, and the first violation
//! * [`checkers`], [`history`]: knowledge of the clients
//! * [`workload`]: the clients
//! * [`reading`]: reads of whole partitions
//! * [`random`]: numbers from a seed
//! * [`native`]: a smaller workload for nodes on real threads, whose order no seed fixes

pub mod checkers;
mod cluster;
pub mod disk;
pub mod faults;
pub mod history;
pub mod native;
pub mod network;
pub mod node;
pub mod panics;
pub mod profile;
pub mod random;
pub mod reading;
pub mod report;
pub mod run;
pub mod trace;
pub mod verdict;
pub mod workload;
