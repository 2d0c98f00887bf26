//! Lease groups by what is durable of them.

use std::sync::Arc;

use base::LeaseGroupId;
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
    pub(super) progress: Arc<GroupRows>,
    pub(super) rows: Arc<TopicRows>,
}

impl GroupView {
    pub(super) fn of(shard: &Shard, id: LeaseGroupId) -> Option<Self> {
        shard.read(|state| {
            let group = state.catalog.shared_lease_group(id)?;
            let topic = state.catalog.shared_topic(group.topic)?;
            let progress = state.rows.shared_lease_group(id)?;
            let rows = state.rows.shared_topic(group.topic)?;
            Some(Self { group, topic, progress, rows })
        })
    }

    /// Where a partition of the group stands by what is durable.
    pub(super) fn start(&self, index: u32) -> Option<PartitionStart> {
        let row = self.rows.stripe().row(index)?;
        Some(start(self.progress.row(row)?, self.rows.partition(index)?))
    }
}

/// The group and its topic, if both are there.
pub(super) fn find(catalog: &Catalog, id: LeaseGroupId) -> Option<(&LeaseGroup, &Topic)> {
    let group = catalog.lease_group(id)?;
    Some((group, catalog.topic(group.topic)?))
}
