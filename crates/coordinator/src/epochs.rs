//! A group with epochs (KIP-848, and KIP-932 and KIP-1071 after it): the part that its three protocols share.
//!
//! Three numbers describe its progress. The group's epoch grows with every change that affects the targets.
//! Targets are computed for each such epoch. Each member has the epoch that it has reached. Members join and stay
//! by heartbeats. They are removed if they are silent for too long, or do not complete a revocation in time.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tracing::info;
use uuid::Uuid;
use world::Instant;

use crate::Text;
use crate::assignment::Assignment;
use crate::assignor::Subscriber;
use crate::error::{ErrorKind, GroupError};
use crate::members::{Member, Members};
use crate::subscription::{Catalog, Subscription, Subscriptions};

/// The protocol-specific part of a group.
pub trait Protocol: Default + Debug {
    type Member: Member;

    /// Name of the kind of group.
    const NAME: &str;

    /// Memory of this.
    fn bytes(&self) -> usize;
    /// The member was inserted into the table; it may be an existing one after a change.
    fn inserted(&mut self, _member: &Self::Member) {}
    /// The member was taken out of the table, maybe only for a change.
    fn taken(&mut self, _member: &Self::Member) {}
    /// The member was removed permanently, maybe as the last one.
    fn left(&mut self, member: &Self::Member, was_last: bool);
}

#[derive(Debug)]
pub struct EpochGroup<P: Protocol> {
    pub(crate) name: Text,
    pub(crate) members: Members<P::Member>,
    pub(crate) own: P,
}

// ------------------------------------------------------------------------------------- questions

impl<P: Protocol> EpochGroup<P> {
    pub fn new(name: Text) -> Self {
        Self { name, members: Members::default(), own: P::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn epoch(&self) -> i32 {
        self.members.epoch()
    }

    pub fn target_epoch(&self) -> i32 {
        self.members.target_epoch()
    }

    pub fn members(&self) -> impl Iterator<Item = &P::Member> {
        self.members.values()
    }

    /// See [`super::classic::ClassicGroup::check_at`].
    pub fn check_at(&self) -> Option<Instant> {
        self.members.check_at()
    }

    /// Memory of the group.
    pub fn bytes(&self) -> usize {
        self.members.bytes() + self.own.bytes()
    }

    /// Whether this client may read committed offsets now.
    pub fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match member_id {
            None if epoch < 0 => Ok(()),
            None => Err(self.unknown_member("")),
            Some(member_id) => check_epoch(self.member(member_id)?, epoch),
        }
    }

    /// Whether this member may commit offsets now. A commit in flight while the member moved to its next epoch is
    /// valid for partitions held since (KIP-1251).
    pub(crate) fn check_commit(
        &self,
        member_id: &str,
        epoch: i32,
        has_held_since: impl FnOnce(&P::Member) -> bool,
    ) -> Result<(), GroupError> {
        if epoch < 0 && self.is_empty() {
            // A client that uses the group only to store offsets.
            return Ok(());
        }
        let member = self.member(member_id)?;
        let is_late = (0..member.epoch()).contains(&epoch);
        if is_late && has_held_since(member) {
            return Ok(());
        }
        check_epoch(member, epoch)
    }

    pub(crate) fn member(&self, member_id: &str) -> Result<&P::Member, GroupError> {
        self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))
    }

    /// Whether one more member may join.
    pub(crate) fn check_room(&self, members_max: usize) -> Result<(), GroupError> {
        if self.members.len() < members_max {
            return Ok(());
        }
        let message = format!(
            "The {} group has reached its maximum capacity of {members_max} members.",
            P::NAME
        );
        Err(GroupError::new(ErrorKind::GroupMaxSizeReached, message))
    }

    fn unknown_member(&self, member_id: &str) -> GroupError {
        let message = format!("Member {member_id} is not a member of group {}.", self.name);
        GroupError::new(ErrorKind::UnknownMemberId, message)
    }
}

fn check_epoch(member: &impl Member, epoch: i32) -> Result<(), GroupError> {
    let known = member.epoch();
    if epoch == known {
        return Ok(());
    }
    let message = format!("member epoch {epoch} is not {known}, the one known here");
    Err(GroupError::new(ErrorKind::StaleMemberEpoch, message))
}

/// The error for a member with a wrong epoch.
pub(crate) fn fenced_epoch(said: i32, known: i32) -> GroupError {
    let message = format!(
        "the member's epoch is {known}, not {said}: it must abandon its partitions and rejoin"
    );
    GroupError::new(ErrorKind::FencedMemberEpoch, message)
}

// ------------------------------------------------------------------------- coming, leaving, time

impl<P: Protocol> EpochGroup<P> {
    /// Adds a member to all indexes.
    pub(crate) fn insert(&mut self, member: P::Member) {
        self.own.inserted(&member);
        self.members.insert(member);
    }

    /// Removes a member from all indexes, for a change or permanently.
    pub(crate) fn take(&mut self, member_id: &str) -> Option<P::Member> {
        let member = self.members.take(member_id)?;
        self.own.taken(&member);
        Some(member)
    }

    pub(crate) fn remove(&mut self, member_id: &str) {
        let Some(member) = self.take(member_id) else { return };
        self.members.bump();
        self.own.left(&member, self.members.is_empty());
    }

    /// Removes members that were silent for too long, or did not complete a revocation in time.
    pub fn expire(&mut self, now: Instant) {
        for member_id in self.members.overdue(now) {
            info!(group = %self.name, kind = P::NAME, member = %member_id, "member timed out");
            self.remove(&member_id);
        }
        self.members.find_check_at();
    }
}

// --------------------------------------------------------------------------------- subscriptions

/// A member with partitions of its subscribed topics.
pub(crate) trait Subscribed: Member<Target = Assignment> {
    fn subscription_mut(&mut self) -> &mut Subscription;
    fn subscriber(&self) -> Subscriber<'_>;
}

impl<M: Subscribed> Members<M> {
    /// Resolves the subscriptions, if they or the catalog changed. The epoch grows if the outcome differs.
    pub(crate) fn resolve(
        &mut self,
        subscriptions: &mut Subscriptions,
        has_changed: bool,
        catalog: &impl Catalog,
    ) {
        let wanted = self.values_mut().map(Subscribed::subscription_mut);
        if subscriptions.resolve(has_changed, catalog, wanted) || has_changed {
            self.bump();
        }
    }

    /// Computes every member's target for the group's epoch; `assign` gets the members and the partition count of
    /// each topic.
    pub(crate) fn assign(
        &mut self,
        subscriptions: &Subscriptions,
        assign: impl FnOnce(&[Subscriber<'_>], &BTreeMap<Uuid, u32>) -> Vec<Assignment>,
    ) {
        let subscribers: Vec<_> = self.values().map(Subscribed::subscriber).collect();
        let targets = assign(&subscribers, &subscriptions.partitions());
        self.set_targets(targets);
    }
}
