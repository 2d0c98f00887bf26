//! The shard of each partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ShardId, Stripe};

/// A topic's partitions are assigned round-robin to the shards that existed at its creation,
/// beginning at `start`. This places a million partitions in a few bytes. Moved partitions are
/// listed one by one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Shard of partition 0, counted from the first shard with records.
    start: u32,
    /// Number of shards of the round-robin; never 0.
    shards: u32,
    /// `None` if no partition was ever moved.
    moved: Option<Arc<BTreeMap<u32, MovedPlacement>>>,
}

/// Placement of a moved partition; it may be back in its original shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedPlacement {
    pub shard: ShardId,
    /// Added to the shard's term for the partition's leader epoch.
    pub epoch_base: i32,
}

impl Placement {
    /// All partitions in the first shard.
    pub const ALL_IN_FIRST: Self = Self { start: 0, shards: 1, moved: None };

    /// For the `topic`th topic and this many shards; `None` for 0 shards.
    pub fn for_new_topic(topic: u32, shards: u32) -> Option<Self> {
        Some(Self { start: topic.checked_rem(shards)?, shards, moved: None })
    }

    /// Placement of a snapshot; `None` if it is invalid.
    pub(crate) fn new(start: u32, shards: u32) -> Option<Self> {
        (start < shards).then_some(Self { start, shards, moved: None })
    }

    pub fn start(&self) -> u32 {
        self.start
    }

    pub fn shard_count(&self) -> u32 {
        self.shards
    }

    pub fn shard_of(&self, partition: u32) -> ShardId {
        self.placed(partition).map_or_else(|| self.home_of(partition), |placed| placed.shard)
    }

    /// Added to the term of the partition's shard for the leader epoch that clients see.
    pub fn epoch_base(&self, partition: u32) -> i32 {
        self.placed(partition).map_or(0, |placed| placed.epoch_base)
    }

    fn placed(&self, partition: u32) -> Option<&MovedPlacement> {
        self.moved.as_ref()?.get(&partition)
    }

    /// The partition's original shard.
    pub fn home_of(&self, partition: u32) -> ShardId {
        let around = (u64::from(self.start) + u64::from(partition)) % u64::from(self.shards);
        ShardId(ShardId::FIRST.0 + around as u32)
    }

    /// Moved partitions with their current placement.
    pub fn moved(&self) -> impl Iterator<Item = (u32, MovedPlacement)> {
        self.moved.iter().flat_map(|moved| moved.iter().map(|(index, placed)| (*index, *placed)))
    }

    /// The first partition that is not in its original shard.
    pub fn first_displaced(&self) -> Option<(u32, MovedPlacement)> {
        self.moved().find(|(index, placed)| placed.shard != self.home_of(*index))
    }

    pub fn place(&mut self, partition: u32, placed: MovedPlacement) {
        let moved = self.moved.get_or_insert_with(Arc::default);
        Arc::make_mut(moved).insert(partition, placed);
    }

    /// The topic's partitions whose original shard this is; `None` if it can have none, however
    /// many there will be.
    pub fn stripe_of(&self, shard: ShardId) -> Option<Stripe> {
        let place = shard.0.checked_sub(ShardId::FIRST.0).filter(|place| *place < self.shards)?;
        let first = (place + self.shards - self.start) % self.shards;
        Stripe::new(first, self.shards)
    }

    /// The shards that own, or owned, any of the first `partitions`: the original shards in the
    /// order of their first partition, then targets of moves.
    pub fn shards_of(&self, partitions: u32) -> impl Iterator<Item = ShardId> + use<> {
        let homes = (0..partitions.min(self.shards)).map(|partition| self.home_of(partition));
        let homes: Vec<ShardId> = homes.collect();
        let others = self.moved().filter(|(index, _)| *index < partitions).map(|(_, it)| it.shard);
        let others: BTreeSet<ShardId> = others.filter(|shard| !homes.contains(shard)).collect();
        homes.into_iter().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_in_the_stripe_of_its_shard_and_in_no_other() {
        for shards in 1..5 {
            for topic in 0..7 {
                let placement = Placement::for_new_topic(topic, shards).expect("there are shards");
                for partition in 0..20 {
                    let home = placement.shard_of(partition);
                    for shard in (0..=shards).map(ShardId) {
                        let stripe = placement.stripe_of(shard);
                        let has = stripe.is_some_and(|stripe| stripe.row(partition).is_some());
                        assert_eq!(has, shard == home, "{placement:?} {partition} {shard}");
                    }
                }
                let all: Vec<_> = placement.shards_of(100).collect();
                assert_eq!(all.len(), shards as usize);
                assert_eq!(placement.shards_of(1).collect::<Vec<_>>(), all[..1]);
            }
        }
        assert_eq!(Placement::for_new_topic(3, 0), None);
    }

    #[test]
    fn moved_partition_is_only_in_its_new_shard() {
        let mut placement = Placement::for_new_topic(0, 2).expect("there are shards");
        placement.place(1, MovedPlacement { shard: ShardId(5), epoch_base: 70_000 });
        let homes: Vec<_> = (0..4).map(|partition| placement.shard_of(partition).0).collect();
        assert_eq!(homes, [1, 5, 1, 2]);
        assert_eq!((placement.epoch_base(1), placement.epoch_base(0)), (70_000, 0));
        let shards =
            |partitions| placement.shards_of(partitions).map(|it| it.0).collect::<Vec<_>>();
        assert_eq!((shards(4), shards(1)), (vec![1, 2, 5], vec![1]));
        assert_eq!(placement.first_displaced().map(|(index, _)| index), Some(1));
        placement.place(1, MovedPlacement { shard: ShardId(2), epoch_base: 140_000 });
        assert_eq!((placement.first_displaced(), placement.epoch_base(1)), (None, 140_000));
    }
}
