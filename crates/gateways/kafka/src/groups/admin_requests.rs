//! Finding, listing, describing and deleting groups.
//!
//! A group is known if it has members here, or committed offsets or lease groups.

use std::collections::BTreeMap;

use base::HashSet;
use broker::YieldBudget;
use consumer_groups::limits::GROUPS_PER_LOOK;
use consumer_groups::{lease_groups, tenants};
use coordinator::Group;
use coordinator::classic::{ClassicGroup, Phase};
use coordinator::share::EMPTY_STATE;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, GroupId, ListGroupsRequest,
    ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::authorization::Caller;
use crate::errors::Fault;
use crate::groups::classic_requests::check_group;
use crate::groups::committed::{
    WithOffsets, coordinator_error, coordinator_unavailable, has_offsets,
};
use crate::groups::share_offset_requests::delete_part;
use crate::groups::share_requests::group_not_found;
use crate::groups::text::own;
use crate::groups::{check_described, code_of};
use crate::leaders::{
    KnownLeaders, NO_NODE, ReachableNode, broker_id, host_of, port_of, reached_node,
};
use crate::messages::list_response::ListWriter;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};
use crate::unsupported::transactions::no_transactions_for;

// ---------------------------------------------------------------------------------- coordinators

/// Types of coordinator keys.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;
/// Key of a share group's partition, as brokers exchange it (KIP-932).
const SHARE_KEY: i8 = 2;
/// First version with keys of share groups.
const SHARE_KEYS_SINCE: i16 = 6;

pub(crate) async fn find_coordinator(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: FindCoordinatorRequest = request.decode()?;
    let _ = KnownLeaders::once_led(gateway, session.is_encrypted()).await;
    let version = request.head.version;
    let caller = &request.caller;
    let response = if version >= 4 {
        let coordinators = message.coordinator_keys.into_iter().map(|key| {
            let found = find_one(gateway, session, caller, message.key_type, &key, version);
            let coordinator = Coordinator::default().with_key(key);
            match &found {
                Ok(node) => coordinator
                    .with_node_id(broker_id(node.id))
                    .with_host(host_of(node))
                    .with_port(port_of(node))
                    .with_error_message(None),
                Err(fault) => coordinator
                    .with_node_id(NO_NODE)
                    .with_port(-1)
                    .with_error_code(fault.code())
                    .with_error_message(fault.message_bytes()),
            }
        });
        FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
    } else {
        match &find_one(gateway, session, caller, message.key_type, &message.key, version) {
            Ok(node) => FindCoordinatorResponse::default()
                .with_node_id(broker_id(node.id))
                .with_host(host_of(node))
                .with_port(port_of(node))
                .with_error_message(None),
            Err(fault) => FindCoordinatorResponse::default()
                .with_node_id(NO_NODE)
                .with_port(-1)
                .with_error_code(fault.code())
                .with_error_message(fault.message_bytes()),
        }
    };
    Response::encode(&request.head, &response)
}

/// Returns the node that leads the shard of the key's group or transactional id.
fn find_one(
    gateway: &Gateway,
    session: &Session,
    caller: &Caller,
    key_type: i8,
    key: &str,
    version: i16,
) -> Result<ReachableNode, Fault> {
    let leader = if key_type == TRANSACTION_KEY {
        if !gateway.broker.has_transactions() {
            return Err(no_transactions_for(session));
        }
        caller.transactional_id(key).map_err(Fault::plain)?;
        gateway.broker.transaction_coordinator(key)
    } else {
        let group = check_key(key_type, key, version)?;
        caller.group(group).map_err(Fault::plain)?;
        gateway.broker.coordinator(group)
    };
    let found = leader.and_then(|leader| reached_node(gateway, leader, session.is_encrypted()));
    found.ok_or_else(|| {
        let reason = match leader {
            Some(leader) => format!("broker {leader} coordinates it and is not connected"),
            None => "no broker leads its shard at present".to_owned(),
        };
        Fault::new(ResponseError::CoordinatorNotAvailable, reason)
    })
}

/// Returns the group that the key names.
fn check_key(key_type: i8, key: &str, version: i16) -> Result<&str, Fault> {
    match key_type {
        GROUP_KEY => Ok(key),
        SHARE_KEY if version >= SHARE_KEYS_SINCE => check_share_key(key),
        _ => Err(Fault::new(
            ResponseError::InvalidRequest,
            format!("there is no coordinator for keys of type {key_type}"),
        )),
    }
}

/// Parses a share group, a topic id and a partition, separated by colons.
fn check_share_key(key: &str) -> Result<&str, Fault> {
    let mut words = key.rsplitn(3, ':');
    let partition = words.next().and_then(|word| word.parse::<u32>().ok());
    // A topic id as Kafka writes it: 16 bytes in base 64 without padding.
    let topic = words.next().filter(|word| word.len() == 22);
    let group = words.next().filter(|word| !word.is_empty());
    match (group, topic, partition) {
        (Some(group), Some(_), Some(_)) => Ok(group),
        _ => Err(Fault::new(
            ResponseError::InvalidRequest,
            format!("{key:?} is no share group, topic id and partition"),
        )),
    }
}

// -------------------------------------------------------------------------------- list, describe

/// Approximate bytes of a listed group while the response is built.
const LISTED_GROUP_BYTES: usize = 256;

pub(crate) async fn list(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ListGroupsRequest = request.decode()?;
    if let Err(why) = gateway.broker.led_are_current().await {
        let code = coordinator_unavailable(why).code();
        return Response::encode(
            &request.head,
            &ListGroupsResponse::default().with_error_code(code),
        );
    }
    let offset_groups = gateway.broker.shards().coordinated_group_count();
    let count = offset_groups + gateway.broker.catalog().lease_group_count();
    let permit = gateway.answer_room(count * LISTED_GROUP_BYTES).await;
    let states = lower_case(&message.states_filter);
    let types = lower_case(&message.types_filter);
    let caller = &request.caller;
    let mut listed = durable_groups(gateway, caller).await;
    gateway.options.groups.for_each(|name, group| {
        if tenants::is_listed(&gateway.broker, caller.rights(), group) {
            let row = listed_group(group.protocol_type(), group.state_name(), group.type_name());
            listed.insert(name.to_string(), row);
        }
    });
    let sees_all = caller.may_describe_cluster();
    let groups = listed
        .into_iter()
        .filter(|(name, _)| sees_all || caller.group(name).is_ok())
        .filter(|(_, group)| {
            states.is_empty() || states.contains(&group.group_state.to_lowercase())
        })
        .filter(|(_, group)| types.is_empty() || types.contains(&group.group_type.to_lowercase()))
        .map(|(name, group)| group.with_group_id(GroupId(StrBytes::from_string(name))));
    let response = ListGroupsResponse::default().with_groups(groups.collect());
    let mut response = Response::encode(&request.head, &response)?;
    response.permit = permit;
    Ok(response)
}

/// Groups that exist without members (by offsets or lease groups), listed as empty.
async fn durable_groups(gateway: &Gateway, caller: &Caller) -> BTreeMap<String, ListedGroup> {
    let mut listed = BTreeMap::new();
    let mut pace = YieldBudget::new(gateway.broker.turns(), GROUPS_PER_LOOK as u32);
    // Adds the groups that this node coordinates: clients query every node. Returns the last name, after
    // which the next page begins.
    let is_seen =
        |name: &String| tenants::sees_lease_groups(&gateway.broker, caller.rights(), name);
    let mut add = async |names: Vec<String>, row: &ListedGroup, of_leases: bool| {
        let last = names.last().cloned()?;
        pace.step(names.len() as u32).await;
        let ours = names.into_iter().filter(|name| gateway.options.groups.coordinates(name));
        let ours = ours.filter(|name| !of_leases || is_seen(name));
        listed.extend(ours.map(|name| (name, row.clone())));
        Some(last)
    };
    // Share groups first: a group that has offsets as well counts as classic.
    let row = listed_group(Group::SHARE, EMPTY_STATE, Group::SHARE);
    let mut last = Some(String::new());
    while let Some(after) = last {
        last = add(lease_group_names_after(gateway, &after), &row, true).await;
    }
    let row = listed_group("", Phase::Empty.name(), Group::CLASSIC);
    let mut last = Some(String::new());
    while let Some(after) = last {
        let names = gateway.broker.shards().coordinated_groups_after(&after, GROUPS_PER_LOOK);
        last = add(names, &row, false).await;
    }
    listed
}

fn lease_group_names_after(gateway: &Gateway, name: &str) -> Vec<String> {
    let catalog = gateway.broker.catalog();
    catalog.lease_group_names_after(name).take(GROUPS_PER_LOOK).map(str::to_owned).collect()
}

fn lower_case(filter: &[StrBytes]) -> HashSet<String> {
    filter.iter().map(|word| word.trim().to_lowercase()).collect()
}

fn listed_group(protocol_type: &str, state: &'static str, kind: &'static str) -> ListedGroup {
    ListedGroup::default()
        .with_protocol_type(own(protocol_type))
        .with_group_state(StrBytes::from_static_str(state))
        .with_group_type(StrBytes::from_static_str(kind))
}

/// Approximate bytes of a group with a few members in a describe response.
pub(super) const DESCRIBED_GROUP_BYTES: usize = 1_024;

pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeGroupsRequest = request.decode()?;
    let (count, version) = (message.groups.len(), request.head.version);
    let permit = gateway.described_room(count, DESCRIBED_GROUP_BYTES).await;
    let response = DescribeGroupsResponse::default();
    let mut groups = ListWriter::new(gateway.broker.turns(), &request.head, &response, count)?;
    let mut have_some = WithOffsets::default();
    let caller = &request.caller;
    for (place, name) in message.groups.iter().enumerate() {
        let has_offsets = have_some.at(gateway, &message.groups, place).await;
        let describe = || {
            let described = describe_one(gateway, caller, name, version, has_offsets);
            if message.include_authorized_operations && described.error_code == 0 {
                described.with_authorized_operations(caller.group_bits(name))
            } else {
                described
            }
        };
        let refuse = |fault: Fault| {
            let refused = DescribedGroup::default().with_group_id(name.clone());
            let message = if version < 6 { None } else { fault.message_bytes() };
            refused.with_error_code(fault.code()).with_error_message(message)
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
) -> DescribedGroup {
    let described = DescribedGroup::default().with_group_id(name.clone());
    let has_offsets = match check_group(caller, name).and(has_offsets) {
        Ok(has_offsets) => has_offsets,
        Err(error) => return described.with_error_code(error.code()),
    };
    let groups = match gateway.coordinator(name) {
        Ok(groups) => groups,
        Err(error) => return described.with_error_code(error.code()),
    };
    groups.visit(name, |visit| match visit.group {
        Some(group) if check_described(gateway, caller, group).is_err() => {
            described.with_error_code(ResponseError::TopicAuthorizationFailed.code())
        }
        Some(Group::Classic(group)) => describe_classic(described, group),
        Some(Group::Share(_)) | None if has_offsets => {
            described.with_group_state(StrBytes::from_static_str(Phase::Empty.name()))
        }
        Some(Group::Consumer(_) | Group::Share(_) | Group::Streams(_)) => {
            let message = format!("Group {} is not a classic group.", name.as_str());
            not_found(described, version, message)
        }
        None => {
            let fault = group_not_found(name);
            not_found(described, version, fault.message().unwrap_or_default().to_owned())
        }
    })
}

/// An unknown group is reported as dead; before version 6 without an error.
fn not_found(described: DescribedGroup, version: i16, message: String) -> DescribedGroup {
    let described = described.with_group_state(StrBytes::from_static_str("Dead"));
    if version < 6 {
        return described;
    }
    described
        .with_error_code(ResponseError::GroupIdNotFound.code())
        .with_error_message(Some(StrBytes::from_string(message)))
}

fn describe_classic(described: DescribedGroup, group: &ClassicGroup) -> DescribedGroup {
    let is_stable = group.phase() == Phase::Stable;
    let members = group.members().map(|member| {
        let described = DescribedGroupMember::default()
            .with_member_id(own(&member.id))
            .with_group_instance_id(member.instance_id.as_deref().map(own))
            .with_client_id(own(&member.client.id))
            .with_client_host(own(&member.client.host))
            .with_member_assignment(member.assignment.clone());
        if is_stable {
            described.with_member_metadata(group.metadata_of(member))
        } else {
            described
        }
    });
    let protocol = if is_stable { group.protocol() } else { None };
    described
        .with_group_state(StrBytes::from_static_str(group.phase().name()))
        .with_protocol_type(own(group.protocol_type().unwrap_or_default()))
        .with_protocol_data(own(protocol.unwrap_or_default()))
        .with_members(members.collect())
}

// ---------------------------------------------------------------------------------------- delete

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteGroupsRequest = request.decode()?;
    let mut results = Vec::with_capacity(message.groups_names.len());
    for name in message.groups_names {
        let code = code_of(delete_one(gateway, &request.caller, &name).await);
        results.push(DeletableGroupResult::default().with_group_id(name).with_error_code(code));
    }
    let response = DeleteGroupsResponse::default().with_results(results);
    Response::encode(&request.head, &response)
}

async fn delete_one(
    gateway: &Gateway,
    caller: &Caller,
    name: &GroupId,
) -> Result<(), ResponseError> {
    check_group(caller, name)?;
    let may_delete = tenants::may_be_deleted(&gateway.broker, caller.rights(), name).await;
    if !may_delete.map_err(|why| Fault::from(why).error)? {
        return Err(ResponseError::GroupAuthorizationFailed);
    }
    let was_known = gateway.coordinator(name)?.visit(name, |visit| match visit.group {
        Some(group) if !group.is_empty() => Err(ResponseError::NonEmptyGroup),
        known => Ok(known.take().is_some()),
    })?;
    if has_offsets(gateway, name).await? {
        let deleted = gateway.broker.shards().delete_offset_group(name).await;
        return deleted.map_err(coordinator_error);
    }
    let parts = lease_groups::parts(&gateway.broker, name);
    if parts.is_empty() && !was_known {
        return Err(ResponseError::GroupIdNotFound);
    }
    for part in parts.values() {
        delete_part(gateway, part).await.map_err(|fault| fault.error)?;
    }
    Ok(())
}
