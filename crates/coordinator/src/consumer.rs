//! A group of KIP-848's protocol: the group divides the partitions, members are brought there one
//! by one, and nobody stops for anybody else.
//!
//! A pure state machine, driven by its members' heartbeats. Three numbers tell how far it is: the
//! group's epoch grows with every change of members, subscriptions or topics; a target assignment
//! is computed for each such epoch; and each member has the epoch that it has been brought to. The
//! semantics are those of Kafka 4's `ConsumerGroup`; where they differ, it says so.
//!
//! [`ConsumerGroup::holders`] has the one invariant that everything else serves: a partition is
//! held by one member at most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Text;
use crate::error::ErrorKind;
use base::HashMap;
use tracing::info;
use uuid::Uuid;
use world::Instant;

use crate::assignment::Assignment;
use crate::assignor::Assignor;
use crate::error::GroupError;
use crate::member::{Client, JOINING, LEAVING, PAUSING};
use crate::subscription::Subscriptions;

mod heartbeat;
pub mod member;
mod target;
#[cfg(test)]
mod tests;

pub use member::Member;

/// What the configuration of node and group says.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerLimits {
    pub members_max: usize,
    pub session_timeout: Duration,
}

/// A ConsumerGroupHeartbeat request of a member that comes or stays. `None` is what it has not
/// changed since its last one.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub member_id: Text,
    pub epoch: i32,
    pub instance_id: Option<Text>,
    pub rack_id: Option<Text>,
    pub rebalance_timeout: Option<Duration>,
    pub names: Option<BTreeSet<Text>>,
    /// Empty: no pattern any more.
    pub pattern: Option<Text>,
    pub assignor: Option<Assignor>,
    pub owned: Option<Assignment>,
    pub client: Client,
}

impl Heartbeat {
    /// Whether it says everything, as a member does that does not know what the group knows.
    fn is_full(&self) -> bool {
        self.epoch == JOINING
            || (self.rebalance_timeout.is_some()
                && (self.names.is_some() || self.pattern.is_some())
                && self.owned.is_some())
    }
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub epoch: i32,
    /// What the member may consume now; `None` if that is what it has been told before.
    pub assigned: Option<Assignment>,
}

#[derive(Debug)]
pub struct ConsumerGroup {
    name: Text,
    epoch: i32,
    /// Of the members' targets.
    target_epoch: i32,
    members: BTreeMap<Text, Member>,
    /// Member ids of static members.
    instances: HashMap<Text, Text>,
    /// Who may be consuming a partition.
    holders: HashMap<(Uuid, i32), Text>,
    subscriptions: Subscriptions,
    check_at: Option<Instant>,
    bytes: usize,
}

// ------------------------------------------------------------------------------------- questions

impl ConsumerGroup {
    pub fn new(name: Text) -> Self {
        Self {
            name,
            epoch: 0,
            target_epoch: 0,
            members: BTreeMap::new(),
            instances: HashMap::default(),
            holders: HashMap::default(),
            subscriptions: Subscriptions::default(),
            check_at: None,
            bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.target_epoch {
            "Assigning"
        } else if self.members.values().any(|member| !member.state.is_reconciled(self.target_epoch))
        {
            "Reconciling"
        } else {
            "Stable"
        }
    }

    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    pub fn target_epoch(&self) -> i32 {
        self.target_epoch
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.subscriptions.topics().values().any(|known| known.name.as_ref() == topic)
    }

    /// See [`super::classic::ClassicGroup::check_at`].
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// What the group weighs in memory.
    pub fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 128;
        const HELD_BYTES: usize = 240;
        self.bytes
            + self.subscriptions.topics().len() * TOPIC_BYTES
            + self.holders.len() * HELD_BYTES
    }

    /// The assignor that most members ask for. Ties go by name.
    pub fn assignor(&self) -> Assignor {
        let mut votes: BTreeMap<Assignor, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| member.assignor) {
            *votes.entry(assignor).or_default() += 1;
        }
        let winner = votes.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        winner.map(|(assignor, _)| assignor).unwrap_or_default()
    }

    /// Whether this member may commit offsets of these partitions now. A commit that was under way
    /// while the member was taken to its next epoch is good for what it holds still (KIP-1251).
    pub fn may_commit(
        &self,
        member_id: &str,
        epoch: i32,
        mut partitions: impl Iterator<Item = (Uuid, i32)>,
    ) -> Result<(), GroupError> {
        if epoch < 0 && self.members.is_empty() {
            // Somebody who uses the group only to keep offsets.
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        let is_late = (0..member.state.epoch).contains(&epoch);
        if is_late && partitions.all(|partition| member.state.has_held_since(&partition, epoch)) {
            return Ok(());
        }
        self.check_epoch(member_id, epoch)
    }

    /// Whether whoever this is may read committed offsets now.
    pub fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match member_id {
            None if epoch < 0 => Ok(()),
            None => Err(self.unknown_member("")),
            Some(member_id) => self.check_epoch(member_id, epoch),
        }
    }

    fn check_epoch(&self, member_id: &str, epoch: i32) -> Result<(), GroupError> {
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        if epoch == member.state.epoch {
            return Ok(());
        }
        let message =
            format!("member epoch {epoch} is not {}, the one known here", member.state.epoch);
        Err(GroupError::new(ErrorKind::StaleMemberEpoch, message))
    }

    fn unknown_member(&self, member_id: &str) -> GroupError {
        let message = format!("Member {member_id} is not a member of group {}.", self.name);
        GroupError::new(ErrorKind::UnknownMemberId, message)
    }
}

// -------------------------------------------------------------------------------- leaving, time

impl ConsumerGroup {
    /// A member goes, for good or (static members, with epoch -2) for a while.
    pub fn leave(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        epoch: i32,
    ) -> Result<(), GroupError> {
        match instance_id {
            Some(instance) => self.check_instance(member_id, instance)?,
            None if self.members.contains_key(member_id) => {}
            None => return Err(self.unknown_member(member_id)),
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

    /// Whether a static member is the one that came with this instance id last.
    fn check_instance(&self, member_id: &str, instance: &str) -> Result<(), GroupError> {
        match self.instances.get(instance) {
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

    /// It keeps what it has, until its session ends or it comes back.
    fn pause(&mut self, member_id: &str) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.state.epoch = PAUSING;
        member.revocation_deadline = None;
        for partition in member.state.finish_revoking().iter() {
            self.holders.remove(&partition);
        }
    }

    fn remove(&mut self, member_id: &str) {
        let Some(member) = self.members.remove(member_id) else { return };
        for partition in member.held() {
            self.holders.remove(&partition);
        }
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        self.bytes -= member.bytes();
        self.bump();
        if self.members.is_empty() {
            self.subscriptions = Subscriptions::default();
        }
    }

    fn bump(&mut self) {
        // A group that rebalanced once a second would be here after 68 years.
        self.epoch = self.epoch.saturating_add(1);
    }

    fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }

    /// Takes out members that were silent for too long, or did not give up partitions in time.
    pub fn expire(&mut self, now: Instant) {
        let overdue = |member: &&Member| {
            member.session_deadline <= now || member.revocation_deadline.is_some_and(|at| at <= now)
        };
        let fenced: Vec<_> =
            self.members.values().filter(overdue).map(|member| member.id.clone()).collect();
        for member_id in fenced {
            info!(group = %self.name, member = %member_id, "member timed out");
            self.remove(&member_id);
        }
        let sessions = self.members.values().map(|member| member.session_deadline);
        let revocations = self.members.values().filter_map(|member| member.revocation_deadline);
        self.check_at = sessions.chain(revocations).min();
    }
}
