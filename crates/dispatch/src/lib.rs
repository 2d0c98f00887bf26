//! The delivery engine of a lease group: who gets which record next, and what becomes of it.
//!
//! Pure and volatile: no I/O, no clock, no randomness; the same calls give the same answers.

mod changes;
mod consumer;
mod dispatch;
mod inspect;
mod policy;
mod pools;
mod record;
mod settlement;

pub use changes::{Changes, DeadLetter, PartitionChanges};
pub use consumer::{Credit, JoinRefused, Joined, Leases, Take};
pub use dispatch::Dispatch;
pub use inspect::{Counters, RemoveRefused};
pub use policy::{Ordering, Policy};
pub use pools::Pools;
pub use record::{
    Assignment, DeadReason, Delayed, LeaseView, PartitionStart, Peeked, RecordState, Scanned, Want,
};
pub use settlement::{Selection, SettleRefused, Settlement};

/// A consumer's number; whoever drives the engine hands them out and never reuses one.
pub type ConsumerId = u64;
/// A session's number: leases belong to sessions.
pub type SessionId = u64;
/// A lease's fencing token: unique for the life of the node, never reused.
pub type Token = u64;
