//! Puts a load on a system, keeps account of every message, and reports the outcome.
//!
//! * [`Plan`]: senders, receivers, rates, destinations and phases
//! * [`run`]: carries a plan out on one system
//! * [`Outcome`]: the result: seconds, latencies, phases, resource usage of processes, the audit
//! * [`search`]: the highest rate that a system sustains
//! * [`Crew`]: the workers: [`Tasks`] of this process, or agents, each with a [`Share`] of the
//!   load, whose reports become one [`Account`]
//!
//! Tasks record their measurements once a batch. The audit has a bit for each message, sender and
//! subscription.

mod account;
mod bits;
mod burial;
pub mod clock;
mod crew;
pub mod host;
mod journal;
mod ledger;
mod outcome;
mod pacer;
mod payload;
pub mod plan;
mod receive;
mod reconnect;
mod recorder;
mod relay;
pub mod search;
mod send;
mod session;
mod share;
mod tasks;
mod usage;

pub use account::{Account, Implausible, Report, add_errors};
pub use burial::Burials;
pub use crew::{Crew, Ended, Gone, InProcess, Progress, Recruiter};
pub use journal::Overflow;
pub use ledger::Acknowledged;
pub use outcome::{Drain, Outcome, PhaseOutcome};
pub use payload::{Content, Entropy, STAMP_BYTES};
pub use plan::{Action, Pace, Phase, Plan, Receivers, Relay, Until, Work};
pub use recorder::{Counts, Interval};
pub use session::{LoadError, Observer, Silent, run};
pub use share::Share;
pub use tasks::Tasks;
pub use usage::Watched;
