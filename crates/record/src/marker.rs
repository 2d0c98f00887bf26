//! Control batches that end a transaction in a partition (KIP-98, "Control Messages").
//!
//! ```text
//! batch with one record, transactional and control
//! key:   version i16 (0), type i16 (0: abort, 1: commit)   (big-endian)
//! value: version i16 (0), coordinator epoch i32
//! ```

use crate::builder::{BatchBuilder, BatchOptions};
use crate::header::{BatchHeader, seal};
use crate::records::Batch;

const VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// The end of a transaction in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub commit: bool,
    /// Leader epoch of the transaction's coordinator, for diagnosis.
    pub coordinator_epoch: i32,
}

impl Marker {
    /// Builds the marker's batch without a position.
    pub fn build(&self, timestamp_ms: i64) -> (BatchHeader, Vec<u8>) {
        let mut key = [0; 4];
        key[..2].copy_from_slice(&VERSION.to_be_bytes());
        let kind = if self.commit { COMMIT } else { ABORT };
        key[2..].copy_from_slice(&kind.to_be_bytes());
        let mut value = [0; 6];
        value[..2].copy_from_slice(&VERSION.to_be_bytes());
        value[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        let &Self { producer_id, producer_epoch, .. } = self;
        let options = BatchOptions { producer_id, producer_epoch, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        builder.push(timestamp_ms, Some(&key), Some(&value), &[]).expect("a marker is small");
        let mut batch = builder.finish();
        let header = BatchHeader::parse(&batch).expect("it was built just now");
        let attributes = header.attributes.with_transactional().with_control();
        seal(&mut batch, BatchHeader { attributes, ..header });
        let header = BatchHeader::parse(&batch).expect("it was sealed just now");
        (header, batch)
    }

    /// Reads a marker. `None`: the batch is none, or is of a kind that is no end of a transaction.
    pub fn read(header: &BatchHeader, batch: &[u8]) -> Option<Self> {
        if !header.attributes.is_control() {
            return None;
        }
        let decoded = Batch::decode(batch).ok()?;
        let record = decoded.records().next()?.ok()?;
        let (key, value) = (record.key?, record.value?);
        let (version, kind) = (i16_at(key, 0)?, i16_at(key, 2)?);
        let commit = match (version, kind) {
            (VERSION.., ABORT) => false,
            (VERSION.., COMMIT) => true,
            _ => return None,
        };
        let coordinator_epoch = i32::from_be_bytes(*value.get(2..6)?.first_chunk()?);
        let &BatchHeader { producer_id, producer_epoch, .. } = header;
        Some(Self { producer_id, producer_epoch, commit, coordinator_epoch })
    }
}

fn i16_at(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(*bytes.get(at..at + 2)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_is_read_back_and_has_the_size_of_kafkas() {
        for commit in [false, true] {
            let marker = Marker { producer_id: 9, producer_epoch: 3, commit, coordinator_epoch: 5 };
            let (header, batch) = marker.build(1_000);
            assert_eq!(batch.len(), 78);
            assert!(header.attributes.is_transactional() && header.attributes.is_control());
            assert_eq!((header.base_sequence, header.record_count), (-1, 1));
            assert_eq!(Marker::read(&header, &batch), Some(marker));
            crate::verify_checksum(&batch).expect("it is sealed");
        }
    }

    #[test]
    fn batch_of_records_and_unknown_control_batch_are_no_markers() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]).expect("it is small");
        let mut batch = builder.finish();
        let header = BatchHeader::parse(&batch).expect("it was built just now");
        assert_eq!(Marker::read(&header, &batch), None);
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, Some(&[0, 0, 0, 4]), Some(&[0; 6]), &[]).expect("it is small");
        batch = builder.finish();
        let attributes = header.attributes.with_control();
        seal(&mut batch, BatchHeader { attributes, ..header });
        let header = BatchHeader::parse(&batch).expect("it was sealed just now");
        assert_eq!(Marker::read(&header, &batch), None);
    }
}
