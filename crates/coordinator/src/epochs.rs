//! A group that goes by epochs (KIP-848, and KIP-932 and KIP-1071 after it), as far as its three
//! protocols do not differ.
//!
//! Three numbers tell how far it is: the group's epoch grows with every change that bears on what
//! members are to have; targets are computed for each such epoch; and each member has the epoch that it
//! has been brought to. Members come and stay by heartbeats, and are taken out when they are silent for
//! too long, or do not give up in time what they were asked to.

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

/// What a group has that only groups of its protocol have.
pub trait Protocol: Default + Debug {
    type Member: Member;

    /// What its groups are called.
    const NAME: &str;

    /// What this weighs in memory.
    fn bytes(&self) -> usize;
    /// The member is in the table from now on; maybe it was before, and has been changed.
    fn inserted(&mut self, _member: &Self::Member) {}
    /// The member is not in the table; maybe it is only being changed.
    fn taken(&mut self, _member: &Self::Member) {}
    /// The member was taken out for good, maybe as the last one.
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

    /// What the group weighs in memory.
    pub fn bytes(&self) -> usize {
        self.members.bytes() + self.own.bytes()
    }

    /// Whether whoever this is may read committed offsets now.
    pub fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match member_id {
            None if epoch < 0 => Ok(()),
            None => Err(self.unknown_member("")),
            Some(member_id) => check_epoch(self.member(member_id)?, epoch),
        }
    }

    /// Whether this member may commit offsets now. A commit that was under way while the member was
    /// taken to its next epoch is good for what it has held since (KIP-1251).
    pub(crate) fn check_commit(
        &self,
        member_id: &str,
        epoch: i32,
        has_held_since: impl FnOnce(&P::Member) -> bool,
    ) -> Result<(), GroupError> {
        if epoch < 0 && self.is_empty() {
            // Somebody who uses the group only to keep offsets.
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

    /// Whether one more member may come.
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

/// A member does not know where it is.
pub(crate) fn fenced_epoch(said: i32, known: i32) -> GroupError {
    let message = format!(
        "the member's epoch is {known}, not {said}: it must abandon its partitions and rejoin"
    );
    GroupError::new(ErrorKind::FencedMemberEpoch, message)
}

// ------------------------------------------------------------------------- coming, leaving, time

impl<P: Protocol> EpochGroup<P> {
    /// Puts a member into all the places that know of it.
    pub(crate) fn insert(&mut self, member: P::Member) {
        self.own.inserted(&member);
        self.members.insert(member);
    }

    /// Takes a member out of all the places that know of it, to change it or for good.
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

    /// Takes out members that were silent for too long, or did not give up in time what they were
    /// asked to.
    pub fn expire(&mut self, now: Instant) {
        for member_id in self.members.overdue(now) {
            info!(group = %self.name, kind = P::NAME, member = %member_id, "member timed out");
            self.remove(&member_id);
        }
        self.members.find_check_at();
    }
}

// --------------------------------------------------------------------------------- subscriptions

/// A member that has partitions of the topics that it subscribes to.
pub(crate) trait Subscribed: Member<Target = Assignment> {
    fn subscription_mut(&mut self) -> &mut Subscription;
    fn subscriber(&self) -> Subscriber<'_>;
}

impl<M: Subscribed> Members<M> {
    /// Looks up what the members want, if that or the catalog changed. The epoch grows if the outcome
    /// differs.
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

    /// Computes what every member is to have in the group's epoch; `assign` is given the members and
    /// how many partitions each topic has.
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
