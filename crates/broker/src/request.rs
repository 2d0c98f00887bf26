//! What is asked of a shard's log.

use base::Offset;
use base::limits::ENTRY_ROW_BYTES;
use machine::{Command, MoveStep, Numbered, Origin, Outcome};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::append::{AppendBatch, Appended, Appends};
use crate::error::{AppendError, ExecuteError, Unavailable};
use crate::outgoing::{Entered, Receipt};

pub(crate) type CommandReply = oneshot::Sender<Result<Outcome, ExecuteError>>;

/// An answer to batches has a result for each row: of each batch, its
/// partition's first, then those of `also`.
pub(crate) enum Request {
    /// Each row is taken or refused by itself.
    Append {
        batches: Vec<AppendBatch>,
        /// Another node brings them, or this one after another did not answer: the number of the first row. What was taken
        /// before is answered again, and not taken again.
        from: Option<Numbered>,
        reply: oneshot::Sender<Appends>,
    },
    /// At least one batch, and commands that go into the same entry: all of it takes effect, or
    /// nothing. What is for partitions of other shards goes there as messages.
    Unit {
        batches: Vec<AppendBatch>,
        commands: Vec<Command>,
        reply: oneshot::Sender<UnitAnswer>,
    },
    /// A message from another shard.
    Receive {
        message: Message,
        reply: oneshot::Sender<Result<Receipt, ReceiveError>>,
    },
    Execute {
        command: Command,
        reply: CommandReply,
    },
    /// Members of groups as their coordinator has them, which lasts for one term of the shard. In any other term they would
    /// replace what a later coordinator has stored.
    KeepMembers {
        /// `None`: the node is alone, and its coordinator outlives all terms.
        term: Option<u64>,
        groups: Vec<(String, Vec<u8>)>,
        reply: CommandReply,
    },
    /// A part of a partition that moves here: batches that keep their offsets and leader epochs.
    Import {
        step: MoveStep,
        batches: Vec<AppendBatch>,
        reply: CommandReply,
    },
    /// Dropped once all that was asked before is in the log, or refused; what is set aside may come later.
    Settle(oneshot::Sender<()>),
    /// A driver begins, or its term is over: whether its units may wait for room in an outbox. Where they may
    /// not, those that wait are given back.
    MayWait(bool),
    /// The node is about to end: what waits for room in an outbox waits no longer.
    Closing,
}

/// What becomes of a unit.
#[derive(Debug)]
pub(crate) enum UnitAnswer {
    /// Of each row.
    Entered(UnitReply),
    /// It had no room, and nothing of it was done: the driver of the next term asks for it again.
    GivenBack { batches: Vec<AppendBatch>, commands: Vec<Command> },
}

pub(crate) type UnitReply = Entered<Result<Option<Appended>, AppendError>>;

/// A message as it travels from the leader of one shard to that of another.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) origin: Origin,
    /// The partitions of each are of the shard that it goes to.
    pub(crate) batches: Vec<AppendBatch>,
}

/// Why a message was not taken.
#[derive(Clone, PartialEq, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum ReceiveError {
    #[error("message {expected} is the next one")]
    OutOfOrder { expected: Offset },
    #[error(transparent)]
    Refused(#[from] AppendError),
}

impl ReceiveError {
    /// The other shard takes nothing any more: the node is about to end.
    pub(crate) fn is_final(&self) -> bool {
        let ends =
            |why: &Unavailable| matches!(why, Unavailable::Stopping | Unavailable::Failed(_));
        matches!(self, Self::Refused(AppendError::Unavailable(why)) if ends(why))
    }
}

impl Request {
    /// About what it takes of an entry.
    pub(crate) fn bytes(&self) -> usize {
        let of_batches = |batches: &[AppendBatch]| -> usize {
            let ids = |batch: &AppendBatch| batch.ids.as_ref().map_or(0, |ids| ids.len() * 18);
            let of_batch = |batch: &AppendBatch| {
                batch.bytes.len() + batch.rows() * ENTRY_ROW_BYTES + ids(batch)
            };
            batches.iter().map(of_batch).sum()
        };
        match self {
            Request::Append { batches, .. } => of_batches(batches),
            Request::Unit { batches, commands, .. } => {
                of_batches(batches) + commands.iter().map(Command::weight).sum::<usize>()
            }
            Request::Receive { message, .. } => of_batches(&message.batches),
            Request::Import { batches, .. } => of_batches(batches),
            Request::Execute { command, .. } => command.weight(),
            Request::KeepMembers { groups, .. } => {
                groups.iter().map(|(group, kept)| group.len() + kept.len()).sum()
            }
            Request::Settle(_) | Request::MayWait(_) | Request::Closing => 0,
        }
    }

    /// Answers without having done anything.
    pub(crate) fn refuse(self, why: &Unavailable) {
        match self {
            Request::Append { batches, reply, .. } => {
                let rows = batches.iter().map(AppendBatch::rows).sum();
                let _ = reply.send(vec![Err(why.clone().into()); rows]);
            }
            Request::Unit { batches, reply, .. } => {
                refuse_unit(&batches, reply, &why.clone().into());
            }
            Request::Receive { reply, .. } => {
                let _ = reply.send(Err(ReceiveError::Refused(why.clone().into())));
            }
            Request::Settle(_) | Request::MayWait(_) | Request::Closing => {}
            Request::Execute { reply, .. }
            | Request::KeepMembers { reply, .. }
            | Request::Import { reply, .. } => {
                let _ = reply.send(Err(why.clone().into()));
            }
        }
    }
}

/// Answers each row of a unit that was not done.
pub(crate) fn refuse_unit(
    batches: &[AppendBatch],
    reply: oneshot::Sender<UnitAnswer>,
    why: &AppendError,
) {
    let rows = batches.iter().map(AppendBatch::rows).sum();
    let refused = Entered { rows: vec![Err(why.clone()); rows], sent: Vec::new() };
    let _ = reply.send(UnitAnswer::Entered(refused));
}
