//! The delivery engine of a lease group: who gets which record next, and what becomes of it.
//!
//! Pure and volatile: no I/O, no clock, no randomness; the same calls give the same answers. What
//! must outlive a crash comes out of [`Dispatch::drain`] as deltas. The driver makes them durable, and
//! makes a new engine of them after a crash. One decision shaped it: **there is one way back**. A
//! release, a lease that runs out and a session that ends take the same path, which first removes the
//! lease. So the first of them counts the attempt, and the others find no lease.
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
//! What is unread, ready beyond a window, or settled is kept as ranges, whatever its amount; what
//! is delayed as 20 bytes. Only what is loaded, blocked, leased or dead has a record of its own, and
//! each of these has a bound ([`Bounds`]).
//!
//! # Order
//!
//! Higher priorities first; among equals the partition whose head is the oldest; in a partition by
//! offset, so that what came back goes before what came later. Ordered by key or by partition, the
//! head holds its lane until it is settled, also while it backs off or waits for its dead-lettering, and
//! priorities are not looked at. A record that was scheduled joins the order when it is due.

mod assign;
mod bounds;
mod changes;
mod claim;
mod consumer;
mod consumers;
mod dispatch;
mod due;
mod ending;
mod inspect;
mod lanes;
mod lease;
mod meta;
mod order;
mod partition;
mod place;
mod policy;
mod pools;
mod ready;
mod record;
mod scan;
mod settle;
mod settlement;
mod shares;
mod steps;
mod table;
mod tick;
mod wheel;

pub use bounds::Bounds;
pub use changes::{Changes, DeadLetter, PartitionChanges};
pub use claim::{BackOff, Claim, DeadLetterClaim, Terms};
pub use consumer::{Credit, JoinRefused, Joined, Leases, Take, Within};
pub use dispatch::Dispatch;
pub use inspect::{Counters, RemoveRefused};
pub use policy::{Ordering, Policy};
pub use pools::Pools;
pub use record::{
    Assignment, DeadReason, Delayed, LeaseView, PartitionStart, Peeked, RecordState, Scanned, Want,
};
pub use settlement::{Selection, SettleRefused, Settlement};
pub use shares::Lack;
pub use steps::{Step, What};

/// A consumer's number, given by the driver and never reused.
pub type ConsumerId = u64;
/// A session's number: leases belong to sessions.
pub type SessionId = u64;
/// A lease's fencing token: unique among the leases of a lease group in one shard, never reused.
pub type Token = u64;
