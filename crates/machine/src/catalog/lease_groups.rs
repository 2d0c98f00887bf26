//! Lease groups in the catalog: consumers of one topic that settle its records one by one. The
//! shards of the topic's partitions have their progress.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use crate::limits::{LEASE_GROUP_PARTITIONS_MAX, LEASE_GROUPS_MAX};
use base::{HashMap, LeaseGroupId, MAIN_LEASE_GROUP, Offset, SharedMap, TopicId};

use crate::config::{LeaseGroupConfig, Overrides, SharedConfigs};
use crate::group_ids::GroupIds;
use crate::outcome::Refusal;

#[derive(Clone, PartialEq, Debug)]
pub struct LeaseGroup {
    pub id: LeaseGroupId,
    pub topic: TopicId,
    /// Unique in its topic.
    pub name: Arc<str>,
    /// The effective configuration: the group's own values over the defaults. Groups with equal own
    /// values share it, and the values too.
    pub config: Arc<LeaseGroupConfig>,
    /// The group's own values, as given.
    pub overrides: Arc<Overrides>,
    /// Start offset in each partition, from the first on; a missing one is the partition's start.
    /// Only shards read it, once each: when they adopt the group.
    pub(crate) starts: Option<Arc<[Offset]>>,
    /// While paused, nothing is delivered.
    pub paused: bool,
    pub created_ms: i64,
}

/// Every lease group, by number, and by topic and name.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct LeaseGroups {
    pub(crate) by_id: SharedMap<LeaseGroupId, Arc<LeaseGroup>>,
    /// Ids of each topic's groups, sorted by name.
    by_topic: HashMap<TopicId, GroupIds>,
    /// Groups with one name are one share group for Kafka.
    by_name: BTreeMap<Arc<str>, BTreeSet<LeaseGroupId>>,
    pub(crate) next: u32,
    /// Partitions of all groups' topics together: the number of rows of progress.
    partitions: u64,
    pub(crate) configs: SharedConfigs<LeaseGroupConfig>,
}

/// The most common group name.
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

    /// Groups with this name, by number.
    pub(crate) fn with_name(&self, name: &str) -> impl Iterator<Item = &LeaseGroup> {
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
        self.by_topic.get(&topic).map_or(&[], GroupIds::as_slice)
    }

    /// The place of the topic's group with this name, or where to insert it.
    fn place(&self, topic: TopicId, name: &str) -> Result<usize, usize> {
        self.ids_of(topic).binary_search_by(|id| (*self.by_id[id].name).cmp(name))
    }

    /// Whether another group with this many partitions may be created.
    pub(crate) fn check_room(&self, partitions: u32) -> Result<(), Refusal> {
        if self.next == u32::MAX {
            return Err(Refusal::LeaseGroupIdsExhausted);
        }
        if self.len() >= LEASE_GROUPS_MAX {
            return Err(Refusal::TooManyLeaseGroups { at_most: LEASE_GROUPS_MAX });
        }
        self.check_partitions(partitions.into())
    }

    /// Whether this many more partitions of groups are allowed.
    pub(crate) fn check_partitions(&self, requested: u64) -> Result<(), Refusal> {
        let (held, at_most) = (self.partitions, LEASE_GROUP_PARTITIONS_MAX);
        if held.saturating_add(requested) > at_most {
            return Err(Refusal::TooManyLeaseGroupPartitions { requested, held, at_most });
        }
        Ok(())
    }

    /// Adds a group whose number and name the caller has checked to be free; its topic has
    /// `partitions`.
    pub(crate) fn insert(&mut self, group: LeaseGroup, partitions: u32) {
        if let Err(at) = self.place(group.topic, &group.name) {
            self.by_topic.entry(group.topic).or_default().insert(at, group.id);
        }
        self.by_name.entry(Arc::clone(&group.name)).or_default().insert(group.id);
        self.partitions += u64::from(partitions);
        self.by_id.insert(group.id, Arc::new(group));
    }

    pub(crate) fn remove(
        &mut self,
        group: LeaseGroupId,
        partitions: u32,
    ) -> Result<Arc<LeaseGroup>, Refusal> {
        let removed = self.by_id.remove(&group).ok_or(Refusal::UnknownLeaseGroup { group })?;
        if let Some(ids) = self.by_topic.get_mut(&removed.topic) {
            ids.remove(group);
            if ids.as_slice().is_empty() {
                self.by_topic.remove(&removed.topic);
            }
        }
        self.removed(&removed, partitions);
        Ok(removed)
    }

    fn removed(&mut self, group: &LeaseGroup, partitions: u32) {
        self.partitions -= u64::from(partitions);
        if let Some(ids) = self.by_name.get_mut(&group.name) {
            ids.remove(&group.id);
            if ids.is_empty() {
                self.by_name.remove(&group.name);
            }
        }
    }

    /// Removes a topic's groups, and returns their ids by name.
    pub(crate) fn remove_topic_groups(
        &mut self,
        topic: TopicId,
        partitions: u32,
    ) -> Vec<LeaseGroupId> {
        let ids = self.ids_of(topic).to_vec();
        self.by_topic.remove(&topic);
        for id in &ids {
            if let Some(removed) = self.by_id.remove(id) {
                self.removed(&removed, partitions);
            }
        }
        ids
    }

    /// A topic with groups has `more` partitions now.
    pub(crate) fn grow(&mut self, topic: TopicId, more: u32) {
        self.partitions += self.ids_of(topic).len() as u64 * u64::from(more);
    }
}
