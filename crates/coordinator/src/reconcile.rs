//! How a member is brought to what it is to have (KIP-848, and KIP-1071 after it).
//!
//! The order of things is what keeps anything from having two owners (Kafka's
//! `CurrentAssignmentBuilder`): a member first gives up everything that is not in its target, only
//! then advances to the target's epoch, and is given nothing that another one may still hold.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::member::JOINING;

/// What members can have: partitions, or tasks.
pub trait Holding: Clone + Default + Eq + Debug {
    /// A part of it of which it is known since when a member has it.
    type Item: Clone + Ord + Debug;

    fn is_empty(&self) -> bool;
    fn overlaps(&self, other: &Self) -> bool;
    /// What both have.
    fn both(&self, other: &Self) -> Self;
    /// What the other one does not have.
    fn without(&self, other: &Self) -> Self;
    fn add(&mut self, other: Self);
    fn items(&self) -> impl Iterator<Item = Self::Item>;
}

/// How far a member is with what it is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Has what its epoch gives it.
    Stable,
    /// Has been asked to give something up, and has not said yet that it did.
    Revoking,
    /// Waits for others to give something up.
    Waiting,
}

/// What a member has, is to give up, and is to have in the end.
#[derive(Clone, Debug)]
pub struct MemberState<H: Holding> {
    pub epoch: i32,
    /// Accepted once more, from a member that has not got the answer with its new epoch.
    pub(crate) previous_epoch: i32,
    pub(crate) progress: Progress,
    /// What it may use.
    pub assigned: H,
    /// What it was asked to give up, and may still use.
    pub(crate) revoking: H,
    /// In which epoch it was given what it holds.
    pub(crate) given_in: BTreeMap<H::Item, i32>,
    /// What it is to have in the end.
    pub target: H,
}

impl<H: Holding> MemberState<H> {
    /// Of a member that comes with nothing.
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

    /// Whether a member that says this epoch, and that it owns this, is where it is known to be. The
    /// answer with its new epoch may have been lost; what it owns is part of that epoch then.
    pub(crate) fn accepts_epoch(&self, said: i32, owned: Option<&H>) -> bool {
        let has_missed_an_answer = || {
            said < self.epoch
                && said == self.previous_epoch
                && owned.is_some_and(|owned| owned.without(&self.assigned).is_empty())
        };
        said == self.epoch || has_missed_an_answer()
    }

    /// Whether it has held this from that epoch of its on until now.
    pub(crate) fn has_held_since(&self, item: &H::Item, epoch: i32) -> bool {
        self.given_in.get(item).is_some_and(|given_in| *given_in <= epoch)
    }

    /// What it was asked to give up is given up.
    pub(crate) fn finish_revoking(&mut self) {
        let revoked = std::mem::take(&mut self.revoking);
        for item in revoked.items() {
            self.given_in.remove(&item);
        }
    }

    /// The next step on the way to the target, if one leads anywhere. `owned` is what the member
    /// says it has, if it says so; `free_of` picks from what it lacks that which nobody holds.
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
            // What was asked for is done, though the target may be further on by now.
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

    /// Takes a step: what it holds on to keeps the epoch in which it was given.
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

/// Where a member comes to next.
#[derive(Debug)]
pub(crate) struct Step<H> {
    progress: Progress,
    epoch: i32,
    pub(crate) assigned: H,
    revoking: H,
}
