//! Progress of lease groups.

use base::{HashMap, LeaseGroupId, Offset, PartitionId, TopicId};
use futures_util::future::try_join_all;
use machine::{Command, Refusal, Rows};
use shard::LocalShard;
use shard::error::{ExecuteError, Unavailable};
use shard_peers::shard_query::{
    ASKED_AT_ONCE_MAX, GroupSnapshot, LeaseProgress, ShardQuery, ShardQueryReply,
};

use super::ShardClient;
use super::remote_query::RemoteQuery;

impl ShardClient<'_> {
    /// Returns a group's progress in each of these partitions of its topic.
    pub async fn lease_progress(
        &self,
        group: LeaseGroupId,
        partitions: &[u32],
    ) -> Result<Vec<Option<LeaseProgress>>, Unavailable> {
        let Some(topic) = self.topic_of(group) else { return Ok(vec![None; partitions.len()]) };
        let about = |partition: &u32| Some(PartitionId::new(topic, *partition));
        let mut places = self.broker.places_of(partitions.iter().filter_map(about));
        self.are_current(places.iter().copied()).await?;
        self.follow(&mut places, |at| PartitionId::new(topic, partitions[at])).await?;
        let shards = self.broker.shards_with_rows();
        let parts = shards.iter().map(|shard| {
            let has_rows = shard.has_rows();
            has_rows.then(|| GroupSnapshot::find(&shard.shard.rows(), group))
        });
        let parts: Vec<Option<Option<GroupSnapshot>>> = parts.collect();
        let progress_in = |(partition, place): (&u32, &usize)| {
            parts[*place].as_ref()?.as_ref()?.progress(*partition)
        };
        let mut found: Vec<_> = partitions.iter().zip(&places).map(progress_in).collect();
        let of_others = (0..parts.len()).filter(|place| parts[*place].is_none());
        let queries = of_others.map(async |place| {
            let there = (0..places.len()).filter(|at| places[*at] == place);
            let there: Vec<usize> = there.collect();
            let indexes: Vec<u32> = there.iter().map(|at| partitions[*at]).collect();
            let reply = self.progress_elsewhere(&shards[place], group, &indexes).await?;
            Ok::<_, Unavailable>(there.into_iter().zip(reply).collect::<Vec<_>>())
        });
        for (at, progress) in try_join_all(queries).await?.into_iter().flatten() {
            found[at] = progress;
        }
        Ok(found)
    }

    async fn progress_elsewhere(
        &self,
        shard: &LocalShard,
        group: LeaseGroupId,
        partitions: &[u32],
    ) -> Result<Vec<Option<LeaseProgress>>, Unavailable> {
        let mut found = Vec::with_capacity(partitions.len());
        for some in partitions.chunks(ASKED_AT_ONCE_MAX) {
            let part = |reply| match reply {
                ShardQueryReply::LeaseProgress(reply) if reply.len() == some.len() => Some(reply),
                _ => None,
            };
            let query = ShardQuery::LeaseProgress { group, partitions: some.to_vec() };
            found.extend(self.broker.query_leader_for(shard, &query, part).await?);
        }
        Ok(found)
    }

    /// Returns the offset below which a group has settled everything, for each group and partition.
    #[tasks::boxed]
    pub async fn lease_floors(
        &self,
        places: &[(LeaseGroupId, u32)],
    ) -> Result<Vec<Option<Offset>>, Unavailable> {
        // Before the shards are looked up, which locks the catalog, too.
        let topics: HashMap<LeaseGroupId, Option<TopicId>> =
            places.iter().map(|(group, _)| (*group, self.topic_of(*group))).collect();
        let about = |(group, partition): &(LeaseGroupId, u32)| {
            Some(PartitionId::new((*topics.get(group)?)?, *partition))
        };
        let floor = |_: &LocalShard, rows: &Rows, &(group, partition): &(LeaseGroupId, u32)| {
            Some(rows.progress(group, partition)?.floor())
        };
        let elsewhere = RemoteQuery {
            query: ShardQuery::LeaseFloors,
            reply: |reply| match reply {
                ShardQueryReply::LeaseFloors(floors) => Some(floors),
                _ => None,
            },
        };
        self.query(places, about, floor, elsewhere).await
    }

    /// Returns which of these records of a partition are settled by a group, or not part of it.
    #[tasks::boxed]
    pub(crate) async fn are_settled(
        &self,
        group: LeaseGroupId,
        partition: PartitionId,
        offsets: Vec<Offset>,
    ) -> Result<Vec<bool>, Unavailable> {
        let shard = self.broker.shard_of(partition);
        let index = partition.index;
        self.is_current(shard).await?;
        if shard.has_rows() {
            let rows = shard.shard.rows();
            let progress = rows.progress(group, index);
            let is = |at: &Offset| progress.is_none_or(|progress| progress.is_settled(*at));
            return Ok(offsets.iter().map(is).collect());
        }
        let mut settled = Vec::with_capacity(offsets.len());
        for offsets in offsets.chunks(ASKED_AT_ONCE_MAX) {
            let part = |reply| match reply {
                ShardQueryReply::Settled(reply) if reply.len() == offsets.len() => Some(reply),
                _ => None,
            };
            let offsets = offsets.to_vec();
            let query = ShardQuery::Settled { group, partition: index, offsets };
            settled.extend(self.broker.query_leader_for(shard, &query, part).await?);
        }
        Ok(settled)
    }

    /// Moves a group forwards or back, per shard in all named partitions or in none: everything below is settled,
    /// everything else unsettled, and attempts are reset.
    pub async fn seek_lease_group(
        &self,
        group: LeaseGroupId,
        starts: Vec<(u32, Offset)>,
    ) -> Result<(), ExecuteError> {
        let unknown = ExecuteError::Refused(Refusal::UnknownLeaseGroup { group });
        let topic = self.topic_of(group).ok_or(unknown)?;
        let partitions = starts.iter().map(|(index, _)| PartitionId::new(topic, *index));
        let places = self.broker.places_of(partitions);
        for (place, shard) in self.broker.shards_with_rows().iter().enumerate() {
            let here = starts.iter().zip(&places).filter(|(_, at)| **at == place);
            let starts: Vec<_> = here.map(|(start, _)| *start).collect();
            if !starts.is_empty() {
                let seek = Command::SeekLeaseGroup { group, starts };
                self.broker.execute_in(shard, seek).await?;
            }
        }
        Ok(())
    }

    fn topic_of(self, group: LeaseGroupId) -> Option<TopicId> {
        self.broker.catalog().lease_group(group).map(|group| group.topic())
    }
}
