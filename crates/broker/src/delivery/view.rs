//! Lease groups by what is durable of them.

use std::sync::Arc;

use base::{LeaseGroupId, PartitionId, Stripe};
use dispatch::PartitionStart;
use machine::rows::lease_group::GroupRows;
use machine::rows::topic::TopicRows;
use machine::{Catalog, LeaseGroup, Partition, Progress, Topic};

use crate::shard::Shard;

/// Where a partition of the group stands by what is durable.
pub(super) fn start(progress: &Progress, partition: &Partition) -> PartitionStart {
    PartitionStart {
        floor: progress.floor(),
        settled: progress.settled_above(),
        attempts: progress.attempts().collect(),
        log_start: partition.log_start(),
        end: partition.next_offset(),
    }
}

/// Records of a group that are not settled, by what is durable.
pub(crate) fn depth(group: &GroupRows, topic: &TopicRows) -> u64 {
    let partitions = group.progress().zip(topic.partitions());
    let unsettled = partitions.map(|(progress, (_, partition))| {
        let above: u64 = progress.settled().map(|(from, to)| to - from).sum();
        partition.next_offset().saturating_sub(progress.floor()).saturating_sub(above)
    });
    unsettled.sum()
}

/// A group and its topic as they are at one time. It is kept while a look takes long: the machine is not
/// locked meanwhile.
pub(super) struct GroupView {
    pub(super) group: Arc<LeaseGroup>,
    pub(super) topic: Arc<Topic>,
    pub(super) stripe: Stripe,
    /// `None` while the shard has none: the topic grew, or is new, and the shard has not taken that over.
    rows: Option<(Arc<GroupRows>, Arc<TopicRows>)>,
}

impl GroupView {
    pub(super) fn of(shard: &Shard, id: LeaseGroupId) -> Option<Self> {
        let shard_id = shard.role().shard();
        shard.read(|state| {
            let group = state.catalog.shared_lease_group(id)?;
            let topic = state.catalog.shared_topic(group.topic)?;
            let rows = state.rows.shared_lease_group(id).zip(state.rows.shared_topic(topic.id));
            let of_topic = || topic.placement.stripe_of(shard_id);
            let stripe = rows.as_ref().map(|(_, rows)| rows.stripe()).or_else(of_topic)?;
            Some(Self { group, topic, stripe, rows })
        })
    }

    /// How many of its partitions are here.
    pub(super) fn row_count(&self) -> usize {
        self.rows.as_ref().map_or(0, |(_, rows)| rows.row_count())
    }

    /// Its partitions here, with how far it is in each.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition, &Progress)> {
        self.rows.iter().flat_map(|(group, topic)| {
            let both = topic.partitions().zip(group.progress());
            both.map(|((id, partition), progress)| (id, partition, progress))
        })
    }

    /// Where a partition of the group stands by what is durable.
    pub(super) fn start(&self, index: u32) -> Option<PartitionStart> {
        let (group, topic) = self.rows.as_ref()?;
        Some(start(group.row(self.stripe.row(index)?)?, topic.partition(index)?))
    }
}

/// The group and its topic, if both are there.
pub(super) fn find(catalog: &Catalog, id: LeaseGroupId) -> Option<(&LeaseGroup, &Topic)> {
    let group = catalog.lease_group(id)?;
    Some((group, catalog.topic(group.topic)?))
}
