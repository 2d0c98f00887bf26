//! Puts a load on a system, keeps account of every message, and says what happened.
//!
//! * [`Plan`]: who sends how much to what, who receives it, and for how long
//! * [`run`]: carries it out on one system
//! * [`Outcome`]: what happened: seconds, latencies, phases, what processes used, the audit
//! * [`search`]: the highest rate that a system keeps up with
//! * [`Crew`]: who sends and receives: [`Tasks`] of this process, or agents, each with a [`Share`]
//!   of the load, whose reports become one [`Account`]
//!
//! Whatever tasks measure they record once a batch; the audit has a bit for each message, sender
//! and subscription.

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
