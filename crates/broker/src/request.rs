//! What is asked of a shard's log.

use base::limits::ENTRY_ROW_BYTES;
use machine::{Command, Outcome};
use tokio::sync::oneshot;

use crate::append::{AppendBatch, Appends};
use crate::error::{ExecuteError, Unavailable};

pub(crate) type CommandReply = oneshot::Sender<Result<Outcome, ExecuteError>>;

/// An answer to batches has a result for each row: of each batch, its
/// partition's first, then those of `also`.
pub(crate) enum Request {
    /// Each row is taken or refused by itself.
    Append {
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Appends>,
    },
    /// At least one batch, and commands that go into the same entry: all of it takes effect, or
    /// nothing.
    Unit {
        batches: Vec<AppendBatch>,
        commands: Vec<Command>,
        reply: oneshot::Sender<Appends>,
    },
    Execute {
        command: Command,
        reply: CommandReply,
    },
}

impl Request {
    /// About what it takes of an entry.
    pub(crate) fn bytes(&self) -> usize {
        let of_batches = |batches: &[AppendBatch]| -> usize {
            batches.iter().map(|batch| batch.bytes.len() + batch.rows() * ENTRY_ROW_BYTES).sum()
        };
        match self {
            Request::Append { batches, .. } => of_batches(batches),
            Request::Unit { batches, commands, .. } => {
                of_batches(batches) + commands.iter().map(Command::weight).sum::<usize>()
            }
            Request::Execute { command, .. } => command.weight(),
        }
    }

    /// Answers without having done anything.
    pub(crate) fn refuse(self, why: &Unavailable) {
        match self {
            Request::Append { batches, reply } | Request::Unit { batches, reply, .. } => {
                let rows = batches.iter().map(AppendBatch::rows).sum();
                let _ = reply.send(vec![Err(why.clone().into()); rows]);
            }
            Request::Execute { reply, .. } => {
                let _ = reply.send(Err(why.clone().into()));
            }
        }
    }
}
