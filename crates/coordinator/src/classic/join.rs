//! Members that join, rejoin, and replace their former static selves.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::{Text, text};
use bytes::Bytes;
use tracing::info;
use world::Instant;

use super::{ClassicGroup, Join, JoinDeadline, JoinLimits, Member, Phase, join_refused};
use crate::classic::{Effects, Waiter};

/// A member that was never part of a generation is removed after this long (Kafka's constant).
pub(super) const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

impl ClassicGroup {
    /// Replies through `effects`, at once or when the group is complete.
    pub fn join(&mut self, join: Join, limits: JoinLimits, now: Instant, effects: &mut Effects) {
        let is_unnamed = join.member_id.is_empty();
        if !self.has_room_for(&join.member_id, limits.members_max) {
            self.remove(&join.member_id.clone());
            let response = join_refused(Text::default(), ErrorKind::GroupMaxSizeReached);
            return effects.join(join.waiter, response);
        }
        if !self.supports(&join.protocol_type, &join.protocols) {
            let response = join_refused(join.member_id, ErrorKind::InconsistentGroupProtocol);
            return effects.join(join.waiter, response);
        }
        if is_unnamed {
            self.join_unnamed(join, limits, now, effects);
        } else {
            self.join_named(join, limits, now, effects);
        }
    }

    pub(super) fn has_room_for(&self, member_id: &str, members_max: usize) -> bool {
        if self.pending.len() >= members_max && !self.pending.contains_key(member_id) {
            return false;
        }
        match self.phase {
            Phase::Empty => true,
            Phase::PreparingRebalance => {
                let waits = |member: &Member| member.awaiting_join.is_some();
                self.members.get(member_id).is_some_and(waits) || self.joined < members_max
            }
            Phase::CompletingRebalance | Phase::Stable => {
                self.members.contains_key(member_id) || self.members.len() < members_max
            }
        }
    }

    pub(super) fn join_unnamed(
        &mut self,
        join: Join,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        let fresh_id = join.fresh_id.clone();
        let holder = join.instance_id.as_ref().and_then(|instance| self.instances.get(instance));
        if let Some(holder) = holder.cloned() {
            return self.replace_static_member(&holder, join, limits, now, effects);
        }
        if join.instance_id.is_none() && join.may_be_sent_back {
            // It rejoins with this id. If it became a member now and the reply were lost, the group would wait for
            // a member without a client.
            let until = now + join.session_timeout;
            self.pending.insert(fresh_id.clone(), until);
            self.check_by(until);
            let response = join_refused(fresh_id, ErrorKind::MemberIdRequired);
            return effects.join(join.waiter, response);
        }
        self.add_member(fresh_id, join, limits, now, effects);
    }

    pub(super) fn join_named(
        &mut self,
        join: Join,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        if join.instance_id.is_none() && self.pending.contains_key(&join.member_id) {
            return self.add_member(join.member_id.clone(), join, limits, now, effects);
        }
        if let Err(error) = self.identify(&join.member_id, join.instance_id.as_deref()) {
            return effects.join(join.waiter, join_refused(join.member_id, error));
        }
        let is_unchanged = self.members[&join.member_id].protocols == join.protocols;
        let knows_already = match self.phase {
            Phase::Empty | Phase::PreparingRebalance => false,
            // It has lost the reply, or is a follower without changes.
            Phase::CompletingRebalance => is_unchanged,
            // The leader requests a rebalance by joining: its topics may have changed.
            Phase::Stable => is_unchanged && !self.is_leader(&join.member_id),
        };
        if knows_already {
            let response = self.join_response(&join.member_id);
            return effects.join(join.waiter, Ok(response));
        }
        let (member_id, reason) = (join.member_id.clone(), join.reason.clone());
        self.update_member(&member_id, join, effects);
        self.rebalance(&reason, limits, now, effects);
    }

    pub(super) fn add_member(
        &mut self,
        member_id: Text,
        join: Join,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        if let Some(JoinDeadline::Initial { joined_since, .. }) = &mut self.join_deadline {
            *joined_since = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type);
        }
        let member = Member {
            id: member_id.clone(),
            instance_id: join.instance_id,
            client: join.client,
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            protocols: join.protocols,
            assignment: Bytes::new(),
            is_new: true,
            awaiting_join: Some(join.waiter),
            awaiting_sync: None,
            owes_sync: false,
            heartbeat_deadline: Some(now + NEW_MEMBER_JOIN_TIMEOUT),
        };
        self.check_by(now + NEW_MEMBER_JOIN_TIMEOUT);
        self.pending.remove(&member_id);
        self.insert(member);
        self.rebalance(&join.reason, limits, now, effects);
    }

    /// Adds a member to all indexes.
    pub(super) fn insert(&mut self, member: Member) {
        if let Some(instance) = &member.instance_id {
            self.instances.insert(instance.clone(), member.id.clone());
        }
        for protocol in &member.protocols {
            *self.supporters.entry(protocol.name.clone()).or_default() += 1;
        }
        self.joined += usize::from(member.awaiting_join.is_some());
        self.bytes += member.bytes();
        self.leader.get_or_insert_with(|| member.id.clone());
        self.members.insert(member.id.clone(), member);
    }

    /// Removes a member, or an issued id, from all indexes.
    pub(super) fn remove(&mut self, member_id: &str) -> Option<Member> {
        self.pending.remove(member_id);
        let member = self.take(member_id)?;
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        if !member.is_new {
            self.revision = self.revision.wrapping_add(1);
            self.has_lost_members = true;
        }
        Some(member)
    }

    /// As [`ClassicGroup::remove`], but keeps the entries for the leader and the instance id.
    pub(super) fn take(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        for protocol in &member.protocols {
            if let Some(count) = self.supporters.get_mut(&protocol.name) {
                *count -= 1;
                if *count == 0 {
                    self.supporters.remove(&protocol.name);
                }
            }
        }
        self.joined -= usize::from(member.awaiting_join.is_some());
        self.bytes -= member.bytes();
        Some(member)
    }

    /// Updates a member that rejoined, maybe with other protocols.
    pub(super) fn update_member(&mut self, member_id: &str, join: Join, effects: &mut Effects) {
        let Some(mut member) = self.take(member_id) else { return };
        if let Some(earlier) = member.awaiting_join.replace(join.waiter) {
            // A second request of the same member: the connection of the earlier one is most likely gone.
            let response = join_refused(member.id.clone(), ErrorKind::RebalanceInProgress);
            effects.join(earlier, response);
        }
        member.protocols = join.protocols;
        member.session_timeout = join.session_timeout;
        member.rebalance_timeout = join.rebalance_timeout;
        self.insert(member);
    }

    /// A static member that has lost its id rejoins: its former self is fenced, and the group avoids a rebalance
    /// if it can.
    pub(super) fn replace_static_member(
        &mut self,
        old_id: &str,
        join: Join,
        limits: JoinLimits,
        now: Instant,
        effects: &mut Effects,
    ) {
        let leader_before = self.leader.clone();
        let Some(mut member) = self.take(old_id) else { return };
        info!(group = %self.name, instance = ?member.instance_id, old = %old_id, new = %join.fresh_id,
            "static member replaced");
        if let Some(waiter) = member.awaiting_join.take() {
            effects.join(waiter, join_refused(text(old_id), ErrorKind::FencedInstanceId));
        }
        if let Some(waiter) = member.awaiting_sync.take() {
            effects.sync(waiter, Err(ErrorKind::FencedInstanceId));
        }
        member.id = join.fresh_id.clone();
        self.revision = self.revision.wrapping_add(1);
        member.owes_sync = false;
        member.heartbeat_deadline = Some(now + member.session_timeout);
        self.check_by(now + member.session_timeout);
        if self.is_leader(old_id) {
            self.leader = Some(member.id.clone());
        }
        self.insert(member);
        let (new_id, waiter) = (join.fresh_id.clone(), join.waiter);
        let (reason, may_skip) = (join.reason.clone(), join.may_skip_assignment);
        self.update_member(&new_id, join, effects);
        match self.phase {
            Phase::Stable if self.protocol == self.select_protocol() => {
                self.welcome_back(&new_id, waiter, may_skip, leader_before, effects);
            }
            Phase::Stable => self.rebalance(&reason, limits, now, effects),
            Phase::CompletingRebalance => self.prepare_rebalance(&reason, limits, now, effects),
            Phase::Empty | Phase::PreparingRebalance => self.complete_join_if_all(now, effects),
        }
    }

    /// Replies to a static member that rejoins an unchanged group.
    pub(super) fn welcome_back(
        &mut self,
        member_id: &str,
        waiter: Waiter,
        may_skip_assignment: bool,
        leader_before: Option<Text>,
        effects: &mut Effects,
    ) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.awaiting_join = None;
            self.joined -= 1;
        }
        let mut response = self.join_response(member_id);
        if may_skip_assignment {
            response.skip_assignment = self.is_leader(member_id);
        } else {
            // It must not consider itself the leader, or it would reassign.
            response.members.clear();
            response.leader = leader_before.unwrap_or_default();
        }
        effects.join(waiter, Ok(response));
    }
}
