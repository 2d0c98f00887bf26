//! Requests to a shard's log.

use std::collections::BTreeMap;

use base::limits::ENTRY_ROW_BYTES;
use base::{Offset, ShardId};
use machine::{Command, MessageCommand, MoveStep, Origin, Outcome, Preparation, RowSequence};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::append::{AppendBatch, AppendedBatch, Appends};
use crate::error::{AppendError, ExecuteError, Unavailable};
use crate::receipts::{Receipt, UnitResult};

pub type CommandReply = oneshot::Sender<Result<Outcome, ExecuteError>>;

/// The reply to batches has a result for each row: for each batch, that of its partition, then those of `also`.
#[derive(Debug)]
pub enum Request {
    /// Each row is accepted or rejected on its own.
    Append {
        batches: Vec<AppendBatch>,
        /// Number of the first row, in an append of another node, or one of this node after another one did not
        /// reply. Rows accepted before get their former results, and are not appended again.
        from: Option<RowSequence>,
        reply: oneshot::Sender<Appends>,
    },
    /// Takes effect as a whole, or not at all.
    Unit {
        content: UnitContent,
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
    /// Group members as their coordinator has them, for one term of the shard. In any other term they would replace
    /// those stored by a later coordinator.
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
    /// Dropped once all earlier requests are in the log, or rejected; units waiting for an outbox may come later.
    Settle(oneshot::Sender<()>),
    /// Whether a driver's units may wait for room in an outbox: true when a driver begins, false when its term ends.
    /// In that case the waiting units are given back.
    MayWait(bool),
    /// The node is about to end: no unit may wait for room in an outbox any more.
    Closing,
}

/// Batches and commands for one entry. It has a batch or a command for another shard: commands for this shard alone
/// need no unit. Rows for partitions of other shards are sent there as messages.
#[derive(Debug, Default)]
pub struct UnitContent {
    pub batches: Vec<AppendBatch>,
    pub commands: Vec<Command>,
    /// Commands for other shards.
    pub elsewhere: BTreeMap<ShardId, CommandsElsewhere>,
}

/// Commands for another shard, which has prepared for them.
#[derive(Debug, Default)]
pub struct CommandsElsewhere {
    pub commands: Vec<MessageCommand>,
    pub preparation: Preparation,
}

impl UnitContent {
    /// Number of results: one for each row of the batches, and then one for the commands of each other shard.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(AppendBatch::rows).sum::<usize>() + self.elsewhere.len()
    }
}

/// Result of a unit.
#[derive(Debug)]
pub enum UnitAnswer {
    /// See [`UnitContent::rows`].
    Entered(UnitReply),
    /// The unit had no room and did not take effect: the driver of the next term requests it again.
    GivenBack(UnitContent),
}

pub type UnitReply = UnitResult<Result<Option<AppendedBatch>, AppendError>>;

/// A message on its way from the leader of one shard to that of another.
#[derive(Debug)]
pub struct Message {
    pub origin: Origin,
    /// All partitions are in the target shard.
    pub batches: Vec<AppendBatch>,
    pub commands: Vec<MessageCommand>,
}

/// Reason why a message was not accepted.
#[derive(Clone, PartialEq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ReceiveError {
    #[error("message {expected} is the next one")]
    OutOfOrder { expected: Offset },
    #[error(transparent)]
    Refused(#[from] AppendError),
}

impl ReceiveError {
    /// Whether the other shard accepts no more messages because the node is about to end.
    pub fn is_final(&self) -> bool {
        let ends =
            |why: &Unavailable| matches!(why, Unavailable::Stopping | Unavailable::Failed(_));
        matches!(self, Self::Refused(AppendError::Unavailable(why)) if ends(why))
    }
}

impl Request {
    /// Approximate size in the entry.
    pub(crate) fn bytes(&self) -> usize {
        let of_batches = |batches: &[AppendBatch]| -> usize {
            let ids = |batch: &AppendBatch| batch.ids.as_ref().map_or(0, |ids| ids.len() * 18);
            let of_batch = |batch: &AppendBatch| {
                batch.bytes.len() + batch.rows() * ENTRY_ROW_BYTES + ids(batch)
            };
            batches.iter().map(of_batch).sum()
        };
        let of_commands = |commands: &[MessageCommand]| {
            commands.iter().map(MessageCommand::weight).sum::<usize>()
        };
        match self {
            Request::Append { batches, .. } => of_batches(batches),
            Request::Unit { content: UnitContent { batches, commands, elsewhere }, .. } => {
                of_batches(batches)
                    + commands.iter().map(Command::weight).sum::<usize>()
                    + elsewhere.values().map(|it| of_commands(&it.commands)).sum::<usize>()
            }
            Request::Receive { message, .. } => {
                of_batches(&message.batches) + of_commands(&message.commands)
            }
            Request::Import { batches, .. } => of_batches(batches),
            Request::Execute { command, .. } => command.weight(),
            Request::KeepMembers { groups, .. } => {
                groups.iter().map(|(group, kept)| group.len() + kept.len()).sum()
            }
            Request::Settle(_) | Request::MayWait(_) | Request::Closing => 0,
        }
    }

    /// Rejects the request without executing it.
    pub fn refuse(self, why: &Unavailable) {
        match self {
            Request::Append { batches, reply, .. } => {
                let rows = batches.iter().map(AppendBatch::rows).sum();
                let _ = reply.send(vec![Err(why.clone().into()); rows]);
            }
            Request::Unit { content, reply } => {
                refuse_unit(&content, reply, &why.clone().into());
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

/// Rejects each row of a unit that was not executed.
pub(crate) fn refuse_unit(
    content: &UnitContent,
    reply: oneshot::Sender<UnitAnswer>,
    why: &AppendError,
) {
    let refused = vec![Err(why.clone()); content.rows()];
    let refused = UnitResult { rows: refused, sent: Vec::new() };
    let _ = reply.send(UnitAnswer::Entered(refused));
}
