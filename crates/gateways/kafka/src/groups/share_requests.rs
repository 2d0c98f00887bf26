//! Requests of share group membership (KIP-932): converts messages to events, and reports to responses.

use std::collections::BTreeSet;

use crate::limits::GROUP_MEMBER_BYTES_MAX;
use base::MAIN_LEASE_GROUP;
use consumer_groups::settings::share_limits;
use consumer_groups::{lease_groups, tenants};
use coordinator::assignment::Assignment;
use coordinator::assignor::simple;
use coordinator::member::{Client, JOINING, LEAVING};
use coordinator::share::{EMPTY_STATE, Heartbeat, Member, Report, ShareGroup};
use coordinator::{Group, GroupAccess, text};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::share_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member as DescribedMember,
    TopicPartitions as DescribedPartitions,
};
use kafka_protocol::messages::share_group_heartbeat_response::{
    Assignment as ReportedAssignment, TopicPartitions as ReportedPartitions,
};
use kafka_protocol::messages::{
    GroupId, ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::authorization::{Caller, topic_refused};
use crate::errors::Fault;
use crate::groups::admin_requests::DESCRIBED_GROUP_BYTES;
use crate::groups::check_described;
use crate::groups::classic_requests::{check_group, client_of};
use crate::groups::committed::has_offsets;
use crate::groups::text::own;
use crate::groups::topics::Topics;
use crate::messages::list_response::ListWriter;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};

// ------------------------------------------------------------------------------------- heartbeat

pub(crate) async fn heartbeat(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ShareGroupHeartbeatRequest = request.decode()?;
    let Request { head, caller, .. } = request;
    let result = match check_heartbeat(gateway, &caller, &message) {
        Ok(()) if message.member_epoch == LEAVING => leave(gateway, &message),
        Ok(()) => report(gateway, &caller, client_of(session, &head), &message).await,
        Err(fault) => Err(fault),
    };
    let response = match result {
        Ok(response) => response.with_member_id(Some(message.member_id)),
        Err(fault) => ShareGroupHeartbeatResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes()),
    };
    Response::encode(&head, &response)
}

/// Checks that need no group.
fn check_heartbeat(
    gateway: &Gateway,
    caller: &Caller,
    message: &ShareGroupHeartbeatRequest,
) -> Result<(), Fault> {
    let invalid = |reason: &'static str| Err(Fault::new(ResponseError::InvalidRequest, reason));
    check_group(caller, &message.group_id).map_err(Fault::plain)?;
    for topic in message.subscribed_topic_names.iter().flatten() {
        caller.topic(topic)?;
    }
    if message.member_id.trim().is_empty() {
        return invalid("MemberId can't be empty.");
    }
    if message.rack_id.as_ref().is_some_and(|rack| rack.trim().is_empty()) {
        return invalid("RackId can't be empty.");
    }
    let names = message.subscribed_topic_names.as_deref();
    if *message.group_id == *MAIN_LEASE_GROUP {
        check_queues(gateway, caller, names.unwrap_or_default())?;
    }
    match message.member_epoch {
        JOINING if names.is_none_or(<[_]>::is_empty) => {
            return invalid("SubscribedTopicNames must be set in first request.");
        }
        JOINING.. | LEAVING => {}
        _ => return invalid("MemberEpoch is invalid."),
    }
    let bytes: usize = names.unwrap_or_default().iter().map(|name| name.len()).sum();
    if bytes > GROUP_MEMBER_BYTES_MAX {
        return invalid("SubscribedTopicNames is too long.");
    }
    let groups = gateway.coordinator(&message.group_id).map_err(Fault::plain)?;
    if message.member_epoch == JOINING && !groups.has_room(&message.group_id, bytes) {
        return Err(Fault::plain(ResponseError::GroupMaxSizeReached));
    }
    Ok(())
}

fn leave(
    gateway: &Gateway,
    message: &ShareGroupHeartbeatRequest,
) -> Result<ShareGroupHeartbeatResponse, Fault> {
    gateway.coordinator(&message.group_id).map_err(Fault::plain)?.visit(
        &message.group_id,
        |visit| match visit.group {
            Some(Group::Share(group)) => Ok(group.leave(&message.member_id)?),
            Some(other) if !other.is_empty() => Err(not_a_share_group(&message.group_id)),
            _ => Err(unknown_member(message)),
        },
    )?;
    Ok(ShareGroupHeartbeatResponse::default().with_member_epoch(message.member_epoch))
}

pub(crate) fn not_a_share_group(group: &str) -> Fault {
    Fault::new(ResponseError::GroupIdNotFound, format!("Group {group} is not a share group."))
}

/// Kafka reports an unknown group here, at which clients give up. But members are not kept beyond the
/// coordinator, and on `UNKNOWN_MEMBER_ID` the member joins again.
fn unknown_member(message: &ShareGroupHeartbeatRequest) -> Fault {
    let (member, group) = (message.member_id.as_str(), message.group_id.as_str());
    let message = format!("Member {member} is not a member of group {group}.");
    Fault::new(ResponseError::UnknownMemberId, message)
}

async fn report(
    gateway: &Gateway,
    caller: &Caller,
    client: Client,
    message: &ShareGroupHeartbeatRequest,
) -> Result<ShareGroupHeartbeatResponse, Fault> {
    let name = &message.group_id;
    let (limits, interval_ms) = share_limits(&gateway.broker.catalog(), name);
    let has_offsets = has_offsets(gateway, name).await.map_err(Fault::plain)?;
    let event = heartbeat_event(message, client);
    let catalog = Topics(&gateway.broker);
    let (report, topics) =
        gateway.coordinator(name).map_err(Fault::plain)?.visit(name, |visit| {
            let GroupAccess { group, now, .. } = visit;
            let report = match &mut *group {
                Some(Group::Share(group)) => Ok(group.heartbeat(event, limits, &catalog, now)?),
                Some(other) if !other.is_empty() => Err(not_a_share_group(name)),
                // A group with committed offsets only belongs to another protocol.
                _ if has_offsets => Err(not_a_share_group(name)),
                _ if message.member_epoch != JOINING => Err(unknown_member(message)),
                // An empty group of another protocol is replaced.
                replaced => {
                    let mut group = ShareGroup::new(text(name));
                    let report = group.heartbeat(event, limits, &catalog, now)?;
                    *replaced = Some(Group::Share(group));
                    Ok(report)
                }
            }?;
            let topics = match group {
                Some(Group::Share(group)) if report.assigned.is_some() => group.topics().collect(),
                _ => Vec::new(),
            };
            Ok::<_, Fault>((report, topics))
        })?;
    // Lease groups exist before the member fetches from its new partitions.
    let topics = creatable_topics(gateway, caller, name, topics);
    lease_groups::ensure(&gateway.broker, name, &topics).await?;
    let Report { epoch, assigned } = report;
    Ok(ShareGroupHeartbeatResponse::default()
        .with_member_epoch(epoch)
        .with_heartbeat_interval_ms(interval_ms)
        .with_assignment(assigned.as_ref().map(reported)))
}

/// Keeps the topics in which the caller may create the group. The group `main` makes a topic a queue, which
/// another member may be allowed to do.
fn creatable_topics(
    gateway: &Gateway,
    caller: &Caller,
    group: &str,
    mut topics: Vec<Uuid>,
) -> Vec<Uuid> {
    if group == MAIN_LEASE_GROUP && !caller.is_unrestricted() {
        let catalog = gateway.broker.catalog();
        topics.retain(|uuid| {
            let topic = catalog.topic_with_uuid(uuid);
            topic.is_some_and(|topic| caller.may_make_queue(topic.name()))
        });
    }
    topics
}

/// Checks that the member may join `main` for these topics: any that is no queue yet becomes one.
fn check_queues(gateway: &Gateway, caller: &Caller, names: &[TopicName]) -> Result<(), Fault> {
    let catalog = gateway.broker.catalog();
    let is_queue = |name: &TopicName| {
        let topic = catalog.topic_named(name);
        topic.is_none_or(|it| catalog.lease_group_named(it.id(), MAIN_LEASE_GROUP).is_some())
    };
    match names.iter().all(|name| is_queue(name) || caller.may_make_queue(name)) {
        true => Ok(()),
        false => Err(topic_refused()),
    }
}

fn heartbeat_event(message: &ShareGroupHeartbeatRequest, client: Client) -> Heartbeat {
    let own_names = |names: &Vec<TopicName>| names.iter().map(|name| text(name)).collect();
    Heartbeat {
        member_id: text(&message.member_id),
        epoch: message.member_epoch,
        rack_id: message.rack_id.as_deref().map(text),
        names: message.subscribed_topic_names.as_ref().map(own_names),
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
    let message: ShareGroupDescribeRequest = request.decode()?;
    let count = message.group_ids.len();
    let permit = gateway.described_room(count, DESCRIBED_GROUP_BYTES).await;
    let response = ShareGroupDescribeResponse::default();
    let mut groups = ListWriter::new(gateway.broker.turns(), &request.head, &response, count)?;
    let caller = &request.caller;
    for name in &message.group_ids {
        let refuse = |fault: Fault| {
            DescribedGroup::default()
                .with_group_id(name.clone())
                .with_error_code(fault.code())
                .with_error_message(fault.message_bytes())
        };
        let describe = || match describe_one(gateway, caller, name) {
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
) -> Result<DescribedGroup, Fault> {
    check_group(caller, name).map_err(Fault::plain)?;
    let described = gateway.coordinator(name).map_err(Fault::plain)?.visit(name, |visit| {
        match visit.group {
            Some(known @ Group::Share(_)) => {
                check_described(gateway, caller, known)?;
                let Group::Share(group) = known else { return Ok(None) };
                Ok(Some(describe_group(group)))
            }
            Some(other) if !other.is_empty() => Err(not_a_share_group(name)),
            _ => Ok(None),
        }
    })?;
    let mut described = match described {
        Some(described) => described,
        None if tenants::sees_lease_groups(&gateway.broker, caller.rights(), name) => {
            DescribedGroup::default()
                .with_group_state(StrBytes::from_static_str(EMPTY_STATE))
                .with_assignor_name(StrBytes::from_static_str(simple::NAME))
        }
        None => return Err(group_not_found(name)),
    };
    // Deleted topics have no name, so their assignments are left out.
    let catalog = gateway.broker.catalog();
    for member in &mut described.members {
        member.assignment.topic_partitions.retain_mut(|topic| {
            let known = catalog.topic_with_uuid(&topic.topic_id);
            if let Some(known) = known {
                topic.topic_name = TopicName(own(known.name()));
            }
            known.is_some()
        });
    }
    Ok(described.with_group_id(name.clone()))
}

pub(crate) fn group_not_found(group: &str) -> Fault {
    Fault::new(ResponseError::GroupIdNotFound, format!("Group {group} not found."))
}

fn describe_group(group: &ShareGroup) -> DescribedGroup {
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(group.state_name()))
        .with_group_epoch(group.epoch())
        .with_assignment_epoch(group.target_epoch())
        .with_assignor_name(StrBytes::from_static_str(simple::NAME))
        .with_members(group.members().map(describe_member).collect())
}

fn describe_member(member: &Member) -> DescribedMember {
    let names: BTreeSet<_> =
        member.subscription.names.iter().map(|name| TopicName(own(name))).collect();
    let topics = member.assigned.topics().map(|(topic, partitions): (Uuid, _)| {
        DescribedPartitions::default()
            .with_topic_id(topic)
            .with_partitions(partitions.iter().copied().collect())
    });
    let assignment = DescribedAssignment::default().with_topic_partitions(topics.collect());
    DescribedMember::default()
        .with_member_id(own(&member.enrolment.id))
        .with_rack_id(member.enrolment.rack_id.as_deref().map(own))
        .with_member_epoch(member.epoch)
        .with_client_id(own(&member.enrolment.client.id))
        .with_client_host(own(&member.enrolment.client.host))
        .with_subscribed_topic_names(names.into_iter().collect())
        .with_assignment(assignment)
}
