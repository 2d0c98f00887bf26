//! The stored form of a KIP-848 group, in any state: its members change their epochs one by one.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use world::Instant;

use super::{ConsumerGroup, Member};
use crate::assignment::Assignment;
use crate::assignor::Assignor;
use crate::client::Client;
use crate::members::{Enrolment, Members};
use crate::reconcile::{MemberState, Progress};
use crate::stored_fields::{KeptError, ProgressV1, millis, own};
use crate::subscription::{Subscription, Topic};
use crate::{Text, text};

#[derive(Serialize, Deserialize)]
pub(crate) struct ConsumerV1<'a> {
    epoch: i32,
    target_epoch: i32,
    /// Existing topics that members subscribe to.
    #[serde(borrow)]
    topics: Vec<TopicV1<'a>>,
    #[serde(borrow)]
    members: Vec<MemberV1<'a>>,
}

type TopicId = [u8; 16];
type AssignmentV1 = Vec<(TopicId, Vec<i32>)>;
/// The epoch in which the member got each partition.
type HeldV1 = Vec<(TopicId, Vec<(i32, i32)>)>;

#[derive(Serialize, Deserialize)]
struct TopicV1<'a> {
    id: TopicId,
    name: &'a str,
    partitions: u32,
}

#[derive(Serialize, Deserialize)]
struct MemberV1<'a> {
    id: &'a str,
    instance_id: Option<&'a str>,
    rack_id: Option<&'a str>,
    client: &'a str,
    host: &'a str,
    rebalance_timeout_ms: u32,
    #[serde(borrow)]
    names: Vec<&'a str>,
    pattern: Option<&'a str>,
    topics: Vec<TopicId>,
    assignor: Option<&'a str>,
    epoch: i32,
    previous_epoch: i32,
    progress: ProgressV1,
    assigned: HeldV1,
    revoking: HeldV1,
    target: AssignmentV1,
}

fn stored(assignment: &Assignment) -> AssignmentV1 {
    let topics = assignment.topics();
    topics
        .map(|(topic, partitions)| (topic.into_bytes(), partitions.iter().copied().collect()))
        .collect()
}

fn held(state: &MemberState<Assignment>, held: &Assignment) -> HeldV1 {
    let given_in = |topic, partition| {
        let given_in = state.given_in.get(&(topic, partition));
        (partition, given_in.copied().unwrap_or(state.epoch))
    };
    let topics = held.topics();
    topics
        .map(|(topic, partitions)| {
            let partitions = partitions.iter().map(|partition| given_in(topic, *partition));
            (topic.into_bytes(), partitions.collect())
        })
        .collect()
}

/// Each partition with the epoch in which it was assigned.
fn given(held: &HeldV1) -> impl Iterator<Item = ((Uuid, i32), i32)> {
    held.iter().flat_map(|(topic, partitions)| {
        let topic = Uuid::from_bytes(*topic);
        partitions.iter().map(move |(partition, given_in)| ((topic, *partition), *given_in))
    })
}

fn assignment(stored: &AssignmentV1) -> Assignment {
    let topics = stored.iter().map(|(topic, partitions)| (Uuid::from_bytes(*topic), partitions));
    topics.flat_map(|(topic, partitions)| partitions.iter().map(move |it| (topic, *it))).collect()
}

impl Member {
    fn to_keep(&self) -> MemberV1<'_> {
        let Self { enrolment, subscription, state, .. } = self;
        MemberV1 {
            id: &enrolment.id,
            instance_id: self.instance_id.as_deref(),
            rack_id: enrolment.rack_id.as_deref(),
            client: &enrolment.client.id,
            host: &enrolment.client.host,
            rebalance_timeout_ms: millis(self.rebalance_timeout),
            names: subscription.names.iter().map(|name| &**name).collect(),
            pattern: subscription.pattern.as_deref(),
            topics: subscription.topics.iter().map(|topic| topic.into_bytes()).collect(),
            assignor: self.assignor.map(Assignor::name),
            epoch: state.epoch,
            previous_epoch: state.previous_epoch,
            progress: state.progress.into(),
            assigned: held(state, &state.assigned),
            revoking: held(state, &state.revoking),
            target: stored(&state.target),
        }
    }
}

impl MemberV1<'_> {
    fn restored(&self, session_timeout: Duration, now: Instant) -> Member {
        let client = Client { id: text(self.client), host: text(self.host) };
        let mut enrolment = Enrolment::new(&text(self.id), &client, now + session_timeout);
        enrolment.rack_id = own(self.rack_id);
        let rebalance_timeout = Duration::from_millis(self.rebalance_timeout_ms.into());
        let progress = Progress::from(self.progress);
        if progress == Progress::Revoking {
            enrolment.deadlines.revocation = Some(now + rebalance_timeout);
        }
        let of = |held: &HeldV1| given(held).map(|(partition, _)| partition).collect();
        let (assigned, revoking) = (of(&self.assigned), of(&self.revoking));
        let given_in = given(&self.assigned).chain(given(&self.revoking)).collect();
        Member {
            enrolment,
            instance_id: own(self.instance_id),
            subscription: Subscription {
                names: self.names.iter().map(|name| text(name)).collect(),
                pattern: own(self.pattern),
                topics: self.topics.iter().copied().map(Uuid::from_bytes).collect(),
            },
            assignor: self.assignor.and_then(Assignor::named),
            rebalance_timeout,
            state: MemberState {
                epoch: self.epoch,
                previous_epoch: self.previous_epoch,
                progress,
                assigned,
                revoking,
                given_in,
                target: assignment(&self.target),
            },
        }
    }
}

impl ConsumerGroup {
    pub(crate) fn to_keep(&self) -> ConsumerV1<'_> {
        let topics = self.own.subscriptions.topics().values();
        ConsumerV1 {
            epoch: self.epoch(),
            target_epoch: self.target_epoch(),
            topics: topics
                .map(|Topic { id, name, partitions }| TopicV1 {
                    id: id.into_bytes(),
                    name,
                    partitions: *partitions,
                })
                .collect(),
            members: self.members().map(Member::to_keep).collect(),
        }
    }
}

impl ConsumerV1<'_> {
    pub(crate) fn restored(
        &self,
        name: Text,
        session_timeout: Duration,
        now: Instant,
    ) -> Result<ConsumerGroup, KeptError> {
        if self.members.is_empty() || !(0..=self.epoch).contains(&self.target_epoch) {
            return Err(KeptError::Inconsistent("it is no group with members"));
        }
        let mut group = ConsumerGroup::new(name);
        group.members = Members::at(self.epoch, self.target_epoch);
        let topic = |topic: &TopicV1<'_>| Topic {
            id: Uuid::from_bytes(topic.id),
            name: text(topic.name),
            partitions: topic.partitions,
        };
        group.own.subscriptions.restore(self.topics.iter().map(topic));
        let mut held = BTreeSet::new();
        for kept in &self.members {
            let member = kept.restored(session_timeout, now);
            let is_known = group.members.contains_key(&member.enrolment.id)
                || kept
                    .instance_id
                    .is_some_and(|instance| group.own.instances.contains_key(instance));
            if is_known {
                return Err(KeptError::Inconsistent("two members are the same"));
            }
            if !member.held().all(|partition| held.insert(partition)) {
                return Err(KeptError::Inconsistent("a partition has two holders"));
            }
            group.insert(member);
        }
        Ok(group)
    }
}
