//! Rules of a log, which hold whatever happens to its server. Pure: the soak records acknowledgements and reads,
//! and gets the first violation. Every record carries its producer and its number among the producer's records, so
//! that acknowledgements suffice to check a log.

use std::collections::BTreeMap;
use std::fmt::Display;

use bytes::{BufMut, Bytes, BytesMut};

/// Producer of a record, and the record's number among those of the producer in that partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub producer: u32,
    pub sequence: u64,
}

impl Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {} of producer {}", self.sequence, self.producer)
    }
}

const MARK_BYTES: usize = 12;

impl Mark {
    /// The record's value: the mark, then filler that is unique to this mark.
    pub fn to_value(self, bytes: usize) -> Bytes {
        let mut value = BytesMut::with_capacity(bytes.max(MARK_BYTES) + 8);
        value.put_u32(self.producer);
        value.put_u64(self.sequence);
        // Multiplication by an odd number keeps marks apart.
        let mark = self.sequence ^ (u64::from(self.producer) << 40);
        let mut filler = mark.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        while value.len() < bytes {
            value.put_u64(filler);
            filler = filler.wrapping_add(1);
        }
        value.truncate(bytes.max(MARK_BYTES));
        value.freeze()
    }

    /// The mark of a value, if the value is intact.
    pub fn from_value(value: &[u8]) -> Option<Mark> {
        let (producer, rest) = value.split_first_chunk::<4>()?;
        let (sequence, _) = rest.split_first_chunk::<8>()?;
        let mark = Mark {
            producer: u32::from_be_bytes(*producer),
            sequence: u64::from_be_bytes(*sequence),
        };
        (mark.to_value(value.len()) == value).then_some(mark)
    }
}

/// A batch that the server acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    pub partition: usize,
    pub base_offset: i64,
    pub first: Mark,
    pub records: u32,
}

/// Promises: every acknowledged batch, and every record that a consumer was shown.
#[derive(Debug)]
pub struct Ledger {
    acknowledged: Vec<BTreeMap<i64, Acknowledged>>,
    shown: Vec<BTreeMap<i64, Mark>>,
}

/// The first violation found.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    TwiceAcknowledged { partition: usize, offset: i64 },
    NotDense { partition: usize, expected: i64, found: i64 },
    Damaged { partition: usize, offset: i64 },
    OutOfOrder { partition: usize, offset: i64, previous: Mark, found: Mark },
    AcknowledgedReplaced { partition: usize, offset: i64, acknowledged: Mark, found: Mark },
    ShownReplaced { partition: usize, offset: i64, shown: Mark, found: Mark },
    AcknowledgedLost { partition: usize, offset: i64, lost: Mark, end: i64 },
    ShownLost { partition: usize, offset: i64, lost: Mark, end: i64 },
}

impl Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use Violation::*;
        match self {
            TwiceAcknowledged { partition, offset } => {
                write!(f, "partition {partition}: offset {offset} was acknowledged to two batches")
            }
            NotDense { partition, expected, found } => {
                write!(f, "partition {partition}: offset {found} follows where {expected} is due")
            }
            Damaged { partition, offset } => {
                write!(f, "partition {partition}: the record at {offset} is not what was sent")
            }
            OutOfOrder { partition, offset, previous, found } => {
                write!(f, "partition {partition}: {found} at {offset} comes after {previous}")
            }
            AcknowledgedReplaced { partition, offset, acknowledged, found } => write!(
                f,
                "partition {partition}: {acknowledged} was acknowledged at {offset}, {found} is there"
            ),
            ShownReplaced { partition, offset, shown, found } => write!(
                f,
                "partition {partition}: a consumer was shown {shown} at {offset}, {found} is there"
            ),
            AcknowledgedLost { partition, offset, lost, end } => write!(
                f,
                "partition {partition}: {lost}, acknowledged at {offset}, is lost: the end is {end}"
            ),
            ShownLost { partition, offset, lost, end } => write!(
                f,
                "partition {partition}: {lost}, shown at {offset}, is lost: the end is {end}"
            ),
        }
    }
}

impl Ledger {
    pub fn new(partitions: usize) -> Ledger {
        Ledger {
            acknowledged: vec![BTreeMap::new(); partitions],
            shown: vec![BTreeMap::new(); partitions],
        }
    }

    pub fn acknowledge(&mut self, batch: Acknowledged) -> Result<(), Violation> {
        let Acknowledged { partition, base_offset: offset, .. } = batch;
        let batches = &mut self.acknowledged[partition];
        let before = batches.range(..=offset).next_back().map(|(_, earlier)| *earlier);
        let overlaps_before = before.is_some_and(|b| b.base_offset + i64::from(b.records) > offset);
        let end = offset + i64::from(batch.records);
        if overlaps_before || batches.range(offset..end).next().is_some() {
            return Err(Violation::TwiceAcknowledged { partition, offset });
        }
        batches.insert(offset, batch);
        Ok(())
    }

    /// Records that a consumer got this record, so it must stay.
    pub fn show(&mut self, partition: usize, offset: i64, mark: Mark) {
        self.shown[partition].insert(offset, mark);
    }

    pub fn records_acknowledged(&self) -> u64 {
        let batches = self.acknowledged.iter().flat_map(BTreeMap::values);
        batches.map(|batch| u64::from(batch.records)).sum()
    }

    /// The acknowledged record at this offset, if there is one.
    fn promised(&self, partition: usize, offset: i64) -> Option<Mark> {
        let (_, batch) = self.acknowledged[partition].range(..=offset).next_back()?;
        let index = offset - batch.base_offset;
        (index < i64::from(batch.records))
            .then(|| Mark { sequence: batch.first.sequence + index as u64, ..batch.first })
    }

    /// Checks one record of a log against all promises.
    pub fn check(&self, reader: &mut Reader, offset: i64, value: &[u8]) -> Result<Mark, Violation> {
        let partition = reader.partition;
        let found = reader.read(offset, value)?;
        if let Some(acknowledged) = self.promised(partition, offset)
            && acknowledged != found
        {
            return Err(Violation::AcknowledgedReplaced { partition, offset, acknowledged, found });
        }
        match self.shown[partition].get(&offset) {
            Some(&shown) if shown != found => {
                Err(Violation::ShownReplaced { partition, offset, shown, found })
            }
            _ => Ok(found),
        }
    }

    /// Checks, after the end of the log, that no promise lies beyond it. Shown records are forgotten afterwards: a
    /// checked record remains bound by its acknowledgement or by the order.
    pub fn check_end(&mut self, reader: &Reader) -> Result<(), Violation> {
        let (partition, end) = (reader.partition, reader.next_offset);
        if let Some((&offset, last)) = self.acknowledged[partition].last_key_value() {
            let last_offset = offset + i64::from(last.records) - 1;
            if let Some(lost) = self.promised(partition, last_offset).filter(|_| last_offset >= end)
            {
                return Err(Violation::AcknowledgedLost {
                    partition,
                    offset: last_offset,
                    lost,
                    end,
                });
            }
        }
        if let Some((&offset, &lost)) = self.shown[partition].range(end..).next() {
            return Err(Violation::ShownLost { partition, offset, lost, end });
        }
        self.shown[partition].clear();
        Ok(())
    }
}

/// Read position in one partition, with the last record of each producer before it.
#[derive(Clone, Debug)]
pub struct Reader {
    pub partition: usize,
    pub next_offset: i64,
    last: Vec<Option<u64>>,
}

impl Reader {
    pub fn new(partition: usize, producers: usize) -> Reader {
        Reader { partition, next_offset: 0, last: vec![None; producers] }
    }

    /// Takes the next record. Offsets must be dense, and each producer's records in its order, without duplicates.
    pub fn read(&mut self, offset: i64, value: &[u8]) -> Result<Mark, Violation> {
        let partition = self.partition;
        if offset != self.next_offset {
            return Err(Violation::NotDense {
                partition,
                expected: self.next_offset,
                found: offset,
            });
        }
        let found = Mark::from_value(value).ok_or(Violation::Damaged { partition, offset })?;
        let last = self
            .last
            .get_mut(found.producer as usize)
            .ok_or(Violation::Damaged { partition, offset })?;
        if let Some(sequence) = last.filter(|&last| last >= found.sequence) {
            let previous = Mark { sequence, ..found };
            return Err(Violation::OutOfOrder { partition, offset, previous, found });
        }
        *last = Some(found.sequence);
        self.next_offset = offset + 1;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(sequence: u64) -> Mark {
        Mark { producer: 0, sequence }
    }

    fn acknowledged(base_offset: i64, sequence: u64, records: u32) -> Acknowledged {
        Acknowledged { partition: 0, base_offset, first: mark(sequence), records }
    }

    /// Reads a log with these sequences of one producer.
    fn read(ledger: &mut Ledger, sequences: &[u64]) -> Result<(), Violation> {
        let mut reader = Reader::new(0, 1);
        for (offset, &sequence) in sequences.iter().enumerate() {
            ledger.check(&mut reader, offset as i64, &mark(sequence).to_value(64))?;
        }
        ledger.check_end(&reader)
    }

    #[test]
    fn mark_is_read_from_an_intact_value_only() {
        let mark = Mark { producer: 3, sequence: 1 << 40 };
        for bytes in [0, 12, 13, 100, 1024] {
            let value = mark.to_value(bytes);
            assert_eq!(value.len(), bytes.max(12));
            assert_eq!(Mark::from_value(&value), Some(mark));
        }
        let mut value = mark.to_value(100).to_vec();
        value[99] ^= 1;
        assert_eq!(Mark::from_value(&value), None);
        assert_eq!(Mark::from_value(b"short"), None);
    }

    #[test]
    fn unacknowledged_record_may_be_in_the_log_or_not() {
        let mut ledger = Ledger::new(1);
        ledger.acknowledge(acknowledged(1, 7, 2)).unwrap();
        assert_eq!(read(&mut ledger, &[3, 7, 8, 20]), Ok(()));
    }

    #[test]
    fn acknowledged_record_beyond_the_end_is_lost() {
        let mut ledger = Ledger::new(1);
        ledger.acknowledge(acknowledged(0, 0, 3)).unwrap();
        let lost = Violation::AcknowledgedLost { partition: 0, offset: 2, lost: mark(2), end: 2 };
        assert_eq!(read(&mut ledger, &[0, 1]), Err(lost));
    }

    #[test]
    fn wrong_record_at_an_acknowledged_offset_is_found() {
        let mut ledger = Ledger::new(1);
        ledger.acknowledge(acknowledged(0, 0, 2)).unwrap();
        let violation = read(&mut ledger, &[0, 5]);
        assert!(matches!(violation, Err(Violation::AcknowledgedReplaced { offset: 1, .. })));
    }

    #[test]
    fn record_that_a_consumer_was_shown_must_stay() {
        let mut ledger = Ledger::new(1);
        ledger.show(0, 1, mark(1));
        assert!(matches!(read(&mut ledger, &[0, 2]), Err(Violation::ShownReplaced { .. })));
        assert!(matches!(read(&mut ledger, &[0]), Err(Violation::ShownLost { offset: 1, .. })));
        assert_eq!(read(&mut ledger, &[0, 1]), Ok(()));
    }

    #[test]
    fn records_out_of_order_or_twice_are_found() {
        let mut ledger = Ledger::new(1);
        assert!(matches!(read(&mut ledger, &[1, 0]), Err(Violation::OutOfOrder { .. })));
        assert!(matches!(read(&mut ledger, &[0, 0]), Err(Violation::OutOfOrder { .. })));
    }

    #[test]
    fn gap_between_offsets_is_found() {
        let mut reader = Reader::new(0, 1);
        reader.read(0, &mark(0).to_value(12)).unwrap();
        let gap = Violation::NotDense { partition: 0, expected: 1, found: 2 };
        assert_eq!(reader.read(2, &mark(1).to_value(12)), Err(gap));
    }

    #[test]
    fn one_offset_acknowledged_twice_is_found() {
        let mut ledger = Ledger::new(1);
        ledger.acknowledge(acknowledged(0, 0, 5)).unwrap();
        assert!(ledger.acknowledge(acknowledged(4, 5, 5)).is_err());
        assert!(ledger.acknowledge(acknowledged(5, 5, 5)).is_ok());
        assert!(ledger.acknowledge(acknowledged(5, 10, 1)).is_err());
    }
}
