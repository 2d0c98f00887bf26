//! A member of a KIP-848 group, and how it is brought to what it is to have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Text;
use uuid::Uuid;
use world::Instant;

use crate::assignment::Assignment;
use crate::assignor::Assignor;
use crate::member::Client;

/// How far a member is with what it is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Has what its epoch gives it.
    Stable,
    /// Has been asked to give partitions up, and has not said yet that it did.
    Revoking,
    /// Waits for others to give partitions up.
    Waiting,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub id: Text,
    pub instance_id: Option<Text>,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub names: BTreeSet<Text>,
    pub pattern: Option<Text>,
    pub(super) assignor: Option<Assignor>,
    pub(super) rebalance_timeout: Duration,
    /// The topics of its names and its pattern that exist.
    pub(super) topics: BTreeSet<Uuid>,
    pub epoch: i32,
    /// Accepted once more, from a member that has not got the answer with its new epoch.
    pub(super) previous_epoch: i32,
    pub(super) progress: Progress,
    /// What it may consume.
    pub assigned: Assignment,
    /// What it was asked to give up, and may still consume.
    pub(super) revoking: Assignment,
    /// In which epoch it was given what it holds.
    pub(super) given_in: BTreeMap<(Uuid, i32), i32>,
    /// What it is to have in the end.
    pub target: Assignment,
    pub(super) session_deadline: Instant,
    /// Until when it must have given up what it was asked to.
    pub(super) revocation_deadline: Option<Instant>,
}

impl Member {
    pub(super) fn is_reconciled(&self, target_epoch: i32) -> bool {
        self.progress == Progress::Stable && self.epoch == target_epoch
    }

    /// Everything that it may be consuming.
    pub(super) fn held(&self) -> impl Iterator<Item = (Uuid, i32)> {
        self.assigned.iter().chain(self.revoking.iter())
    }

    /// Whether it has held a partition from this epoch of its on until now.
    pub(super) fn has_held_since(&self, partition: (Uuid, i32), epoch: i32) -> bool {
        self.given_in.get(&partition).is_some_and(|given_in| *given_in <= epoch)
    }

    /// Takes a step: what it holds on to keeps the epoch in which it was given.
    pub(super) fn advance(&mut self, step: Step) {
        let Step { progress, epoch, assigned, revoking } = step;
        if epoch != self.epoch {
            self.previous_epoch = self.epoch;
        }
        (self.progress, self.epoch) = (progress, epoch);
        (self.assigned, self.revoking) = (assigned, revoking);
        let before = std::mem::take(&mut self.given_in);
        let given_in = |partition| *before.get(&partition).unwrap_or(&epoch);
        self.given_in = self.held().map(|partition| (partition, given_in(partition))).collect();
    }

    /// What it weighs in memory, near enough to keep all groups within their budget.
    pub(super) fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 768;
        const NAME_BYTES: usize = 64;
        let names: usize = self.names.iter().map(|name| name.len() + NAME_BYTES).sum();
        MEMBER_BYTES + names + self.pattern.as_ref().map_or(0, |pattern| pattern.len())
    }

    /// The next state on the way to the target, if there is one (Kafka's
    /// `CurrentAssignmentBuilder`). `owned` is what the member says it has, if it says so;
    /// `is_free` tells of a partition that nobody holds, this member included.
    ///
    /// The order of things is what keeps a partition from having two owners: a member first gives
    /// up everything that is not in its target, and only then advances to the target's epoch; and
    /// it is given nothing that another one may still be consuming.
    pub(super) fn reconcile(
        &self,
        target_epoch: i32,
        owned: Option<&Assignment>,
        is_free: impl Fn(Uuid, i32) -> bool,
    ) -> Option<Step> {
        let may_still_own = |revoking: &Assignment| {
            !revoking.is_empty() && owned.is_none_or(|owned| owned.overlaps(revoking))
        };
        let epoch = match self.progress {
            Progress::Stable if self.epoch == target_epoch => return None,
            Progress::Revoking if may_still_own(&self.revoking) => return None,
            // What was asked for is done, though the target may be further on by now.
            Progress::Revoking => self.epoch + 1,
            Progress::Stable | Progress::Waiting => self.epoch,
        };
        let is_wanted = |&(topic, partition): &(Uuid, i32)| self.target.contains(topic, partition);
        let mut assigned: Assignment = self.assigned.iter().filter(is_wanted).collect();
        let revoking: Assignment = self.assigned.iter().filter(|held| !is_wanted(held)).collect();
        if may_still_own(&revoking) {
            return Some(Step { progress: Progress::Revoking, epoch, assigned, revoking });
        }
        let missing = self.target.iter().filter(|&(t, p)| !self.assigned.contains(t, p));
        let (free, taken): (Vec<_>, Vec<_>) = missing.partition(|&(t, p)| is_free(t, p));
        assigned.extend(free);
        let progress = if taken.is_empty() { Progress::Stable } else { Progress::Waiting };
        Some(Step { progress, epoch: target_epoch, assigned, revoking: Assignment::default() })
    }
}

/// See [`Member::reconcile`].
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) progress: Progress,
    pub(super) epoch: i32,
    pub(super) assigned: Assignment,
    pub(super) revoking: Assignment,
}

impl Step {
    /// Whether it leads nowhere else.
    pub(super) fn is_where(&self, member: &Member) -> bool {
        self.progress == member.progress
            && self.epoch == member.epoch
            && self.assigned == member.assigned
            && self.revoking == member.revoking
    }
}
