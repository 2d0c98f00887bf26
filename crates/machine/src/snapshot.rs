//! The state as bytes. A snapshot is read back from a disk or from a peer, so nothing in it is
//! believed: checksum first, then every field is bounded by the bytes that are there, then the
//! whole must be consistent. The persisted form has its own types: the state's may change freely.
//!
//! ```text
//! magic "PRMS" | version u16 | 0 u16 | CRC32C of the body u32   (little-endian)
//! body: CatalogV1, topics × TopicV1 (by id), groups × GroupV1 (by name),
//!       DeliveryV2, lease groups × LeaseGroupV2 (by id), documents × DocumentV2 (by space, name)
//!       (postcard)
//! ```
//!
//! Version 2 is written; version 1, which ends with the groups, is still read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::checksum::crc32c;
use base::limits::PARTITIONS_PER_TOPIC_MAX;
use base::{LeaseGroupId, PartitionId, TopicId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::command::{DecodeError, uuid_bytes};
use crate::config::{GroupConfig, LeaseGroupConfig, NodeConfig, Overrides, TopicConfig};
use crate::document::Document;
use crate::group::{CommittedOffset, validate_group_name};
use crate::lease_group::{LeaseGroup, shared_name};
use crate::partition::Partition;
use crate::progress::Progress;
use crate::state::State;
use crate::topic::{Topic, validate_topic_name};

const MAGIC: [u8; 4] = *b"PRMS";
const VERSION: u16 = 2;
/// The first version with lease groups and documents.
const DELIVERY_SINCE: u16 = 2;
const HEADER_BYTES: usize = 12;

#[derive(Serialize, Deserialize)]
struct CatalogV1<'a> {
    next_topic: u32,
    next_producer_id: i64,
    node_config: Cow<'a, Overrides>,
    group_configs: BTreeMap<Cow<'a, str>, Cow<'a, Overrides>>,
    topics: u64,
    groups: u64,
}

#[derive(Serialize, Deserialize)]
struct TopicV1<'a> {
    id: TopicId,
    #[serde(with = "uuid_bytes")]
    uuid: Uuid,
    name: Cow<'a, str>,
    created_ms: i64,
    overrides: Cow<'a, Overrides>,
    partitions: Cow<'a, [Partition]>,
}

#[derive(Serialize, Deserialize)]
struct GroupV1<'a> {
    name: Cow<'a, str>,
    offsets: Cow<'a, BTreeMap<PartitionId, CommittedOffset>>,
}

#[derive(Serialize, Deserialize)]
struct DeliveryV2 {
    next_lease_group: u32,
    documents_version: u64,
    lease_groups: u64,
    documents: u64,
}

#[derive(Serialize, Deserialize)]
struct LeaseGroupV2<'a> {
    id: LeaseGroupId,
    topic: TopicId,
    name: Cow<'a, str>,
    overrides: Cow<'a, Overrides>,
    progress: Cow<'a, [Progress]>,
    paused: bool,
    created_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct DocumentV2<'a> {
    space: Cow<'a, str>,
    name: Cow<'a, str>,
    version: u64,
    body: Cow<'a, [u8]>,
}

impl State {
    /// The whole state. Two states with the same history have the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Three bytes are an idle partition; the rest grows.
        let mut bytes = Vec::with_capacity(4096 + 3 * self.partition_count() as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        let configs = self.group_configs.iter();
        bytes = put(
            bytes,
            &CatalogV1 {
                next_topic: self.next_topic,
                next_producer_id: self.next_producer_id,
                node_config: Cow::Borrowed(&self.node_config.overrides),
                group_configs: configs
                    .map(|(name, config)| (name.into(), Cow::Borrowed(&config.overrides)))
                    .collect(),
                topics: self.topics.len() as u64,
                groups: self.groups.len() as u64,
            },
        );
        let mut topics: Vec<&Topic> = self.topics.values().map(Box::as_ref).collect();
        topics.sort_unstable_by_key(|topic| topic.id);
        for topic in topics {
            bytes = put(bytes, &TopicV1::from(topic));
        }
        for (name, group) in self.groups.iter() {
            let offsets = Cow::Borrowed(&group.offsets);
            bytes = put(bytes, &GroupV1 { name: name.into(), offsets });
        }
        bytes = self.encode_delivery(bytes);
        let checksum = crc32c(&bytes[HEADER_BYTES..]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn encode_delivery(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes = put(
            bytes,
            &DeliveryV2 {
                next_lease_group: self.lease_groups.next,
                documents_version: self.documents.version(),
                lease_groups: self.lease_groups.len() as u64,
                documents: self.documents.len() as u64,
            },
        );
        for group in self.lease_groups.iter() {
            bytes = put(bytes, &LeaseGroupV2::from(group));
        }
        for (space, name, document) in self.documents.iter() {
            let (space, name) = (space.into(), name.into());
            let body = Cow::Borrowed(&document.body[..]);
            bytes = put(bytes, &DocumentV2 { space, name, version: document.version, body });
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, mut body) = open(bytes)?;
        let catalog: CatalogV1<'_> = take(&mut body, "the catalog")?;
        let mut state = State::new();
        state.next_topic = catalog.next_topic;
        state.next_producer_id = catalog.next_producer_id;
        state.node_config = NodeConfig::parse(&catalog.node_config)
            .map_err(|error| inconsistent("node configuration", error.to_string()))?;
        if state.next_producer_id < 0 {
            return Err(inconsistent("producer id", state.next_producer_id.to_string()));
        }
        for (name, overrides) in catalog.group_configs {
            state.put_group_config(name.into_owned(), &overrides)?;
        }
        for _ in 0..catalog.topics {
            state.put_topic(take(&mut body, "a topic")?)?;
        }
        for _ in 0..catalog.groups {
            state.put_group(take(&mut body, "a group")?)?;
        }
        if version >= DELIVERY_SINCE {
            state.decode_delivery(&mut body)?;
        }
        if body.is_empty() { Ok(state) } else { Err(DecodeError::LeftOver { bytes: body.len() }) }
    }

    fn decode_delivery(&mut self, body: &mut &[u8]) -> Result<(), DecodeError> {
        let delivery: DeliveryV2 = take(body, "lease groups and documents")?;
        self.lease_groups.next = delivery.next_lease_group;
        self.documents.set_version(delivery.documents_version);
        for _ in 0..delivery.lease_groups {
            self.put_lease_group(take(body, "a lease group")?)?;
        }
        for _ in 0..delivery.documents {
            let DocumentV2 { space, name, version, body } = take(body, "a document")?;
            let document = Document { version, body: body.into() };
            if !self.documents.restore(&space, &name, document) {
                return Err(inconsistent("document", name.into_owned()));
            }
        }
        Ok(())
    }

    fn put_lease_group(&mut self, stored: LeaseGroupV2<'_>) -> Result<(), DecodeError> {
        let config = LeaseGroupConfig::parse(&stored.overrides);
        let (next, count) = (self.lease_groups.next, stored.progress.len());
        let consistent =
            validate_group_name(&stored.name).is_ok()
                && stored.id.0 < next
                && self.lease_group(stored.id).is_none()
                && self.lease_group_named(stored.topic, &stored.name).is_none()
                && self.lease_groups.check_partitions(count as u64).is_ok()
                && self.topic(stored.topic).is_some_and(|topic| {
                    let partitions = topic.partitions.iter();
                    count == topic.partitions.len()
                        && stored.progress.iter().zip(partitions).all(|(progress, of)| {
                            progress.is_sound(of.log_start(), of.next_offset())
                        })
                });
        let (true, Ok(config)) = (consistent, config) else {
            return Err(inconsistent("lease group", stored.name.into_owned()));
        };
        let mut progress = stored.progress.into_owned();
        progress.shrink_to_fit();
        let (overrides, config) = self.lease_groups.configs.share(&stored.overrides, config);
        self.lease_groups.insert(LeaseGroup {
            id: stored.id,
            topic: stored.topic,
            name: shared_name(&stored.name),
            config,
            overrides,
            progress,
            paused: stored.paused,
            created_ms: stored.created_ms,
        });
        Ok(())
    }

    fn put_group_config(&mut self, name: String, overrides: &Overrides) -> Result<(), DecodeError> {
        let config = GroupConfig::parse(overrides);
        match (validate_group_name(&name), config) {
            (Ok(()), Ok(config)) if !overrides.is_empty() => {
                self.group_configs.insert(name, config);
                Ok(())
            }
            _ => Err(inconsistent("the configuration of group", name)),
        }
    }

    fn put_topic(&mut self, stored: TopicV1<'_>) -> Result<(), DecodeError> {
        let config = TopicConfig::parse(&self.node_config, &stored.overrides);
        let count = stored.partitions.len();
        let consistent = validate_topic_name(&stored.name).is_ok()
            && stored.id.0 < self.next_topic
            && self.topic(stored.id).is_none()
            && self.topic_named(&stored.name).is_none()
            && !stored.uuid.is_nil()
            && self.topic_with_uuid(&stored.uuid).is_none()
            && (1..=PARTITIONS_PER_TOPIC_MAX as usize).contains(&count)
            && stored.partitions.iter().all(Partition::is_sound);
        let (true, Ok(config)) = (consistent, config) else {
            return Err(inconsistent("topic", stored.name.into_owned()));
        };
        let mut partitions = stored.partitions.into_owned();
        partitions.shrink_to_fit();
        partitions.iter_mut().for_each(Partition::shrink);
        let (overrides, config) = self.topic_configs.share(&stored.overrides, config);
        self.insert_topic(Topic {
            id: stored.id,
            uuid: stored.uuid,
            name: Arc::from(stored.name),
            created_ms: stored.created_ms,
            config,
            overrides,
            partitions,
        });
        Ok(())
    }

    fn put_group(&mut self, stored: GroupV1<'_>) -> Result<(), DecodeError> {
        let consistent = validate_group_name(&stored.name).is_ok()
            && self.group(&stored.name).is_none()
            && !stored.offsets.is_empty()
            && stored.offsets.iter().all(|(&partition, committed)| {
                self.partition(partition).is_some() && committed.is_sound()
            });
        if !consistent {
            return Err(inconsistent("group", stored.name.into_owned()));
        }
        self.groups.insert(&stored.name, stored.offsets.into_owned());
        Ok(())
    }
}

impl<'a> From<&'a Topic> for TopicV1<'a> {
    fn from(topic: &'a Topic) -> Self {
        Self {
            id: topic.id,
            uuid: topic.uuid,
            name: Cow::Borrowed(&topic.name),
            created_ms: topic.created_ms,
            overrides: Cow::Borrowed(&topic.overrides),
            partitions: Cow::Borrowed(&topic.partitions),
        }
    }
}

impl<'a> From<&'a LeaseGroup> for LeaseGroupV2<'a> {
    fn from(group: &'a LeaseGroup) -> Self {
        Self {
            id: group.id,
            topic: group.topic,
            name: Cow::Borrowed(&group.name),
            overrides: Cow::Borrowed(&group.overrides),
            progress: Cow::Borrowed(&group.progress),
            paused: group.paused,
            created_ms: group.created_ms,
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

fn inconsistent(what: &'static str, name: String) -> DecodeError {
    DecodeError::Inconsistent { what, name }
}
