//! The result file of a run: one self-contained JSON document.
//!
//! It holds the test, the system, their settings and the tier; the events of each second; all
//! latencies as HDR histograms; the findings of the audit; and the verdict. A report is drawn from
//! these files alone, so a run can be judged years later and elsewhere.

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

/// Schema of written files. Readers accept this one and older ones.
pub const SCHEMA: u32 = 2;
