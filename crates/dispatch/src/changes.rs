//! What must become durable: the deltas since the last drain, coalesced. The driver puts them into
//! ONE command; nothing else of the engine outlives a crash.

use base::Offset;

use crate::{ConsumerId, DeadReason};

/// Deltas of one partition; the shape of the machine's `GroupSettle`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionChanges {
    pub partition: u32,
    /// Ranges that were settled: first offset and length; ascending, apart from each other.
    pub settled: Vec<(Offset, u32)>,
    /// Records that came back, and how often by now; ascending.
    pub attempts: Vec<(Offset, u16)>,
}

/// A dead letter: append it to where dead letters go in the entry that settles it, then say
/// [`crate::Dispatch::ended`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    pub partition: u32,
    pub offset: Offset,
    pub reason: DeadReason,
    /// How often it was delivered.
    pub attempts: u16,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Ascending by partition; only those that changed.
    pub partitions: Vec<PartitionChanges>,
    pub dead: Vec<DeadLetter>,
    /// Single-active consumers that were switched on (`true`) or off, in the order in which it
    /// happened.
    pub active: Vec<(ConsumerId, bool)>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.dead.is_empty() && self.active.is_empty()
    }

    pub fn clear(&mut self) {
        self.partitions.clear();
        self.dead.clear();
        self.active.clear();
    }
}
