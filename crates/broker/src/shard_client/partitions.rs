//! Partitions: contents and producers.

use base::{HashMap, Offset, PartitionId, TopicId};
use machine::{Command, Outcome, Partition, Refusal, Rows};
use shard::LocalShard;
use shard::error::{ExecuteError, Unavailable};
use shard_peers::bounds::Bounds;
use shard_peers::shard_query::{ShardQuery, ShardQueryReply, epoch_at};

use super::ShardClient;
use super::remote_query::RemoteQuery;
use crate::routing::Leaders;

/// The largest leader epoch with records that is not above the requested one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    pub epoch: i32,
    /// The offset after its last record.
    pub end: Offset,
}

/// State of a producer in a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    pub last_sequence: i32,
    /// Time of its last accepted batch, ms since the epoch.
    pub last_ms: i64,
}

impl ShardClient<'_> {
    /// Returns the start and ends of each partition.
    #[tasks::boxed]
    pub async fn bounds(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Bounds>>, Unavailable> {
        let elsewhere = RemoteQuery {
            query: match self.broker.knows_transactions() {
                true => ShardQuery::StableBounds,
                false => ShardQuery::Bounds,
            },
            reply: |reply| match reply {
                ShardQueryReply::StableBounds(bounds) => Some(bounds),
                ShardQueryReply::Bounds(ranges) => {
                    Some(ranges.into_iter().map(|range| range.map(Bounds::from)).collect())
                }
                _ => None,
            },
        };
        let bounds = |_: &LocalShard, rows: &Rows, id: &PartitionId| Bounds::known(rows, *id);
        self.query(partitions, |id| Some(*id), bounds, elsewhere).await
    }

    /// Returns the leader epoch in which each offset was, or will be, written; -1 before the first record.
    pub async fn epochs_at(
        &self,
        places: &[(PartitionId, Offset)],
    ) -> Result<Vec<Option<i32>>, Unavailable> {
        let elsewhere = RemoteQuery {
            query: ShardQuery::EpochsAt,
            reply: |reply| match reply {
                ShardQueryReply::Epochs(epochs) => Some(epochs),
                _ => None,
            },
        };
        let at = |partition: &Partition, &(_, offset): &(PartitionId, Offset)| {
            epoch_at(partition, offset)
        };
        self.query_each(places, |(id, _)| *id, at, elsewhere).await
    }

    /// Returns the end of each leader epoch, none for an epoch above all with records. Only for partitions with rows
    /// on this node.
    pub async fn epoch_ends(
        &self,
        epochs: &[(PartitionId, i32)],
    ) -> Result<Vec<Option<Option<EpochEnd>>>, Unavailable> {
        let topics = epochs.iter().map(|(id, _)| id.topic);
        let current: HashMap<TopicId, Leaders> =
            topics.map(|topic| (topic, self.broker.leaders(topic))).collect();
        let end_of = |partition: &Partition, &(id, epoch): &(PartitionId, i32)| {
            let current = current.get(&id.topic).map_or(-1, |current| current.of(id.index).epoch);
            // The current epoch may have no records yet.
            let found = match epoch == current {
                true => Some((current, partition.next_offset())),
                false => partition.epoch_end(epoch),
            };
            found.map(|(epoch, end)| EpochEnd { epoch, end })
        };
        self.read_each_here(epochs, |(id, _)| *id, end_of)
    }

    /// Returns the known producers of each partition, ascending by id. Only for partitions with rows on this node.
    pub async fn producers(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<Vec<Producer>>>, Unavailable> {
        let producers_of = |partition: &Partition, _: &PartitionId| {
            let known = partition.producers().iter().map(|(id, state)| Producer {
                id: *id,
                epoch: state.epoch(),
                last_sequence: state.last_sequence(),
                last_ms: state.last_ms(),
            });
            known.collect()
        };
        self.read_each_here(partitions, |id| *id, producers_of)
    }

    /// Returns the time of the last accepted batch, ms since the epoch; `None` also if there never was one.
    pub async fn last_appends_ms(
        &self,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<i64>>, Unavailable> {
        let elsewhere = RemoteQuery {
            query: ShardQuery::LastAppends,
            reply: |reply| match reply {
                ShardQueryReply::LastAppends(times) => Some(times),
                _ => None,
            },
        };
        let last = |partition: &Partition, _: &PartitionId| partition.last_append_ms();
        let last = self.query_each(partitions, |id| *id, last, elsewhere).await?;
        Ok(last.into_iter().map(Option::flatten).collect())
    }

    /// Live bytes of each partition in the journal; 0 for a missing one.
    pub async fn live_bytes(&self, partitions: &[PartitionId]) -> Result<Vec<u64>, Unavailable> {
        let elsewhere = RemoteQuery {
            query: ShardQuery::LiveBytes,
            reply: |reply| match reply {
                ShardQueryReply::LiveBytes(bytes) => Some(bytes.into_iter().map(Some).collect()),
                _ => None,
            },
        };
        let bytes = |shard: &LocalShard, _: &Rows, id: &PartitionId| {
            Some(shard.journal().stream_bytes(id.stream()))
        };
        let bytes = self.query(partitions, |id| Some(*id), bytes, elsewhere).await?;
        Ok(bytes.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Live bytes of these partitions, where this node has them.
    pub fn live_bytes_here(&self, partitions: &[PartitionId]) -> Vec<Option<u64>> {
        let places = self.broker.places_of(partitions.iter().copied());
        let shards = self.broker.shards_with_rows();
        let bytes = |(id, place): (&PartitionId, usize)| {
            let shard = &shards[place];
            shard.has_rows().then(|| shard.journal().stream_bytes(id.stream()))
        };
        partitions.iter().zip(places).map(bytes).collect()
    }

    /// Deletes the records below these offsets; returns the resulting log starts, in order.
    pub async fn advance_starts(
        &self,
        starts: Vec<(PartitionId, Offset)>,
    ) -> Result<Vec<Result<Offset, Refusal>>, ExecuteError> {
        let places = self.broker.places_of(starts.iter().map(|(partition, _)| *partition));
        let shards = self.broker.shards_with_rows();
        let mut answers = Vec::with_capacity(shards.len());
        for (place, shard) in shards.iter().enumerate() {
            let here = starts.iter().zip(&places).filter(|(_, at)| **at == place);
            let starts: Vec<_> = here.map(|(start, _)| *start).collect();
            if starts.is_empty() {
                answers.push(Vec::new().into_iter());
                continue;
            }
            match shard.execute(Command::AdvanceStart { starts }).await? {
                Outcome::Starts(starts) => answers.push(starts.into_iter()),
                other => unreachable!("starts are not answered with {other:?}"),
            }
        }
        let next = |place: &usize| answers[*place].next().expect("each start is answered");
        Ok(places.iter().map(next).collect())
    }

    async fn query_each<Q: Clone, A>(
        self,
        items: &[Q],
        about: impl Fn(&Q) -> PartitionId,
        answer: impl Fn(&Partition, &Q) -> A,
        elsewhere: RemoteQuery<Q, Option<A>>,
    ) -> Result<Vec<Option<A>>, Unavailable> {
        let answer = |_: &LocalShard, rows: &Rows, item: &Q| {
            let partition = rows.known(about(item))?;
            Some(answer(partition, item))
        };
        self.query(items, |item| Some(about(item)), answer, elsewhere).await
    }

    /// The same from this node's own rows only, without a query to others.
    fn read_each_here<Q, A>(
        self,
        items: &[Q],
        about: impl Fn(&Q) -> PartitionId,
        answer: impl Fn(&Partition, &Q) -> A,
    ) -> Result<Vec<Option<A>>, Unavailable> {
        let places = self.broker.places_of(items.iter().map(&about));
        let mut answers: Vec<Option<A>> = items.iter().map(|_| None).collect();
        for (place, shard) in self.broker.shards_with_rows().iter().enumerate() {
            let mut here = items.iter().zip(&mut answers).zip(&places);
            let mut here = here.by_ref().filter(|(_, at)| **at == place).peekable();
            if here.peek().is_some() && !shard.has_rows() {
                return Err(Unavailable::NotLeader);
            }
            let rows = shard.shard.rows();
            for ((item, slot), _) in here {
                *slot = rows.known(about(item)).map(|found| answer(found, item));
            }
        }
        Ok(answers)
    }
}
