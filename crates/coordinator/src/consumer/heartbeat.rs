//! Heartbeats: members join, stay, and confirm revocations.

use std::time::Duration;

use tracing::{debug, info};
use world::Instant;

use super::member::Member;
use super::{ConsumerGroup, ConsumerLimits, Heartbeat, Report};
use crate::assignment::Assignment;
use crate::epochs::fenced_epoch;
use crate::error::{ErrorKind, GroupError};
use crate::members::{Enrolment, JOINING, PAUSING};
use crate::reconcile::{MemberState, Progress};
use crate::subscription::{Catalog, Subscription};
use crate::text;

impl ConsumerGroup {
    /// Processes a heartbeat. A rejected one changes nothing.
    pub fn heartbeat(
        &mut self,
        heartbeat: Heartbeat,
        limits: ConsumerLimits,
        catalog: &impl Catalog,
        now: Instant,
    ) -> Result<Report, GroupError> {
        let pattern = heartbeat.pattern.as_ref().filter(|pattern| !pattern.is_empty());
        if let Some(pattern) = pattern {
            self.own.subscriptions.check_pattern(pattern).map_err(|error| {
                GroupError::new(ErrorKind::InvalidRegularExpression, error.to_string())
            })?;
        }
        let is_new = if heartbeat.epoch == JOINING {
            self.welcome(&heartbeat, limits, now)?
        } else {
            self.recognise(&heartbeat)?;
            false
        };
        let has_changed = self.update(&heartbeat) || is_new;
        self.members.resolve(&mut self.own.subscriptions, has_changed, catalog);
        if self.members.needs_targets() {
            self.assign();
        }
        self.members.note_heartbeat(&heartbeat.member_id, now + limits.session_timeout);
        let is_new = self.reconcile(&heartbeat.member_id, heartbeat.owned.as_ref(), now);
        let member = self.member(&heartbeat.member_id)?;
        // A member that owns other partitions may have lost the reply with its assignment.
        let differs = heartbeat.owned.as_ref().is_some_and(|owned| *owned != member.state.assigned);
        let tell = is_new || differs || heartbeat.is_full();
        Ok(Report {
            epoch: member.state.epoch,
            assigned: tell.then(|| member.state.assigned.clone()),
        })
    }

    /// Handles a member that joins or rejoins. Returns whether it is new in any form.
    fn welcome(
        &mut self,
        heartbeat: &Heartbeat,
        limits: ConsumerLimits,
        now: Instant,
    ) -> Result<bool, GroupError> {
        let member_id = &heartbeat.member_id;
        let instances = &self.own.instances;
        let holder = heartbeat.instance_id.as_ref().and_then(|id| instances.get(id)).cloned();
        if let Some(holder) = &holder
            && self.members.get(holder).is_some_and(|member| member.state.epoch != PAUSING)
            && holder != member_id
        {
            let message = format!("the instance id is in use by member {}", holder);
            return Err(GroupError::new(ErrorKind::UnreleasedInstanceId, message));
        }
        if let Some(holder) = holder {
            self.resume(&holder, member_id);
            return Ok(false);
        }
        if self.members.contains_key(member_id) {
            // It abandoned its partitions and starts over, as a fenced member has to. Its session need not time
            // out first here, as it must in Kafka.
            info!(group = %self.name, member = %member_id, "member rejoins");
            self.restart(member_id);
            return Ok(false);
        }
        self.check_room(limits.members_max)?;
        info!(group = %self.name, member = %member_id, "member joins");
        self.insert(new_member(heartbeat, now + limits.session_timeout));
        Ok(true)
    }

    /// A static member rejoins, most likely with another id, and resumes with its former assignment.
    fn resume(&mut self, old_id: &str, new_id: &str) {
        let Some(mut member) = self.take(old_id) else { return };
        info!(group = %self.name, old = %old_id, new = %new_id, "static member rejoins");
        member.enrolment.id = text(new_id);
        // It owns nothing, so its pending revocations are complete.
        member.state.finish_revoking();
        member.state.progress = Progress::Stable;
        member.enrolment.deadlines.revocation = None;
        (member.state.epoch, member.state.previous_epoch) = (JOINING, JOINING);
        self.insert(member);
    }

    fn restart(&mut self, member_id: &str) {
        let Some(mut member) = self.take(member_id) else { return };
        member.state = MemberState::joining(member.state.target);
        member.enrolment.deadlines.revocation = None;
        self.insert(member);
    }

    /// Validates the identity and the epoch of a member that stays.
    fn recognise(&self, heartbeat: &Heartbeat) -> Result<(), GroupError> {
        let member_id = &heartbeat.member_id;
        if let Some(instance) = &heartbeat.instance_id {
            self.check_instance(member_id, instance)?;
        }
        let state = &self.member(member_id)?.state;
        if state.accepts_epoch(heartbeat.epoch, heartbeat.owned.as_ref()) {
            return Ok(());
        }
        Err(fenced_epoch(heartbeat.epoch, state.epoch))
    }

    /// Updates the member's subscription. Returns whether the assignment depends on the change.
    fn update(&mut self, heartbeat: &Heartbeat) -> bool {
        let bears_on = |member: &Member| {
            let Subscription { names, pattern, .. } = &member.subscription;
            (names.clone(), pattern.clone(), member.assignor)
        };
        let change = |member: &mut Member| {
            let before = bears_on(member);
            member.enrolment.client = heartbeat.client.clone();
            if let Some(rack_id) = &heartbeat.rack_id {
                member.enrolment.rack_id = Some(rack_id.clone());
            }
            if let Some(timeout) = heartbeat.rebalance_timeout {
                member.rebalance_timeout = timeout;
            }
            if let Some(names) = &heartbeat.names {
                member.subscription.names = names.clone();
            }
            if let Some(pattern) = &heartbeat.pattern {
                member.subscription.pattern =
                    Some(pattern.clone()).filter(|pattern| !pattern.is_empty());
            }
            if heartbeat.assignor.is_some() {
                member.assignor = heartbeat.assignor;
            }
            before != bears_on(member)
        };
        self.members.change(&heartbeat.member_id, change).unwrap_or_default()
    }

    /// Moves a member as far towards its target as the other members allow. Returns whether its partitions
    /// changed.
    fn reconcile(&mut self, member_id: &str, owned: Option<&Assignment>, now: Instant) -> bool {
        let Some(member) = self.members.get(member_id) else { return false };
        let free_of = |missing: &Assignment| {
            missing.iter().filter(|partition| !self.own.holders.contains_key(partition)).collect()
        };
        let step = member.state.next_step(self.target_epoch(), owned, free_of);
        let Some(step) = step else { return false };
        let Some(mut member) = self.take(member_id) else { return false };
        let is_new = step.assigned != member.state.assigned;
        member.state.advance(step);
        let (progress, epoch) = (member.state.progress, member.state.epoch);
        member.enrolment.deadlines.revocation = match progress {
            Progress::Revoking => Some(now + member.rebalance_timeout),
            Progress::Stable | Progress::Waiting => None,
        };
        debug!(group = %self.name, member = %member_id, epoch, ?progress, "member advances");
        self.insert(member);
        is_new
    }
}

fn new_member(heartbeat: &Heartbeat, session_deadline: Instant) -> Member {
    Member {
        enrolment: Enrolment::new(&heartbeat.member_id, &heartbeat.client, session_deadline),
        instance_id: heartbeat.instance_id.clone(),
        subscription: Subscription::default(),
        assignor: None,
        rebalance_timeout: Duration::ZERO,
        state: MemberState::joining(Assignment::default()),
    }
}
