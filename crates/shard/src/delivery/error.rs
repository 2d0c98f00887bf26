//! Errors of lease operations.

use base::{LeaseGroupId, Offset};
use dispatch::RemoveRefused;
use machine::Refusal;
use serde::{Deserialize, Serialize};

use crate::error::{AppendError, FetchError, Unavailable};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ConsumeError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    /// Another consumer is exclusive, or this one wants to be and there are others.
    #[error("the lease group is consumed exclusively")]
    Exclusive,
    #[error("the session has {at_most} consumers, which is the limit")]
    TooManyConsumers { at_most: usize },
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum TakeError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Why one item of a settle had no effect.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum SettleError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    /// The session holds no such lease: it expired, was settled before, or never existed.
    #[error("this session holds no such lease")]
    NotLeased,
    /// It is unknown whether it took effect: the record may be delivered again.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Why a transfer (settles and appends in one log entry) had no effect, or that its effect is unknown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    #[error("item {item} cannot be settled: {source}")]
    Settle { item: usize, source: SettleError },
    /// Below [`base::Level::MESSAGE_COMMANDS`]: of records of several shards those of one shard are settled, with
    /// everything that was to be appended. The others are not.
    #[error("a part of it took effect, and the rest did not: {0}")]
    Partly(Box<TransferError>),
    /// A dead letter of a rejected record, if the transfer has no batch of this number.
    #[error("batch {batch} cannot be appended: {source}")]
    Append { batch: usize, source: AppendError },
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl TransferError {
    /// Whether the transfer may have taken effect all the same.
    pub fn leaves_outcome_open(&self) -> bool {
        let why = match self {
            Self::Partly(_) | Self::Settle { source: SettleError::Unavailable(_), .. } => {
                return true;
            }
            Self::Append { source: AppendError::Unavailable(why), .. } | Self::Unavailable(why) => {
                why
            }
            Self::Settle { .. } | Self::Append { .. } => return false,
        };
        *why != Unavailable::NotLeader
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BrowseError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    #[error(transparent)]
    Read(#[from] FetchError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum RemoveError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    #[error("record {offset} of partition {partition} is settled, or was never there")]
    NotThere { partition: u32, offset: Offset },
    /// A consumer holds it: it may be removed once the lease has ended.
    #[error("record {offset} of partition {partition} is leased")]
    Leased { partition: u32, offset: Offset },
    #[error(transparent)]
    Read(FetchError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SeekError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Read(#[from] FetchError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RedriveError {
    #[error("there is no lease group {0}")]
    UnknownGroup(LeaseGroupId),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Read(#[from] FetchError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<RemoveRefused> for RemoveError {
    fn from(refused: RemoveRefused) -> Self {
        match refused {
            RemoveRefused::Absent { partition, offset }
            | RemoveRefused::NotDelayed { partition, offset } => {
                Self::NotThere { partition, offset }
            }
            RemoveRefused::Busy { partition, offset } => Self::Leased { partition, offset },
        }
    }
}

impl From<BrowseError> for RedriveError {
    fn from(error: BrowseError) -> Self {
        match error {
            BrowseError::UnknownGroup(group) => Self::UnknownGroup(group),
            BrowseError::Read(error) => Self::Read(error),
            BrowseError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_without_an_answer_may_have_taken_effect() {
        let append = |source| TransferError::Append { batch: 0, source };
        let settle = |source| TransferError::Settle { item: 0, source };
        for open in [
            append(Unavailable::Unanswered.into()),
            settle(Unavailable::Unanswered.into()),
            Unavailable::Stopping.into(),
        ] {
            assert!(open.leaves_outcome_open(), "{open}");
        }
        for decided in [
            append(Unavailable::NotLeader.into()),
            append(AppendError::UnitRefused),
            settle(SettleError::NotLeased),
        ] {
            assert!(!decided.leaves_outcome_open(), "{decided}");
        }
    }
}
