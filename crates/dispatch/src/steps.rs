//! Steps of records, for tracing: buffered until the driver takes them, and lost otherwise.
//!
//! Consecutive records that are equal in all other fields share one step: a batch that is delivered
//! to one consumer and accepted at once takes two steps. No decision depends on steps.

use base::{Level, Offset};
use serde::{Deserialize, Serialize};

use crate::SessionId;
use crate::record::DeadReason;

/// Maximum number of steps buffered between two calls of [`crate::Dispatch::take_steps`]: ending a
/// million leases at once must not take that much memory.
const STEPS_MAX: usize = 16_384;
/// Steps of several partitions alternate: the last step of a partition is searched among this many.
const LOOKED_BACK: usize = 8;
/// Capacity retained after a burst.
const STEPS_KEPT: usize = 256;

/// Kind of a step. A variant is only ever added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StepKind {
    /// It was leased to a session.
    Leased,
    /// It was delivered to a session and settled with the delivery.
    HandedOut,
    Accepted,
    /// Its session released it.
    Released,
    Rejected,
    /// Its lease expired.
    LeaseEnded,
    /// Its session or consumer ended.
    Left,
    /// It is accepted once the log has the entry of its transaction.
    Withheld,
    /// That entry had no effect, or the append of its dead letter failed.
    GivenBack,
    /// The group was moved by a seek, or the log was trimmed past the record.
    Voided,
    /// It is not delivered any more, and becomes a dead letter if the group keeps them.
    Died(DeadReason),
    /// Its dead letter, or the entry for which it was withheld, is in the log.
    Ended,
    /// An operator settled it.
    Removed,
}

base::levels!(StepKind {
    Level::FIRST => Leased | HandedOut | Accepted | Released | Rejected | LeaseEnded | Left | Withheld
        | GivenBack | Voided | Died | Ended | Removed;
});

/// A step of one record, or of several consecutive ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub what: StepKind,
    pub partition: u32,
    pub first: Offset,
    pub count: u32,
    /// 0: no session.
    pub session: SessionId,
    /// 1 = the first delivery; 0: not part of a delivery.
    pub attempt: u16,
}

#[derive(Debug, Default)]
pub(crate) struct Steps {
    waiting: Vec<Step>,
    is_off: bool,
}

impl Steps {
    /// Stops recording steps.
    pub(crate) fn turn_off(&mut self) {
        *self = Self { waiting: Vec::new(), is_off: true };
    }

    pub(crate) fn turn_on(&mut self) {
        self.is_off = false;
    }

    pub(crate) fn add(&mut self, step: Step) {
        if self.is_off {
            return;
        }
        let last = self.waiting.iter_mut().rev().take(LOOKED_BACK);
        let same = last.into_iter().find(|last| last.partition == step.partition);
        if let Some(last) = same
            && last.is_followed_by(&step)
            && let Some(count) = last.count.checked_add(step.count)
        {
            last.count = count;
        } else if self.waiting.len() < STEPS_MAX {
            self.waiting.push(step);
        }
    }

    pub(crate) fn take(&mut self, mut with: impl FnMut(Step)) {
        self.waiting.drain(..).for_each(&mut with);
        self.waiting.shrink_to(STEPS_KEPT);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Step {
    pub(crate) fn of(what: StepKind, partition: u32, offset: Offset) -> Self {
        Self { what, partition, first: offset, count: 1, session: 0, attempt: 0 }
    }

    fn is_followed_by(&self, next: &Self) -> bool {
        let key = |step: &Self| (step.what, step.session, step.attempt);
        key(self) == key(next) && self.first + u64::from(self.count) == next.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(steps: &mut Steps) -> Vec<(u32, Offset, u32, StepKind)> {
        let mut all = Vec::new();
        steps.take(|it| all.push((it.partition, it.first, it.count, it.what)));
        all
    }

    #[test]
    fn consecutive_records_of_a_partition_are_one_step() {
        let mut steps = Steps::default();
        for offset in 0..3 {
            steps.add(Step::of(StepKind::Leased, 0, offset));
            steps.add(Step::of(StepKind::Leased, 1, 10 + offset));
        }
        steps.add(Step::of(StepKind::Accepted, 0, 0));
        steps.add(Step::of(StepKind::Accepted, 0, 2));
        // The last step of its partition differs.
        steps.add(Step::of(StepKind::Leased, 0, 3));
        let expected = [
            (0, 0, 3, StepKind::Leased),
            (1, 10, 3, StepKind::Leased),
            (0, 0, 1, StepKind::Accepted),
            (0, 2, 1, StepKind::Accepted),
            (0, 3, 1, StepKind::Leased),
        ];
        assert_eq!(taken(&mut steps), expected);
        assert!(steps.is_empty());
    }

    #[test]
    fn no_step_is_recorded_while_steps_are_disabled() {
        let mut steps = Steps::default();
        steps.add(Step::of(StepKind::Leased, 0, 1));
        steps.turn_off();
        steps.add(Step::of(StepKind::Accepted, 0, 1));
        assert!(steps.is_empty());
        steps.turn_on();
        steps.add(Step::of(StepKind::Accepted, 0, 2));
        assert_eq!(taken(&mut steps), [(0, 2, 1, StepKind::Accepted)]);
    }

    #[test]
    fn buffered_steps_are_bounded() {
        let mut steps = Steps::default();
        (0..100_000).for_each(|number| steps.add(Step::of(StepKind::Left, 0, number * 2)));
        assert_eq!(taken(&mut steps).len(), STEPS_MAX);
        assert!(steps.waiting.capacity() <= STEPS_KEPT);
    }
}
