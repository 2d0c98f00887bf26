//! Simulated faults, and the checkers that judge what survives them.
//!
//! A run is a whole node (broker, consensus, journal) on a simulated disk. Its faults come from a
//! seed: which records are written, when the power goes, which unsynced sectors survive. Threads
//! are real, so a seed fixes the faults and not the interleaving; the checkers hold for every one.
//!
//! * [`history`]: what was sent and what was acknowledged, and what must therefore be there
//! * [`random`]: numbers from a seed
//! * [`workload`]: producers that write to a node until it dies

pub mod history;
pub mod random;
pub mod workload;
