//! The transition to the next generation: its members, its leader, its assignments.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::ErrorKind;
use crate::{Text, text};
use base::{HashMap, HashSet};
use bytes::Bytes;
use tracing::{debug, info};
use world::Instant;

use super::{
    ClassicGroup, JoinDeadline, JoinGroupReply, JoinLimits, JoinedMember, Member, Phase, Sync,
    SyncGroupReply,
};
use crate::classic::Effects;
use crate::subscription::topics_of_subscription;

impl ClassicGroup {
    pub(super) fn rebalance(
        &mut self,
        reason: &str,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        if self.phase == Phase::PreparingRebalance {
            self.complete_join_if_all(now, effects);
        } else {
            self.prepare_rebalance(reason, limits, now, effects);
        }
    }

    pub(super) fn prepare_rebalance(
        &mut self,
        reason: &str,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        if self.phase == Phase::CompletingRebalance {
            for member in self.members.values_mut() {
                self.bytes -= std::mem::take(&mut member.assignment).len();
            }
            self.answer_syncs(Some(ErrorKind::RebalanceInProgress), now, effects);
        }
        self.forget_syncs();
        let is_initial = self.phase == Phase::Empty;
        self.phase = Phase::PreparingRebalance;
        info!(group = %self.name, generation = self.generation, reason, "preparing to rebalance");
        if is_initial && !limits.initial_delay.is_zero() {
            let delay = limits.initial_delay;
            let left = self.rebalance_timeout().saturating_sub(delay);
            self.await_joins(JoinDeadline::Initial {
                at: now + delay,
                delay,
                left,
                joined_since: false,
            });
        } else if self.has_everybody_joined() {
            self.complete_join(now, effects);
        } else {
            self.await_joins(JoinDeadline::Rebalance(now + self.rebalance_timeout()));
        }
    }

    pub(super) fn await_joins(&mut self, deadline: JoinDeadline) {
        self.check_by(deadline.at());
        self.join_deadline = Some(deadline);
    }

    pub(super) fn forget_syncs(&mut self) {
        self.sync_deadline = None;
        for member in self.members.values_mut() {
            member.owes_sync = false;
        }
    }

    pub(super) fn complete_join_if_all(&mut self, now: Instant, effects: &mut Effects) {
        // A first rebalance waits for more members.
        let is_initial = matches!(self.join_deadline, Some(JoinDeadline::Initial { .. }));
        if self.phase == Phase::PreparingRebalance && !is_initial && self.has_everybody_joined() {
            self.complete_join(now, effects);
        }
    }

    /// Ends the join phase with the members that have joined.
    pub(super) fn complete_join(&mut self, now: Instant, effects: &mut Effects) {
        self.join_deadline = None;
        let missing = |member: &&Member| member.awaiting_join.is_none() && !member.is_static();
        let missing: Vec<_> =
            self.members.values().filter(missing).map(|member| member.id.clone()).collect();
        for member_id in &missing {
            self.remove(member_id);
        }
        if !missing.is_empty() {
            info!(group = %self.name, members = ?missing, "removed members that did not rejoin");
        }
        if !self.members.is_empty() && !self.elect_leader() {
            // Only static members are left, and none of them has joined.
            return self.await_joins(JoinDeadline::Rebalance(now + self.rebalance_timeout()));
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol = self.select_protocol();
        self.subscribed = self.subscribed_topics();
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.has_lost_members = false;
            info!(group = %self.name, generation = self.generation, "group is empty");
            return;
        }
        self.phase = Phase::CompletingRebalance;
        info!(group = %self.name, generation = self.generation, members = self.members.len(),
            "group has a new generation");
        self.answer_joins(now, effects);
        let until = now + self.rebalance_timeout();
        self.sync_deadline = Some(until);
        self.check_by(until);
    }

    pub(super) fn answer_joins(&mut self, now: Instant, effects: &mut Effects) {
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for member_id in ids {
            let response = self.join_response(&member_id);
            let Some(member) = self.members.get_mut(&member_id) else { continue };
            if let Some(waiter) = member.awaiting_join.take() {
                self.joined -= 1;
                effects.join(waiter, Ok(response));
            }
            member.is_new = false;
            member.owes_sync = true;
            let until = now + member.session_timeout;
            member.heartbeat_deadline = Some(until);
            self.check_by(until);
        }
    }

    /// Makes sure that the leader has joined. Returns `false` if no member has.
    pub(super) fn elect_leader(&mut self) -> bool {
        let has_joined = |member: &Member| member.awaiting_join.is_some();
        if self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(has_joined) {
            return true;
        }
        match self.members.values().find(|member| has_joined(member)) {
            Some(member) => {
                self.leader = Some(member.id.clone());
                true
            }
            None => false,
        }
    }

    /// The protocol that most members prefer, among those that all members support.
    pub(super) fn select_protocol(&self) -> Option<Text> {
        let known_by_all = |(_, count): &(&Text, &usize)| **count == self.members.len();
        let candidates: HashSet<_> =
            self.supporters.iter().filter(known_by_all).map(|(name, _)| name).collect();
        let mut votes: BTreeMap<&Text, usize> = BTreeMap::new();
        for member in self.members.values() {
            *votes.entry(member.vote(&candidates)?).or_default() += 1;
        }
        // Ties are broken by name, so that the outcome does not depend on a map's order.
        let winner = votes.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(a.0)));
        winner.map(|(name, _)| name.clone())
    }

    pub(super) fn subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.is_of_consumers() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(topics_of_subscription(&self.metadata_of(member))?);
        }
        Some(topics)
    }

    pub(super) fn join_response(&self, member_id: &str) -> JoinGroupReply {
        let members = if self.is_leader(member_id) { self.joined_members() } else { Vec::new() };
        JoinGroupReply {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: text(member_id),
            skip_assignment: false,
            members,
        }
    }

    pub(super) fn joined_members(&self) -> Vec<JoinedMember> {
        let describe = |member: &Member| JoinedMember {
            id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: self.metadata_of(member),
        };
        self.members.values().map(describe).collect()
    }
}

// ------------------------------------------------------------------------------------------ sync

impl ClassicGroup {
    /// Replies through `effects`, at once or when the leader's assignment is there.
    pub fn sync(&mut self, sync: Sync, now: Instant, effects: &mut Effects) {
        if let Err(error) = self.check_sync(&sync) {
            return effects.sync(sync.waiter, Err(error));
        }
        match self.phase {
            Phase::Empty => effects.sync(sync.waiter, Err(ErrorKind::UnknownMemberId)),
            Phase::PreparingRebalance => {
                effects.sync(sync.waiter, Err(ErrorKind::RebalanceInProgress));
            }
            Phase::CompletingRebalance => {
                let Some(member) = self.members.get_mut(&sync.member_id) else { return };
                if let Some(earlier) = member.awaiting_sync.replace(sync.waiter) {
                    effects.sync(earlier, Err(ErrorKind::RebalanceInProgress));
                }
                self.note_sync(&sync.member_id);
                if self.is_leader(&sync.member_id) {
                    self.assign(sync.assignments);
                    self.phase = Phase::Stable;
                    self.has_lost_members = false;
                    debug!(group = %self.name, generation = self.generation, "group is stable");
                    self.answer_syncs(None, now, effects);
                }
            }
            Phase::Stable => {
                self.note_sync(&sync.member_id);
                let response = self.sync_response(&self.members[&sync.member_id]);
                effects.sync(sync.waiter, Ok(response));
            }
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), ErrorKind> {
        self.identify(&sync.member_id, sync.instance_id.as_deref())?;
        if sync.generation != self.generation {
            return Err(ErrorKind::IllegalGeneration);
        }
        let differ = |said: &Option<Text>, is: &Option<Text>| matches!((said, is), (Some(said), Some(is)) if said != is);
        if differ(&sync.protocol_type, &self.protocol_type)
            || differ(&sync.protocol, &self.protocol)
        {
            return Err(ErrorKind::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn note_sync(&mut self, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.owes_sync = false;
        }
        if !self.members.values().any(|member| member.owes_sync) {
            self.sync_deadline = None;
        }
    }

    /// A member that the leader left out gets an empty assignment.
    fn assign(&mut self, assignments: Vec<(Text, Bytes)>) {
        let mut assignments: HashMap<_, _> = assignments.into_iter().collect();
        for member in self.members.values_mut() {
            let assignment = assignments.remove(&member.id).unwrap_or_default();
            self.bytes = self.bytes - member.assignment.len() + assignment.len();
            member.assignment = assignment;
        }
    }

    fn answer_syncs(&mut self, error: Option<ErrorKind>, now: Instant, effects: &mut Effects) {
        let ids: Vec<_> = self.members.keys().cloned().collect();
        for member_id in ids {
            let Some(member) = self.members.get_mut(&member_id) else { continue };
            let Some(waiter) = member.awaiting_sync.take() else { continue };
            let until = now + member.session_timeout;
            member.heartbeat_deadline = Some(until);
            let response = match error {
                Some(error) => Err(error),
                None => Ok(self.sync_response(&self.members[&member_id])),
            };
            effects.sync(waiter, response);
            self.check_by(until);
        }
    }

    fn sync_response(&self, member: &Member) -> SyncGroupReply {
        SyncGroupReply {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: member.assignment.clone(),
        }
    }
}
