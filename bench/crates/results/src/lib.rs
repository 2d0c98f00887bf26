//! The file that a run leaves: one JSON document, whole in itself.
//!
//! It says what was run, on what, with which settings and under which tier; what happened in each
//! second; all latencies as HDR histograms; what the audit found; and whether the run counts. A
//! report is drawn from these files alone, so a run can be judged years later and elsewhere.

mod agent;
mod audit;
mod histogram;
mod host;
mod run;
mod store;

pub use agent::{Agent, ClockOffset, clocks_apart_us};
pub use audit::{Audit, Finding};
pub use histogram::{Latency, LatencySummary};
pub use host::{Host, SyncDelay};
pub use run::{Better, Mark, Measure, Process, Run, Second, Step, System, Test, Usage, Verdict};
pub use store::{StoreError, read, read_all, write};

/// The schema that this code writes. Readers take this one and older ones.
pub const SCHEMA: u32 = 2;
