//! Messages to other shards, and the commands that they take there.

use base::{Level, PartitionId};
use serde::{Deserialize, Serialize};

use super::{EndedPart, GroupSettle};

/// A batch of a message, and the other shard's partitions that receive it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SentBatch {
    /// Size of the batch: the machine does not see its bytes.
    pub bytes: u32,
    /// None in a message that has only commands: without any batch it would have no number.
    pub targets: Vec<PartitionId>,
}

/// A command that takes effect in another shard, together with the batches of its message. That
/// shard cannot refuse it: the entry that sent the message has decided already.
///
/// Its ordinals and fields are persisted, as those of [`super::Command`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MessageCommand {
    /// As [`super::Command::Settle`]. The shard withholds the records from delivery until then.
    Settle { settles: Vec<GroupSettle> },
    /// The end of a transaction. Its message has one batch, the markers' bytes, for no partition: the other shard appends
    /// it to each partition in which the transaction is open there.
    EndTransaction(EndedPart),
}

base::levels!(MessageCommand {
    Level::MESSAGE_COMMANDS => Settle;
    Level::TRANSACTIONS => EndTransaction;
});

/// Position among the preparations of a shard for commands of messages: a shard prepares by keeping
/// the records of a settle from delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Preparation {
    /// The shard's term.
    pub term: u64,
    /// Rises within the term.
    pub number: u64,
}

/// Everything that one unit sends to one shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SentMessage {
    pub batches: Vec<SentBatch>,
    pub commands: Vec<MessageCommand>,
}

/// A message in its command.
#[derive(Clone, Copy, Debug)]
pub struct MessageParts<'a> {
    pub(crate) batches: &'a [SentBatch],
    pub(crate) commands: &'a [MessageCommand],
}

impl SentBatch {
    /// Approximate size in an entry.
    pub(super) fn weight(&self) -> usize {
        8 + self.targets.len() * 8
    }

    /// Weight in an outbox of a batch of this many bytes for this many partitions.
    pub fn bytes_of(bytes: u64, targets: usize) -> u64 {
        bytes + (targets * size_of::<PartitionId>()) as u64
    }
}

impl MessageCommand {
    /// Approximate size in an entry, and in an outbox.
    pub fn weight(&self) -> usize {
        match self {
            Self::Settle { settles } => 1 + settles.iter().map(GroupSettle::weight).sum::<usize>(),
            Self::EndTransaction(_) => 24,
        }
    }

    /// Whether the other shard has to prepare for it.
    pub(crate) fn needs_preparation(&self) -> bool {
        matches!(self, Self::Settle { .. })
    }

    /// The end of a transaction that it is.
    pub fn as_end(&self) -> Option<&EndedPart> {
        match self {
            Self::EndTransaction(part) => Some(part),
            Self::Settle { .. } => None,
        }
    }
}

impl SentMessage {
    pub(crate) fn borrowed(&self) -> MessageParts<'_> {
        MessageParts { batches: &self.batches, commands: &self.commands }
    }

    /// Its weight in an outbox.
    pub fn bytes(&self) -> u64 {
        self.borrowed().bytes()
    }

    pub fn ends_a_transaction(&self) -> bool {
        self.borrowed().only_end().is_some()
    }
}

impl<'a> MessageParts<'a> {
    pub(crate) fn to_message(self) -> SentMessage {
        SentMessage { batches: self.batches.to_vec(), commands: self.commands.to_vec() }
    }

    /// Its weight in an outbox.
    pub fn bytes(self) -> u64 {
        let of_batch =
            |batch: &SentBatch| SentBatch::bytes_of(batch.bytes.into(), batch.targets.len());
        let commands = self.commands.iter().map(|command| command.weight() as u64);
        self.batches.iter().map(of_batch).sum::<u64>() + commands.sum::<u64>()
    }

    /// The end of a transaction, if the message has nothing else.
    pub(crate) fn only_end(self) -> Option<&'a EndedPart> {
        match (self.batches, self.commands) {
            ([markers], [command]) if markers.targets.is_empty() => command.as_end(),
            _ => None,
        }
    }

    /// Whether it can be sent. Only with commands may it have batches for no partition.
    pub(crate) fn is_sound(self) -> bool {
        let some = |batch: &SentBatch| {
            (!batch.targets.is_empty() || !self.commands.is_empty())
                && batch.targets.iter().all(|to| to.as_channel().is_none())
        };
        !self.batches.is_empty() && self.batches.iter().all(some)
    }
}
