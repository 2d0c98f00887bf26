//! Groups seen from outside: lists, members, committed offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    ApiKey, ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest,
    ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::cluster::{Client, TopicPartition, patiently};
use crate::connection::Connection;
use crate::consumer_protocol::assigned_partitions;
use crate::error::{BrokerRejection, ClientError, accepted};
use crate::requests::{group_id, topic_name};

/// A group in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedGroup {
    pub name: String,
    /// The state's name in the protocol: `Stable`, `Empty`, ...
    pub state: String,
    /// `classic` or `consumer` (KIP-848).
    pub kind: String,
}

/// A group with its members; states and assignors are the protocol's names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedGroup {
    pub name: String,
    pub state: String,
    pub kind: &'static str,
    pub assignor: String,
    pub members: Vec<GroupMember>,
}

/// A member, by the id from the coordinator and the client's own data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMember {
    pub id: String,
    pub client: String,
    pub host: String,
    pub partitions: Vec<TopicPartition>,
}

impl DescribedGroup {
    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// The author of a commit: a member in a generation, or a client outside of the group, which is allowed while the
/// group has no members.
#[derive(Clone, Debug)]
pub struct Committer {
    pub member: StrBytes,
    pub generation: i32,
}

impl Committer {
    pub const OUTSIDER: Committer = Committer { member: StrBytes::new(), generation: -1 };
}

impl Client {
    /// All groups of the cluster, sorted by name.
    pub async fn groups(&self) -> Result<Vec<ListedGroup>, ClientError> {
        let mut groups = BTreeMap::new();
        // Each broker knows the groups that it coordinates.
        for broker in self.brokers().await? {
            let found = patiently(|| async {
                let answer = broker.call(&ListGroupsRequest::default(), 0..=5).await?;
                accepted(answer.error_code, None, || "cannot list groups".into())?;
                Ok(answer.groups)
            });
            for group in found.await? {
                let name = group.group_id.to_string();
                let or_dash = |text: StrBytes| match text.is_empty() {
                    true => "-".to_owned(),
                    false => text.to_string(),
                };
                groups.insert(
                    name.clone(),
                    ListedGroup {
                        name,
                        state: or_dash(group.group_state),
                        kind: or_dash(group.group_type).to_lowercase(),
                    },
                );
            }
        }
        Ok(groups.into_values().collect())
    }

    /// Describes a group; `None` if it does not exist.
    pub async fn group(&self, name: &str) -> Result<Option<DescribedGroup>, ClientError> {
        let coordinator = self.coordinator(name).await?;
        if coordinator.offers(ApiKey::ConsumerGroupDescribe, 0..=1)
            && let Some(group) = describe_consumer(&coordinator, name).await?
        {
            return Ok(Some(group));
        }
        describe_classic(&coordinator, name).await
    }

    /// The committed offsets of the group; empty if there is no such group.
    pub async fn committed(
        &self,
        group: &str,
    ) -> Result<BTreeMap<TopicPartition, u64>, ClientError> {
        let coordinator = self.coordinator(group).await?;
        let request =
            OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(None);
        patiently(|| async {
            // 2: of all partitions. From 8 on the request is for several groups.
            let answer = coordinator.call(&request, 2..=7).await?;
            let what = || format!("cannot read the offsets of group {group}");
            accepted(answer.error_code, None, what)?;
            let mut committed = BTreeMap::new();
            for topic in answer.topics {
                let name: Arc<str> = topic.name.as_str().into();
                for partition in topic.partitions {
                    accepted(partition.error_code, None, what)?;
                    if let Ok(offset) = u64::try_from(partition.committed_offset) {
                        let index = partition.partition_index;
                        committed.insert(TopicPartition::new(name.clone(), index), offset);
                    }
                }
            }
            Ok(committed)
        })
        .await
    }

    /// Commits the offset after the last processed record of each partition.
    pub async fn commit(
        &self,
        group: &str,
        committer: &Committer,
        offsets: &BTreeMap<TopicPartition, u64>,
    ) -> Result<(), ClientError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let request = offset_commit(group, committer, offsets);
        patiently(|| async {
            let answer = self.coordinator(group).await?.call(&request, 2..=8).await?;
            let what = || format!("cannot commit offsets of group {group}");
            for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                accepted(partition.error_code, None, what)?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes a group without members.
    pub async fn delete_group(&self, name: &str) -> Result<(), ClientError> {
        let coordinator = self.coordinator(name).await?;
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(name)]);
        patiently(|| async {
            for result in coordinator.call(&request, 0..=2).await?.results {
                accepted(result.error_code, None, || format!("cannot delete group {name}"))?;
            }
            Ok(())
        })
        .await
    }
}

pub(crate) fn offset_commit(
    group: &str,
    committer: &Committer,
    offsets: &BTreeMap<TopicPartition, u64>,
) -> OffsetCommitRequest {
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for (partition, offset) in offsets {
        topics.entry(&partition.topic).or_default().push(
            OffsetCommitRequestPartition::default()
                .with_partition_index(partition.partition)
                .with_committed_offset(*offset as i64)
                .with_committed_metadata(Some(StrBytes::new())),
        );
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(partitions)
    });
    OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_generation_id_or_member_epoch(committer.generation)
        .with_member_id(committer.member.clone())
        .with_topics(topics.collect())
}

/// Describes a group of KIP-848's protocol; `None` if it is not one.
async fn describe_consumer(
    coordinator: &Connection,
    name: &str,
) -> Result<Option<DescribedGroup>, ClientError> {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(name)]);
    let answer = patiently(|| async {
        let answer = coordinator.call(&request, 0..=1).await?;
        for group in &answer.groups {
            refuse_passing(group.error_code, name)?;
        }
        Ok(answer)
    })
    .await?;
    let group = answer.groups.into_iter().find(|group| group.error_code == 0);
    Ok(group.map(|group| DescribedGroup {
        name: name.to_owned(),
        state: group.group_state.to_string(),
        kind: "consumer",
        assignor: group.assignor_name.to_string(),
        members: group
            .members
            .into_iter()
            .map(|member| GroupMember {
                id: member.member_id.to_string(),
                client: member.client_id.to_string(),
                host: member.client_host.trim_start_matches('/').to_owned(),
                partitions: member
                    .assignment
                    .topic_partitions
                    .iter()
                    .flat_map(|topic| {
                        let name: Arc<str> = topic.topic_name.as_str().into();
                        topic.partitions.iter().map(move |p| TopicPartition::new(name.clone(), *p))
                    })
                    .collect(),
            })
            .collect(),
    }))
}

async fn describe_classic(
    coordinator: &Connection,
    name: &str,
) -> Result<Option<DescribedGroup>, ClientError> {
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id(name)]);
    let answer = patiently(|| async {
        let answer = coordinator.call(&request, 0..=6).await?;
        for group in &answer.groups {
            refuse_passing(group.error_code, name)?;
        }
        Ok(answer)
    })
    .await?;
    let Some(group) = answer.groups.into_iter().next() else { return Ok(None) };
    // Before version 6 a missing group is described as dead.
    let missing = ResponseError::GroupIdNotFound.code();
    if group.error_code == missing || &*group.group_state == "Dead" {
        return Ok(None);
    }
    accepted(group.error_code, group.error_message.as_deref(), || format!("group {name}"))?;
    Ok(Some(DescribedGroup {
        name: name.to_owned(),
        state: group.group_state.to_string(),
        kind: "classic",
        assignor: group.protocol_data.to_string(),
        members: group
            .members
            .into_iter()
            .map(|member| GroupMember {
                id: member.member_id.to_string(),
                client: member.client_id.to_string(),
                host: member.client_host.trim_start_matches('/').to_owned(),
                partitions: assigned_partitions(&member.member_assignment),
            })
            .collect(),
    }))
}

/// Returns errors that are worth a retry.
fn refuse_passing(code: i16, group: &str) -> Result<(), ClientError> {
    match ResponseError::try_from_code(code) {
        Some(code) if code.is_retriable() => {
            Err(BrokerRejection { what: format!("group {group}"), code, message: None }.into())
        }
        _ => Ok(()),
    }
}
