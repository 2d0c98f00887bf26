//! The invariants of a run, and the first violation found.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::history;
use crate::trace::Trace;

/// Invariants under all faults. Each checker watches one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Invariant {
    /// An acknowledged record is at its offset, as it was sent.
    Durable,
    /// Offsets have no gap and are never reused; records of one producer are in the order sent.
    Ordered,
    /// A record without an acknowledgement is there whole and once, or not at all.
    Once,
    /// A repetition of an acknowledged record with an id returns its position, also once the record is deleted.
    Recognised,
    /// A record whose settle was confirmed is not delivered again.
    Settled,
    /// No two consumers hold a record.
    Exclusive,
    /// One record of each key is leased at a time, and the oldest first.
    KeyOrder,
    /// The number of a delivery never decreases, and stays within the allowed maximum.
    Attempts,
    /// A record is not delivered before its time.
    Delayed,
    /// Each rejected or exhausted record is a dead letter once, and no other record is.
    DeadLetters,
    /// A settle and the appends with it take effect together.
    Transfers,
    /// Committed offsets do not go back.
    Offsets,
    /// A partition has one owner of a group, and no other member commits in it.
    Owners,
    /// The members of a group together consume every record.
    Consumed,
    /// The newest record of each key of a compacted topic stays.
    Compacted,
    /// Topics exist from the reply to their creation to the request of their deletion, and the shard has the rows
    /// of all existing topics and of no others.
    Catalog,
    /// Terms rise, from one life to the next too.
    Terms,
    /// Replies arrive within a bound without faults, and everything completes once all faults are healed.
    Progress,
    /// The node opens after any crash, and does not end by itself.
    Alive,
}

/// Violations of a log.
impl From<&history::Violation> for Invariant {
    fn from(violation: &history::Violation) -> Self {
        use history::Violation as Of;
        match violation {
            Of::Lost { .. } | Of::Changed { .. } => Self::Durable,
            Of::Gap { .. } | Of::OutOfOrder { .. } => Self::Ordered,
            Of::NeverSent { .. } | Of::Twice { .. } => Self::Once,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub invariant: Invariant,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} does not hold: {}", self.invariant, self.what)
    }
}

/// The first violation of a run. Clones share it.
#[derive(Clone, Debug)]
pub struct Verdict(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    trace: Trace,
    first: Mutex<Option<Violation>>,
    found: Notify,
}

impl Verdict {
    pub fn new(trace: Trace) -> Self {
        Self(Arc::new(Inner { trace, first: Mutex::default(), found: Notify::new() }))
    }

    pub fn violated(&self, invariant: Invariant, what: impl Into<String>) {
        let mut first = self.0.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            let violation = Violation { invariant, what: what.into() };
            self.0.trace.note(format_args!("VIOLATION {violation}"));
            *first = Some(violation);
            self.0.found.notify_one();
        }
    }

    pub fn first(&self) -> Option<Violation> {
        self.0.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resolves once there is a violation.
    pub async fn found(&self) {
        while self.first().is_none() {
            self.0.found.notified().await;
        }
    }
}
