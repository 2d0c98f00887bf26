//! Batches in what the journal gives back.

use bytes::Bytes;
use journal::Stored;
use record::{BatchError, BatchHeader};

/// Each of the batches that were read: its header, with the base offset that it has in its partition,
/// and its bytes, which may begin with another one. Of a piece nothing follows the first error.
pub fn batches_in(
    records: &[Stored],
) -> impl Iterator<Item = Result<(BatchHeader, Bytes), BatchError>> + '_ {
    records.iter().flat_map(|stored| {
        let batches = record::split_at(&stored.bytes, stored.base_offset);
        batches.map(|batch| batch.map(|(header, place)| (header, stored.bytes.slice(place))))
    })
}
