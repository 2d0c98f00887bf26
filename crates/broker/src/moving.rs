//! What operators ask of partitions that move ([`crate::moves`]), and how moves stand: by this node's copies of the two
//! shards.

use base::{Offset, PartitionId, ShardId, TopicId};
use machine::rows::moves::Phase;
use machine::{Command, Refusal};

use crate::broker::Broker;
use crate::error::ExecuteError;

/// How a move stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveState {
    /// Nothing was copied yet.
    Waits,
    Copies,
    /// It takes no appends for a moment.
    Frozen,
    /// The other shard has it, and is about to serve it.
    HandedOver,
    /// It is being given up.
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveStatus {
    pub partition: PartitionId,
    pub from: ShardId,
    pub to: ShardId,
    pub state: MoveState,
    /// Of its offsets so many are in the other shard.
    pub copied: u64,
    pub of: u64,
}

impl Broker {
    /// Wants partitions of a topic in another shard. What follows goes on by itself; those that are there stay.
    pub async fn move_partitions(
        &self,
        topic: TopicId,
        partitions: Vec<u32>,
        to: ShardId,
    ) -> Result<(), ExecuteError> {
        self.change_moves(Command::MovePartitions { topic, partitions, to }).await
    }

    /// Wants partitions where they are, unless it is too late.
    pub async fn cancel_moves(
        &self,
        topic: TopicId,
        partitions: Vec<u32>,
    ) -> Result<(), ExecuteError> {
        self.change_moves(Command::CancelMoves { topic, partitions }).await
    }

    async fn change_moves(&self, command: Command) -> Result<(), ExecuteError> {
        if !self.level().permits(&command) {
            let (needed, at) = (machine::moves::MOVES_SINCE, self.level().now());
            return Err(ExecuteError::Refused(Refusal::LevelTooLow { needed, at }));
        }
        self.execute(command).await.map(drop)
    }

    /// In which shard a partition is, as far as this node knows.
    pub fn shard_with(&self, partition: PartitionId) -> ShardId {
        self.shard_of(partition).id()
    }

    /// Partitions that move.
    pub fn moves(&self) -> Vec<MoveStatus> {
        let moving: Vec<_> = self.catalog_shard().read(|view| view.catalog.all_moving().collect());
        let status = |(partition, moving): (PartitionId, machine::topic::Moving)| {
            let shard = self.shard_of(partition);
            let (from, to) = (shard.id(), moving.to);
            let (bounds, phase) = shard.read(|view| {
                let row = view.rows.partition(partition);
                let bounds = row.map(|row| (row.log_start(), row.next_offset()));
                let topic = view.rows.topic(partition.topic);
                let leaving = topic.and_then(|topic| topic.leaving(partition.index));
                (bounds, leaving.filter(|leaving| leaving.id == moving.id).map(|it| it.phase))
            });
            let there = self.shards_with_rows().iter().find(|shard| shard.id() == to);
            let import = there.and_then(|there| there.read(|view| view.rows.import(partition)));
            let next = import.filter(|import| import.id == moving.id).map(|import| import.next);
            let (start, end) = bounds.unwrap_or_default();
            let copied = |next: Offset| next.clamp(start, end) - start;
            let state = match (phase, next) {
                (Some(Phase::HandedOver | Phase::Away), _) => MoveState::HandedOver,
                (Some(Phase::Cancelled), _) => MoveState::Cancelled,
                _ if moving.cancelled => MoveState::Cancelled,
                (Some(Phase::Frozen), _) => MoveState::Frozen,
                (None, Some(_)) => MoveState::Copies,
                (None, None) => MoveState::Waits,
            };
            let (copied, of) = (next.map_or(0, copied), end - start);
            MoveStatus { partition, from, to, state, copied, of }
        };
        moving.into_iter().map(status).collect()
    }
}
