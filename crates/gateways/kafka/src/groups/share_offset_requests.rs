//! How far a share group has come: DescribeShareGroupOffsets, AlterShareGroupOffsets,
//! DeleteShareGroupOffsets.
//!
//! What Kafka calls a share partition's start offset is the floor of the lease group: everything
//! below is settled. It may be moved only while the group has no members, as in Kafka; another
//! protocol's consumers of the same lease group go on from where it then is.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::PartitionId;
use base::limits::DESCRIBED_BYTES_MAX;
use broker::{ExecuteError, Pace};
use bytes::BufMut;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use kafka_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeShareGroupOffsetsRequest, GroupId, TopicName,
};
use machine::{Command, LeaseGroup, Refusal, State, Topic};
use uuid::Uuid;

use crate::errors::Fault;
use crate::gateway::Gateway;
use crate::groups::classic_requests::check_group_name;
use crate::groups::member::own;
use crate::groups::registry::Group;
use crate::groups::share_requests::{group_not_found, not_a_share_group};
use crate::list_response::{Chunks, too_much};
use crate::request::{Request, RequestError};
use crate::response::Response;
use crate::share::lease_groups::{self, Part};
use crate::wire::primitives::Put;

// -------------------------------------------------------------------------------------- describe

/// From this version on a partition's lag is told (KIP-1226).
const LAG_SINCE: i16 = 1;
/// There is no offset, or nobody knows the lag.
const NONE: i64 = -1;

#[derive(Debug)]
struct PartitionOffset {
    index: i32,
    start: i64,
    lag: i64,
}

/// Partitions that are looked at without a pause.
const PARTITIONS_AT_ONCE: u32 = 4_096;
/// A partition in the answer, with its lag.
const PARTITION_BYTES: usize = 28;
/// A topic in the answer, without its name and partitions.
const TOPIC_BYTES: usize = 24;

/// The message crate lacks version 1, whose request is that of version 0, and whose response has
/// its own codec here.
pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeShareGroupOffsetsRequest = request.decode_as(0)?;
    let (head, leader_epoch) = (request.head, gateway.broker.leader_epoch());
    let permit = gateway.described_room(named(&message), PARTITION_BYTES).await;
    let mut pace = Pace::new(gateway.broker.turns(), PARTITIONS_AT_ONCE);
    let mut chunks = Chunks::new(Response::begin(head.correlation, true, 1024));
    // Nobody is throttled.
    chunks.buffer.put_i32(0);
    chunks.buffer.put_count(message.groups.len(), true);
    for group in message.groups {
        let left = DESCRIBED_BYTES_MAX.saturating_sub(chunks.bytes());
        let name = group.group_id;
        pace.step(1).await;
        let described = described_topics(gateway, &name, group.topics, left);
        chunks.buffer.put_nullable_text(Some(&name), true);
        let topics = described.as_deref().unwrap_or_default();
        chunks.buffer.put_count(topics.len(), true);
        for topic in topics {
            put_topic(&mut chunks, &mut pace, head.version, leader_epoch, topic).await;
        }
        let fault = described.as_ref().err();
        chunks.buffer.put_i16(fault.map_or(0, Fault::code));
        chunks.buffer.put_nullable_text(fault.and_then(Fault::message), true);
        chunks.buffer.put_no_tagged_fields(true);
    }
    chunks.buffer.put_no_tagged_fields(true);
    Ok(chunks.finish().with_permit(permit))
}

/// Topics that a group is asked about, each with the partitions. A fault if they take more than
/// `left` bytes of the answer.
fn described_topics(
    gateway: &Gateway,
    name: &GroupId,
    topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>,
    left: usize,
) -> Result<Vec<DescribedTopic>, Fault> {
    check_group_name(name).map_err(Fault::plain)?;
    let has_members = share_group_has_members(gateway, name)?;
    let asked_of_all = topics.is_none();
    let described: Vec<DescribedTopic> = gateway.broker.read(|state| match topics {
        None => {
            let groups = state.lease_groups_with_name(name);
            let topics = groups.filter_map(|group| state.shared_topic(group.topic));
            let mut described: Vec<_> =
                topics.map(|topic| DescribedTopic::of(state, topic, name, None)).collect();
            described.sort_by(|one, other| one.name.cmp(&other.name));
            described
        }
        Some(topics) => {
            let described = topics.into_iter().map(|wanted| {
                let topic = state.topic_named(&wanted.topic_name).map(|topic| topic.id);
                match topic.and_then(|topic| state.shared_topic(topic)) {
                    Some(topic) => DescribedTopic::of(state, topic, name, Some(wanted.partitions)),
                    None => DescribedTopic {
                        name: wanted.topic_name.as_str().into(),
                        topic: None,
                        lease_group: None,
                        named: Some(wanted.partitions),
                    },
                }
            });
            described.collect()
        }
    });
    if asked_of_all && described.is_empty() && !has_members {
        return Err(group_not_found(name));
    }
    match described.iter().map(DescribedTopic::bytes).sum::<usize>() {
        bytes if bytes > left => Err(too_much()),
        _ => Ok(described),
    }
}

/// Partitions that the request names; of all topics, as many as an answer may have.
fn named(message: &DescribeShareGroupOffsetsRequest) -> usize {
    let groups = message.groups.iter().map(|group| match &group.topics {
        Some(topics) => topics.iter().map(|topic| topic.partitions.len()).sum(),
        None => DESCRIBED_BYTES_MAX / PARTITION_BYTES,
    });
    groups.fold(0, usize::saturating_add)
}

/// A topic and the group's part in it as they were at one time.
struct DescribedTopic {
    name: Arc<str>,
    topic: Option<Arc<Topic>>,
    lease_group: Option<Arc<LeaseGroup>>,
    /// `None`: all.
    named: Option<Vec<i32>>,
}

impl DescribedTopic {
    fn of(state: &State, topic: Arc<Topic>, group: &str, named: Option<Vec<i32>>) -> Self {
        let lease_group = state.lease_group_named(topic.id, group).map(|group| group.id);
        Self {
            name: Arc::clone(&topic.name),
            lease_group: lease_group.and_then(|id| state.shared_lease_group(id)),
            topic: Some(topic),
            named,
        }
    }

    fn partitions(&self) -> usize {
        let all = || self.topic.as_ref().map_or(0, |topic| topic.partition_count() as usize);
        self.named.as_ref().map_or_else(all, Vec::len)
    }

    /// In the answer.
    fn bytes(&self) -> usize {
        TOPIC_BYTES + self.name.len() + self.partitions() * PARTITION_BYTES
    }

    /// The offset of the partition that has this place in the answer.
    fn offset(&self, place: usize) -> PartitionOffset {
        let index = self.named.as_ref().map_or(place as i32, |named| named[place]);
        let known = self.topic.as_ref().zip(self.lease_group.as_ref());
        let found = known.and_then(|(topic, group)| partition_offset(topic, group, index));
        found.unwrap_or(no_offset(index))
    }
}

async fn put_topic(
    chunks: &mut Chunks,
    pace: &mut Pace,
    version: i16,
    leader_epoch: i32,
    topic: &DescribedTopic,
) {
    chunks.buffer.put_nullable_text(Some(&topic.name), true);
    chunks.buffer.put_uuid(topic.topic.as_ref().map_or(Uuid::nil(), |topic| topic.uuid));
    chunks.buffer.put_count(topic.partitions(), true);
    for place in 0..topic.partitions() {
        let partition = topic.offset(place);
        let out = &mut chunks.buffer;
        out.put_i32(partition.index);
        out.put_i64(partition.start);
        out.put_i32(if partition.start == NONE { 0 } else { leader_epoch });
        if version >= LAG_SINCE {
            out.put_i64(partition.lag);
        }
        out.put_i16(0);
        out.put_nullable_text(None, true);
        out.put_no_tagged_fields(true);
        chunks.cut(PARTITION_BYTES);
        pace.step(1).await;
    }
    chunks.buffer.put_no_tagged_fields(true);
}

/// The lag is what lies between the start and the end and is not settled.
fn partition_offset(topic: &Topic, group: &LeaseGroup, index: i32) -> Option<PartitionOffset> {
    let place = u32::try_from(index).ok()?;
    let (progress, partition) = (group.progress(place)?, topic.partition(place)?);
    let end = partition.next_offset();
    let settled: u64 = progress.settled().map(|(from, to)| to.min(end).saturating_sub(from)).sum();
    let start = progress.floor().max(partition.log_start());
    let lag = end.saturating_sub(start).saturating_sub(settled);
    Some(PartitionOffset { index, start: start as i64, lag: lag as i64 })
}

fn no_offset(index: i32) -> PartitionOffset {
    PartitionOffset { index, start: NONE, lag: NONE }
}

/// Whether the share group has members here; a fault if the name is another kind of group's.
fn share_group_has_members(gateway: &Gateway, name: &GroupId) -> Result<bool, Fault> {
    gateway.groups.visit(&name.0, |visit| match visit.group {
        Some(Group::Share(group)) => Ok(!group.is_empty()),
        Some(other) if !other.is_empty() => Err(not_a_share_group(name)),
        _ => Ok(false),
    })
}

fn check_empty(gateway: &Gateway, name: &GroupId) -> Result<(), Fault> {
    check_group_name(name).map_err(Fault::plain)?;
    if share_group_has_members(gateway, name)? {
        return Err(Fault::new(ResponseError::NonEmptyGroup, "The group is not empty."));
    }
    Ok(())
}

// ----------------------------------------------------------------------------------------- alter

pub(crate) async fn alter(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: AlterShareGroupOffsetsRequest = request.decode()?;
    let response = match check_alter(gateway, &message.group_id) {
        Ok(()) => {
            let mut responses = Vec::with_capacity(message.topics.len());
            for topic in &message.topics {
                responses.push(alter_topic(gateway, &message.group_id, topic).await);
            }
            AlterShareGroupOffsetsResponse::default().with_responses(responses)
        }
        Err(fault) => AlterShareGroupOffsetsResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes()),
    };
    Response::encode(&request.head, &response)
}

/// A group that does not exist is made, as in Kafka: who moves a group before it begins says where
/// it begins.
fn check_alter(gateway: &Gateway, name: &GroupId) -> Result<(), Fault> {
    check_empty(gateway, name)?;
    let has_offsets = gateway.broker.read(|state| state.group(name).is_some());
    if has_offsets { Err(not_a_share_group(name)) } else { Ok(()) }
}

async fn alter_topic(
    gateway: &Gateway,
    group: &GroupId,
    wanted: &AlterShareGroupOffsetsRequestTopic,
) -> AlterShareGroupOffsetsResponseTopic {
    let name = &wanted.topic_name;
    let found = gateway.broker.read(|state| {
        state.topic_named(name).map(|topic| (topic.id, topic.uuid, topic.partition_count()))
    });
    let mut moves = Vec::new();
    let mut results: Vec<Result<(), Fault>> = Vec::with_capacity(wanted.partitions.len());
    for partition in &wanted.partitions {
        let index = u32::try_from(partition.partition_index).ok();
        let index = found.zip(index).filter(|((.., count), index)| index < count);
        results.push(match index {
            Some(((topic, ..), index)) => {
                let id = PartitionId::new(topic, index);
                let start = start_within(gateway, id, partition.start_offset);
                moves.push((index, start));
                Ok(())
            }
            None => Err(Fault::unknown_partition()),
        });
    }
    if let Some((topic, ..)) = found
        && !moves.is_empty()
        && let Err(fault) = move_group(gateway, group, topic, moves).await
    {
        results.iter_mut().filter(|result| result.is_ok()).for_each(|r| *r = Err(fault.clone()));
    }
    let partitions = wanted.partitions.iter().zip(results).map(|(partition, result)| {
        let fault = result.err();
        AlterShareGroupOffsetsResponsePartition::default()
            .with_partition_index(partition.partition_index)
            .with_error_code(fault.as_ref().map_or(0, Fault::code))
            .with_error_message(fault.and_then(|fault| fault.message_bytes()))
    });
    AlterShareGroupOffsetsResponseTopic::default()
        .with_topic_name(name.clone())
        .with_topic_id(found.map_or(Uuid::nil(), |(_, uuid, _)| uuid))
        .with_partitions(partitions.collect())
}

/// Kafka takes any offset and finds out later that there is nothing; here it is brought to the next
/// one that there is.
fn start_within(gateway: &Gateway, partition: PartitionId, offset: i64) -> u64 {
    let offset = u64::try_from(offset).unwrap_or(0);
    let bounds = gateway.broker.bounds(partition);
    bounds.map_or(0, |bounds| offset.max(bounds.log_start).min(bounds.end))
}

async fn move_group(
    gateway: &Gateway,
    name: &GroupId,
    topic: base::TopicId,
    starts: Vec<(u32, u64)>,
) -> Result<(), Fault> {
    let broker = &gateway.broker;
    let found = || broker.read(|state| state.lease_group_named(topic, name).map(|group| group.id));
    if found().is_none() {
        let config = broker.read(|state| lease_groups::config_of(state, name));
        lease_groups::make(broker, name, topic, Vec::new(), config).await?;
    }
    let group = found().ok_or_else(Fault::unknown_partition)?;
    broker.execute(Command::SeekLeaseGroup { group, starts }).await?;
    Ok(())
}

// ---------------------------------------------------------------------------------------- delete

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteShareGroupOffsetsRequest = request.decode()?;
    let group = &message.group_id;
    let parts = check_empty(gateway, group).and_then(|()| {
        let parts = gateway.broker.read(|state| lease_groups::parts(state, group));
        if parts.is_empty() { Err(group_not_found(group)) } else { Ok(parts) }
    });
    let response = match parts {
        Ok(parts) => {
            let mut responses = Vec::with_capacity(message.topics.len());
            for topic in message.topics {
                responses.push(delete_topic(gateway, &parts, topic.topic_name).await);
            }
            DeleteShareGroupOffsetsResponse::default().with_responses(responses)
        }
        Err(fault) => DeleteShareGroupOffsetsResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes()),
    };
    Response::encode(&request.head, &response)
}

async fn delete_topic(
    gateway: &Gateway,
    parts: &BTreeMap<std::sync::Arc<str>, Part>,
    name: TopicName,
) -> DeleteShareGroupOffsetsResponseTopic {
    let known = gateway.broker.read(|state| state.topic_named(&name).map(|topic| topic.uuid));
    let result = match (parts.get(&**name), known) {
        (Some(part), _) => delete_part(gateway, part).await,
        // The group has not read it: there is nothing to delete.
        (None, Some(_)) => Ok(()),
        (None, None) => Err(Fault::unknown_partition()),
    };
    let fault = result.err();
    DeleteShareGroupOffsetsResponseTopic::default()
        .with_topic_name(TopicName(own(&name)))
        .with_topic_id(known.unwrap_or_default())
        .with_error_code(fault.as_ref().map_or(0, Fault::code))
        .with_error_message(fault.and_then(|fault| fault.message_bytes()))
}

/// Ends a share group's part in a topic.
pub(crate) async fn delete_part(gateway: &Gateway, part: &Part) -> Result<(), Fault> {
    let command = Command::DeleteLeaseGroup { group: part.lease_group };
    match gateway.broker.execute(command).await {
        Ok(_) | Err(ExecuteError::Refused(Refusal::UnknownLeaseGroup { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
