//! Requests of the Streams group protocol: converts messages to events, and reports to responses.

use base::HashSet;
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use crate::limits::{DESCRIBED_BYTES_MAX, GROUP_MEMBER_BYTES_MAX};
use broker::{NewTopic, Refusal, YieldBudget, validate_topic_name};
use bytes::{Bytes, BytesMut};
use consumer_groups::settings::{millis, streams_limits};
use consumer_groups::tenants;
use coordinator::member::{Client, JOINING, LEAVING, PAUSING};
use coordinator::streams::tasks::Tasks;
use coordinator::streams::topology::InternalTopic;
use coordinator::streams::{Heartbeat, Report, StatusCode, StreamsGroup, StreamsLimits};
use coordinator::{Group, GroupAccess, Text, text};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use crate::authorization::{Caller, STREAMS_DESCRIBE, STREAMS_HEARTBEAT};
use crate::errors::Fault;
use crate::groups::admin_requests::DESCRIBED_GROUP_BYTES;
use crate::groups::check_described;
use crate::groups::classic_requests::check_group;
use crate::groups::committed::has_offsets;
use crate::groups::share_requests::group_not_found;
use crate::groups::topics::Topics;
use crate::groups::waiting::visit_to_store;
use crate::messages::frames::Frame;
use crate::messages::list_response::{Chunks, too_much};
use crate::messages::streams::{
    DescribeRequest, DescribedGroup, HeartbeatRequest, HeartbeatResponse, StreamsError,
    begin_described,
};
use crate::messages::{Preamble, RequestError, Response};
use crate::request::ResponseFuture;
use crate::state::{Gateway, Session};
use crate::topics::check_replication_factor;
use kafka_wire::primitives::{Cursor, MalformedValue, PutPrimitives};

/// Keys of both requests, which the message crate does not know, and the only version of each.
const HEARTBEAT: i16 = 88;
const DESCRIBE: i16 = 89;
const VERSION: i16 = 0;

pub(crate) fn is_ours(api_key: i16) -> bool {
    matches!(api_key, HEARTBEAT | DESCRIBE)
}

/// Groups described between two yields.
const GROUPS_AT_ONCE: u32 = 16;

/// Versions for ApiVersions.
pub(crate) fn supported() -> impl Iterator<Item = ApiVersion> {
    [HEARTBEAT, DESCRIBE].into_iter().map(|key| {
        ApiVersion::default().with_api_key(key).with_min_version(VERSION).with_max_version(VERSION)
    })
}

/// Starts a request whose preamble was read.
pub(crate) fn start(
    gateway: &Arc<Gateway>,
    session: &Arc<Session>,
    preamble: &Preamble,
    frame: Frame,
) -> Result<ResponseFuture, RequestError> {
    let Frame { bytes, permit, .. } = frame;
    let (api_key, version, correlation) =
        (preamble.api_key, preamble.version, preamble.correlation);
    if version != VERSION {
        return Err(StreamsError::Version { api_key, version }.into());
    }
    let malformed = |malformed| StreamsError::Malformed { api_key, malformed };
    let (client_id, body) = split(bytes.freeze()).map_err(malformed)?;
    // The decoded parts take a multiple of their wire size.
    if body.len() > GROUP_MEMBER_BYTES_MAX {
        let fault = Fault::new(ResponseError::InvalidRequest, "The request is too large.");
        let refused = if api_key == HEARTBEAT {
            respond(correlation, |frame| refused(&fault).write(frame))
        } else {
            respond(correlation, |frame| {
                begin_described(0, frame);
                frame.put_no_tagged_fields(true);
            })
        };
        return Ok(Box::pin(ready(Ok(refused))));
    }
    let gateway = Arc::clone(gateway);
    if api_key == DESCRIBE {
        let request = DescribeRequest::parse(&body).map_err(malformed)?;
        let caller =
            Caller::with_needs(&gateway, session, STREAMS_DESCRIBE, "StreamsGroupDescribe");
        return Ok(Box::pin(async move {
            let _permit = permit;
            Ok(describe(&gateway, &caller, &request, correlation).await)
        }));
    }
    let request = HeartbeatRequest::parse(&body).map_err(malformed)?;
    let client = Client { id: client_id, host: session.client_host() };
    let caller = Caller::with_needs(&gateway, session, STREAMS_HEARTBEAT, "StreamsGroupHeartbeat");
    Ok(Box::pin(async move {
        // Room for the decoded request, until it is answered.
        let _permit = permit;
        let response = heartbeat(&gateway, &caller, request, client).await;
        Ok(respond(correlation, |frame| response.write(frame)))
    }))
}

/// Splits a frame into the client's id and the body.
fn split(frame: Bytes) -> Result<(Text, Bytes), MalformedValue> {
    const PREAMBLE_LEN: usize = 8;
    let mut cursor = Cursor::new(&frame);
    cursor.skip(PREAMBLE_LEN)?;
    let client_id = cursor.nullable_text(false)?.map(text).unwrap_or_default();
    cursor.skip_tagged_fields()?;
    let body = frame.slice(frame.len() - cursor.left()..);
    Ok((client_id, body))
}

fn respond(correlation: i32, write: impl FnOnce(&mut BytesMut)) -> Response {
    let mut frame = Response::begin(correlation, true, 128);
    write(&mut frame);
    Response::finish(frame)
}

fn refused(fault: &Fault) -> HeartbeatResponse {
    HeartbeatResponse {
        code: fault.code(),
        message: fault.message().map(str::to_owned),
        ..HeartbeatResponse::default()
    }
}

// ------------------------------------------------------------------------------------- heartbeat

async fn heartbeat(
    gateway: &Gateway,
    caller: &Caller,
    request: HeartbeatRequest,
    client: Client,
) -> HeartbeatResponse {
    let reported = match check(gateway, caller, &request) {
        Ok(()) if request.epoch < JOINING => leave(gateway, &request).await,
        Ok(()) => report(gateway, request, client).await,
        Err(fault) => Err(fault),
    };
    reported.unwrap_or_else(|fault| refused(&fault))
}

fn invalid<T>(reason: &'static str) -> Result<T, Fault> {
    Err(Fault::new(ResponseError::InvalidRequest, reason))
}

/// Checks that need no group.
fn check(gateway: &Gateway, caller: &Caller, request: &HeartbeatRequest) -> Result<(), Fault> {
    let is_blank = |text: &Option<Text>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    if request.instance_id.is_some() {
        return invalid("Static membership is not yet supported.");
    }
    if request.has_task_offsets {
        return invalid("TaskOffsets are not supported yet.");
    }
    if request.warmup.as_ref().is_some_and(|tasks| !tasks.is_empty()) {
        return invalid("WarmupTasks are not supported yet.");
    }
    check_group(caller, &request.group).map_err(Fault::plain)?;
    if request.member_id.trim().is_empty() {
        return invalid("MemberId can't be empty.");
    }
    if is_blank(&request.rack_id) {
        return invalid("RackId can't be empty.");
    }
    let said = [&request.active, &request.standby, &request.warmup];
    match request.epoch {
        JOINING => {
            if request.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if said.into_iter().flatten().any(|tasks| !tasks.is_empty()) {
                return invalid("Tasks must be empty when (re-)joining.");
            }
            let Some(topology) = &request.topology else {
                return invalid("Topology must be non-null when (re-)joining.");
            };
            topology.check()?;
            let groups = gateway.coordinator(&request.group).map_err(Fault::plain)?;
            if !groups.has_room(&request.group, 2 * topology.bytes()) {
                return Err(Fault::plain(ResponseError::GroupMaxSizeReached));
            }
        }
        PAUSING => return invalid("InstanceId can't be null."),
        1.. | LEAVING => {}
        _ => return invalid("MemberEpoch must be greater than or equal to -2."),
    }
    if request.epoch != JOINING && request.topology.is_some() {
        return invalid("Topology can only be provided when (re-)joining.");
    }
    match said.iter().filter(|tasks| tasks.is_some()).count() {
        0 | 3 => Ok(()),
        _ => invalid("If one task-type is non-null, all must be non-null."),
    }
}

fn not_a_streams_group(name: &str) -> Fault {
    Fault::new(ResponseError::GroupIdNotFound, format!("Group {name} is not a streams group."))
}

/// Kafka reports an unknown group here, at which clients give up. But below feature level 4 members are not
/// stored for the next coordinator, and on `UNKNOWN_MEMBER_ID` the member joins again.
fn unknown_member(request: &HeartbeatRequest) -> Fault {
    let (member, group) = (&*request.member_id, &*request.group);
    let message = format!("Member {member} is not a member of group {group}.");
    Fault::new(ResponseError::UnknownMemberId, message)
}

async fn leave(gateway: &Gateway, request: &HeartbeatRequest) -> Result<HeartbeatResponse, Fault> {
    let event = |visit: GroupAccess<'_>| match visit.group {
        Some(Group::Streams(group)) => Ok(group.leave(&request.member_id, request.shutdown)?),
        Some(other) if !other.is_empty() => Err(not_a_streams_group(&request.group)),
        _ => Err(unknown_member(request)),
    };
    visit_to_store(gateway, &request.group, event).await.map_err(Fault::plain)??;
    Ok(HeartbeatResponse {
        member_id: request.member_id.clone(),
        epoch: request.epoch,
        ..HeartbeatResponse::default()
    })
}

async fn report(
    gateway: &Gateway,
    request: HeartbeatRequest,
    client: Client,
) -> Result<HeartbeatResponse, Fault> {
    let (limits, interval_ms) = streams_limits(&gateway.broker.catalog(), &request.group);
    let mut report = show(gateway, &request, limits, &client).await?;
    if !report.missing.is_empty() {
        match create(gateway, &report.missing).await {
            // Now that its topics exist, the group can assign tasks.
            Ok(()) => report = report_again(gateway, &request, limits, &client).await?,
            Err(reason) => explain(&mut report, &reason),
        }
    }
    let Report { epoch, tasks, statuses, endpoint_epoch, endpoints, missing: _ } = report;
    Ok(HeartbeatResponse {
        member_id: request.member_id,
        epoch,
        interval_ms,
        statuses,
        tasks,
        endpoint_epoch,
        endpoints,
        ..HeartbeatResponse::default()
    })
}

/// Applies a heartbeat to the group.
async fn show(
    gateway: &Gateway,
    request: &HeartbeatRequest,
    limits: StreamsLimits,
    client: &Client,
) -> Result<Report, Fault> {
    let event = event(request, client);
    let (name, topics) = (&request.group, Topics(&gateway.broker));
    let shown = visit_to_store(gateway, name, |visit: GroupAccess<'_>| {
        let GroupAccess { group, now, .. } = visit;
        match group {
            Some(Group::Streams(group)) => Ok(group.heartbeat(&event, limits, &topics, now)?),
            Some(other) if !other.is_empty() => Err(not_a_streams_group(name)),
            _ if request.epoch != JOINING => Err(unknown_member(request)),
            // An empty group of another protocol is replaced, as in Kafka.
            replaced => {
                let mut group = StreamsGroup::new(name.clone());
                let report = group.heartbeat(&event, limits, &topics, now)?;
                *replaced = Some(Group::Streams(group));
                Ok(report)
            }
        }
    });
    shown.await.map_err(Fault::plain)?
}

/// Repeats the member's heartbeat, now that the topics exist: as that of a joined member.
async fn report_again(
    gateway: &Gateway,
    request: &HeartbeatRequest,
    limits: StreamsLimits,
    client: &Client,
) -> Result<Report, Fault> {
    let mut event = event(request, client);
    let shown =
        visit_to_store(gateway, &request.group, |visit: GroupAccess<'_>| match visit.group {
            Some(Group::Streams(group)) => {
                if let Some(epoch) = group.member_epoch(&request.member_id) {
                    event.topology = None;
                    event.epoch = epoch;
                    if request.epoch == JOINING {
                        event.owned = Some(Tasks::default());
                    }
                }
                let mut report =
                    group.heartbeat(&event, limits, &Topics(&gateway.broker), visit.now)?;
                if request.epoch == JOINING && report.tasks.is_none() {
                    report.tasks = Some(Tasks::default());
                }
                Ok(report)
            }
            _ => Err(unknown_member(request)),
        });
    shown.await.map_err(Fault::plain)?
}

fn event(request: &HeartbeatRequest, client: &Client) -> Heartbeat {
    let owned = request.active.as_ref().zip(request.standby.as_ref());
    let timeout_ms = request.rebalance_timeout_ms;
    Heartbeat {
        member_id: request.member_id.clone(),
        epoch: request.epoch,
        endpoint_epoch: request.endpoint_epoch,
        rack_id: request.rack_id.clone(),
        rebalance_timeout: (timeout_ms != -1).then(|| millis(timeout_ms)),
        topology: request.topology.clone(),
        owned: owned
            .map(|(active, standby)| Tasks { active: active.clone(), standby: standby.clone() }),
        process_id: request.process_id.clone(),
        endpoint: request.endpoint.clone(),
        tags: request.tags.clone(),
        shutdown: request.shutdown,
        client: client.clone(),
    }
}

/// Creates an application's internal topics. Returns the reason of the first failure.
async fn create(gateway: &Gateway, missing: &[InternalTopic]) -> Result<(), String> {
    let topics: Vec<NewTopic> = missing
        .iter()
        .map(|topic| {
            new_topic(gateway, topic).map_err(|fault| format!("{}: {fault}", &*topic.name))
        })
        .collect::<Result<_, _>>()?;
    let outcomes = gateway.broker.create_topics(topics).await;
    let outcomes = outcomes.map_err(|error| error.to_string())?;
    let refusal = missing.iter().zip(outcomes).find_map(|(topic, outcome)| match outcome {
        // Another member's heartbeat may have created it first.
        Ok(_) | Err(Refusal::TopicExists { .. }) => None,
        Err(refusal) => Some(format!("{}: {refusal}", &*topic.name)),
    });
    refusal.map_or(Ok(()), Err)
}

fn new_topic(gateway: &Gateway, topic: &InternalTopic) -> Result<NewTopic, Fault> {
    validate_topic_name(&topic.name)
        .map_err(|error| Fault::new(ResponseError::InvalidTopicException, error.to_string()))?;
    if topic.replication_factor != 0 {
        check_replication_factor(gateway, topic.replication_factor)?;
    }
    let config: BTreeMap<String, String> =
        topic.configs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let partitions = u32::try_from(topic.partitions).unwrap_or(0);
    Ok(NewTopic {
        name: topic.name.to_string(),
        uuid: gateway.broker.entropy().uuid(),
        partitions,
        config,
    })
}

/// Adds the reason of the failure to the status about missing internal topics.
fn explain(report: &mut Report, reason: &str) {
    let of_topics = |code| code == StatusCode::MissingInternalTopics;
    if let Some(status) = report.statuses.iter_mut().find(|status| of_topics(status.code)) {
        status.detail.push_str("; Creation failed: ");
        status.detail.push_str(reason);
    }
}

// -------------------------------------------------------------------------------------- describe

async fn describe(
    gateway: &Gateway,
    caller: &Caller,
    request: &DescribeRequest,
    correlation: i32,
) -> Response {
    // Duplicates are described once: a name takes a few bytes, and a description many.
    let mut seen = HashSet::default();
    let names: Vec<&Text> = request.groups.iter().filter(|name| seen.insert(*name)).collect();
    let permit = gateway.described_room(names.len(), DESCRIBED_GROUP_BYTES).await;
    let mut pace = YieldBudget::new(gateway.broker.turns(), GROUPS_AT_ONCE);
    let mut chunks = Chunks::new(Response::begin(correlation, true, 128));
    begin_described(names.len(), &mut chunks.buffer);
    for name in names {
        pace.step(1).await;
        let has_room = chunks.bytes() < DESCRIBED_BYTES_MAX;
        let described =
            if has_room { describe_one(gateway, caller, name).await } else { Err(too_much()) };
        let operations =
            if request.include_operations { caller.group_bits(name) } else { i32::MIN };
        let group = match described {
            Ok(described) => DescribedGroup { operations, ..described },
            Err(fault) => DescribedGroup {
                code: fault.code(),
                message: fault.message().map(str::to_owned),
                name: name.clone(),
                operations: i32::MIN,
                ..DescribedGroup::default()
            },
        };
        group.write(&mut chunks.buffer);
        chunks.cut(0);
    }
    chunks.buffer.put_no_tagged_fields(true);
    chunks.finish().with_permit(permit)
}

async fn describe_one(
    gateway: &Gateway,
    caller: &Caller,
    name: &Text,
) -> Result<DescribedGroup, Fault> {
    check_group(caller, name).map_err(Fault::plain)?;
    let has_offsets = has_offsets(gateway, name).await.map_err(Fault::plain)?;
    let is_durable =
        has_offsets || tenants::sees_lease_groups(&gateway.broker, caller.rights(), name);
    gateway.coordinator(name).map_err(Fault::plain)?.visit(name, |visit| match visit.group {
        Some(known @ Group::Streams(_)) => {
            check_described(gateway, caller, known)?;
            let Group::Streams(group) = known else { return Err(group_not_found(name)) };
            Ok(DescribedGroup::of(name.clone(), group))
        }
        None if !is_durable => Err(group_not_found(name)),
        _ => Err(not_a_streams_group(name)),
    })
}
