//! Groups that commit offsets: lists and describes them, moves their offsets while they are empty, deletes
//! them.
//!
//! Only the node that coordinates a group knows its members; another node names the coordinator. Committed
//! offsets can be read everywhere, and are not here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use access::{AccessTarget, Operation as Right, Rights};
use access_rules::acl::{Action, Resource};
use base::PartitionId;
use base::limits::OPERATION_RECORDS_MAX;
use broker::{Broker, CommitOffset, ExecuteError, Refusal, YieldBudget};
use consumer_groups::limits::GROUPS_PER_LOOK;
use consumer_groups::{CoordinatorError, Groups, tenants};
use coordinator::assignment::Assignment;
use coordinator::classic::assignment::assigned_partitions;
use coordinator::classic::{ClassicGroup, Phase};
use coordinator::consumer::ConsumerGroup;
use coordinator::member::Client;
use coordinator::{Group, Text};
use operations::document::EmptyReply;
use operations::offset_groups::{
    AssignedTopic, Membership, OffsetGroupMember, OffsetGroupPage, OffsetGroupReport,
    OffsetGroupSummary, OffsetPlace,
};

use crate::AdminError;
use crate::queues::no_topic;

/// The broker of this node, and the groups that it coordinates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) groups: &'a Groups,
}

// ------------------------------------------------------------------------------------------- list

pub(crate) async fn list(
    node: Node<'_>,
    caller: &Rights,
    after: Option<&str>,
    groups_max: u32,
) -> Result<OffsetGroupPage, AdminError> {
    let max = (groups_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let mut pace = YieldBudget::new(node.broker.turns(), GROUPS_PER_LOOK as u32);
    let mut after = after.unwrap_or_default().to_owned();
    let mut groups: Vec<OffsetGroupSummary> = Vec::new();
    // Groups that the caller may not see are skipped, a page at a time.
    loop {
        let mut names = node.broker.shards().offset_groups_after(&after, GROUPS_PER_LOOK).await?;
        pace.step(names.len() as u32).await;
        let mut until = names.last().filter(|_| names.len() == GROUPS_PER_LOOK).cloned();
        let mut found = with_members(node, caller, &after, until.as_deref(), max + 1);
        if found.len() > max {
            // More groups may follow.
            until = found.last_key_value().map(|(name, _)| name.clone());
        }
        names.retain(|name| until.as_ref().is_none_or(|until| name <= until));
        for name in names {
            let empty = || node.groups.coordinates(&name).then(without_members);
            let membership = empty();
            found.entry(name).or_insert(membership);
        }
        let seen = found.into_iter().filter(|(name, _)| sees(caller, name));
        groups.extend(seen.map(|(name, membership)| OffsetGroupSummary { name, membership }));
        match until {
            Some(until) if groups.len() <= max => after = until,
            _ => break,
        }
    }
    let more = groups.len() > max;
    groups.truncate(max);
    Ok(OffsetGroupPage { groups, more })
}

fn sees(caller: &Rights, group: &str) -> bool {
    caller.allows(Action::Describe, Resource::Group, group)
}

/// Returns the first `max` groups with members here whose names lie between the bounds.
fn with_members(
    node: Node<'_>,
    caller: &Rights,
    after: &str,
    until: Option<&str>,
    max: usize,
) -> BTreeMap<String, Option<Membership>> {
    let range = (Bound::Excluded(after), until.map_or(Bound::Unbounded, Bound::Included));
    let mut found: BTreeMap<String, Option<Membership>> = BTreeMap::new();
    node.groups.for_each(|name, group| {
        let is_between = std::ops::RangeBounds::<str>::contains(&range, name);
        let is_full =
            found.len() == max && found.last_key_value().is_some_and(|(last, _)| name > &**last);
        if !is_between || is_full || matches!(group, Group::Share(_)) {
            return;
        }
        if !tenants::is_listed(node.broker, caller, group) {
            return;
        }
        found.insert(name.to_owned(), Some(membership(group)));
        if found.len() > max {
            found.pop_last();
        }
    });
    found
}

fn without_members() -> Membership {
    Membership {
        kind: Group::CLASSIC.to_owned(),
        state: Phase::Empty.name().to_owned(),
        assignor: None,
        epoch: 0,
        members: 0,
    }
}

fn membership(group: &Group) -> Membership {
    let (assignor, epoch, members) = match group {
        Group::Classic(group) => {
            (group.protocol().map(str::to_owned), group.generation(), group.members().count())
        }
        Group::Consumer(group) => {
            (Some(group.assignor().name().to_owned()), group.epoch(), group.members().count())
        }
        Group::Share(group) => (None, group.epoch(), group.members().count()),
        Group::Streams(group) => (None, group.epoch(), group.members().count()),
    };
    let (kind, state) = (group.type_name().to_owned(), group.state_name().to_owned());
    Membership { kind, state, assignor, epoch, members }
}

// --------------------------------------------------------------------------------------- describe

pub(crate) async fn describe(
    node: Node<'_>,
    caller: &Rights,
    name: &str,
    after: Option<&str>,
    members_max: u32,
) -> Result<OffsetGroupReport, AdminError> {
    let max = (members_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let has_offsets = node.broker.shards().has_offsets(name).await?;
    let (membership, mut members) = visit(node, name, |group| match group {
        Some(Group::Share(_)) | None if has_offsets => Ok((without_members(), Vec::new())),
        Some(Group::Share(_)) | None => Err(not_found(name)),
        Some(group) => Ok((membership(group), members(group, after, max + 1))),
    })?;
    let more = members.len() > max;
    members.truncate(max);
    let members = members.into_iter().map(|member| shown(node.broker, caller, member)).collect();
    Ok(OffsetGroupReport { coordinator: node.broker.node(), membership, members, more })
}

/// A member, copied while its group was locked.
struct MemberCopy {
    id: Text,
    instance: Option<Text>,
    client: Client,
    topics: Option<Vec<String>>,
    has: MemberAssignment,
}

enum MemberAssignment {
    /// As the leader of the group has written it.
    Written(bytes::Bytes),
    Divided {
        assigned: Assignment,
        target: Assignment,
    },
    Unsaid,
}

/// Returns up to `max` members, by id.
fn members(group: &Group, after: Option<&str>, max: usize) -> Vec<MemberCopy> {
    let is_after = |id: &Text| after.is_none_or(|after| &**id > after);
    match group {
        Group::Classic(group) => {
            let members = group.members().filter(|member| is_after(&member.id));
            members.take(max).map(|member| classic_member(group, member)).collect()
        }
        Group::Consumer(group) => consumer_members(group, is_after, max),
        Group::Streams(group) => {
            let members = group.members().filter(|member| is_after(&member.enrolment.id));
            let found = members.take(max).map(|member| MemberCopy {
                id: member.enrolment.id.clone(),
                instance: None,
                client: member.enrolment.client.clone(),
                topics: None,
                has: MemberAssignment::Unsaid,
            });
            found.collect()
        }
        Group::Share(_) => Vec::new(),
    }
}

fn classic_member(group: &ClassicGroup, member: &coordinator::classic::Member) -> MemberCopy {
    let is_divided = group.is_of_consumers() && group.phase() == Phase::Stable;
    MemberCopy {
        id: member.id.clone(),
        instance: member.instance_id.clone(),
        client: member.client.clone(),
        topics: group.topics_of(member),
        has: match is_divided {
            true => MemberAssignment::Written(member.assignment.clone()),
            false => MemberAssignment::Unsaid,
        },
    }
}

fn consumer_members(
    group: &ConsumerGroup,
    is_after: impl Fn(&Text) -> bool,
    max: usize,
) -> Vec<MemberCopy> {
    let members = group.members().filter(|member| is_after(&member.enrolment.id));
    let found = members.take(max).map(|member| {
        let subscription = &member.subscription;
        let names = subscription.names.iter().map(ToString::to_string).collect();
        MemberCopy {
            id: member.enrolment.id.clone(),
            instance: member.instance_id.clone(),
            client: member.enrolment.client.clone(),
            topics: subscription.pattern.is_none().then_some(names),
            has: MemberAssignment::Divided {
                assigned: member.state.assigned.clone(),
                target: member.state.target.clone(),
            },
        }
    });
    found.collect()
}

/// Resolves the names of topics, and leaves out those that the caller may not see.
fn shown(broker: &Broker, caller: &Rights, found: MemberCopy) -> OffsetGroupMember {
    let sees = |topic: &str| caller.would(Right::Describe, AccessTarget::Topic(topic));
    let named = |assignment: &Assignment| -> Vec<AssignedTopic> {
        let catalog = broker.catalog();
        let topics = assignment.topics().filter_map(|(topic, partitions)| {
            // A deleted topic has no name.
            let topic = catalog.topic_with_uuid(&topic)?.name().to_string();
            let partitions = partitions.iter().filter_map(|&it| u32::try_from(it).ok()).collect();
            Some(AssignedTopic { topic, partitions })
        });
        let mut topics: Vec<AssignedTopic> = topics.filter(|it| sees(&it.topic)).collect();
        topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        topics
    };
    let (assignment, target) = match &found.has {
        MemberAssignment::Written(bytes) => {
            let read = assigned_partitions(bytes);
            let seen = read.map(|topics| {
                let seen = topics.into_iter().filter(|topic| sees(&topic.topic));
                let shown =
                    seen.map(|it| AssignedTopic { topic: it.topic, partitions: it.partitions });
                shown.collect()
            });
            (seen, None)
        }
        MemberAssignment::Divided { assigned, target } => {
            (Some(named(assigned)), (assigned != target).then(|| named(target)))
        }
        MemberAssignment::Unsaid => (None, None),
    };
    let mut topics = found.topics;
    if let Some(topics) = &mut topics {
        topics.retain(|topic| sees(topic));
        topics.sort_unstable();
    }
    OffsetGroupMember {
        id: found.id.to_string(),
        instance: found.instance.as_deref().map(str::to_owned),
        client: found.client.id.to_string(),
        // Without the slash that Kafka puts before it.
        address: found.client.host.trim_start_matches('/').to_owned(),
        topics,
        assignment,
        target,
    }
}

// ------------------------------------------------------------------------------------------- seek

pub(crate) async fn seek(
    node: Node<'_>,
    name: &str,
    to: &[OffsetPlace],
    dry_run: bool,
) -> Result<EmptyReply, AdminError> {
    if to.is_empty() || to.len() > OPERATION_RECORDS_MAX {
        let count = to.len();
        return Err(AdminError::Invalid(format!(
            "a seek has 1 to {OPERATION_RECORDS_MAX} places, not {count}"
        )));
    }
    let partitions =
        to.iter().map(|place| find(node.broker, place)).collect::<Result<Vec<_>, _>>()?;
    if partitions.iter().collect::<BTreeSet<_>>().len() < partitions.len() {
        return Err(AdminError::Invalid("a partition is named twice".to_owned()));
    }
    let bounds = node.broker.shards().bounds(&partitions).await?;
    for (place, bounds) in to.iter().zip(bounds) {
        let OffsetPlace { topic, partition, offset } = place;
        let (start, end) = bounds.map_or((0, 0), |bounds| (bounds.log_start, bounds.end));
        if !(start..=end).contains(offset) {
            return Err(AdminError::OffsetOutOfRange(format!(
                "partition {partition} of {topic} has {start} to {end}, not {offset}"
            )));
        }
    }
    let has_offsets = node.broker.shards().has_offsets(name).await?;
    visit(node, name, |group| match group {
        Some(group) if !group.is_empty() => Err(has_members(name, group)),
        Some(Group::Share(_)) | None if !has_offsets => Err(not_found(name)),
        _ => Ok(()),
    })?;
    if dry_run {
        return Ok(EmptyReply {});
    }
    let offsets = to.iter().zip(partitions).map(|(place, partition)| CommitOffset {
        partition,
        offset: place.offset,
        leader_epoch: -1,
        metadata: String::new(),
        expire_ms: None,
    });
    let refused = node.broker.shards().commit_offsets(name, offsets.collect()).await?;
    match refused.into_iter().next() {
        Some((_, refusal)) => Err(refusal.into()),
        None => Ok(EmptyReply {}),
    }
}

fn find(broker: &Broker, place: &OffsetPlace) -> Result<PartitionId, AdminError> {
    let OffsetPlace { topic, partition, .. } = place;
    let catalog = broker.catalog();
    let known = catalog.topic_named(topic).ok_or_else(|| no_topic(topic))?;
    let index = known.partition(*partition);
    index.ok_or_else(|| {
        AdminError::UnknownTopic(format!("topic {topic} has no partition {partition}"))
    })
}

// ----------------------------------------------------------------------------------------- delete

pub(crate) async fn delete(
    node: Node<'_>,
    caller: &Rights,
    name: &str,
    dry_run: bool,
) -> Result<EmptyReply, AdminError> {
    if !tenants::may_be_deleted(node.broker, caller, name).await? {
        return Err(AdminError::GroupDenied(format!(
            "the group {name} has offsets in topics that this user may not read"
        )));
    }
    let has_offsets = node.broker.shards().has_offsets(name).await?;
    visit(node, name, |group| match group {
        Some(other) if !other.is_empty() => Err(has_members(name, other)),
        Some(Group::Share(_)) | None if !has_offsets => Err(not_found(name)),
        known => {
            if !dry_run {
                known.take();
            }
            Ok(())
        }
    })?;
    if !has_offsets || dry_run {
        return Ok(EmptyReply {});
    }
    match node.broker.shards().delete_offset_group(name).await {
        // Another request has deleted it meanwhile.
        Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownGroup { .. })) => Ok(EmptyReply {}),
        Err(error) => Err(error.into()),
    }
}

// ------------------------------------------------------------------------------------- the group

/// Visits the group, if this node coordinates it.
fn visit<R>(
    node: Node<'_>,
    name: &str,
    look: impl FnOnce(&mut Option<Group>) -> Result<R, AdminError>,
) -> Result<R, AdminError> {
    let groups = node.groups.of(name).map_err(|error| match error {
        CoordinatorError::NotCoordinator => {
            AdminError::AnotherNode(match node.broker.coordinator(name) {
                Some(node) => format!("node {node} coordinates the group {name}: ask that one"),
                None => format!("no node coordinates the group {name} at present"),
            })
        }
        CoordinatorError::Loading => AdminError::Loading,
    })?;
    groups.visit(name, |visit| look(visit.group))
}

fn not_found(group: &str) -> AdminError {
    AdminError::UnknownGroup(format!(
        "there is no group {group} that commits offsets; 'postroad group list' names those there are"
    ))
}

/// The error for a group with members: they would continue from their own offsets, and overwrite the new
/// ones.
fn has_members(name: &str, group: &Group) -> AdminError {
    let (members, it) = match membership(group).members {
        1 => ("1 member".to_owned(), "it"),
        members => (format!("{members} members"), "them"),
    };
    AdminError::GroupNotEmpty(match group {
        Group::Share(_) => format!("{name} is a share group with {members}"),
        _ => format!("the group {name} has {members}: stop {it} first"),
    })
}
