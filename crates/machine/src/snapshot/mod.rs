//! The state as bytes. A snapshot is read back from a disk or from a peer, so nothing in it is
//! believed: checksum first, then every field is bounded by the bytes that are there, then the
//! whole must be consistent. The persisted form has its own types: the state's may change freely.
//!
//! ```text
//! magic "PRMS" | version u16 | 0 u16 | CRC32C of the body u32   (little-endian)
//! body: CatalogV1, topics x (TopicV1, its PartitionV1s) by id,
//!       groups x (GroupV1, its CommittedOffsetV1s) by name,
//!       DeliveryV2, lease groups x (LeaseGroupV2, its ProgressV2s, LeaseGroupEndV2) by id,
//!       documents x DocumentV2 by space and name, TimeV3   (postcard)
//! ```
//!
//! Version 3 is written. Version 2, which ends with the documents, and version 1, which ends with
//! the groups, are still read.

use std::borrow::Cow;
use std::sync::Arc;

use base::checksum::crc32c;
use base::limits::PARTITIONS_PER_TOPIC_MAX;
use base::{LeaseGroupId, PartitionId, SharedMap, TopicId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::catalog::document::{Document, Documents};
use crate::catalog::lease_groups::{LeaseGroup, shared_name};
use crate::catalog::topic::{Topic, validate_topic_name};
use crate::config::{GroupConfig, LeaseGroupConfig, NodeConfig, Overrides, TopicConfig};
use crate::entry::DecodeError;
use crate::rows::group::{CommittedOffset, Group, validate_group_name};
use crate::rows::lease_group::GroupRows;
use crate::rows::partition::Partition;
use crate::rows::progress::Progress;
use crate::rows::stripe::Stripe;
use crate::rows::topic::TopicRows;
use crate::state::State;

pub(crate) mod stored;

use stored::{
    CatalogV1, CommittedOffsetV1, DeliveryV2, DocumentV2, GroupV1, LeaseGroupEndV2, LeaseGroupV2,
    PartitionV1, ProgressV2, TimeV3, TopicV1,
};

const MAGIC: [u8; 4] = *b"PRMS";
const VERSION: u16 = 3;
/// The first version with lease groups and documents.
const DELIVERY_SINCE: u16 = 2;
/// The first version with the time of the log.
const TIME_SINCE: u16 = 3;
const HEADER_BYTES: usize = 12;

/// A state as it was, for another thread to encode. It shares everything with the state that it was
/// taken of; what of that the state changes afterwards is kept here as it was.
#[derive(Clone, Debug)]
pub struct Image {
    next_topic: u32,
    next_producer_id: i64,
    node_config: Overrides,
    group_configs: SharedMap<Arc<str>, Arc<GroupConfig>>,
    topics: SharedMap<TopicId, Arc<Topic>>,
    topic_rows: SharedMap<TopicId, Arc<TopicRows>>,
    partition_count: u64,
    groups: SharedMap<Arc<str>, Arc<Group>>,
    next_lease_group: u32,
    lease_groups: SharedMap<LeaseGroupId, Arc<LeaseGroup>>,
    lease_group_rows: SharedMap<LeaseGroupId, Arc<GroupRows>>,
    documents: Documents,
    last_ms: i64,
}

impl Image {
    /// The whole state. Two states with the same history have the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Three bytes are an idle partition; the rest grows.
        let mut bytes = Vec::with_capacity(4096 + 3 * self.partition_count as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        let configs = self.group_configs.iter();
        bytes = put(
            bytes,
            &CatalogV1 {
                next_topic: self.next_topic,
                next_producer_id: self.next_producer_id,
                node_config: Cow::Borrowed(&self.node_config),
                group_configs: configs
                    .map(|(name, config)| ((&**name).into(), Cow::Borrowed(&config.overrides)))
                    .collect(),
                topics: self.topics.len() as u64,
                groups: self.groups.len() as u64,
            },
        );
        for topic in self.topics.values() {
            bytes = put(bytes, &TopicV1::from(&**topic));
            for (_, partition) in self.topic_rows[&topic.id].partitions() {
                bytes = put(bytes, &partition.stored());
            }
        }
        for (name, group) in &self.groups {
            let offsets = group.offsets.len() as u64;
            bytes = put(bytes, &GroupV1 { name: (&**name).into(), offsets });
            for (&partition, committed) in &group.offsets {
                bytes = put(bytes, &committed.stored(partition));
            }
        }
        bytes = self.encode_delivery(bytes);
        bytes = put(bytes, &TimeV3 { last_ms: self.last_ms });
        let checksum = crc32c(&bytes[HEADER_BYTES..]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn encode_delivery(&self, mut bytes: Vec<u8>) -> Vec<u8> {
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
            let progress = &self.lease_group_rows[&group.id].progress;
            bytes = put(
                bytes,
                &LeaseGroupV2 {
                    id: group.id.0,
                    topic: group.topic.0,
                    name: Cow::Borrowed(&group.name),
                    overrides: Cow::Borrowed(&group.overrides),
                    partitions: progress.len() as u64,
                },
            );
            for progress in progress {
                bytes = put(bytes, &progress.stored());
            }
            let LeaseGroup { paused, created_ms, .. } = **group;
            bytes = put(bytes, &LeaseGroupEndV2 { paused, created_ms });
        }
        for (space, name, document) in self.documents.iter() {
            let (space, name) = (space.into(), name.into());
            let body = Cow::Borrowed(&document.body[..]);
            bytes = put(bytes, &DocumentV2 { space, name, version: document.version, body });
        }
        bytes
    }
}

impl State {
    /// The state as it stands. Costs a look at each chunk of the outermost maps, some microseconds
    /// for each thousand topics; the first change of a chunk afterwards copies that chunk.
    pub fn capture(&self) -> Image {
        let Self { catalog, rows, last_ms } = self;
        Image {
            next_topic: catalog.next_topic,
            next_producer_id: catalog.next_producer_id,
            node_config: catalog.node_config.overrides.clone(),
            group_configs: catalog.group_configs.clone(),
            topics: catalog.topics.clone(),
            topic_rows: rows.topics.clone(),
            partition_count: catalog.partition_count(),
            groups: rows.offsets.groups.clone(),
            next_lease_group: catalog.lease_groups.next,
            lease_groups: catalog.lease_groups.by_id.clone(),
            lease_group_rows: rows.lease_groups.clone(),
            documents: catalog.documents.clone(),
            last_ms: *last_ms,
        }
    }

    /// See [`Image::encode`].
    pub fn encode(&self) -> Vec<u8> {
        self.capture().encode()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, mut body) = open(bytes)?;
        let catalog: CatalogV1<'_> = take(&mut body, "the catalog")?;
        let mut state = State::new();
        state.catalog.next_topic = catalog.next_topic;
        state.catalog.next_producer_id = catalog.next_producer_id;
        state.catalog.node_config = NodeConfig::parse(&catalog.node_config)
            .map_err(|error| inconsistent("node configuration", error.to_string()))?;
        if state.catalog.next_producer_id < 0 {
            return Err(inconsistent("producer id", state.catalog.next_producer_id.to_string()));
        }
        for (name, overrides) in catalog.group_configs {
            state.put_group_config(name.into_owned(), &overrides)?;
        }
        for _ in 0..catalog.topics {
            state.decode_topic(&mut body)?;
        }
        for _ in 0..catalog.groups {
            state.decode_group(&mut body)?;
        }
        if version >= DELIVERY_SINCE {
            state.decode_delivery(&mut body)?;
        }
        state.last_ms = match version {
            TIME_SINCE.. => take::<TimeV3>(&mut body, "the time")?.last_ms,
            _ => state.latest_ms(),
        };
        if body.is_empty() { Ok(state) } else { Err(DecodeError::LeftOver { bytes: body.len() }) }
    }

    fn decode_delivery(&mut self, body: &mut &[u8]) -> Result<(), DecodeError> {
        let delivery: DeliveryV2 = take(body, "lease groups and documents")?;
        self.catalog.lease_groups.next = delivery.next_lease_group;
        self.catalog.documents.set_version(delivery.documents_version);
        for _ in 0..delivery.lease_groups {
            self.decode_lease_group(body)?;
        }
        for _ in 0..delivery.documents {
            let DocumentV2 { space, name, version, body } = take(body, "a document")?;
            let document = Document { version, body: body.into() };
            if !self.catalog.documents.restore(&space, &name, document) {
                return Err(inconsistent("document", name.into_owned()));
            }
        }
        Ok(())
    }

    fn decode_lease_group(&mut self, body: &mut &[u8]) -> Result<(), DecodeError> {
        let stored: LeaseGroupV2<'_> = take(body, "a lease group")?;
        let mut progress = with_room_for(stored.partitions, body);
        for _ in 0..stored.partitions {
            progress.push(Progress::from(take::<ProgressV2<'_>>(body, "progress")?));
        }
        let LeaseGroupEndV2 { paused, created_ms } = take(body, "a lease group")?;
        let (id, topic) = (LeaseGroupId(stored.id), TopicId(stored.topic));
        let config = LeaseGroupConfig::parse(&stored.overrides);
        let consistent = validate_group_name(&stored.name).is_ok()
            && id.0 < self.catalog.lease_groups.next
            && self.catalog.lease_group(id).is_none()
            && self.catalog.lease_group_named(topic, &stored.name).is_none()
            && self.catalog.lease_groups.check_partitions(progress.len() as u64).is_ok()
            && self.rows.topic(topic).is_some_and(|topic| {
                progress.len() == topic.row_count()
                    && progress.iter().zip(topic.partitions()).all(|(progress, (_, of))| {
                        progress.is_sound(of.log_start(), of.next_offset())
                    })
            });
        let (true, Ok(config)) = (consistent, config) else {
            return Err(inconsistent("lease group", stored.name.into_owned()));
        };
        let (overrides, config) =
            self.catalog.lease_groups.configs.share(&stored.overrides, config);
        let name = shared_name(&stored.name);
        let partitions = progress.len() as u32;
        let group = LeaseGroup { id, topic, name, config, overrides, paused, created_ms };
        self.catalog.lease_groups.insert(group, partitions);
        self.rows.insert_lease_group(id, topic, progress.into());
        Ok(())
    }

    fn put_group_config(&mut self, name: String, overrides: &Overrides) -> Result<(), DecodeError> {
        let config = GroupConfig::parse(overrides);
        match (validate_group_name(&name), config) {
            (Ok(()), Ok(config)) if !overrides.is_empty() => {
                self.catalog.group_configs.insert(name.into(), Arc::new(config));
                Ok(())
            }
            _ => Err(inconsistent("the configuration of group", name)),
        }
    }

    fn decode_topic(&mut self, body: &mut &[u8]) -> Result<(), DecodeError> {
        let stored: TopicV1<'_> = take(body, "a topic")?;
        let mut partitions = with_room_for(stored.partitions, body);
        for _ in 0..stored.partitions {
            partitions.push(Partition::from(take::<PartitionV1>(body, "a partition")?));
        }
        let id = TopicId(stored.id);
        let config = TopicConfig::parse(&self.catalog.node_config, &stored.overrides);
        let consistent = validate_topic_name(&stored.name).is_ok()
            && id.0 < self.catalog.next_topic
            && self.catalog.topic(id).is_none()
            && self.catalog.topic_named(&stored.name).is_none()
            && !stored.uuid.is_nil()
            && self.catalog.topic_with_uuid(&stored.uuid).is_none()
            && (1..=PARTITIONS_PER_TOPIC_MAX as usize).contains(&partitions.len())
            && partitions.iter().all(Partition::is_sound);
        let (true, Ok(config)) = (consistent, config) else {
            return Err(inconsistent("topic", stored.name.into_owned()));
        };
        let deletes_settled = config.retention_settled;
        let (overrides, config) = self.catalog.topic_configs.share(&stored.overrides, config);
        self.catalog.insert_topic(Topic {
            id,
            uuid: stored.uuid,
            name: Arc::from(stored.name),
            created_ms: stored.created_ms,
            config,
            overrides,
            partition_count: partitions.len() as u32,
        });
        self.rows.insert_topic(id, Stripe::ALL, partitions.into(), deletes_settled);
        Ok(())
    }

    fn decode_group(&mut self, body: &mut &[u8]) -> Result<(), DecodeError> {
        let stored: GroupV1<'_> = take(body, "a group")?;
        let mut group = Group::default();
        for _ in 0..stored.offsets {
            let committed: CommittedOffsetV1<'_> = take(body, "a committed offset")?;
            let partition = PartitionId::new(TopicId(committed.topic), committed.partition);
            group.offsets.insert(partition, CommittedOffset::from(committed));
        }
        let consistent = validate_group_name(&stored.name).is_ok()
            && self.rows.group(&stored.name).is_none()
            && !group.offsets.is_empty()
            && group.offsets.iter().all(|(&partition, committed)| {
                self.rows.partition(partition).is_some() && committed.is_sound()
            });
        if !consistent {
            return Err(inconsistent("group", stored.name.into_owned()));
        }
        self.rows.offsets.insert(&stored.name, group.offsets);
        Ok(())
    }

    /// The latest time that anything in it bears, for snapshots that do not say the log's.
    fn latest_ms(&self) -> i64 {
        let topics = self.catalog.topics().map(|topic| topic.created_ms);
        let partitions = self.rows.topics().flat_map(TopicRows::partitions);
        let appends = partitions.filter_map(|(_, partition)| partition.last_append_ms());
        let offsets = self.rows.groups().flat_map(|(_, group)| group.offsets.values());
        let commits = offsets.map(|committed| committed.commit_ms);
        topics.chain(appends).chain(commits).max().unwrap_or(0)
    }
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

/// Version and body, once the header is right.
fn open(bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(if bytes.is_empty() { DecodeError::Empty } else { DecodeError::NotASnapshot });
    };
    let [m0, m1, m2, m3, v0, v1, r0, r1, c0, c1, c2, c3] = *header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(DecodeError::NotASnapshot);
    }
    let version = u16::from_le_bytes([v0, v1]);
    if !(1..=VERSION).contains(&version) || [r0, r1] != [0, 0] {
        let (found, known) = (version.into(), VERSION.into());
        return Err(DecodeError::UnknownVersion { found, known });
    }
    let (expected, found) = (u32::from_le_bytes([c0, c1, c2, c3]), crc32c(body));
    if expected != found {
        return Err(DecodeError::Checksum { expected, found });
    }
    Ok((version, body))
}

fn put<T: Serialize>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes)
        .expect("a vector grows, and the state holds no type that postcard cannot encode")
}

fn take<T: DeserializeOwned>(body: &mut &[u8], what: &'static str) -> Result<T, DecodeError> {
    let (value, rest) = postcard::take_from_bytes(body)
        .map_err(|source| DecodeError::Malformed { what, source })?;
    *body = rest;
    Ok(value)
}

/// For `count` things that take a byte at least, never more than the bytes that are there.
fn with_room_for<T>(count: u64, body: &[u8]) -> Vec<T> {
    Vec::with_capacity(count.min(body.len() as u64) as usize)
}

fn inconsistent(what: &'static str, name: String) -> DecodeError {
    DecodeError::Inconsistent { what, name }
}
