//! Invariants of arbitrary batches and compressed bytes: for fuzz targets, and for tests of the
//! cases they found.

use base::checksum::crc32c;
use bytes::Bytes;

use crate::{
    Batch, BatchHeader, CompactionResult, Compression, HEADER_LEN, MAGIC, RecordView, SharedBatch,
    ValidateLimits, first_with_max_timestamp, offset_at_or_after, recompress, retain,
    retain_or_empty, split, validate, value_bytes, verify_checksum,
};

/// Limit of decompressed bytes here: enough coverage at little cost per run.
const UNPACKED_BYTES_MAX: usize = 256 << 10;
const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;
const CHECKSUM_AT: usize = 17;
const CHECKED_FROM: usize = 21;

/// A producer's bytes: as given, and with corrected length and checksum.
pub fn batch(data: &[u8]) {
    look(data);
    if data.len() < HEADER_LEN {
        return;
    }
    let mut batch = data.to_vec();
    let length = (batch.len() - LENGTH_AT - 4) as i32;
    batch[LENGTH_AT..MAGIC_AT - 4].copy_from_slice(&length.to_be_bytes());
    batch[MAGIC_AT] = MAGIC as u8;
    let checksum = crc32c(&batch[CHECKED_FROM..]);
    batch[CHECKSUM_AT..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
    look(&batch);
}

fn look(batch: &[u8]) {
    let _ = BatchHeader::parse(batch);
    let _ = verify_checksum(batch);
    let mut end = 0;
    for found in split(batch) {
        let Ok((_, place)) = found else { break };
        assert_eq!(place.start, end, "batches follow one another");
        end = place.end;
        assert!(end <= batch.len());
    }
    let limits =
        ValidateLimits { decompressed_bytes_max: UNPACKED_BYTES_MAX, ..ValidateLimits::default() };
    if validate(batch, &limits).is_ok() {
        agree(batch);
    }
}

/// The encoded records of a batch, for comparison with another.
fn seen(batch: &[u8]) -> Vec<Vec<u8>> {
    let batch = Batch::decode(batch).expect("it was validated");
    let records = batch.records().map(|record| record.expect("it was validated").encoded.to_vec());
    records.collect()
}

/// Checks that all readers of a valid batch see the same records.
fn agree(batch: &[u8]) {
    let header = BatchHeader::parse(batch).expect("it was validated");
    let records = seen(batch);
    assert_eq!(records.len(), header.record_count as usize);
    assert_eq!(split(batch).count(), 1);

    let shared = SharedBatch::decode(&Bytes::copy_from_slice(batch)).expect("it was validated");
    let of_shared = shared.records().map(|record| record.expect("validated").encoded.to_vec());
    assert!(of_shared.eq(records.iter().cloned()), "a shared batch has other records");
    let shared = std::sync::Arc::new(shared);
    for place in [0, records.len() - 1] {
        let found = shared.record(header.base_offset + place as u64).map(|it| it.encoded());
        assert_eq!(found.as_deref(), Some(&records[place][..]), "by offset another is found");
    }

    offset_at_or_after(batch, header.base_timestamp).expect("it was validated");
    first_with_max_timestamp(batch).expect("it was validated");
    let _ = value_bytes(batch);

    let to = Compression::ALL[usize::from(batch[batch.len() - 1]) % Compression::ALL.len()];
    // A batch that was small because it was compressed may be too large without compression.
    if let Ok(packed) = recompress(batch, to) {
        verify_checksum(&packed).expect("what is packed has its checksum");
        assert_eq!(seen(&packed), records, "{to} changes records");
    }
    assert_eq!(retain(batch, None, |_| true), Ok(CompactionResult::All));
    let even = |record: &RecordView<'_>| record.offset.is_multiple_of(2);
    if let Ok(CompactionResult::Part(part)) = retain_or_empty(batch, even) {
        verify_checksum(&part).expect("what is kept has its checksum");
        let kept = seen(&part);
        assert!(kept.len() < records.len() && kept.iter().all(|record| records.contains(record)));
    }
    let _ = retain(batch, Some(5), even);
}

/// Compressed bytes; the first byte selects the codec. They decompress to no more than the limit,
/// and the result can be compressed and decompressed again.
pub fn compressed(data: &[u8]) {
    let Some((which, packed)) = data.split_first() else { return };
    let codec = Compression::ALL[usize::from(*which) % Compression::ALL.len()];
    let Ok(unpacked) = codec.decompress(packed, UNPACKED_BYTES_MAX) else { return };
    assert!(unpacked.len() <= UNPACKED_BYTES_MAX);
    if let Some(less) = unpacked.len().checked_sub(1) {
        assert!(codec.decompress(packed, less).is_err(), "{codec} passes its limit");
    }
    let mut again = Vec::new();
    codec.compress(&unpacked, &mut again);
    assert_eq!(codec.decompress(&again, UNPACKED_BYTES_MAX), Ok(unpacked));
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_batches_passes() {
        test_corpus::each("record_batch", super::batch);
        test_corpus::each("record_compressed", super::compressed);
    }
}
