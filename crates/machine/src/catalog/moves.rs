//! Partitions that should move to another shard. The shards perform the moves
//! ([`crate::rows::moves`]), and report their end.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{PartitionId, ShardId, TopicId};

use super::Catalog;
use super::placement::MovedPlacement;
use super::topic::{MoveTarget, Topic};
use crate::moves::MoveEnd;
use crate::outcome::Refusal;

/// Maximum number of concurrent moves, of all topics.
const MOVING_MAX: usize = 4_096;

impl Topic {
    /// Whether any of its partitions was moved to the shard, or will be.
    pub(crate) fn owns_or_receives(&self, shard: ShardId) -> bool {
        self.placement.moved().any(|(_, placed)| placed.shard == shard)
            || self.moving.values().any(|moving| moving.to == shard)
    }

    /// Leasing records requires that all partitions are in their original shards.
    pub(crate) fn check_leasable(&self) -> Result<(), Refusal> {
        let moving = self.moving.iter().map(|(index, moving)| (*index, moving.to)).next();
        let away = self.placement.first_displaced().map(|(index, placed)| (index, placed.shard));
        let Some((index, at)) = moving.or(away) else { return Ok(()) };
        let (partition, home) = (PartitionId::new(self.id, index), self.placement.home_of(index));
        Err(Refusal::PartitionMoved { partition, index, at, home: home.0 })
    }
}

impl Catalog {
    /// Counts the changes of moves: differs between two times if a move began or ended in between.
    /// A move's id is the count at its beginning.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Number of partitions that move.
    pub fn moving_count(&self) -> usize {
        self.moving
    }

    /// Partitions that move, by topic and number.
    pub fn all_moving(&self) -> impl Iterator<Item = (PartitionId, MoveTarget)> {
        let topics = self.topics.values().filter(|_| self.moving > 0);
        topics.flat_map(|topic| {
            let of = move |(&index, &moving): (&u32, &MoveTarget)| {
                (PartitionId::new(topic.id, index), moving)
            };
            topic.moving.iter().map(of)
        })
    }

    /// Whether `MovePartitions` would succeed now.
    pub fn check_move(
        &self,
        topic: TopicId,
        partitions: &[u32],
        to: ShardId,
    ) -> Result<(), Refusal> {
        let found = self.topic(topic).ok_or(Refusal::UnknownTopic { topic })?;
        if !(ShardId::FIRST.0..=self.shards).contains(&to.0) {
            return Err(Refusal::UnknownShard { shard: to });
        }
        let groups = self.lease_groups.ids_of(topic).len();
        if groups > 0 {
            return Err(Refusal::HasLeaseGroups { topic, groups });
        }
        for &index in partitions {
            let partition = PartitionId::new(topic, index);
            if !found.has_partition(index) {
                return Err(Refusal::UnknownPartition { partition });
            }
            if let Some(moving) = found.moving.get(&index)
                && (moving.to != to || moving.cancelled)
            {
                return Err(Refusal::MovesAlready { partition, to: moving.to });
            }
        }
        let (moving, at_most) = (self.moving, MOVING_MAX);
        match moving.saturating_add(partitions.len()) > at_most {
            true => Err(Refusal::TooManyMoves { moving, at_most }),
            false => Ok(()),
        }
    }

    /// Partitions that are in that shard already, or move there, are unchanged.
    pub(crate) fn move_partitions(
        &mut self,
        topic: TopicId,
        partitions: &[u32],
        to: ShardId,
    ) -> Result<(), Refusal> {
        self.check_move(topic, partitions, to)?;
        let found = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let wanted: BTreeSet<u32> = partitions.iter().copied().collect();
        for index in wanted {
            if found.moving.contains_key(&index) || found.placement.shard_of(index) == to {
                continue;
            }
            self.moves += 1;
            self.moving += 1;
            let moving = MoveTarget { id: self.moves, to, cancelled: false };
            Arc::make_mut(found).moving.insert(index, moving);
        }
        Ok(())
    }

    pub(crate) fn cancel_moves(
        &mut self,
        topic: TopicId,
        partitions: &[u32],
    ) -> Result<(), Refusal> {
        let found = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        for index in partitions {
            if found.moving.contains_key(index)
                && let Some(moving) = Arc::make_mut(found).moving.get_mut(index)
            {
                moving.cancelled = true;
                self.moves += 1;
            }
        }
        Ok(())
    }

    /// Ending an ended move again is no error.
    pub(crate) fn end_move(
        &mut self,
        partition: PartitionId,
        id: u64,
        end: MoveEnd,
    ) -> Result<(), Refusal> {
        let PartitionId { topic, index } = partition;
        let found = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let Some(moving) = found.moving.get(&index).copied().filter(|it| it.id == id) else {
            return Ok(());
        };
        let found = Arc::make_mut(found);
        found.moving.remove(&index);
        if let MoveEnd::Placed { epoch_base } = end {
            found.placement.place(index, MovedPlacement { shard: moving.to, epoch_base });
        }
        self.note_moves_ended(1);
        Ok(())
    }

    /// Also used when the topic of the moves is deleted.
    pub(super) fn note_moves_ended(&mut self, ended: usize) {
        self.moving = self.moving.saturating_sub(ended);
        self.moves += ended as u64;
    }
}
