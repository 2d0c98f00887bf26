//! The topics and lease groups behind queues: the only module that calls the broker for them. (For documents that is
//! the crate `documents`.)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::limits::BARRIER_WITHIN;
use base::{LeaseGroupId, MAIN_LEASE_GROUP, PartitionId, TopicId};
use broker::{Broker, ExecuteError, NewTopic, Refusal, TopicNameError, Unavailable};
use documents::StoreError;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::names::{escaped_topic_name, topic_name};
use crate::queue::{LEASE_CONFIGS, TOPIC_CONFIGS};

/// Configuration values by name, as the broker takes them for topics and lease groups.
pub(crate) type Config = BTreeMap<String, String>;

/// A topic found in the catalog.
#[derive(Clone, Debug)]
pub(crate) struct FoundTopic {
    pub(crate) id: TopicId,
    /// Shared with the catalog, which avoids a copy.
    pub(crate) name: Arc<str>,
    pub(crate) uuid: Uuid,
    pub(crate) partitions: u32,
    /// The lease group that a queue's consumers share.
    pub(crate) group: Option<LeaseGroupId>,
}

pub(crate) fn named(broker: &Broker, name: &str) -> Option<FoundTopic> {
    let catalog = broker.catalog();
    let topic = catalog.topic_named(name)?;
    let group = catalog.lease_group_named(topic.id(), MAIN_LEASE_GROUP);
    Some(FoundTopic {
        id: topic.id(),
        name: Arc::clone(topic.name()),
        uuid: topic.uuid(),
        partitions: topic.partition_count(),
        group: group.map(|group| group.id()),
    })
}

/// The lease group that a queue's consumers share, if it exists.
pub(crate) fn main_group(broker: &Broker, topic: TopicId) -> Option<LeaseGroupId> {
    broker.catalog().lease_group_named(topic, MAIN_LEASE_GROUP).map(|group| group.id())
}

/// Returns `None` if the topic does not exist.
pub(crate) fn partition_count(broker: &Broker, topic: TopicId) -> Option<u32> {
    broker.catalog().topic(topic).map(|topic| topic.partition_count())
}

/// Returns whether the topic has this UUID.
pub(crate) fn is_of(broker: &Broker, topic: TopicId, uuid: Uuid) -> bool {
    broker.catalog().topic(topic).is_some_and(|topic| topic.uuid() == uuid)
}

/// The topic of a new queue: under its own name, or under its escaped name if Kafka's rules forbid the plain one
/// beside an existing topic.
pub(crate) fn plan(
    broker: &Broker,
    vhost: &str,
    queue: &str,
    config: Config,
) -> Result<NewTopic, StoreError> {
    let uuid = broker.entropy().uuid();
    let mut new = NewTopic { name: topic_name(vhost, queue), uuid, partitions: 1, config };
    let checked = broker.catalog().check_new_topic(&new);
    match checked {
        Ok(_) => Ok(new),
        // As a queue's name it has nothing to do with Kafka's internal topics.
        Err(
            Refusal::TopicCollision { .. }
            | Refusal::InvalidTopicName(TopicNameError::StateOfKafka { .. }),
        ) => {
            new.name = escaped_topic_name(vhost, queue);
            Ok(new)
        }
        Err(refusal) => Err(ExecuteError::Refused(refusal).into()),
    }
}

/// Creates the lease group that a queue's consumers share, or finds it.
pub(crate) async fn ensure_group(
    broker: &Broker,
    topic: TopicId,
    config: Config,
) -> Result<LeaseGroupId, StoreError> {
    let name = MAIN_LEASE_GROUP.to_owned();
    match broker.create_lease_group(topic, name, Vec::new(), config).await {
        Ok(group) => Ok(group),
        // It was created with other values, which are kept.
        Err(ExecuteError::Refused(Refusal::LeaseGroupExists { group, .. })) => Ok(group),
        Err(other) => Err(other.into()),
    }
}

/// Sets the configuration of a topic and its lease group; either may be deleted.
pub(crate) async fn configure(
    broker: &Broker,
    (topic, topic_config): (TopicId, Config),
    (group, lease_config): (Option<LeaseGroupId>, Config),
) -> Result<(), StoreError> {
    let (of_topic, of_group) = {
        let catalog = broker.catalog();
        let present = catalog.topic(topic).map(|topic| Arc::clone(topic.overrides()));
        let of_topic = present.and_then(|present| changed(&present, &TOPIC_CONFIGS, topic_config));
        let found = group.and_then(|group| catalog.lease_group(group));
        let of_group = found.and_then(|group| {
            let config = changed(group.overrides(), &LEASE_CONFIGS, lease_config)?;
            Some((group.id(), config))
        });
        (of_topic, of_group)
    };
    if let Some(config) = of_topic {
        unless_gone(broker.set_topic_config(topic, config).await)?;
    }
    if let Some((group, config)) = of_group {
        unless_gone(broker.set_lease_group_config(group, config).await)?;
    }
    Ok(())
}

fn unless_gone(changed: Result<(), ExecuteError>) -> Result<(), StoreError> {
    match changed {
        Ok(())
        | Err(ExecuteError::Refused(
            Refusal::UnknownTopic { .. } | Refusal::UnknownLeaseGroup { .. },
        )) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

/// Replaces the `named` values of `present` by those of `wanted`; `None` if nothing changes.
fn changed(present: &Config, named: &[&str], wanted: Config) -> Option<Config> {
    let others = present.iter().filter(|(name, _)| !named.contains(&name.as_str()));
    let mut config: Config = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    config.extend(wanted);
    (config != *present).then_some(config)
}

/// Pause before a queue is counted again whose leader does not know it.
const COUNT_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Number of records ready for consumers; without a lease group, all records. Fails if a leader does not reply: a
/// queue that cannot be counted is not empty.
pub(crate) async fn record_count(
    broker: &Broker,
    topic: TopicId,
    group: Option<LeaseGroupId>,
) -> Result<u64, Unavailable> {
    broker.acknowledged_is_readable(topic).await;
    match group {
        Some(group) => {
            let until = Instant::now() + BARRIER_WITHIN;
            loop {
                if let Some(counters) = broker.counters(group).await {
                    return Ok(counters.ready);
                }
                let is_there = broker.catalog().lease_group(group).is_some();
                if !is_there {
                    return Ok(0);
                }
                // The leader has yet to learn of the group, or another node is about to lead.
                if Instant::now() >= until {
                    return Err(Unavailable::Unanswered);
                }
                sleep(COUNT_AGAIN_AFTER).await;
            }
        }
        None => {
            let partitions: Vec<PartitionId> = {
                let catalog = broker.catalog();
                let topic = catalog.topic(topic);
                topic.into_iter().flat_map(|topic| topic.partition_ids()).collect()
            };
            let bounds = broker.shards().bounds(&partitions).await?;
            Ok(bounds.into_iter().flatten().map(|bounds| bounds.end - bounds.log_start).sum())
        }
    }
}
