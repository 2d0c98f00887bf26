//! Operator requests to move partitions ([`upkeep::moves`]), and the state of moves: by this node's replicas of the
//! two shards, or from their leaders.

use base::{Offset, PartitionId, ShardId, TopicId};
use machine::Command;
use machine::rows::moves::Phase;
use machine::topic::MoveTarget;
use shard::error::{ExecuteError, Unavailable};
use shard_peers::shard_query::{MoveFacts, ShardQuery, ShardQueryReply};

use crate::broker::Broker;
use crate::shard_client::RemoteQuery;

/// State of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveState {
    /// Nothing was copied yet.
    Waits,
    Copies,
    /// The partition accepts no appends for a moment.
    Frozen,
    /// The other shard has the partition, and is about to serve it.
    HandedOver,
    /// The move is being cancelled.
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveStatus {
    pub partition: PartitionId,
    pub from: ShardId,
    pub to: ShardId,
    pub state: MoveState,
    /// Number of offsets in the other shard, of the total `of`.
    pub copied: u64,
    pub of: u64,
}

impl Broker {
    /// Requests that partitions of a topic move to another shard, in the background. Partitions that are there stay.
    pub async fn move_partitions(
        &self,
        topic: TopicId,
        partitions: Vec<u32>,
        to: ShardId,
    ) -> Result<(), ExecuteError> {
        self.change_moves(Command::MovePartitions { topic, partitions, to }).await
    }

    /// Cancels moves of partitions, unless they were handed over.
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

    /// Returns the shard of a partition, as far as this node knows.
    pub fn shard_with(&self, partition: PartitionId) -> ShardId {
        self.shard_of(partition).id()
    }

    /// Number of moving partitions.
    pub fn moving_count(&self) -> u64 {
        self.catalog_shard().read(|view| view.catalog.moving_count() as u64)
    }

    /// Returns the moving partitions, with the progress of each.
    pub async fn moves(&self) -> Result<Vec<MoveStatus>, Unavailable> {
        let moving: Vec<_> = self.catalog_shard().read(|view| view.catalog.all_moving().collect());
        let shards = self.shards_with_rows();
        // Two facts of each move: the source's and the target's.
        let ends = moving.iter().flat_map(|(partition, moving)| {
            [self.shard_of(*partition).id(), moving.to].map(|shard| (shard, *partition, moving.id))
        });
        let ends: Vec<(ShardId, PartitionId, u64)> = ends.collect();
        let mut facts = vec![MoveFacts::default(); ends.len()];
        let mut remote_items = Vec::new();
        for shard in shards {
            let there = ends.iter().enumerate().filter(|(_, (at, ..))| *at == shard.id());
            let there = there.map(|(at, (_, partition, id))| (at, (*partition, *id)));
            if shard.has_rows() {
                let rows = shard.shard.rows();
                there.for_each(|(at, (id, of))| facts[at] = MoveFacts::of(&rows, id, of));
            } else {
                remote_items.push((shard.id(), there.collect()));
            }
        }
        let elsewhere = RemoteQuery {
            query: ShardQuery::Moves,
            reply: |reply| match reply {
                ShardQueryReply::Moves(facts) => Some(facts),
                _ => None,
            },
        };
        for (at, reply) in self.query_lists(remote_items, &elsewhere).await? {
            facts[at] = reply;
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
    moving: &MoveTarget,
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
