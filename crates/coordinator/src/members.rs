//! The members of a group with epochs, and the derived values that every change of a member updates: the epochs,
//! the earliest deadline, and the memory of all members.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;

use world::Instant;

use crate::Text;
use crate::client::Client;

/// The epoch of a joining member (KIP-848).
pub const JOINING: i32 = 0;
/// The epoch of a leaving member.
pub const LEAVING: i32 = -1;
/// The epoch of a static member that leaves temporarily.
pub const PAUSING: i32 = -2;

/// Deadlines at which a member is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Deadline of its next heartbeat.
    pub(crate) session: Instant,
    /// Deadline for completing its revocation.
    pub(crate) revocation: Option<Instant>,
}

impl Deadlines {
    /// The deadlines of a member without a revocation.
    fn session(until: Instant) -> Self {
        Self { session: until, revocation: None }
    }

    fn earliest(&self) -> Instant {
        self.revocation.map_or(self.session, |revocation| revocation.min(self.session))
    }
}

/// The part of a member that all protocols share.
#[derive(Clone, Debug)]
pub struct Enrolment {
    pub id: Text,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub(crate) deadlines: Deadlines,
}

impl Enrolment {
    /// The enrolment of a joining member, which must send its next heartbeat by then.
    pub(crate) fn new(id: &Text, client: &Client, until: Instant) -> Self {
        let (id, client) = (id.clone(), client.clone());
        Self { id, rack_id: None, client, deadlines: Deadlines::session(until) }
    }
}

/// The interface of a member that all protocols share.
pub trait Member: Debug {
    /// The assignor's result for it.
    type Target;

    fn enrolment(&self) -> &Enrolment;
    fn enrolment_mut(&mut self) -> &mut Enrolment;
    /// The epoch that it has reached.
    fn epoch(&self) -> i32;
    fn set_target(&mut self, target: Self::Target);
    /// Approximate memory, for the limit of all groups.
    fn bytes(&self) -> usize;
}

/// Members by id. They are read like a map, and changed only by the table's own functions.
#[derive(Debug)]
pub(crate) struct Members<M> {
    by_id: BTreeMap<Text, M>,
    epoch: i32,
    target_epoch: i32,
    check_at: Option<Instant>,
    bytes: usize,
    changes: u64,
}

impl<M> Default for Members<M> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            epoch: 0,
            target_epoch: 0,
            check_at: None,
            bytes: 0,
            changes: 0,
        }
    }
}

impl<M> Deref for Members<M> {
    type Target = BTreeMap<Text, M>;

    fn deref(&self) -> &BTreeMap<Text, M> {
        &self.by_id
    }
}

impl<M: Member> Members<M> {
    /// Grows with every change that affects the targets.
    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// The epoch that the members' targets were computed for.
    pub(crate) fn target_epoch(&self) -> i32 {
        self.target_epoch
    }

    /// The table of a restored group, at these epochs, before its members are inserted.
    pub(crate) fn at(epoch: i32, target_epoch: i32) -> Self {
        Self { epoch, target_epoch, ..Self::default() }
    }

    /// Grows with every change of the stored state: the members and their assignments.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Records a change of the state that is stored with the members.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Whether the targets are those of an earlier epoch.
    pub(crate) fn needs_targets(&self) -> bool {
        self.epoch > self.target_epoch
    }

    pub(crate) fn bump(&mut self) {
        // A group that rebalances once a second would reach this after 68 years.
        self.epoch = self.epoch.saturating_add(1);
        self.changes += 1;
    }

    /// The earliest deadline.
    pub(crate) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn insert(&mut self, member: M) {
        self.changes += 1;
        self.bytes += member.bytes();
        self.check_by(member.enrolment().deadlines.earliest());
        self.by_id.insert(member.enrolment().id.clone(), member);
    }

    pub(crate) fn take(&mut self, member_id: &str) -> Option<M> {
        let member = self.by_id.remove(member_id)?;
        self.changes += 1;
        self.bytes -= member.bytes();
        Some(member)
    }

    /// Changes a member's own fields. `None` if it is unknown.
    pub(crate) fn change<R>(
        &mut self,
        member_id: &str,
        change: impl FnOnce(&mut M) -> R,
    ) -> Option<R> {
        let member = self.by_id.get_mut(member_id)?;
        self.bytes -= member.bytes();
        let result = change(member);
        self.bytes += member.bytes();
        Some(result)
    }

    /// For changes of all members that change no member's memory.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut M> {
        self.by_id.values_mut()
    }

    /// Records a heartbeat; the next one is due by `until`.
    pub(crate) fn note_heartbeat(&mut self, member_id: &str, until: Instant) {
        if let Some(member) = self.by_id.get_mut(member_id) {
            member.enrolment_mut().deadlines.session = until;
            self.check_by(until);
        }
    }

    /// Sets the targets of all members for the group's epoch, in their order.
    pub(crate) fn set_targets(&mut self, targets: Vec<M::Target>) {
        for (member, target) in self.by_id.values_mut().zip(targets) {
            self.bytes -= member.bytes();
            member.set_target(target);
            self.bytes += member.bytes();
        }
        self.target_epoch = self.epoch;
        self.changes += 1;
    }

    /// Members with a deadline that has passed.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<Text> {
        let overdue =
            self.by_id.values().filter(|member| member.enrolment().deadlines.earliest() <= now);
        overdue.map(|member| member.enrolment().id.clone()).collect()
    }

    /// Recomputes the earliest deadline, once the passed ones are handled.
    pub(crate) fn find_check_at(&mut self) {
        self.check_at =
            self.by_id.values().map(|member| member.enrolment().deadlines.earliest()).min();
    }

    fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }
}
