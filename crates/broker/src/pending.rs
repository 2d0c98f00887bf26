//! Requests that wait for a proposal, and their answers once it is written or applied.

use base::{Offset, PartitionId};
use bytes::Bytes;
use machine::outcome::{AppendOutcome, Applied};
use machine::{Refusal, Rows};
use tokio::sync::oneshot;

use crate::append::{Appended, Appends};
use crate::delivery::handle::{Handle, Message};
use crate::error::{AppendError, ExecuteError, Unavailable};
use crate::request::CommandReply;

/// Who waits for a proposal.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) appends: Vec<PendingAppend>,
    /// The entry's commands from this one on stand alone and are answered; those before belong to
    /// units.
    pub(crate) first_alone: usize,
    pub(crate) commands: Vec<CommandReply>,
    /// Readers that want to see what was answered early. Dropped once the proposal is applied, or
    /// failed: that is all they wait for.
    pub(crate) readers: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
pub(crate) struct PendingAppend {
    pub(crate) slots: Vec<Slot>,
    /// Every batch of it is for a topic whose durability is `replicated`: it is answered when it
    /// is written.
    pub(crate) early: bool,
    /// What of it becomes dead letters because there is no room for it.
    pub(crate) overflow: Option<Overflow>,
    /// `None` once it was answered.
    pub(crate) reply: Option<oneshot::Sender<Appends>>,
}

/// Batches that were refused for want of room and become dead letters. Their producer is answered
/// after those are in the log: what it sent counts against its budget until then.
#[derive(Debug)]
pub(crate) struct Overflow {
    pub(crate) batches: Vec<(PartitionId, Bytes)>,
    pub(crate) delivery: Handle,
}

/// What became of one row of a request when it was sequenced.
#[derive(Debug)]
pub(crate) enum Slot {
    /// It is the proposal's body of this number.
    Body {
        partition: PartitionId,
        body: usize,
        base_offset: Offset,
    },
    /// A retry of a batch that is in the log before this proposal, or durable already.
    Duplicate {
        partition: PartitionId,
        base_offset: Offset,
    },
    Refused(AppendError),
}

impl PendingAppend {
    fn answer(&mut self, answer: impl FnMut(Slot) -> Result<Appended, AppendError>) {
        let Some(reply) = self.reply.take() else { return };
        let answers = std::mem::take(&mut self.slots).into_iter().map(answer).collect();
        match self.overflow.take() {
            Some(Overflow { batches, delivery }) => {
                delivery.tell(Message::Overflowed { batches, answers, reply });
            }
            // The caller may have gone; the records stay.
            None => drop(reply.send(answers)),
        }
    }
}

impl Pending {
    /// Requests that still wait for an early answer.
    pub(crate) fn early(&self) -> usize {
        self.appends.iter().filter(|append| append.early && append.reply.is_some()).count()
    }

    /// The proposal is written: answers those that asked for no more. The leader sequenced them,
    /// and the log keeps that order.
    pub(crate) fn answer_early(&mut self, rows: &Rows) -> usize {
        let mut answered = 0;
        for append in self.appends.iter_mut().filter(|append| append.early) {
            append.answer(|slot| slot.answer_early(rows));
            answered += 1;
        }
        answered
    }

    /// Whether any of the answers depends on what is in the log.
    pub(crate) fn awaits_the_log(&self) -> bool {
        let refused = |slot: &Slot| matches!(slot, Slot::Refused(_));
        !self.commands.is_empty()
            || self.appends.iter().any(|append| !append.slots.iter().all(refused))
    }

    /// Answers requests of which nothing was taken.
    pub(crate) fn answer_refused(self) {
        debug_assert!(!self.awaits_the_log());
        self.fail(&Unavailable::Stopping);
    }

    pub(crate) fn answer(self, rows: &Rows, applied: &mut Applied) {
        for mut append in self.appends {
            append.answer(|slot| slot.answer(rows, applied));
        }
        let alone = applied.commands.drain(..).skip(self.first_alone);
        for (reply, outcome) in self.commands.into_iter().zip(alone) {
            let _ = reply.send(outcome.map_err(|refusal: Refusal| ExecuteError::Refused(refusal)));
        }
    }

    pub(crate) fn fail(self, why: &Unavailable) {
        for mut append in self.appends {
            append.answer(|slot| match slot {
                Slot::Refused(error) => Err(error),
                Slot::Body { .. } | Slot::Duplicate { .. } => Err(why.clone().into()),
            });
        }
        for reply in self.commands {
            let _ = reply.send(Err(why.clone().into()));
        }
    }
}

fn log_start(rows: &Rows, partition: PartitionId) -> Offset {
    rows.partition(partition).map_or(0, |found| found.log_start())
}

impl Slot {
    fn answer_early(self, rows: &Rows) -> Result<Appended, AppendError> {
        let (partition, base_offset, duplicate) = match self {
            Slot::Refused(error) => return Err(error),
            Slot::Body { partition, base_offset, .. } => (partition, base_offset, false),
            Slot::Duplicate { partition, base_offset } => (partition, base_offset, true),
        };
        Ok(Appended { base_offset, log_start: log_start(rows, partition), duplicate })
    }

    fn answer(self, rows: &Rows, applied: &Applied) -> Result<Appended, AppendError> {
        let taken = |partition, base_offset, duplicate| {
            Ok(Appended { base_offset, log_start: log_start(rows, partition), duplicate })
        };
        match self {
            Slot::Refused(error) => Err(error),
            Slot::Duplicate { partition, base_offset } => taken(partition, base_offset, true),
            Slot::Body { partition, body, .. } => match applied.appends[body] {
                AppendOutcome::Taken { base_offset } => taken(partition, base_offset, false),
                AppendOutcome::Duplicate { base_offset } => taken(partition, base_offset, true),
                AppendOutcome::UnknownPartition => Err(AppendError::UnknownPartition(partition)),
                AppendOutcome::Producer(refusal) => Err(AppendError::Sequence(refusal)),
                // Sequenced by a leader that was no longer one; the client tries again.
                AppendOutcome::NotSequenced { .. } => Err(Unavailable::NotLeader.into()),
                AppendOutcome::UnitRefused => Err(AppendError::UnitRefused),
            },
        }
    }
}
