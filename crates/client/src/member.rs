//! Membership in a group by the classic protocol: join, sync, heartbeat, commit, leave.
//!
//! It uses the classic protocol and the `range` assignor, because every broker and every other client knows them: a
//! member shares its group with any other consumers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, GroupId, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, sleep};

use crate::cluster::{Client, PATIENCE, TopicPartition};
use crate::connection::ANSWER_WITHIN;
use crate::consumer_protocol::{assigned_partitions, subscribed_topics, versioned};
use crate::error::{ClientError, accepted};
use crate::groups::Committer;
use crate::requests::{group_id, topic_name};

/// Session timeout: a member without a heartbeat for this long is removed.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of [`Membership::heartbeat`].
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(3);
/// Time for the other members to rejoin.
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(60);
const PROTOCOL_TYPE: StrBytes = StrBytes::from_static_str("consumer");
const ASSIGNOR: StrBytes = StrBytes::from_static_str("range");

/// A membership in a group. Its caller sends heartbeats, and rejoins when a reply says so.
#[derive(Debug)]
pub struct Membership {
    client: Arc<Client>,
    group: String,
    topics: Vec<String>,
    committer: Committer,
    session_timeout: Duration,
    rebalance_timeout: Duration,
}

/// The result of a heartbeat or a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembershipStatus {
    /// Unchanged.
    Member,
    /// A member joined or left: rejoin.
    Rebalancing,
}

impl Membership {
    /// Starts unjoined.
    pub fn new(client: Arc<Client>, group: &str, topics: &[String]) -> Self {
        let (group, topics) = (group.to_owned(), topics.to_vec());
        Self {
            client,
            group,
            topics,
            committer: Committer::OUTSIDER,
            session_timeout: SESSION_TIMEOUT,
            rebalance_timeout: REBALANCE_TIMEOUT,
        }
    }

    /// Sets other timeouts than those for interactive use: of the session, and of the wait for members to rejoin.
    pub fn with_timeouts(mut self, session: Duration, rebalance: Duration) -> Self {
        (self.session_timeout, self.rebalance_timeout) = (session, rebalance);
        self
    }

    /// Joins or rejoins. Returns the partitions assigned to this member.
    pub async fn join(&mut self) -> Result<Vec<TopicPartition>, ClientError> {
        let deadline = Instant::now() + self.rebalance_timeout + PATIENCE;
        loop {
            let error = match self.try_join().await {
                Ok(partitions) => return Ok(partitions),
                Err(error) => error,
            };
            match error.code() {
                // The next round may succeed.
                Some(ResponseError::RebalanceInProgress | ResponseError::MemberIdRequired) => {}
                Some(ResponseError::UnknownMemberId | ResponseError::IllegalGeneration) => {
                    self.committer = Committer::OUTSIDER;
                }
                _ if error.is_passing() => {
                    self.client.forget_all().await;
                    sleep(Duration::from_millis(200)).await;
                }
                _ => return Err(error),
            }
            if Instant::now() > deadline {
                return Err(error);
            }
        }
    }

    async fn try_join(&mut self) -> Result<Vec<TopicPartition>, ClientError> {
        let coordinator = self.client.coordinator(&self.group).await?;
        let joining = coordinator.start(&self.join_request(), 4..=7).await?;
        let joined = joining.answer(self.rebalance_timeout + ANSWER_WITHIN).await?;
        // An error reply carries it as well: "join with this id".
        self.committer.member = joined.member_id.clone();
        accepted(joined.error_code, None, || format!("cannot join group {}", self.group))?;
        self.committer.generation = joined.generation_id;
        let assignments = match joined.leader == joined.member_id {
            true => self.assign(&joined).await?,
            false => Vec::new(),
        };
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(joined.generation_id)
            .with_member_id(joined.member_id)
            .with_protocol_type(Some(PROTOCOL_TYPE))
            .with_protocol_name(Some(ASSIGNOR))
            .with_assignments(assignments);
        let syncing = coordinator.start(&request, 3..=5).await?;
        let synced = syncing.answer(self.rebalance_timeout + ANSWER_WITHIN).await?;
        accepted(synced.error_code, None, || format!("cannot join group {}", self.group))?;
        Ok(assigned_partitions(&synced.assignment))
    }

    fn join_request(&self) -> JoinGroupRequest {
        let subscription = ConsumerProtocolSubscription::default()
            .with_topics(self.topics.iter().cloned().map(StrBytes::from_string).collect());
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(ASSIGNOR)
            .with_metadata(versioned(&subscription));
        JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(self.session_timeout.as_millis() as i32)
            .with_rebalance_timeout_ms(self.rebalance_timeout.as_millis() as i32)
            .with_member_id(self.committer.member.clone())
            .with_protocol_type(PROTOCOL_TYPE)
            .with_protocols(vec![protocol])
    }

    /// Assigns the partitions, as this member is the group's leader.
    async fn assign(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let subscriptions = subscriptions(&joined.members);
        let mut names: Vec<&str> = subscriptions.values().flatten().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let metadata = self.client.metadata(Some(&names)).await?;
        let counts = metadata
            .topics
            .iter()
            .map(|(name, topic)| (name.clone(), topic.partitions.len() as i32))
            .collect();
        let dealt = range(&subscriptions, &counts);
        let assignments = dealt.into_iter().map(|(member, topics)| {
            let topics = topics.into_iter().map(|(topic, partitions)| {
                AssignedTopic::default()
                    .with_topic(topic_name(&topic))
                    .with_partitions(partitions.collect())
            });
            let assignment =
                ConsumerProtocolAssignment::default().with_assigned_partitions(topics.collect());
            SyncGroupRequestAssignment::default()
                .with_member_id(StrBytes::from_string(member))
                .with_assignment(versioned(&assignment))
        });
        Ok(assignments.collect())
    }

    /// Sends a heartbeat. Returns whether the group rebalances.
    pub async fn heartbeat(&self) -> Result<MembershipStatus, ClientError> {
        let request = HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.committer.generation)
            .with_member_id(self.committer.member.clone());
        let answer = match self.client.coordinator(&self.group).await {
            Ok(coordinator) => coordinator.call(&request, 0..=4).await,
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(answer) => answer,
            // A restarted broker has no members of the group: rejoin.
            Err(error) if error.is_passing() => {
                self.client.forget_all().await;
                return Ok(MembershipStatus::Rebalancing);
            }
            Err(error) => return Err(error),
        };
        match ResponseError::try_from_code(answer.error_code) {
            None => Ok(MembershipStatus::Member),
            Some(
                ResponseError::RebalanceInProgress
                | ResponseError::UnknownMemberId
                | ResponseError::IllegalGeneration
                | ResponseError::NotCoordinator
                | ResponseError::CoordinatorNotAvailable
                | ResponseError::CoordinatorLoadInProgress,
            ) => Ok(MembershipStatus::Rebalancing),
            Some(_) => {
                accepted(answer.error_code, None, || format!("group {}", self.group))?;
                Ok(MembershipStatus::Member)
            }
        }
    }

    /// Commits as this member. A late commit, after a rebalance or with the broker away, is no error: the next owner
    /// of the partition reads those records again.
    pub async fn commit(
        &self,
        offsets: &BTreeMap<TopicPartition, u64>,
    ) -> Result<MembershipStatus, ClientError> {
        match self.client.commit(&self.group, &self.committer, offsets).await {
            Ok(()) => Ok(MembershipStatus::Member),
            Err(error) => match error.code() {
                Some(
                    ResponseError::RebalanceInProgress
                    | ResponseError::UnknownMemberId
                    | ResponseError::IllegalGeneration,
                ) => Ok(MembershipStatus::Rebalancing),
                _ if error.is_passing() => {
                    self.client.forget_all().await;
                    Ok(MembershipStatus::Rebalancing)
                }
                _ => Err(error),
            },
        }
    }

    /// Leaves the group, so that the others need not wait for the session timeout.
    pub async fn leave(self) -> Result<(), ClientError> {
        let member = MemberIdentity::default().with_member_id(self.committer.member.clone());
        let request =
            LeaveGroupRequest::default().with_group_id(self.group_id()).with_members(vec![member]);
        let coordinator = self.client.coordinator(&self.group).await?;
        coordinator.call(&request, 3..=5).await.map(|_| ())
    }

    fn group_id(&self) -> GroupId {
        group_id(&self.group)
    }
}

/// The subscribed topics of each member. An unreadable subscription gets no partitions.
fn subscriptions(members: &[JoinGroupResponseMember]) -> BTreeMap<String, Vec<String>> {
    let subscribed = members.iter().map(|member| {
        (member.member_id.to_string(), subscribed_topics(&member.metadata).unwrap_or_default())
    });
    subscribed.collect()
}

type RangeAssignments = BTreeMap<String, BTreeMap<String, std::ops::Range<i32>>>;

/// Assigns each topic by itself, in ranges, like Kafka's `RangeAssignor`.
fn range(
    subscriptions: &BTreeMap<String, Vec<String>>,
    partition_counts: &BTreeMap<String, i32>,
) -> RangeAssignments {
    let mut dealt: RangeAssignments =
        subscriptions.keys().map(|member| (member.clone(), BTreeMap::new())).collect();
    for (topic, count) in partition_counts {
        let wanting: Vec<&String> = subscriptions
            .iter()
            .filter(|(_, topics)| topics.contains(topic))
            .map(|(member, _)| member)
            .collect();
        let members = wanting.len() as i32;
        let mut next = 0;
        for (place, member) in (0..).zip(wanting) {
            let share = count / members + i32::from(place < count % members);
            if share > 0
                && let Some(topics) = dealt.get_mut(member)
            {
                topics.insert(topic.clone(), next..next + share);
            }
            next += share;
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(topics: &[&str]) -> Vec<String> {
        topics.iter().map(|topic| (*topic).to_owned()).collect()
    }

    #[test]
    fn every_partition_has_one_member_and_range_sizes_differ_by_one_at_most() {
        let subscriptions = BTreeMap::from([
            ("a".to_owned(), wants(&["t"])),
            ("b".to_owned(), wants(&["t", "u"])),
            ("c".to_owned(), wants(&["t"])),
        ]);
        let counts = BTreeMap::from([("t".to_owned(), 8), ("u".to_owned(), 2)]);
        let dealt = range(&subscriptions, &counts);
        assert_eq!(dealt["a"]["t"], 0..3);
        assert_eq!(dealt["b"]["t"], 3..6);
        assert_eq!(dealt["c"]["t"], 6..8);
        assert_eq!(dealt["b"]["u"], 0..2);
        assert!(!dealt["a"].contains_key("u"));
    }

    #[test]
    fn surplus_member_gets_an_empty_assignment() {
        let subscriptions =
            BTreeMap::from([("a".to_owned(), wants(&["t"])), ("b".to_owned(), wants(&["t"]))]);
        let dealt = range(&subscriptions, &BTreeMap::from([("t".to_owned(), 1)]));
        assert_eq!(dealt["a"]["t"], 0..1);
        assert!(dealt["b"].is_empty());
    }
}
