//! Puts a load on a system, keeps account of every message, and says what happened.
//!
//! * [`Plan`]: who sends how much to what, who receives it, and for how long
//! * [`run`]: carries it out on one system
//! * [`Outcome`]: what happened: seconds, latencies, phases, what processes used, the audit
//! * [`search`]: the highest rate that a system keeps up with
//!
//! Senders and receivers are tasks of one process. Whatever they measure they record once a batch;
//! the audit has a bit for each message, sender and subscription.

mod bits;
mod burial;
pub mod clock;
pub mod host;
mod ledger;
mod pacer;
mod payload;
pub mod plan;
mod receive;
mod recorder;
mod relay;
pub mod search;
mod send;
mod session;
mod usage;

pub use burial::Burials;
pub use payload::{Content, Entropy, STAMP_BYTES};
pub use plan::{Action, Pace, Phase, Plan, Receivers, Relay, Until, Work};
pub use recorder::{Counts, Interval};
pub use session::{Drain, LoadError, Observer, Outcome, PhaseOutcome, Silent, run};
pub use usage::Watched;
