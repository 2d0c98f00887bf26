//! Reconciliation of a member with its target (KIP-848, and KIP-1071 after it).
//!
//! The order of steps prevents two owners of a partition (Kafka's `CurrentAssignmentBuilder`). A member first
//! revokes everything outside its target. Only then does it advance to the target's epoch. It gets no partition
//! that another member may still hold.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::members::JOINING;

/// A set of partitions, or of tasks.
pub trait AssignmentSet: Clone + Default + Eq + Debug {
    /// An item of the set with a known epoch of its assignment.
    type Item: Clone + Ord + Debug;

    fn is_empty(&self) -> bool;
    fn overlaps(&self, other: &Self) -> bool;
    /// The intersection.
    fn both(&self, other: &Self) -> Self;
    /// The difference: items that `other` does not have.
    fn without(&self, other: &Self) -> Self;
    fn add(&mut self, other: Self);
    fn items(&self) -> impl Iterator<Item = Self::Item>;
}

/// Progress of a member towards its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Has the assignment of its epoch.
    Stable,
    /// Has a pending revocation that it has not confirmed yet.
    Revoking,
    /// Waits for revocations of other members.
    Waiting,
}

/// A member's present, revoked and target sets.
#[derive(Clone, Debug)]
pub struct MemberState<H: AssignmentSet> {
    pub epoch: i32,
    /// Accepted once more, from a member that has not received the reply with its new epoch.
    pub(crate) previous_epoch: i32,
    pub(crate) progress: Progress,
    /// The set that it may use.
    pub assigned: H,
    /// Items that it has to revoke, and may still use.
    pub(crate) revoking: H,
    /// The epoch in which it got each held item.
    pub(crate) given_in: BTreeMap<H::Item, i32>,
    /// Its target.
    pub target: H,
}

impl<H: AssignmentSet> MemberState<H> {
    /// The state of a member that joins with nothing.
    pub(crate) fn joining(target: H) -> Self {
        Self {
            epoch: JOINING,
            previous_epoch: JOINING,
            progress: Progress::Stable,
            assigned: H::default(),
            revoking: H::default(),
            given_in: BTreeMap::new(),
            target,
        }
    }

    pub(crate) fn is_reconciled(&self, target_epoch: i32) -> bool {
        self.progress == Progress::Stable && self.epoch == target_epoch
    }

    /// Whether a member that reports this epoch, and owns these items, is in its known state. The reply with its
    /// new epoch may have been lost; then its owned items must be part of that epoch.
    pub(crate) fn accepts_epoch(&self, said: i32, owned: Option<&H>) -> bool {
        let has_missed_an_answer = || {
            said < self.epoch
                && said == self.previous_epoch
                && owned.is_some_and(|owned| owned.without(&self.assigned).is_empty())
        };
        said == self.epoch || has_missed_an_answer()
    }

    /// Whether it has held this item since its given epoch until now.
    pub(crate) fn has_held_since(&self, item: &H::Item, epoch: i32) -> bool {
        self.given_in.get(item).is_some_and(|given_in| *given_in <= epoch)
    }

    /// Completes its revocation.
    pub(crate) fn finish_revoking(&mut self) {
        let revoked = std::mem::take(&mut self.revoking);
        for item in revoked.items() {
            self.given_in.remove(&item);
        }
    }

    /// The next step towards the target, if there is one. `owned` is the set that the member reports, if any;
    /// `free_of` selects the unheld items among those that it lacks.
    pub(crate) fn next_step(
        &self,
        target_epoch: i32,
        owned: Option<&H>,
        free_of: impl FnOnce(&H) -> H,
    ) -> Option<Step<H>> {
        let may_still_have = |revoking: &H| {
            !revoking.is_empty() && owned.is_none_or(|owned| owned.overlaps(revoking))
        };
        let epoch = match self.progress {
            Progress::Stable if self.epoch == target_epoch => return None,
            Progress::Revoking if may_still_have(&self.revoking) => return None,
            // The revocation is complete, though the target may be further on by now.
            Progress::Revoking => self.epoch + 1,
            Progress::Stable | Progress::Waiting => self.epoch,
        };
        let mut assigned = self.assigned.both(&self.target);
        let revoking = self.assigned.without(&self.target);
        let step = if may_still_have(&revoking) {
            Step { progress: Progress::Revoking, epoch, assigned, revoking }
        } else {
            let missing = self.target.without(&self.assigned);
            let free = free_of(&missing);
            let progress = if free == missing { Progress::Stable } else { Progress::Waiting };
            assigned.add(free);
            Step { progress, epoch: target_epoch, assigned, revoking: H::default() }
        };
        let leads_nowhere = step.progress == self.progress
            && step.epoch == self.epoch
            && step.assigned == self.assigned
            && step.revoking == self.revoking;
        (!leads_nowhere).then_some(step)
    }

    /// Takes a step: items that it keeps retain the epoch in which they were assigned.
    pub(crate) fn advance(&mut self, step: Step<H>) {
        let Step { progress, epoch, assigned, revoking } = step;
        if epoch != self.epoch {
            self.previous_epoch = self.epoch;
        }
        (self.progress, self.epoch) = (progress, epoch);
        (self.assigned, self.revoking) = (assigned, revoking);
        let before = std::mem::take(&mut self.given_in);
        let held = self.assigned.items().chain(self.revoking.items());
        let given_in = |item: &H::Item| *before.get(item).unwrap_or(&epoch);
        self.given_in = held.map(|item| (item.clone(), given_in(&item))).collect();
    }
}

/// The next state of a member.
#[derive(Debug)]
pub(crate) struct Step<H> {
    progress: Progress,
    epoch: i32,
    pub(crate) assigned: H,
    revoking: H,
}
