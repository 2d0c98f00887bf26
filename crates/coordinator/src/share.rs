//! A share group (KIP-932): its members consume partitions together, and settle records one by one.
//!
//! A pure state machine, driven by its members' heartbeats. Unlike in a consumer group nothing is
//! held by one member alone, so nobody waits for anybody: a member is brought to its target the
//! moment it reports. What the members do with the records is no concern of the group; that is the
//! lease group's of each topic. The semantics are those of Kafka 4's `ShareGroup`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Text;
use crate::error::ErrorKind;
use tracing::info;
use uuid::Uuid;
use world::Instant;

use crate::assignment::Assignment;
use crate::assignor::{Subscriber, simple};
use crate::error::GroupError;
use crate::member::{Client, JOINING};
use crate::subscription::{Catalog, Subscription, Subscriptions};

#[cfg(test)]
mod tests;

/// What the configuration of node and group says.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    pub members_max: usize,
    pub session_timeout: Duration,
}

/// A ShareGroupHeartbeat request of a member that comes or stays. `None` is what it has not changed
/// since its last one.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub member_id: Text,
    pub epoch: i32,
    pub rack_id: Option<Text>,
    pub names: Option<BTreeSet<Text>>,
    pub client: Client,
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub epoch: i32,
    /// What the member may consume now; `None` if that is what it has been told before.
    pub assigned: Option<Assignment>,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub id: Text,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub subscription: Subscription,
    pub epoch: i32,
    /// Accepted once more, from a member that has not got the answer with its new epoch.
    previous_epoch: i32,
    /// What it was told to consume.
    pub assigned: Assignment,
    /// What it is to be told.
    target: Assignment,
    session_deadline: Instant,
}

impl Member {
    /// What it weighs in memory, near enough to keep all groups within their budget.
    fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 640;
        const NAME_BYTES: usize = 64;
        MEMBER_BYTES
            + self.subscription.names.iter().map(|name| name.len() + NAME_BYTES).sum::<usize>()
    }
}

#[derive(Debug)]
pub struct ShareGroup {
    name: Text,
    epoch: i32,
    /// Of the members' targets.
    target_epoch: i32,
    members: BTreeMap<Text, Member>,
    subscriptions: Subscriptions,
    check_at: Option<Instant>,
    bytes: usize,
    assigned: usize,
}

// ------------------------------------------------------------------------------------- questions

impl ShareGroup {
    pub fn new(name: Text) -> Self {
        Self {
            name,
            epoch: 0,
            target_epoch: 0,
            members: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            check_at: None,
            bytes: 0,
            assigned: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() { EMPTY_STATE } else { "Stable" }
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

    /// The topics that any member wants and that exist.
    pub fn topics(&self) -> impl Iterator<Item = Uuid> {
        self.subscriptions.topics().keys().copied()
    }

    /// See [`super::classic::ClassicGroup::check_at`].
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// What the group weighs in memory.
    pub fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 128;
        const ASSIGNED_BYTES: usize = 32;
        self.bytes
            + self.subscriptions.topics().len() * TOPIC_BYTES
            + self.assigned * ASSIGNED_BYTES
    }
}

/// The state of a group without members.
pub const EMPTY_STATE: &str = "Empty";

// ------------------------------------------------------------------------------------- heartbeat

impl ShareGroup {
    /// Takes a heartbeat in. A refused one changes nothing.
    pub fn heartbeat(
        &mut self,
        heartbeat: Heartbeat,
        limits: ShareLimits,
        catalog: &impl Catalog,
        now: Instant,
    ) -> Result<Report, GroupError> {
        let session_deadline = now + limits.session_timeout;
        let is_new = if heartbeat.epoch == JOINING {
            self.welcome(&heartbeat, limits, session_deadline)?
        } else {
            self.recognise(&heartbeat)?;
            false
        };
        let is_full = heartbeat.epoch == JOINING || heartbeat.names.is_some();
        let member_id = heartbeat.member_id.clone();
        let has_changed = self.update(heartbeat) || is_new;
        let wanted = self.members.values_mut().map(|member| &mut member.subscription);
        if self.subscriptions.resolve(has_changed, catalog, wanted) || has_changed {
            self.bump();
        }
        if self.epoch > self.target_epoch {
            self.assign();
        }
        self.check_by(session_deadline);
        let Some(member) = self.members.get_mut(&member_id) else {
            return Err(self.unknown_member(&member_id));
        };
        member.session_deadline = session_deadline;
        let is_new = member.assigned != member.target;
        if is_new {
            member.assigned = member.target.clone();
        }
        if member.epoch != self.target_epoch {
            (member.previous_epoch, member.epoch) = (member.epoch, self.target_epoch);
        }
        let assigned = (is_new || is_full).then(|| member.assigned.clone());
        Ok(Report { epoch: member.epoch, assigned })
    }

    /// A member that comes, maybe again. True if it was not known.
    fn welcome(
        &mut self,
        heartbeat: &Heartbeat,
        limits: ShareLimits,
        session_deadline: Instant,
    ) -> Result<bool, GroupError> {
        let member_id = &heartbeat.member_id;
        if self.members.contains_key(member_id) {
            info!(group = %self.name, member = %member_id, "member of a share group rejoins");
            return Ok(false);
        }
        if self.members.len() >= limits.members_max {
            let message = format!(
                "The share group has reached its maximum capacity of {} members.",
                limits.members_max
            );
            return Err(GroupError::new(ErrorKind::GroupMaxSizeReached, message));
        }
        info!(group = %self.name, member = %member_id, "member of a share group joins");
        let member = Member {
            id: member_id.clone(),
            rack_id: None,
            client: heartbeat.client.clone(),
            subscription: Subscription::default(),
            epoch: JOINING,
            previous_epoch: JOINING,
            assigned: Assignment::default(),
            target: Assignment::default(),
            session_deadline,
        };
        self.bytes += member.bytes();
        self.members.insert(member_id.clone(), member);
        Ok(true)
    }

    /// Whether a member that stays knows where it is.
    fn recognise(&self, heartbeat: &Heartbeat) -> Result<(), GroupError> {
        let member_id = &heartbeat.member_id;
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        let (said, known) = (heartbeat.epoch, member.epoch);
        if said == known || (said < known && said == member.previous_epoch) {
            return Ok(());
        }
        let message = format!(
            "the member's epoch is {known}, not {said}: it must abandon its partitions and rejoin"
        );
        Err(GroupError::new(ErrorKind::FencedMemberEpoch, message))
    }

    /// Takes over what the member says about itself. True if it bears on the assignment.
    fn update(&mut self, heartbeat: Heartbeat) -> bool {
        let Some(member) = self.members.get_mut(&heartbeat.member_id) else { return false };
        member.client = heartbeat.client;
        if heartbeat.rack_id.is_some() {
            member.rack_id = heartbeat.rack_id;
        }
        let Some(names) = heartbeat.names.filter(|names| *names != member.subscription.names)
        else {
            return false;
        };
        self.bytes -= member.bytes();
        member.subscription.names = names;
        self.bytes += member.bytes();
        true
    }

    /// Computes what every member is to have in the group's epoch.
    fn assign(&mut self) {
        let partitions = self.subscriptions.partitions();
        let subscribers: Vec<_> = self
            .members
            .values()
            .map(|member| Subscriber {
                id: &member.id,
                instance_id: None,
                topics: &member.subscription.topics,
                target: &member.target,
            })
            .collect();
        let targets = simple::assign(&subscribers, &partitions);
        self.assigned = targets.iter().map(|target| target.iter().count()).sum();
        for (member, target) in self.members.values_mut().zip(targets) {
            member.target = target;
        }
        self.target_epoch = self.epoch;
        info!(group = %self.name, epoch = self.epoch, members = self.members.len(), "assigned anew");
    }

    fn unknown_member(&self, member_id: &str) -> GroupError {
        let message = format!("Member {member_id} is not a member of group {}.", self.name);
        GroupError::new(ErrorKind::UnknownMemberId, message)
    }
}

// -------------------------------------------------------------------------------- leaving, time

impl ShareGroup {
    pub fn leave(&mut self, member_id: &str) -> Result<(), GroupError> {
        if !self.members.contains_key(member_id) {
            return Err(self.unknown_member(member_id));
        }
        info!(group = %self.name, member = %member_id, "member of a share group left");
        self.remove(member_id);
        Ok(())
    }

    fn remove(&mut self, member_id: &str) {
        let Some(member) = self.members.remove(member_id) else { return };
        self.bytes -= member.bytes();
        self.bump();
        // What only this member wanted nobody does any more: looked up at the next heartbeat.
        self.subscriptions.look_again();
        if self.members.is_empty() {
            self.subscriptions = Subscriptions::default();
            self.assigned = 0;
        }
    }

    fn bump(&mut self) {
        // A group that rebalanced once a second would be here after 68 years.
        self.epoch = self.epoch.saturating_add(1);
    }

    fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }

    /// Takes out members that were silent for too long.
    pub fn expire(&mut self, now: Instant) {
        let overdue = self.members.values().filter(|member| member.session_deadline <= now);
        let silent: Vec<_> = overdue.map(|member| member.id.clone()).collect();
        for member_id in silent {
            info!(group = %self.name, member = %member_id, "member of a share group timed out");
            self.remove(&member_id);
        }
        self.check_at = self.members.values().map(|member| member.session_deadline).min();
    }
}
