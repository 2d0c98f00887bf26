//! The state, and what an entry does to it.
//!
//! Whatever reaches an outcome or a snapshot is iterated in an order that follows from the history
//! alone (sorted maps, vectors), never from a hash: two replicas must not differ by a byte.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::limits::{GROUP_CONFIGS_MAX, PARTITIONS_PER_SHARD_MAX, PARTITIONS_PER_TOPIC_MAX};
use base::{HashMap, Offset, PartitionId, SharedMap, SharedRows, TopicId};
use uuid::Uuid;

use crate::command::{Command, CommitOffset, NewTopic};
use crate::config::{GroupConfig, NodeConfig, Overrides, SharedConfigs, TopicConfig};
use crate::document::{Document, Documents};
use crate::entry::Append;
use crate::group::{Group, validate_commit, validate_group_name};
use crate::lease_group::LeaseGroups;
use crate::offset_groups::OffsetGroups;
use crate::outcome::{AppendOutcome, Applied, Outcome, Refusal};
use crate::partition::Partition;
use crate::topic::{Topic, collapsed_name, validate_topic_name};

/// See [`State::catalog_stamp`].
pub type CatalogStamp = (u32, usize, u64);

static GROUP_CONFIG_DEFAULT: GroupConfig = GroupConfig::DEFAULT;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct State {
    /// This, like all else that a snapshot holds, is shared with the images that were taken of it:
    /// see [`State::capture`]. The maps that lead to it are not in a snapshot.
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
    pub(crate) groups: OffsetGroups,
    /// Apart from `groups`: a group may be configured before it commits, and after.
    pub(crate) group_configs: SharedMap<Arc<str>, Arc<GroupConfig>>,
    pub(crate) lease_groups: LeaseGroups,
    pub(crate) documents: Documents,
    /// See [`State::last_ms`].
    pub(crate) last_ms: i64,
}

// ------------------------------------------------------------------------------------- questions

impl State {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn topic(&self, topic: TopicId) -> Option<&Topic> {
        self.topics.get(&topic).map(Arc::as_ref)
    }

    /// The topic as it is now: who looks at all of a large one keeps nobody waiting meanwhile.
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

    pub fn partition(&self, partition: PartitionId) -> Option<&Partition> {
        self.topics.get(&partition.topic)?.partition(partition.index)
    }

    /// Of all topics together.
    pub fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// Differs between two times if a topic was made, grown or deleted in between: topic numbers
    /// are never reused, and partitions only become more.
    pub fn catalog_stamp(&self) -> CatalogStamp {
        (self.next_topic, self.topics.len(), self.partition_count)
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Sorted by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter()
    }

    /// Those after this name, sorted: for those who look at all, some at a time.
    pub fn groups_after(&self, name: &str) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.after(name)
    }

    pub fn group_count(&self) -> usize {
        self.groups.len()
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

    pub fn node_config(&self) -> &NodeConfig {
        &self.node_config
    }

    pub fn document(&self, space: &str, name: &str) -> Option<&Document> {
        self.documents.get(space, name)
    }

    /// Sorted by name.
    pub fn documents(&self, space: &str) -> impl Iterator<Item = (&str, &Document)> {
        self.documents.of_space(space)
    }

    /// Differs between two times if a document was made, replaced or deleted in between: who
    /// keeps what it read from documents reads again.
    pub fn documents_stamp(&self) -> u64 {
        self.documents.version()
    }

    /// The time of the log, ms since the epoch: that of the last entry, or of an earlier one that
    /// bore a later time. A leader goes on from it, whatever its clock says.
    pub fn last_ms(&self) -> i64 {
        self.last_ms
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
        self.check_partitions(found.partition_count(), total)?;
        let groups = self.lease_groups.ids_of(topic).len() as u64;
        self.lease_groups.check_partitions(groups * u64::from(total - found.partition_count()))
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

// --------------------------------------------------------------------------------------- changes

impl State {
    pub(crate) fn append(
        &mut self,
        append: &Append,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> AppendOutcome {
        match self.partition_mut(append.partition) {
            Ok(partition) => partition.append(append, leader_epoch, now_ms),
            Err(_) => AppendOutcome::UnknownPartition,
        }
    }

    pub(crate) fn command(
        &mut self,
        command: &Command,
        now_ms: i64,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        match command {
            Command::CreateTopics { topics } => {
                let outcomes = topics.iter().map(|new| self.create_topic(new, now_ms)).collect();
                Ok(Outcome::Topics(outcomes))
            }
            Command::DeleteTopic { topic } => self.delete_topic(*topic, applied),
            Command::CreatePartitions { topic, total } => {
                self.create_partitions(*topic, *total, applied)
            }
            Command::SetTopicConfig { topic, config } => {
                self.set_topic_config(*topic, config, applied)
            }
            Command::SetNodeConfig { config } => self.set_node_config(config),
            Command::SetGroupConfig { group, config } => self.set_group_config(group, config),
            Command::AdvanceStart { starts } => {
                let outcomes = starts
                    .iter()
                    .map(|&(partition, offset)| self.advance_start(partition, offset, applied));
                Ok(Outcome::Starts(outcomes.collect()))
            }
            Command::Compacted { partition, up_to } => {
                self.partition_mut(*partition)?.note_compacted(*up_to);
                Ok(Outcome::Done)
            }
            Command::AllocateProducerId => {
                let id = self.next_producer_id;
                self.next_producer_id = id.checked_add(1).ok_or(Refusal::ProducerIdsExhausted)?;
                Ok(Outcome::ProducerId { id, epoch: 0 })
            }
            Command::CommitOffsets { group, offsets } => self.commit(group, offsets, now_ms),
            Command::DeleteOffsets { group, partitions } => self.delete_offsets(group, partitions),
            Command::DeleteGroup { group } => match self.groups.remove(group) {
                true => Ok(Outcome::Done),
                false => Err(Refusal::UnknownGroup { group: group.clone() }),
            },
            Command::ExpireOffsets { groups, before_ms } => {
                let expired =
                    groups.iter().map(|group| self.groups.expire(group, now_ms, *before_ms));
                Ok(Outcome::Expired { count: expired.sum() })
            }
            Command::ExpireProducers { before_ms } => {
                Ok(Outcome::Expired { count: self.expire_producers(*before_ms) })
            }
            Command::CreateLeaseGroup { topic, name, starts, config } => {
                self.create_lease_group(*topic, name, starts, config, now_ms, applied)
            }
            Command::SetLeaseGroupConfig { group, config } => {
                self.set_lease_group_config(*group, config, applied)
            }
            Command::DeleteLeaseGroup { group } => self.delete_lease_group(*group, applied),
            Command::PauseLeaseGroup { group, paused } => {
                self.pause_lease_group(*group, *paused, applied)
            }
            Command::SeekLeaseGroup { group, starts } => {
                self.seek_lease_group(*group, starts, applied)
            }
            Command::Settle { settles } => {
                self.settle(settles, applied);
                Ok(Outcome::Done)
            }
            Command::PutDocument { space, name, body, expect } => {
                let version = self.documents.put(space, name, body, *expect)?;
                Ok(Outcome::Document { version })
            }
            Command::DeleteDocument { space, name, expect } => {
                self.documents.delete(space, name, *expect)?;
                Ok(Outcome::Done)
            }
        }
    }

    pub(crate) fn partition_mut(
        &mut self,
        partition: PartitionId,
    ) -> Result<&mut Partition, Refusal> {
        self.topics
            .get_mut(&partition.topic)
            .and_then(|topic| Arc::make_mut(topic).partitions.get_mut(partition.index as usize))
            .ok_or(Refusal::UnknownPartition { partition })
    }

    /// How many producers are forgotten. Only what changes is copied from an image.
    fn expire_producers(&mut self, before_ms: i64) -> u64 {
        let mut silent = Vec::new();
        for topic in self.topics.values() {
            let partitions = topic.partition_ids().zip(&topic.partitions);
            let with_some = partitions.filter(|(_, it)| it.has_producers_before(before_ms));
            silent.extend(with_some.map(|(id, _)| id));
        }
        let mut expired = 0;
        for id in silent {
            if let Ok(partition) = self.partition_mut(id) {
                expired += partition.expire_producers(before_ms);
            }
        }
        expired
    }

    fn create_topic(&mut self, new: &NewTopic, now_ms: i64) -> Result<TopicId, Refusal> {
        let config = self.check_new_topic(new)?;
        let (overrides, config) = self.topic_configs.share(&new.config, config);
        let id = TopicId(self.next_topic);
        self.next_topic += 1;
        self.insert_topic(Topic {
            id,
            uuid: new.uuid,
            name: Arc::from(new.name.as_str()),
            created_ms: now_ms,
            config,
            overrides,
            partitions: SharedRows::from(vec![Partition::default(); new.partitions as usize]),
        });
        Ok(id)
    }

    /// Adds a topic whose name and id are known to be free.
    pub(crate) fn insert_topic(&mut self, topic: Topic) {
        self.partition_count += u64::from(topic.partition_count());
        self.by_name.insert(Arc::clone(&topic.name), topic.id);
        self.by_uuid.insert(topic.uuid, topic.id);
        if let Some(collapsed) = collapsed_name(&topic.name) {
            self.by_collapsed_name.insert(collapsed, topic.id);
        }
        self.topics.insert(topic.id, Arc::new(topic));
    }

    fn delete_topic(&mut self, topic: TopicId, applied: &mut Applied) -> Result<Outcome, Refusal> {
        let removed = self.topics.remove(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        self.partition_count -= u64::from(removed.partition_count());
        self.by_name.remove(&removed.name);
        self.by_uuid.remove(&removed.uuid);
        if let Some(collapsed) = collapsed_name(&removed.name) {
            self.by_collapsed_name.remove(&collapsed);
        }
        self.groups.forget_topic(topic);
        self.delete_lease_groups_of(topic, applied);
        applied.removed.push((topic, removed.partition_count()));
        Ok(Outcome::Done)
    }

    fn create_partitions(
        &mut self,
        topic: TopicId,
        total: u32,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        self.check_create_partitions(topic, total)?;
        let grown = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        self.partition_count += u64::from(total - grown.partition_count());
        Arc::make_mut(grown).partitions.grow(total as usize, &Partition::default());
        self.lease_groups.grow(topic, total);
        self.note_lease_groups_moved(topic, applied);
        Ok(Outcome::Done)
    }

    fn set_topic_config(
        &mut self,
        topic: TopicId,
        overrides: &Overrides,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        if !self.topics.contains_key(&topic) {
            return Err(Refusal::UnknownTopic { topic });
        }
        let config = TopicConfig::parse(&self.node_config, overrides)?;
        let (overrides, config) = self.topic_configs.share(overrides, config);
        let changed = self.topics.get_mut(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let changed = Arc::make_mut(changed);
        changed.config = config;
        changed.overrides = overrides;
        self.note_lease_groups_moved(topic, applied);
        self.delete_settled_of_topic(topic, applied);
        Ok(Outcome::Done)
    }

    /// Takes the node's values if they, and every topic's own values on top of them, are valid.
    fn set_node_config(&mut self, overrides: &Overrides) -> Result<Outcome, Refusal> {
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
            if let Some(topic) = self.topics.get_mut(&id) {
                let topic = Arc::make_mut(topic);
                (topic.overrides, topic.config) = (overrides, config);
            }
        }
        self.topic_configs = configs;
        self.node_config = node;
        Ok(Outcome::Done)
    }

    fn set_group_config(&mut self, group: &str, overrides: &Overrides) -> Result<Outcome, Refusal> {
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
        Ok(Outcome::Done)
    }

    /// Answers the start that holds now. A start that is passed already is no error, as in Kafka.
    fn advance_start(
        &mut self,
        id: PartitionId,
        offset: Offset,
        applied: &mut Applied,
    ) -> Result<Offset, Refusal> {
        let partition = self.partition_mut(id)?;
        let (start, end) = (partition.log_start(), partition.next_offset());
        if offset > end {
            return Err(Refusal::OffsetOutOfRange { partition: id, offset, start, end });
        }
        if partition.advance_start(offset) {
            applied.trimmed.push((id, offset));
            self.lift_floors(id, offset, applied);
        }
        Ok(self.partition_mut(id)?.log_start())
    }

    fn commit(
        &mut self,
        name: &str,
        offsets: &[CommitOffset],
        now_ms: i64,
    ) -> Result<Outcome, Refusal> {
        validate_group_name(name)?;
        let mut refused = Vec::new();
        for commit in offsets {
            let partition = commit.partition;
            let topic = self.topics.get(&partition.topic);
            let known = topic.and_then(|topic| topic.partition(partition.index)).is_some();
            let committed = match known {
                true => {
                    validate_commit(commit).and_then(|()| self.groups.commit(name, commit, now_ms))
                }
                false => Err(Refusal::UnknownPartition { partition }),
            };
            if let Err(refusal) = committed {
                refused.push((partition, refusal));
            }
        }
        Ok(Outcome::Committed { refused })
    }

    fn delete_offsets(
        &mut self,
        name: &str,
        partitions: &[PartitionId],
    ) -> Result<Outcome, Refusal> {
        match self.groups.delete_offsets(name, partitions) {
            true => Ok(Outcome::Done),
            false => Err(Refusal::UnknownGroup { group: name.to_owned() }),
        }
    }
}
