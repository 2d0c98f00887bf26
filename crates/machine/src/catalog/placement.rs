//! In which shard a partition is.

use base::{ShardId, Stripe};

/// A topic's partitions go round the shards that there were when it was made, beginning with one of
/// them. So few bytes say where a million partitions are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Where partition 0 is, counted from the first shard with records.
    start: u32,
    /// How many shards the topic goes round; never 0.
    shards: u32,
}

impl Placement {
    /// All of it in the first shard.
    pub const ALL_IN_FIRST: Self = Self { start: 0, shards: 1 };

    /// For the `topic`th topic where there are so many shards: `None` where there is none.
    pub fn of_new_topic(topic: u32, shards: u32) -> Option<Self> {
        Some(Self { start: topic.checked_rem(shards)?, shards })
    }

    /// What a snapshot says; `None` if that can be no placement.
    pub(crate) fn new(start: u32, shards: u32) -> Option<Self> {
        (start < shards).then_some(Self { start, shards })
    }

    pub fn start(self) -> u32 {
        self.start
    }

    pub fn shard_count(self) -> u32 {
        self.shards
    }

    pub fn shard_of(self, partition: u32) -> ShardId {
        let around = (u64::from(self.start) + u64::from(partition)) % u64::from(self.shards);
        ShardId(ShardId::FIRST.0 + around as u32)
    }

    /// Which of the topic's partitions a shard has; `None` if it can have none, however many they become.
    pub fn stripe_of(self, shard: ShardId) -> Option<Stripe> {
        let place = shard.0.checked_sub(ShardId::FIRST.0).filter(|place| *place < self.shards)?;
        let first = (place + self.shards - self.start) % self.shards;
        Stripe::new(first, self.shards)
    }

    /// Those that have any of its first `partitions`, in the order of their first one.
    pub fn shards_of(self, partitions: u32) -> impl Iterator<Item = ShardId> + use<> {
        (0..partitions.min(self.shards)).map(move |partition| self.shard_of(partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_in_the_stripe_of_its_shard_and_in_no_other() {
        for shards in 1..5 {
            for topic in 0..7 {
                let placement = Placement::of_new_topic(topic, shards).expect("there are shards");
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
        assert_eq!(Placement::of_new_topic(3, 0), None);
    }
}
