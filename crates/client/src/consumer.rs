//! Membership in a group by KIP-848's protocol: the group assigns the partitions, and heartbeats carry each member's
//! assignment.
//!
//! Every heartbeat contains all partitions that the member owns, so that a lost reply needs no state on this side. It
//! has no task of its own: a member sends heartbeats only when its caller reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, MetadataRequest,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::cluster::{Client, TopicPartition};
use crate::error::{ClientError, accepted};
use crate::groups::{Committer, offset_commit};
use crate::member::MembershipStatus;
use crate::requests::{self, group_id, topic_name};

/// From version 1 on members choose their own id (KIP-1082).
const HEARTBEAT: std::ops::RangeInclusive<i16> = 1..=1;
/// The first version with a code for a stale epoch, and the last that names topics.
const OFFSET_COMMIT: std::ops::RangeInclusive<i16> = 9..=9;
const JOINING: i32 = 0;
const LEAVING: i32 = -1;

/// A membership. Its caller reports regularly, and consumes the partitions in [`ConsumerMember::owned`].
#[derive(Debug)]
pub struct ConsumerMember {
    client: Arc<Client>,
    group: String,
    topics: Vec<String>,
    /// Its generation is the member's epoch.
    committer: Committer,
    rebalance_timeout: Duration,
    names: BTreeMap<Uuid, Arc<str>>,
    owned: BTreeSet<TopicPartition>,
}

impl ConsumerMember {
    /// Starts unjoined: the first report joins. `member` is its permanent id within the group, chosen at random.
    pub fn new(
        client: Arc<Client>,
        group: &str,
        topics: &[String],
        member: Uuid,
        rebalance_timeout: Duration,
    ) -> Self {
        let member = StrBytes::from_string(member.to_string());
        Self {
            client,
            group: group.to_owned(),
            topics: topics.to_vec(),
            committer: Committer { member, generation: JOINING },
            rebalance_timeout,
            names: BTreeMap::new(),
            owned: BTreeSet::new(),
        }
    }

    /// The partitions assigned by the last report.
    pub fn owned(&self) -> &BTreeSet<TopicPartition> {
        &self.owned
    }

    /// The member's epoch; 0 while it has not joined.
    pub fn epoch(&self) -> i32 {
        self.committer.generation
    }

    /// Sends a heartbeat, or joins. Partitions missing in [`ConsumerMember::owned`] afterwards are revoked: the next
    /// report confirms that, and until then their offsets may still be committed.
    ///
    /// [`MembershipStatus::Rebalancing`] means that the group has removed the member: it owns nothing, and its next
    /// report joins. After an error the state is unknown: the membership lasts as long as its session, and it may
    /// report again.
    pub async fn report(&mut self) -> Result<MembershipStatus, ClientError> {
        let request = self.heartbeat();
        let coordinator = self.client.coordinator(&self.group).await?;
        let answer = coordinator.call(&request, HEARTBEAT).await?;
        match ResponseError::try_from_code(answer.error_code) {
            None => self.take(answer).await.map(|()| MembershipStatus::Member),
            Some(ResponseError::UnknownMemberId | ResponseError::FencedMemberEpoch) => {
                self.start_over();
                Ok(MembershipStatus::Rebalancing)
            }
            Some(_) => {
                let message = answer.error_message.as_deref();
                let what = || format!("cannot be a member of group {}", self.group);
                accepted(answer.error_code, message, what)?;
                Ok(MembershipStatus::Member)
            }
        }
    }

    fn start_over(&mut self) {
        self.committer.generation = JOINING;
        self.owned.clear();
    }

    fn heartbeat(&self) -> ConsumerGroupHeartbeatRequest {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group_id(&self.group))
            .with_member_id(self.committer.member.clone())
            .with_member_epoch(self.committer.generation)
            .with_topic_partitions(Some(self.owned_by_id()));
        if self.committer.generation != JOINING {
            return request.with_rebalance_timeout_ms(-1);
        }
        let names = self.topics.iter().map(|topic| topic_name(topic)).collect();
        let timeout_ms = i32::try_from(self.rebalance_timeout.as_millis()).unwrap_or(i32::MAX);
        request.with_subscribed_topic_names(Some(names)).with_rebalance_timeout_ms(timeout_ms)
    }

    fn owned_by_id(&self) -> Vec<TopicPartitions> {
        let of = |(id, name): (&Uuid, &Arc<str>)| {
            let partitions = self.owned.iter().filter(|it| it.topic == *name);
            let partitions: Vec<i32> = partitions.map(|it| it.partition).collect();
            let topic = TopicPartitions::default().with_topic_id(*id);
            (!partitions.is_empty()).then(|| topic.with_partitions(partitions))
        };
        self.names.iter().filter_map(of).collect()
    }

    async fn take(&mut self, answer: ConsumerGroupHeartbeatResponse) -> Result<(), ClientError> {
        self.committer.generation = answer.member_epoch;
        let Some(assignment) = answer.assignment else { return Ok(()) };
        let mut owned = BTreeSet::new();
        for topic in assignment.topic_partitions {
            // A topic that was deleted meanwhile has no name any more.
            let Some(name) = self.name_of(topic.topic_id).await? else { continue };
            let each = topic.partitions.into_iter();
            owned.extend(each.map(|partition| TopicPartition::new(Arc::clone(&name), partition)));
        }
        self.owned = owned;
        Ok(())
    }

    async fn name_of(&mut self, topic: Uuid) -> Result<Option<Arc<str>>, ClientError> {
        if let Some(name) = self.names.get(&topic) {
            return Ok(Some(Arc::clone(name)));
        }
        let request: MetadataRequest = requests::metadata(self.topics.iter().map(String::as_str));
        let version = requests::METADATA;
        let answer = self.client.any().await.call(&request, version..=version).await?;
        for topic in answer.topics {
            if let Some(name) = topic.name.filter(|_| topic.error_code == 0) {
                self.names.insert(topic.topic_id, name.as_str().into());
            }
        }
        Ok(self.names.get(&topic).cloned())
    }

    /// Commits as this member, once. [`MembershipStatus::Rebalancing`] means that the commit was refused because the
    /// member does not own the partitions.
    pub async fn commit(
        &self,
        offsets: &BTreeMap<TopicPartition, u64>,
    ) -> Result<MembershipStatus, ClientError> {
        let request = offset_commit(&self.group, &self.committer, offsets);
        let coordinator = self.client.coordinator(&self.group).await?;
        let answer = coordinator.call(&request, OFFSET_COMMIT).await?;
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            match ResponseError::try_from_code(partition.error_code) {
                Some(
                    ResponseError::UnknownMemberId
                    | ResponseError::StaleMemberEpoch
                    | ResponseError::FencedMemberEpoch,
                ) => return Ok(MembershipStatus::Rebalancing),
                _ => {
                    let what = || format!("cannot commit offsets of group {}", self.group);
                    accepted(partition.error_code, None, what)?;
                }
            }
        }
        Ok(MembershipStatus::Member)
    }

    /// Leaves the group, so that other members get its partitions at once.
    pub async fn leave(mut self) -> Result<(), ClientError> {
        self.owned.clear();
        self.committer.generation = LEAVING;
        let request = self.heartbeat().with_topic_partitions(None);
        let coordinator = self.client.coordinator(&self.group).await?;
        coordinator.call(&request, HEARTBEAT).await.map(drop)
    }
}
