//! Finds the shard of a partition or of a group of consumers.
//!
//! The catalog's placement says which shard has a partition. A group's committed offsets are in its home
//! shard: the hash of its name gives one of 256 slots, and slots are spread over the shards that there
//! were when the node was founded.

use std::sync::Arc;

use base::checksum::crc32c;
use base::limits::GROUP_SLOTS;
use base::{PartitionId, ShardId, TopicId};
use machine::catalog::placement::Placement;

use crate::broker::Broker;
use crate::local_shard::LocalShard;

impl Broker {
    /// Those with rows, in the order of their numbers.
    pub(crate) fn shards_with_rows(&self) -> &[Arc<LocalShard>] {
        &self.local_shards()[1..]
    }

    fn local(&self, shard: ShardId) -> &Arc<LocalShard> {
        // An unknown shard: the first one does not have the rows either, and answers so.
        let shards = self.local_shards();
        shards.get(shard.0 as usize).unwrap_or(&shards[1])
    }

    /// The shard that has the partition.
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

    /// The shards of these partitions, in their order, as places in [`Broker::shards_with_rows`].
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

    /// The shards that have any of a topic's partitions.
    pub(crate) fn shards_of(&self, topic: TopicId) -> Vec<&Arc<LocalShard>> {
        let shards: Vec<ShardId> = self.catalog_shard().read(|view| {
            let topic = view.catalog.topic(topic);
            let of = topic.map(|topic| topic.placement.shards_of(topic.partition_count()));
            of.into_iter().flatten().collect()
        });
        shards.into_iter().map(|shard| self.local(shard)).collect()
    }

    /// The leader epochs of a topic's batches.
    pub fn leader_epochs(&self, topic: TopicId) -> LeaderEpochs {
        let terms = self.shards_with_rows().iter().map(|shard| shard.consensus.term() as i32);
        let terms: Vec<i32> = terms.collect();
        if terms.len() == 1 {
            return LeaderEpochs { terms, placement: Placement::ALL_IN_FIRST };
        }
        let placement = self.catalog_shard().read(|view| {
            view.catalog.topic(topic).map_or(Placement::ALL_IN_FIRST, |topic| topic.placement)
        });
        LeaderEpochs { terms, placement }
    }

    /// The leader epoch of a partition's batches.
    pub fn leader_epoch(&self, partition: PartitionId) -> i32 {
        self.shard_of(partition).consensus.term() as i32
    }

    /// The shard that has the group's committed offsets.
    pub(crate) fn home_of(&self, group: &str) -> &Arc<LocalShard> {
        if let [only] = self.shards_with_rows() {
            return only;
        }
        let shards = self.catalog_shard().read(|view| view.catalog.slot_shards()).max(1);
        self.local(ShardId(ShardId::FIRST.0 + slot_of(group) % shards))
    }
}

/// The newest term of each shard, as those who ask about partitions of one topic want to know it.
#[derive(Clone, Debug)]
pub struct LeaderEpochs {
    /// Of the shards with rows.
    terms: Vec<i32>,
    placement: Placement,
}

impl Default for LeaderEpochs {
    /// Of no topic.
    fn default() -> Self {
        Self { terms: Vec::new(), placement: Placement::ALL_IN_FIRST }
    }
}

impl LeaderEpochs {
    /// All partitions have this one.
    pub fn same(term: i32) -> Self {
        Self { terms: vec![term], placement: Placement::ALL_IN_FIRST }
    }

    pub fn of(&self, partition: u32) -> i32 {
        let place = self.placement.shard_of(partition).0 - ShardId::FIRST.0;
        self.terms.get(place as usize).copied().unwrap_or(-1)
    }
}

fn slot_of(group: &str) -> u32 {
    crc32c(group.as_bytes()) % GROUP_SLOTS
}

#[cfg(test)]
mod tests;
