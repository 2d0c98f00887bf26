//! Validates a producer's batch. After that the broker only passes the batch on, and does not read
//! its records again.
//!
//! Every record is read, in compressed batches too: an accepted corrupt record would break every
//! consumer of the partition, forever. An uncompressed batch is read in place.

use base::limits::{
    BATCH_BYTES_MAX, BATCH_RECORDS_MAX, PRODUCED_UNPACKED_BYTES_MAX, REFUSED_RECORDS_NAMED_MAX,
};

use crate::error::{BatchError, RecordFault};
use crate::header::{BatchHeader, HEADER_LEN, TimestampType, verify_checksum};
use crate::records::{Records, unpack_bounded};
use crate::refused::{RefusalReason, RefusedRecords};

/// A topic's requirements on batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidateLimits {
    /// The topic's `max.message.bytes`: of the whole batch, as received.
    pub batch_bytes_max: usize,
    pub decompressed_bytes_max: usize,
    pub records_max: u32,
    /// Each record must have a key: set for topics compacted by key.
    pub require_key: bool,
    /// Accept batches of control records, which only brokers write.
    pub allow_control: bool,
    /// The window of record timestamps (`message.timestamp.before.max.ms` and
    /// `message.timestamp.after.max.ms` around now). A record without a timestamp (-1) is valid.
    pub timestamp_min: i64,
    pub timestamp_max: i64,
    /// Maximum number of listed refused records.
    pub refused_named_max: usize,
}

impl Default for ValidateLimits {
    fn default() -> Self {
        Self {
            batch_bytes_max: BATCH_BYTES_MAX as usize,
            decompressed_bytes_max: PRODUCED_UNPACKED_BYTES_MAX,
            records_max: BATCH_RECORDS_MAX,
            require_key: false,
            allow_control: false,
            timestamp_min: i64::MIN,
            timestamp_max: i64::MAX,
            refused_named_max: REFUSED_RECORDS_NAMED_MAX,
        }
    }
}

/// A valid batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidBatch {
    pub header: BatchHeader,
    /// The largest timestamp of its records. Some clients write another one into the header: then
    /// [`crate::set_max_timestamp`] corrects it, as Kafka does.
    pub max_timestamp: i64,
}

/// Validates exactly one batch of a producer. Allocates only to decompress.
pub fn validate(batch: &[u8], limits: &ValidateLimits) -> Result<ValidBatch, BatchError> {
    if batch.len() > limits.batch_bytes_max {
        return Err(BatchError::TooLarge { bytes: batch.len(), limit: limits.batch_bytes_max });
    }
    let header = verify_checksum(batch)?;
    validate_header(&header, limits)?;
    let body = &batch[HEADER_LEN..];
    let unpacked = unpack_bounded(&header, body, limits.decompressed_bytes_max)?;
    let max_timestamp = walk(&header, unpacked.as_deref().unwrap_or(body), limits)?;
    Ok(ValidBatch { header, max_timestamp })
}

fn validate_header(header: &BatchHeader, limits: &ValidateLimits) -> Result<(), BatchError> {
    let (count, last_offset_delta) = (header.record_count, header.last_offset_delta);
    // Only compaction makes gaps.
    if count == 0 || last_offset_delta != count - 1 {
        return Err(BatchError::ImpossibleCount { count, last_offset_delta });
    }
    if count as u32 > limits.records_max {
        return Err(BatchError::TooManyRecords { limit: limits.records_max });
    }
    if header.attributes.is_control() && !limits.allow_control {
        return Err(BatchError::ControlBatch);
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppend {
        return Err(BatchError::LogAppendTime);
    }
    if header.is_idempotent() && (header.base_sequence < 0 || header.producer_epoch < 0) {
        return Err(BatchError::ImpossibleSequence {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            sequence: header.base_sequence,
        });
    }
    Ok(())
}

/// Reads every record; returns the largest timestamp. A corrupt record ends it, because the rest
/// cannot be parsed; a record that the topic refuses is listed, and so are later ones.
fn walk(header: &BatchHeader, body: &[u8], limits: &ValidateLimits) -> Result<i64, BatchError> {
    let mut max_timestamp = i64::MIN;
    let mut refused = RefusedRecords { named: Vec::new(), count: 0, has_bad_timestamp: false };
    for (index, record) in Records::new(header, body).enumerate() {
        let record = record?;
        let index = index as u32;
        if record.offset_delta != index as i32 {
            let fault =
                RecordFault::OffsetDelta { found: record.offset_delta, expected: index as i32 };
            return Err(BatchError::Record { index, fault });
        }
        if limits.require_key && record.key.is_none() {
            refused.add(index, RefusalReason::MissingKey, limits.refused_named_max);
            continue;
        }
        let timestamp = record.timestamp;
        let (min, max) = (limits.timestamp_min, limits.timestamp_max);
        if timestamp != NO_TIMESTAMP && !(min..=max).contains(&timestamp) {
            let reason = RefusalReason::TimestampOutOfRange { timestamp };
            refused.add(index, reason, limits.refused_named_max);
        }
        max_timestamp = max_timestamp.max(timestamp);
    }
    if refused.count > 0 {
        return Err(BatchError::Records(refused));
    }
    Ok(max_timestamp)
}

/// Timestamp of a record created without one.
pub(crate) const NO_TIMESTAMP: i64 = -1;
