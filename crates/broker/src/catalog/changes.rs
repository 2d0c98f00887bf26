//! Changes of the catalog. Each is an entry of the log, and holds on this node when it is answered.
//!
//! All fail alike: [`ExecuteError::Refused`] says what spoke against the change, which was then not
//! made; [`ExecuteError::Unavailable`] that it may or may not have been made.

use base::limits::NEW_TOPIC_PARTITIONS_MAX;
use base::topics::STATE_OF_KAFKA;
use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::config::{Overrides, level_of};
use machine::{
    Command, DocumentsChange, NewTopic, Outcome, Refusal, TopicDefinition, TopicNameError,
};

use crate::broker::Broker;
use crate::error::ExecuteError;
use crate::fetch::Bounds;

/// What an idempotent producer puts into its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerIdentity {
    pub id: i64,
    pub epoch: i16,
}

/// As in Kafka.
const PRODUCER_IDS_AT_ONCE: u32 = 1_000;

/// Limits the partitions of a topic that is created or grows. The machine permits more, and topics that have more remain.
fn check_new_partitions(requested: u32) -> Result<(), Refusal> {
    let at_most = NEW_TOPIC_PARTITIONS_MAX;
    match requested <= at_most {
        true => Ok(()),
        false => Err(Refusal::InvalidPartitionCount { requested, at_least: 1, at_most }),
    }
}

impl Broker {
    /// Whether a topic may have these values of its own, whatever they are: nodes of an earlier version could not read some.
    pub fn check_level_of(&self, config: &Overrides) -> Result<(), Refusal> {
        let (needed, at) = (level_of(config), self.level().now());
        if needed <= at { Ok(()) } else { Err(Refusal::LevelTooLow { needed, at }) }
    }

    /// Whether clients may make a topic of this name. One that is there already stays as it is.
    pub(crate) fn check_name_of_new(name: &str) -> Result<(), Refusal> {
        match STATE_OF_KAFKA.contains(&name) {
            true => Err(TopicNameError::StateOfKafka { name: name.to_owned() }.into()),
            false => Ok(()),
        }
    }

    /// Makes topics in one entry, each made or refused by itself; answers in their order.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
    ) -> Result<Vec<Result<TopicId, Refusal>>, ExecuteError> {
        let topics_of = |outcome| match outcome {
            Outcome::Topics(topics) => Some(topics),
            _ => None,
        };
        let check = |topic: &NewTopic| {
            let named = Self::check_name_of_new(&topic.name);
            let level = named.and_then(|()| self.check_level_of(&topic.config));
            level.and_then(|()| check_new_partitions(topic.partitions)).err()
        };
        let refused: Vec<Option<Refusal>> = topics.iter().map(check).collect();
        if refused.iter().all(Option::is_none) {
            return self.execute_for(Command::CreateTopics { topics }, topics_of).await;
        }
        let permitted = topics.into_iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let permitted: Vec<NewTopic> = permitted.map(|(topic, _)| topic).collect();
        let made = match permitted.is_empty() {
            true => Vec::new(),
            false => {
                let command = Command::CreateTopics { topics: permitted };
                self.execute_for(command, topics_of).await?
            }
        };
        let mut made = made.into_iter();
        let answer = |refused: Option<Refusal>| match refused {
            Some(refusal) => Err(refusal),
            None => made.next().expect("each topic is answered"),
        };
        Ok(refused.into_iter().map(answer).collect())
    }

    /// Makes one topic.
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

    /// Makes a topic what is wanted, all of it or nothing, if it is what was seen: else
    /// [`Refusal::TopicChanged`].
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

    /// The whole new set of what holds for the node and for topics that say nothing themselves.
    pub async fn set_node_config(&self, config: Overrides) -> Result<(), ExecuteError> {
        self.execute(Command::SetNodeConfig { config }).await.map(drop)
    }

    /// The whole new set of a group's own values.
    pub async fn set_group_config(
        &self,
        group: String,
        config: Overrides,
    ) -> Result<(), ExecuteError> {
        self.execute(Command::SetGroupConfig { group, config }).await.map(drop)
    }

    /// Makes a lease group that begins at `starts`, one a partition; one that is missing is the
    /// partition's start. Answers the group that is there if it has an equal configuration.
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

    /// Whether a group that is new may begin at `starts`. The catalog does not know where partitions end.
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
            if let Some(Bounds { log_start, end }) = bounds
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

    /// Makes or replaces a document; with `expect` only where its version is that one, and 0 is that
    /// of a document which is not there. Answers the version that it has now.
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

    /// Deletes a document; with `expect` only where its version is that one.
    pub async fn delete_document(
        &self,
        space: &str,
        name: String,
        expect: Option<u64>,
    ) -> Result<(), ExecuteError> {
        let space = space.to_owned();
        self.execute(Command::DeleteDocument { space, name, expect }).await.map(drop)
    }

    /// Changes documents, and a topic with them: all of it, or nothing where a condition does not hold.
    pub async fn change_documents(&self, change: DocumentsChange) -> Result<(), ExecuteError> {
        self.execute(Command::ChangeDocuments(change)).await.map(drop)
    }

    /// An id that no producer has. The node takes some from the log at a time; those that are left when it
    /// ends are never given.
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
