//! Changes of an existing batch by a broker: its offset, its timestamps, its codec, and its
//! remaining records. Offsets of records never change once they are assigned; everything here
//! preserves them.

use base::limits::BATCH_BYTES_MAX;

use crate::compression::Compression;
use crate::error::BatchError;
use crate::header::{
    ATTRIBUTES_AT, Attributes, BatchHeader, HEADER_LEN, LEADER_EPOCH_AT, MAX_TIMESTAMP_AT,
    TimestampType, parse_exact, put, seal, write_checksum,
};
use crate::records::{Batch, RecordView, Records, unpack};
use crate::varint;

/// Assigns a batch its position in the partition. Only bytes before the checksum change, so it
/// stays valid, and the cost does not depend on the size. Panics if `batch` is shorter than a
/// header: it must have been validated.
pub fn assign(batch: &mut [u8], base_offset: u64, leader_epoch: i32) {
    assert!(batch.len() >= HEADER_LEN, "offsets are given to validated batches only");
    put(batch, 0, base_offset.to_be_bytes());
    put(batch, LEADER_EPOCH_AT, leader_epoch.to_be_bytes());
}

/// Makes `timestamp_ms` the timestamp of all records (`message.timestamp.type=LogAppendTime`) and
/// recomputes the checksum. `batch` is exactly one validated batch.
pub fn set_log_append_time(batch: &mut [u8], timestamp_ms: i64) {
    let attributes = attributes(batch).with_timestamp_type(TimestampType::LogAppend);
    put(batch, ATTRIBUTES_AT, attributes.bits().to_be_bytes());
    set_max_timestamp(batch, timestamp_ms);
}

/// Sets the header's max timestamp and recomputes the checksum. `batch` is exactly one validated
/// batch.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_ms: i64) {
    put(batch, MAX_TIMESTAMP_AT, timestamp_ms.to_be_bytes());
    write_checksum(batch);
}

fn attributes(batch: &[u8]) -> Attributes {
    let bits = batch[ATTRIBUTES_AT..].first_chunk().expect("a validated batch has attributes");
    Attributes::from_bits(i16::from_be_bytes(*bits)).expect("a validated batch has a known codec")
}

/// The batch with its body in another codec (a topic's `compression.type`). Everything else is
/// unchanged.
pub fn recompress(batch: &[u8], to: Compression) -> Result<Vec<u8>, BatchError> {
    recompress_at(batch, to, None)
}

/// As [`recompress`], at a level (see [`Compression::compress_at`]).
pub fn recompress_at(
    batch: &[u8],
    to: Compression,
    level: Option<i32>,
) -> Result<Vec<u8>, BatchError> {
    let header = parse_exact(batch)?;
    let body = &batch[HEADER_LEN..];
    let unpacked = unpack(&header, body)?;
    pack(&header, unpacked.as_deref().unwrap_or(body), to, level)
}

/// Joins a header and an uncompressed body.
fn pack(
    header: &BatchHeader,
    body: &[u8],
    to: Compression,
    level: Option<i32>,
) -> Result<Vec<u8>, BatchError> {
    let mut batch = Vec::with_capacity(HEADER_LEN + if to.is_none() { body.len() } else { 0 });
    batch.resize(HEADER_LEN, 0);
    to.compress_at(level, body, &mut batch);
    // A batch that was small because it was compressed may be too large without compression.
    let limit = BATCH_BYTES_MAX as usize;
    if batch.len() > limit {
        return Err(BatchError::TooLarge { bytes: batch.len(), limit });
    }
    seal(&mut batch, BatchHeader { attributes: header.attributes.with_compression(to), ..*header });
    Ok(batch)
}

/// The result of compacting a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompactionResult {
    /// All records are kept: the batch stays as it is.
    All,
    /// No record is kept: the batch is removed.
    None,
    /// This batch replaces the former one.
    Part(Vec<u8>),
}

/// Keeps the records for which `keep` returns true.
///
/// The new batch covers the same offsets as the old one: base offset, last offset delta, producer
/// fields and each record's own offset are unchanged. If a tombstone is kept and the batch has no
/// delete horizon yet, it gets `tombstone_horizon` (KIP-534): the time after which the tombstone
/// may be deleted too, see [`BatchHeader::delete_horizon`].
pub fn retain(
    batch: &[u8],
    tombstone_horizon: Option<i64>,
    mut keep: impl FnMut(&RecordView<'_>) -> bool,
) -> Result<CompactionResult, BatchError> {
    let batch = Batch::decode(batch)?;
    let header = *batch.header();
    let mut kept = KeptRecords::default();
    for record in batch.records() {
        let record = record?;
        if keep(&record) {
            kept.push(&record);
        }
    }
    if kept.count == 0 {
        return Ok(CompactionResult::None);
    }
    let horizon =
        tombstone_horizon.filter(|_| kept.has_tombstone && !header.attributes.has_delete_horizon());
    if kept.count == header.record_count && horizon.is_none() {
        return Ok(CompactionResult::All);
    }
    let mut header = BatchHeader { record_count: kept.count, ..header };
    if header.attributes.timestamp_type() == TimestampType::Create {
        header.max_timestamp = kept.max_timestamp;
    }
    let compression = header.attributes.compression();
    let packed = match horizon {
        None => pack(&header, &kept.body, compression, None)?,
        Some(horizon) => {
            let body = rebase(&header, &kept.body, horizon)?;
            header.base_timestamp = horizon;
            header.attributes = header.attributes.with_delete_horizon();
            pack(&header, &body, compression, None)?
        }
    };
    Ok(CompactionResult::Part(packed))
}

/// As [`retain`], but a batch without remaining records becomes an empty one: it keeps its offsets
/// and its producer's sequence.
pub fn retain_or_empty(
    batch: &[u8],
    keep: impl FnMut(&RecordView<'_>) -> bool,
) -> Result<CompactionResult, BatchError> {
    match retain(batch, None, keep)? {
        CompactionResult::None => empty(batch).map(CompactionResult::Part),
        rest => Ok(rest),
    }
}

/// The batch without its records: it keeps its offsets and its producer's sequence. The records are
/// not read.
pub fn empty(batch: &[u8]) -> Result<Vec<u8>, BatchError> {
    let header = BatchHeader { record_count: 0, ..BatchHeader::parse(batch)? };
    pack(&header, &[], Compression::None, None)
}

/// Kept records in their encoded form.
struct KeptRecords {
    body: Vec<u8>,
    count: i32,
    max_timestamp: i64,
    has_tombstone: bool,
}

impl Default for KeptRecords {
    fn default() -> Self {
        Self { body: Vec::new(), count: 0, max_timestamp: i64::MIN, has_tombstone: false }
    }
}

impl KeptRecords {
    fn push(&mut self, record: &RecordView<'_>) {
        self.body.extend_from_slice(record.encoded);
        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.has_tombstone |= record.value.is_none();
    }
}

/// Rewrites the records for another base timestamp: each keeps its own timestamp.
fn rebase(header: &BatchHeader, body: &[u8], base_timestamp: i64) -> Result<Vec<u8>, BatchError> {
    let moved = header.base_timestamp.wrapping_sub(base_timestamp);
    let mut rebased = Vec::with_capacity(body.len() + header.record_count as usize * 8);
    for record in Records::new(header, body) {
        let (attributes, timestamp_delta, rest) = record?.split_at_timestamp();
        let timestamp_delta = timestamp_delta.wrapping_add(moved);
        let length = 1 + varint::len_i64(timestamp_delta) + rest.len();
        varint::write_i32(&mut rebased, length as i32);
        rebased.push(attributes);
        varint::write_i64(&mut rebased, timestamp_delta);
        rebased.extend_from_slice(rest);
    }
    Ok(rebased)
}
