//! Converts leased records to the content of a share fetch response: ranges of offsets, and the whole batches
//! that hold them.
//!
//! Pure. The client reads the batches itself and skips records in them that it did not acquire. So a batch is
//! sent as the journal has it, however few of its records are acquired. The response's batches have a byte
//! limit; records beyond it are released.

use std::collections::BTreeMap;

use crate::share::response::AcquiredRange;

/// A leased record, and its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AcquiredRecord {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// 1 for the first delivery.
    pub(crate) attempt: u16,
    pub(crate) batch: BatchExtent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchExtent {
    pub(crate) base: u64,
    /// The offset after its last record.
    pub(crate) next: u64,
    /// Size in the journal.
    pub(crate) bytes: usize,
}

/// Consecutive batches: one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The first leased record, not the beginning of its batch: if settled records are removed, the log may
    /// start between the two, and cannot be read below its start.
    pub(crate) from: u64,
    /// Exclusive.
    pub(crate) to: u64,
    pub(crate) bytes: usize,
}

/// The response's content for one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PartitionPlan {
    pub(crate) acquired: Vec<AcquiredRange>,
    pub(crate) runs: Vec<Run>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) partitions: BTreeMap<u32, PartitionPlan>,
    /// Ranges of offsets, both ends included, that are released.
    pub(crate) surplus: Vec<(u32, u64, u64)>,
    /// Total of the batches.
    pub(crate) bytes: usize,
}

impl Plan {
    /// Takes the records in their order as long as their batches fit. With `must_progress` the first batch
    /// always fits: otherwise its record would be released for ever.
    pub(crate) fn of(
        mut leased: Vec<AcquiredRecord>,
        bytes_max: usize,
        must_progress: bool,
    ) -> Self {
        let mut batches: BTreeMap<(u32, u64), (BatchExtent, u64)> = BTreeMap::new();
        let mut bytes = 0;
        let mut surplus = Vec::new();
        leased.retain(|record| {
            let place = (record.partition, record.batch.base);
            if let Some((_, first)) = batches.get_mut(&place) {
                *first = record.offset.min(*first);
                return true;
            }
            let fits = (bytes == 0 && must_progress) || bytes + record.batch.bytes <= bytes_max;
            if fits {
                bytes += record.batch.bytes;
                batches.insert(place, (record.batch, record.offset));
            } else {
                surplus.push((record.partition, record.offset));
            }
            fits
        });
        leased.sort_unstable_by_key(|record| (record.partition, record.offset));
        surplus.sort_unstable();
        let mut plan = Self { bytes, ..Self::default() };
        for record in leased {
            plan.partitions.entry(record.partition).or_default().add_record(&record);
        }
        for ((partition, _), (batch, first)) in batches {
            plan.partitions.entry(partition).or_default().add_batch(batch, first);
        }
        for (partition, offset) in surplus {
            match plan.surplus.last_mut() {
                Some((same, _, last)) if *same == partition && *last + 1 == offset => {
                    *last = offset;
                }
                _ => plan.surplus.push((partition, offset, offset)),
            }
        }
        plan
    }
}

impl PartitionPlan {
    /// Records come by rising offset.
    fn add_record(&mut self, record: &AcquiredRecord) {
        let AcquiredRecord { offset, attempt: deliveries, .. } = *record;
        match self.acquired.last_mut() {
            Some(run) if run.deliveries == deliveries && run.last + 1 == offset => {
                run.last = offset;
            }
            _ => self.acquired.push(AcquiredRange { first: offset, last: offset, deliveries }),
        }
    }

    /// Batches come by rising offset; `first` is the batch's first leased record.
    fn add_batch(&mut self, batch: BatchExtent, first: u64) {
        match self.runs.last_mut() {
            Some(run) if run.to == batch.base => {
                run.to = batch.next;
                run.bytes += batch.bytes;
            }
            _ => self.runs.push(Run { from: first, to: batch.next, bytes: batch.bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A record in a batch of ten records and a hundred bytes.
    fn record(partition: u32, offset: u64, attempt: u16) -> AcquiredRecord {
        let base = offset / 10 * 10;
        AcquiredRecord {
            partition,
            offset,
            attempt,
            batch: BatchExtent { base, next: base + 10, bytes: 100 },
        }
    }

    fn acquired(first: u64, last: u64, deliveries: u16) -> AcquiredRange {
        AcquiredRange { first, last, deliveries }
    }

    #[test]
    fn consecutive_records_are_one_range() {
        let plan = Plan::of((0..20).map(|offset| record(0, offset, 1)).collect(), 1000, true);
        let partition = &plan.partitions[&0];
        assert_eq!(partition.acquired, [acquired(0, 19, 1)]);
        assert_eq!(partition.runs, [Run { from: 0, to: 20, bytes: 200 }]);
        assert_eq!((plan.bytes, plan.surplus), (200, vec![]));
    }

    #[test]
    fn a_gap_or_another_number_of_deliveries_begins_a_new_range() {
        let records = vec![record(0, 3, 1), record(0, 4, 2), record(0, 6, 2), record(0, 55, 2)];
        let plan = Plan::of(records, 1000, true);
        let partition = &plan.partitions[&0];
        let expected =
            [acquired(3, 3, 1), acquired(4, 4, 2), acquired(6, 6, 2), acquired(55, 55, 2)];
        assert_eq!(partition.acquired, expected);
        let runs = [Run { from: 3, to: 10, bytes: 100 }, Run { from: 55, to: 60, bytes: 100 }];
        assert_eq!(partition.runs, runs);
    }

    #[test]
    fn a_batch_is_read_from_its_first_leased_record_on() {
        let records = vec![record(0, 8, 1), record(0, 5, 2), record(0, 13, 1)];
        let plan = Plan::of(records, 1000, true);
        assert_eq!(plan.partitions[&0].runs, [Run { from: 5, to: 20, bytes: 200 }]);
    }

    #[test]
    fn records_over_the_byte_limit_are_released_except_the_first() {
        let records = vec![record(1, 0, 1), record(0, 0, 1), record(1, 1, 1), record(0, 1, 1)];
        let plan = Plan::of(records, 50, true);
        assert_eq!(plan.partitions[&1].acquired, [acquired(0, 1, 1)]);
        assert!(!plan.partitions.contains_key(&0));
        assert_eq!(plan.surplus, [(0, 0, 1)]);
    }

    proptest! {
        #[test]
        fn every_record_is_acquired_or_released_and_its_batch_is_read(
            records in proptest::collection::btree_map((0u32..3, 0u64..60), 1u16..3, 0..40),
            bytes_max in 0usize..800,
            must_progress: bool,
        ) {
            let leased: Vec<_> = records
                .iter()
                .map(|(&(partition, offset), &attempt)| record(partition, offset, attempt))
                .collect();
            let plan = Plan::of(leased, bytes_max, must_progress);
            let mut seen = BTreeMap::new();
            for (&partition, planned) in &plan.partitions {
                for range in &planned.acquired {
                    for offset in range.first..=range.last {
                        prop_assert!(seen.insert((partition, offset), range.deliveries).is_none());
                        let read = |run: &Run| (run.from..run.to).contains(&offset);
                        prop_assert!(planned.runs.iter().any(read));
                    }
                }
            }
            for &(partition, first, last) in &plan.surplus {
                for offset in first..=last {
                    prop_assert!(seen.insert((partition, offset), records[&(partition, offset)]).is_none());
                }
            }
            prop_assert_eq!(seen, records);
            let bytes: usize =
                plan.partitions.values().flat_map(|planned| &planned.runs).map(|run| run.bytes).sum();
            prop_assert_eq!(bytes, plan.bytes);
            let at_least = if must_progress { 100 } else { 0 };
            prop_assert!(bytes <= bytes_max.max(at_least));
        }
    }
}
