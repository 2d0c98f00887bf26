//! Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.
//!
//! A commit is answered after it is durable. Whether the member may commit is asked of the group
//! first; a group whose members are not known here is one without members, whatever it was before
//! the node started.

use std::ops::Bound;

use base::limits::OFFSET_METADATA_BYTES_MAX;
use base::{HashMap, HashSet, PartitionId, TopicId};
use broker::{ExecuteError, Pace, Unavailable};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use machine::{Command, CommitOffset, CommittedOffset, Outcome, Refusal, State};
use tracing::warn;
use uuid::Uuid;

use crate::errors::Fault;
use crate::gateway::Gateway;
use crate::groups::classic_requests::check_group_name;
use crate::groups::registry::Group;
use crate::request::{Request, RequestError};
use crate::response::Response;

// ---------------------------------------------------------------------------------------- commit

/// What becomes of one partition of a commit.
type CommitPlan = Result<Planned, ResponseError>;

#[derive(Clone, Debug)]
enum Planned {
    Commit(CommitOffset),
    /// A negative offset. Every client reads one as "none committed", and kafkajs writes one to
    /// begin where its configuration says; so what is committed is none.
    Forget(PartitionId),
}

impl Planned {
    fn partition(&self) -> PartitionId {
        match self {
            Self::Commit(commit) => commit.partition,
            Self::Forget(partition) => *partition,
        }
    }
}

pub(crate) async fn commit(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: OffsetCommitRequest = request.decode()?;
    let expire_ms = match message.retention_time_ms {
        -1 => None,
        retention_ms => Some(gateway.broker.clock().now_ms().saturating_add(retention_ms)),
    };
    let mut plans = plan_commit(gateway, &message, expire_ms);
    if plans.iter().any(Result::is_ok) {
        let permitted = check_group_name(&message.group_id)
            .and_then(|()| may_commit(gateway, &message, &plans, request.head.version));
        match permitted {
            Ok(()) => execute_commit(gateway, &message.group_id, &mut plans).await,
            Err(error) => refuse_rest(&mut plans, error),
        }
    }
    Response::encode(&request.head, &commit_response(&message, &plans))
}

/// One plan for each partition of the request, in its order.
fn plan_commit(
    gateway: &Gateway,
    message: &OffsetCommitRequest,
    expire_ms: Option<i64>,
) -> Vec<CommitPlan> {
    gateway.broker.read(|state| {
        let mut plans = Vec::new();
        for topic in &message.topics {
            let known = state.topic_named(&topic.name);
            plans.extend(topic.partitions.iter().map(|partition| {
                let index = u32::try_from(partition.partition_index).ok();
                let id = known.zip(index).and_then(|(known, index)| {
                    known.partition(index).map(|_| PartitionId::new(known.id, index))
                });
                let id = id.ok_or(ResponseError::UnknownTopicOrPartition)?;
                commit_offset(id, partition, expire_ms)
            }));
        }
        plans
    })
}

fn commit_offset(
    partition: PartitionId,
    commit: &OffsetCommitRequestPartition,
    expire_ms: Option<i64>,
) -> CommitPlan {
    let metadata = commit.committed_metadata.as_deref().unwrap_or_default();
    if metadata.len() > OFFSET_METADATA_BYTES_MAX {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    let Ok(offset) = u64::try_from(commit.committed_offset) else {
        return Ok(Planned::Forget(partition));
    };
    let leader_epoch = commit.committed_leader_epoch;
    let metadata = metadata.to_owned();
    Ok(Planned::Commit(CommitOffset { partition, offset, leader_epoch, metadata, expire_ms }))
}

/// Asks the group whether this member may commit in its generation.
fn may_commit(
    gateway: &Gateway,
    message: &OffsetCommitRequest,
    plans: &[CommitPlan],
    version: i16,
) -> Result<(), ResponseError> {
    let (member, generation) = (&message.member_id, message.generation_id_or_member_epoch);
    let instance = message.group_instance_id.as_ref();
    gateway.groups.visit(&message.group_id.0, |visit| match visit.group {
        Some(Group::Classic(group)) => group.commit(member, instance, generation, visit.now),
        // Before version 9 there is no code for a stale epoch.
        Some(Group::Consumer(group)) if version < 9 && !group.is_empty() => {
            Err(ResponseError::UnsupportedVersion)
        }
        Some(Group::Consumer(group)) => {
            let partitions = committed_partitions(gateway, plans);
            let permitted = group.may_commit(member, generation, partitions.into_iter());
            permitted.map_err(|fault| fault.error)
        }
        Some(Group::Streams(group)) if version < 9 && !group.is_empty() => {
            Err(ResponseError::UnsupportedVersion)
        }
        Some(Group::Streams(group)) => {
            let topics = message.topics.iter();
            let partitions = topics.flat_map(|topic| {
                let name = topic.name.as_str();
                topic.partitions.iter().map(move |it| (name, it.partition_index))
            });
            group.may_commit(member, generation, partitions).map_err(|fault| fault.error)
        }
        // Its members settle records and commit no offsets.
        Some(Group::Share(group)) if !group.is_empty() => Err(ResponseError::GroupIdNotFound),
        // Nobody is a member: commits are taken from those who claim to be none.
        Some(Group::Share(_)) | None if generation < 0 => Ok(()),
        Some(Group::Share(_)) | None => Err(ResponseError::UnknownMemberId),
    })
}

/// By the ids that groups know partitions by.
fn committed_partitions(gateway: &Gateway, plans: &[CommitPlan]) -> Vec<(Uuid, i32)> {
    gateway.broker.read(|state| {
        let partitions = plans.iter().flatten().map(Planned::partition);
        partitions.filter_map(|id| Some((state.topic(id.topic)?.uuid, id.index as i32))).collect()
    })
}

fn refuse_rest(plans: &mut [CommitPlan], error: ResponseError) {
    for plan in plans.iter_mut().filter(|plan| plan.is_ok()) {
        *plan = Err(error);
    }
}

async fn execute_commit(gateway: &Gateway, group: &GroupId, plans: &mut [CommitPlan]) {
    let (mut offsets, mut forgotten) = (Vec::new(), Vec::new());
    for planned in plans.iter().flatten() {
        match planned {
            Planned::Commit(commit) => offsets.push(commit.clone()),
            Planned::Forget(partition) => forgotten.push(*partition),
        }
    }
    if !forgotten.is_empty()
        && let Err(error) = forget_offsets(gateway, group, forgotten).await
    {
        return refuse_rest(plans, error);
    }
    if offsets.is_empty() {
        return;
    }
    let command = Command::CommitOffsets { group: group.to_string(), offsets };
    let refused = match gateway.broker.execute(command).await {
        Ok(Outcome::Committed { refused }) => refused,
        Ok(other) => {
            warn!(?other, "an unexpected outcome of a commit");
            return refuse_rest(plans, ResponseError::UnknownServerError);
        }
        Err(error) => return refuse_rest(plans, coordinator_error(error)),
    };
    // Deleted meanwhile, for the most part.
    let refused: HashMap<_, _> = refused.into_iter().collect();
    for plan in plans.iter_mut() {
        let refusal = plan.as_ref().ok().and_then(|planned| refused.get(&planned.partition()));
        if let Some(refusal) = refusal {
            *plan = Err(Fault::from(refusal.clone()).error);
        }
    }
}

/// A group without offsets has nothing to forget.
async fn forget_offsets(
    gateway: &Gateway,
    group: &GroupId,
    partitions: Vec<PartitionId>,
) -> Result<(), ResponseError> {
    let command = Command::DeleteOffsets { group: group.to_string(), partitions };
    match gateway.broker.execute(command).await {
        Ok(_) | Err(ExecuteError::Refused(Refusal::UnknownGroup { .. })) => Ok(()),
        Err(error) => Err(coordinator_error(error)),
    }
}

/// To a client, whatever keeps a command from being carried out is a coordinator that it cannot
/// use now: it looks for one again.
pub(crate) fn coordinator_error(error: ExecuteError) -> ResponseError {
    match error {
        ExecuteError::Refused(refusal) => Fault::from(refusal).error,
        ExecuteError::Unavailable(Unavailable::NotLeader) => ResponseError::NotCoordinator,
        ExecuteError::Unavailable(_) => ResponseError::CoordinatorNotAvailable,
    }
}

fn commit_response(message: &OffsetCommitRequest, plans: &[CommitPlan]) -> OffsetCommitResponse {
    let mut plans = plans.iter();
    let topics = message.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(plans.by_ref()).map(|(partition, plan)| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(plan.as_ref().err().map_or(0, |error| error.code()))
        });
        OffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

// ----------------------------------------------------------------------------------------- fetch

/// Offsets that are looked up under one lock: an append waits for it.
const OFFSETS_PER_LOOK: usize = 500;
/// What an offset takes while its answer is made, about.
const OFFSET_ROW_BYTES: usize = 160;

pub(crate) async fn fetch(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    // `require_stable` asks not to see offsets of open transactions: there are none.
    let message: OffsetFetchRequest = request.decode()?;
    let permit = gateway.answer_room(offsets_asked(gateway, &message) * OFFSET_ROW_BYTES).await;
    let response = if request.head.version >= 8 {
        let mut groups = Vec::with_capacity(message.groups.len());
        for group in &message.groups {
            groups.push(fetch_group(gateway, group).await);
        }
        OffsetFetchResponse::default().with_groups(groups)
    } else {
        fetch_one(gateway, message).await
    };
    let mut response = Response::encode(&request.head, &response)?;
    response.permit = permit;
    Ok(response)
}

fn offsets_asked(gateway: &Gateway, message: &OffsetFetchRequest) -> usize {
    let all_of = |group: &GroupId| {
        gateway.broker.read(|state| state.group(group).map_or(0, |group| group.offsets.len()))
    };
    let groups = message.groups.iter().map(|group| match &group.topics {
        Some(topics) => topics.iter().map(|topic| topic.partition_indexes.len()).sum(),
        None => all_of(&group.group_id),
    });
    let before_groups = match &message.topics {
        Some(topics) => topics.iter().map(|topic| topic.partition_indexes.len()).sum(),
        None => all_of(&message.group_id),
    };
    groups.sum::<usize>() + before_groups
}

async fn fetch_group(
    gateway: &Gateway,
    wanted: &OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let response = OffsetFetchResponseGroup::default().with_group_id(wanted.group_id.clone());
    match may_fetch(gateway, wanted) {
        Ok(()) => response.with_topics(fetch_topics(gateway, wanted).await),
        Err(error) => response.with_error_code(error.code()),
    }
}

fn may_fetch(gateway: &Gateway, wanted: &OffsetFetchRequestGroup) -> Result<(), ResponseError> {
    gateway.groups.visit(&wanted.group_id.0, |visit| match visit.group {
        // The classic protocol has no fencing of reads; and who is not known is told so when it
        // reports, which it does at the same time.
        Some(Group::Share(group)) if !group.is_empty() => Err(ResponseError::GroupIdNotFound),
        Some(Group::Classic(_) | Group::Share(_)) | None => Ok(()),
        Some(Group::Consumer(group)) => group
            .may_fetch(wanted.member_id.as_ref(), wanted.member_epoch)
            .map_err(|fault| fault.error),
        Some(Group::Streams(group)) => group
            .may_fetch(wanted.member_id.as_ref(), wanted.member_epoch)
            .map_err(|fault| fault.error),
    })
}

async fn fetch_topics(
    gateway: &Gateway,
    wanted: &OffsetFetchRequestGroup,
) -> Vec<OffsetFetchResponseTopics> {
    let Some(topics) = &wanted.topics else {
        return fetch_all(gateway, &wanted.group_id).await;
    };
    let mut fetched = Vec::with_capacity(topics.len());
    let mut pace = Pace::new(gateway.broker.turns(), OFFSETS_PER_LOOK as u32);
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for indexes in topic.partition_indexes.chunks(OFFSETS_PER_LOOK) {
            gateway.broker.read(|state| {
                let found = fetch_some(state, &wanted.group_id, &topic.name, indexes);
                partitions.extend(found);
            });
            pace.step(indexes.len() as u32).await;
        }
        fetched.push(
            OffsetFetchResponseTopics::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions),
        );
    }
    fetched
}

fn fetch_some(
    state: &State,
    group: &GroupId,
    topic: &TopicName,
    indexes: &[i32],
) -> impl Iterator<Item = OffsetFetchResponsePartitions> {
    let (group, topic) = (state.group(group), state.topic_named(topic));
    indexes.iter().map(move |&index| {
        let committed = group.zip(topic).and_then(|(group, topic)| {
            group.offset(PartitionId::new(topic.id, u32::try_from(index).ok()?))
        });
        fetched(index, committed)
    })
}

/// A partition without a committed offset has -1.
fn fetched(index: i32, committed: Option<&CommittedOffset>) -> OffsetFetchResponsePartitions {
    let response = OffsetFetchResponsePartitions::default().with_partition_index(index);
    match committed {
        Some(committed) => response
            // At most `i64::MAX`, which the machine sees to.
            .with_committed_offset(committed.offset as i64)
            .with_committed_leader_epoch(committed.leader_epoch)
            .with_metadata(Some(StrBytes::from_string(committed.metadata.clone()))),
        None => response.with_committed_offset(-1),
    }
}

async fn fetch_all(gateway: &Gateway, group: &GroupId) -> Vec<OffsetFetchResponseTopics> {
    let mut topics: Vec<(TopicId, OffsetFetchResponseTopics)> = Vec::new();
    let mut last: Option<PartitionId> = None;
    loop {
        let looked_at = gateway.broker.read(|state| {
            let Some(group) = state.group(group) else { return 0 };
            let from = last.map_or(Bound::Unbounded, Bound::Excluded);
            let mut looked_at = 0;
            // Sorted by partition, and so by topic.
            for (partition, committed) in
                group.offsets.range((from, Bound::Unbounded)).take(OFFSETS_PER_LOOK)
            {
                looked_at += 1;
                last = Some(*partition);
                if topics.last().is_none_or(|(id, _)| *id != partition.topic) {
                    let Some(topic) = state.topic(partition.topic) else { continue };
                    let name = TopicName(StrBytes::from_string(topic.name.to_string()));
                    topics.push((topic.id, OffsetFetchResponseTopics::default().with_name(name)));
                }
                if let Some((_, topic)) = topics.last_mut() {
                    topic.partitions.push(fetched(partition.index as i32, Some(committed)));
                }
            }
            looked_at
        });
        if looked_at < OFFSETS_PER_LOOK {
            return topics.into_iter().map(|(_, topic)| topic).collect();
        }
        tokio::task::yield_now().await;
    }
}

/// Before version 8: one group, not in a list.
async fn fetch_one(gateway: &Gateway, message: OffsetFetchRequest) -> OffsetFetchResponse {
    let topics = message.topics.map(|topics| {
        let convert =
            |topic: kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic| {
                OffsetFetchRequestTopics::default()
                    .with_name(topic.name)
                    .with_partition_indexes(topic.partition_indexes)
            };
        topics.into_iter().map(convert).collect()
    });
    let wanted =
        OffsetFetchRequestGroup::default().with_group_id(message.group_id).with_topics(topics);
    let group = fetch_group(gateway, &wanted).await;
    let topics = group.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_committed_offset(partition.committed_offset)
                .with_committed_leader_epoch(partition.committed_leader_epoch)
                .with_metadata(partition.metadata)
                .with_error_code(partition.error_code)
        });
        OffsetFetchResponseTopic::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    OffsetFetchResponse::default().with_topics(topics.collect()).with_error_code(group.error_code)
}

// ---------------------------------------------------------------------------------------- delete

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: OffsetDeleteRequest = request.decode()?;
    let response = match delete_offsets(gateway, &message).await {
        Ok(topics) => OffsetDeleteResponse::default().with_topics(topics),
        Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
    };
    Response::encode(&request.head, &response)
}

async fn delete_offsets(
    gateway: &Gateway,
    message: &OffsetDeleteRequest,
) -> Result<Vec<OffsetDeleteResponseTopic>, ResponseError> {
    let subscribed = subscribed_topics(gateway, message)?;
    let mut partitions = Vec::new();
    let topics = gateway.broker.read(|state| {
        let topics = message.topics.iter().map(|topic| {
            let known = state.topic_named(&topic.name);
            let is_subscribed = subscribed.contains(&topic.name);
            let results = topic.partitions.iter().map(|partition| {
                let index = u32::try_from(partition.partition_index).ok();
                let id = known.zip(index).and_then(|(known, index)| {
                    known.partition(index).map(|_| PartitionId::new(known.id, index))
                });
                let code = match id {
                    None => ResponseError::UnknownTopicOrPartition.code(),
                    Some(_) if is_subscribed => ResponseError::GroupSubscribedToTopic.code(),
                    Some(id) => {
                        partitions.push(id);
                        0
                    }
                };
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(code)
            });
            OffsetDeleteResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(results.collect())
        });
        topics.collect()
    });
    if !partitions.is_empty() {
        forget_offsets(gateway, &message.group_id, partitions).await?;
    }
    Ok(topics)
}

/// Those of the request that members may be consuming, whose offsets must stay.
fn subscribed_topics(
    gateway: &Gateway,
    message: &OffsetDeleteRequest,
) -> Result<HashSet<TopicName>, ResponseError> {
    let has_offsets = gateway.broker.read(|state| state.group(&message.group_id).is_some());
    gateway.groups.visit(&message.group_id.0, |visit| {
        let topics = message.topics.iter().map(|topic| &topic.name);
        match visit.group {
            Some(Group::Classic(group)) if !group.is_empty() && !group.is_of_consumers() => {
                Err(ResponseError::NonEmptyGroup)
            }
            Some(Group::Classic(group)) => {
                Ok(topics.filter(|topic| group.is_subscribed_to(topic)).cloned().collect())
            }
            Some(Group::Consumer(group)) => {
                Ok(topics.filter(|topic| group.is_subscribed_to(topic)).cloned().collect())
            }
            Some(Group::Streams(group)) => {
                Ok(topics.filter(|topic| group.is_subscribed_to(topic)).cloned().collect())
            }
            Some(Group::Share(_)) | None if has_offsets => Ok(HashSet::default()),
            Some(Group::Share(_)) | None => Err(ResponseError::GroupIdNotFound),
        }
    })
}
