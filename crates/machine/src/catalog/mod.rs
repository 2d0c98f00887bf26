//! The catalog: topics, lease groups, their configuration, and documents of gateways. Offsets of
//! records are not part of it: the rows of shards ([`crate::rows`]) have them.
//!
//! * [`topic`]: a topic, and the rules of its name
//! * [`lease_groups`]: consumers that settle records one by one
//! * [`document`]: documents of gateways
//! * [`together`]: atomic changes of several documents and a topic
//! * [`placement`]: the shard of each partition
//! * [`feed`]: the changes that shards adopt
//! * `moves`: partitions that move to another shard
//! * `changes`: changes by commands

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::limits::PARTITIONS_PER_SHARD_MAX;
use base::limits::PARTITIONS_PER_TOPIC_MAX;
use base::{HashMap, LeaseGroupId, SharedMap, TopicId};
use uuid::Uuid;

use crate::command::{NewTopic, TopicDefinition};
use crate::config::{GroupConfig, NodeConfig, SharedConfigs, TopicConfig};
use crate::outcome::Refusal;
use crate::topic_name::{collapsed_name, validate_topic_name};
use document::{Document, Documents};
use feed::Feed;
use lease_groups::{LeaseGroup, LeaseGroups};
use topic::Topic;

pub(crate) mod changes;
pub mod document;
pub mod feed;
pub mod lease_groups;
mod moves;
pub mod placement;
pub mod together;
pub mod topic;

/// See [`Catalog::stamp`].
pub type CatalogStamp = (u32, usize, u64);

static GROUP_CONFIG_DEFAULT: GroupConfig = GroupConfig::DEFAULT;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Catalog {
    /// Shared with the images taken of it, like everything in a snapshot. The lookup maps below are
    /// not in a snapshot.
    pub(crate) topics: SharedMap<TopicId, Arc<Topic>>,
    by_name: BTreeMap<Arc<str>, TopicId>,
    by_uuid: HashMap<Uuid, TopicId>,
    /// Names with `.` or `_` as in [`collapsed_name`].
    by_collapsed_name: HashMap<Box<str>, TopicId>,
    partition_count: u64,
    pub(crate) next_topic: u32,
    pub(crate) next_producer_id: i64,
    pub(crate) node_config: NodeConfig,
    pub(crate) topic_configs: SharedConfigs<TopicConfig>,
    /// Configurations of offset groups and share groups. A group may be configured before it
    /// exists.
    pub(crate) group_configs: SharedMap<Arc<str>, Arc<GroupConfig>>,
    pub(crate) lease_groups: LeaseGroups,
    pub(crate) documents: Documents,
    /// Number of shards with records; 0 while the catalog and its rows are in one log.
    pub(crate) shards: u32,
    /// See [`Catalog::slot_shards`].
    pub(crate) slot_shards: u32,
    pub(crate) feed: Feed,
    /// See [`Catalog::moves`].
    pub(crate) moves: u64,
    /// Number of partitions that move.
    pub(crate) moving: usize,
}

// ---------------------------------------------------------------------------------------- topics

impl Catalog {
    pub fn topic(&self, topic: TopicId) -> Option<&Topic> {
        self.topics.get(&topic).map(Arc::as_ref)
    }

    pub fn shared_topic(&self, topic: TopicId) -> Option<Arc<Topic>> {
        self.topics.get(&topic).map(Arc::clone)
    }

    pub fn topic_named(&self, name: &str) -> Option<&Topic> {
        self.topic(*self.by_name.get(name)?)
    }

    pub fn topic_with_uuid(&self, uuid: &Uuid) -> Option<&Topic> {
        self.topic(*self.by_uuid.get(uuid)?)
    }

    /// Sorted by name.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.by_name.values().map(|id| &*self.topics[id])
    }

    /// Topics from this name on, sorted: for paged listings.
    pub fn topics_from(&self, name: Bound<&str>) -> impl Iterator<Item = &Topic> {
        self.by_name.range::<str, _>((name, Bound::Unbounded)).map(|(_, id)| &*self.topics[id])
    }

    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Partitions of all topics.
    pub fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// Differs between two times if a topic was created, grown or deleted in between: topic numbers
    /// are never reused, and partition counts only grow.
    pub fn stamp(&self) -> CatalogStamp {
        (self.next_topic, self.topics.len(), self.partition_count)
    }

    /// The numbers of the next topic, lease group and producer.
    pub fn next_numbers(&self) -> (u32, u32, i64) {
        (self.next_topic, self.lease_groups.next, self.next_producer_id)
    }

    /// The number of the next topic: lower ones were assigned.
    pub fn next_topic(&self) -> u32 {
        self.next_topic
    }

    /// Whether the topic existed and exists no more. Numbers are not assigned again, so false for a topic that is newer
    /// than this copy of the catalog.
    pub fn is_deleted(&self, topic: TopicId) -> bool {
        topic.0 < self.next_topic && !self.topics.contains_key(&topic)
    }

    /// Number of shards with records, from shard 1. 0 while the rows are in the catalog's own log.
    pub fn shard_count(&self) -> u32 {
        self.shards
    }

    /// Number of shards with records when shards were introduced: assignments of groups to shards
    /// stay the same when shards are added.
    pub fn slot_shards(&self) -> u32 {
        self.slot_shards
    }

    /// The configuration that `CreateTopics` would give this topic now, or why it would be refused.
    pub fn check_new_topic(&self, new: &NewTopic) -> Result<TopicConfig, Refusal> {
        validate_topic_name(&new.name)?;
        if self.by_name.contains_key(new.name.as_str()) {
            return Err(Refusal::TopicExists { name: new.name.clone() });
        }
        if let Some(collapsed) = collapsed_name(&new.name)
            && let Some(existing) = self.by_collapsed_name.get(&collapsed)
        {
            let existing = self.topics[existing].name.to_string();
            return Err(Refusal::TopicCollision { name: new.name.clone(), existing });
        }
        self.check_partitions(0, new.partitions)?;
        let config = TopicConfig::parse(&self.node_config, &new.config)?;
        if new.uuid.is_nil() || self.by_uuid.contains_key(&new.uuid) {
            return Err(Refusal::TopicUuidInUse);
        }
        if self.next_topic == u32::MAX {
            return Err(Refusal::TopicIdsExhausted);
        }
        Ok(config)
    }

    /// Whether `CreatePartitions` would grow this topic now.
    pub fn check_create_partitions(&self, topic: TopicId, total: u32) -> Result<(), Refusal> {
        let found = self.topic(topic).ok_or(Refusal::UnknownTopic { topic })?;
        self.check_partitions(found.partition_count, total)?;
        let groups = self.lease_groups.ids_of(topic).len() as u64;
        self.lease_groups.check_partitions(groups * u64::from(total - found.partition_count))
    }

    /// Whether `ChangeTopic` would apply `wanted` now.
    pub fn check_definition(
        &self,
        topic: TopicId,
        seen: &TopicDefinition,
        wanted: &TopicDefinition,
    ) -> Result<(), Refusal> {
        let found = self.topic(topic).ok_or(Refusal::UnknownTopic { topic })?;
        if found.partition_count != seen.partitions || *found.overrides != seen.config {
            return Err(Refusal::TopicChanged { topic });
        }
        if wanted.partitions != seen.partitions {
            self.check_create_partitions(topic, wanted.partitions)?;
        }
        TopicConfig::parse(&self.node_config, &wanted.config)?;
        Ok(())
    }

    fn check_partitions(&self, present: u32, total: u32) -> Result<(), Refusal> {
        let (at_least, at_most) = (present.saturating_add(1), PARTITIONS_PER_TOPIC_MAX);
        if !(at_least..=at_most).contains(&total) {
            let requested = total;
            return Err(Refusal::InvalidPartitionCount { requested, at_least, at_most });
        }
        let (requested, held) = (total - present, self.partition_count);
        if held + u64::from(requested) > PARTITIONS_PER_SHARD_MAX {
            let at_most = PARTITIONS_PER_SHARD_MAX;
            return Err(Refusal::TooManyPartitions { requested, held, at_most });
        }
        Ok(())
    }
}

// ---------------------------------------------------------------------------------------- groups

impl Catalog {
    pub fn lease_group(&self, group: LeaseGroupId) -> Option<&LeaseGroup> {
        self.lease_groups.get(group)
    }

    pub fn shared_lease_group(&self, group: LeaseGroupId) -> Option<Arc<LeaseGroup>> {
        self.lease_groups.shared(group)
    }

    pub fn lease_group_named(&self, topic: TopicId, name: &str) -> Option<&LeaseGroup> {
        self.lease_groups.named(topic, name)
    }

    /// Groups of this name, one a topic, sorted by number.
    pub fn lease_groups_with_name(&self, name: &str) -> impl Iterator<Item = &LeaseGroup> {
        self.lease_groups.with_name(name)
    }

    /// Names of lease groups after this one, sorted: for paged listings.
    pub fn lease_group_names_after(&self, name: &str) -> impl Iterator<Item = &str> {
        self.lease_groups.names_after(name)
    }

    /// Sorted by name.
    pub fn lease_groups_of(&self, topic: TopicId) -> impl Iterator<Item = &LeaseGroup> {
        let ids = self.lease_groups.ids_of(topic);
        ids.iter().filter_map(|&id| self.lease_groups.get(id))
    }

    /// Sorted by number.
    pub fn lease_groups(&self) -> impl Iterator<Item = &LeaseGroup> {
        self.lease_groups.iter()
    }

    pub fn lease_group_count(&self) -> usize {
        self.lease_groups.len()
    }
}

// ------------------------------------------------------------------ configurations and documents

impl Catalog {
    pub fn node_config(&self) -> &NodeConfig {
        &self.node_config
    }

    /// A group's configuration; the default if none was set, whether or not the group exists.
    pub fn group_config(&self, name: &str) -> &GroupConfig {
        self.group_configs.get(name).map_or(&GROUP_CONFIG_DEFAULT, Arc::as_ref)
    }

    /// Groups with values of their own. Sorted by name.
    pub fn configured_groups(&self) -> impl Iterator<Item = &str> {
        self.group_configs.keys().map(Arc::as_ref)
    }

    pub fn configured_group_count(&self) -> usize {
        self.group_configs.len()
    }

    pub fn document(&self, space: &str, name: &str) -> Option<&Document> {
        self.documents.get(space, name)
    }

    /// Sorted by name.
    pub fn documents(&self, space: &str) -> impl Iterator<Item = (&str, &Document)> {
        self.documents.in_space(space)
    }

    /// Documents with this prefix. Sorted by name.
    pub fn documents_under(
        &self,
        space: &str,
        prefix: &str,
    ) -> impl Iterator<Item = (&str, &Document)> {
        self.documents.under(space, prefix)
    }

    /// Differs between two times if a document was created, replaced or deleted in between, which
    /// invalidates caches of documents.
    pub fn documents_stamp(&self) -> u64 {
        self.documents.version()
    }
}
