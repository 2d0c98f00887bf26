//! Start and end of a partition, and the offset of a timestamp. They travel between nodes.

use base::Offset;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
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
    pub fn of(partition: &machine::Partition) -> Self {
        Self { log_start: partition.log_start(), end: partition.next_offset() }
    }
}
