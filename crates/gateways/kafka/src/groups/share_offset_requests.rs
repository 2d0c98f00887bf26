//! How far a share group has come: DescribeShareGroupOffsets, AlterShareGroupOffsets,
//! DeleteShareGroupOffsets.
//!
//! What Kafka calls a share partition's start offset is the floor of the lease group: everything
//! below is settled. It may be moved only while the group has no members, as in Kafka; another
//! protocol's consumers of the same lease group go on from where it then is.

use std::collections::BTreeMap;

use base::PartitionId;
use broker::ExecuteError;
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
use crate::request::{Request, RequestError, RequestHead};
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

#[derive(Debug)]
struct TopicOffsets {
    name: String,
    uuid: Uuid,
    partitions: Vec<PartitionOffset>,
}

/// The message crate lacks version 1, whose request is that of version 0, and whose response has
/// its own codec here.
pub(crate) fn describe(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeShareGroupOffsetsRequest = request.decode_as(0)?;
    let groups: Vec<_> = message
        .groups
        .into_iter()
        .map(|group| {
            let described = describe_one(gateway, &group.group_id, group.topics);
            (group.group_id, described)
        })
        .collect();
    Ok(encode(&request.head, gateway.broker.leader_epoch(), &groups))
}

fn describe_one(
    gateway: &Gateway,
    name: &GroupId,
    topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>,
) -> Result<Vec<TopicOffsets>, Fault> {
    check_group_name(name).map_err(Fault::plain)?;
    let has_members = share_group_has_members(gateway, name)?;
    gateway.broker.read(|state| {
        let Some(topics) = topics else {
            let parts = lease_groups::parts(state, name);
            if parts.is_empty() && !has_members {
                return Err(group_not_found(name));
            }
            let described = parts.values().filter_map(|part| {
                let topic = state.topic(part.topic)?;
                let indexes = (0..topic.partition_count()).map(|index| index as i32);
                Some(topic_offsets(state, topic, name, indexes))
            });
            return Ok(described.collect());
        };
        let described =
            topics.into_iter().map(|wanted| match state.topic_named(&wanted.topic_name) {
                Some(topic) => topic_offsets(state, topic, name, wanted.partitions.into_iter()),
                None => TopicOffsets {
                    name: wanted.topic_name.to_string(),
                    uuid: Uuid::nil(),
                    partitions: wanted.partitions.into_iter().map(no_offset).collect(),
                },
            });
        Ok(described.collect())
    })
}

fn topic_offsets(
    state: &State,
    topic: &Topic,
    group: &str,
    indexes: impl Iterator<Item = i32>,
) -> TopicOffsets {
    let lease_group = state.lease_group_named(topic.id, group);
    let offset = |index| partition_offset(topic, lease_group?, index);
    TopicOffsets {
        name: topic.name.to_string(),
        uuid: topic.uuid,
        partitions: indexes.map(|index| offset(index).unwrap_or(no_offset(index))).collect(),
    }
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

fn encode(
    head: &RequestHead,
    leader_epoch: i32,
    groups: &[(GroupId, Result<Vec<TopicOffsets>, Fault>)],
) -> Response {
    let mut out = Response::begin(head.correlation, true, 1024);
    // Nobody is throttled.
    out.put_i32(0);
    out.put_count(groups.len(), true);
    for (name, described) in groups {
        out.put_nullable_text(Some(name), true);
        let topics = described.as_deref().unwrap_or_default();
        out.put_count(topics.len(), true);
        for topic in topics {
            out.put_nullable_text(Some(&topic.name), true);
            out.put_uuid(topic.uuid);
            out.put_count(topic.partitions.len(), true);
            for partition in &topic.partitions {
                out.put_i32(partition.index);
                out.put_i64(partition.start);
                out.put_i32(if partition.start == NONE { 0 } else { leader_epoch });
                if head.version >= LAG_SINCE {
                    out.put_i64(partition.lag);
                }
                out.put_i16(0);
                out.put_nullable_text(None, true);
                out.put_no_tagged_fields(true);
            }
            out.put_no_tagged_fields(true);
        }
        let fault = described.as_ref().err();
        out.put_i16(fault.map_or(0, Fault::code));
        out.put_nullable_text(fault.and_then(Fault::message), true);
        out.put_no_tagged_fields(true);
    }
    out.put_no_tagged_fields(true);
    Response::finish(out)
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
