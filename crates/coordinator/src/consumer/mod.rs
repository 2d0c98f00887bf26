//! A group of KIP-848's protocol: the group divides the partitions, and reconciles members one by one, without a
//! stop of all.
//!
//! A pure state machine, driven by its members' heartbeats: an [`EpochGroup`], whose epoch grows with every change
//! of members, subscriptions or topics. The semantics are those of Kafka 4's `ConsumerGroup`; differences are
//! noted.
//!
//! [`ConsumerProtocol::holders`] has the central invariant: a partition is held by one member at most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::HashMap;
use tracing::info;
use uuid::Uuid;

use crate::Text;
use crate::assignment::Assignment;
use crate::assignor::Assignor;
use crate::client::Client;
use crate::epochs::{EpochGroup, Protocol};
use crate::error::{ErrorKind, GroupError};
use crate::members::{JOINING, LEAVING, PAUSING};
use crate::subscription::Subscriptions;

mod heartbeat;
pub mod member;
pub(crate) mod stored_group;
mod target;
#[cfg(test)]
mod tests;

pub use member::Member;

/// The configuration of node and group.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerLimits {
    pub members_max: usize,
    pub session_timeout: Duration,
}

/// A ConsumerGroupHeartbeat request of a member that joins or stays. `None` means unchanged since its last one.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub member_id: Text,
    pub epoch: i32,
    pub instance_id: Option<Text>,
    pub rack_id: Option<Text>,
    pub rebalance_timeout: Option<Duration>,
    pub names: Option<BTreeSet<Text>>,
    /// Empty: the pattern is removed.
    pub pattern: Option<Text>,
    pub assignor: Option<Assignor>,
    pub owned: Option<Assignment>,
    pub client: Client,
}

impl Heartbeat {
    /// Whether it carries all fields, as from a member without knowledge of the group's state.
    fn is_full(&self) -> bool {
        self.epoch == JOINING
            || (self.rebalance_timeout.is_some()
                && (self.names.is_some() || self.pattern.is_some())
                && self.owned.is_some())
    }
}

/// The reply to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub epoch: i32,
    /// The member's partitions; `None` if it has received them before.
    pub assigned: Option<Assignment>,
}

pub type ConsumerGroup = EpochGroup<ConsumerProtocol>;

#[derive(Debug, Default)]
pub struct ConsumerProtocol {
    /// Member ids of static members.
    instances: HashMap<Text, Text>,
    /// The member that may be consuming each partition.
    holders: HashMap<(Uuid, i32), Text>,
    subscriptions: Subscriptions,
}

impl Protocol for ConsumerProtocol {
    type Member = Member;

    const NAME: &str = "consumer";

    fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 128;
        const HELD_BYTES: usize = 240;
        self.subscriptions.topics().len() * TOPIC_BYTES + self.holders.len() * HELD_BYTES
    }

    fn inserted(&mut self, member: &Member) {
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), member.enrolment.id.clone());
        }
        for partition in member.held() {
            let other = self.holders.insert(partition, member.enrolment.id.clone());
            debug_assert_eq!(other, None, "{partition:?} has two holders");
        }
    }

    fn taken(&mut self, member: &Member) {
        for partition in member.held() {
            self.holders.remove(&partition);
        }
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
    }

    fn left(&mut self, _member: &Member, was_last: bool) {
        if was_last {
            self.subscriptions = Subscriptions::default();
        }
    }
}

// ------------------------------------------------------------------------------------- questions

impl ConsumerGroup {
    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.members.needs_targets() {
            "Assigning"
        } else if self.members().any(|member| !member.state.is_reconciled(self.target_epoch())) {
            "Reconciling"
        } else {
            "Stable"
        }
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.own.subscriptions.topics().values().any(|known| known.name.as_ref() == topic)
    }

    /// The assignor that most members select. Ties are broken by name.
    pub fn assignor(&self) -> Assignor {
        let mut votes: BTreeMap<Assignor, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| member.assignor) {
            *votes.entry(assignor).or_default() += 1;
        }
        let winner = votes.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        winner.map(|(assignor, _)| assignor).unwrap_or_default()
    }

    /// Whether this member may commit offsets of these partitions now.
    pub fn may_commit(
        &self,
        member_id: &str,
        epoch: i32,
        mut partitions: impl Iterator<Item = (Uuid, i32)>,
    ) -> Result<(), GroupError> {
        self.check_commit(member_id, epoch, |member| {
            partitions.all(|partition| member.state.has_held_since(&partition, epoch))
        })
    }
}

// -------------------------------------------------------------------------------------- leaving

impl ConsumerGroup {
    /// A member leaves, permanently or (static members, with epoch -2) temporarily.
    pub fn leave(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        epoch: i32,
    ) -> Result<(), GroupError> {
        match instance_id {
            Some(instance) => self.check_instance(member_id, instance)?,
            None => drop(self.member(member_id)?),
        }
        if epoch == PAUSING && instance_id.is_some() {
            info!(group = %self.name, member = %member_id, "static member left for a while");
            self.pause(member_id);
        } else {
            info!(group = %self.name, member = %member_id, "member left");
            self.remove(member_id);
        }
        debug_assert!(epoch == LEAVING || epoch == PAUSING);
        Ok(())
    }

    /// Whether a static member is the one that last joined with this instance id.
    fn check_instance(&self, member_id: &str, instance: &str) -> Result<(), GroupError> {
        match self.own.instances.get(instance) {
            Some(holder) if **holder == *member_id => Ok(()),
            Some(holder) => Err(GroupError::new(
                ErrorKind::FencedInstanceId,
                format!("instance {} belongs to member {}", instance, holder),
            )),
            None => Err(GroupError::new(
                ErrorKind::UnknownMemberId,
                format!("instance {} is unknown", instance),
            )),
        }
    }

    /// The member keeps its partitions, until its session ends or it rejoins.
    fn pause(&mut self, member_id: &str) {
        let Some(mut member) = self.take(member_id) else { return };
        member.state.epoch = PAUSING;
        member.state.finish_revoking();
        member.enrolment.deadlines.revocation = None;
        self.insert(member);
    }
}
