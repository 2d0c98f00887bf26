//! Finds a record of a batch by its timestamp, for lookups by time.

use crate::error::BatchError;
use crate::records::Batch;

/// Offset and timestamp of the first record at or after `timestamp`; `None` if all are earlier.
/// Timestamps need not ascend with the offsets.
pub fn offset_at_or_after(batch: &[u8], timestamp: i64) -> Result<Option<(u64, i64)>, BatchError> {
    for record in Batch::decode(batch)?.records() {
        let record = record?;
        if record.timestamp >= timestamp {
            return Ok(Some((record.offset, record.timestamp)));
        }
    }
    Ok(None)
}

/// Offset and timestamp of the record with the largest timestamp, the first one of equals; `None`
/// if compaction has left no record.
pub fn first_with_max_timestamp(batch: &[u8]) -> Result<Option<(u64, i64)>, BatchError> {
    let mut found: Option<(u64, i64)> = None;
    for record in Batch::decode(batch)?.records() {
        let record = record?;
        if found.is_none_or(|(_, greatest)| record.timestamp > greatest) {
            found = Some((record.offset, record.timestamp));
        }
    }
    Ok(found)
}
