//! How far lease groups have come.

use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::rows::lease_group::GroupRows;
use machine::rows::topic::TopicRows;
use machine::{Command, Refusal, Rows};

use super::ShardClient;
use crate::error::{ExecuteError, Unavailable};

/// A lease group in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseProgress {
    /// Everything below is settled or deleted; the record at the floor is not settled, or not there
    /// yet.
    pub floor: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
    /// Records above the floor that are settled.
    pub settled_above: u64,
    /// Records that are not settled and were delivered.
    pub retried: u64,
}

/// A lease group in a shard as it was at one time. It is shared, so that a look at many partitions does
/// not hold the state's lock.
struct Part {
    group: Arc<GroupRows>,
    topic: Arc<TopicRows>,
}

impl Part {
    fn find(rows: &Rows, group: LeaseGroupId) -> Option<Self> {
        let group = rows.shared_lease_group(group)?;
        let topic = rows.shared_topic(group.topic())?;
        Some(Self { group, topic })
    }

    fn progress(&self, partition: u32) -> Option<LeaseProgress> {
        let progress = self.group.row(self.topic.stripe().row(partition)?)?;
        let partition = self.topic.partition(partition)?;
        Some(LeaseProgress {
            floor: progress.floor().max(partition.log_start()),
            end: partition.next_offset(),
            settled_above: progress.settled().map(|(from, to)| to - from).sum(),
            retried: progress.attempts().count() as u64,
        })
    }
}

impl ShardClient<'_> {
    /// How far a group is in each of these partitions of its topic.
    pub async fn lease_progress(
        &self,
        group: LeaseGroupId,
        partitions: &[u32],
    ) -> Result<Vec<Option<LeaseProgress>>, Unavailable> {
        let Some(topic) = self.topic_of(group) else { return Ok(vec![None; partitions.len()]) };
        let about = |partition: &u32| Some(PartitionId::new(topic, *partition));
        let places = self.broker.places_of(partitions.iter().filter_map(about));
        let shards = self.broker.shards_with_rows().iter();
        let parts: Vec<_> = shards.map(|shard| Part::find(&shard.shard.rows(), group)).collect();
        let progress_in =
            |(partition, place): (&u32, usize)| parts[place].as_ref()?.progress(*partition);
        Ok(partitions.iter().zip(places).map(progress_in).collect())
    }

    /// The offset below which a group has settled everything, for each group and partition.
    pub async fn lease_floors(
        &self,
        places: &[(LeaseGroupId, u32)],
    ) -> Result<Vec<Option<Offset>>, Unavailable> {
        let about = |&(group, partition): &(LeaseGroupId, u32)| {
            Some(PartitionId::new(self.topic_of(group)?, partition))
        };
        let floor = |rows: &Rows, &(group, partition): &(LeaseGroupId, u32)| {
            Some(rows.progress(group, partition)?.floor())
        };
        Ok(self.ask(places, about, floor))
    }

    /// Moves a group forwards or back, in all of a shard's partitions that are named or in none of them:
    /// everything below is settled, nothing else is, and no attempt is counted.
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
