//! A topic in a shard: the rows of the partitions that the shard owns.

use base::{LeaseGroupId, Offset, PartitionId, SharedRows, Stripe, TopicId};

use std::sync::Arc;

use super::moves::TopicMoves;
use super::partition::Partition;
use crate::group_ids::GroupIds;

#[derive(Clone, PartialEq, Debug)]
pub struct TopicRows {
    pub(super) id: TopicId,
    pub(super) stripe: Stripe,
    pub(super) partitions: SharedRows<Partition>,
    /// Ids of its lease groups, in ascending order.
    pub(super) groups: GroupIds,
    /// Records settled by every lease group are deleted (`retention.settled`).
    pub(super) deletes_settled: bool,
    /// State of moving partitions; `None` if none ever moved.
    pub(super) moves: Option<Arc<TopicMoves>>,
}

impl TopicRows {
    pub fn id(&self) -> TopicId {
        self.id
    }

    pub fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// Whether records settled by every lease group are deleted.
    pub fn deletes_settled(&self) -> bool {
        self.deletes_settled
    }

    pub fn partition(&self, index: u32) -> Option<&Partition> {
        if let Some(moves) = &self.moves {
            if moves.is_gone(index) {
                return None;
            }
            if let Some(guest) = moves.guests.get(&index) {
                return Some(guest);
            }
        }
        self.partitions.get(self.stripe.row(index)?)
    }

    /// Partitions served in this shard: those of its stripe, ascending, and then those moved here.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        let moves = self.moves.as_deref();
        let guests = moves.into_iter().flat_map(|moves| moves.guests.iter());
        let guests = guests.map(|(index, row)| (PartitionId::new(self.id, *index), row));
        let is_here = move |id: &PartitionId| moves.is_none_or(|moves| !moves.is_gone(id.index));
        self.stripe_rows().chain(guests).filter(move |(id, _)| is_here(id))
    }

    /// Partitions of its stripe, ascending, one for each row; also those that were handed over.
    pub(crate) fn stripe_rows(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        let (topic, stripe) = (self.id, self.stripe);
        let id = move |row| PartitionId::new(topic, stripe.partition(row));
        (0..self.partitions.len()).map(id).zip(&self.partitions)
    }

    /// In the order of [`Self::partitions`].
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> {
        self.partitions().map(|(id, _)| id)
    }

    /// Number of the topic's partitions that this shard serves.
    pub fn partition_count(&self) -> usize {
        if self.moves.is_none() { self.partitions.len() } else { self.partitions().count() }
    }

    /// Number of the topic's partitions in the shard's stripe.
    pub fn row_count(&self) -> usize {
        self.partitions.len()
    }

    /// Number of rows whose memory is shared with `other`.
    pub fn rows_shared_with(&self, other: &Self) -> usize {
        self.partitions.rows_shared_with(&other.partitions)
    }

    /// Place after its last partition in this shard.
    pub(super) fn partitions_end(&self) -> u32 {
        let end = self.row_count().checked_sub(1).map_or(0, |last| self.stripe.partition(last) + 1);
        end.max(self.moves.as_ref().map_or(0, |moves| moves.end()))
    }

    /// Ids of its lease groups, in ascending order.
    pub fn groups(&self) -> &[LeaseGroupId] {
        self.groups.as_slice()
    }

    /// Number of records between the starts and the ends of its partitions here.
    pub fn stored(&self) -> Offset {
        self.partitions().map(|(_, row)| row.next_offset() - row.log_start()).sum()
    }
}
