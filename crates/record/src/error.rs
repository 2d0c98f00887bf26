//! Why a batch is refused. Each failure has the details for a log line or a protocol's error
//! message; the gateway maps it to a protocol error.

use thiserror::Error;

use crate::compression::{Compression, CompressionError};
use crate::refused::RefusedRecords;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    #[error("batch is cut off: it needs {needed} bytes and has {have}")]
    Truncated { needed: usize, have: usize },
    #[error("batch has the impossible length {0}")]
    ImpossibleLength(i32),
    #[error("batch declares {declared} bytes and comes with {actual}")]
    LengthMismatch { declared: usize, actual: usize },
    #[error("batch of {bytes} bytes is over the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// 0 and 1 are the message sets of Kafka before 0.11, which Kafka 4 refuses too.
    #[error("message format {0} is not supported: only record batches of format 2 are")]
    UnsupportedMagic(i8),
    #[error("batch has the impossible base offset {base_offset}")]
    ImpossibleOffset { base_offset: i64 },
    #[error("batch checksum is {computed:#010x}, its header says {stored:#010x}")]
    ChecksumMismatch { stored: u32, computed: u32 },
    #[error("compression codec {0} is not known")]
    UnknownCompression(u8),
    #[error("batch has {count} records and the last offset delta {last_offset_delta}")]
    ImpossibleCount { count: i32, last_offset_delta: i32 },
    #[error("batch has more than {limit} records")]
    TooManyRecords { limit: u32 },
    #[error("clients may not write control batches")]
    ControlBatch,
    #[error("clients may not set the timestamp type to log append time")]
    LogAppendTime,
    #[error("producer {producer_id} (epoch {epoch}) sent the impossible sequence {sequence}")]
    ImpossibleSequence { producer_id: i64, epoch: i16, sequence: i32 },
    #[error("record {index} of the batch {fault}")]
    Record { index: u32, fault: RecordFault },
    /// The topic does not accept these records of the batch.
    #[error("{0}")]
    Records(RefusedRecords),
    #[error("{bytes} bytes follow the last record of the batch")]
    TrailingBytes { bytes: usize },
    #[error("batch compressed by {compression} cannot be unpacked: {error}")]
    Compression { compression: Compression, error: CompressionError },
}

/// Fault of one record; continues the sentence "record N of the batch ...".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordFault {
    #[error("is cut off")]
    Truncated,
    #[error("has an integer that does not end")]
    Varint,
    #[error("has the impossible length {0} in one of its fields")]
    ImpossibleLength(i32),
    #[error("declares {declared} bytes and uses {used}")]
    LengthMismatch { declared: usize, used: usize },
    #[error("has the offset delta {found} where {expected} is due")]
    OffsetDelta { found: i32, expected: i32 },
    /// Offset deltas of a stored batch may have gaps, but they ascend and end with the last one.
    #[error("has the offset delta {found}, not within {min}..={max}")]
    OffsetDeltaOutOfRange { found: i32, min: i64, max: i32 },
}
