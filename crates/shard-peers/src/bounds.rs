//! Start and ends of a partition, and the offset of a timestamp. They travel between nodes.

use base::{Offset, PartitionId};
use machine::{Partition, Rows};
use serde::{Deserialize, Serialize};

/// A partition's readable range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    pub log_start: Offset,
    /// First offset of the earliest open transaction, or else the end. Readers of committed records stop here.
    pub stable: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
}

/// Start and end of a partition's log. It is sent below [`base::Level::TRANSACTIONS`] instead of [`Bounds`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogRange {
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimedOffset {
    pub offset: Offset,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
}

impl Bounds {
    pub fn of(rows: &Rows, id: PartitionId, partition: &Partition) -> Self {
        let end = partition.next_offset();
        let stable = rows.transactions().stable_end(id, end);
        Self { log_start: partition.log_start(), stable, end }
    }

    /// Bounds of a partition that is served in these rows.
    pub fn served(rows: &Rows, id: PartitionId) -> Option<Self> {
        Some(Self::of(rows, id, rows.partition(id)?))
    }

    /// Bounds of a partition that is served in these rows, or was handed over and still has its bytes.
    pub fn known(rows: &Rows, id: PartitionId) -> Option<Self> {
        Some(Self::of(rows, id, rows.known(id)?))
    }
}

impl LogRange {
    pub fn of(partition: &Partition) -> Self {
        Self { log_start: partition.log_start(), end: partition.next_offset() }
    }
}

/// Bounds from a node that knows no transactions.
impl From<LogRange> for Bounds {
    fn from(LogRange { log_start, end }: LogRange) -> Self {
        Self { log_start, stable: end, end }
    }
}

impl From<Bounds> for LogRange {
    fn from(Bounds { log_start, end, .. }: Bounds) -> Self {
        Self { log_start, end }
    }
}
