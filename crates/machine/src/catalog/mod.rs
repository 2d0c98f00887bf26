//! The catalog: what topics and lease groups there are, how they are configured, and what gateways
//! keep. Where records are is not in it: that is in the rows of shards ([`crate::rows`]).
//!
//! * [`topic`]: a topic, and the rules of its name
//! * [`lease_groups`]: consumers who settle records one by one
//! * [`document`]: what gateways keep
//! * [`together`]: documents that change together, and a topic with them
//! * [`placement`]: in which shard a partition is
//! * [`feed`]: what shards take over of it
//! * `moves`: partitions that are wanted in another shard
//! * `changes`: what commands do

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::limits::{PARTITIONS_PER_SHARD_MAX, PARTITIONS_PER_TOPIC_MAX};
use base::{HashMap, LeaseGroupId, SharedMap, TopicId};
use uuid::Uuid;

use crate::command::{NewTopic, TopicDefinition};
use crate::config::{GroupConfig, NodeConfig, SharedConfigs, TopicConfig};
use crate::outcome::Refusal;
use document::{Document, Documents};
use feed::Feed;
use lease_groups::{LeaseGroup, LeaseGroups};
use topic::{Topic, collapsed_name, validate_topic_name};

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
    /// This, like all else that a snapshot holds, is shared with the images that were taken of it.
    /// The maps that lead to it are not in a snapshot.
    pub(crate) topics: SharedMap<TopicId, Arc<Topic>>,
    by_name: BTreeMap<Arc<str>, TopicId>,
    by_uuid: HashMap<Uuid, TopicId>,
    /// Names with `.` or `_` as [`collapsed_name`] has them.
    by_collapsed_name: HashMap<Box<str>, TopicId>,
    partition_count: u64,
    pub(crate) next_topic: u32,
    pub(crate) next_producer_id: i64,
    pub(crate) node_config: NodeConfig,
    pub(crate) topic_configs: SharedConfigs<TopicConfig>,
    /// Of offset groups and share groups. A group may be configured before there is one.
    pub(crate) group_configs: SharedMap<Arc<str>, Arc<GroupConfig>>,
    pub(crate) lease_groups: LeaseGroups,
    pub(crate) documents: Documents,
    /// How many shards have records; none while the catalog and its rows are in one log.
    pub(crate) shards: u32,
    /// See [`Catalog::slot_shards`].
    pub(crate) slot_shards: u32,
    pub(crate) feed: Feed,
    /// See [`Catalog::moves`].
    pub(crate) moves: u64,
    /// How many partitions move.
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

    /// Those from this name on, sorted: for those who look at all, some at a time.
    pub fn topics_from(&self, name: Bound<&str>) -> impl Iterator<Item = &Topic> {
        self.by_name.range::<str, _>((name, Bound::Unbounded)).map(|(_, id)| &*self.topics[id])
    }

    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Of all topics together.
    pub fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// Differs between two times if a topic was made, grown or deleted in between: topic numbers
    /// are never reused, and partitions only become more.
    pub fn stamp(&self) -> CatalogStamp {
        (self.next_topic, self.topics.len(), self.partition_count)
    }

    /// The numbers that the next topic, lease group and producer get.
    pub fn next_numbers(&self) -> (u32, u32, i64) {
        (self.next_topic, self.lease_groups.next, self.next_producer_id)
    }

    /// The number that the next topic gets: those below were given out.
    pub fn next_topic(&self) -> u32 {
        self.next_topic
    }

    /// How many shards have records: 1 to this. 0 while the rows are in the catalog's own log.
    pub fn shard_count(&self) -> u32 {
        self.shards
    }

    /// How many shards had records when there were first some: what belongs to a group stays where it is
    /// when there are more.
    pub fn slot_shards(&self) -> u32 {
        self.slot_shards
    }

    /// Whether `CreateTopics` would make this topic now, and with what configuration.
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

    /// Whether `ChangeTopic` would make this topic what is wanted now.
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
        self.lease_groups.of_name(name)
    }

    /// Names of lease groups after this one, sorted: for those who look at all, some at a time.
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

    /// Groups that have values of their own. Sorted by name.
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
        self.documents.of_space(space)
    }

    /// Those whose names begin so. Sorted by name.
    pub fn documents_under(
        &self,
        space: &str,
        prefix: &str,
    ) -> impl Iterator<Item = (&str, &Document)> {
        self.documents.under(space, prefix)
    }

    /// Differs between two times if a document was made, replaced or deleted in between: who
    /// keeps what it read from documents reads again.
    pub fn documents_stamp(&self) -> u64 {
        self.documents.version()
    }
}
