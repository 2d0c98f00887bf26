//! Requests of KIP-848's protocol: converts messages to events, and reports to responses.

use std::collections::BTreeSet;

use crate::limits::GROUP_MEMBER_BYTES_MAX;
use consumer_groups::settings::{consumer_limits, millis};
use consumer_groups::tenants;
use coordinator::assignment::Assignment;
use coordinator::assignor::Assignor;
use coordinator::consumer::{ConsumerGroup, Heartbeat, Member, Report};
use coordinator::member::{Client, JOINING, LEAVING, PAUSING};
use coordinator::{Group, GroupAccess, text};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member as DescribedMember,
    TopicPartitions as DescribedPartitions,
};
use kafka_protocol::messages::consumer_group_heartbeat_response::{
    Assignment as ReportedAssignment, TopicPartitions as ReportedPartitions,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::authorization::Caller;
use crate::errors::Fault;
use crate::groups::admin_requests::DESCRIBED_GROUP_BYTES;
use crate::groups::check_described;
use crate::groups::classic_requests::{check_group, client_of};
use crate::groups::committed::WithOffsets;
use crate::groups::share_requests::group_not_found;
use crate::groups::text::own;
use crate::groups::topics::Topics;
use crate::groups::waiting::visit_to_store;
use crate::messages::list_response::ListWriter;
use crate::messages::{RequestError, RequestHead, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};

/// First version in which members choose their own ids (KIP-1082).
const NAMED_BY_CLIENT_SINCE: i16 = 1;

// ------------------------------------------------------------------------------------- heartbeat

pub(crate) async fn heartbeat(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let mut message: ConsumerGroupHeartbeatRequest = request.decode()?;
    let Request { head, caller, .. } = request;
    if message.member_id.is_empty()
        && message.member_epoch == JOINING
        && head.version < NAMED_BY_CLIENT_SINCE
    {
        message.member_id = StrBytes::from_string(gateway.broker.entropy().uuid().to_string());
    }
    let result = match check_heartbeat(gateway, &caller, &message) {
        Ok(_) if message.member_epoch < JOINING => leave(gateway, &message).await,
        Ok(assignor) => report(gateway, session, &head, &message, assignor).await,
        Err(fault) => Err(fault),
    };
    let response = match result {
        Ok(response) => response.with_member_id(Some(message.member_id)),
        Err(fault) => ConsumerGroupHeartbeatResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes()),
    };
    Response::encode(&head, &response)
}

/// Checks that need no group. Returns the requested assignor.
fn check_heartbeat(
    gateway: &Gateway,
    caller: &Caller,
    message: &ConsumerGroupHeartbeatRequest,
) -> Result<Option<Assignor>, Fault> {
    let invalid = |reason: &'static str| Err(Fault::new(ResponseError::InvalidRequest, reason));
    let is_blank =
        |text: &Option<StrBytes>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    check_group(caller, &message.group_id).map_err(Fault::plain)?;
    // Topics that match a pattern are unknown to the member until they are assigned. Reading them is
    // authorized separately.
    for topic in message.subscribed_topic_names.iter().flatten() {
        caller.topic(topic)?;
    }
    if is_blank(&message.instance_id) {
        return invalid("InstanceId can't be empty.");
    }
    if is_blank(&message.rack_id) {
        return invalid("RackId can't be empty.");
    }
    if message.member_id.trim().is_empty() {
        return invalid("MemberId can't be empty.");
    }
    match message.member_epoch {
        JOINING => {
            if message.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if message.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            if message.subscribed_topic_names.is_none() && message.subscribed_topic_regex.is_none()
            {
                return invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null \
                     when (re-)joining.",
                );
            }
        }
        PAUSING if message.instance_id.is_none() => return invalid("InstanceId can't be null."),
        1.. | LEAVING | PAUSING => {}
        _ => return invalid("MemberEpoch is invalid."),
    }
    let names = message.subscribed_topic_names.iter().flatten();
    let bytes: usize = names.map(|name| name.len()).sum();
    if bytes > GROUP_MEMBER_BYTES_MAX {
        return invalid("SubscribedTopicNames is too long.");
    }
    let groups = gateway.coordinator(&message.group_id).map_err(Fault::plain)?;
    if message.member_epoch == JOINING && !groups.has_room(&message.group_id, bytes) {
        return Err(Fault::plain(ResponseError::GroupMaxSizeReached));
    }
    requested_assignor(message)
}

fn requested_assignor(message: &ConsumerGroupHeartbeatRequest) -> Result<Option<Assignor>, Fault> {
    let Some(name) = &message.server_assignor else { return Ok(None) };
    match Assignor::named(name) {
        Some(assignor) => Ok(Some(assignor)),
        None => {
            let known = Assignor::ALL.map(Assignor::name).join(", ");
            let message = format!(
                "ServerAssignor {} is not supported. Supported assignors: {known}.",
                name.as_str()
            );
            Err(Fault::new(ResponseError::UnsupportedAssignor, message))
        }
    }
}

async fn leave(
    gateway: &Gateway,
    message: &ConsumerGroupHeartbeatRequest,
) -> Result<ConsumerGroupHeartbeatResponse, Fault> {
    let event = |visit: GroupAccess<'_>| match visit.group {
        Some(Group::Consumer(group)) => {
            let (instance, epoch) = (message.instance_id.as_deref(), message.member_epoch);
            group.leave(&message.member_id, instance, epoch).map_err(Fault::from)
        }
        Some(other) if !other.is_empty() => Err(not_a_consumer_group(message)),
        _ => Err(unknown_member(message)),
    };
    visit_to_store(gateway, &message.group_id, event).await.map_err(Fault::plain)??;
    Ok(ConsumerGroupHeartbeatResponse::default().with_member_epoch(message.member_epoch))
}

fn not_a_consumer_group(message: &ConsumerGroupHeartbeatRequest) -> Fault {
    let message = format!("Group {} is not a consumer group.", message.group_id.as_str());
    Fault::new(ResponseError::GroupIdNotFound, message)
}

/// Kafka reports an unknown group here, at which clients give up. But the group's last change may not have
/// been stored, and on `UNKNOWN_MEMBER_ID` the member joins again.
fn unknown_member(message: &ConsumerGroupHeartbeatRequest) -> Fault {
    let message = format!(
        "Member {} is not a member of group {}.",
        message.member_id.as_str(),
        message.group_id.as_str()
    );
    Fault::new(ResponseError::UnknownMemberId, message)
}

async fn report(
    gateway: &Gateway,
    session: &Session,
    head: &RequestHead,
    message: &ConsumerGroupHeartbeatRequest,
    assignor: Option<Assignor>,
) -> Result<ConsumerGroupHeartbeatResponse, Fault> {
    let name = &message.group_id;
    let (limits, interval_ms) = consumer_limits(&gateway.broker.catalog(), name);
    let event = heartbeat_event(message, client_of(session, head), assignor);
    let topics = Topics(&gateway.broker);
    let shown = visit_to_store(gateway, name, |visit: GroupAccess<'_>| {
        let GroupAccess { group, now, .. } = visit;
        match group {
            Some(Group::Consumer(group)) => Ok(group.heartbeat(event, limits, &topics, now)?),
            Some(other) if !other.is_empty() => Err(not_a_consumer_group(message)),
            _ if message.member_epoch != JOINING => Err(unknown_member(message)),
            // An empty group of another protocol is replaced, as in Kafka.
            replaced => {
                let mut group = ConsumerGroup::new(text(name));
                let report = group.heartbeat(event, limits, &topics, now)?;
                *replaced = Some(Group::Consumer(group));
                Ok(report)
            }
        }
    });
    let report = shown.await.map_err(Fault::plain)??;
    let Report { epoch, assigned } = report;
    Ok(ConsumerGroupHeartbeatResponse::default()
        .with_member_epoch(epoch)
        .with_heartbeat_interval_ms(interval_ms)
        .with_assignment(assigned.as_ref().map(reported)))
}

fn heartbeat_event(
    message: &ConsumerGroupHeartbeatRequest,
    client: Client,
    assignor: Option<Assignor>,
) -> Heartbeat {
    let own_names = |names: &Vec<TopicName>| names.iter().map(|name| text(name)).collect();
    let owned = message.topic_partitions.as_ref().map(|topics| {
        let partitions = topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|&partition| (topic.topic_id, partition))
        });
        partitions.collect()
    });
    let timeout_ms = message.rebalance_timeout_ms;
    Heartbeat {
        member_id: text(&message.member_id),
        epoch: message.member_epoch,
        instance_id: message.instance_id.as_deref().map(text),
        rack_id: message.rack_id.as_deref().map(text),
        rebalance_timeout: (timeout_ms != -1).then(|| millis(timeout_ms)),
        names: message.subscribed_topic_names.as_ref().map(own_names),
        pattern: message.subscribed_topic_regex.as_deref().map(text),
        assignor,
        owned,
        client,
    }
}

fn reported(assignment: &Assignment) -> ReportedAssignment {
    let topics = assignment.topics().map(|(topic, partitions)| {
        ReportedPartitions::default()
            .with_topic_id(topic)
            .with_partitions(partitions.iter().copied().collect())
    });
    ReportedAssignment::default().with_topic_partitions(topics.collect())
}

// -------------------------------------------------------------------------------------- describe

pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ConsumerGroupDescribeRequest = request.decode()?;
    let (count, version) = (message.group_ids.len(), request.head.version);
    let permit = gateway.described_room(count, DESCRIBED_GROUP_BYTES).await;
    let response = ConsumerGroupDescribeResponse::default();
    let mut groups = ListWriter::new(gateway.broker.turns(), &request.head, &response, count)?;
    let mut have_some = WithOffsets::default();
    let caller = &request.caller;
    for (place, name) in message.group_ids.iter().enumerate() {
        let has_offsets = have_some.at(gateway, &message.group_ids, place).await;
        let refuse = |fault: Fault| {
            DescribedGroup::default()
                .with_group_id(name.clone())
                .with_error_code(fault.code())
                .with_error_message(fault.message_bytes())
        };
        let describe = || match describe_one(gateway, caller, name, version, has_offsets) {
            Ok(described) if message.include_authorized_operations => {
                described.with_authorized_operations(caller.group_bits(name))
            }
            Ok(described) => described,
            Err(fault) => refuse(fault),
        };
        groups.push(describe, refuse).await?;
    }
    Ok(groups.finish().with_permit(permit))
}

fn describe_one(
    gateway: &Gateway,
    caller: &Caller,
    name: &GroupId,
    version: i16,
    has_offsets: Result<bool, ResponseError>,
) -> Result<DescribedGroup, Fault> {
    let has_offsets = check_group(caller, name).and(has_offsets).map_err(Fault::plain)?;
    let is_durable =
        has_offsets || tenants::sees_lease_groups(&gateway.broker, caller.rights(), name);
    let mut described = gateway.coordinator(name).map_err(Fault::plain)?.visit(name, |visit| {
        match visit.group {
            Some(known @ Group::Consumer(_)) => {
                check_described(gateway, caller, known)?;
                let Group::Consumer(group) = known else { return Err(group_not_found(name)) };
                Ok(describe_group(group, version))
            }
            // A group with offsets only counts as classic: clients query it as such next.
            None if !is_durable => Err(group_not_found(name)),
            _ => {
                let message = format!("Group {} is not a consumer group.", name.as_str());
                Err(Fault::new(ResponseError::GroupIdNotFound, message))
            }
        }
    })?;
    // Deleted topics have no name, so their assignments are left out.
    let catalog = gateway.broker.catalog();
    for member in &mut described.members {
        for assignment in [&mut member.assignment, &mut member.target_assignment] {
            assignment.topic_partitions.retain_mut(|topic| {
                let known = catalog.topic_with_uuid(&topic.topic_id);
                if let Some(known) = known {
                    topic.topic_name = TopicName(own(known.name()));
                }
                known.is_some()
            });
        }
    }
    Ok(described.with_group_id(name.clone()))
}

fn describe_group(group: &ConsumerGroup, version: i16) -> DescribedGroup {
    let members = group.members().map(|member| describe_member(member, version));
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(group.state_name()))
        .with_group_epoch(group.epoch())
        .with_assignment_epoch(group.target_epoch())
        .with_assignor_name(StrBytes::from_static_str(group.assignor().name()))
        .with_members(members.collect())
}

/// Type of a member that speaks the group's own protocol (version 1 and later).
const MODERN_MEMBER: i8 = 1;

fn describe_member(member: &Member, version: i16) -> DescribedMember {
    let names: BTreeSet<_> =
        member.subscription.names.iter().map(|name| TopicName(own(name))).collect();
    let described = DescribedMember::default()
        .with_member_id(own(&member.enrolment.id))
        .with_instance_id(member.instance_id.as_deref().map(own))
        .with_rack_id(member.enrolment.rack_id.as_deref().map(own))
        .with_member_epoch(member.state.epoch)
        .with_client_id(own(&member.enrolment.client.id))
        .with_client_host(own(&member.enrolment.client.host))
        .with_subscribed_topic_names(names.into_iter().collect())
        .with_subscribed_topic_regex(member.subscription.pattern.as_deref().map(own))
        .with_assignment(described_assignment(&member.state.assigned))
        .with_target_assignment(described_assignment(&member.state.target));
    if version >= 1 { described.with_member_type(MODERN_MEMBER) } else { described }
}

fn described_assignment(assignment: &Assignment) -> DescribedAssignment {
    let topics = assignment.topics().map(|(topic, partitions)| {
        DescribedPartitions::default()
            .with_topic_id(topic)
            .with_partitions(partitions.iter().copied().collect())
    });
    DescribedAssignment::default().with_topic_partitions(topics.collect())
}
