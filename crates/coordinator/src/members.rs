//! The members of a group that goes by epochs, and what must stay right whenever one of them
//! changes: the epochs, the earliest deadline, and what all of them weigh.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;

use world::Instant;

use crate::Text;
use crate::member::Client;

/// What a member is taken out at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Until when it must send a heartbeat.
    pub(crate) session: Instant,
    /// Until when it must have given up what it was asked to.
    pub(crate) revocation: Option<Instant>,
}

impl Deadlines {
    /// Of a member that was not asked to give anything up.
    fn session(until: Instant) -> Self {
        Self { session: until, revocation: None }
    }

    fn earliest(&self) -> Instant {
        self.revocation.map_or(self.session, |revocation| revocation.min(self.session))
    }
}

/// What a member has in each of the protocols.
#[derive(Clone, Debug)]
pub struct Enrolment {
    pub id: Text,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub(crate) deadlines: Deadlines,
}

impl Enrolment {
    /// Of a member that comes, and must send its next heartbeat by then.
    pub(crate) fn new(id: &Text, client: &Client, until: Instant) -> Self {
        let (id, client) = (id.clone(), client.clone());
        Self { id, rack_id: None, client, deadlines: Deadlines::session(until) }
    }
}

/// A member, as far as the protocols do not differ.
pub trait Member: Debug {
    /// What the assignor gives it.
    type Target;

    fn enrolment(&self) -> &Enrolment;
    fn enrolment_mut(&mut self) -> &mut Enrolment;
    /// The epoch that it has been brought to.
    fn epoch(&self) -> i32;
    fn set_target(&mut self, target: Self::Target);
    /// What it weighs in memory, near enough to keep all groups within their budget.
    fn bytes(&self) -> usize;
}

/// Members by id. They are read as a map is, and changed only by the table's own functions.
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
    /// Grows with every change that bears on what members are to have.
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

    /// Grows with every change of what is stored: who the members are, and what each of them has.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Something has changed that is stored with the members.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Whether the targets are those of an earlier epoch.
    pub(crate) fn needs_targets(&self) -> bool {
        self.epoch > self.target_epoch
    }

    pub(crate) fn bump(&mut self) {
        // A group that rebalanced once a second would be here after 68 years.
        self.epoch = self.epoch.saturating_add(1);
        self.changes += 1;
    }

    /// No deadline passes before.
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

    /// Changes what a member says about itself. `None` if it is unknown.
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

    /// A change of all members that bears on no member's weight.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut M> {
        self.by_id.values_mut()
    }

    /// A member has sent a heartbeat, and must send the next one by then.
    pub(crate) fn hear_from(&mut self, member_id: &str, until: Instant) {
        if let Some(member) = self.by_id.get_mut(member_id) {
            member.enrolment_mut().deadlines.session = until;
            self.check_by(until);
        }
    }

    /// Gives all members the targets of the group's epoch, in their order.
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

    /// Looks for the earliest deadline anew, once those that had passed are done with.
    pub(crate) fn find_check_at(&mut self) {
        self.check_at =
            self.by_id.values().map(|member| member.enrolment().deadlines.earliest()).min();
    }

    fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }
}
