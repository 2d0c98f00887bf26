//! Facts about a group or a partition, read from a shard's rows.

use std::ops::Bound;
use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId};
use machine::rows::lease_group::GroupRows;
use machine::rows::moves::Phase;
use machine::rows::topic::TopicRows;
use machine::{CommittedOffset, Group, Partition, Rows};
use serde::{Deserialize, Serialize};

use crate::bounds::LogRange;

/// All facts about a group with committed offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupFacts {
    pub offsets: u64,
    pub ages: OffsetAges,
}

impl GroupFacts {
    pub fn of(group: &Group) -> Self {
        Self { offsets: group.offsets.len() as u64, ages: OffsetAges::of(group) }
    }
}

/// Facts of a shard about a partition that moves from it, or to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MoveFacts {
    pub bounds: Option<LogRange>,
    /// Phase of the move in its source.
    pub phase: Option<Phase>,
    /// Progress of the move in its target.
    pub next: Option<Offset>,
}

impl MoveFacts {
    pub fn of(rows: &Rows, partition: PartitionId, id: u64) -> Self {
        let leaving = rows.topic(partition.topic).and_then(|topic| topic.leaving(partition.index));
        let import = rows.import(partition).filter(|import| import.id == id);
        Self {
            bounds: rows.partition(partition).map(LogRange::of),
            phase: leaving.filter(|leaving| leaving.id == id).map(|leaving| leaving.phase),
            next: import.map(|import| import.next),
        }
    }
}

/// Ages of a group's offsets. Both times are ms since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OffsetAges {
    /// Commit time of the oldest offset; `None` without offsets.
    pub oldest_commit_ms: Option<i64>,
    /// Earliest expiry of an offset that was committed with its own retention time.
    pub next_expire_ms: Option<i64>,
}

impl OffsetAges {
    pub fn of(group: &Group) -> Self {
        let offsets = || group.offsets.values();
        Self {
            oldest_commit_ms: offsets().map(|committed| committed.commit_ms).min(),
            next_expire_ms: offsets().filter_map(|committed| committed.expire_ms).min(),
        }
    }
}

/// Progress of a lease group in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseProgress {
    /// Everything below is settled or deleted; the record at the floor is not settled, or does not exist yet.
    pub floor: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
    /// Records above the floor that are settled.
    pub settled_above: u64,
    /// Records that were delivered and are not settled.
    pub retried: u64,
}

/// A snapshot of a lease group's rows in a shard. It is shared, so that reading many partitions does not hold the
/// state's lock.
#[derive(Debug)]
pub struct GroupSnapshot {
    group: Arc<GroupRows>,
    topic: Arc<TopicRows>,
}

impl GroupSnapshot {
    pub fn find(rows: &Rows, group: LeaseGroupId) -> Option<Self> {
        let group = rows.shared_lease_group(group)?;
        let topic = rows.shared_topic(group.topic())?;
        Some(Self { group, topic })
    }

    pub fn progress(&self, partition: u32) -> Option<LeaseProgress> {
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

/// Returns a group's commits in partitions after this one.
pub fn after(
    group: &Group,
    partition: Option<PartitionId>,
) -> impl Iterator<Item = (&PartitionId, &CommittedOffset)> {
    let from = partition.map_or(Bound::Unbounded, Bound::Excluded);
    group.offsets.range((from, Bound::Unbounded))
}

pub fn epoch_at(partition: &Partition, offset: Offset) -> i32 {
    let mut epochs = partition.epochs().iter().rev();
    epochs.find(|epoch| epoch.start <= offset).map_or(-1, |epoch| epoch.epoch)
}
