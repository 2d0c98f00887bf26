//! Batches with current timestamps, for loads.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::records::{self, NewRecord};

/// Milliseconds since 1970 by the clock of this machine.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

/// An uncompressed batch of these values, without keys.
pub(crate) fn batch(values: impl Iterator<Item = Bytes>) -> Bytes {
    batch_of(values.map(NewRecord::of))
}

/// An uncompressed batch of these records. The timestamp is the current time, since retention would delete old
/// records.
pub(crate) fn batch_of(records: impl Iterator<Item = NewRecord>) -> Bytes {
    records::batch_of(records, now_ms())
}
