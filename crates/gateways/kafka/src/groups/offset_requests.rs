//! Committed offsets: OffsetCommit, OffsetFetch.
//!
//! A commit is durable before its response. The group first decides whether the member may commit. A group
//! without known members counts as empty, whatever it was before the node started.

use base::Level;
use base::limits::OFFSET_METADATA_UNITS_MAX;
use base::{HashMap, PartitionId, TopicId};
use broker::{CommitOffset, CommittedOffset, ExecuteError, Refusal, Unavailable, YieldBudget};
use coordinator::Group;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::errors::{Fault, group_code};
use crate::groups::classic_requests::check_group;
use crate::groups::committed::{coordinator_error, coordinator_unavailable};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;
use crate::topic_ref::RequestedTopic;

// ---------------------------------------------------------------------------------------- commit

/// First version of OffsetCommit with a code for a stale epoch.
const EPOCHS_SINCE: i16 = 9;

/// The planned change of one partition of a commit, or its error.
pub(crate) type CommitPlan = Result<OffsetChange, ResponseError>;

#[derive(Clone, Debug)]
pub(crate) enum OffsetChange {
    Commit(CommitOffset),
    /// A negative offset. Clients read it as "none committed", and kafkajs writes it to start at its
    /// configured position. So the committed offset is deleted.
    Forget(PartitionId),
}

impl OffsetChange {
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
    ensure_known(gateway, message.topics.iter().map(|topic| RequestedTopic::Name(&topic.name)))
        .await;
    let expire_ms = match message.retention_time_ms {
        -1 => None,
        retention_ms => Some(gateway.broker.clock().now_ms().saturating_add(retention_ms)),
    };
    let caller = &request.caller;
    let mut plans = plan_commit(gateway, caller, &message, expire_ms);
    if plans.iter().any(Result::is_ok) {
        let permitted = check_group(caller, &message.group_id)
            .and_then(|()| may_commit(gateway, &message, &plans, request.head.version));
        match permitted {
            Ok(()) => execute_commit(gateway, &message.group_id, &mut plans).await,
            Err(error) => refuse_rest(&mut plans, error),
        }
    }
    Response::encode(&request.head, &commit_response(&message, &plans))
}

/// The plans of a commit in a transaction: as for any other, except that a member of a group with another protocol may
/// commit at any version.
pub(crate) async fn permitted(
    gateway: &Gateway,
    caller: &Caller,
    message: &OffsetCommitRequest,
) -> Vec<CommitPlan> {
    ensure_known(gateway, message.topics.iter().map(|topic| RequestedTopic::Name(&topic.name)))
        .await;
    let mut plans = plan_commit(gateway, caller, message, None);
    if plans.iter().any(Result::is_ok) {
        let permitted = check_group(caller, &message.group_id)
            .and_then(|()| may_commit(gateway, message, &plans, EPOCHS_SINCE));
        if let Err(error) = permitted {
            refuse_rest(&mut plans, error);
        }
    }
    plans
}

/// One plan for each partition of the request, in its order.
fn plan_commit(
    gateway: &Gateway,
    caller: &Caller,
    message: &OffsetCommitRequest,
    expire_ms: Option<i64>,
) -> Vec<CommitPlan> {
    let catalog = gateway.broker.catalog();
    let level = gateway.broker.level().now();
    let mut plans = Vec::new();
    if let Err(error) = caller.group(&message.group_id) {
        let named = message.topics.iter().flat_map(|topic| &topic.partitions);
        return named.map(|_| Err(error)).collect();
    }
    for topic in &message.topics {
        if let Err(fault) = caller.topic(&topic.name) {
            plans.extend(topic.partitions.iter().map(|_| Err(fault.error)));
            continue;
        }
        let known = catalog.topic_named(&topic.name);
        plans.extend(topic.partitions.iter().map(|partition| {
            let id = known.and_then(|known| known.partition(partition.partition_index));
            let id = id.ok_or(ResponseError::UnknownTopicOrPartition)?;
            commit_offset(id, partition, expire_ms, level)
        }));
    }
    plans
}

fn commit_offset(
    partition: PartitionId,
    commit: &OffsetCommitRequestPartition,
    expire_ms: Option<i64>,
    level: Level,
) -> CommitPlan {
    let metadata = commit.committed_metadata.as_deref().unwrap_or_default();
    if !metadata_fits(metadata, level) {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    let Ok(offset) = u64::try_from(commit.committed_offset) else {
        return Ok(OffsetChange::Forget(partition));
    };
    let leader_epoch = commit.committed_leader_epoch;
    let metadata = metadata.to_owned();
    Ok(OffsetChange::Commit(CommitOffset { partition, offset, leader_epoch, metadata, expire_ms }))
}

/// Kafka counts UTF-16 code units. Programs below the level limit the metadata by its bytes when they apply
/// the commit.
fn metadata_fits(metadata: &str, level: Level) -> bool {
    metadata.len() <= OFFSET_METADATA_UNITS_MAX
        || (level >= Level::METADATA_UNITS
            && metadata.encode_utf16().count() <= OFFSET_METADATA_UNITS_MAX)
}

/// Checks with the group that the member may commit in its generation.
fn may_commit(
    gateway: &Gateway,
    message: &OffsetCommitRequest,
    plans: &[CommitPlan],
    version: i16,
) -> Result<(), ResponseError> {
    let (member, generation) = (&message.member_id, message.generation_id_or_member_epoch);
    let instance = message.group_instance_id.as_deref();
    gateway.coordinator(&message.group_id)?.visit(&message.group_id, |visit| match visit.group {
        Some(Group::Classic(group)) => {
            let permitted = group.commit(member, instance, generation, visit.now);
            permitted.map_err(group_code)
        }
        Some(Group::Consumer(group)) if version < EPOCHS_SINCE && !group.is_empty() => {
            Err(ResponseError::UnsupportedVersion)
        }
        Some(Group::Consumer(group)) => {
            let partitions = committed_partitions(gateway, plans);
            let permitted = group.may_commit(member, generation, partitions.into_iter());
            permitted.map_err(|error| group_code(error.kind))
        }
        Some(Group::Streams(group)) if version < EPOCHS_SINCE && !group.is_empty() => {
            Err(ResponseError::UnsupportedVersion)
        }
        Some(Group::Streams(group)) => {
            let topics = message.topics.iter();
            let partitions = topics.flat_map(|topic| {
                let name = topic.name.as_str();
                topic.partitions.iter().map(move |it| (name, it.partition_index))
            });
            group.may_commit(member, generation, partitions).map_err(|error| group_code(error.kind))
        }
        // Members of share groups settle records and commit no offsets.
        Some(Group::Share(group)) if !group.is_empty() => Err(ResponseError::GroupIdNotFound),
        // The group has no members: only commits without a membership are accepted.
        Some(Group::Share(_)) | None if generation < 0 => Ok(()),
        Some(Group::Share(_)) | None => Err(ResponseError::UnknownMemberId),
    })
}

/// The partitions by topic UUID, as groups know them.
fn committed_partitions(gateway: &Gateway, plans: &[CommitPlan]) -> Vec<(Uuid, i32)> {
    let catalog = gateway.broker.catalog();
    let partitions = plans.iter().flatten().map(OffsetChange::partition);
    partitions.filter_map(|id| Some((catalog.topic(id.topic)?.uuid(), id.index as i32))).collect()
}

pub(crate) fn refuse_rest(plans: &mut [CommitPlan], error: ResponseError) {
    for plan in plans.iter_mut().filter(|plan| plan.is_ok()) {
        *plan = Err(error);
    }
}

async fn execute_commit(gateway: &Gateway, group: &GroupId, plans: &mut [CommitPlan]) {
    let (mut offsets, mut forgotten) = (Vec::new(), Vec::new());
    for planned in plans.iter().flatten() {
        match planned {
            OffsetChange::Commit(commit) => offsets.push(commit.clone()),
            OffsetChange::Forget(partition) => forgotten.push(*partition),
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
    let refused = match gateway.broker.shards().commit_offsets(group, offsets).await {
        Ok(refused) => refused,
        Err(error) => return refuse_rest(plans, coordinator_error(error)),
    };
    note_refused(plans, refused);
}

/// Notes the offsets that the shard rejected: mostly of partitions that were deleted meanwhile.
pub(crate) fn note_refused(plans: &mut [CommitPlan], refused: Vec<(PartitionId, Refusal)>) {
    let refused: HashMap<_, _> = refused.into_iter().collect();
    for plan in plans.iter_mut() {
        let refusal = plan.as_ref().ok().and_then(|planned| refused.get(&planned.partition()));
        if let Some(refusal) = refusal {
            *plan = Err(Fault::from(refusal.clone()).error);
        }
    }
}

/// Deletes committed offsets. A group without offsets is no error.
pub(super) async fn forget_offsets(
    gateway: &Gateway,
    group: &GroupId,
    partitions: Vec<PartitionId>,
) -> Result<(), ResponseError> {
    match gateway.broker.shards().delete_offsets(group, partitions).await {
        Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownGroup { .. })) => Ok(()),
        Err(error) => Err(coordinator_error(error)),
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

/// Offsets per query: it delays appends meanwhile.
const OFFSETS_PER_LOOK: usize = 500;
/// Approximate bytes of an offset while the response is built.
const OFFSET_ROW_BYTES: usize = 160;

pub(crate) async fn fetch(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: OffsetFetchRequest = request.decode()?;
    let stable_only = message.require_stable;
    let of_groups = message.groups.iter().flat_map(|group| group.topics.iter().flatten());
    let of_groups = of_groups.map(|topic| RequestedTopic::Name(&topic.name));
    let of_one = message.topics.iter().flatten().map(|topic| RequestedTopic::Name(&topic.name));
    ensure_known(gateway, of_groups.chain(of_one)).await;
    let asked = requested_offset_count(gateway, &message).await;
    let permit = gateway.answer_room(asked * OFFSET_ROW_BYTES).await;
    let response = if request.head.version >= 8 {
        let mut groups = Vec::with_capacity(message.groups.len());
        for group in &message.groups {
            groups.push(fetch_group(gateway, &request.caller, group, stable_only).await);
        }
        OffsetFetchResponse::default().with_groups(groups)
    } else {
        fetch_one(gateway, &request.caller, message, request.head.version).await
    };
    let mut response = Response::encode(&request.head, &response)?;
    response.permit = permit;
    Ok(response)
}

/// Approximate number of offsets in the response.
async fn requested_offset_count(gateway: &Gateway, message: &OffsetFetchRequest) -> usize {
    // A group that cannot be queried contributes none.
    let all_of = async |group: &GroupId| {
        gateway.broker.shards().known().offset_count(group).await.unwrap_or_default()
    };
    let mut asked = match &message.topics {
        Some(topics) => topics.iter().map(|it| it.partition_indexes.len()).sum::<usize>(),
        None => all_of(&message.group_id).await,
    };
    for group in &message.groups {
        asked += match &group.topics {
            Some(topics) => topics.iter().map(|it| it.partition_indexes.len()).sum::<usize>(),
            None => all_of(&group.group_id).await,
        };
    }
    asked
}

async fn fetch_group(
    gateway: &Gateway,
    caller: &Caller,
    wanted: &OffsetFetchRequestGroup,
    stable_only: bool,
) -> OffsetFetchResponseGroup {
    let response = OffsetFetchResponseGroup::default().with_group_id(wanted.group_id.clone());
    let mut permitted = caller.group(&wanted.group_id).and_then(|()| may_fetch(gateway, wanted));
    if permitted == Err(ResponseError::NotCoordinator) && wanted.member_id.is_none() && !stable_only
    {
        // Only the group's offsets are requested, and this node has a copy of them, or queries the leader.
        permitted = Ok(());
    }
    if let Err(error) = permitted {
        return response.with_error_code(error.code());
    }
    match fetch_topics(gateway, caller, wanted).await {
        Ok(mut topics) => {
            if stable_only {
                mark_unstable(gateway, &wanted.group_id, &mut topics);
            }
            response.with_topics(topics)
        }
        Err(why) => response.with_error_code(coordinator_unavailable(why).code()),
    }
}

/// Replaces offsets that an open transaction may change by an error, after which clients try again (KIP-447).
fn mark_unstable(gateway: &Gateway, group: &GroupId, topics: &mut [OffsetFetchResponseTopics]) {
    let catalog = gateway.broker.catalog();
    for topic in topics {
        let Some(known) = catalog.topic_named(&topic.name) else { continue };
        for partition in &mut topic.partitions {
            let id = known.partition(partition.partition_index);
            if partition.error_code == 0
                && id.is_some_and(|id| gateway.broker.has_pending_offset(group, id))
            {
                let index = partition.partition_index;
                let code = ResponseError::UnstableOffsetCommit.code();
                *partition = fetched(index, None).with_error_code(code);
            }
        }
    }
}

fn may_fetch(gateway: &Gateway, wanted: &OffsetFetchRequestGroup) -> Result<(), ResponseError> {
    gateway.coordinator(&wanted.group_id)?.visit(&wanted.group_id, |visit| match visit.group {
        // The classic protocol does not fence reads. An unknown member learns that from its heartbeats.
        Some(Group::Share(group)) if !group.is_empty() => Err(ResponseError::GroupIdNotFound),
        Some(Group::Classic(_) | Group::Share(_)) | None => Ok(()),
        Some(Group::Consumer(group)) => group
            .may_fetch(wanted.member_id.as_deref(), wanted.member_epoch)
            .map_err(|error| group_code(error.kind)),
        Some(Group::Streams(group)) => group
            .may_fetch(wanted.member_id.as_deref(), wanted.member_epoch)
            .map_err(|error| group_code(error.kind)),
    })
}

async fn fetch_topics(
    gateway: &Gateway,
    caller: &Caller,
    wanted: &OffsetFetchRequestGroup,
) -> Result<Vec<OffsetFetchResponseTopics>, Unavailable> {
    let Some(topics) = &wanted.topics else {
        let mut all = fetch_all(gateway, &wanted.group_id).await?;
        all.retain(|topic| caller.may_topic(&topic.name));
        return Ok(all);
    };
    let mut pace = YieldBudget::new(gateway.broker.turns(), OFFSETS_PER_LOOK as u32);
    let mut found: Vec<Option<PartitionId>> = Vec::new();
    for topic in topics {
        for indexes in topic.partition_indexes.chunks(OFFSETS_PER_LOOK) {
            pace.step(indexes.len() as u32).await;
            let catalog = gateway.broker.catalog();
            let topic = catalog.topic_named(&topic.name).filter(|_| caller.may_topic(&topic.name));
            found.extend(indexes.iter().map(|index| topic.and_then(|it| it.partition(*index))));
        }
    }
    let known: Vec<PartitionId> = found.iter().flatten().copied().collect();
    let mut committed = Vec::with_capacity(known.len());
    for some in known.chunks(OFFSETS_PER_LOOK) {
        pace.step(some.len() as u32).await;
        committed.extend(gateway.broker.shards().offsets(&wanted.group_id, some).await?);
    }
    let mut committed = committed.into_iter();
    let mut committed = found.into_iter().map(|it| it.and_then(|_| committed.next().flatten()));
    let mut fetched_topics = Vec::with_capacity(topics.len());
    for topic in topics {
        pace.step(topic.partition_indexes.len() as u32).await;
        let code = caller.topic(&topic.name).err().map_or(0, |fault| fault.code());
        let partitions = topic.partition_indexes.iter().zip(committed.by_ref());
        let fetched = |index, it| fetched(index, it).with_error_code(code);
        fetched_topics.push(
            OffsetFetchResponseTopics::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.map(|(index, it)| fetched(*index, it)).collect()),
        );
    }
    Ok(fetched_topics)
}

/// A partition without a committed offset has -1.
fn fetched(index: i32, committed: Option<CommittedOffset>) -> OffsetFetchResponsePartitions {
    let response = OffsetFetchResponsePartitions::default().with_partition_index(index);
    match committed {
        Some(committed) => response
            // At most `i64::MAX`, which the state machine ensures.
            .with_committed_offset(committed.offset as i64)
            .with_committed_leader_epoch(committed.leader_epoch)
            .with_metadata(Some(StrBytes::from_string(committed.metadata))),
        None => response.with_committed_offset(-1),
    }
}

async fn fetch_all(
    gateway: &Gateway,
    group: &GroupId,
) -> Result<Vec<OffsetFetchResponseTopics>, Unavailable> {
    let mut topics: Vec<(TopicId, OffsetFetchResponseTopics)> = Vec::new();
    let mut last: Option<PartitionId> = None;
    loop {
        let page = gateway.broker.shards().offsets_after(group, last, OFFSETS_PER_LOOK).await?;
        let is_last = page.len() < OFFSETS_PER_LOOK;
        last = page.last().map(|(partition, _)| *partition);
        add_named(gateway, &mut topics, page);
        if is_last {
            return Ok(topics.into_iter().map(|(_, topic)| topic).collect());
        }
        tokio::task::yield_now().await;
    }
}

/// Adds offsets, sorted by partition and so by topic. Deleted topics are skipped.
fn add_named(
    gateway: &Gateway,
    topics: &mut Vec<(TopicId, OffsetFetchResponseTopics)>,
    offsets: Vec<(PartitionId, CommittedOffset)>,
) {
    let catalog = gateway.broker.catalog();
    for (partition, committed) in offsets {
        if topics.last().is_none_or(|(id, _)| *id != partition.topic) {
            let Some(topic) = catalog.topic(partition.topic) else { continue };
            let name = TopicName(StrBytes::from_string(topic.name().to_string()));
            topics.push((topic.id(), OffsetFetchResponseTopics::default().with_name(name)));
        }
        if let Some((_, topic)) = topics.last_mut() {
            topic.partitions.push(fetched(partition.index as i32, Some(committed)));
        }
    }
}

/// First version whose response has an error code of its own.
const GROUP_CODE_SINCE: i16 = 2;

/// Reports the error by partition: without it the client would assume that nothing was committed.
fn failed_topics(
    wanted: Vec<OffsetFetchRequestTopics>,
    code: i16,
) -> Vec<OffsetFetchResponseTopics> {
    let failed = wanted.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.into_iter();
        let partitions = partitions.map(|index| fetched(index, None).with_error_code(code));
        OffsetFetchResponseTopics::default()
            .with_name(topic.name)
            .with_partitions(partitions.collect())
    });
    failed.collect()
}

/// Before version 8: one group, not in a list.
async fn fetch_one(
    gateway: &Gateway,
    caller: &Caller,
    message: OffsetFetchRequest,
    version: i16,
) -> OffsetFetchResponse {
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
    let mut group = fetch_group(gateway, caller, &wanted, message.require_stable).await;
    if version < GROUP_CODE_SINCE && group.error_code != 0 {
        group.topics = failed_topics(wanted.topics.unwrap_or_default(), group.error_code);
    }
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
