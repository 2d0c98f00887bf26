//! Batches in the results of the journal.

use bytes::Bytes;
use journal::StoredBatches;
use record::{BatchError, BatchHeader};

/// Returns each batch that was read: its header, with the base offset in its partition, and its bytes, which may
/// begin with another offset. A piece ends at its first error.
pub fn batches_in(
    records: &[StoredBatches],
) -> impl Iterator<Item = Result<(BatchHeader, Bytes), BatchError>> + '_ {
    records.iter().flat_map(|stored| {
        let batches = record::split_at(&stored.bytes, stored.base_offset);
        batches.map(|batch| batch.map(|(header, place)| (header, stored.bytes.slice(place))))
    })
}
