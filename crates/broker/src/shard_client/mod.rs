//! Queries and changes of the contents of shards: partitions, the progress of lease groups, committed offsets.
//!
//! A shard may be led by another node. So a query is about a list, takes one step whatever its length, and may fail;
//! a change is an entry of the shard's log. The caller has looked the topic up in the catalog before, and the topic
//! may be deleted meanwhile: missing items get `None`.
//!
//! If this node is a member of a shard, its own replica is read, once that has everything acknowledged before the
//! call ([`Broker::shards_are_current`]). [`ShardClient::known`] does not wait. A query takes the state's lock once.
//! An apply waits for that lock, so a caller with a long list queries a part of it at a time. For another shard its
//! leader is queried.
//!
//! * [`partitions`], [`progress`], [`offsets`]: by subject
//! * `remote_query`: queries of lists to leaders ([`crate::remote::query_client`])

pub mod offsets;
pub mod partitions;
pub mod progress;
mod remote_query;

use base::{PartitionId, ShardId, TopicId};
use machine::Rows;
use shard::LocalShard;
use shard::error::Unavailable;

use crate::broker::Broker;

pub(crate) use remote_query::RemoteQuery;

pub use partitions::{EpochEnd, Producer};

/// Client of the shards; each query goes to the shard that has its subject.
#[derive(Clone, Copy, Debug)]
pub struct ShardClient<'a> {
    broker: &'a Broker,
    /// Whether replicas are read without waiting.
    as_known: bool,
}

impl Broker {
    pub fn shards(&self) -> ShardClient<'_> {
        ShardClient { broker: self, as_known: false }
    }
}

impl ShardClient<'_> {
    /// The same without a wait: for callers that waited before ([`Broker::copies_are_current`],
    /// [`Broker::all_are_current`]), and for estimates.
    #[must_use]
    pub fn known(self) -> Self {
        Self { as_known: true, ..self }
    }

    /// Waits until the replicas of these shards are current, where this node has any.
    async fn are_current(self, places: impl Iterator<Item = usize>) -> Result<(), Unavailable> {
        if self.as_known {
            return Ok(());
        }
        let has_rows = |place: &usize| self.broker.shards_with_rows()[*place].has_rows();
        self.broker.shards_are_current(places.filter(has_rows)).await
    }

    /// Waits until the replica of one shard is current.
    async fn is_current(self, shard: &LocalShard) -> Result<(), Unavailable> {
        match self.as_known || !shard.has_rows() {
            true => Ok(()),
            false => self.broker.shard_is_current(shard).await,
        }
    }

    /// Replaces places of partitions that were handed over by their new places.
    async fn follow(
        self,
        places: &mut [usize],
        partition: impl Fn(usize) -> PartitionId,
    ) -> Result<(), Unavailable> {
        let shards = self.broker.shards_with_rows();
        let has_moves =
            shards.iter().map(|shard| shard.has_rows() && shard.shard.rows().has_moves());
        let has_moves: Vec<bool> = has_moves.collect();
        if !has_moves.contains(&true) {
            return Ok(());
        }
        let gone = |(at, place): (usize, &usize)| {
            let partition = has_moves[*place].then(|| partition(at))?;
            let to = shards[*place].shard.rows().gone_to(partition)?;
            Some((at, shards.iter().position(|shard| shard.id() == to)?))
        };
        let gone: Vec<(usize, usize)> = places.iter().enumerate().filter_map(gone).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.are_current(gone.iter().map(|(_, to)| *to)).await?;
        for (at, to) in gone {
            let next = &shards[to];
            // Until it has arrived it stays at its former place.
            if !next.has_rows() || next.shard.rows().partition(partition(at)).is_some() {
                places[at] = to;
            }
        }
        Ok(())
    }

    /// Queries each item at the shard of its partition.
    async fn query<Q: Clone, A>(
        self,
        items: &[Q],
        about: impl Fn(&Q) -> Option<PartitionId>,
        answer: impl Fn(&LocalShard, &Rows, &Q) -> Option<A>,
        elsewhere: RemoteQuery<Q, Option<A>>,
    ) -> Result<Vec<Option<A>>, Unavailable> {
        let partition = |item| about(item).unwrap_or(NO_PARTITION);
        let mut places = self.broker.places_of(items.iter().map(partition));
        self.are_current(places.iter().copied()).await?;
        self.follow(&mut places, |at| partition(&items[at])).await?;
        let mut answers: Vec<Option<A>> = items.iter().map(|_| None).collect();
        let mut remote_items: Vec<(ShardId, Vec<(usize, Q)>)> = Vec::new();
        for (place, shard) in self.broker.shards_with_rows().iter().enumerate() {
            let here = || (0..items.len()).filter(|at| places[*at] == place);
            if !shard.has_rows() {
                let of_shard: Vec<_> = here().map(|at| (at, items[at].clone())).collect();
                if !of_shard.is_empty() {
                    remote_items.push((shard.id(), of_shard));
                }
                continue;
            }
            let rows = shard.shard.rows();
            for at in here() {
                answers[at] = answer(shard, &rows, &items[at]);
            }
        }
        if !remote_items.is_empty() {
            for (at, answer) in self.broker.query_lists(remote_items, &elsewhere).await? {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }
}

/// A partition of no topic.
const NO_PARTITION: PartitionId = PartitionId::new(TopicId(u32::MAX), 0);
