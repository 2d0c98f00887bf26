//! Finds the shard of a partition or of a consumer group.
//!
//! The catalog's placement has the shard of each partition. A group's committed offsets are in its home shard: the
//! hash of its name gives one of 256 slots, and slots are spread over the shards that existed when the node was
//! founded.
//!
//! * `terms`: the terms in which this node leads a shard

use std::sync::Arc;

use base::checksum::crc32c;
use base::{PartitionId, ShardId, TopicId};
use machine::catalog::placement::{MovedPlacement, Placement};
use shard::LocalShard;

use crate::broker::Broker;
use crate::limits::GROUP_SLOTS;

impl Broker {
    /// Shards with rows, in the order of their numbers.
    pub fn shards_with_rows(&self) -> &[Arc<LocalShard>] {
        &self.local_shards()[1..]
    }

    pub(crate) fn local(&self, shard: ShardId) -> &Arc<LocalShard> {
        // For an unknown shard the first one is returned: it does not have the rows either, and reports that.
        let shards = self.local_shards();
        shards.get(shard.0 as usize).unwrap_or(&shards[1])
    }

    /// Returns the shard that has the partition.
    pub(crate) fn shard_of(&self, partition: PartitionId) -> &Arc<LocalShard> {
        if let [only] = self.shards_with_rows() {
            return only;
        }
        let found = self.catalog_shard().read(|view| {
            let topic = view.catalog.topic(partition.topic)?;
            Some(topic.placement.shard_of(partition.index))
        });
        self.local(found.unwrap_or(ShardId::FIRST))
    }

    /// Returns the shards of these partitions, in their order, as places in [`Broker::shards_with_rows`].
    pub(crate) fn places_of(&self, partitions: impl Iterator<Item = PartitionId>) -> Vec<usize> {
        let count = self.shards_with_rows().len();
        if count == 1 {
            return partitions.map(|_| 0).collect();
        }
        self.catalog_shard().read(|view| {
            let place = |partition: PartitionId| {
                let topic = view.catalog.topic(partition.topic);
                let shard = topic.map(|topic| topic.placement.shard_of(partition.index));
                shard.map_or(0, |shard| (shard.0 - ShardId::FIRST.0) as usize).min(count - 1)
            };
            partitions.map(place).collect()
        })
    }

    /// Returns the shards that have partitions of a topic.
    pub(crate) fn shards_of(&self, topic: TopicId) -> Vec<&Arc<LocalShard>> {
        let shards: Vec<ShardId> = self.catalog_shard().read(|view| {
            let topic = view.catalog.topic(topic);
            let of = topic.map(|topic| topic.placement.shards_of(topic.partition_count()));
            of.into_iter().flatten().collect()
        });
        shards.into_iter().map(|shard| self.local(shard)).collect()
    }

    /// Returns the leader and term of each shard with rows.
    pub fn shard_leaders(&self) -> ShardLeaders {
        let led = |shard: &Arc<LocalShard>| {
            let epoch = shard.term() as i32;
            ShardLeader {
                leader: Leader { node: shard.leader(), epoch },
                replicas: self.order_of(shard),
            }
        };
        ShardLeaders(self.shards_with_rows().iter().map(led).collect())
    }

    /// Returns the leaders and epochs of a topic's partitions.
    pub fn leaders(&self, topic: TopicId) -> Leaders {
        self.leaders_among(&self.shard_leaders(), topic)
    }

    /// Returns the leaders of a topic's partitions, given those of the shards: a reply about many topics determines
    /// these once.
    pub fn leaders_among(&self, shards: &ShardLeaders, topic: TopicId) -> Leaders {
        let of_shards = Arc::clone(&shards.0);
        if of_shards.len() == 1 {
            return Leaders { of_shards, placement: Placement::ALL_IN_FIRST };
        }
        let placement = self.catalog_shard().read(|view| {
            let topic = view.catalog.topic(topic);
            topic.map_or(Placement::ALL_IN_FIRST, |topic| topic.placement.clone())
        });
        Leaders { of_shards, placement }
    }

    /// Whether this node leads the shard of the partition, and has everything acknowledged in it.
    pub fn leads(&self, partition: PartitionId) -> bool {
        self.is_alone() || self.shard_of(partition).serves_in().is_some()
    }

    /// [`Broker::leads`] for each of these partitions.
    pub fn leads_each(&self, partitions: &[PartitionId]) -> Vec<bool> {
        if self.is_alone() {
            return vec![true; partitions.len()];
        }
        let serves = |shard: &Arc<LocalShard>| shard.serves_in().is_some();
        let serves: Vec<bool> = self.shards_with_rows().iter().map(serves).collect();
        let places = self.places_of(partitions.iter().copied());
        places.into_iter().map(|place| serves[place]).collect()
    }

    /// Returns the nodes with a replica of a partition, ascending. They are the same for all partitions unless
    /// [`Broker::is_spread`]; then other partitions have as many replicas on other nodes.
    pub fn replicas(&self) -> Vec<u32> {
        self.shards_with_rows()[0].replicas()
    }

    /// Whether partitions differ in the nodes of their replicas.
    pub fn is_spread(&self) -> bool {
        let mut shards = self.shards_with_rows().iter().map(|shard| shard.replicas());
        let first = shards.next();
        shards.any(|other| Some(other) != first)
    }

    /// Voters of the catalog's group, ascending.
    pub fn catalog_voters(&self) -> Vec<u32> {
        self.catalog_shard().replicas()
    }

    /// Returns the group's coordinator: the leader of its home shard.
    pub fn coordinator(&self, group: &str) -> Option<u32> {
        self.home_of(group).leader()
    }

    /// Whether this node is [`Broker::coordinator`].
    pub fn coordinates(&self, group: &str) -> bool {
        self.home_of(group).is_led_here()
    }

    /// Returns the catalog's leader.
    pub fn catalog_leader(&self) -> Option<u32> {
        self.catalog_shard().leader()
    }

    /// Returns the leader epoch of a partition's batches.
    pub fn leader_epoch(&self, partition: PartitionId) -> i32 {
        let base = self.catalog_shard().read(|view| {
            let topic = view.catalog.topic(partition.topic);
            topic.map_or(0, |topic| topic.placement.epoch_base(partition.index))
        });
        let shard = self.shard_of(partition);
        let term = match shard.has_rows() {
            true => shard.consensus.term(),
            false => shard.term(),
        };
        base.saturating_add(term as i32)
    }

    /// Returns the shard with the group's committed offsets.
    pub(crate) fn home_of(&self, group: &str) -> &Arc<LocalShard> {
        if let [only] = self.shards_with_rows() {
            return only;
        }
        &self.shards_with_rows()[self.place_of_home(group)]
    }

    /// The place of [`Broker::home_of`] in [`Broker::shards_with_rows`].
    pub(crate) fn place_of_home(&self, group: &str) -> usize {
        let count = self.shards_with_rows().len();
        if count == 1 {
            return 0;
        }
        let shards = self.catalog_shard().read(|view| view.catalog.slot_shards()).max(1);
        let place = (slot_of(group) % shards) as usize;
        // For an unknown shard the first one is returned: it does not have the rows either, and reports that.
        if place < count { place } else { 0 }
    }
}

/// The leader of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leader {
    /// `None` if this node knows no leader.
    pub node: Option<u32>,
    /// The term of its shard, plus an increment for each move of the partition: it only rises.
    pub epoch: i32,
}

impl Leader {
    const UNKNOWN: Self = Self { node: None, epoch: -1 };
}

#[derive(Clone, Debug)]
struct ShardLeader {
    leader: Leader,
    replicas: Vec<u32>,
}

/// The leaders of all shards with rows, at one time.
#[derive(Clone, Debug)]
pub struct ShardLeaders(Arc<[ShardLeader]>);

impl ShardLeaders {
    /// Returns the leader and the replicas of each shard, the preferred leader first, in the order of
    /// [`Leaders::place_of`].
    pub fn each(&self) -> impl Iterator<Item = (Leader, &[u32])> {
        self.0.iter().map(|led| (led.leader, &led.replicas[..]))
    }
}

/// The leaders of a topic's partitions.
#[derive(Clone, Debug)]
pub struct Leaders {
    /// The leaders of the shards with rows.
    of_shards: Arc<[ShardLeader]>,
    placement: Placement,
}

impl Default for Leaders {
    /// Leaders of no topic.
    fn default() -> Self {
        Self { of_shards: Arc::new([]), placement: Placement::ALL_IN_FIRST }
    }
}

impl Leaders {
    /// Leaders of a topic spread over `shards` shards from `start` on, all of them unknown.
    pub fn unknown(start: u32, shards: u32) -> Self {
        let placement = Placement::for_new_topic(start, shards).unwrap_or(Placement::ALL_IN_FIRST);
        Self { of_shards: Arc::new([]), placement }
    }

    /// The same, with a partition that was moved to another shard.
    #[must_use]
    pub fn with_moved(mut self, partition: u32, shard: ShardId, epoch_base: i32) -> Self {
        self.placement.place(partition, MovedPlacement { shard, epoch_base });
        self
    }

    pub fn of(&self, partition: u32) -> Leader {
        let Some(led) = self.led(partition) else { return Leader::UNKNOWN };
        let Leader { node, epoch } = led.leader;
        Leader { node, epoch: self.epoch_of(partition, epoch) }
    }

    /// Returns the partition's leader epoch, given that of the shard at [`Self::place_of`].
    pub fn epoch_of(&self, partition: u32, of_shard: i32) -> i32 {
        match of_shard < 0 {
            true => of_shard,
            false => of_shard.saturating_add(self.placement.epoch_base(partition)),
        }
    }

    /// Returns the nodes that have the partition, the preferred leader first.
    pub fn replicas(&self, partition: u32) -> &[u32] {
        self.led(partition).map_or(&[], |led| &led.replicas)
    }

    /// Returns the partition's place in [`ShardLeaders::each`]. Greater than all where this node does not know the
    /// shard.
    pub fn place_of(&self, partition: u32) -> usize {
        (self.placement.shard_of(partition).0 - ShardId::FIRST.0) as usize
    }

    fn led(&self, partition: u32) -> Option<&ShardLeader> {
        self.of_shards.get(self.place_of(partition))
    }
}

fn slot_of(group: &str) -> u32 {
    crc32c(group.as_bytes()) % GROUP_SLOTS
}

mod terms;

pub use terms::{Coordination, HomeTerm, LeaderChanges};

#[cfg(test)]
mod tests;
