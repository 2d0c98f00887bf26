//! A share group (KIP-932): its members consume partitions together, and settle records one by one.
//!
//! A pure state machine, driven by its members' heartbeats: an [`EpochGroup`]. Unlike in a consumer group no
//! partition is exclusive, so no member waits for another: a member reaches its target with its next report.
//! Settling records is not the concern of the group, but of the lease group of each topic. The semantics are those
//! of Kafka 4's `ShareGroup`.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::info;
use uuid::Uuid;
use world::Instant;

use crate::Text;
use crate::assignment::Assignment;
use crate::assignor::{Subscriber, simple};
use crate::client::Client;
use crate::epochs::{EpochGroup, Protocol, Subscribed, fenced_epoch};
use crate::error::GroupError;
use crate::members::{self, Enrolment, JOINING};
use crate::subscription::{Catalog, Subscription, Subscriptions};

#[cfg(test)]
mod tests;

/// The configuration of node and group.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    pub members_max: usize,
    pub session_timeout: Duration,
}

/// A ShareGroupHeartbeat request of a member that joins or stays. `None` means unchanged since its last one.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub member_id: Text,
    pub epoch: i32,
    pub rack_id: Option<Text>,
    pub names: Option<BTreeSet<Text>>,
    pub client: Client,
}

/// The reply to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub epoch: i32,
    /// The member's partitions; `None` if it has received them before.
    pub assigned: Option<Assignment>,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub enrolment: Enrolment,
    pub subscription: Subscription,
    pub epoch: i32,
    /// Accepted once more, from a member that has not received the reply with its new epoch.
    previous_epoch: i32,
    /// Partitions that it has received.
    pub assigned: Assignment,
    /// Partitions that it will receive.
    target: Assignment,
}

impl members::Member for Member {
    type Target = Assignment;

    fn enrolment(&self) -> &Enrolment {
        &self.enrolment
    }

    fn enrolment_mut(&mut self) -> &mut Enrolment {
        &mut self.enrolment
    }

    fn epoch(&self) -> i32 {
        self.epoch
    }

    fn set_target(&mut self, target: Assignment) {
        self.target = target;
    }

    fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 640;
        const NAME_BYTES: usize = 64;
        MEMBER_BYTES
            + self.subscription.names.iter().map(|name| name.len() + NAME_BYTES).sum::<usize>()
    }
}

impl Member {
    /// Moves it to its target. Returns whether its partitions changed.
    fn advance(&mut self, target_epoch: i32) -> bool {
        let is_new = self.assigned != self.target;
        if is_new {
            self.assigned = self.target.clone();
        }
        if self.epoch != target_epoch {
            (self.previous_epoch, self.epoch) = (self.epoch, target_epoch);
        }
        is_new
    }
}

impl Subscribed for Member {
    fn subscription_mut(&mut self) -> &mut Subscription {
        &mut self.subscription
    }

    fn subscriber(&self) -> Subscriber<'_> {
        Subscriber {
            id: &self.enrolment.id,
            instance_id: None,
            topics: &self.subscription.topics,
            target: &self.target,
        }
    }
}

pub type ShareGroup = EpochGroup<ShareProtocol>;

#[derive(Debug, Default)]
pub struct ShareProtocol {
    subscriptions: Subscriptions,
    /// Number of partitions in the members' targets, each counted for every member.
    assigned: usize,
}

impl Protocol for ShareProtocol {
    type Member = Member;

    const NAME: &str = "share";

    fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 128;
        const ASSIGNED_BYTES: usize = 32;
        self.subscriptions.topics().len() * TOPIC_BYTES + self.assigned * ASSIGNED_BYTES
    }

    fn left(&mut self, _member: &Member, was_last: bool) {
        // Topics that only this member subscribed to are dropped at the next heartbeat.
        self.subscriptions.look_again();
        if was_last {
            *self = Self::default();
        }
    }
}

// ------------------------------------------------------------------------------------- questions

impl ShareGroup {
    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() { EMPTY_STATE } else { "Stable" }
    }

    /// Existing topics of any member's subscription.
    pub fn topics(&self) -> impl Iterator<Item = Uuid> {
        self.own.subscriptions.topics().keys().copied()
    }
}

/// The state of a group without members.
pub const EMPTY_STATE: &str = "Empty";

// ----------------------------------------------------------------------------------------- events

impl ShareGroup {
    /// Processes a heartbeat. A rejected one changes nothing.
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
        self.members.resolve(&mut self.own.subscriptions, has_changed, catalog);
        if self.members.needs_targets() {
            self.assign();
        }
        self.members.note_heartbeat(&member_id, session_deadline);
        let target_epoch = self.target_epoch();
        let advance = |member: &mut Member| member.advance(target_epoch);
        let is_new = self.members.change(&member_id, advance).unwrap_or_default();
        let member = self.member(&member_id)?;
        let assigned = (is_new || is_full).then(|| member.assigned.clone());
        Ok(Report { epoch: member.epoch, assigned })
    }

    /// Handles a member that joins or rejoins. Returns whether it is new.
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
        self.check_room(limits.members_max)?;
        info!(group = %self.name, member = %member_id, "member of a share group joins");
        self.insert(Member {
            enrolment: Enrolment::new(member_id, &heartbeat.client, session_deadline),
            subscription: Subscription::default(),
            epoch: JOINING,
            previous_epoch: JOINING,
            assigned: Assignment::default(),
            target: Assignment::default(),
        });
        Ok(true)
    }

    /// Validates the epoch of a member that stays.
    fn recognise(&self, heartbeat: &Heartbeat) -> Result<(), GroupError> {
        let member = self.member(&heartbeat.member_id)?;
        let (said, known) = (heartbeat.epoch, member.epoch);
        if said == known || (said < known && said == member.previous_epoch) {
            return Ok(());
        }
        Err(fenced_epoch(said, known))
    }

    /// Updates the member's subscription. Returns whether the assignment depends on the change.
    fn update(&mut self, heartbeat: Heartbeat) -> bool {
        let change = |member: &mut Member| {
            member.enrolment.client = heartbeat.client;
            if heartbeat.rack_id.is_some() {
                member.enrolment.rack_id = heartbeat.rack_id;
            }
            let names = heartbeat.names.filter(|names| *names != member.subscription.names);
            let has_changed = names.is_some();
            if let Some(names) = names {
                member.subscription.names = names;
            }
            has_changed
        };
        self.members.change(&heartbeat.member_id, change).unwrap_or_default()
    }

    /// Computes the target of every member for the group's epoch.
    fn assign(&mut self) {
        self.members.assign(&self.own.subscriptions, simple::assign);
        self.own.assigned = self.members().map(|member| member.target.iter().count()).sum();
        info!(group = %self.name, epoch = self.epoch(), members = self.members.len(), "assigned again");
    }

    pub fn leave(&mut self, member_id: &str) -> Result<(), GroupError> {
        self.member(member_id)?;
        info!(group = %self.name, member = %member_id, "member of a share group left");
        self.remove(member_id);
        Ok(())
    }
}
