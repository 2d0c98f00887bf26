//! A member of a Streams group, and how it is brought to what it is to do.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Text;
use world::Instant;

use super::status::Endpoint;
use super::tasks::{Task, Tasks};
use crate::consumer::member::Progress;
use crate::member::Client;

#[derive(Clone, Debug)]
pub struct Member {
    pub id: Text,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub(super) rebalance_timeout: Duration,
    pub topology_epoch: i32,
    pub process_id: Text,
    pub endpoint: Option<Endpoint>,
    pub tags: Vec<(Text, Text)>,
    pub epoch: i32,
    /// Accepted once more, from a member that has not got the answer with its new epoch.
    pub(super) previous_epoch: i32,
    pub(super) progress: Progress,
    /// What it may do.
    pub assigned: Tasks,
    /// What it was asked to give up, and may still do.
    pub(super) revoking: Tasks,
    /// In which epoch it was given the active tasks that it holds.
    pub(super) given_in: BTreeMap<Task, i32>,
    /// What it is to do in the end.
    pub target: Tasks,
    pub(super) session_deadline: Instant,
    /// Until when it must have given up what it was asked to.
    pub(super) revocation_deadline: Option<Instant>,
}

/// Where a member comes to next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) progress: Progress,
    pub(super) epoch: i32,
    pub(super) assigned: Tasks,
    pub(super) revoking: Tasks,
}

impl Member {
    pub(super) fn is_reconciled(&self, target_epoch: i32) -> bool {
        self.progress == Progress::Stable && self.epoch == target_epoch
    }

    /// What it weighs in memory, near enough to keep all groups within their budget.
    pub(super) fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 1024;
        const TASK_BYTES: usize = 96;
        const TAG_BYTES: usize = 64;
        let tasks = self.assigned.len() + self.revoking.len() + self.target.len();
        let tags = self.tags.iter().map(|(key, value)| key.len() + value.len() + TAG_BYTES);
        MEMBER_BYTES
            + (tasks + self.given_in.len()) * TASK_BYTES
            + self.process_id.len()
            + tags.sum::<usize>()
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
        let held = self.assigned.active.iter().chain(&self.revoking.active);
        self.given_in =
            held.map(|task| (task.clone(), *before.get(task).unwrap_or(&epoch))).collect();
    }

    /// The next state on the way to the target, if there is one. `owned` is what the member says
    /// that it does, if it says so; `is_free` tells whether it may begin with a task, active or
    /// not, as far as the other members go.
    ///
    /// The order is that of KIP-848: a member first gives up everything that is not in its target,
    /// only then advances to the target's epoch, and is given nothing that another one may still
    /// be doing.
    pub(super) fn reconcile(
        &self,
        target_epoch: i32,
        owned: Option<&Tasks>,
        is_free: impl Fn(&Task, bool) -> bool,
    ) -> Option<Step> {
        let may_still_do = |revoking: &Tasks| {
            !revoking.is_empty() && owned.is_none_or(|owned| owned.overlaps(revoking))
        };
        let epoch = match self.progress {
            Progress::Stable if self.epoch == target_epoch => return None,
            Progress::Revoking if may_still_do(&self.revoking) => return None,
            // What was asked for is done, though the target may be further on by now.
            Progress::Revoking => self.epoch + 1,
            Progress::Stable | Progress::Waiting => self.epoch,
        };
        let mut assigned = self.assigned.both(&self.target);
        let revoking = self.assigned.without(&self.target);
        if may_still_do(&revoking) {
            return Some(Step { progress: Progress::Revoking, epoch, assigned, revoking });
        }
        let missing = self.target.without(&self.assigned);
        let mut free = Tasks::default();
        let mut waits = false;
        for (task, is_active) in missing
            .active
            .into_iter()
            .map(|task| (task, true))
            .chain(missing.standby.into_iter().map(|task| (task, false)))
        {
            if !is_free(&task, is_active) {
                waits = true;
            } else if is_active {
                free.active.insert(task);
            } else {
                free.standby.insert(task);
            }
        }
        assigned.extend(free);
        let progress = if waits { Progress::Waiting } else { Progress::Stable };
        Some(Step { progress, epoch: target_epoch, assigned, revoking: Tasks::default() })
    }

    /// Whether it has been doing an active task from this epoch of its on until now.
    pub(super) fn has_done_since(&self, task: &Task, epoch: i32) -> bool {
        self.given_in.get(task).is_some_and(|given_in| *given_in <= epoch)
    }
}
