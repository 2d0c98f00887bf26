//! A lease group: consumers of one topic who settle its records one by one. Here is what must
//! outlive the leader: how far the group has come, and what is configured. Who holds a lease is
//! the leader's volatile state and no part of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use base::limits::{LEASE_GROUP_PARTITIONS_MAX, LEASE_GROUPS_MAX};
use base::{HashMap, LeaseGroupId, MAIN_LEASE_GROUP, Offset, SharedMap, SharedRows, TopicId};

use crate::config::{LeaseGroupConfig, Overrides, SharedConfigs};
use crate::outcome::Refusal;
use crate::progress::Progress;

#[derive(Clone, PartialEq, Debug)]
pub struct LeaseGroup {
    pub id: LeaseGroupId,
    pub topic: TopicId,
    /// Unique in its topic.
    pub name: Arc<str>,
    /// What holds: the group's own values, then the defaults. Shared by the groups that have the
    /// same values of their own, as those are.
    pub config: Arc<LeaseGroupConfig>,
    /// The group's own values, as they were given.
    pub overrides: Arc<Overrides>,
    /// One for each partition of the topic.
    pub progress: SharedRows<Progress>,
    /// Nothing is delivered.
    pub paused: bool,
    pub created_ms: i64,
}

impl LeaseGroup {
    pub fn progress(&self, partition: u32) -> Option<&Progress> {
        self.progress.get(partition as usize)
    }
}

/// Every lease group of a shard, by number, and by topic and name.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct LeaseGroups {
    pub(crate) by_id: SharedMap<LeaseGroupId, Arc<LeaseGroup>>,
    by_topic: HashMap<TopicId, OfTopic>,
    /// Those of one name are one share group to Kafka.
    by_name: BTreeMap<Arc<str>, BTreeSet<LeaseGroupId>>,
    pub(crate) next: u32,
    /// Of all groups together.
    partitions: u64,
    pub(crate) configs: SharedConfigs<LeaseGroupConfig>,
}

/// The groups of a topic, sorted by name. Most topics have one.
#[derive(Clone, PartialEq, Debug)]
enum OfTopic {
    One(LeaseGroupId),
    Many(Box<[LeaseGroupId]>),
}

// Every queue has one.
const _: () = assert!(size_of::<OfTopic>() <= 16);

impl OfTopic {
    fn as_slice(&self) -> &[LeaseGroupId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

/// What nearly every group is named.
static MAIN: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(MAIN_LEASE_GROUP));

pub(crate) fn shared_name(name: &str) -> Arc<str> {
    if name == MAIN_LEASE_GROUP { Arc::clone(&MAIN) } else { Arc::from(name) }
}

impl LeaseGroups {
    pub(crate) fn get(&self, group: LeaseGroupId) -> Option<&LeaseGroup> {
        self.by_id.get(&group).map(Arc::as_ref)
    }

    pub(crate) fn shared(&self, group: LeaseGroupId) -> Option<Arc<LeaseGroup>> {
        self.by_id.get(&group).map(Arc::clone)
    }

    pub(crate) fn get_mut(&mut self, group: LeaseGroupId) -> Result<&mut LeaseGroup, Refusal> {
        let found = self.by_id.get_mut(&group).map(Arc::make_mut);
        found.ok_or(Refusal::UnknownLeaseGroup { group })
    }

    pub(crate) fn named(&self, topic: TopicId, name: &str) -> Option<&LeaseGroup> {
        let at = self.place(topic, name).ok()?;
        self.get(self.ids_of(topic)[at])
    }

    /// By number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LeaseGroup> {
        self.by_id.values().map(Arc::as_ref)
    }

    /// Of this name, by number.
    pub(crate) fn of_name(&self, name: &str) -> impl Iterator<Item = &LeaseGroup> {
        let ids = self.by_name.get(name).into_iter().flatten();
        ids.filter_map(|id| self.get(*id))
    }

    /// Names after this one, sorted.
    pub(crate) fn names_after(&self, name: &str) -> impl Iterator<Item = &str> {
        let after = (Bound::Excluded(name), Bound::Unbounded);
        self.by_name.range::<str, _>(after).map(|(name, _)| &**name)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Numbers of a topic's groups, by name.
    pub(crate) fn ids_of(&self, topic: TopicId) -> &[LeaseGroupId] {
        self.by_topic.get(&topic).map_or(&[], OfTopic::as_slice)
    }

    /// Where the topic's group of this name is, or would be.
    fn place(&self, topic: TopicId, name: &str) -> Result<usize, usize> {
        self.ids_of(topic).binary_search_by(|id| (*self.by_id[id].name).cmp(name))
    }

    /// Whether one more group with so many partitions may be made.
    pub(crate) fn check_room(&self, partitions: u32) -> Result<(), Refusal> {
        if self.next == u32::MAX {
            return Err(Refusal::LeaseGroupIdsExhausted);
        }
        if self.len() >= LEASE_GROUPS_MAX {
            return Err(Refusal::TooManyLeaseGroups { at_most: LEASE_GROUPS_MAX });
        }
        self.check_partitions(partitions.into())
    }

    /// Whether so many more partitions of groups may be.
    pub(crate) fn check_partitions(&self, requested: u64) -> Result<(), Refusal> {
        let (held, at_most) = (self.partitions, LEASE_GROUP_PARTITIONS_MAX);
        if held.saturating_add(requested) > at_most {
            return Err(Refusal::TooManyLeaseGroupPartitions { requested, held, at_most });
        }
        Ok(())
    }

    /// Adds a group whose number and name are known to be free.
    pub(crate) fn insert(&mut self, group: LeaseGroup) {
        if let Err(at) = self.place(group.topic, &group.name) {
            let mut ids = self.ids_of(group.topic).to_vec();
            ids.insert(at, group.id);
            self.set_ids_of(group.topic, ids);
        }
        self.by_name.entry(Arc::clone(&group.name)).or_default().insert(group.id);
        self.partitions += group.progress.len() as u64;
        self.by_id.insert(group.id, Arc::new(group));
    }

    pub(crate) fn remove(&mut self, group: LeaseGroupId) -> Result<Arc<LeaseGroup>, Refusal> {
        let removed = self.by_id.remove(&group).ok_or(Refusal::UnknownLeaseGroup { group })?;
        let ids = self.ids_of(removed.topic).iter().copied().filter(|id| *id != group).collect();
        self.set_ids_of(removed.topic, ids);
        self.removed(&removed);
        Ok(removed)
    }

    fn removed(&mut self, group: &LeaseGroup) {
        self.partitions -= group.progress.len() as u64;
        if let Some(ids) = self.by_name.get_mut(&group.name) {
            ids.remove(&group.id);
            if ids.is_empty() {
                self.by_name.remove(&group.name);
            }
        }
    }

    fn set_ids_of(&mut self, topic: TopicId, ids: Vec<LeaseGroupId>) {
        match ids[..] {
            [] => self.by_topic.remove(&topic),
            [only] => self.by_topic.insert(topic, OfTopic::One(only)),
            _ => self.by_topic.insert(topic, OfTopic::Many(ids.into())),
        };
    }

    /// Removes a topic's groups; by name.
    pub(crate) fn remove_of(&mut self, topic: TopicId) -> Vec<LeaseGroupId> {
        let ids = self.ids_of(topic).to_vec();
        self.by_topic.remove(&topic);
        for id in &ids {
            if let Some(removed) = self.by_id.remove(id) {
                self.removed(&removed);
            }
        }
        ids
    }

    /// Gives each group of a topic progress in partitions up to `total`.
    pub(crate) fn grow(&mut self, topic: TopicId, total: u32) {
        for id in self.by_topic.get(&topic).map_or(&[][..], OfTopic::as_slice) {
            if let Some(group) = self.by_id.get_mut(id) {
                let group = Arc::make_mut(group);
                let held = group.progress.len();
                group.progress.grow(total as usize, &Progress::default());
                self.partitions += (group.progress.len() - held) as u64;
            }
        }
    }

    /// The lowest floor of a topic's groups in a partition; `None` if the topic has no group.
    pub(crate) fn lowest_floor(&self, topic: TopicId, partition: u32) -> Option<Offset> {
        let progress = self.progress_of(topic, partition);
        progress.map(Progress::floor).min()
    }

    /// The longest range around `offset` that every group of a topic has settled; or else the next
    /// offset at which that may be so.
    pub(crate) fn settled_by_all(
        &self,
        topic: TopicId,
        partition: u32,
        offset: Offset,
    ) -> Result<(Offset, Offset), Option<Offset>> {
        let (mut from, mut to) = (0, Offset::MAX);
        for progress in self.progress_of(topic, partition) {
            match progress.settled_around(offset) {
                Some((begin, end)) => (from, to) = (from.max(begin), to.min(end)),
                None => return Err(progress.next_settled(offset)),
            }
        }
        Ok((from, to))
    }

    fn progress_of(&self, topic: TopicId, partition: u32) -> impl Iterator<Item = &Progress> {
        let groups = self.ids_of(topic).iter().filter_map(|&id| self.get(id));
        groups.filter_map(move |group| group.progress(partition))
    }
}
