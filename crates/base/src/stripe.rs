//! The partitions of a topic that a shard has: each `step`-th, from the `first` on.

use crate::limits::PARTITIONS_PER_TOPIC_MAX;

/// A topic of n partitions over s shards is striped: a shard has every s-th of them. Its rows are then dense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    first: u32,
    /// Never 0.
    step: u32,
}

impl Stripe {
    /// All partitions.
    pub const ALL: Self = Self { first: 0, step: 1 };
    /// No partition.
    pub const NONE: Self = Self { first: u32::MAX - 1, step: u32::MAX };

    /// `None` if no partition could be in it.
    pub fn new(first: u32, step: u32) -> Option<Self> {
        (first < step).then_some(Self { first, step })
    }

    pub fn first(self) -> u32 {
        self.first
    }

    pub fn step(self) -> u32 {
        self.step
    }

    /// The row of a partition; `None` if it is in another stripe.
    pub fn row(self, partition: u32) -> Option<usize> {
        if self.step == 1 {
            return Some(partition as usize);
        }
        let above = partition.checked_sub(self.first)?;
        (above % self.step == 0).then_some((above / self.step) as usize)
    }

    /// The row of a partition of this stripe. Nearly every topic is in one stripe, and needs no division.
    pub fn row_of_own(self, partition: u32) -> usize {
        debug_assert!(self.row(partition).is_some());
        if self.step == 1 {
            return partition as usize;
        }
        ((partition - self.first) / self.step) as usize
    }

    /// The partition of a row.
    pub fn partition(self, row: usize) -> u32 {
        self.first + row as u32 * self.step
    }

    /// Whether a topic can have this many partitions in the stripe.
    pub fn has_room_for(self, rows: usize) -> bool {
        let end = u64::from(self.first) + rows as u64 * u64::from(self.step);
        rows == 0 || end - u64::from(self.step) < u64::from(PARTITIONS_PER_TOPIC_MAX)
    }

    /// Number of a topic's first `partitions` that are in the stripe.
    pub fn rows_of(self, partitions: u32) -> usize {
        partitions.saturating_sub(self.first).div_ceil(self.step) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_in_one_stripe_and_has_one_row() {
        for step in 1..5 {
            for partitions in 0..20 {
                let mut found = 0;
                for first in 0..step {
                    let stripe = Stripe::new(first, step).expect("the first is below the step");
                    let rows =
                        (0..partitions).filter_map(|index| Some((index, stripe.row(index)?)));
                    let rows: Vec<_> = rows.collect();
                    assert_eq!(rows.len(), stripe.rows_of(partitions));
                    for (at, &(index, row)) in rows.iter().enumerate() {
                        assert_eq!((row, stripe.partition(row)), (at, index));
                        assert_eq!(stripe.row_of_own(index), row);
                    }
                    found += rows.len();
                }
                assert_eq!(found, partitions as usize);
            }
        }
        assert_eq!((Stripe::new(2, 2), Stripe::new(0, 0)), (None, None));
    }
}
