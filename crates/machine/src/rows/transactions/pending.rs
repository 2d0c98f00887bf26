//! Offsets that a transaction commits with its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{PartitionId, TopicId};

use crate::command::CommitOffset;
use crate::rows::group::validate_commit;
use crate::rows::offset_groups::{GROUP_BYTES, offset_bytes};

/// Pending offsets of one producer, by group and partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingOffsets {
    by_group: BTreeMap<Arc<str>, BTreeMap<PartitionId, CommitOffset>>,
}

/// Producers with pending offsets of each group, and the weight of all of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct PendingByGroup {
    producers: BTreeMap<Arc<str>, BTreeSet<i64>>,
    bytes: u64,
}

fn group_bytes(name: &str) -> u64 {
    GROUP_BYTES + name.len() as u64
}

impl PendingOffsets {
    pub fn is_empty(&self) -> bool {
        self.by_group.is_empty()
    }

    /// Groups with their offsets, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, impl Iterator<Item = &CommitOffset>)> {
        self.by_group.iter().map(|(group, offsets)| (group, offsets.values()))
    }

    pub(crate) fn has(&self, group: &str, partition: PartitionId) -> bool {
        self.by_group.get(group).is_some_and(|offsets| offsets.contains_key(&partition))
    }

    pub(super) fn knows(&self, topic: TopicId) -> bool {
        self.by_group.values().flat_map(BTreeMap::keys).any(|partition| partition.topic == topic)
    }

    /// Bytes that one more offset takes.
    pub(super) fn growth(&self, group: &str, commit: &CommitOffset) -> u64 {
        let known = self.by_group.get(group);
        let of_group = if known.is_none() { group_bytes(group) } else { 0 };
        let former = known.and_then(|offsets| offsets.get(&commit.partition));
        let former = former.map_or(0, |former| offset_bytes(&former.metadata));
        (of_group + offset_bytes(&commit.metadata)).saturating_sub(former)
    }

    /// Adds an offset, or replaces it. Returns the change of the weight.
    pub(super) fn put(&mut self, group: &str, commit: &CommitOffset) -> i64 {
        let mut more = offset_bytes(&commit.metadata) as i64;
        let offsets = match self.by_group.get_mut(group) {
            Some(offsets) => offsets,
            None => {
                more += group_bytes(group) as i64;
                self.by_group.entry(Arc::from(group)).or_default()
            }
        };
        let former = offsets.insert(commit.partition, commit.clone());
        more - former.map_or(0, |former| offset_bytes(&former.metadata) as i64)
    }

    fn bytes_of(&self, group: &str) -> u64 {
        let Some(offsets) = self.by_group.get(group) else { return 0 };
        let of_offsets = offsets.values().map(|it| offset_bytes(&it.metadata)).sum::<u64>();
        group_bytes(group) + of_offsets
    }

    fn bytes(&self) -> u64 {
        self.by_group.keys().map(|group| self.bytes_of(group)).sum()
    }

    pub(super) fn forget_topic(&mut self, topic: TopicId) {
        for offsets in self.by_group.values_mut() {
            offsets.retain(|partition, _| partition.topic != topic);
        }
        self.by_group.retain(|_, offsets| !offsets.is_empty());
    }

    pub(super) fn forget_group(&mut self, group: &str) {
        self.by_group.remove(group);
    }

    pub(super) fn forget_offsets(
        &mut self,
        group: &str,
        partitions: impl Iterator<Item = PartitionId>,
    ) {
        let Some(offsets) = self.by_group.get_mut(group) else { return };
        partitions.for_each(|partition| drop(offsets.remove(&partition)));
        if offsets.is_empty() {
            self.by_group.remove(group);
        }
    }

    /// Adds a stored offset. False if there is one of this partition.
    pub(crate) fn restore(&mut self, group: &Arc<str>, commit: CommitOffset) -> bool {
        let offsets = self.by_group.entry(Arc::clone(group)).or_default();
        offsets.insert(commit.partition, commit).is_none()
    }

    pub(super) fn is_sound(&self) -> bool {
        self.by_group.iter().all(|(group, offsets)| {
            crate::group_name::validate_group_name(group).is_ok()
                && !offsets.is_empty()
                && offsets.values().all(|commit| validate_commit(commit).is_ok())
        })
    }
}

impl PendingByGroup {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn producers_of(&self, group: &str) -> impl Iterator<Item = i64> {
        self.producers.get(group).into_iter().flatten().copied()
    }

    pub(super) fn note(&mut self, producer: i64, group: &str, more: i64) {
        self.bytes = self.bytes.saturating_add_signed(more);
        match self.producers.get_mut(group) {
            Some(known) => known.insert(producer),
            None => self.producers.entry(Arc::from(group)).or_default().insert(producer),
        };
    }

    pub(super) fn add_all(&mut self, producer: i64, pending: &PendingOffsets) {
        self.bytes += pending.bytes();
        for group in pending.by_group.keys() {
            self.producers.entry(Arc::clone(group)).or_default().insert(producer);
        }
    }

    pub(super) fn remove_all(&mut self, producer: i64, pending: &PendingOffsets) {
        self.bytes -= pending.bytes();
        for group in pending.by_group.keys() {
            if let Some(known) = self.producers.get_mut(group) {
                known.remove(&producer);
                if known.is_empty() {
                    self.producers.remove(group);
                }
            }
        }
    }
}
