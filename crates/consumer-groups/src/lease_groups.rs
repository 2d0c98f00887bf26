//! Share groups in the broker: in each topic, a lease group with the share group's name.
//!
//! A lease group is created when a member of the share group first subscribes to its topic, with the share
//! group's configuration of that time. Later changes are applied to the existing lease groups. Every group
//! with lease groups is a share group, even if another protocol created them: the consumers of both then
//! share the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use broker::catalog::LeaseGroup;
use broker::config::{GroupConfig, NodeValues, Overrides, StartPosition};
use broker::{Broker, CatalogView, ExecuteError, FetchError, NewTopic, Refusal, Unavailable};
use tracing::info;
use uuid::Uuid;

use crate::dead_letters;

/// Reason why a lease group was not created.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LeaseGroupError {
    #[error(transparent)]
    Create(#[from] ExecuteError),
    /// The offset at which the group starts cannot be read.
    #[error(transparent)]
    Read(#[from] FetchError),
}

impl From<Unavailable> for LeaseGroupError {
    fn from(unavailable: Unavailable) -> Self {
        Self::Read(unavailable.into())
    }
}

/// A share group's lease group in one topic.
#[derive(Clone, Debug)]
pub struct ShareLeaseGroup {
    pub lease_group: LeaseGroupId,
    pub topic_name: Arc<str>,
}

/// A share group's lease groups, by name of the topic.
pub fn parts(broker: &Broker, group: &str) -> BTreeMap<Arc<str>, ShareLeaseGroup> {
    let catalog = broker.catalog();
    let named = catalog.lease_groups_with_name(group);
    let part = |lease_group: LeaseGroup<'_>| {
        let topic = catalog.topic(lease_group.topic())?;
        Some(ShareLeaseGroup {
            lease_group: lease_group.id(),
            topic_name: Arc::clone(topic.name()),
        })
    };
    named.filter_map(part).map(|part| (Arc::clone(&part.topic_name), part)).collect()
}

/// Duration of the group's leases.
pub fn lock_ms(catalog: &CatalogView<'_>, group: &str) -> i32 {
    let own = catalog.group_config(group).share.record_lock_duration_ms;
    catalog.node_config().own.share.record_lock_duration_ms.holds(own)
}

/// Records of a partition that the group's members may hold at a time.
pub fn locks_max(catalog: &CatalogView<'_>, group: &str) -> u32 {
    let own = catalog.group_config(group).share.partition_record_locks_max;
    catalog.node_config().own.share.partition_record_locks_max.holds(own).max(1) as u32
}

/// The overrides of a lease group that follow from the share group's configuration.
fn lease_group_config(config: &GroupConfig, node: &NodeValues) -> Overrides {
    let share = &config.share;
    let topic = share.dead_letter_topic.as_deref();
    let route = topic.map(|topic| dead_letters::route(topic, share.dead_letter_copies_record));
    let mut values = share.lease_group_config(node);
    values.insert("dead.letter.route".to_owned(), route.unwrap_or_default());
    values
}

// -------------------------------------------------------------------------------------- creating

/// A topic in which the share group has no lease group yet.
struct UnsharedTopic {
    topic: TopicId,
    partitions: u32,
}

/// Ensures that the group has a lease group in each of these topics. Topics that were deleted meanwhile are
/// skipped.
pub async fn ensure(broker: &Broker, group: &str, topics: &[Uuid]) -> Result<(), LeaseGroupError> {
    if missing(&broker.catalog(), group, topics).is_empty() {
        return Ok(());
    }
    // So that a concurrent change of the group's configuration is either read here or applied afterwards.
    let _one_at_a_time = broker.config_changes().lock().await;
    let (missing, start, config) = {
        let catalog = broker.catalog();
        let start = catalog.group_config(group).share.start;
        (missing(&catalog, group, topics), start, config_of(&catalog, group))
    };
    for UnsharedTopic { topic, partitions } in missing {
        let starts = starts(broker, topic, partitions, start).await?;
        create(broker, group, topic, starts, config.clone()).await?;
    }
    Ok(())
}

fn missing(catalog: &CatalogView<'_>, group: &str, topics: &[Uuid]) -> Vec<UnsharedTopic> {
    let known = topics.iter().filter_map(|uuid| catalog.topic_with_uuid(uuid));
    let missing = known.filter(|topic| catalog.lease_group_named(topic.id(), group).is_none());
    missing
        .map(|topic| UnsharedTopic { topic: topic.id(), partitions: topic.partition_count() })
        .collect()
}

/// Creates the group's lease group in a topic, starting at these offsets; a missing one stands for the
/// partition's start.
pub async fn create(
    broker: &Broker,
    group: &str,
    topic: TopicId,
    starts: Vec<Offset>,
    config: Overrides,
) -> Result<(), ExecuteError> {
    match broker.create_lease_group(topic, group.to_owned(), starts, config).await {
        Ok(_) => {
            info!(group, %topic, "share group begins with a topic");
            Ok(())
        }
        // Another request created it meanwhile, or deleted the topic.
        Err(ExecuteError::Refused(
            Refusal::LeaseGroupExists { .. } | Refusal::UnknownTopic { .. },
        )) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The configuration of a lease group that is created before any subscription.
pub fn config_of(catalog: &CatalogView<'_>, group: &str) -> Overrides {
    lease_group_config(catalog.group_config(group), &catalog.node_config().own)
}

async fn starts(
    broker: &Broker,
    topic: TopicId,
    partitions: u32,
    start: StartPosition,
) -> Result<Vec<Offset>, LeaseGroupError> {
    if start == StartPosition::Earliest {
        return Ok(Vec::new());
    }
    let ids = (0..partitions).map(|index| PartitionId::new(topic, index));
    broker.copies_are_current(&ids.collect::<Vec<_>>()).await?;
    let mut starts = Vec::with_capacity(partitions as usize);
    for index in 0..partitions {
        let partition = PartitionId::new(topic, index);
        let end = broker.bounds_of(partition).await?.map_or(0, |bounds| bounds.stable);
        let found = match start {
            StartPosition::Earliest | StartPosition::Latest => None,
            StartPosition::Since { ms_ago } => {
                let since_ms = broker.clock().now_ms().saturating_sub(ms_ago);
                broker.known_offset_at_time(partition, since_ms).await?
            }
        };
        starts.push(found.map_or(end, |found| found.offset));
    }
    Ok(starts)
}

// -------------------------------------------------------------------------------------- changing

/// Creates a share group's dead-letter topic if it does not exist, and the node creates such topics.
/// Otherwise it may be created later: letters until then are dropped, as in Kafka.
pub async fn ensure_dead_letter_topic(
    broker: &Broker,
    config: &GroupConfig,
    partitions: u32,
) -> Result<(), ExecuteError> {
    let Some(name) = &config.share.dead_letter_topic else { return Ok(()) };
    let is_wanted = {
        let catalog = broker.catalog();
        let creates = catalog.node_config().own.dead_letters.auto_create_topics;
        creates && catalog.topic_id(name).is_none()
    };
    if !is_wanted {
        return Ok(());
    }
    let takes_letters = ("errors.deadletterqueue.group.enable".to_owned(), "true".to_owned());
    let topic = NewTopic {
        name: name.clone(),
        uuid: broker.entropy().uuid(),
        partitions,
        config: BTreeMap::from([takes_letters]),
    };
    match broker.create_topic(topic).await {
        Ok(_) | Err(ExecuteError::Refused(Refusal::TopicExists { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Applies a change of a share group's configuration to its lease groups. Only changed settings are touched,
/// since another protocol may have set the rest.
pub async fn carry_over(
    broker: &Broker,
    group: &str,
    before: &GroupConfig,
    after: &GroupConfig,
) -> Result<(), ExecuteError> {
    let changes = {
        let catalog = broker.catalog();
        let node = &catalog.node_config().own;
        let (before, after) = (lease_group_config(before, node), lease_group_config(after, node));
        let changed: Overrides =
            after.into_iter().filter(|(name, value)| before.get(name) != Some(value)).collect();
        let named = catalog.lease_groups_with_name(group);
        let with_changes = named.map(|lease_group| {
            let mut config = (**lease_group.overrides()).clone();
            config.extend(changed.clone());
            (lease_group.id(), config)
        });
        if changed.is_empty() { Vec::new() } else { with_changes.collect::<Vec<_>>() }
    };
    for (group, config) in changes {
        match broker.set_lease_group_config(group, config).await {
            Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownLeaseGroup { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
