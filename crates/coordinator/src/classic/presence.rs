//! Heartbeats, timeouts, and departures.

use crate::Text;
use crate::error::ErrorKind;
use tracing::info;
use world::Instant;

use super::{ClassicGroup, JoinDeadline, JoinLimits, LeavingMember, Phase, join_refused};
use crate::classic::Effects;

impl ClassicGroup {
    pub fn heartbeat(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now: Instant,
    ) -> Result<(), ErrorKind> {
        self.identify(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ErrorKind::IllegalGeneration);
        }
        self.note_heartbeat(member_id, now);
        match self.phase {
            Phase::PreparingRebalance => Err(ErrorKind::RebalanceInProgress),
            Phase::Empty => Err(ErrorKind::UnknownMemberId),
            Phase::CompletingRebalance | Phase::Stable => Ok(()),
        }
    }

    pub(super) fn note_heartbeat(&mut self, member_id: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(member_id) {
            let until = now + member.session_timeout;
            member.heartbeat_deadline = Some(until);
            self.check_by(until);
        }
    }

    /// Returns one result for each, in their order.
    pub fn leave(
        &mut self,
        leavers: &[LeavingMember],
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) -> Vec<Result<(), ErrorKind>> {
        let results: Vec<_> =
            leavers.iter().map(|leaver| self.remove_leaver(leaver, effects)).collect();
        if results.iter().any(Result::is_ok) {
            match self.phase {
                Phase::Empty => {}
                Phase::PreparingRebalance => self.complete_join_if_all(now, effects),
                Phase::CompletingRebalance | Phase::Stable => {
                    self.prepare_rebalance("members left", limits, now, effects);
                }
            }
        }
        results
    }

    pub(super) fn remove_leaver(
        &mut self,
        leaver: &LeavingMember,
        effects: &mut Effects,
    ) -> Result<(), ErrorKind> {
        let member_id = if leaver.member_id.is_empty() {
            let holder = leaver.instance_id.as_ref().and_then(|id| self.instances.get(id));
            holder.cloned().ok_or(ErrorKind::UnknownMemberId)?
        } else if self.pending.remove(&leaver.member_id).is_some() {
            return Ok(());
        } else {
            self.identify(&leaver.member_id, leaver.instance_id.as_deref())?;
            leaver.member_id.clone()
        };
        info!(group = %self.name, member = %member_id, reason = %leaver.reason, "member left");
        self.remove_and_answer(&member_id, effects);
        Ok(())
    }

    pub(super) fn remove_and_answer(&mut self, member_id: &str, effects: &mut Effects) {
        let Some(member) = self.remove(member_id) else { return };
        let error = ErrorKind::UnknownMemberId;
        if let Some(waiter) = member.awaiting_join {
            effects.join(waiter, join_refused(Text::default(), error));
        }
        if let Some(waiter) = member.awaiting_sync {
            effects.sync(waiter, Err(error));
        }
    }

    /// Whether this member may commit now. A commit counts as a heartbeat.
    pub fn commit(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        now: Instant,
    ) -> Result<(), ErrorKind> {
        if generation < 0 && self.is_empty() {
            // A client that uses the group only to store offsets.
            return Ok(());
        }
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Err(ErrorKind::UnknownMemberId);
        }
        self.identify(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ErrorKind::IllegalGeneration);
        }
        if self.phase == Phase::CompletingRebalance {
            return Err(ErrorKind::RebalanceInProgress);
        }
        self.note_heartbeat(member_id, now);
        Ok(())
    }

    /// Makes [`ClassicGroup::check_at`] no later than `deadline`.
    pub(super) fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }

    /// Applies the deadlines that have passed.
    pub fn expire(&mut self, limits: JoinLimits, now: Instant, effects: &mut Effects) {
        self.expire_joins(now, effects);
        self.expire_syncs(limits, now, effects);
        self.expire_members(limits, now, effects);
        let heartbeats = self.members.values().filter_map(|member| member.heartbeat_deadline);
        let phases = self.join_deadline.map(|deadline| deadline.at());
        self.check_at = heartbeats
            .chain(self.pending.values().copied())
            .chain(phases)
            .chain(self.sync_deadline)
            .min();
    }

    pub(super) fn expire_joins(&mut self, now: Instant, effects: &mut Effects) {
        match self.join_deadline {
            Some(JoinDeadline::Rebalance(at)) if at <= now => self.complete_join(now, effects),
            Some(JoinDeadline::Initial { at, delay, left, joined_since }) if at <= now => {
                if joined_since && !left.is_zero() {
                    let next = delay.min(left);
                    self.await_joins(JoinDeadline::Initial {
                        at: now + next,
                        delay,
                        left: left.saturating_sub(next),
                        joined_since: false,
                    });
                } else {
                    self.complete_join(now, effects);
                }
            }
            _ => {}
        }
    }

    pub(super) fn expire_syncs(&mut self, limits: JoinLimits, now: Instant, effects: &mut Effects) {
        if self.sync_deadline.is_none_or(|at| at > now) {
            return;
        }
        let owing = self.members.values().filter(|member| member.owes_sync);
        let owing: Vec<_> = owing.map(|member| member.id.clone()).collect();
        info!(group = %self.name, members = ?owing, "removed members that did not sync");
        for member_id in &owing {
            self.remove_and_answer(member_id, effects);
        }
        self.prepare_rebalance("members did not sync", limits, now, effects);
    }

    pub(super) fn expire_members(
        &mut self,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        let pending_before = self.pending.len();
        self.pending.retain(|_, until| *until > now);
        let mut failed = Vec::new();
        for member in self.members.values_mut() {
            if member.heartbeat_deadline.is_some_and(|at| at <= now) {
                if member.is_kept_waiting() {
                    member.heartbeat_deadline = None;
                } else {
                    failed.push(member.id.clone());
                }
            }
        }
        for member_id in &failed {
            info!(group = %self.name, member = %member_id, "member's session timed out");
            self.remove_and_answer(member_id, effects);
        }
        if failed.is_empty() && self.pending.len() == pending_before {
            return;
        }
        match self.phase {
            Phase::Stable | Phase::CompletingRebalance if !failed.is_empty() => {
                self.prepare_rebalance("members timed out", limits, now, effects);
            }
            // Also ends a first rebalance that waits for more: the awaited member is gone.
            Phase::PreparingRebalance if self.has_everybody_joined() => {
                self.complete_join(now, effects);
            }
            _ => {}
        }
    }
}
