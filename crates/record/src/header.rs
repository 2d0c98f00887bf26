//! The 61 bytes that open every batch. The first 16 (base offset, length, leader epoch) and the
//! magic byte are outside the checksum, so that a broker can assign an offset without reading the
//! body.
//!
//! | at | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | base offset |
//! | 8 | 4 | batch length: bytes that follow this field |
//! | 12 | 4 | leader epoch |
//! | 16 | 1 | magic: 2 |
//! | 17 | 4 | CRC32C of all that follows this field |
//! | 21 | 2 | attributes |
//! | 23 | 4 | last offset delta |
//! | 27 | 8 | base timestamp |
//! | 35 | 8 | max timestamp |
//! | 43 | 8 | producer id |
//! | 51 | 2 | producer epoch |
//! | 53 | 4 | base sequence |
//! | 57 | 4 | record count |

use std::ops::Range;

use base::limits::BATCH_BYTES_MAX;

use crate::compression::Compression;
use crate::error::BatchError;

/// Bytes of a batch before its records.
pub const HEADER_LEN: usize = 61;
/// The only supported batch format.
pub const MAGIC: i8 = 2;

/// The batch length on the wire does not count the base offset and itself.
pub(crate) const LENGTH_EXCLUDES: usize = 12;
pub(crate) const LENGTH_AT: usize = 8;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
/// The checksum covers everything from the attributes on.
pub(crate) const ATTRIBUTES_AT: usize = 21;
pub(crate) const LAST_OFFSET_DELTA_AT: usize = 23;
pub(crate) const BASE_TIMESTAMP_AT: usize = 27;
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;
pub(crate) const PRODUCER_ID_AT: usize = 43;
pub(crate) const PRODUCER_EPOCH_AT: usize = 51;
pub(crate) const BASE_SEQUENCE_AT: usize = 53;
pub(crate) const RECORD_COUNT_AT: usize = 57;

// Lengths are an i32 on the wire.
const _: () = assert!(BATCH_BYTES_MAX as usize + LENGTH_EXCLUDES < i32::MAX as usize);

/// The clock of a batch's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampType {
    /// Each record has its own, set by its producer.
    Create,
    /// All records have the batch's max timestamp, set by the broker.
    LogAppend,
}

/// The attribute bits of a batch. Bits without a meaning yet are preserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes(i16);

impl Attributes {
    const COMPRESSION_MASK: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;

    /// Refuses bits of unknown compression codecs, so that [`Attributes::compression`] cannot fail.
    pub fn from_bits(bits: i16) -> Result<Self, BatchError> {
        let codec = (bits & Self::COMPRESSION_MASK) as u8;
        match Compression::from_id(codec) {
            Some(_) => Ok(Self(bits)),
            None => Err(BatchError::UnknownCompression(codec)),
        }
    }

    pub const fn bits(self) -> i16 {
        self.0
    }

    pub fn compression(self) -> Compression {
        Compression::from_id((self.0 & Self::COMPRESSION_MASK) as u8)
            .expect("attributes are made with a known codec only")
    }

    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 {
            TimestampType::LogAppend
        } else {
            TimestampType::Create
        }
    }

    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// KIP-534: the base timestamp is the time after which tombstones of the batch may be deleted.
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    #[must_use]
    pub const fn with_compression(self, compression: Compression) -> Self {
        Self((self.0 & !Self::COMPRESSION_MASK) | compression.id() as i16)
    }

    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        match timestamp_type {
            TimestampType::Create => Self(self.0 & !Self::LOG_APPEND_TIME),
            TimestampType::LogAppend => Self(self.0 | Self::LOG_APPEND_TIME),
        }
    }

    #[must_use]
    pub const fn with_transactional(self) -> Self {
        Self(self.0 | Self::TRANSACTIONAL)
    }

    #[must_use]
    pub const fn with_control(self) -> Self {
        Self(self.0 | Self::CONTROL)
    }

    #[must_use]
    pub const fn with_delete_horizon(self) -> Self {
        Self(self.0 | Self::DELETE_HORIZON)
    }
}

/// A batch header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub base_offset: u64,
    /// As on the wire: bytes after this field. [`BatchHeader::total_len`] is the whole batch.
    pub batch_length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: Attributes,
    /// Preserved by compaction: the batch still covers the offsets of removed records.
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    /// Milliseconds since the epoch, or -1 if the records have none.
    pub max_timestamp: i64,
    /// -1 when the producer is not idempotent.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Decodes the header at the front of `bytes`, which need not include the records.
    ///
    /// Checks the invariants of every later step: the magic, a valid length, consistent counts,
    /// positive offsets, a known codec. It does not check the checksum: see [`verify_checksum`], or
    /// [`crate::validate`] for untrusted bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::parse_at(bytes, None)
    }

    /// As [`BatchHeader::parse`], with this base offset instead of the one in the bytes.
    pub fn parse_at(bytes: &[u8], base_offset: Option<u64>) -> Result<Self, BatchError> {
        // The magic is at the same position in all formats, and a legacy message may be shorter
        // than this header: it gets an error of its own.
        if let Some(&magic) = bytes.get(MAGIC_AT)
            && magic as i8 != MAGIC
        {
            return Err(BatchError::UnsupportedMagic(magic as i8));
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(BatchError::Truncated { needed: HEADER_LEN, have: bytes.len() });
        };
        let header = Self {
            base_offset: base_offset.unwrap_or_else(|| u64::from_be_bytes(field(bytes, 0))),
            batch_length: i32::from_be_bytes(field(bytes, LENGTH_AT)),
            leader_epoch: i32::from_be_bytes(field(bytes, LEADER_EPOCH_AT)),
            magic: MAGIC,
            crc: u32::from_be_bytes(field(bytes, CRC_AT)),
            attributes: Attributes::from_bits(i16::from_be_bytes(field(bytes, ATTRIBUTES_AT)))?,
            last_offset_delta: i32::from_be_bytes(field(bytes, LAST_OFFSET_DELTA_AT)),
            base_timestamp: i64::from_be_bytes(field(bytes, BASE_TIMESTAMP_AT)),
            max_timestamp: i64::from_be_bytes(field(bytes, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(field(bytes, PRODUCER_ID_AT)),
            producer_epoch: i16::from_be_bytes(field(bytes, PRODUCER_EPOCH_AT)),
            base_sequence: i32::from_be_bytes(field(bytes, BASE_SEQUENCE_AT)),
            record_count: i32::from_be_bytes(field(bytes, RECORD_COUNT_AT)),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), BatchError> {
        let length = self.batch_length;
        if length < (HEADER_LEN - LENGTH_EXCLUDES) as i32
            || length > BATCH_BYTES_MAX as i32 - LENGTH_EXCLUDES as i32
        {
            return Err(BatchError::ImpossibleLength(length));
        }
        let (count, last_offset_delta) = (self.record_count, self.last_offset_delta);
        // Compaction leaves fewer records than offsets, never more.
        if count < 0 || last_offset_delta < 0 || i64::from(count) > i64::from(last_offset_delta) + 1
        {
            return Err(BatchError::ImpossibleCount { count, last_offset_delta });
        }
        // The next offset must fit Kafka's i64.
        let base_offset = self.base_offset as i64;
        if base_offset < 0 || base_offset > i64::MAX - 1 - i64::from(last_offset_delta) {
            return Err(BatchError::ImpossibleOffset { base_offset });
        }
        Ok(())
    }

    /// Writes the header unchanged, including the checksum.
    pub fn write(&self, out: &mut [u8; HEADER_LEN]) {
        put(out, 0, self.base_offset.to_be_bytes());
        put(out, LENGTH_AT, self.batch_length.to_be_bytes());
        put(out, LEADER_EPOCH_AT, self.leader_epoch.to_be_bytes());
        put(out, MAGIC_AT, self.magic.to_be_bytes());
        put(out, CRC_AT, self.crc.to_be_bytes());
        put(out, ATTRIBUTES_AT, self.attributes.bits().to_be_bytes());
        put(out, LAST_OFFSET_DELTA_AT, self.last_offset_delta.to_be_bytes());
        put(out, BASE_TIMESTAMP_AT, self.base_timestamp.to_be_bytes());
        put(out, MAX_TIMESTAMP_AT, self.max_timestamp.to_be_bytes());
        put(out, PRODUCER_ID_AT, self.producer_id.to_be_bytes());
        put(out, PRODUCER_EPOCH_AT, self.producer_epoch.to_be_bytes());
        put(out, BASE_SEQUENCE_AT, self.base_sequence.to_be_bytes());
        put(out, RECORD_COUNT_AT, self.record_count.to_be_bytes());
    }

    /// Bytes of the whole batch, from its base offset to its last record.
    pub const fn total_len(&self) -> usize {
        self.batch_length as usize + LENGTH_EXCLUDES
    }

    pub const fn last_offset(&self) -> u64 {
        self.base_offset + self.last_offset_delta as u64
    }

    /// The offset of the partition's next batch.
    pub const fn next_offset(&self) -> u64 {
        self.last_offset() + 1
    }

    pub const fn is_idempotent(&self) -> bool {
        self.producer_id >= 0
    }

    /// The sequence of the last record; after `i32::MAX` comes 0. -1 when there are none.
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let sum = self.base_sequence as i64 + self.last_offset_delta as i64;
        (sum % (i32::MAX as i64 + 1)) as i32
    }

    /// Time after which tombstones of this batch may be deleted (KIP-534), if compaction has set
    /// it.
    pub const fn delete_horizon(&self) -> Option<i64> {
        if self.attributes.has_delete_horizon() { Some(self.base_timestamp) } else { None }
    }
}

fn field<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("every field lies in the header")
}

pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Writes the header in front of a body with the right length and checksum.
pub(crate) fn seal(batch: &mut [u8], mut header: BatchHeader) {
    header.batch_length = (batch.len() - LENGTH_EXCLUDES) as i32;
    header.write(batch.first_chunk_mut().expect("a batch has room for its header"));
    write_checksum(batch);
}

/// Computes the checksum of exactly one batch and stores it.
pub(crate) fn write_checksum(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    put(batch, CRC_AT, crc.to_be_bytes());
}

/// Decodes the header of `batch`, which must be exactly one batch, and checks its checksum.
pub fn verify_checksum(batch: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = parse_exact(batch)?;
    let computed = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    if computed != header.crc {
        return Err(BatchError::ChecksumMismatch { stored: header.crc, computed });
    }
    Ok(header)
}

/// Decodes the header of `batch`, which must be exactly one batch.
pub(crate) fn parse_exact(batch: &[u8]) -> Result<BatchHeader, BatchError> {
    parse_exact_at(batch, None)
}

/// The same, with this base offset instead of the one in the bytes.
pub(crate) fn parse_exact_at(
    batch: &[u8],
    base_offset: Option<u64>,
) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse_at(batch, base_offset)?;
    let (declared, actual) = (header.total_len(), batch.len());
    if declared > actual {
        return Err(BatchError::Truncated { needed: declared, have: actual });
    }
    if declared < actual {
        return Err(BatchError::LengthMismatch { declared, actual });
    }
    Ok(header)
}

/// The consecutive batches in `bytes`: each header with its range. Iteration ends after the first
/// error. Checksums and records are not checked.
pub fn split(bytes: &[u8]) -> Split<'_> {
    split_at(bytes, None)
}

/// As [`split`], with this base offset for the first batch instead of the one in its bytes: several
/// partitions may share one batch, each at an offset of its own.
pub fn split_at(bytes: &[u8], base_offset: Option<u64>) -> Split<'_> {
    Split { bytes, at: 0, base_offset }
}

/// See [`split`].
#[derive(Clone, Debug)]
pub struct Split<'a> {
    bytes: &'a [u8],
    at: usize,
    base_offset: Option<u64>,
}

impl Iterator for Split<'_> {
    type Item = Result<(BatchHeader, Range<usize>), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let start = self.at;
        // Also ends the iteration after an error.
        self.at = self.bytes.len();
        let header = match BatchHeader::parse_at(rest, self.base_offset.take()) {
            Ok(header) => header,
            Err(error) => return Some(Err(error)),
        };
        let needed = header.total_len();
        if needed > rest.len() {
            return Some(Err(BatchError::Truncated { needed, have: rest.len() }));
        }
        self.at = start + needed;
        Some(Ok((header, start..self.at)))
    }
}

impl std::iter::FusedIterator for Split<'_> {}
