//! Catalog and rows of one log (versions 1 to 3), as written before shards were separate.
//!
//! ```text
//! body: CatalogV1, topics x (TopicV1, its PartitionV1s) by id,
//!       groups x (GroupV1, its CommittedOffsetV1s) by name,
//!       DeliveryV2, lease groups x (LeaseGroupV2, its ProgressV2s, LeaseGroupEndV2) by id,
//!       documents x DocumentV2 by space and name, TimeV3
//! ```
//!
//! Version 3 is written. Version 2, which ends with the documents, and version 1, which ends with
//! the groups, can still be read.

use std::borrow::Cow;
use std::sync::Arc;

use base::{LeaseGroupId, SharedMap, Stripe, TopicId};

use super::catalog::{
    GroupHead, TopicHead, put_documents, restore_documents, restore_head, restore_lease_group,
    restore_topic, stored_group_configs,
};
use super::rows::{
    is_sound, put_groups, put_partitions, put_progress, take_group, take_partitions, take_progress,
};
use super::{inconsistent, put, take};
use crate::catalog::document::Documents;
use crate::catalog::lease_groups::LeaseGroup;
use crate::catalog::placement::Placement;
use crate::catalog::topic::Topic;
use crate::config::{GroupConfig, Overrides};
use crate::entry::DecodeError;
use crate::rows::group::Group;
use crate::rows::lease_group::GroupRows;
use crate::rows::partition::Partition;
use crate::rows::topic::TopicRows;
use crate::state::State;
use crate::stored::{CatalogV1, DeliveryV2, LeaseGroupEndV2, LeaseGroupV2, TimeV3, TopicV1};

/// The version that is written.
pub(super) const VERSION: u16 = 3;
/// The first version with lease groups and documents.
const DELIVERY_SINCE: u16 = 2;
/// The first version with the time of the log.
const TIME_SINCE: u16 = 3;

#[derive(Clone, Debug)]
pub(super) struct WholeImage {
    next_topic: u32,
    next_producer_id: i64,
    node_config: Overrides,
    group_configs: SharedMap<Arc<str>, Arc<GroupConfig>>,
    topics: SharedMap<TopicId, Arc<Topic>>,
    topic_rows: SharedMap<TopicId, Arc<TopicRows>>,
    groups: SharedMap<Arc<str>, Arc<Group>>,
    next_lease_group: u32,
    lease_groups: SharedMap<LeaseGroupId, Arc<LeaseGroup>>,
    lease_group_rows: SharedMap<LeaseGroupId, Arc<GroupRows>>,
    documents: Documents,
    last_ms: i64,
}

impl WholeImage {
    pub(super) fn of(state: &State) -> Self {
        let State { catalog, rows, last_ms, .. } = state;
        Self {
            next_topic: catalog.next_topic,
            next_producer_id: catalog.next_producer_id,
            node_config: catalog.node_config.overrides.clone(),
            group_configs: catalog.group_configs.clone(),
            topics: catalog.topics.clone(),
            topic_rows: rows.topics.clone(),
            groups: rows.offsets.groups.clone(),
            next_lease_group: catalog.lease_groups.next,
            lease_groups: catalog.lease_groups.by_id.clone(),
            lease_group_rows: rows.lease_groups.clone(),
            documents: catalog.documents.clone(),
            last_ms: *last_ms,
        }
    }

    pub(super) fn encode(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes = put(
            bytes,
            &CatalogV1 {
                next_topic: self.next_topic,
                next_producer_id: self.next_producer_id,
                node_config: Cow::Borrowed(&self.node_config),
                group_configs: stored_group_configs(&self.group_configs),
                topics: self.topics.len() as u64,
                groups: self.groups.len() as u64,
            },
        );
        for topic in self.topics.values() {
            bytes = put(bytes, &TopicV1::from(&**topic));
            bytes = put_partitions(bytes, &self.topic_rows[&topic.id]);
        }
        bytes = put_groups(bytes, &self.groups);
        bytes = put(
            bytes,
            &DeliveryV2 {
                next_lease_group: self.next_lease_group,
                documents_version: self.documents.version(),
                lease_groups: self.lease_groups.len() as u64,
                documents: self.documents.len() as u64,
            },
        );
        for group in self.lease_groups.values() {
            let rows = &self.lease_group_rows[&group.id];
            bytes = put(
                bytes,
                &LeaseGroupV2 {
                    id: group.id.0,
                    topic: group.topic.0,
                    name: Cow::Borrowed(&group.name),
                    overrides: Cow::Borrowed(&group.overrides),
                    partitions: rows.progress.len() as u64,
                },
            );
            bytes = put_progress(bytes, rows);
            let LeaseGroup { paused, created_ms, .. } = **group;
            bytes = put(bytes, &LeaseGroupEndV2 { paused, created_ms });
        }
        bytes = put_documents(bytes, &self.documents);
        put(bytes, &TimeV3 { last_ms: self.last_ms })
    }
}

pub(super) fn decode(version: u16, body: &mut &[u8]) -> Result<State, DecodeError> {
    let mut state = State::new();
    let State { catalog, rows, .. } = &mut state;
    let stored: CatalogV1<'_> = take(body, "the catalog")?;
    restore_head(
        catalog,
        stored.next_topic,
        stored.next_producer_id,
        &stored.node_config,
        stored.group_configs,
    )?;
    for _ in 0..stored.topics {
        let TopicV1 { id, uuid, name, created_ms, overrides, partitions } = take(body, "a topic")?;
        let partitions = take_partitions(partitions, body)?;
        if !partitions.iter().all(Partition::is_sound) {
            return Err(inconsistent("topic", name));
        }
        let head = TopicHead { id, uuid, name, created_ms, overrides };
        let count = partitions.len() as u64;
        let deletes_settled = restore_topic(catalog, head, count, Placement::ALL_IN_FIRST)?;
        rows.insert_topic(TopicId(id), Stripe::ALL, partitions.into(), deletes_settled);
    }
    for _ in 0..stored.groups {
        take_group(rows, body, |partition| {
            let topic = catalog.topic(partition.topic);
            topic.is_some_and(|topic| topic.has_partition(partition.index))
        })?;
    }
    if version >= DELIVERY_SINCE {
        let delivery: DeliveryV2 = take(body, "lease groups and documents")?;
        catalog.lease_groups.next = delivery.next_lease_group;
        for _ in 0..delivery.lease_groups {
            let LeaseGroupV2 { id, topic, name, overrides, partitions } =
                take(body, "a lease group")?;
            let progress = take_progress(partitions, body)?;
            let LeaseGroupEndV2 { paused, created_ms } = take(body, "a lease group")?;
            if !is_sound(rows, TopicId(topic), &progress) {
                return Err(inconsistent("lease group", name));
            }
            let head = GroupHead { id, topic, name, overrides, paused, created_ms };
            restore_lease_group(catalog, head, None)?;
            rows.insert_lease_group(LeaseGroupId(id), TopicId(topic), progress.into());
        }
        restore_documents(catalog, delivery.documents_version, delivery.documents, body)?;
    }
    state.last_ms = match version {
        TIME_SINCE.. => take::<TimeV3>(body, "the time")?.last_ms,
        _ => latest_ms(&state),
    };
    Ok(state)
}

/// The latest time in the state, for snapshots without the log's time.
fn latest_ms(state: &State) -> i64 {
    let topics = state.catalog.topics().map(|topic| topic.created_ms);
    let partitions = state.rows.topics().flat_map(TopicRows::partitions);
    let appends = partitions.filter_map(|(_, partition)| partition.last_append_ms());
    let offsets = state.rows.groups().flat_map(|(_, group)| group.offsets.values());
    let commits = offsets.map(|committed| committed.commit_ms);
    topics.chain(appends).chain(commits).max().unwrap_or(0)
}

impl<'a> From<&'a Topic> for TopicV1<'a> {
    fn from(topic: &'a Topic) -> Self {
        Self {
            id: topic.id.0,
            uuid: topic.uuid,
            name: Cow::Borrowed(&topic.name),
            created_ms: topic.created_ms,
            overrides: Cow::Borrowed(&topic.overrides),
            partitions: topic.partition_count.into(),
        }
    }
}
