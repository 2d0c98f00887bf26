//! Deltas since the last drain that must become durable, coalesced. The driver puts them into ONE
//! command; no other state of the engine survives a crash.

use base::Offset;

use crate::ConsumerId;
use crate::record::DeadReason;

/// Deltas of one partition; the shape of the machine's `GroupSettle`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionChanges {
    pub partition: u32,
    /// Ranges that were settled: first offset and length; ascending, apart from each other.
    pub settled: Vec<(Offset, u32)>,
    /// Released records with their number of attempts; ascending.
    pub attempts: Vec<(Offset, u16)>,
}

/// A dead letter: append it to the dead letter topic in the entry that settles the record, then
/// call [`crate::Dispatch::ended`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    pub partition: u32,
    pub offset: Offset,
    pub reason: DeadReason,
    /// Number of deliveries.
    pub attempts: u16,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Ascending by partition; only those that changed.
    pub partitions: Vec<PartitionChanges>,
    pub dead: Vec<DeadLetter>,
    /// Single-active consumers that were activated (`true`) or deactivated, in chronological order.
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
