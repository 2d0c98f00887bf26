//! Lease groups by their durable state.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId, Stripe};
use dispatch::PartitionStart;
use machine::rows::lease_group::GroupRows;
use machine::rows::topic::TopicRows;
use machine::{Catalog, LeaseGroup, Partition, Progress, Topic};
use shard::Shard;

/// Records that drivers of earlier terms may have delivered, whose leases are lost: those that were in the log
/// when the term began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeenBefore {
    pub(crate) term: u64,
}

impl SeenBefore {
    /// The first offset that was appended in the term. `epoch_base`: difference between the partition's leader
    /// epochs and terms.
    pub(crate) fn below(self, partition: &Partition, epoch_base: i32) -> Offset {
        let epoch = i64::from(epoch_base).saturating_add_unsigned(self.term);
        let epochs = partition.epochs();
        let since = epochs.partition_point(|known| i64::from(known.epoch) < epoch);
        epochs.get(since).map_or(partition.next_offset(), |first| first.start)
    }
}

/// A partition's durable state in the group. Its records end at the stable end; a seek may have gone beyond that.
fn start(
    progress: &Progress,
    partition: &Partition,
    stable_end: Offset,
    seen_below: Offset,
) -> PartitionStart {
    PartitionStart {
        floor: progress.floor(),
        settled: progress.settled_above(),
        attempts: progress.attempts().collect(),
        seen_below,
        log_start: partition.log_start(),
        end: stable_end.max(progress.floor()),
    }
}

/// Whether all records that may have been delivered before are settled, in all groups.
pub(crate) fn earlier_deliveries_are_settled(shard: &Shard, seen: SeenBefore) -> bool {
    shard.read(|state| {
        state.catalog.lease_groups().all(|group| {
            let rows = state.rows.lease_group(group.id).zip(state.rows.topic(group.topic));
            rows.is_none_or(|(progress, topic)| {
                progress.progress().zip(topic.partitions()).all(|(progress, (id, partition))| {
                    progress.floor() >= seen.below(partition, state.rows.epoch_base(id))
                })
            })
        })
    })
}

/// Snapshot of a group and its topic. A long inspection uses it without locking the machine.
pub(crate) struct GroupView {
    pub(crate) group: Arc<LeaseGroup>,
    pub(crate) topic: Arc<Topic>,
    pub(crate) stripe: Stripe,
    /// `None` while the shard has none: the topic grew or is new, and the shard has not applied that yet.
    rows: Option<(Arc<GroupRows>, Arc<TopicRows>)>,
    /// First offset of the earliest open transaction of each partition that has one.
    first_open: BTreeMap<PartitionId, Offset>,
    /// With the difference between leader epochs and terms, for each partition here.
    seen: Option<(SeenBefore, Vec<i32>)>,
}

impl GroupView {
    pub(crate) fn of(shard: &Shard, id: LeaseGroupId) -> Option<Self> {
        let shard_id = shard.role().shard();
        shard.read(|state| {
            let group = state.catalog.shared_lease_group(id)?;
            let topic = state.catalog.shared_topic(group.topic)?;
            let rows = state.rows.shared_lease_group(id).zip(state.rows.shared_topic(topic.id));
            let of_topic = || topic.placement.stripe_of(shard_id);
            let stripe = rows.as_ref().map(|(_, rows)| rows.stripe()).or_else(of_topic)?;
            let first_open = state.rows.transactions().first_open_of(topic.id).collect();
            Some(Self { group, topic, stripe, rows, first_open, seen: None })
        })
    }

    /// Counts records that may have been delivered before this term as delivered once.
    pub(crate) fn seen_before(mut self, shard: &Shard, seen: Option<SeenBefore>) -> Self {
        if let (Some(seen), Some((_, topic))) = (seen, &self.rows) {
            let bases = shard.read(|state| {
                topic.partitions().map(|(id, _)| state.rows.epoch_base(id)).collect()
            });
            self.seen = Some((seen, bases));
        }
        self
    }

    /// Durable state of its partitions here.
    pub(crate) fn starts(&self) -> impl Iterator<Item = (PartitionId, PartitionStart)> {
        self.partitions().enumerate().map(|(row, (id, partition, progress))| {
            let below = |(seen, bases): &(SeenBefore, Vec<i32>)| {
                seen.below(partition, bases.get(row).copied().unwrap_or(0))
            };
            let seen_below = self.seen.as_ref().map_or(0, below);
            (id, start(progress, partition, self.stable_end(id, partition), seen_below))
        })
    }

    fn stable_end(&self, id: PartitionId, partition: &Partition) -> Offset {
        let end = partition.next_offset();
        self.first_open.get(&id).map_or(end, |first| end.min(*first))
    }

    /// Number of its partitions here.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.as_ref().map_or(0, |(_, rows)| rows.row_count())
    }

    /// Its partitions here, with the group's progress in each.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition, &Progress)> {
        self.rows.iter().flat_map(|(group, topic)| {
            let both = topic.partitions().zip(group.progress());
            both.map(|((id, partition), progress)| (id, partition, progress))
        })
    }

    /// Durable state of a partition in the group. No record counts as delivered before.
    pub(crate) fn start(&self, index: u32) -> Option<PartitionStart> {
        let (group, topic) = self.rows.as_ref()?;
        let partition = topic.partition(index)?;
        let stable_end = self.stable_end(PartitionId::new(self.topic.id, index), partition);
        Some(start(group.row(self.stripe.row(index)?)?, partition, stable_end, 0))
    }
}

/// The group and its topic, if both exist.
pub(crate) fn find(catalog: &Catalog, id: LeaseGroupId) -> Option<(&LeaseGroup, &Topic)> {
    let group = catalog.lease_group(id)?;
    Some((group, catalog.topic(group.topic)?))
}
