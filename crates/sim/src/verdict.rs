//! What a run is judged by, and the first violation found.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::history;
use crate::trace::Trace;

/// What must hold, whatever fails. Each checker watches one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Invariant {
    /// An acknowledged record is at its offset, as it was sent.
    Durable,
    /// Offsets have no gap, and nobody gets one twice; of one producer, records are in the order sent.
    Ordered,
    /// A record that was not acknowledged is there whole and once, or not at all.
    Once,
    /// An acknowledged record with an id is answered with its place when it is sent again, also once it is deleted.
    Recognised,
    /// A record whose settle was confirmed is not delivered again.
    Settled,
    /// No two consumers hold a record.
    Exclusive,
    /// Of one key, one record is out at a time, and the oldest first.
    KeyOrder,
    /// The number of a delivery does not go down, and no more than allowed are made.
    Attempts,
    /// A record is not delivered before its time.
    Delayed,
    /// What is rejected or exhausted is a dead letter once, and nothing else is.
    DeadLetters,
    /// A settle and the appends with it take effect together.
    Transfers,
    /// Committed offsets do not go back.
    Offsets,
    /// A partition has one owner of a group, and nobody else commits in it.
    Owners,
    /// The members of a group together consume every record.
    Consumed,
    /// Of a compacted topic the newest record of each key stays.
    Compacted,
    /// Topics are there from the answer that made them to the request that deletes them, and the shard has
    /// the rows of all that there are and of no others.
    Catalog,
    /// Terms rise, from one life to the next too.
    Terms,
    /// What is due comes within a bound while nothing fails, and once nothing fails any more everything
    /// comes to an end.
    Progress,
    /// The node opens what a crash left, and does not end by itself.
    Alive,
}

/// Of a log.
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

/// The first violation of a run. Clones are the same.
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

    /// Resolves once there is one.
    pub async fn found(&self) {
        while self.first().is_none() {
            self.0.found.notified().await;
        }
    }
}
