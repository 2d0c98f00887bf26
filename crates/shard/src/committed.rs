//! Reads of committed records: a reader stops at the stable end, and skips markers and batches of aborted transactions.

use std::sync::Arc;

use base::{Offset, PartitionId};
use bytes::Bytes;
use journal::StoredBatches;
use machine::rows::transactions::partition::{AbortedRange, PartitionTransactions};
use machine::{Partition, Rows};
use record::{BatchError, BatchHeader};

use crate::journal_batches::batches_in;

/// Transactions of a partition at one moment, for batches that are read from its journal later.
///
/// A batch below the stable end of that moment has been decided by then, so a later read needs no newer state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadView {
    stable: Offset,
    /// `None`: no transaction is open or was aborted.
    transactions: Option<Arc<PartitionTransactions>>,
}

impl ReadView {
    /// The view of a partition of these rows.
    pub fn of(rows: &Rows, id: PartitionId, partition: &Partition) -> Self {
        let transactions = rows.transactions();
        let stable = transactions.stable_end(id, partition.next_offset());
        Self { stable, transactions: transactions.partition(id).cloned() }
    }

    /// The view of a partition on another node, with the aborted ranges that its leader sent.
    pub fn received(stable: Offset, aborted: Vec<AbortedRange>) -> Self {
        let has_some = !aborted.is_empty();
        let transactions = has_some.then(|| PartitionTransactions::with_aborted(aborted).into());
        Self { stable, transactions }
    }

    /// First offset of the earliest transaction that was open, or the partition's end.
    pub fn stable_end(&self) -> Offset {
        self.stable
    }

    /// Whether the batch has committed records: its header must have the base offset in the partition.
    pub fn is_committed(&self, header: &BatchHeader) -> bool {
        header.next_offset() <= self.stable && !self.is_skipped(header)
    }

    /// Whether the batch is a marker, or belongs to an aborted transaction.
    pub fn is_skipped(&self, header: &BatchHeader) -> bool {
        header.attributes.is_control() || self.is_aborted(header)
    }

    /// Whether the batch belongs to an aborted transaction.
    pub fn is_aborted(&self, header: &BatchHeader) -> bool {
        let Some(transactions) = &self.transactions else { return false };
        header.attributes.is_transactional()
            && !header.attributes.is_control()
            && transactions.is_aborted(header.producer_id, header.base_offset)
    }

    /// Aborted transactions with records between the two offsets, the second excluded, by the offset of their markers.
    pub fn aborted_between(&self, from: Offset, to: Offset) -> Vec<AbortedRange> {
        let known = self.transactions.iter();
        known.flat_map(|it| it.aborted_between(from, to)).copied().collect()
    }

    /// Batches of committed records among batches that were read from the journal.
    pub fn committed_in<'a>(
        &'a self,
        records: &'a [StoredBatches],
    ) -> impl Iterator<Item = Result<(BatchHeader, Bytes), BatchError>> + 'a {
        batches_in(records)
            .filter(|batch| batch.as_ref().map_or(true, |(header, _)| self.is_committed(header)))
    }

    /// Offset at which a reader of committed records continues after these batches, which were read from `offset` on.
    /// It is the stable end where the journal had no batch below it, and is never above it, unless `offset` is.
    pub fn next_offset(&self, offset: Offset, records: &[StoredBatches]) -> Offset {
        let last = records.last().and_then(|last| {
            let last = record::split_at(&last.bytes, last.base_offset).map_while(Result::ok).last();
            last.map(|(header, _)| header.next_offset())
        });
        last.unwrap_or(self.stable).min(self.stable).max(offset)
    }

    /// Removes the batches from the stable end on, which are the last ones.
    pub fn cut_at_stable_end(&self, records: &mut Vec<StoredBatches>) {
        while let Some(last) = records.last_mut() {
            let below = record::split_at(&last.bytes, last.base_offset)
                .map_while(Result::ok)
                .take_while(|(header, _)| header.next_offset() <= self.stable)
                .last()
                .map_or(0, |(_, range)| range.end);
            if below > 0 {
                last.bytes.truncate(below);
                return;
            }
            records.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use record::marker::Marker;
    use record::{BatchBuilder, BatchOptions};

    use super::*;

    /// A batch of `count` records at an offset. `producer`: of a transaction; -1: plain.
    fn batch(base_offset: Offset, count: usize, producer: i64) -> Vec<u8> {
        let options = BatchOptions {
            base_offset,
            producer_id: producer,
            transactional: producer >= 0,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        (0..count).for_each(|_| builder.push(0, None, Some(b"it"), &[]).expect("it fits"));
        builder.finish()
    }

    fn marker(base_offset: Offset, producer_id: i64, commit: bool) -> Vec<u8> {
        let marker = Marker { producer_id, producer_epoch: 0, commit, coordinator_epoch: 0 };
        let mut bytes = marker.build(0).1;
        record::assign(&mut bytes, base_offset, 1);
        bytes
    }

    fn chunk(batches: &[Vec<u8>]) -> StoredBatches {
        StoredBatches { bytes: batches.concat().into(), base_offset: None }
    }

    /// A batch shared with another partition, where it has another offset.
    fn shared(base_offset: Offset, mut bytes: Vec<u8>) -> StoredBatches {
        record::assign(&mut bytes, 1_000, 1);
        StoredBatches { bytes: bytes.into(), base_offset: Some(base_offset) }
    }

    fn offsets(view: &ReadView, records: &[StoredBatches]) -> Vec<Offset> {
        view.committed_in(records).map(|batch| batch.expect("whole").0.base_offset).collect()
    }

    /// Producer 7 aborts the records at 1 and 6, 8 commits those at 3, 9 has the one at 12 open.
    fn mixed() -> (ReadView, Vec<StoredBatches>) {
        let records = vec![
            chunk(&[batch(0, 1, -1), batch(1, 2, 7), batch(3, 2, 8)]),
            shared(5, batch(0, 1, -1)),
            chunk(&[batch(6, 1, 7), marker(7, 8, true)]),
            shared(8, marker(0, 7, false)),
            chunk(&[batch(9, 2, 7), marker(11, 7, true), batch(12, 1, 9), batch(13, 1, -1)]),
        ];
        let aborted = vec![AbortedRange { producer: 7, first: 1, last: 8 }];
        (ReadView::received(12, aborted), records)
    }

    #[test]
    fn committed_batches_are_those_of_no_open_and_no_aborted_transaction() {
        let (view, records) = mixed();
        assert_eq!(offsets(&view, &records), [0, 3, 5, 9]);
        assert_eq!(view.next_offset(0, &records), 12);
        let everything = ReadView { stable: 14, ..view };
        assert_eq!(offsets(&everything, &records), [0, 3, 5, 9, 12, 13]);
        assert_eq!(everything.next_offset(0, &records), 14);
    }

    #[test]
    fn reader_passes_chunks_without_committed_batches() {
        let (view, records) = mixed();
        assert_eq!(
            (offsets(&view, &records[2..4]), view.next_offset(6, &records[2..4])),
            (vec![], 9)
        );
        assert_eq!(
            (offsets(&view, &records[3..4]), view.next_offset(8, &records[3..4])),
            (vec![], 9)
        );
        // The journal has nothing from here on: compaction removed it.
        assert_eq!((view.next_offset(10, &[]), view.next_offset(13, &[])), (12, 13));
    }

    #[test]
    fn raw_batches_are_cut_at_the_stable_end() {
        let (view, records) = mixed();
        let cut = |stable| {
            let (mut records, view) = (records.clone(), ReadView { stable, ..view.clone() });
            view.cut_at_stable_end(&mut records);
            let all = batches_in(&records).map(|batch| batch.expect("whole").0.base_offset);
            all.collect::<Vec<_>>()
        };
        assert_eq!(cut(14), [0, 1, 3, 5, 6, 7, 8, 9, 11, 12, 13]);
        assert_eq!(cut(12), [0, 1, 3, 5, 6, 7, 8, 9, 11]);
        assert_eq!(cut(5), [0, 1, 3]);
        assert_eq!(cut(1), [0]);
        assert!(cut(0).is_empty());
    }

    #[test]
    fn aborted_transactions_of_a_range_overlap_it() {
        let (view, _) = mixed();
        let has = |from, to| !view.aborted_between(from, to).is_empty();
        assert!(has(0, 2) && has(4, 6) && has(8, 20));
        assert!(!has(0, 1) && !has(9, 20));
    }
}
