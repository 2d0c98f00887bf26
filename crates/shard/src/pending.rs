//! Requests that wait for a proposal, and their replies once it is written or applied.

use base::{Offset, PartitionId, ShardId};
use bytes::Bytes;
use machine::outcome::{AppendOutcome, EntryEffects};
use machine::{Origin, Refusal, Rows};
use tokio::sync::oneshot;

use crate::append::{AppendedBatch, Appends};
use crate::delivery::handle::{Handle, Message};
use crate::error::{AppendError, ExecuteError, Unavailable};
use crate::receipts::{PendingReceipts, Receipt, SentPart, UnitResult};
use crate::request::{CommandReply, ReceiveError, UnitAnswer};
use crate::undeliverable::UndeliverableRecords;

/// The requests that wait for a proposal.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    pub(crate) appends: Vec<PendingAppend>,
    pub(crate) units: Vec<PendingUnit>,
    pub(crate) messages: Vec<PendingMessage>,
    /// The entry's commands from this one on stand alone and get replies; those before belong to units.
    pub(crate) first_alone: usize,
    pub(crate) commands: Vec<CommandReply>,
    /// Commands of units with a reply, by position: imports of parts of partitions, and commands of transactions.
    pub(crate) bound: Vec<(usize, CommandReply)>,
    /// Readers that need to see early replies, and callers that wait for all earlier requests. Dropped, and so
    /// notified, once the proposal is applied or has failed.
    pub(crate) readers: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
pub(crate) struct PendingAppend {
    pub(crate) slots: Vec<Slot>,
    /// Every batch is for a topic whose durability is `replicated`: the reply is sent when the entry is written.
    pub(crate) early: bool,
    /// Batches that become dead letters for lack of room.
    pub(crate) overflow: Option<Overflow>,
    /// `None` once the reply was sent.
    pub(crate) reply: Option<oneshot::Sender<Appends>>,
}

#[derive(Debug)]
pub(crate) struct PendingUnit {
    pub(crate) slots: Vec<Slot>,
    /// Messages that it puts into outboxes.
    pub(crate) sent: Vec<UnitMessage>,
    pub(crate) reply: oneshot::Sender<UnitAnswer>,
}

/// A message that a unit puts into an outbox.
#[derive(Debug)]
pub(crate) struct UnitMessage {
    pub(crate) to: ShardId,
    pub(crate) number: Offset,
    /// Positions of its rows among all of the unit.
    pub(crate) places: Vec<usize>,
    pub(crate) has_commands: bool,
}

/// A message of another shard.
#[derive(Debug)]
pub(crate) struct PendingMessage {
    pub(crate) origin: Origin,
    /// Empty where the message was accepted before.
    pub(crate) rows: Vec<MessageRow>,
    pub(crate) reply: oneshot::Sender<Result<Receipt, ReceiveError>>,
}

/// The part of a message for one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRow {
    pub(crate) partition: PartitionId,
    pub(crate) records: u32,
    /// The proposal's body; `None` if the topic was gone.
    pub(crate) body: Option<usize>,
    /// The partition has moved to another shard, and its records are forwarded there.
    pub(crate) went_on: bool,
}

/// Batches that were rejected for lack of room and become dead letters. Their producer gets its reply after those are
/// in the log: until then the records count against its budget.
#[derive(Debug)]
pub(crate) struct Overflow {
    pub(crate) batches: Vec<(PartitionId, Bytes)>,
    pub(crate) delivery: Handle,
}

/// Result of sequencing one row of a request.
#[derive(Debug)]
pub(crate) enum Slot {
    /// The proposal's body of this number.
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
    /// A row for another shard, in the proposal's body of this number.
    Sent {
        body: usize,
    },
    Refused(AppendError),
}

impl PendingAppend {
    fn answer(&mut self, answer: impl FnMut(Slot) -> Result<AppendedBatch, AppendError>) {
        let Some(reply) = self.reply.take() else { return };
        let answers = std::mem::take(&mut self.slots).into_iter().map(answer).collect();
        match self.overflow.take() {
            Some(Overflow { batches, delivery }) => {
                delivery.send(Message::Overflowed { batches, answers, reply });
            }
            // The client may be gone; the records stay.
            None => drop(reply.send(answers)),
        }
    }
}

impl PendingUnit {
    fn answer(self, rows: &Rows, applied: &EntryEffects, outgoing: &PendingReceipts) {
        let Self { slots, sent, reply } = self;
        let rows: Vec<_> = slots.into_iter().map(|slot| slot.answer(rows, applied)).collect();
        let receipt = |UnitMessage { to, number, places, has_commands }: UnitMessage| {
            let is_sent = places.first().is_some_and(|place| rows[*place].is_ok());
            let receipt = || outgoing.receipt(to, number);
            is_sent.then(|| SentPart { places, has_commands, receipt: receipt() })
        };
        let sent = sent.into_iter().filter_map(receipt).collect();
        let _ = reply.send(UnitAnswer::Entered(UnitResult { rows, sent }));
    }

    fn fail(self, why: &Unavailable) {
        let failed = |slot| match slot {
            Slot::Refused(error) => Err(error),
            Slot::Body { .. } | Slot::Duplicate { .. } | Slot::Sent { .. } => {
                Err(why.clone().into())
            }
        };
        let rows = self.slots.into_iter().map(failed).collect();
        let _ = self.reply.send(UnitAnswer::Entered(UnitResult { rows, sent: Vec::new() }));
    }
}

impl PendingMessage {
    fn answer(self, rows: &Rows, applied: &EntryEffects, unplaced: &UndeliverableRecords) {
        let expected = rows.channels().expected(self.origin.shard);
        let answer = match expected >= self.origin.next {
            true => {
                let place = |MessageRow { partition, records, body, went_on }| {
                    let outcome = body.map(|body| applied.appends[body]);
                    let base_offset = match outcome {
                        Some(AppendOutcome::Taken { base_offset }) => base_offset,
                        Some(AppendOutcome::PassedOver) => return None,
                        None if went_on => return None,
                        _ => {
                            unplaced.note(partition, self.origin.shard, records.into());
                            return None;
                        }
                    };
                    let log_start = log_start(rows, partition);
                    Some(AppendedBatch { base_offset, log_start, duplicate: false })
                };
                Ok(self.rows.into_iter().map(place).collect())
            }
            // Another leader was in between, or an earlier message was not accepted.
            false => Err(ReceiveError::OutOfOrder { expected }),
        };
        let _ = self.reply.send(answer);
    }
}

impl PendingRequests {
    /// Number of requests that still wait for an early reply.
    pub(crate) fn early(&self) -> usize {
        self.appends.iter().filter(|append| append.early && append.reply.is_some()).count()
    }

    /// The proposal is written: sends the early replies. The leader sequenced these requests, and the log keeps that
    /// order.
    pub(crate) fn answer_early(&mut self, rows: &Rows) -> usize {
        let mut answered = 0;
        for append in self.appends.iter_mut().filter(|append| append.early) {
            append.answer(|slot| slot.answer_early(rows));
            answered += 1;
        }
        answered
    }

    /// Whether a reply depends on the log.
    pub(crate) fn awaits_the_log(&self) -> bool {
        let refused = |slot: &Slot| matches!(slot, Slot::Refused(_));
        !self.commands.is_empty()
            || !self.bound.is_empty()
            || !self.messages.is_empty()
            || self.units.iter().any(|unit| !unit.slots.iter().all(refused))
            || self.appends.iter().any(|append| !append.slots.iter().all(refused))
    }

    /// Sends the replies of requests that were rejected entirely.
    pub(crate) fn answer_refused(self) {
        debug_assert!(!self.awaits_the_log());
        self.fail(&Unavailable::Stopping);
    }

    pub(crate) fn answer(
        self,
        rows: &Rows,
        applied: &mut EntryEffects,
        outgoing: &PendingReceipts,
        unplaced: &UndeliverableRecords,
    ) {
        for mut append in self.appends {
            append.answer(|slot| slot.answer_here(rows, applied));
        }
        for unit in self.units {
            unit.answer(rows, applied, outgoing);
        }
        for message in self.messages {
            message.answer(rows, applied, unplaced);
        }
        for (command, reply) in self.bound {
            let outcome = applied.commands[command].clone();
            let _ = reply.send(outcome.map_err(ExecuteError::Refused));
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
                Slot::Body { .. } | Slot::Duplicate { .. } | Slot::Sent { .. } => {
                    Err(why.clone().into())
                }
            });
        }
        self.units.into_iter().for_each(|unit| unit.fail(why));
        for message in self.messages {
            let _ = message.reply.send(Err(ReceiveError::Refused(why.clone().into())));
        }
        for reply in self.bound.into_iter().map(|(_, reply)| reply).chain(self.commands) {
            let _ = reply.send(Err(why.clone().into()));
        }
    }
}

fn log_start(rows: &Rows, partition: PartitionId) -> Offset {
    rows.partition(partition).map_or(0, |found| found.log_start())
}

impl Slot {
    fn answer_early(self, rows: &Rows) -> Result<AppendedBatch, AppendError> {
        let (partition, base_offset, duplicate) = match self {
            Slot::Refused(error) => return Err(error),
            Slot::Body { partition, base_offset, .. } => (partition, base_offset, false),
            Slot::Duplicate { partition, base_offset } => (partition, base_offset, true),
            Slot::Sent { .. } => return Err(AppendError::UnitRefused),
        };
        Ok(AppendedBatch { base_offset, log_start: log_start(rows, partition), duplicate })
    }

    /// Returns the result of a row that stands alone, in no message.
    fn answer_here(
        self,
        rows: &Rows,
        applied: &EntryEffects,
    ) -> Result<AppendedBatch, AppendError> {
        self.answer(rows, applied)?.ok_or(AppendError::UnitRefused)
    }

    fn answer(
        self,
        rows: &Rows,
        applied: &EntryEffects,
    ) -> Result<Option<AppendedBatch>, AppendError> {
        let taken = |partition, base_offset, duplicate| {
            let log_start = log_start(rows, partition);
            Ok(Some(AppendedBatch { base_offset, log_start, duplicate }))
        };
        match self {
            Slot::Refused(error) => Err(error),
            Slot::Sent { body } => match applied.appends[body] {
                AppendOutcome::Taken { .. } => Ok(None),
                AppendOutcome::NotSequenced { .. } => Err(Unavailable::NotLeader.into()),
                _ => Err(AppendError::UnitRefused),
            },
            Slot::Duplicate { partition, base_offset } => taken(partition, base_offset, true),
            Slot::Body { partition, body, .. } => match applied.appends[body] {
                AppendOutcome::Taken { base_offset } => taken(partition, base_offset, false),
                AppendOutcome::Duplicate { base_offset } => taken(partition, base_offset, true),
                AppendOutcome::UnknownPartition => Err(AppendError::UnknownPartition(partition)),
                AppendOutcome::Producer(refusal) => Err(AppendError::Sequence(refusal)),
                // Sequenced by a former leader; the client tries again.
                AppendOutcome::NotSequenced { .. } => Err(Unavailable::NotLeader.into()),
                AppendOutcome::Moving => Err(AppendError::Moving(partition)),
                AppendOutcome::Transaction(refusal) => Err(AppendError::Transaction(refusal)),
                AppendOutcome::UnitRefused => Err(AppendError::UnitRefused),
                // A resent append that another leader accepted: the sender queries the result again.
                AppendOutcome::PassedOver => Err(Unavailable::Unanswered.into()),
            },
        }
    }
}
