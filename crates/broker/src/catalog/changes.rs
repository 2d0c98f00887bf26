//! Changes of the catalog. Each is a log entry, and is visible on this node when the call returns.
//!
//! All fail alike: [`ExecuteError::Refused`] has the reason and means that the change was not made;
//! [`ExecuteError::Unavailable`] means that it may or may not have been made.

use base::limits::NEW_TOPIC_PARTITIONS_MAX;
use base::topics::{STATE_OF_KAFKA, is_written_by_nodes};
use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::config::{Overrides, level_of};
use machine::{
    Command, DocumentsChange, NewTopic, Outcome, Refusal, TopicDefinition, TopicNameError,
};
use shard::error::ExecuteError;
use shard_peers::bounds::Bounds;

use crate::broker::Broker;

/// Identity of an idempotent producer in its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerIdentity {
    pub id: i64,
    pub epoch: i16,
}

/// As in Kafka.
const PRODUCER_IDS_AT_ONCE: u32 = 1_000;

/// Limits the partitions of a topic that is created or grows. The machine permits more, and existing topics keep
/// more.
fn check_new_partitions(requested: u32) -> Result<(), Refusal> {
    let at_most = NEW_TOPIC_PARTITIONS_MAX;
    match requested <= at_most {
        true => Ok(()),
        false => Err(Refusal::InvalidPartitionCount { requested, at_least: 1, at_most }),
    }
}

impl Broker {
    /// Rejects settings of a topic above the cluster's feature level: nodes of an earlier version could not read
    /// them.
    pub fn check_level_of(&self, config: &Overrides) -> Result<(), Refusal> {
        let (needed, at) = (level_of(config), self.level().now());
        if needed <= at { Ok(()) } else { Err(Refusal::LevelTooLow { needed, at }) }
    }

    /// Rejects names that clients may not create. An existing topic of such a name stays.
    pub(crate) fn check_new_topic_name(name: &str) -> Result<(), Refusal> {
        let owned = || name.to_owned();
        if STATE_OF_KAFKA.contains(&name) {
            return Err(TopicNameError::StateOfKafka { name: owned() }.into());
        }
        // A client's topic would lack the settings with which nodes create it.
        if is_written_by_nodes(name) {
            return Err(TopicNameError::OfNodes { name: owned() }.into());
        }
        Ok(())
    }

    /// Creates topics in one entry, each accepted or rejected on its own; returns the results in their order.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
    ) -> Result<Vec<Result<TopicId, Refusal>>, ExecuteError> {
        let check = |topic: &NewTopic| {
            let named = Self::check_new_topic_name(&topic.name);
            let level = named.and_then(|()| self.check_level_of(&topic.config));
            level.and_then(|()| check_new_partitions(topic.partitions)).err()
        };
        let refused: Vec<Option<Refusal>> = topics.iter().map(check).collect();
        if refused.iter().all(Option::is_none) {
            return self.create_checked(topics).await;
        }
        let permitted = topics.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let permitted: Vec<NewTopic> = permitted.map(|(topic, _)| topic).collect();
        let made = match permitted.is_empty() {
            true => Vec::new(),
            false => self.create_checked(permitted).await?,
        };
        let mut made = made.into_iter();
        let answer = |refused: Option<Refusal>| match refused {
            Some(refusal) => Err(refusal),
            None => made.next().expect("each topic is answered"),
        };
        Ok(refused.into_iter().map(answer).collect())
    }

    /// Creates topics whose names and settings need no check, or have passed it.
    pub(crate) async fn create_checked(
        &self,
        topics: Vec<NewTopic>,
    ) -> Result<Vec<Result<TopicId, Refusal>>, ExecuteError> {
        let topics_of = |outcome| match outcome {
            Outcome::Topics(topics) => Some(topics),
            _ => None,
        };
        self.execute_for(Command::CreateTopics { topics }, topics_of).await
    }

    /// Creates one topic.
    pub async fn create_topic(&self, topic: NewTopic) -> Result<TopicId, ExecuteError> {
        let made = self.create_topics(vec![topic]).await?.into_iter().next();
        made.expect("each topic is answered").map_err(ExecuteError::Refused)
    }

    /// Deletes a topic with its records and its lease groups.
    pub async fn delete_topic(&self, topic: TopicId) -> Result<(), ExecuteError> {
        self.execute(Command::DeleteTopic { topic }).await.map(drop)
    }

    /// Grows a topic to `total` partitions.
    pub async fn create_partitions(&self, topic: TopicId, total: u32) -> Result<(), ExecuteError> {
        check_new_partitions(total).map_err(ExecuteError::Refused)?;
        self.execute(Command::CreatePartitions { topic, total }).await.map(drop)
    }

    /// `config` is the whole new set of the topic's own values, not a change to it.
    pub async fn set_topic_config(
        &self,
        topic: TopicId,
        config: Overrides,
    ) -> Result<(), ExecuteError> {
        self.execute(Command::SetTopicConfig { topic, config }).await.map(drop)
    }

    /// Changes a topic from the definition `seen` to `wanted`, atomically. A topic that differs from `seen` is
    /// rejected with [`Refusal::TopicChanged`].
    pub async fn change_topic(
        &self,
        topic: TopicId,
        seen: TopicDefinition,
        wanted: TopicDefinition,
    ) -> Result<(), ExecuteError> {
        if wanted.partitions != seen.partitions {
            check_new_partitions(wanted.partitions).map_err(ExecuteError::Refused)?;
        }
        self.execute(Command::ChangeTopic { topic, seen, wanted }).await.map(drop)
    }

    /// Replaces the settings of the node, which are the defaults of all topics.
    pub async fn set_node_config(&self, config: Overrides) -> Result<(), ExecuteError> {
        self.execute(Command::SetNodeConfig { config }).await.map(drop)
    }

    /// Replaces a group's own settings.
    pub async fn set_group_config(
        &self,
        group: String,
        config: Overrides,
    ) -> Result<(), ExecuteError> {
        self.execute(Command::SetGroupConfig { group, config }).await.map(drop)
    }

    /// Creates a lease group that begins at `starts`, one per partition; a missing one is the partition's start.
    /// Returns the existing group if its configuration is equal.
    pub async fn create_lease_group(
        &self,
        topic: TopicId,
        name: String,
        starts: Vec<Offset>,
        config: Overrides,
    ) -> Result<LeaseGroupId, ExecuteError> {
        let group_of = |outcome| match outcome {
            Outcome::LeaseGroup(group) => Some(group),
            _ => None,
        };
        self.check_starts(topic, &name, &starts).await?;
        let command = Command::CreateLeaseGroup { topic, name, starts, config };
        self.execute_for(command, group_of).await
    }

    /// Checks that a new group may begin at `starts`. The catalog does not know the ends of partitions.
    async fn check_starts(
        &self,
        topic: TopicId,
        name: &str,
        starts: &[Offset],
    ) -> Result<(), ExecuteError> {
        let refused = |refusal| Err(ExecuteError::Refused(refusal));
        let partitions = {
            let catalog = self.catalog();
            let Some(found) = catalog.topic(topic) else {
                return refused(Refusal::UnknownTopic { topic });
            };
            if catalog.lease_group_named(topic, name).is_some() {
                return Ok(());
            }
            found.partition_count()
        };
        if starts.len() > partitions as usize {
            let partition = PartitionId::new(topic, partitions);
            return refused(Refusal::UnknownPartition { partition });
        }
        let ids = (0..starts.len() as u32).map(|index| PartitionId::new(topic, index));
        let ids: Vec<PartitionId> = ids.collect();
        let bounds = self.shards().bounds(&ids).await?;
        for ((partition, bounds), &offset) in ids.into_iter().zip(bounds).zip(starts) {
            if let Some(Bounds { log_start, end, .. }) = bounds
                && offset > end
            {
                return refused(Refusal::OffsetOutOfRange {
                    partition,
                    offset,
                    start: log_start,
                    end,
                });
            }
        }
        Ok(())
    }

    /// `config` is the whole new set of the lease group's own values.
    pub async fn set_lease_group_config(
        &self,
        group: LeaseGroupId,
        config: Overrides,
    ) -> Result<(), ExecuteError> {
        self.execute(Command::SetLeaseGroupConfig { group, config }).await.map(drop)
    }

    /// Ends or resumes deliveries to a lease group.
    pub async fn pause_lease_group(
        &self,
        group: LeaseGroupId,
        paused: bool,
    ) -> Result<(), ExecuteError> {
        self.execute(Command::PauseLeaseGroup { group, paused }).await.map(drop)
    }

    pub async fn delete_lease_group(&self, group: LeaseGroupId) -> Result<(), ExecuteError> {
        self.execute(Command::DeleteLeaseGroup { group }).await.map(drop)
    }

    /// Creates or replaces a document; with `expect` only at that version, where 0 means that there is no document.
    /// Returns its new version.
    pub async fn put_document(
        &self,
        space: &str,
        name: String,
        body: Vec<u8>,
        expect: Option<u64>,
    ) -> Result<u64, ExecuteError> {
        let version_of = |outcome| match outcome {
            Outcome::Document { version } => Some(version),
            _ => None,
        };
        let command = Command::PutDocument { space: space.to_owned(), name, body, expect };
        self.execute_for(command, version_of).await
    }

    /// Deletes a document; with `expect` only at that version.
    pub async fn delete_document(
        &self,
        space: &str,
        name: String,
        expect: Option<u64>,
    ) -> Result<(), ExecuteError> {
        let space = space.to_owned();
        self.execute(Command::DeleteDocument { space, name, expect }).await.map(drop)
    }

    /// Changes documents, and a topic with them: atomically, and only if all conditions hold.
    pub async fn change_documents(&self, change: DocumentsChange) -> Result<(), ExecuteError> {
        self.execute(Command::ChangeDocuments(change)).await.map(drop)
    }

    /// Returns an unused producer id. The node reserves a range in the log at a time; the rest of it is never used
    /// after the node ends.
    pub async fn allocate_producer_id(&self) -> Result<ProducerIdentity, ExecuteError> {
        let mut left = self.producer_ids().lock().await;
        if left.is_empty() {
            let first_of = |outcome| match outcome {
                Outcome::ProducerId { id, .. } => Some(id),
                _ => None,
            };
            let count = PRODUCER_IDS_AT_ONCE;
            let command = Command::AllocateProducerIds { count };
            let first: i64 = self.execute_for(command, first_of).await?;
            *left = first..first + i64::from(count);
        }
        let id = left.next().expect("there are some left");
        Ok(ProducerIdentity { id, epoch: 0 })
    }
}
