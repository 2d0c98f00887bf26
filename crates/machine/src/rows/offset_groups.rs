//! All groups with committed offsets: bounded together, and indexed by topic.
//!
//! Any client may commit under any name, so names and offsets could fill a node. They are weighed,
//! and commits beyond the limit are refused; existing offsets may always be committed again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::limits::OFFSET_GROUPS_BYTES_MAX;
use base::{PartitionId, SharedMap, TopicId};

use super::group::{CommittedOffset, Group};
use crate::command::CommitOffset;
use crate::outcome::Refusal;

/// Weight of a group besides its name, and of an offset besides its metadata: its rows in the maps.
pub(super) const GROUP_BYTES: u64 = 160;
const OFFSET_BYTES: u64 = 96;

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct OffsetGroups {
    pub(crate) groups: SharedMap<Arc<str>, Arc<Group>>,
    /// Groups with offsets in a topic, so that deleting a topic removes all its offsets without
    /// scanning other groups.
    by_topic: BTreeMap<TopicId, BTreeSet<Arc<str>>>,
    bytes: u64,
}

fn group_bytes(name: &str) -> u64 {
    GROUP_BYTES + name.len() as u64
}

pub(super) fn offset_bytes(metadata: &str) -> u64 {
    OFFSET_BYTES + metadata.len() as u64
}

fn bytes_of(group: &Group) -> u64 {
    group.offsets.values().map(|offset| offset_bytes(&offset.metadata)).sum()
}

impl OffsetGroups {
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Group> {
        self.groups.get(name).map(Arc::as_ref)
    }

    /// Sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, &**group))
    }

    /// Sorted by name, from the first after `name`.
    pub(crate) fn after(&self, name: &str) -> impl Iterator<Item = (&str, &Group)> {
        let range = (Bound::Excluded(name), Bound::Unbounded);
        self.groups.range::<str, _>(range).map(|(name, group)| (&**name, &**group))
    }

    /// Whether any group has an offset in this topic.
    pub(crate) fn knows(&self, topic: TopicId) -> bool {
        self.by_topic.contains_key(&topic)
    }

    /// Weight of all groups.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `reserved`: weight of offsets that are committed later, by ends of transactions.
    pub(crate) fn commit(
        &mut self,
        name: &str,
        commit: &CommitOffset,
        reserved: u64,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let at_most = OFFSET_GROUPS_BYTES_MAX.saturating_sub(reserved);
        self.commit_within(at_most, name, commit, now_ms)
    }

    /// Commits an offset whose weight was reserved.
    pub(crate) fn commit_reserved(&mut self, name: &str, commit: &CommitOffset, now_ms: i64) {
        let committed = self.commit_within(u64::MAX, name, commit, now_ms);
        debug_assert!(committed.is_ok(), "nothing is beyond that limit");
    }

    fn commit_within(
        &mut self,
        at_most: u64,
        name: &str,
        commit: &CommitOffset,
        now_ms: i64,
    ) -> Result<(), Refusal> {
        let group = self.groups.get(name);
        let former = group.and_then(|group| group.offset(commit.partition));
        let former_bytes = former.map_or(0, |former| offset_bytes(&former.metadata));
        let mut more = offset_bytes(&commit.metadata);
        if group.is_none() {
            more += group_bytes(name);
        }
        let bytes = self.bytes - former_bytes + more;
        if more > former_bytes && bytes > at_most {
            let (groups, bytes) = (self.groups.len(), self.bytes);
            return Err(Refusal::TooManyOffsets { groups, bytes });
        }
        self.bytes = bytes;
        if let Some(group) = self.groups.get_mut(name)
            && former_bytes > 0
        {
            Arc::make_mut(group).commit(commit, now_ms);
            return Ok(());
        }
        let name: Arc<str> = match self.groups.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let topic = commit.partition.topic;
        self.by_topic.entry(topic).or_default().insert(Arc::clone(&name));
        Arc::make_mut(self.groups.get_or_insert_with(name, Arc::default)).commit(commit, now_ms);
        Ok(())
    }

    /// Adds a stored group.
    pub(crate) fn insert(&mut self, name: &str, offsets: SharedMap<PartitionId, CommittedOffset>) {
        let name: Arc<str> = Arc::from(name);
        let group = Group { offsets };
        self.bytes += group_bytes(&name) + bytes_of(&group);
        for partition in group.offsets.keys() {
            self.by_topic.entry(partition.topic).or_default().insert(Arc::clone(&name));
        }
        self.groups.insert(name, Arc::new(group));
    }

    /// False if there is no such group.
    pub(crate) fn delete_offsets(&mut self, name: &str, partitions: &[PartitionId]) -> bool {
        self.change(name, |group| {
            partitions.iter().for_each(|partition| drop(group.offsets.remove(partition)));
        })
        .is_some()
    }

    /// See [`Group::expire`].
    pub(crate) fn expire(&mut self, name: &str, now_ms: i64, before_ms: i64) -> u64 {
        self.change(name, |group| group.expire(now_ms, before_ms)).unwrap_or(0)
    }

    /// False if there is no such group.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.change(name, |group| group.offsets.clear()).is_some()
    }

    pub(crate) fn forget_topic(&mut self, topic: TopicId) {
        for name in self.by_topic.get(&topic).cloned().unwrap_or_default() {
            self.change(&name, |group| group.forget_topic(topic));
        }
    }

    /// Removes offsets from a group. A group without offsets is removed.
    fn change<T>(&mut self, name: &str, change: impl FnOnce(&mut Group) -> T) -> Option<T> {
        let (name, group) = self.groups.get_key_value(name)?;
        let name = Arc::clone(name);
        let topics: BTreeSet<TopicId> = group.offsets.keys().map(|it| it.topic).collect();
        let group = Arc::make_mut(self.groups.get_mut(&name)?);
        self.bytes -= bytes_of(group);
        let changed = change(group);
        self.bytes += bytes_of(group);
        let left: BTreeSet<TopicId> = group.offsets.keys().map(|it| it.topic).collect();
        if left.is_empty() {
            self.bytes -= group_bytes(&name);
            self.groups.remove(&name);
        }
        for topic in topics.difference(&left) {
            if let Some(groups) = self.by_topic.get_mut(topic) {
                groups.remove(&name);
                if groups.is_empty() {
                    self.by_topic.remove(topic);
                }
            }
        }
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(topic: u32, partition: u32, metadata: &str) -> CommitOffset {
        CommitOffset {
            partition: PartitionId::new(TopicId(topic), partition),
            offset: 7,
            leader_epoch: -1,
            metadata: metadata.to_owned(),
            expire_ms: None,
        }
    }

    /// Recomputes `bytes` and `by_topic` from the groups alone.
    fn is_consistent(groups: &OffsetGroups) -> bool {
        let mut again = OffsetGroups::default();
        for (name, group) in groups.iter() {
            again.insert(name, group.offsets.clone());
        }
        again == *groups
    }

    #[test]
    fn weight_and_topics_follow_every_change() {
        let mut groups = OffsetGroups::default();
        for (name, topic, metadata) in
            [("a", 1, ""), ("a", 2, "m"), ("b", 1, "longer"), ("a", 1, "again"), ("b", 1, "")]
        {
            groups.commit(name, &commit(topic, 0, metadata), 0, 100).expect("there is room");
            assert!(is_consistent(&groups));
        }
        assert!(groups.delete_offsets("a", &[PartitionId::new(TopicId(2), 0)]));
        assert!(is_consistent(&groups));
        groups.forget_topic(TopicId(1));
        assert_eq!(groups, OffsetGroups::default(), "nothing is left of either group");
        groups.commit("c", &commit(3, 0, ""), 0, 100).expect("there is room");
        assert_eq!(groups.expire("c", 200, 150), 1);
        assert!(!groups.remove("c") && !groups.delete_offsets("c", &[]));
        assert_eq!(groups, OffsetGroups::default());
    }

    #[test]
    fn group_beyond_the_limit_is_refused_and_existing_groups_still_commit() {
        let metadata = "x".repeat(crate::limits::OFFSET_METADATA_BYTES_MAX);
        let mut groups = OffsetGroups::default();
        let mut number = 0;
        let refusal = loop {
            match groups.commit(&format!("group {number}"), &commit(1, 0, &metadata), 0, 0) {
                Ok(()) => number += 1,
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(refusal, Refusal::TooManyOffsets { groups, .. } if groups == number));
        assert!(groups.bytes <= OFFSET_GROUPS_BYTES_MAX && is_consistent(&groups));
        // Existing offsets may be committed again, as long as they do not grow.
        assert_eq!(groups.commit("group 0", &commit(1, 0, &metadata), 0, 1), Ok(()));
        assert_eq!(groups.commit("group 0", &commit(1, 0, ""), 0, 1), Ok(()));
        assert!(groups.remove("group 1"));
        assert_eq!(groups.commit("new", &commit(1, 0, &metadata), 0, 1), Ok(()));
    }
}
