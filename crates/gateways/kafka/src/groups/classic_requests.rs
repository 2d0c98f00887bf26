//! Requests of the classic protocol: converts messages to events, and replies to responses.

use crate::limits::GROUP_MEMBER_BYTES_MAX;
use base::limits::GROUP_NAME_BYTES_MAX;
use broker::Permit;
use consumer_groups::settings::{group_values, join_limits, millis};
use coordinator::classic::{
    ClassicGroup, Join, JoinGroupReply, JoinRefused, LeavingMember, Protocol, Sync, SyncGroupReply,
};
use coordinator::member::{Client, Reply, Waiter};
use coordinator::{ErrorKind, Group, GroupAccess, text};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::authorization::Caller;
use crate::errors::group_code;
use crate::groups::code_of;
use crate::groups::text::{own, own_bytes};
use crate::groups::waiting::{answer_or_drain, visit_to_store};
use crate::messages::{RequestError, RequestHead, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};

/// Checks that the caller may perform its action on the group, and that the name is valid.
pub(crate) fn check_group(caller: &Caller, name: &str) -> Result<(), ResponseError> {
    caller.group(name)?;
    check_group_name(name)
}

/// Checks that a group can have this name.
fn check_group_name(name: &str) -> Result<(), ResponseError> {
    if (1..=GROUP_NAME_BYTES_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(ResponseError::InvalidGroupId)
    }
}

// ------------------------------------------------------------------------------------------ join

pub(crate) async fn join(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: JoinGroupRequest = request.decode()?;
    let Request { head, permit, caller, .. } = request;
    let mut response = match caller.group(&message.group_id) {
        Ok(()) => join_response(gateway, session, &head, message, permit).await,
        Err(error) => join_refused(&message.member_id, error),
    };
    if head.version < 7 && response.protocol_name.is_none() {
        // Not nullable before version 7.
        response.protocol_name = Some(StrBytes::new());
    }
    Response::encode(&head, &response)
}

async fn join_response(
    gateway: &Gateway,
    session: &Session,
    head: &RequestHead,
    message: JoinGroupRequest,
    permit: Option<Permit>,
) -> JoinGroupResponse {
    let member_id = text(&message.member_id);
    if let Err(error) = check_join(gateway, &message) {
        return join_refused(&member_id, error);
    }
    let refused = |error| Err(JoinRefused { member_id: member_id.clone(), error });
    let limits = join_limits(&group_values(&gateway.broker));
    let client = client_of(session, head);
    let event = |visit: GroupAccess<'_>, waiter| {
        let join = join_event(gateway, &message, head, client, waiter);
        let GroupAccess { group, now, effects } = visit;
        let is_other = |group: &Group| !matches!(group, Group::Classic(_));
        if group.as_ref().is_some_and(|group| is_other(group) && group.is_empty()) {
            *group = None;
        }
        // A member id of a group that forgot its members is invalid: the member must rejoin without it.
        if group.is_none() && !join.member_id.is_empty() {
            return effects.join(waiter, refused(ErrorKind::UnknownMemberId));
        }
        let empty = || Group::Classic(ClassicGroup::new(text(&message.group_id)));
        match group.get_or_insert_with(empty) {
            Group::Classic(group) => group.join(join, limits, now, effects),
            // All members of a group use one protocol; there is no migration of a group with members.
            Group::Consumer(_) | Group::Share(_) | Group::Streams(_) => {
                effects.join(waiter, refused(ErrorKind::InconsistentGroupProtocol));
            }
        }
    };
    let mut answer = match gateway.coordinator(&message.group_id) {
        Ok(groups) => groups.visit_and_wait(&message.group_id, event),
        Err(error) => return join_refused(&member_id, error),
    };
    // The group keeps a bounded copy of what it needs.
    drop((message, permit));
    match answer_or_drain(gateway, &mut answer).await {
        Ok(Reply::Join(Ok(joined))) => joined_response(joined),
        Ok(Reply::Join(Err(JoinRefused { member_id, error }))) => {
            join_refused(&member_id, group_code(error))
        }
        Ok(Reply::Sync(_)) => join_refused(&member_id, ResponseError::UnknownServerError),
        Err(error) => join_refused(&member_id, error),
    }
}

fn joined_response(joined: JoinGroupReply) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(own(&member.id))
            .with_group_instance_id(member.instance_id.as_deref().map(own))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type(joined.protocol_type.as_deref().map(own))
        .with_protocol_name(joined.protocol.as_deref().map(own))
        .with_leader(own(&joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(own(&joined.member_id))
        .with_members(members.collect())
}

fn join_refused(member_id: &str, error: ResponseError) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_member_id(own(member_id))
        .with_protocol_name(None)
        .with_error_code(error.code())
}

fn check_join(gateway: &Gateway, message: &JoinGroupRequest) -> Result<(), ResponseError> {
    check_group_name(&message.group_id)?;
    let groups = gateway.coordinator(&message.group_id)?;
    let values = group_values(&gateway.broker);
    let allowed = values.session_timeout_ms_min..=values.session_timeout_ms_max;
    if !allowed.contains(&message.session_timeout_ms) {
        return Err(ResponseError::InvalidSessionTimeout);
    }
    let protocols = message.protocols.iter();
    let bytes: usize = protocols.map(|known| known.name.len() + known.metadata.len()).sum();
    if bytes > GROUP_MEMBER_BYTES_MAX {
        return Err(ResponseError::MessageTooLarge);
    }
    if !groups.has_room(&message.group_id, bytes) {
        return Err(ResponseError::GroupMaxSizeReached);
    }
    Ok(())
}

fn join_event(
    gateway: &Gateway,
    message: &JoinGroupRequest,
    head: &RequestHead,
    client: Client,
    waiter: Waiter,
) -> Join {
    let instance_id = message.group_instance_id.as_deref().map(text);
    let name = instance_id.as_deref().unwrap_or(&client.id);
    let rebalance_timeout_ms =
        if head.version == 0 { message.session_timeout_ms } else { message.rebalance_timeout_ms };
    let protocols = message.protocols.iter().map(|protocol| Protocol {
        name: text(&protocol.name),
        metadata: own_bytes(&protocol.metadata),
    });
    Join {
        waiter,
        member_id: text(&message.member_id),
        fresh_id: format!("{name}-{}", gateway.broker.entropy().uuid()).into(),
        instance_id,
        client,
        session_timeout: millis(message.session_timeout_ms),
        rebalance_timeout: millis(rebalance_timeout_ms),
        protocol_type: text(&message.protocol_type),
        protocols: protocols.collect(),
        reason: reason(message.reason.as_deref()),
        may_be_sent_back: head.version >= 4,
        may_skip_assignment: head.version >= 9,
    }
}

pub(crate) fn client_of(session: &Session, head: &RequestHead) -> Client {
    Client { id: text(head.client_id.as_deref().unwrap_or_default()), host: session.client_host() }
}

/// The client's reason, cut to a length fit for a log line.
fn reason(given: Option<&str>) -> String {
    const REASON_CHARS_MAX: usize = 256;
    given.unwrap_or("not provided").chars().take(REASON_CHARS_MAX).collect()
}

// ------------------------------------------------------------------------------------------ sync

pub(crate) async fn sync(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: SyncGroupRequest = request.decode()?;
    let Request { head, permit, caller, .. } = request;
    let response = match caller.group(&message.group_id) {
        Ok(()) => sync_response(gateway, message, permit).await,
        Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
    };
    Response::encode(&head, &response)
}

async fn sync_response(
    gateway: &Gateway,
    message: SyncGroupRequest,
    permit: Option<Permit>,
) -> SyncGroupResponse {
    let refused = |error: ResponseError| SyncGroupResponse::default().with_error_code(error.code());
    if let Err(error) = check_sync(gateway, &message) {
        return refused(error);
    }
    let event = |visit: GroupAccess<'_>, waiter| {
        let assignments = message.assignments.iter();
        let sync = Sync {
            waiter,
            member_id: text(&message.member_id),
            instance_id: message.group_instance_id.as_deref().map(text),
            generation: message.generation_id,
            protocol_type: message.protocol_type.as_deref().map(text),
            protocol: message.protocol_name.as_deref().map(text),
            assignments: assignments
                .map(|one| (text(&one.member_id), own_bytes(&one.assignment)))
                .collect(),
        };
        match visit.group {
            Some(Group::Classic(group)) => group.sync(sync, visit.now, visit.effects),
            Some(Group::Consumer(_) | Group::Share(_) | Group::Streams(_)) | None => {
                visit.effects.sync(waiter, Err(ErrorKind::UnknownMemberId));
            }
        }
    };
    let mut answer = match gateway.coordinator(&message.group_id) {
        Ok(groups) => groups.visit_and_wait(&message.group_id, event),
        Err(error) => return refused(error),
    };
    drop((message, permit));
    match answer_or_drain(gateway, &mut answer).await {
        Ok(Reply::Sync(Ok(synced))) => synced_response(synced),
        Ok(Reply::Sync(Err(error))) => refused(group_code(error)),
        Ok(Reply::Join(_)) => refused(ResponseError::UnknownServerError),
        Err(error) => refused(error),
    }
}

fn synced_response(synced: SyncGroupReply) -> SyncGroupResponse {
    SyncGroupResponse::default()
        .with_protocol_type(synced.protocol_type.as_deref().map(own))
        .with_protocol_name(synced.protocol.as_deref().map(own))
        .with_assignment(synced.assignment)
}

fn check_sync(gateway: &Gateway, message: &SyncGroupRequest) -> Result<(), ResponseError> {
    check_group_name(&message.group_id)?;
    if message.assignments.iter().any(|one| one.assignment.len() > GROUP_MEMBER_BYTES_MAX) {
        return Err(ResponseError::MessageTooLarge);
    }
    let bytes = message.assignments.iter().map(|one| one.assignment.len()).sum();
    if bytes > 0 && !gateway.coordinator(&message.group_id)?.has_room(&message.group_id, bytes) {
        return Err(ResponseError::GroupMaxSizeReached);
    }
    Ok(())
}

// ------------------------------------------------------------------------------ heartbeat, leave

pub(crate) fn heartbeat(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: HeartbeatRequest = request.decode()?;
    let (member, generation) = (&message.member_id, message.generation_id);
    let instance = message.group_instance_id.as_deref();
    let result = check_group(&request.caller, &message.group_id).and_then(|()| {
        let beat = gateway.coordinator(&message.group_id)?.visit(&message.group_id, |visit| {
            match visit.group {
                Some(Group::Classic(group)) => {
                    group.heartbeat(member, instance, generation, visit.now)
                }
                Some(Group::Consumer(_) | Group::Share(_) | Group::Streams(_)) | None => {
                    Err(ErrorKind::UnknownMemberId)
                }
            }
        });
        beat.map_err(group_code)
    });
    let response = HeartbeatResponse::default().with_error_code(code_of(result));
    Response::encode(&request.head, &response)
}

pub(crate) async fn leave(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let mut message: LeaveGroupRequest = request.decode()?;
    let is_batched = request.head.version >= 3;
    if !is_batched {
        let member = std::mem::take(&mut message.member_id);
        message.members = vec![MemberIdentity::default().with_member_id(member)];
    }
    let mut response = LeaveGroupResponse::default();
    if let Err(error) = check_group(&request.caller, &message.group_id) {
        response.error_code = error.code();
        return Response::encode(&request.head, &response);
    }
    let results = match leave_results(gateway, &message).await {
        Ok(results) => results,
        Err(error) => {
            response.error_code = error.code();
            return Response::encode(&request.head, &response);
        }
    };
    if is_batched {
        let members = message.members.iter().zip(results).map(|(member, result)| {
            MemberResponse::default()
                .with_member_id(member.member_id.clone())
                .with_group_instance_id(member.group_instance_id.clone())
                .with_error_code(code_of(result.map_err(group_code)))
        });
        response.members = members.collect();
    } else {
        response.error_code = results
            .into_iter()
            .map(|result| code_of(result.map_err(group_code)))
            .next()
            .unwrap_or(0);
    }
    Response::encode(&request.head, &response)
}

async fn leave_results(
    gateway: &Gateway,
    message: &LeaveGroupRequest,
) -> Result<Vec<Result<(), ErrorKind>>, ResponseError> {
    let limits = join_limits(&group_values(&gateway.broker));
    let leavers: Vec<_> = message
        .members
        .iter()
        .map(|member| LeavingMember {
            member_id: text(&member.member_id),
            instance_id: member.group_instance_id.as_deref().map(text),
            reason: reason(member.reason.as_deref()),
        })
        .collect();
    let event = |visit: GroupAccess<'_>| match visit.group {
        Some(Group::Classic(group)) => group.leave(&leavers, limits, visit.now, visit.effects),
        Some(Group::Consumer(_) | Group::Share(_) | Group::Streams(_)) | None => {
            vec![Err(ErrorKind::UnknownMemberId); leavers.len()]
        }
    };
    visit_to_store(gateway, &message.group_id, event).await
}
