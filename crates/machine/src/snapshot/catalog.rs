//! A catalog (version 4, with moves of partitions version 7).
//!
//! ```text
//! CatalogV4, topics x TopicV4 by id, lease groups x DefinitionV4 by id,
//! documents x DocumentV2 by space and name, changes x ChangeV4 by version, TimeV3,
//! in version 7 CatalogMovesV7, topics with moves x TopicMovesV7 by id
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::{PARTITIONS_PER_TOPIC_MAX, SHARDS_MAX};
use base::{LeaseGroupId, ShardId, SharedMap, TopicId};

use super::{APART_SINCE, MOVES_SINCE, inconsistent, put, take};
use crate::catalog::Catalog;
use crate::catalog::document::{Document, Documents};
use crate::catalog::feed::{CatalogChange, Feed};
use crate::catalog::lease_groups::{LeaseGroup, shared_name};
use crate::catalog::placement::{MovedPlacement, Placement};
use crate::catalog::topic::{MoveTarget, Topic};
use crate::config::{GroupConfig, LeaseGroupConfig, NodeConfig, Overrides, TopicConfig};
use crate::entry::DecodeError;
use crate::group_name::validate_group_name;
use crate::state::{Role, State};
use crate::stored::{
    CatalogMovesV7, CatalogV4, ChangeV4, ChangedV4, DefinitionV4, DocumentV2, TimeV3, TopicMovesV7,
    TopicV4,
};
use crate::topic_name::validate_topic_name;

#[derive(Clone, Debug)]
pub(super) struct CatalogImage {
    next_topic: u32,
    next_producer_id: i64,
    shards: u32,
    slot_shards: u32,
    node_config: Overrides,
    group_configs: SharedMap<Arc<str>, Arc<GroupConfig>>,
    topics: SharedMap<TopicId, Arc<Topic>>,
    next_lease_group: u32,
    lease_groups: SharedMap<LeaseGroupId, Arc<LeaseGroup>>,
    documents: Documents,
    version: u64,
    forgotten: u64,
    changes: SharedMap<u64, CatalogChange>,
    last_ms: i64,
    moves: u64,
}

impl CatalogImage {
    pub(super) fn of(catalog: &Catalog, last_ms: i64) -> Self {
        Self {
            next_topic: catalog.next_topic,
            next_producer_id: catalog.next_producer_id,
            shards: catalog.shards,
            slot_shards: catalog.slot_shards,
            node_config: catalog.node_config.overrides.clone(),
            group_configs: catalog.group_configs.clone(),
            topics: catalog.topics.clone(),
            next_lease_group: catalog.lease_groups.next,
            lease_groups: catalog.lease_groups.by_id.clone(),
            documents: catalog.documents.clone(),
            version: catalog.feed.version(),
            forgotten: catalog.feed.forgotten(),
            changes: catalog.feed.changes.clone(),
            last_ms,
            moves: catalog.moves,
        }
    }

    /// The oldest version that can represent all of it.
    pub(super) fn version(&self) -> u16 {
        if self.moves > 0 { MOVES_SINCE } else { APART_SINCE }
    }

    pub(super) fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes = put(
            bytes,
            &CatalogV4 {
                next_topic: self.next_topic,
                next_producer_id: self.next_producer_id,
                shards: self.shards,
                slot_shards: self.slot_shards,
                node_config: Cow::Borrowed(&self.node_config),
                group_configs: stored_group_configs(&self.group_configs),
                topics: self.topics.len() as u64,
                next_lease_group: self.next_lease_group,
                lease_groups: self.lease_groups.len() as u64,
                documents_version: self.documents.version(),
                documents: self.documents.len() as u64,
                version: self.version,
                forgotten: self.forgotten,
                changes: self.changes.len() as u64,
            },
        );
        for topic in self.topics.values() {
            bytes = put(bytes, &TopicV4::from(&**topic));
        }
        for group in self.lease_groups.values() {
            bytes = put(bytes, &DefinitionV4::from(&**group));
        }
        bytes = put_documents(bytes, &self.documents);
        for (&version, &changed) in &self.changes {
            bytes = put(bytes, &ChangeV4 { version, changed: changed.into() });
        }
        bytes = put(bytes, &TimeV3 { last_ms: self.last_ms });
        if self.moves > 0 { self.put_moves(bytes) } else { bytes }
    }

    fn put_moves(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let of = |topic: &Topic| TopicMovesV7 {
            topic: topic.id.0,
            placed: topic
                .placement
                .moved()
                .map(|(index, placed)| (index, placed.shard.0, placed.epoch_base))
                .collect(),
            moving: topic
                .moving
                .iter()
                .map(|(&index, it)| (index, it.to.0, it.id, it.cancelled))
                .collect(),
        };
        let all = self.topics.values().map(|topic| of(topic));
        let some = |it: &TopicMovesV7| !it.placed.is_empty() || !it.moving.is_empty();
        let all: Vec<TopicMovesV7> = all.filter(some).collect();
        bytes = put(bytes, &CatalogMovesV7 { version: self.moves, topics: all.len() as u64 });
        all.iter().fold(bytes, put)
    }
}

fn take_moves(catalog: &mut Catalog, body: &mut &[u8]) -> Result<(), DecodeError> {
    let CatalogMovesV7 { version, topics } = take(body, "moves of partitions")?;
    if version == 0 {
        return Err(inconsistent("moves of partitions", "without any"));
    }
    catalog.moves = version;
    for _ in 0..topics {
        let TopicMovesV7 { topic, placed, moving } = take(body, "moves of a topic")?;
        let wrong = || inconsistent("moves of topic", topic);
        let shards = catalog.shards;
        let found = catalog.topics.get_mut(&TopicId(topic)).ok_or_else(wrong)?;
        let found = Arc::make_mut(found);
        let is_shard = |shard: u32| (ShardId::FIRST.0..=shards).contains(&shard);
        for (index, shard, epoch_base) in placed {
            if !found.has_partition(index) || !is_shard(shard) || epoch_base < 0 {
                return Err(wrong());
            }
            found.placement.place(index, MovedPlacement { shard: ShardId(shard), epoch_base });
        }
        for (index, to, id, cancelled) in moving {
            if !found.has_partition(index) || !is_shard(to) || !(1..=version).contains(&id) {
                return Err(wrong());
            }
            found.moving.insert(index, MoveTarget { id, to: ShardId(to), cancelled });
        }
        catalog.moving += found.moving.len();
    }
    Ok(())
}

pub(super) fn decode(version: u16, body: &mut &[u8]) -> Result<State, DecodeError> {
    let mut state = State::of(Role::Catalog);
    let catalog = &mut state.catalog;
    let stored: CatalogV4<'_> = take(body, "the catalog")?;
    if stored.shards > SHARDS_MAX || stored.slot_shards > stored.shards {
        return Err(inconsistent("number of shards", stored.shards));
    }
    (catalog.shards, catalog.slot_shards) = (stored.shards, stored.slot_shards);
    restore_head(
        catalog,
        stored.next_topic,
        stored.next_producer_id,
        &stored.node_config,
        stored.group_configs,
    )?;
    for _ in 0..stored.topics {
        let TopicV4 { id, uuid, name, created_ms, overrides, partitions, start, shards } =
            take(body, "a topic")?;
        let placement =
            Placement::new(start, shards).ok_or_else(|| inconsistent("topic", &name))?;
        let new = TopicHead { id, uuid, name, created_ms, overrides };
        restore_topic(catalog, new, partitions.into(), placement)?;
    }
    catalog.lease_groups.next = stored.next_lease_group;
    for _ in 0..stored.lease_groups {
        let DefinitionV4 { id, topic, name, overrides, paused, created_ms, starts } =
            take(body, "a lease group")?;
        let starts = (!starts.is_empty()).then(|| starts.into_owned().into());
        let head = GroupHead { id, topic, name, overrides, paused, created_ms };
        restore_lease_group(catalog, head, starts)?;
    }
    restore_documents(catalog, stored.documents_version, stored.documents, body)?;
    let mut changes = Vec::new();
    for _ in 0..stored.changes {
        let ChangeV4 { version, changed } = take(body, "a change")?;
        changes.push((version, changed.into()));
    }
    let feed = Feed::restored(stored.version, stored.forgotten, changes.into_iter());
    catalog.feed = feed.ok_or_else(|| inconsistent("changes", stored.version))?;
    if version == MOVES_SINCE {
        let last_ms = take::<TimeV3>(body, "the time")?.last_ms;
        take_moves(catalog, body)?;
        state.last_ms = last_ms;
    } else {
        state.last_ms = take::<TimeV3>(body, "the time")?.last_ms;
    }
    Ok(state)
}

impl<'a> From<&'a Topic> for TopicV4<'a> {
    fn from(topic: &'a Topic) -> Self {
        Self {
            id: topic.id.0,
            uuid: topic.uuid,
            name: Cow::Borrowed(&topic.name),
            created_ms: topic.created_ms,
            overrides: Cow::Borrowed(&topic.overrides),
            partitions: topic.partition_count,
            start: topic.placement.start(),
            shards: topic.placement.shard_count(),
        }
    }
}

impl<'a> From<&'a LeaseGroup> for DefinitionV4<'a> {
    fn from(group: &'a LeaseGroup) -> Self {
        Self {
            id: group.id.0,
            topic: group.topic.0,
            name: Cow::Borrowed(&group.name),
            overrides: Cow::Borrowed(&group.overrides),
            paused: group.paused,
            created_ms: group.created_ms,
            starts: Cow::Borrowed(group.starts.as_deref().unwrap_or_default()),
        }
    }
}

impl From<CatalogChange> for ChangedV4 {
    fn from(changed: CatalogChange) -> Self {
        match changed {
            CatalogChange::Topic(id) => Self::Topic(id.0),
            CatalogChange::LeaseGroup(id) => Self::LeaseGroup(id.0),
            CatalogChange::TopicGone(id) => Self::TopicGone(id.0),
            CatalogChange::LeaseGroupGone(id) => Self::LeaseGroupGone(id.0),
        }
    }
}

impl From<ChangedV4> for CatalogChange {
    fn from(stored: ChangedV4) -> Self {
        match stored {
            ChangedV4::Topic(id) => Self::Topic(TopicId(id)),
            ChangedV4::LeaseGroup(id) => Self::LeaseGroup(LeaseGroupId(id)),
            ChangedV4::TopicGone(id) => Self::TopicGone(TopicId(id)),
            ChangedV4::LeaseGroupGone(id) => Self::LeaseGroupGone(LeaseGroupId(id)),
        }
    }
}

// ------------------------------------------------------------------------ shared with whole states

/// Fields of a topic common to all versions.
pub(super) struct TopicHead<'a> {
    pub(super) id: u32,
    pub(super) uuid: uuid::Uuid,
    pub(super) name: Cow<'a, str>,
    pub(super) created_ms: i64,
    pub(super) overrides: Cow<'a, Overrides>,
}

/// Fields of a lease group common to all versions.
pub(super) struct GroupHead<'a> {
    pub(super) id: u32,
    pub(super) topic: u32,
    pub(super) name: Cow<'a, str>,
    pub(super) overrides: Cow<'a, Overrides>,
    pub(super) paused: bool,
    pub(super) created_ms: i64,
}

pub(super) type StoredGroupConfigs<'a> = BTreeMap<Cow<'a, str>, Cow<'a, Overrides>>;

pub(super) fn stored_group_configs(
    configs: &SharedMap<Arc<str>, Arc<GroupConfig>>,
) -> StoredGroupConfigs<'_> {
    let stored = |(name, config): (&'_ Arc<str>, &'_ Arc<GroupConfig>)| {
        (Cow::Owned(name.to_string()), Cow::Owned(config.overrides.clone()))
    };
    configs.iter().map(stored).collect()
}

pub(super) fn restore_head(
    catalog: &mut Catalog,
    next_topic: u32,
    next_producer_id: i64,
    node_config: &Overrides,
    group_configs: StoredGroupConfigs<'_>,
) -> Result<(), DecodeError> {
    catalog.next_topic = next_topic;
    catalog.next_producer_id = next_producer_id;
    catalog.node_config = NodeConfig::parse(node_config)
        .map_err(|error| inconsistent("node configuration", error))?;
    if next_producer_id < 0 {
        return Err(inconsistent("producer id", next_producer_id));
    }
    for (name, overrides) in group_configs {
        match (validate_group_name(&name), GroupConfig::parse(&overrides)) {
            (Ok(()), Ok(config)) if !overrides.is_empty() => {
                catalog.group_configs.insert((&*name).into(), Arc::new(config));
            }
            _ => return Err(inconsistent("the configuration of group", name)),
        }
    }
    Ok(())
}

/// Returns whether the topic deletes settled records.
pub(super) fn restore_topic(
    catalog: &mut Catalog,
    head: TopicHead<'_>,
    partitions: u64,
    placement: Placement,
) -> Result<bool, DecodeError> {
    let TopicHead { id, uuid, name, created_ms, overrides } = head;
    let id = TopicId(id);
    let config = TopicConfig::parse(&catalog.node_config, &overrides);
    let consistent = validate_topic_name(&name).is_ok()
        && id.0 < catalog.next_topic
        && catalog.topic(id).is_none()
        && catalog.topic_named(&name).is_none()
        && !uuid.is_nil()
        && catalog.topic_with_uuid(&uuid).is_none()
        && (1..=u64::from(PARTITIONS_PER_TOPIC_MAX)).contains(&partitions);
    let (true, Ok(config)) = (consistent, config) else {
        return Err(inconsistent("topic", name));
    };
    let deletes_settled = config.retention_settled;
    let (overrides, config) = catalog.topic_configs.share(&overrides, config);
    catalog.insert_topic(Topic {
        id,
        uuid,
        name: Arc::from(name),
        created_ms,
        config,
        overrides,
        partition_count: partitions as u32,
        placement,
        moving: BTreeMap::new(),
    });
    Ok(deletes_settled)
}

pub(super) fn restore_lease_group(
    catalog: &mut Catalog,
    head: GroupHead<'_>,
    starts: Option<Arc<[u64]>>,
) -> Result<(), DecodeError> {
    let GroupHead { id, topic, name, overrides, paused, created_ms } = head;
    let (id, topic) = (LeaseGroupId(id), TopicId(topic));
    let config = LeaseGroupConfig::parse(&overrides);
    let partitions = catalog.topic(topic).map(Topic::partition_count);
    let consistent = validate_group_name(&name).is_ok()
        && id.0 < catalog.lease_groups.next
        && catalog.lease_group(id).is_none()
        && catalog.lease_group_named(topic, &name).is_none()
        && partitions.is_some_and(|partitions| {
            catalog.lease_groups.check_partitions(partitions.into()).is_ok()
        });
    let (true, Some(partitions), Ok(config)) = (consistent, partitions, config) else {
        return Err(inconsistent("lease group", name));
    };
    let (overrides, config) = catalog.lease_groups.configs.share(&overrides, config);
    let name = shared_name(&name);
    let group = LeaseGroup { id, topic, name, config, overrides, starts, paused, created_ms };
    catalog.lease_groups.insert(group, partitions);
    Ok(())
}

pub(super) fn put_documents(mut bytes: Vec<u8>, documents: &Documents) -> Vec<u8> {
    for (space, name, document) in documents.iter() {
        let (space, name) = (space.into(), name.into());
        let body = Cow::Borrowed(&document.body[..]);
        bytes = put(bytes, &DocumentV2 { space, name, version: document.version, body });
    }
    bytes
}

pub(super) fn restore_documents(
    catalog: &mut Catalog,
    version: u64,
    count: u64,
    body: &mut &[u8],
) -> Result<(), DecodeError> {
    catalog.documents.set_version(version);
    for _ in 0..count {
        let DocumentV2 { space, name, version, body } = take(body, "a document")?;
        let document = Document { version, body: body.into() };
        if !catalog.documents.restore(&space, &name, document) {
            return Err(inconsistent("document", name));
        }
    }
    Ok(())
}
