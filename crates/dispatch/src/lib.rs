//! The delivery engine of a lease group: assigns records to consumers, and tracks them to their
//! end.
//!
//! Pure and volatile: no I/O, no clock, no randomness; the same calls give the same results. State
//! that must survive a crash is returned by [`Dispatch::drain`] as deltas. The driver makes them
//! durable, and builds a new engine from them after a crash. **There is one way back**: a release,
//! an expired lease and an ended session take the same path, which first removes the lease. The
//! first of them counts the attempt, and the others find no lease.
//!
//! # A record's life
//!
//! ```text
//!             unread                  the log has it; nothing is known, and nothing kept
//!               |
//!            scanned ------------------------------------.
//!               |                   due later            |
//!               |                                        v
//!               |              time has come, looked up  |
//!   .-------> ready <--------------------------------- delayed <----------.
//!   |           |                                                         |
//!   |           |  its key is held by an earlier one                      |
//!   |           |------------------> blocked                              |
//!   |           |                       |                                 |
//!   |           | <---------------------'  that one is settled            |
//!   |           |                                                         |
//!   |           |  dispatch, take                                         |
//!   |           v                                                         |
//!   |        leased ------ release, deadline, end of session -----.       |
//!   |           |                                                 |       |
//!   |           |                         attempt counted once    |       |
//!   |           |                                                 v       |
//!   '-----------|-------------- no delay ----------------------- back ----' back-off
//!               |                                                 |
//!     accept    |   reject                                        |  its last attempt
//!               |-----------------------> dead <------------------'
//!               |                          |  ^-- ready, and expired
//!               v          durable         |
//!            settled <---------------------'
//! ```
//!
//! Unread and settled records, and ready ones beyond a window, are kept as ranges in any number;
//! delayed records take 20 bytes. Only loaded, blocked, leased and dead records have a record of
//! their own, and each of these has a bound ([`Bounds`]).
//!
//! # Order
//!
//! Higher priorities first; among equals the partition whose head is the oldest; in a partition by
//! offset, so that released records precede later ones. If ordered by key or by partition, the head
//! holds its lane until it is settled, also during a back-off or until its dead letter is in the
//! log, and priorities are ignored. A scheduled record joins the order when it is due.

mod bounds;
mod changes;
mod consumers;
mod engine;
mod lanes;
mod lease;
mod limits;
mod partition;
mod policy;
mod record;
mod steps;
mod wheel;

pub use bounds::Bounds;
pub use changes::{Changes, DeadLetter, PartitionChanges};
pub use consumers::{
    Credit, CreditShortage, JoinRefused, Leases, Pools, PullRequest, PullScope, PushConsumer,
};
pub use engine::{BackOff, Counters, DeadLetterClaim, Dispatch, RemoveRefused};
pub use lease::{Assignment, Claim, LeaseAttributes, Selection, SettleRefused, Settlement};
pub use policy::{Ordering, Policy};
pub use record::{
    DeadReason, Delayed, LeaseView, PartitionStart, ReadRange, RecordInfo, RecordState,
    ScannedRecord,
};
pub use steps::{Step, StepKind};

/// A consumer's number, assigned by the driver and never reused.
pub type ConsumerId = u64;
/// A session's number: leases belong to sessions.
pub type SessionId = u64;
/// A lease's fencing token: unique among the leases of a lease group in one shard, never reused.
pub type Token = u64;
