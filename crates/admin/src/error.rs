//! The errors of operations, by meaning. Each protocol maps them to its own codes.

use broker::{AppendError, ExecuteError, FetchError, Refusal, TransactionRefusal, Unavailable};
use operations::family::OperationError;

use crate::limits::MESSAGE_BYTES_MAX;

/// Reason why an operation was not carried out, with a message to its user.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AdminError {
    /// The operation is invalid, or contradicts the present state.
    #[error("{0}")]
    Invalid(String),
    /// The settings of a queue contradict each other.
    #[error("{0}")]
    InvalidConfig(String),
    /// The topic or its partition does not exist.
    #[error("{0}")]
    UnknownTopic(String),
    /// The group, of either kind, does not exist.
    #[error("{0}")]
    UnknownGroup(String),
    /// Another subject of the operation does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The caller has no right to the topic.
    #[error("{0}")]
    TopicDenied(String),
    /// The caller has no right to the group.
    #[error("{0}")]
    GroupDenied(String),
    /// The caller has no right to the cluster.
    #[error("{0}")]
    ClusterDenied(String),
    /// The group has members or consumers.
    #[error("{0}")]
    GroupNotEmpty(String),
    #[error("{0}")]
    OffsetOutOfRange(String),
    /// Another node has to be queried.
    #[error("{0}")]
    AnotherNode(String),
    /// The node restores the members of the group, and will answer soon.
    #[error("The coordinator is loading and hence can't process requests.")]
    Loading,
    /// The node cannot do it now.
    #[error("{0}")]
    Unavailable(String),
    /// Stored records cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// The node failed to do it.
    #[error("{0}")]
    Failed(String),
    /// The log of a shard did not accept the change.
    #[error(transparent)]
    Execute(ExecuteError),
    /// Records were not appended.
    #[error(transparent)]
    Append(AppendError),
    /// Records were not read.
    #[error(transparent)]
    Fetch(FetchError),
    /// A shard cannot answer now.
    #[error(transparent)]
    ShardUnavailable(Unavailable),
}

/// The class of an error, for protocols that distinguish no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// The operation is invalid, or contradicts the present state.
    Invalid,
    /// The subject of the operation does not exist.
    NotFound,
    /// The caller is not authorized.
    Denied,
    /// Another node has to be queried.
    AnotherNode,
    /// The node cannot do it now.
    Unavailable,
    /// The node failed to do it.
    Failed,
}

impl AdminError {
    pub(crate) fn unknown_partition() -> Self {
        Self::UnknownTopic("this server does not host this topic-partition".to_owned())
    }

    /// The message to the user.
    #[must_use]
    pub fn message(&self) -> String {
        let mut message = self.to_string();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message
    }

    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid(_)
            | Self::InvalidConfig(_)
            | Self::GroupNotEmpty(_)
            | Self::OffsetOutOfRange(_) => ErrorClass::Invalid,
            Self::UnknownTopic(_) | Self::UnknownGroup(_) | Self::NotFound(_) => {
                ErrorClass::NotFound
            }
            Self::TopicDenied(_) | Self::GroupDenied(_) | Self::ClusterDenied(_) => {
                ErrorClass::Denied
            }
            Self::AnotherNode(_) => ErrorClass::AnotherNode,
            Self::Loading | Self::Unavailable(_) => ErrorClass::Unavailable,
            Self::Damaged(_) | Self::Failed(_) => ErrorClass::Failed,
            Self::Execute(ExecuteError::Refused(refusal)) => class_of_refusal(refusal),
            Self::Execute(ExecuteError::Unavailable(why)) | Self::ShardUnavailable(why) => {
                class_of_unavailable(why)
            }
            Self::Append(error) => class_of_append(error),
            Self::Fetch(error) => match error {
                FetchError::UnknownPartition(_) => ErrorClass::NotFound,
                FetchError::OffsetOutOfRange { .. } => ErrorClass::Invalid,
                FetchError::Storage(_) => ErrorClass::Failed,
                FetchError::Unavailable(why) => class_of_unavailable(why),
            },
        }
    }
}

fn class_of_unavailable(unavailable: &Unavailable) -> ErrorClass {
    match unavailable {
        Unavailable::NotLeader | Unavailable::Stopping | Unavailable::Unanswered => {
            ErrorClass::Unavailable
        }
        Unavailable::Failed(_) => ErrorClass::Failed,
    }
}

fn class_of_transaction(refusal: TransactionRefusal) -> ErrorClass {
    match refusal {
        TransactionRefusal::UnknownProducer => ErrorClass::NotFound,
        TransactionRefusal::Concurrent
        | TransactionRefusal::Markers
        | TransactionRefusal::OpenInPartition => ErrorClass::Unavailable,
        TransactionRefusal::NotOpen
        | TransactionRefusal::Fenced { .. }
        | TransactionRefusal::InvalidState
        | TransactionRefusal::Ended { .. }
        | TransactionRefusal::InvalidId
        | TransactionRefusal::TooManyIds
        | TransactionRefusal::TooManyOpen
        | TransactionRefusal::TooManyPartitions
        | TransactionRefusal::TooManyAborted => ErrorClass::Invalid,
        TransactionRefusal::NeedsProducerId => ErrorClass::Failed,
    }
}

fn class_of_append(error: &AppendError) -> ErrorClass {
    match error {
        AppendError::UnknownPartition(_) => ErrorClass::NotFound,
        AppendError::Sequence(_)
        | AppendError::Full { .. }
        | AppendError::OutboxFull { .. }
        | AppendError::NotAtExpected { .. }
        | AppendError::ExpectedElsewhere(_)
        | AppendError::UnitRefused
        | AppendError::TooManyIds { .. } => ErrorClass::Invalid,
        AppendError::Transaction(refusal) => class_of_transaction(*refusal),
        AppendError::StorageFull { .. } => ErrorClass::Failed,
        AppendError::Moving(_) | AppendError::RefusedBefore => ErrorClass::Unavailable,
        AppendError::Unavailable(why) => class_of_unavailable(why),
    }
}

fn class_of_refusal(refusal: &Refusal) -> ErrorClass {
    match refusal {
        Refusal::UnknownTopic { .. }
        | Refusal::UnknownPartition { .. }
        | Refusal::UnknownGroup { .. }
        | Refusal::UnknownLeaseGroup { .. } => ErrorClass::NotFound,
        Refusal::InvalidTopicName(_)
        | Refusal::TopicCollision { .. }
        | Refusal::TopicExists { .. }
        | Refusal::InvalidPartitionCount { .. }
        | Refusal::TooManyPartitions { .. }
        | Refusal::TooManyOffsets { .. }
        | Refusal::TooManyGroupConfigs { .. }
        | Refusal::TooManyMoves { .. }
        | Refusal::MovesAlready { .. }
        | Refusal::HasLeaseGroups { .. }
        | Refusal::PartitionMoved { .. }
        | Refusal::LevelTooLow { .. }
        | Refusal::UnknownShard { .. }
        | Refusal::InvalidConfig(_)
        | Refusal::InvalidGroupName { .. }
        | Refusal::OffsetOutOfRange { .. }
        | Refusal::MetadataTooLarge { .. }
        | Refusal::LeaseGroupExists { .. }
        | Refusal::TooManyLeaseGroups { .. }
        | Refusal::TooManyLeaseGroupPartitions { .. } => ErrorClass::Invalid,
        // No operation causes these.
        Refusal::TopicUuidInUse
        | Refusal::TopicIdsExhausted
        | Refusal::ProducerIdsExhausted
        | Refusal::LeaseGroupIdsExhausted
        | Refusal::UnknownDocument { .. }
        | Refusal::DocumentConflict { .. }
        | Refusal::InvalidDocumentName { .. }
        | Refusal::DocumentTooLarge { .. }
        | Refusal::TooManyDocuments { .. }
        | Refusal::InvalidShardCount { .. }
        | Refusal::AdoptionConflict { .. }
        | Refusal::TopicChanged { .. }
        | Refusal::NotHere { .. }
        | Refusal::UnitRefused
        | Refusal::NotInUnit
        | Refusal::NotAMessage
        | Refusal::MoveOutOfTurn { .. }
        | Refusal::OutboxFull { .. }
        | Refusal::PreparedEarlier { .. } => ErrorClass::Failed,
        Refusal::Transaction(refusal) => class_of_transaction(*refusal),
    }
}

// A partition that was deleted meanwhile is reported alike, whichever call finds that out.

impl From<ExecuteError> for AdminError {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Refused(
                Refusal::UnknownTopic { .. } | Refusal::UnknownPartition { .. },
            ) => Self::unknown_partition(),
            error => Self::Execute(error),
        }
    }
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> Self {
        ExecuteError::Refused(refusal).into()
    }
}

impl From<AppendError> for AdminError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::UnknownPartition(_) => Self::unknown_partition(),
            error => Self::Append(error),
        }
    }
}

impl From<FetchError> for AdminError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::UnknownPartition(_) => Self::unknown_partition(),
            error => Self::Fetch(error),
        }
    }
}

impl From<Unavailable> for AdminError {
    fn from(unavailable: Unavailable) -> Self {
        Self::ShardUnavailable(unavailable)
    }
}

impl From<OperationError> for AdminError {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Invalid(message) => Self::Invalid(message),
            OperationError::NotFound(message) => Self::NotFound(message),
            OperationError::NotAllowed(message) => Self::ClusterDenied(message),
            OperationError::Elsewhere(message) => Self::AnotherNode(message),
            OperationError::Unavailable(message) => Self::Unavailable(message),
            OperationError::Failed(message) => Self::Failed(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{PartitionId, TopicId};

    use super::*;

    #[test]
    fn missing_partition_is_reported_alike_by_every_call() {
        let partition = PartitionId::new(TopicId(1), 0);
        let unknown = AdminError::unknown_partition();
        assert_eq!(AdminError::from(FetchError::UnknownPartition(partition)), unknown);
        assert_eq!(AdminError::from(AppendError::UnknownPartition(partition)), unknown);
        assert_eq!(AdminError::from(Refusal::UnknownPartition { partition }), unknown);
        let refused = ExecuteError::Refused(Refusal::UnknownTopic { topic: TopicId(1) });
        assert_eq!(AdminError::from(refused), unknown);
        assert_eq!(unknown.class(), ErrorClass::NotFound);
    }

    #[test]
    fn long_message_is_cut_between_characters() {
        let message = AdminError::Invalid(format!("a{}", "ä".repeat(MESSAGE_BYTES_MAX))).message();
        assert_eq!(message.len(), MESSAGE_BYTES_MAX - 1);
        assert!(message.ends_with('ä'));
    }
}
