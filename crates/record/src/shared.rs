//! One batch, read once and shared record by record.
//!
//! A delivery of a single record keeps its batch alive and points into it: key, value and headers
//! are slices of the bytes read, without an allocation per record.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::BatchError;
use crate::header::BatchHeader;
use crate::records::{Batch, RecordView, Records};

/// A decompressed batch with the position of each of its records.
#[derive(Clone, Debug)]
pub struct SharedBatch {
    header: BatchHeader,
    body: Bytes,
    /// For each record its offset delta and its position in the body. Empty for a single record at
    /// the front of the body, the usual case in queues.
    places: Box<[RecordLocation]>,
}

#[derive(Clone, Copy, Debug)]
struct RecordLocation {
    offset_delta: u32,
    at: u32,
}

impl SharedBatch {
    /// Reads every record once, so that later reads cannot fail. Decompresses the batch if
    /// necessary.
    pub fn decode(bytes: &Bytes) -> Result<Self, BatchError> {
        Self::decode_at(bytes, None)
    }

    /// The same, with this base offset instead of the one in the bytes.
    pub fn decode_at(bytes: &Bytes, base_offset: Option<u64>) -> Result<Self, BatchError> {
        let batch = Batch::decode_shared_at(bytes, base_offset)?;
        let header = *batch.header();
        let whole = batch.body();
        let mut places = Vec::new();
        let mut at = 0;
        let alone = header.record_count == 1;
        for record in batch.records() {
            let record = record?;
            if !alone {
                places.push(RecordLocation {
                    offset_delta: record.offset_delta as u32,
                    at: at as u32,
                });
            }
            at += record.encoded.len();
        }
        let body = batch.share(whole);
        Ok(Self { header, body, places: places.into() })
    }

    /// Some of a batch's decompressed records, concatenated: read and forwarded by another node.
    /// `header` is the whole batch's. Reads every record once: there are exactly `count`, in
    /// ascending order, and nothing else.
    pub fn from_records(
        header: BatchHeader,
        body: Bytes,
        count: usize,
    ) -> Result<Self, BatchError> {
        let record_count = i32::try_from(count).unwrap_or(i32::MAX);
        let header = BatchHeader { record_count, ..header };
        let mut places = Vec::new();
        let mut at = 0;
        for record in Records::new(&header, &body) {
            let record = record?;
            if count > 1 {
                places.push(RecordLocation {
                    offset_delta: record.offset_delta as u32,
                    at: at as u32,
                });
            }
            at += record.encoded.len();
        }
        Ok(Self { header, body, places: places.into() })
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    pub fn len(&self) -> usize {
        self.header.record_count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.places.len() * size_of::<RecordLocation>()
    }

    pub fn records(&self) -> Records<'_> {
        Records::new(&self.header, &self.body)
    }

    /// Records from this offset on; earlier ones are skipped, except a single record.
    pub fn records_from(&self, offset: u64) -> Records<'_> {
        if self.places.is_empty() {
            return self.records();
        }
        let delta = offset.saturating_sub(self.header.base_offset);
        let before = self.places.partition_point(|place| u64::from(place.offset_delta) < delta);
        let at = self.places.get(before).map_or(self.body.len(), |place| place.at as usize);
        self.records().skip_to(before as u32, at)
    }

    /// The record with this offset; `None` if compaction removed it or it belongs to another batch.
    pub fn record(self: &Arc<Self>, offset: u64) -> Option<SharedRecord> {
        let delta = u32::try_from(offset.checked_sub(self.header.base_offset)?).ok()?;
        let index = self.index(delta)?;
        Some(SharedRecord { batch: Arc::clone(self), index })
    }

    fn index(&self, delta: u32) -> Option<u32> {
        if self.places.is_empty() {
            let alone = self.records().next()?.ok()?;
            return (alone.offset_delta as u32 == delta).then_some(0);
        }
        // Without gaps a record's number equals its delta.
        if self.places.get(delta as usize).is_some_and(|place| place.offset_delta == delta) {
            return Some(delta);
        }
        let found = self.places.binary_search_by_key(&delta, |place| place.offset_delta);
        found.ok().map(|index| index as u32)
    }

    fn encoded_len(&self, index: u32) -> usize {
        let at = |index| self.places.get(index).map(|place: &RecordLocation| place.at as usize);
        let begin = at(index as usize).unwrap_or(0);
        at(index as usize + 1).unwrap_or(self.body.len()) - begin
    }

    fn view(&self, index: u32) -> RecordView<'_> {
        let at = self.places.get(index as usize).map_or(0, |place| place.at as usize);
        let read = Records::at(&self.header, &self.body[at..]);
        read.expect("every record was read when the batch was decoded")
    }
}

/// One record of a batch, shared with the others.
#[derive(Clone, Debug)]
pub struct SharedRecord {
    batch: Arc<SharedBatch>,
    index: u32,
}

impl SharedRecord {
    /// Parses the record's lengths: call it once and keep the result.
    pub fn view(&self) -> RecordView<'_> {
        self.batch.view(self.index)
    }

    /// Encoded length of the record, uncompressed.
    pub fn encoded_len(&self) -> usize {
        self.batch.encoded_len(self.index)
    }

    pub fn batch(&self) -> &SharedBatch {
        &self.batch
    }

    /// The encoded record, uncompressed, without a copy.
    pub fn encoded(&self) -> Bytes {
        let place = self.batch.places.get(self.index as usize);
        let at = place.map_or(0, |place| place.at as usize);
        self.batch.body.slice(at..at + self.encoded_len())
    }

    /// The encoded records from this one through `other`, if that follows in the same batch.
    pub fn encoded_up_to(&self, other: &Self) -> Option<Bytes> {
        if !Arc::ptr_eq(&self.batch, &other.batch) || other.index < self.index {
            return None;
        }
        let place = |index: u32| self.batch.places.get(index as usize);
        let at = place(self.index).map_or(0, |place| place.at as usize);
        let to = place(other.index).map_or(0, |place| place.at as usize) + other.encoded_len();
        Some(self.batch.body.slice(at..to))
    }

    /// Whether the other one belongs to the same batch in memory, and directly follows this one.
    pub fn is_followed_by(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.batch, &other.batch) && other.index == self.index + 1
    }

    /// Whether the other one belongs to the same batch in memory, and comes after this one.
    pub fn is_before(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.batch, &other.batch) && other.index > self.index
    }

    /// A key, value or header of [`SharedRecord::view`] as bytes of their own, without a copy.
    /// Panics if `part` belongs to another batch.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.batch.body.slice_ref(part)
    }

    pub fn key(&self) -> Option<Bytes> {
        self.view().key.map(|key| self.share(key))
    }

    pub fn value(&self) -> Option<Bytes> {
        self.view().value.map(|value| self.share(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, BatchOptions, CompactionResult, Compression, Header, retain};

    fn batch(compression: Compression, records: usize) -> Bytes {
        let options = BatchOptions { compression, base_offset: 100, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        for number in 0..records {
            let value = format!("value {number}");
            let header = [Header { key: b"n", value: Some(&[number as u8]) }];
            let key = (number % 2 == 0).then_some(&b"key"[..]);
            builder.push(number as i64, key, Some(value.as_bytes()), &header).expect("it fits");
        }
        Bytes::from(builder.finish())
    }

    #[test]
    fn subset_of_a_batchs_records_is_decoded_as_a_batch() {
        for compression in Compression::ALL {
            let whole = batch(compression, 50);
            let whole = Arc::new(SharedBatch::decode(&whole).expect("a batch"));
            for offsets in [vec![100], vec![149], vec![103, 104, 120], (100..150).collect()] {
                let records: Vec<_> =
                    offsets.iter().map(|offset| whole.record(*offset).expect("there")).collect();
                let body: Vec<u8> = records.iter().flat_map(|it| it.encoded().to_vec()).collect();
                let some = SharedBatch::from_records(*whole.header(), body.into(), records.len());
                let some = Arc::new(some.expect("they are whole"));
                for (offset, record) in offsets.iter().zip(&records) {
                    let same = some.record(*offset).expect("it is there");
                    assert_eq!((same.value(), same.key()), (record.value(), record.key()));
                    assert_eq!(same.view().timestamp, record.view().timestamp);
                }
                assert!(some.record(102).is_none() || offsets.contains(&102));
            }
            let (first, second) =
                (whole.record(100).expect("there"), whole.record(101).expect("there"));
            assert!(first.is_followed_by(&second) && first.is_before(&second));
            let both = first.encoded_up_to(&second).expect("in order");
            assert_eq!(both, [first.encoded(), second.encoded()].concat());
            assert!(second.encoded_up_to(&first).is_none() && !second.is_before(&first));
            // Fewer, more, or out of order.
            let header = *whole.header();
            assert!(SharedBatch::from_records(header, both.clone(), 1).is_err());
            assert!(SharedBatch::from_records(header, both, 3).is_err());
            let swapped = [second.encoded(), first.encoded()].concat();
            assert!(SharedBatch::from_records(header, swapped.into(), 2).is_err());
        }
    }

    #[test]
    fn each_record_is_found_by_its_offset_and_shares_the_batchs_bytes() {
        for compression in Compression::ALL {
            for records in [1, 2, 50] {
                let bytes = batch(compression, records);
                let batch = Arc::new(SharedBatch::decode(&bytes).expect("a batch"));
                for number in 0..records {
                    let record = batch.record(100 + number as u64).expect("it is there");
                    let view = record.view();
                    assert_eq!((view.offset, view.timestamp), (100 + number as u64, number as i64));
                    assert_eq!(record.encoded_len(), view.encoded_len());
                    assert_eq!(record.key().is_some(), number % 2 == 0);
                    let value = record.value().expect("a value");
                    assert_eq!(value, format!("value {number}"));
                    assert_eq!(view.headers.last(b"n"), Some(Some(&[number as u8][..])));
                    if compression.is_none() {
                        assert!(bytes.as_ptr_range().contains(&value.as_ptr()), "it was copied");
                    }
                }
                assert!(batch.record(99).is_none() && batch.record(100 + records as u64).is_none());
                for from in [0, 100, 101, 100 + records as u64] {
                    let left = batch.records_from(from).map(|it| it.expect("whole").offset);
                    // A single record is returned in any case.
                    let from = if records == 1 { 100 } else { from.max(100) };
                    assert!(left.eq(from..100 + records as u64), "from {from} of {records}");
                }
            }
        }
    }

    #[test]
    fn shared_batch_is_read_at_its_base_offset_in_each_partition() {
        for compression in Compression::ALL {
            let bytes = batch(compression, 3);
            let batch = Arc::new(SharedBatch::decode_at(&bytes, Some(7)).expect("a batch"));
            assert_eq!((batch.header().base_offset, batch.header().next_offset()), (7, 10));
            let offsets = batch.records().map(|it| it.expect("a record").offset);
            assert!(offsets.eq(7..10));
            let offset = |at| batch.record(at).map(|record| record.view().offset);
            assert_eq!([offset(6), offset(9), offset(100)], [None, Some(9), None]);
            let split = |at| crate::split_at(&bytes, at).next().expect("one").expect("a batch").0;
            assert_eq!((split(Some(7)).base_offset, split(None).base_offset), (7, 100));
            // An offset that no partition can have is refused, as it is in the bytes.
            assert!(SharedBatch::decode_at(&bytes, Some(u64::MAX)).is_err());
        }
    }

    #[test]
    fn records_left_by_compaction_are_found_at_their_own_offsets() {
        for kept in [vec![3], vec![0, 3, 7, 19]] {
            let bytes = batch(Compression::None, 20);
            let left = retain(&bytes, None, |record| kept.contains(&(record.offset - 100)));
            let Ok(CompactionResult::Part(rest)) = left else { panic!("a part is left") };
            let batch = Arc::new(SharedBatch::decode(&Bytes::from(rest)).expect("a batch"));
            for number in 0..20 {
                let found = batch.record(100 + number).map(|record| record.view().offset);
                assert_eq!(found, kept.contains(&number).then_some(100 + number));
                let left = batch.records_from(100 + number).map(|it| it.expect("whole").offset);
                let expected = kept.iter().filter(|&&it| kept.len() == 1 || it >= number);
                assert!(left.eq(expected.map(|it| 100 + it)), "from {number} of {kept:?}");
            }
        }
    }
}
