//! A topic as a shard has it: the rows of those of its partitions that the shard owns.

use base::{LeaseGroupId, Offset, PartitionId, SharedRows, Stripe, TopicId};

use super::partition::Partition;
use crate::group_ids::GroupIds;

#[derive(Clone, PartialEq, Debug)]
pub struct TopicRows {
    pub(super) id: TopicId,
    pub(super) stripe: Stripe,
    pub(super) partitions: SharedRows<Partition>,
    /// Of its lease groups, in ascending order.
    pub(super) groups: GroupIds,
    /// What every lease group has settled is deleted (`retention.settled`).
    pub(super) deletes_settled: bool,
}

impl TopicRows {
    pub fn id(&self) -> TopicId {
        self.id
    }

    pub fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// Whether what every lease group has settled is deleted.
    pub fn deletes_settled(&self) -> bool {
        self.deletes_settled
    }

    pub fn partition(&self, index: u32) -> Option<&Partition> {
        self.partitions.get(self.stripe.row(index)?)
    }

    /// Those of this shard, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partition_ids().zip(&self.partitions)
    }

    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let (topic, stripe) = (self.id, self.stripe);
        (0..self.partitions.len()).map(move |row| PartitionId::new(topic, stripe.partition(row)))
    }

    /// How many partitions of the topic this shard has.
    pub fn row_count(&self) -> usize {
        self.partitions.len()
    }

    /// How many rows take no memory of their own, since `other` has them too.
    pub fn rows_shared_with(&self, other: &Self) -> usize {
        self.partitions.rows_shared_with(&other.partitions)
    }

    /// The place after its last partition in this shard.
    pub(super) fn partitions_end(&self) -> u32 {
        self.row_count().checked_sub(1).map_or(0, |last| self.stripe.partition(last) + 1)
    }

    /// Of its lease groups, in ascending order.
    pub fn groups(&self) -> &[LeaseGroupId] {
        self.groups.as_slice()
    }

    /// How many records are between the starts and the ends of its partitions here.
    pub fn stored(&self) -> Offset {
        self.partitions.iter().map(|row| row.next_offset() - row.log_start()).sum()
    }
}
