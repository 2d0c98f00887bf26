//! Changes of the catalog by commands. Their effects on the rows of shards are not applied here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::GROUP_CONFIGS_MAX;
use base::limits::SHARDS_MAX;
use base::{LeaseGroupId, Offset, TopicId};

use super::Catalog;
use super::feed::CatalogChange;
use super::lease_groups::{LeaseGroup, shared_name};
use super::placement::Placement;
use super::topic::Topic;
use crate::command::{MinimumCounters, NewTopic, TopicDefinition};
use crate::config::{
    GroupConfig, LeaseGroupConfig, NodeConfig, Overrides, SharedConfigs, TopicConfig,
};
use crate::group_name::validate_group_name;
use crate::outcome::Refusal;
use crate::topic_name::collapsed_name;

/// More moves than can begin and end in the part of a log that may be lost.
const MOVES_SKIPPED: u64 = 1 << 20;

/// Result of `CreateLeaseGroup`.
pub(crate) enum NewLeaseGroup {
    /// It exists with an equal configuration: repeating the command is no error.
    Existing(LeaseGroupId),
    Created(LeaseGroupId),
}

// ---------------------------------------------------------------------------------------- topics

impl Catalog {
    pub(crate) fn create_topic(&mut self, new: &NewTopic, now_ms: i64) -> Result<TopicId, Refusal> {
        let config = self.check_new_topic(new)?;
        let (overrides, config) = self.topic_configs.share(&new.config, config);
        let id = TopicId(self.next_topic);
        self.next_topic += 1;
        let placement = Placement::for_new_topic(id.0, self.shards);
        self.insert_topic(Topic {
            id,
            uuid: new.uuid,
            name: Arc::from(new.name.as_str()),
            created_ms: now_ms,
            config,
            overrides,
            partition_count: new.partitions,
            placement: placement.unwrap_or(Placement::ALL_IN_FIRST),
            moving: BTreeMap::new(),
        });
        self.note(CatalogChange::Topic(id));
        Ok(id)
    }

    /// Adds a topic whose name and id the caller has checked to be free.
    pub(crate) fn insert_topic(&mut self, topic: Topic) {
        self.partition_count += u64::from(topic.partition_count);
        self.by_name.insert(Arc::clone(&topic.name), topic.id);
        self.by_uuid.insert(topic.uuid, topic.id);
        if let Some(collapsed) = collapsed_name(&topic.name) {
            self.by_collapsed_name.insert(collapsed, topic.id);
        }
        self.topics.insert(topic.id, Arc::new(topic));
    }

    /// Deletes a topic and its lease groups.
    pub(crate) fn delete_topic(&mut self, topic: TopicId) -> Result<(), Refusal> {
        let removed = self.topics.remove(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        self.note_moves_ended(removed.moving.len());
        self.partition_count -= u64::from(removed.partition_count);
        self.by_name.remove(&removed.name);
        self.by_uuid.remove(&removed.uuid);
        if let Some(collapsed) = collapsed_name(&removed.name) {
            self.by_collapsed_name.remove(&collapsed);
        }
        for group in self.lease_groups.remove_topic_groups(topic, removed.partition_count) {
            self.feed.drop_group(group);
        }
        self.note(CatalogChange::TopicGone(topic));
        Ok(())
    }

    pub(crate) fn create_partitions(&mut self, topic: TopicId, total: u32) -> Result<(), Refusal> {
        self.check_create_partitions(topic, total)?;
        let grown = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let grown = Arc::make_mut(grown);
        let more = total - grown.partition_count;
        grown.partition_count = total;
        self.partition_count += u64::from(more);
        self.lease_groups.grow(topic, more);
        self.note(CatalogChange::Topic(topic));
        Ok(())
    }

    pub(crate) fn set_topic_config(
        &mut self,
        topic: TopicId,
        overrides: &Overrides,
    ) -> Result<(), Refusal> {
        if !self.topics.contains_key(&topic) {
            return Err(Refusal::UnknownTopic { topic });
        }
        let config = TopicConfig::parse(&self.node_config, overrides)?;
        let (overrides, config) = self.topic_configs.share(overrides, config);
        let changed = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let changed = Arc::make_mut(changed);
        let deleted_settled = changed.config.retention_settled;
        (changed.overrides, changed.config) = (overrides, config);
        if changed.config.retention_settled != deleted_settled {
            self.note(CatalogChange::Topic(topic));
        }
        Ok(())
    }

    /// Grows and configures the topic, or neither, if it matches `seen`.
    pub(crate) fn change_topic(
        &mut self,
        topic: TopicId,
        seen: &TopicDefinition,
        wanted: &TopicDefinition,
    ) -> Result<(), Refusal> {
        self.check_definition(topic, seen, wanted)?;
        if wanted.partitions != seen.partitions {
            self.create_partitions(topic, wanted.partitions)?;
        }
        self.set_topic_config(topic, &wanted.config)
    }

    /// Records a change for shards. While rows are in the same log this is not needed.
    fn note(&mut self, changed: CatalogChange) {
        if self.shards > 0 {
            self.feed.note(changed);
        }
    }
}

// -------------------------------------------------------------------------------- configurations

impl Catalog {
    /// Accepts the node's values if they, and every topic's own values on top of them, are valid.
    pub(crate) fn set_node_config(&mut self, overrides: &Overrides) -> Result<(), Refusal> {
        let node = NodeConfig::parse(overrides)?;
        let mut configs = SharedConfigs::default();
        let mut shared = Vec::with_capacity(self.topics.len());
        for topic in self.topics() {
            let config = match configs.get(&topic.overrides) {
                Some(known) => known,
                None => {
                    let config = TopicConfig::parse(&node, &topic.overrides)?;
                    configs.share(&topic.overrides, config)
                }
            };
            shared.push((topic.id, config));
        }
        for (id, (overrides, config)) in shared {
            let Some(topic) = self.topics.get_mut(&id) else { continue };
            let topic = Arc::make_mut(topic);
            let deletes_settled = config.retention_settled;
            let changed = topic.config.retention_settled != deletes_settled;
            (topic.overrides, topic.config) = (overrides, config);
            if changed {
                self.note(CatalogChange::Topic(id));
            }
        }
        self.topic_configs = configs;
        self.node_config = node;
        Ok(())
    }

    pub(crate) fn set_group_config(
        &mut self,
        group: &str,
        overrides: &Overrides,
    ) -> Result<(), Refusal> {
        validate_group_name(group)?;
        let config = GroupConfig::parse(overrides)?;
        config.check(&self.node_config.own)?;
        if overrides.is_empty() {
            self.group_configs.remove(group);
        } else {
            let is_new = !self.group_configs.contains_key(group);
            if is_new && self.group_configs.len() >= GROUP_CONFIGS_MAX {
                return Err(Refusal::TooManyGroupConfigs { at_most: GROUP_CONFIGS_MAX });
            }
            self.group_configs.insert(group.into(), Arc::new(config));
        }
        Ok(())
    }

    /// Sets the shards 1 to `count`. An existing topic stays in place.
    pub(crate) fn set_shards(&mut self, count: u32) -> Result<(), Refusal> {
        let (at_least, at_most) = (self.shards.max(1), SHARDS_MAX);
        if !(at_least..=at_most).contains(&count) {
            return Err(Refusal::InvalidShardCount { requested: count, at_least, at_most });
        }
        if self.shards == 0 {
            self.slot_shards = count;
        }
        self.shards = count;
        Ok(())
    }

    /// Allocates `count` ids and returns the first.
    pub(crate) fn allocate_producer_ids(&mut self, count: u32) -> Result<i64, Refusal> {
        let id = self.next_producer_id;
        let next = id.checked_add(count.into()).ok_or(Refusal::ProducerIdsExhausted)?;
        self.next_producer_id = next;
        Ok(id)
    }

    /// Raises the counters to these numbers.
    pub(crate) fn skip(&mut self, to: &MinimumCounters) {
        self.next_topic = self.next_topic.max(to.next_topic);
        self.next_producer_id = self.next_producer_id.max(to.next_producer_id);
        self.lease_groups.next = self.lease_groups.next.max(to.next_lease_group);
        self.feed.skip(to.version);
        if self.moves > 0 {
            // Shards may know moves that this log has lost: their numbers are not reused.
            self.moves = self.moves.saturating_add(MOVES_SKIPPED);
        }
    }
}

// ---------------------------------------------------------------------------------- lease groups

impl Catalog {
    /// Creates a group of a topic. `check` runs last, before anything changes.
    pub(crate) fn create_lease_group(
        &mut self,
        topic: TopicId,
        name: &str,
        overrides: &Overrides,
        starts: &[Offset],
        now_ms: i64,
        check: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<NewLeaseGroup, Refusal> {
        validate_group_name(name)?;
        let of_topic = self.topics.get(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let partitions = of_topic.partition_count;
        let config = LeaseGroupConfig::parse(overrides)?;
        if let Some(existing) = self.lease_groups.named(topic, name) {
            return if *existing.config == config {
                Ok(NewLeaseGroup::Existing(existing.id))
            } else {
                Err(Refusal::LeaseGroupExists { group: existing.id, name: name.to_owned() })
            };
        }
        of_topic.check_leasable()?;
        self.lease_groups.check_room(partitions)?;
        check()?;
        let (overrides, config) = self.lease_groups.configs.share(overrides, config);
        let id = LeaseGroupId(self.lease_groups.next);
        self.lease_groups.next += 1;
        let group = LeaseGroup {
            id,
            topic,
            name: shared_name(name),
            config,
            overrides,
            starts: (self.shards > 0 && !starts.is_empty()).then(|| starts.into()),
            paused: false,
            created_ms: now_ms,
        };
        self.lease_groups.insert(group, partitions);
        self.note(CatalogChange::LeaseGroup(id));
        Ok(NewLeaseGroup::Created(id))
    }

    pub(crate) fn set_lease_group_config(
        &mut self,
        group: LeaseGroupId,
        overrides: &Overrides,
    ) -> Result<(), Refusal> {
        let config = LeaseGroupConfig::parse(overrides)?;
        self.lease_groups.get_mut(group)?;
        let (overrides, config) = self.lease_groups.configs.share(overrides, config);
        let changed = self.lease_groups.get_mut(group)?;
        (changed.overrides, changed.config) = (overrides, config);
        Ok(())
    }

    pub(crate) fn pause_lease_group(
        &mut self,
        group: LeaseGroupId,
        paused: bool,
    ) -> Result<(), Refusal> {
        self.lease_groups.get_mut(group)?.paused = paused;
        Ok(())
    }

    pub(crate) fn delete_lease_group(&mut self, group: LeaseGroupId) -> Result<(), Refusal> {
        let topic = self.lease_groups.get_mut(group)?.topic;
        let partitions = self.topic(topic).map_or(0, Topic::partition_count);
        self.lease_groups.remove(group, partitions)?;
        self.note(CatalogChange::LeaseGroupGone(group));
        Ok(())
    }
}
