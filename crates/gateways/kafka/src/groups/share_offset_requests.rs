//! A share group's offsets: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets.
//!
//! A share partition's start offset in Kafka is the floor of the lease group: everything below is settled. It
//! can be moved only while the group has no members, as in Kafka. Consumers of the same lease group by other
//! protocols continue from the new floor.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::limits::DESCRIBED_BYTES_MAX;
use base::{LeaseGroupId, MAIN_LEASE_GROUP, PartitionId, TopicId};
use broker::catalog::Topic;
use broker::{CatalogView, ExecuteError, LeaseProgress, Refusal, Unavailable, YieldBudget};
use bytes::BufMut;
use consumer_groups::lease_groups::{self, ShareLeaseGroup};
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
use uuid::Uuid;

use crate::authorization::{Caller, topic_refused};
use crate::errors::Fault;
use crate::groups::classic_requests::check_group;
use crate::groups::committed::{coordinator_unavailable, has_offsets};
use crate::groups::share_requests::{group_not_found, not_a_share_group};
use crate::groups::text::own;
use crate::messages::list_response::{Chunks, too_much};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;
use coordinator::Group;
use kafka_wire::primitives::PutPrimitives;

// -------------------------------------------------------------------------------------- describe

/// First version with a partition's lag (KIP-1226).
const LAG_SINCE: i16 = 1;
/// No offset, or an unknown lag.
const NONE: i64 = -1;

#[derive(Clone, Copy, Debug)]
struct PartitionOffset {
    start: i64,
    lag: i64,
    code: i16,
}

impl PartitionOffset {
    const NONE: Self = Self { start: NONE, lag: NONE, code: 0 };

    /// The lag counts the unsettled records between the start and the end.
    fn of(progress: LeaseProgress) -> Self {
        let LeaseProgress { floor, end, settled_above, .. } = progress;
        let lag = end.saturating_sub(floor).saturating_sub(settled_above);
        Self { start: floor as i64, lag: lag as i64, code: 0 }
    }
}

/// Partitions handled between two yields.
const PARTITIONS_AT_ONCE: u32 = 4_096;
/// Bytes of a partition in the response, with its lag.
const PARTITION_BYTES: usize = 28;
/// Bytes of a topic in the response, without its name and partitions.
const TOPIC_BYTES: usize = 24;

/// Implements version 1 too, which the message crate lacks: its request is that of version 0, and its
/// response is written here.
pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeShareGroupOffsetsRequest = request.decode_as(0)?;
    let Request { head, caller, .. } = request;
    let permit = gateway.described_room(named(&message), PARTITION_BYTES).await;
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE);
    let mut chunks = Chunks::new(Response::begin(head.correlation, true, 1024));
    // Throttle time: zero.
    chunks.buffer.put_i32(0);
    chunks.buffer.put_count(message.groups.len(), true);
    for group in message.groups {
        let left = DESCRIBED_BYTES_MAX.saturating_sub(chunks.bytes());
        let name = group.group_id;
        pace.step(1).await;
        let described = described_topics(gateway, &caller, &name, group.topics, left);
        chunks.buffer.put_nullable_text(Some(&name), true);
        let topics = described.as_deref().unwrap_or_default();
        chunks.buffer.put_count(topics.len(), true);
        for topic in topics {
            put_topic(gateway, &mut chunks, &mut pace, head.version, topic).await;
        }
        let fault = described.as_ref().err();
        chunks.buffer.put_i16(fault.map_or(0, Fault::code));
        chunks.buffer.put_nullable_text(fault.and_then(Fault::message), true);
        chunks.buffer.put_no_tagged_fields(true);
    }
    chunks.buffer.put_no_tagged_fields(true);
    Ok(chunks.finish().with_permit(permit))
}

/// Returns the requested topics of a group with their partitions, or a fault if they exceed `left` bytes of
/// the response.
fn described_topics(
    gateway: &Gateway,
    caller: &Caller,
    name: &GroupId,
    topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>,
    left: usize,
) -> Result<Vec<DescribedTopic>, Fault> {
    check_group(caller, name).map_err(Fault::plain)?;
    let has_members = share_group_has_members(gateway, name)?;
    let asked_of_all = topics.is_none();
    let described: Vec<DescribedTopic> = {
        let catalog = gateway.broker.catalog();
        match topics {
            None => {
                let groups = catalog.lease_groups_with_name(name);
                let topics = groups.filter_map(|group| catalog.topic(group.topic()));
                let topics = topics.filter(|topic| caller.may_topic(topic.name()));
                let mut described: Vec<_> =
                    topics.map(|topic| DescribedTopic::of(&catalog, topic, name, None)).collect();
                described.sort_by(|one, other| one.name.cmp(&other.name));
                described
            }
            Some(topics) => {
                let described = topics.into_iter().map(|wanted| {
                    let named = Some(wanted.partitions);
                    let known = catalog.topic_named(&wanted.topic_name);
                    match known {
                        _ if !caller.may_topic(&wanted.topic_name) => {
                            let unknown = DescribedTopic::unknown(&wanted.topic_name, named);
                            DescribedTopic { refused: true, ..unknown }
                        }
                        Some(topic) => DescribedTopic::of(&catalog, topic, name, named),
                        None => DescribedTopic::unknown(&wanted.topic_name, named),
                    }
                });
                described.collect()
            }
        }
    };
    if asked_of_all && described.is_empty() && !has_members {
        return Err(group_not_found(name));
    }
    match described.iter().map(DescribedTopic::bytes).sum::<usize>() {
        bytes if bytes > left => Err(too_much()),
        _ => Ok(described),
    }
}

/// Number of requested partitions; for all topics, the most that fit into a response.
fn named(message: &DescribeShareGroupOffsetsRequest) -> usize {
    let groups = message.groups.iter().map(|group| match &group.topics {
        Some(topics) => topics.iter().map(|topic| topic.partitions.len()).sum(),
        None => DESCRIBED_BYTES_MAX / PARTITION_BYTES,
    });
    groups.fold(0, usize::saturating_add)
}

/// A topic, with the share group's lease group in it.
struct DescribedTopic {
    /// `None` if the topic does not exist.
    id: Option<TopicId>,
    name: Arc<str>,
    /// Nil if the topic does not exist.
    uuid: Uuid,
    partition_count: u32,
    lease_group: Option<LeaseGroupId>,
    /// Requested partitions; `None` for all.
    named: Option<Vec<i32>>,
    /// The caller is not authorized to describe it.
    refused: bool,
}

impl DescribedTopic {
    fn of(
        catalog: &CatalogView<'_>,
        topic: Topic<'_>,
        group: &str,
        named: Option<Vec<i32>>,
    ) -> Self {
        let lease_group = catalog.lease_group_named(topic.id(), group);
        Self {
            id: Some(topic.id()),
            name: Arc::clone(topic.name()),
            uuid: topic.uuid(),
            partition_count: topic.partition_count(),
            lease_group: lease_group.map(|group| group.id()),
            named,
            refused: false,
        }
    }

    fn unknown(name: &str, named: Option<Vec<i32>>) -> Self {
        let (uuid, partition_count, lease_group) = (Uuid::nil(), 0, None);
        let (id, name, refused) = (None, name.into(), false);
        Self { id, name, uuid, partition_count, lease_group, named, refused }
    }

    fn partitions(&self) -> usize {
        self.named.as_ref().map_or(self.partition_count as usize, Vec::len)
    }

    /// Bytes in the response.
    fn bytes(&self) -> usize {
        TOPIC_BYTES + self.name.len() + self.partitions() * PARTITION_BYTES
    }

    /// Partition number at this place in the response.
    fn index(&self, place: usize) -> i32 {
        self.named.as_ref().map_or(place as i32, |named| named[place])
    }

    /// The offsets of the partitions at these places in the response.
    async fn offsets(&self, gateway: &Gateway, places: Range<usize>) -> Vec<PartitionOffset> {
        let Some(group) = self.lease_group else {
            let refused = ResponseError::TopicAuthorizationFailed.code();
            let code = if self.refused { refused } else { 0 };
            return vec![PartitionOffset { code, ..PartitionOffset::NONE }; places.len()];
        };
        let exists = |index: &u32| *index < self.partition_count;
        let found = places.map(|place| u32::try_from(self.index(place)).ok().filter(exists));
        let found: Vec<Option<u32>> = found.collect();
        let known: Vec<u32> = found.iter().flatten().copied().collect();
        let progress = gateway.broker.shards().lease_progress(group, &known).await;
        let mut progress = progress.map(Vec::into_iter).map_err(coordinator_unavailable);
        let offset = |found: Option<u32>| match (found, &mut progress) {
            (None, _) => PartitionOffset::NONE,
            (Some(_), Ok(progress)) => {
                progress.next().flatten().map_or(PartitionOffset::NONE, PartitionOffset::of)
            }
            (Some(_), Err(error)) => {
                PartitionOffset { code: error.code(), ..PartitionOffset::NONE }
            }
        };
        found.into_iter().map(offset).collect()
    }
}

async fn put_topic(
    gateway: &Gateway,
    chunks: &mut Chunks,
    pace: &mut YieldBudget,
    version: i16,
    topic: &DescribedTopic,
) {
    chunks.buffer.put_nullable_text(Some(&topic.name), true);
    chunks.buffer.put_uuid(topic.uuid);
    chunks.buffer.put_count(topic.partitions(), true);
    let leaders = topic.id.map(|id| gateway.broker.leaders(id)).unwrap_or_default();
    let mut from = 0;
    while from < topic.partitions() {
        let places = from..topic.partitions().min(from + PARTITIONS_AT_ONCE as usize);
        from = places.end;
        pace.step(places.len() as u32).await;
        let offsets = topic.offsets(gateway, places.clone()).await;
        for (place, offset) in places.zip(offsets) {
            let out = &mut chunks.buffer;
            out.put_i32(topic.index(place));
            out.put_i64(offset.start);
            out.put_i32(if offset.start == NONE {
                0
            } else {
                leaders.of(topic.index(place) as u32).epoch
            });
            if version >= LAG_SINCE {
                out.put_i64(offset.lag);
            }
            out.put_i16(offset.code);
            out.put_nullable_text(None, true);
            out.put_no_tagged_fields(true);
            chunks.cut(PARTITION_BYTES);
        }
    }
    chunks.buffer.put_no_tagged_fields(true);
}

/// Whether the share group has members here. Fails if the name is another kind of group's.
fn share_group_has_members(gateway: &Gateway, name: &GroupId) -> Result<bool, Fault> {
    gateway.coordinator(name).map_err(Fault::plain)?.visit(name, |visit| match visit.group {
        Some(Group::Share(group)) => Ok(!group.is_empty()),
        Some(other) if !other.is_empty() => Err(not_a_share_group(name)),
        _ => Ok(false),
    })
}

fn check_empty(gateway: &Gateway, caller: &Caller, name: &GroupId) -> Result<(), Fault> {
    check_group(caller, name).map_err(Fault::plain)?;
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
    let response = match check_alter(gateway, &request.caller, &message.group_id).await {
        Ok(()) => {
            let mut responses = Vec::with_capacity(message.topics.len());
            for topic in &message.topics {
                responses
                    .push(alter_topic(gateway, &request.caller, &message.group_id, topic).await);
            }
            AlterShareGroupOffsetsResponse::default().with_responses(responses)
        }
        Err(fault) => AlterShareGroupOffsetsResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes()),
    };
    Response::encode(&request.head, &response)
}

/// Accepts a group that does not exist, as Kafka does: it is created, and starts at these offsets.
async fn check_alter(gateway: &Gateway, caller: &Caller, name: &GroupId) -> Result<(), Fault> {
    check_empty(gateway, caller, name)?;
    let has_offsets = has_offsets(gateway, name).await.map_err(Fault::plain)?;
    if has_offsets { Err(not_a_share_group(name)) } else { Ok(()) }
}

/// Moving the group `main` discards records of the queue. So does moving any group if settled records are not
/// retained. Both need the right to purge. Turning a topic into a queue needs the right to declare it.
fn check_move(gateway: &Gateway, caller: &Caller, group: &str, topic: &str) -> Result<(), Fault> {
    let (settled, makes) = {
        let catalog = gateway.broker.catalog();
        let known = catalog.topic_named(topic);
        let settled = known.as_ref().is_some_and(|it| it.config().retention_settled);
        let is_queue = |it: TopicId| catalog.lease_group_named(it, group).is_some();
        (settled, known.is_some_and(|it| !is_queue(it.id())))
    };
    let is_main = group == MAIN_LEASE_GROUP;
    let may_move = !(is_main || settled) || caller.purges(topic, group);
    let may_make = !(is_main && makes) || caller.may_make_queue(topic);
    if may_move && may_make { Ok(()) } else { Err(topic_refused()) }
}

async fn alter_topic(
    gateway: &Gateway,
    caller: &Caller,
    group: &GroupId,
    wanted: &AlterShareGroupOffsetsRequestTopic,
) -> AlterShareGroupOffsetsResponseTopic {
    let name = &wanted.topic_name;
    let refused =
        caller.topic(name).err().or_else(|| check_move(gateway, caller, group, name).err());
    let found = {
        let catalog = gateway.broker.catalog();
        let topic = catalog.topic_named(name).filter(|_| refused.is_none());
        topic.map(|topic| (topic.id(), topic.uuid(), topic.partition_count()))
    };
    let mut moves = Vec::new();
    let mut results: Vec<Result<(), Fault>> = Vec::with_capacity(wanted.partitions.len());
    for partition in &wanted.partitions {
        let index = u32::try_from(partition.partition_index).ok();
        let index = found.zip(index).filter(|((.., count), index)| index < count);
        results.push(match index {
            Some(((topic, ..), index)) => {
                let id = PartitionId::new(topic, index);
                let start = start_within(gateway, id, partition.start_offset).await;
                start.map(|start| moves.push((index, start))).map_err(Fault::from)
            }
            None => Err(refused.clone().unwrap_or_else(Fault::unknown_partition)),
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

/// Clamps the offset to the partition's range. Kafka accepts any offset, and finds out later that nothing is
/// there.
async fn start_within(
    gateway: &Gateway,
    partition: PartitionId,
    offset: i64,
) -> Result<u64, Unavailable> {
    let offset = u64::try_from(offset).unwrap_or(0);
    let bounds = gateway.broker.shards().bounds(&[partition]).await?.into_iter().flatten().next();
    Ok(bounds.map_or(0, |bounds| offset.max(bounds.log_start).min(bounds.end)))
}

async fn move_group(
    gateway: &Gateway,
    name: &GroupId,
    topic: base::TopicId,
    starts: Vec<(u32, u64)>,
) -> Result<(), Fault> {
    let broker = &gateway.broker;
    let found = || broker.catalog().lease_group_named(topic, name).map(|group| group.id());
    if found().is_none() {
        let config = lease_groups::config_of(&broker.catalog(), name);
        lease_groups::create(broker, name, topic, Vec::new(), config).await?;
    }
    let group = found().ok_or_else(Fault::unknown_partition)?;
    Ok(broker.shards().seek_lease_group(group, starts).await?)
}

// ---------------------------------------------------------------------------------------- delete

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteShareGroupOffsetsRequest = request.decode()?;
    let group = &message.group_id;
    let parts = check_empty(gateway, &request.caller, group).and_then(|()| {
        let parts = lease_groups::parts(&gateway.broker, group);
        if parts.is_empty() { Err(group_not_found(group)) } else { Ok(parts) }
    });
    let response = match parts {
        Ok(parts) => {
            let mut responses = Vec::with_capacity(message.topics.len());
            for topic in message.topics {
                let name = topic.topic_name;
                responses.push(delete_topic(gateway, &request.caller, group, &parts, name).await);
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
    caller: &Caller,
    group: &GroupId,
    parts: &BTreeMap<std::sync::Arc<str>, ShareLeaseGroup>,
    name: TopicName,
) -> DeleteShareGroupOffsetsResponseTopic {
    let refused =
        caller.topic(&name).err().or_else(|| check_move(gateway, caller, group, &name).err());
    let known = gateway.broker.catalog().topic_named(&name).map(|topic| topic.uuid());
    let known = known.filter(|_| refused.is_none());
    let result = match (parts.get(&**name), known) {
        _ if refused.is_some() => Err(refused.unwrap_or_else(Fault::unknown_partition)),
        (Some(part), _) => delete_part(gateway, part).await,
        // The group has not read the topic: there is nothing to delete.
        (None, Some(_)) => Ok(()),
        (None, None) => Err(caller.missing(Fault::unknown_partition())),
    };
    let fault = result.err();
    DeleteShareGroupOffsetsResponseTopic::default()
        .with_topic_name(TopicName(own(&name)))
        .with_topic_id(known.unwrap_or_default())
        .with_error_code(fault.as_ref().map_or(0, Fault::code))
        .with_error_message(fault.and_then(|fault| fault.message_bytes()))
}

/// Deletes a share group's progress in a topic.
pub(crate) async fn delete_part(gateway: &Gateway, part: &ShareLeaseGroup) -> Result<(), Fault> {
    match gateway.broker.delete_lease_group(part.lease_group).await {
        Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownLeaseGroup { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
