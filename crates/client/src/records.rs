//! Records in batches, by the message crate's own codec.
//!
//! A checker must not share the faults of the code under test. So loads and checkers use a second implementation of
//! the format (RecordBatch v2), beside the product's own in the crate `record`, which the rest of this client uses.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE,
    RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

pub use kafka_protocol::records::Record;

use crate::error::FrameError;

/// Offset and length: the prefix that determines a batch's size.
const BATCH_PREFIX_BYTES: usize = 12;

/// A record to be sent.
#[derive(Clone, Debug, Default)]
pub struct NewRecord {
    pub key: Option<Bytes>,
    pub value: Bytes,
    pub headers: Vec<(&'static str, String)>,
}

impl NewRecord {
    /// A record without a key and headers.
    pub fn of(value: Bytes) -> Self {
        Self { value, ..Self::default() }
    }
}

/// An uncompressed batch of these records without a producer id, each with this timestamp in ms since 1970.
pub fn batch_of(records: impl IntoIterator<Item = NewRecord>, timestamp_ms: i64) -> Bytes {
    let record = |(index, new): (usize, NewRecord)| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: index as i64,
        // The encoder keeps records in one batch while offset minus sequence stays the same; the
        // base sequence that it writes is the first record's.
        sequence: NO_SEQUENCE + index as i32,
        timestamp: timestamp_ms,
        key: new.key,
        value: Some(new.value),
        headers: new
            .headers
            .into_iter()
            .map(|(name, value)| (StrBytes::from_static_str(name), Some(Bytes::from(value))))
            .collect(),
    };
    let records: Vec<Record> = records.into_iter().enumerate().map(record).collect();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    let mut encoded = BytesMut::new();
    RecordBatchEncoder::encode(&mut encoded, &records, &options)
        .expect("a batch without compression encodes");
    encoded.freeze()
}

/// The records of all whole batches; a broker may truncate the last one, and clients skip that.
pub fn records_of(mut batches: Bytes) -> Result<Vec<Record>, FrameError> {
    let unreadable = |reason: String| FrameError::Unreadable { api: ApiKey::Fetch.into(), reason };
    let mut records = Vec::new();
    while let Some(prefix) = batches.first_chunk::<BATCH_PREFIX_BYTES>() {
        let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
        let length = usize::try_from(length)
            .map_err(|_| unreadable(format!("a batch of {length} bytes")))?;
        if batches.len() - BATCH_PREFIX_BYTES < length {
            break;
        }
        let mut batch = batches.split_to(BATCH_PREFIX_BYTES + length);
        let decoded = RecordBatchDecoder::decode(&mut batch);
        records.extend(decoded.map_err(|error| unreadable(error.to_string()))?.records);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Bytes {
        let header = ("name", "value".to_owned());
        let keyed = NewRecord {
            key: Some(Bytes::from_static(b"key")),
            value: Bytes::from_static(b"one"),
            headers: vec![header],
        };
        batch_of([keyed, NewRecord::of(Bytes::from_static(b"two"))], 1_700_000_000_000)
    }

    #[test]
    fn batches_are_readable_by_the_products_own_codec() {
        let bytes = batch();
        record::verify_checksum(&bytes).expect("sound");
        let decoded = record::Batch::decode(&bytes).expect("a batch");
        let values: Vec<_> =
            decoded.records().map(|record| record.expect("a record").value).collect();
        assert_eq!(values, [Some(&b"one"[..]), Some(b"two")]);
    }

    #[test]
    fn whole_batches_are_read_and_a_truncated_one_is_skipped() {
        let one = batch();
        let two = [&one[..], &one].concat();
        for cut in 0..one.len() {
            let read = records_of(Bytes::copy_from_slice(&two[..one.len() + cut])).expect("sound");
            let values: Vec<_> = read.iter().filter_map(|record| record.value.as_deref()).collect();
            assert_eq!(values, [&b"one"[..], b"two"], "{cut}");
        }
        assert_eq!(records_of(two.into()).expect("sound").len(), 4);
    }

    #[test]
    fn batch_of_a_negative_length_is_an_error() {
        let mut bytes = batch().to_vec();
        bytes[8..12].copy_from_slice(&(-1_i32).to_be_bytes());
        assert!(records_of(bytes.into()).is_err());
    }
}
