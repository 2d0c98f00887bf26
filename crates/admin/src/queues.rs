//! Queues, which are lease groups of topics: declare, inspect, purge, pause, seek, delete.

use std::collections::BTreeMap;
use std::ops::Bound;

use access::{AccessTarget, Operation, Rights};
use base::limits::{BARRIER_WITHIN, OPERATION_RECORDS_MAX};
use base::{LeaseGroupId, MAIN_LEASE_GROUP, PartitionId};
use broker::config::{LEASE_GROUP_CONFIGS, Overrides};
use broker::delivery::{
    Counters, PeekedRecord, RecordState as BrokerState, RemoveError, SeekError, SeekTo,
};
use broker::{Broker, LeaseProgress};
use consumer_groups::lease_groups;
use futures_util::future::join_all;
use operations::document::{
    DeclaredQueue, EmptyReply, Lease, PartitionProgress, QueueConfig, QueueName, QueuePage,
    QueueRates, QueueReport, QueueSummary, QueuedRecord, RecordCount, RecordPage, RecordPosition,
    RecordState, RemovedRecords, Start, UnremovedRecord,
};
use record::ReservedHeaders;

use crate::AdminError;
use crate::browse::{PageBudget, Source, VisitDecision, first_record, stored};
use crate::limits::OPERATION_LEASES_MAX;

/// Records that are settled together, and share one sync of the disk.
const REMOVED_TOGETHER: usize = 256;

pub(crate) fn no_topic(topic: &str) -> AdminError {
    AdminError::UnknownTopic(format!(
        "there is no topic {topic}; 'postroad topic list' names those there are, 'postroad \
             queue declare {topic}' makes a queue"
    ))
}

fn no_queue(queue: &QueueName) -> AdminError {
    let QueueName { topic, group } = queue;
    let (which, flag) = match &**group {
        MAIN_LEASE_GROUP => (format!("topic {topic} is no queue"), String::new()),
        _ => (format!("topic {topic} has no queue of group {group}"), format!(" --group {group}")),
    };
    AdminError::UnknownGroup(format!(
        "{which}; 'postroad queue declare {topic}{flag}' makes it one, 'postroad queue list' names those there are"
    ))
}

/// Returns the lease group, and the records that it reads.
pub(crate) fn find(
    broker: &Broker,
    queue: &QueueName,
) -> Result<(LeaseGroupId, Source), AdminError> {
    let catalog = broker.catalog();
    let topic = catalog.topic_named(&queue.topic).ok_or_else(|| no_topic(&queue.topic))?;
    let group = catalog.lease_group_named(topic.id(), &queue.group);
    let id = group.ok_or_else(|| no_queue(queue))?.id();
    let source = Source { topic: topic.id(), partitions: topic.partition_count(), group: Some(id) };
    Ok((id, source))
}

// --------------------------------------------------------------------------------------- declare

pub(crate) async fn declare(
    broker: &Broker,
    queue: &QueueName,
    from: Start,
    config: Overrides,
) -> Result<DeclaredQueue, AdminError> {
    // The present configuration is read, altered and written back.
    let _one_at_a_time = broker.config_changes().lock().await;
    let (topic, partitions, known) = {
        let catalog = broker.catalog();
        let topic = catalog.topic_named(&queue.topic).ok_or_else(|| no_topic(&queue.topic))?;
        let group = catalog.lease_group_named(topic.id(), &queue.group);
        let known = group.map(|group| (group.id(), (**group.overrides()).clone()));
        (topic.id(), topic.partition_ids(), known)
    };
    let Some((group, own)) = known else {
        let mut values = match &*queue.group {
            MAIN_LEASE_GROUP => Overrides::new(),
            // The group's share configuration applies, as Kafka's share consumers expect.
            group => lease_groups::config_of(&broker.catalog(), group),
        };
        values.extend(config);
        let starts = match from {
            Start::Earliest => Vec::new(),
            Start::Latest => {
                let partitions: Vec<PartitionId> = partitions.collect();
                let bounds = broker.shards().bounds(&partitions).await?;
                bounds.into_iter().map(|bounds| bounds.map_or(0, |bounds| bounds.stable)).collect()
            }
        };
        broker.create_lease_group(topic, queue.group.clone(), starts, values).await?;
        return Ok(DeclaredQueue { created: true, changed: false });
    };
    let mut values = own.clone();
    values.extend(config);
    if values == own {
        return Ok(DeclaredQueue { created: false, changed: false });
    }
    check_route(&own, &values)?;
    broker.set_lease_group_config(group, values).await?;
    Ok(DeclaredQueue { created: false, changed: true })
}

/// Rejects a dead-letter topic beside a route: the route takes precedence, so the topic would have no effect.
fn check_route(own: &Overrides, values: &Overrides) -> Result<(), AdminError> {
    let route = values.get("dead.letter.route").filter(|route| !route.is_empty());
    match route {
        Some(route) if own.get("dead.letter.topic") != values.get("dead.letter.topic") => {
            Err(AdminError::InvalidConfig(format!(
                "the protocol that this queue was made with says where its dead letters go \
                     (dead.letter.route is {route}); change that there"
            )))
        }
        _ => Ok(()),
    }
}

// ---------------------------------------------------------------------------------------- looking

pub(crate) async fn list(
    broker: &Broker,
    caller: &Rights,
    after: Option<&QueueName>,
    queues_max: u32,
) -> Result<QueuePage, AdminError> {
    let queues_max = (queues_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let mut found: Vec<LeaseGroupId> = {
        let catalog = broker.catalog();
        let from = after.map_or(Bound::Unbounded, |after| Bound::Included(&*after.topic));
        // Sorted by name, and the groups of each topic too.
        let seen = |topic: &str| caller.would(Operation::Describe, AccessTarget::Topic(topic));
        let topics = catalog.topics_from(from).filter(|topic| seen(topic.name()));
        let groups = topics.flat_map(|topic| {
            catalog.lease_groups_of(topic.id()).filter(move |group| {
                after.is_none_or(|after| {
                    (&**topic.name(), &**group.name()) > (&*after.topic, &*after.group)
                })
            })
        });
        groups.map(|group| group.id()).take(queues_max + 1).collect()
    };
    let more = found.len() > queues_max;
    found.truncate(queues_max);
    let mut queues = Vec::with_capacity(found.len());
    broker.all_are_current(BARRIER_WITHIN).await?;
    for id in found {
        // A group that was deleted meanwhile is left out.
        if let Some(summary) = summary(broker, id).await? {
            queues.push(summary);
        }
    }
    Ok(QueuePage { queues, more })
}

/// The durable state of a lease group.
struct LeaseGroupState {
    topic: base::TopicId,
    topic_name: String,
    group_name: String,
    paused: bool,
    created_ms: i64,
    own: Overrides,
    published: u64,
    progress: Vec<PartitionProgress>,
}

/// Returns `None` if the group does not exist, or its topic was deleted meanwhile. The caller has waited for
/// current copies.
async fn standing(
    broker: &Broker,
    id: LeaseGroupId,
) -> Result<Option<LeaseGroupState>, AdminError> {
    let Some((mut standing, partitions)) = defined(broker, id) else { return Ok(None) };
    let indexes: Vec<u32> = (0..partitions).collect();
    let progress = broker.shards().known().lease_progress(id, &indexes).await?;
    for (partition, progress) in indexes.into_iter().zip(progress) {
        let Some(LeaseProgress { floor, end, settled_above, retried }) = progress else {
            return Ok(None);
        };
        standing.published += end;
        standing.progress.push(PartitionProgress { partition, floor, end, settled_above, retried });
    }
    Ok(Some(standing))
}

/// The group's definition without progress, and its number of partitions.
fn defined(broker: &Broker, id: LeaseGroupId) -> Option<(LeaseGroupState, u32)> {
    let catalog = broker.catalog();
    let group = catalog.lease_group(id)?;
    let topic = catalog.topic(group.topic())?;
    let standing = LeaseGroupState {
        topic: topic.id(),
        topic_name: topic.name().to_string(),
        group_name: group.name().to_string(),
        paused: group.is_paused(),
        created_ms: group.created_ms(),
        own: (**group.overrides()).clone(),
        published: 0,
        progress: Vec::new(),
    };
    Some((standing, topic.partition_count()))
}

async fn summary(broker: &Broker, id: LeaseGroupId) -> Result<Option<QueueSummary>, AdminError> {
    let Some(standing) = standing(broker, id).await? else { return Ok(None) };
    let Some(counters) = broker.counters(id).await else { return Ok(None) };
    Ok(Some(summarize(broker, &standing, counters).await?))
}

async fn summarize(
    broker: &Broker,
    standing: &LeaseGroupState,
    counters: Counters,
) -> Result<QueueSummary, AdminError> {
    let at_ms = broker.clock().now_ms();
    let oldest = oldest(broker, standing, &counters).await?;
    let lag_seconds = match oldest {
        None => Some(0.0),
        Some(timestamp) if timestamp >= 0 => Some((at_ms - timestamp).max(0) as f64 / 1000.0),
        Some(_) => None,
    };
    Ok(QueueSummary {
        topic: standing.topic_name.clone(),
        group: standing.group_name.clone(),
        partitions: standing.progress.len() as u32,
        paused: standing.paused,
        depth: counters.depth,
        ready: counters.ready,
        leased: counters.leased,
        leased_bytes: counters.leased_bytes,
        delayed: counters.delayed,
        consumers: counters.consumers,
        oldest_unsettled_ms: oldest.filter(|timestamp| *timestamp >= 0),
        lag_seconds,
        published: standing.published,
        delivered: counters.delivered,
        redelivered: counters.redelivered,
        settled: counters.settled,
        dead_letters: counters.dead_letters,
        rates: QueueRates {
            published: counters.rates.published,
            delivered: counters.rates.delivered,
            settled: counters.rates.settled,
        },
        at_ms,
    })
}

/// The timestamp of the oldest unsettled record. The engine knows it for records that it has read; otherwise
/// the log does.
async fn oldest(
    broker: &Broker,
    standing: &LeaseGroupState,
    counters: &Counters,
) -> Result<Option<i64>, AdminError> {
    if counters.depth == 0 {
        return Ok(None);
    }
    if standing.progress.len() == 1 && counters.oldest_unsettled_ms.is_some() {
        return Ok(counters.oldest_unsettled_ms);
    }
    let mut oldest: Option<i64> = None;
    for progress in standing.progress.iter().filter(|progress| progress.floor < progress.end) {
        let partition = PartitionId::new(standing.topic, progress.partition);
        if let Some(record) = first_record(broker, partition, progress.floor).await? {
            let timestamp = record.view().timestamp;
            oldest = Some(oldest.map_or(timestamp, |oldest| oldest.min(timestamp)));
        }
    }
    Ok(oldest)
}

pub(crate) async fn describe(
    broker: &Broker,
    queue: &QueueName,
) -> Result<QueueReport, AdminError> {
    let (id, _) = find(broker, queue)?;
    let gone = || no_queue(queue);
    broker.all_are_current(BARRIER_WITHIN).await?;
    let standing = standing(broker, id).await?.ok_or_else(gone)?;
    let counters = broker.counters(id).await.ok_or_else(gone)?;
    let leases = broker.leases(id, None, OPERATION_LEASES_MAX).await;
    let leases = leases.into_iter().map(|lease| Lease {
        partition: lease.partition,
        offset: lease.offset,
        attempt: lease.attempt,
        session: lease.session,
        expires_ms: lease.expires_ms,
    });
    let config = LEASE_GROUP_CONFIGS.iter().map(|entry| {
        let own = standing.own.get(entry.name);
        QueueConfig {
            name: entry.name.to_owned(),
            value: own.cloned().unwrap_or_else(|| entry.default.to_owned()),
            own: own.is_some_and(|own| own != entry.default),
        }
    });
    Ok(QueueReport {
        summary: summarize(broker, &standing, counters).await?,
        created_ms: standing.created_ms,
        config: config.collect(),
        leases: leases.collect(),
        progress: standing.progress,
    })
}

pub(crate) async fn peek(
    broker: &Broker,
    queue: &QueueName,
    partition: Option<u32>,
    from: Option<RecordPosition>,
    records_max: u32,
) -> Result<RecordPage, AdminError> {
    let (_, source) = find(broker, queue)?;
    if let Some(partition) = partition.filter(|partition| *partition >= source.partitions) {
        return Err(no_partition(queue, partition, source.partitions));
    }
    let records_max = (records_max as usize).min(OPERATION_RECORDS_MAX);
    let now_ms = broker.clock().now_ms();
    let (mut records, mut room) = (Vec::new(), PageBudget::default());
    let visit = |peeked: PeekedRecord| {
        if !room.takes(&peeked.record, records_max) {
            return VisitDecision::Stop;
        }
        records.push(queued(&peeked, now_ms));
        VisitDecision::More
    };
    let next = source.visit(broker, partition, from, records_max, visit).await?;
    Ok(RecordPage { records, next })
}

fn queued(peeked: &PeekedRecord, now_ms: i64) -> QueuedRecord {
    let view = peeked.record.view();
    let (state, until_ms) = match peeked.state {
        // A record that the engine has not read yet is ready, unless it is scheduled.
        BrokerState::Ready => {
            let due =
                ReservedHeaders::read(&view.headers).deliver_at_ms.filter(|due| *due > now_ms);
            (if due.is_some() { RecordState::Delayed } else { RecordState::Ready }, due)
        }
        BrokerState::Blocked => (RecordState::Blocked, None),
        BrokerState::Leased { expires_ms, .. } => (RecordState::Leased, expires_ms),
        BrokerState::Delayed { due_ms } => (RecordState::Delayed, Some(due_ms)),
        BrokerState::DeadLettering => (RecordState::DeadLettering, None),
    };
    let record = stored(peeked.partition, &view);
    QueuedRecord { state, until_ms, attempts: peeked.attempts, record }
}

fn no_partition(queue: &QueueName, partition: u32, partitions: u32) -> AdminError {
    let topic = &queue.topic;
    AdminError::UnknownTopic(format!(
        "topic {topic} has no partition {partition}; it has {partitions}, counted from 0"
    ))
}

// --------------------------------------------------------------------------------------- changing

pub(crate) async fn purge(broker: &Broker, queue: &QueueName) -> Result<RecordCount, AdminError> {
    let (id, _) = find(broker, queue)?;
    let records = broker.purge(id).await.map_err(|error| removing(queue, error))?;
    Ok(RecordCount { records })
}

pub(crate) fn removing(queue: &QueueName, error: RemoveError) -> AdminError {
    match error {
        RemoveError::UnknownGroup(_) => no_queue(queue),
        RemoveError::NotThere { .. } | RemoveError::Leased { .. } => {
            AdminError::Invalid(error.to_string())
        }
        RemoveError::Read(error) => error.into(),
        RemoveError::Unavailable(why) => why.into(),
    }
}

pub(crate) async fn remove(
    broker: &Broker,
    queue: &QueueName,
    records: &[RecordPosition],
) -> Result<RemovedRecords, AdminError> {
    let (id, _) = find(broker, queue)?;
    remove_from(broker, queue, id, records).await
}

/// Settles records one by one, many at a time. A record that cannot be removed is reported, and does not stop
/// the others.
pub(crate) async fn remove_from(
    broker: &Broker,
    queue: &QueueName,
    id: LeaseGroupId,
    records: &[RecordPosition],
) -> Result<RemovedRecords, AdminError> {
    let mut removed = RemovedRecords::default();
    for together in records.chunks(REMOVED_TOGETHER) {
        let each =
            together.iter().map(|place| broker.delete_record(id, place.partition, place.offset));
        for (place, outcome) in together.iter().zip(join_all(each).await) {
            match outcome {
                Ok(()) => removed.removed += 1,
                Err(error @ (RemoveError::NotThere { .. } | RemoveError::Leased { .. })) => {
                    removed.refused.push(not_removed(*place, error.to_string()));
                }
                Err(error) => return Err(removing(queue, error)),
            }
        }
    }
    Ok(removed)
}

pub(crate) fn not_removed(place: RecordPosition, reason: String) -> UnremovedRecord {
    UnremovedRecord { partition: place.partition, offset: place.offset, reason }
}

pub(crate) async fn pause(
    broker: &Broker,
    queue: &QueueName,
    paused: bool,
) -> Result<EmptyReply, AdminError> {
    let (group, _) = find(broker, queue)?;
    broker.pause_lease_group(group, paused).await?;
    Ok(EmptyReply {})
}

pub(crate) async fn seek(
    broker: &Broker,
    queue: &QueueName,
    to: &[RecordPosition],
) -> Result<EmptyReply, AdminError> {
    let (group, source) = find(broker, queue)?;
    if let Some(place) = to.iter().find(|place| place.partition >= source.partitions) {
        return Err(no_partition(queue, place.partition, source.partitions));
    }
    let offsets = to.iter().map(|place| (place.partition, place.offset)).collect();
    match broker.seek(group, SeekTo::Offsets(offsets)).await {
        Ok(()) => Ok(EmptyReply {}),
        Err(SeekError::UnknownGroup(_)) => Err(no_queue(queue)),
        Err(SeekError::Refused(refusal)) => Err(refusal.into()),
        Err(SeekError::Read(error)) => Err(error.into()),
        Err(SeekError::Unavailable(why)) => Err(why.into()),
    }
}

pub(crate) async fn delete(
    broker: &Broker,
    queue: &QueueName,
    force: bool,
) -> Result<EmptyReply, AdminError> {
    let (group, _) = find(broker, queue)?;
    let counters = broker.counters(group).await.ok_or_else(|| no_queue(queue))?;
    if counters.consumers > 0 && !force {
        let QueueName { topic, .. } = queue;
        let count = counters.consumers;
        let consumers = if count == 1 { "consumer" } else { "consumers" };
        return Err(AdminError::GroupNotEmpty(format!(
            "queue {topic} has {count} {consumers}; stop them first, or use --force"
        )));
    }
    broker.delete_lease_group(group).await?;
    Ok(EmptyReply {})
}

/// Returns the lease group of a topic's dead letters. A topic without one is declared a queue with all its
/// records, which needs the same right as a declaration.
pub(crate) async fn ensure_main(
    broker: &Broker,
    caller: &Rights,
    topic: &str,
) -> Result<(QueueName, LeaseGroupId, Source), AdminError> {
    let queue = QueueName { topic: topic.to_owned(), group: MAIN_LEASE_GROUP.to_owned() };
    let is_there = {
        let catalog = broker.catalog();
        let topic = catalog.topic_named(topic).ok_or_else(|| no_topic(topic))?;
        catalog.lease_group_named(topic.id(), MAIN_LEASE_GROUP).is_some()
    };
    if !is_there {
        if !caller.may(Operation::Alter, AccessTarget::Topic(topic)) {
            return Err(AdminError::TopicDenied(format!(
                "the topic {topic} is no queue yet, and this user may not make it one: \
                     it takes the right to alter the topic"
            )));
        }
        declare(broker, &queue, Start::Earliest, BTreeMap::new()).await?;
    }
    let (id, source) = find(broker, &queue)?;
    Ok((queue, id, source))
}
