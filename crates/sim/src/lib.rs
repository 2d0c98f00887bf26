//! Simulated faults, and the checkers that judge what survives them.
//!
//! A run is a node (gateways, broker, consensus, journal) in a world that a seed fixes: disk, clocks, random numbers, the
//! order of its tasks and how long each step of its threads takes. So the same seed is the same run, byte for
//! byte, and a seed that fails is a bug that anybody can repeat. A run is a row of lives: each ends by a crash
//! or a stop, and the next begins with what the disk holds then. In the last two nothing fails any more, and
//! everything that clients were told is held against what is there.
//!
//! Three nodes of a cluster are a world of their own (`cluster`).
//!
//! * [`run`]: a seed; [`report`]: what it did
//! * [`profile`]: what may happen in a run
//! * [`node`]: a node in a simulated world
//! * [`network`]: its gateways, and connections to them
//! * [`disk`]: its disk, whose changes are traced
//! * [`faults`]: what is done to a node while it lives
//! * [`trace`]: what happened, and its hash
//! * [`verdict`]: the invariants, and the first violation
//! * [`checkers`], [`history`]: what clients know
//! * [`workload`]: the clients
//! * [`reading`]: all of a partition
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
pub mod profile;
pub mod random;
pub mod reading;
pub mod report;
pub mod run;
pub mod trace;
pub mod verdict;
pub mod workload;
