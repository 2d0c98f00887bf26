//! Errors of each operation, with the details that a gateway needs to report them in its protocol's terms.

use base::{Level, Offset, PartitionId, ShardId};
use consensus::ProposeError;
use machine::Refusal;
use machine::config::Word;
use serde::{Deserialize, Serialize};

/// The shard cannot accept a proposal now. Trying again later, or elsewhere, may help.
///
/// This type and those that contain it travel between nodes: a variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Unavailable {
    /// The request was certainly not executed.
    #[error("this node does not lead the shard at present")]
    NotLeader,
    #[error("the node is shutting down")]
    Stopping,
    #[error("the node's storage failed and it must restart: {0}")]
    Failed(String),
    /// The request may or may not have been executed.
    #[error(
        "the node that led the shard did not answer, or leads no more: try again, it may have been done"
    )]
    Unanswered,
}

base::levels!(Unavailable {
    Level::FIRST => NotLeader | Stopping | Failed | Unanswered;
});

impl From<&ProposeError> for Unavailable {
    fn from(error: &ProposeError) -> Self {
        match error {
            ProposeError::NotLeader { .. } => Self::NotLeader,
            ProposeError::Superseded => Self::Unanswered,
            ProposeError::Stopping => Self::Stopping,
            ProposeError::Failed(why) => Self::Failed(why.to_string()),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum AppendError {
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    #[error(transparent)]
    Sequence(machine::producer::SequenceRefusal),
    #[error(
        "the disk is full: {free_bytes} bytes are free and {reserve_bytes} are kept in reserve; \
         free some space, or delete records or topics"
    )]
    StorageFull { free_bytes: u64, reserve_bytes: u64 },
    /// The append expected another offset ([`shard::append::AppendBatch::expect`]).
    #[error("the next record gets offset {end}, not the one that was expected")]
    NotAtExpected { end: Offset },
    /// The topic's `limit.records` or `limit.bytes` is reached, and `limit.overflow` rejects the append.
    #[error("the topic is full: {limit} is reached")]
    Full { limit: Word },
    /// The outbox to another shard has been full for a while. Trying again later may help.
    #[error("too much is on its way to {to} already: try again")]
    OutboxFull { to: ShardId },
    /// An expected offset is only possible for a partition in the same shard.
    #[error("partition {0} is in another shard, where no offset can be expected")]
    ExpectedElsewhere(PartitionId),
    /// An operation of the same unit was rejected.
    #[error("something that was to take effect with it was refused")]
    UnitRefused,
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The append was not executed, and can be retried in a moment.
    #[error("partition {0} moves to another shard: try again")]
    Moving(PartitionId),
    /// The append was rejected, and the leader's reply with the reason was lost.
    #[error("it was refused, and the answer that said why was lost: try again")]
    RefusedBefore,
    /// Only for a topic with `dedup.window.ms`.
    #[error("{ids} records of one batch have an id, and {at_most} may: send smaller batches")]
    TooManyIds { ids: usize, at_most: usize },
    #[error(transparent)]
    Transaction(machine::TransactionRefusal),
}

#[derive(Clone, PartialEq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ExecuteError {
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum FetchError {
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    #[error("offset {offset} is not within {log_start}..={end}")]
    OffsetOutOfRange { offset: Offset, log_start: Offset, end: Offset },
    #[error("records could not be read: {0}")]
    Storage(String),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}
