//! A member reports: it comes, it stays, it has done what it was asked to.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::text;
use tracing::{debug, info};
use world::Instant;

use super::member::Member;
use super::{ConsumerGroup, ConsumerLimits, Heartbeat, Report};
use crate::assignment::Assignment;
use crate::error::GroupError;
use crate::member::{JOINING, PAUSING};
use crate::reconcile::{MemberState, Progress};
use crate::subscription::{Catalog, Subscription};

impl ConsumerGroup {
    /// Takes a heartbeat in. A refused one changes nothing.
    pub fn heartbeat(
        &mut self,
        heartbeat: Heartbeat,
        limits: ConsumerLimits,
        catalog: &impl Catalog,
        now: Instant,
    ) -> Result<Report, GroupError> {
        let pattern = heartbeat.pattern.as_ref().filter(|pattern| !pattern.is_empty());
        if let Some(pattern) = pattern {
            self.subscriptions.check_pattern(pattern).map_err(|error| {
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
        let wanted = self.members.values_mut().map(|member| &mut member.subscription);
        if self.subscriptions.resolve(has_changed, catalog, wanted) || has_changed {
            self.bump();
        }
        if self.epoch > self.target_epoch {
            self.assign();
        }
        let session_deadline = now + limits.session_timeout;
        self.check_by(session_deadline);
        let Some(member) = self.members.get_mut(&heartbeat.member_id) else {
            return Err(self.unknown_member(&heartbeat.member_id));
        };
        member.session_deadline = session_deadline;
        let is_new = self.reconcile(&heartbeat.member_id, heartbeat.owned.as_ref(), now);
        let member = &self.members[&heartbeat.member_id];
        // One that owns something else may have lost the answer that said so.
        let differs = heartbeat.owned.as_ref().is_some_and(|owned| *owned != member.state.assigned);
        let tell = is_new || differs || heartbeat.is_full();
        Ok(Report {
            epoch: member.state.epoch,
            assigned: tell.then(|| member.state.assigned.clone()),
        })
    }

    /// A member that comes, maybe again. True if it was not known, in whatever shape.
    fn welcome(
        &mut self,
        heartbeat: &Heartbeat,
        limits: ConsumerLimits,
        now: Instant,
    ) -> Result<bool, GroupError> {
        let member_id = &heartbeat.member_id;
        let holder = heartbeat.instance_id.as_ref().and_then(|id| self.instances.get(id)).cloned();
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
            // It abandoned everything and starts again, as it is told to when it is fenced; here
            // its session need not run out first, as it must in Kafka.
            info!(group = %self.name, member = %member_id, "member rejoins");
            self.restart(member_id);
            return Ok(false);
        }
        if self.members.len() >= limits.members_max {
            let message = format!(
                "The consumer group has reached its maximum capacity of {} members.",
                limits.members_max
            );
            return Err(GroupError::new(ErrorKind::GroupMaxSizeReached, message));
        }
        info!(group = %self.name, member = %member_id, "member joins");
        self.insert(new_member(heartbeat, now + limits.session_timeout));
        Ok(true)
    }

    /// A static member comes back, most likely with another id: it goes on from what it had.
    fn resume(&mut self, old_id: &str, new_id: &str) {
        let Some(mut member) = self.take(old_id) else { return };
        info!(group = %self.name, old = %old_id, new = %new_id, "static member rejoins");
        member.id = text(new_id);
        // It says that it owns nothing, so what it was asked to give up is given up.
        member.state.finish_revoking();
        member.state.progress = Progress::Stable;
        member.revocation_deadline = None;
        (member.state.epoch, member.state.previous_epoch) = (JOINING, JOINING);
        self.insert(member);
    }

    fn restart(&mut self, member_id: &str) {
        let Some(mut member) = self.take(member_id) else { return };
        member.state = MemberState::joining(member.state.target);
        member.revocation_deadline = None;
        self.insert(member);
    }

    /// Puts a member, and what it holds, into all the places that know of it.
    fn insert(&mut self, member: Member) {
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), member.id.clone());
        }
        for partition in member.held() {
            let other = self.holders.insert(partition, member.id.clone());
            debug_assert_eq!(other, None, "{partition:?} has two holders");
        }
        self.bytes += member.bytes();
        self.check_by(member.session_deadline);
        self.members.insert(member.id.clone(), member);
    }

    fn take(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        for partition in member.held() {
            self.holders.remove(&partition);
        }
        self.bytes -= member.bytes();
        Some(member)
    }

    /// Whether a member that stays is who it says, and knows where it is.
    fn recognise(&self, heartbeat: &Heartbeat) -> Result<(), GroupError> {
        let member_id = &heartbeat.member_id;
        if let Some(instance) = &heartbeat.instance_id {
            self.check_instance(member_id, instance)?;
        }
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        let (said, known) = (heartbeat.epoch, member.state.epoch);
        // The answer with its new epoch may have been lost; what it has is part of that epoch.
        let has_missed_an_answer = said == member.state.previous_epoch
            && heartbeat
                .owned
                .as_ref()
                .is_some_and(|owned| owned.is_subset_of(&member.state.assigned));
        if said == known || (said < known && has_missed_an_answer) {
            return Ok(());
        }
        let message = format!(
            "the member's epoch is {known}, not {said}: it must abandon its partitions and rejoin"
        );
        Err(GroupError::new(ErrorKind::FencedMemberEpoch, message))
    }

    /// Takes over what the member says about itself. True if it bears on the assignment.
    fn update(&mut self, heartbeat: &Heartbeat) -> bool {
        let Some(member) = self.members.get_mut(&heartbeat.member_id) else { return false };
        self.bytes -= member.bytes();
        let before = (
            member.subscription.names.clone(),
            member.subscription.pattern.clone(),
            member.assignor,
        );
        member.client = heartbeat.client.clone();
        if let Some(rack_id) = &heartbeat.rack_id {
            member.rack_id = Some(rack_id.clone());
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
        self.bytes += member.bytes();
        before
            != (
                member.subscription.names.clone(),
                member.subscription.pattern.clone(),
                member.assignor,
            )
    }

    /// Brings a member as far towards its target as the others allow. True if it may consume
    /// something else than before.
    fn reconcile(&mut self, member_id: &str, owned: Option<&Assignment>, now: Instant) -> bool {
        let Some(member) = self.members.get(member_id) else { return false };
        let free_of = |missing: &Assignment| {
            missing.iter().filter(|partition| !self.holders.contains_key(partition)).collect()
        };
        let step = member.state.next_step(self.target_epoch, owned, free_of);
        let Some(step) = step else { return false };
        let Some(mut member) = self.take(member_id) else { return false };
        let is_new = step.assigned != member.state.assigned;
        member.state.advance(step);
        let (progress, epoch) = (member.state.progress, member.state.epoch);
        member.revocation_deadline = match progress {
            Progress::Revoking => Some(now + member.rebalance_timeout),
            Progress::Stable | Progress::Waiting => None,
        };
        if let Some(until) = member.revocation_deadline {
            self.check_by(until);
        }
        debug!(group = %self.name, member = %member_id, epoch, ?progress, "member advances");
        self.insert(member);
        is_new
    }
}

fn new_member(heartbeat: &Heartbeat, session_deadline: Instant) -> Member {
    Member {
        id: heartbeat.member_id.clone(),
        instance_id: heartbeat.instance_id.clone(),
        rack_id: None,
        client: heartbeat.client.clone(),
        subscription: Subscription::default(),
        assignor: None,
        rebalance_timeout: Duration::ZERO,
        state: MemberState::joining(Assignment::default()),
        session_deadline,
        revocation_deadline: None,
    }
}
