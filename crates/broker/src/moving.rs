//! What operators ask of partitions that move ([`crate::moves`]), and how moves stand: by this node's copies of the two
//! shards, or as their leaders tell.

use base::{Offset, PartitionId, ShardId, TopicId};
use machine::Command;
use machine::rows::moves::Phase;
use machine::topic::Moving;

use crate::broker::Broker;
use crate::error::{ExecuteError, Unavailable};
use crate::question::{MoveFacts, Question, Told};
use crate::shard_client::Elsewhere;

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
        self.execute(command).await.map(drop)
    }

    /// In which shard a partition is, as far as this node knows.
    pub fn shard_with(&self, partition: PartitionId) -> ShardId {
        self.shard_of(partition).id()
    }

    /// How many partitions move.
    pub fn moving_count(&self) -> u64 {
        self.catalog_shard().read(|view| view.catalog.moving_count() as u64)
    }

    /// Partitions that move, and how far each is.
    pub async fn moves(&self) -> Result<Vec<MoveStatus>, Unavailable> {
        let moving: Vec<_> = self.catalog_shard().read(|view| view.catalog.all_moving().collect());
        let shards = self.shards_with_rows();
        // Of each move two: what its source knows, and what its target does.
        let ends = moving.iter().flat_map(|(partition, moving)| {
            [self.shard_of(*partition).id(), moving.to].map(|shard| (shard, *partition, moving.id))
        });
        let ends: Vec<(ShardId, PartitionId, u64)> = ends.collect();
        let mut facts = vec![MoveFacts::default(); ends.len()];
        let mut asked = Vec::new();
        for shard in shards {
            let there = ends.iter().enumerate().filter(|(_, (at, ..))| *at == shard.id());
            let there = there.map(|(at, (_, partition, id))| (at, (*partition, *id)));
            if shard.has_rows() {
                let rows = shard.shard.rows();
                there.for_each(|(at, (id, of))| facts[at] = MoveFacts::of(&rows, id, of));
            } else {
                asked.push((shard.id(), there.collect()));
            }
        }
        let elsewhere = Elsewhere {
            ask: Question::Moves,
            told: |told| match told {
                Told::Moves(facts) => Some(facts),
                _ => None,
            },
        };
        for (at, told) in self.ask_lists(asked, &elsewhere).await? {
            facts[at] = told;
        }
        let mut of_ends = ends.iter().map(|(shard, ..)| *shard).zip(facts);
        let mut all = Vec::with_capacity(moving.len());
        for (partition, moving) in &moving {
            let (Some(source), Some(target)) = (of_ends.next(), of_ends.next()) else { break };
            all.push(status(*partition, moving, source, target));
        }
        Ok(all)
    }
}

fn status(
    partition: PartitionId,
    moving: &Moving,
    (from, source): (ShardId, MoveFacts),
    (to, target): (ShardId, MoveFacts),
) -> MoveStatus {
    let (start, end) = source.bounds.map(|it| (it.log_start, it.end)).unwrap_or_default();
    let copied = |next: Offset| next.clamp(start, end) - start;
    let state = match (source.phase, target.next) {
        (Some(Phase::HandedOver | Phase::Away), _) => MoveState::HandedOver,
        (Some(Phase::Cancelled), _) => MoveState::Cancelled,
        _ if moving.cancelled => MoveState::Cancelled,
        (Some(Phase::Frozen), _) => MoveState::Frozen,
        (None, Some(_)) => MoveState::Copies,
        (None, None) => MoveState::Waits,
    };
    let (copied, of) = (target.next.map_or(0, copied), end - start);
    MoveStatus { partition, from, to, state, copied, of }
}
