//! Maps internal errors to Kafka's error codes: the only place that knows both.
//!
//! A code decides the client's reaction (retry, refresh metadata, give up). Each mapping takes the code to
//! which stock clients react correctly. The message names the cause.

use std::borrow::Cow;
use std::fmt;

use admin::AdminError;
use broker::{
    AppendError, ExecuteError, FetchError, Refusal, SequenceRefusal, TransactionRefusal,
    Unavailable,
};
use consumer_groups::CoordinatorError;
use consumer_groups::lease_groups::LeaseGroupError;
use coordinator::{ErrorKind, GroupError};
use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use record::{BatchError, CompressionError, RefusedRecord};

/// A Kafka error code with its message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) error: ResponseError,
    message: Option<Cow<'static, str>>,
}

/// Longer messages are cut: they may quote what a client sent.
const MESSAGE_BYTES_MAX: usize = 1024;

impl Fault {
    pub(crate) fn new(error: ResponseError, message: impl Into<Cow<'static, str>>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
            message.to_mut().truncate(end);
        }
        Self { error, message: Some(message) }
    }

    /// Without a message: the code suffices.
    pub(crate) const fn plain(error: ResponseError) -> Self {
        Self { error, message: None }
    }

    pub(crate) fn code(&self) -> i16 {
        self.error.code()
    }

    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The message in the message crate's string type.
    pub(crate) fn message_bytes(&self) -> Option<StrBytes> {
        self.message.as_ref().map(|message| StrBytes::from_string(message.to_string()))
    }

    pub(crate) fn unknown_partition() -> Self {
        Self::new(
            ResponseError::UnknownTopicOrPartition,
            "this server does not host this topic-partition",
        )
    }

    pub(crate) fn unknown_topic_id() -> Self {
        Self::new(ResponseError::UnknownTopicId, "there is no topic with this id")
    }

    pub(crate) fn is_unknown_topic(&self) -> bool {
        use ResponseError::{UnknownTopicId, UnknownTopicOrPartition};
        matches!(self.error, UnknownTopicOrPartition | UnknownTopicId)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{} ({})", message, self.error),
            None => write!(f, "{}", self.error),
        }
    }
}

impl From<Unavailable> for Fault {
    fn from(unavailable: Unavailable) -> Self {
        let error = match &unavailable {
            // Clients refresh the leader and retry there.
            Unavailable::NotLeader | Unavailable::Stopping => ResponseError::NotLeaderOrFollower,
            Unavailable::Failed(_) => ResponseError::KafkaStorageError,
            // Retriable, and leaves open whether the change was made.
            Unavailable::Unanswered => ResponseError::RequestTimedOut,
        };
        Self::new(error, unavailable.to_string())
    }
}

impl From<AppendError> for Fault {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::UnknownPartition(_) => Self::unknown_partition(),
            AppendError::Sequence(refusal) => refusal.into(),
            // Retriable: producers wait until there is room or their own timeout expires.
            AppendError::StorageFull { .. } => {
                Self::new(ResponseError::KafkaStorageError, error.to_string())
            }
            // Retriable too: consumers make room when they settle.
            AppendError::Full { .. } | AppendError::OutboxFull { .. } => {
                Self::new(ResponseError::ThrottlingQuotaExceeded, error.to_string())
            }
            // Kafka's clients send no units; records that the node itself moves may be one.
            AppendError::NotAtExpected { .. }
            | AppendError::ExpectedElsewhere(_)
            | AppendError::UnitRefused => {
                Self::new(ResponseError::InvalidRecord, error.to_string())
            }
            AppendError::Moving(_) | AppendError::RefusedBefore => {
                Self::new(ResponseError::NotLeaderOrFollower, error.to_string())
            }
            // Clients split the batch.
            AppendError::TooManyIds { .. } => {
                Self::new(ResponseError::MessageTooLarge, error.to_string())
            }
            AppendError::Unavailable(unavailable) => unavailable.into(),
            // Kafka's error for a batch of a fenced producer, which the client can recover from.
            AppendError::Transaction(TransactionRefusal::Fenced { .. }) => {
                Self::new(ResponseError::InvalidProducerEpoch, error.to_string())
            }
            AppendError::Transaction(refusal) => refusal.into(),
        }
    }
}

impl From<TransactionRefusal> for Fault {
    fn from(refusal: TransactionRefusal) -> Self {
        let error = match refusal {
            TransactionRefusal::NotOpen
            | TransactionRefusal::InvalidState
            | TransactionRefusal::Ended { .. } => ResponseError::InvalidTxnState,
            TransactionRefusal::Fenced { .. } => ResponseError::ProducerFenced,
            TransactionRefusal::UnknownProducer => ResponseError::InvalidProducerIdMapping,
            // Retriable.
            TransactionRefusal::Concurrent | TransactionRefusal::Markers => {
                ResponseError::ConcurrentTransactions
            }
            TransactionRefusal::OpenInPartition => ResponseError::NotLeaderOrFollower,
            TransactionRefusal::InvalidId => ResponseError::InvalidRequest,
            TransactionRefusal::TooManyIds
            | TransactionRefusal::TooManyOpen
            | TransactionRefusal::TooManyPartitions
            | TransactionRefusal::TooManyAborted => ResponseError::PolicyViolation,
            TransactionRefusal::NeedsProducerId => ResponseError::UnknownServerError,
        };
        Self::new(error, refusal.to_string())
    }
}

impl From<SequenceRefusal> for Fault {
    fn from(refusal: SequenceRefusal) -> Self {
        let error = match refusal {
            SequenceRefusal::OutOfOrder { .. } => ResponseError::OutOfOrderSequenceNumber,
            SequenceRefusal::Fenced { .. } => ResponseError::InvalidProducerEpoch,
        };
        Self::new(error, refusal.to_string())
    }
}

impl From<FetchError> for Fault {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::UnknownPartition(_) => Self::unknown_partition(),
            FetchError::OffsetOutOfRange { .. } => {
                Self::new(ResponseError::OffsetOutOfRange, error.to_string())
            }
            FetchError::Storage(_) => {
                Self::new(ResponseError::KafkaStorageError, error.to_string())
            }
            FetchError::Unavailable(unavailable) => unavailable.into(),
        }
    }
}

impl From<ExecuteError> for Fault {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Refused(refusal) => refusal.into(),
            // Kafka sends such commands to the controller.
            ExecuteError::Unavailable(Unavailable::NotLeader) => {
                Self::new(ResponseError::NotController, Unavailable::NotLeader.to_string())
            }
            ExecuteError::Unavailable(unavailable) => unavailable.into(),
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let error = match &refusal {
            Refusal::UnknownTopic { .. } | Refusal::UnknownPartition { .. } => {
                return Self::unknown_partition();
            }
            Refusal::InvalidTopicName(_) | Refusal::TopicCollision { .. } => {
                ResponseError::InvalidTopicException
            }
            Refusal::TopicExists { .. } => ResponseError::TopicAlreadyExists,
            Refusal::TopicUuidInUse
            | Refusal::TopicIdsExhausted
            | Refusal::ProducerIdsExhausted => ResponseError::UnknownServerError,
            Refusal::InvalidPartitionCount { .. } => ResponseError::InvalidPartitions,
            // Not retriable, and every client shows it.
            Refusal::TooManyPartitions { .. }
            | Refusal::TooManyOffsets { .. }
            | Refusal::TooManyGroupConfigs { .. }
            | Refusal::TooManyMoves { .. }
            | Refusal::MovesAlready { .. }
            | Refusal::HasLeaseGroups { .. }
            | Refusal::PartitionMoved { .. }
            | Refusal::LevelTooLow { .. } => ResponseError::PolicyViolation,
            Refusal::UnknownShard { .. } => ResponseError::InvalidRequest,
            Refusal::InvalidConfig(_) => ResponseError::InvalidConfig,
            Refusal::UnknownGroup { .. } => ResponseError::GroupIdNotFound,
            Refusal::InvalidGroupName { .. } => ResponseError::InvalidGroupId,
            Refusal::OffsetOutOfRange { .. } => ResponseError::OffsetOutOfRange,
            Refusal::MetadataTooLarge { .. } => ResponseError::OffsetMetadataTooLarge,
            Refusal::UnknownLeaseGroup { .. } => ResponseError::GroupIdNotFound,
            Refusal::LeaseGroupExists { .. } => ResponseError::InvalidConfig,
            Refusal::TooManyLeaseGroups { .. } | Refusal::TooManyLeaseGroupPartitions { .. } => {
                ResponseError::PolicyViolation
            }
            // No Kafka request names a document or chooses the log for it.
            Refusal::LeaseGroupIdsExhausted
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
            | Refusal::PreparedEarlier { .. } => ResponseError::UnknownServerError,
            Refusal::Transaction(refusal) => return (*refusal).into(),
        };
        Self::new(error, refusal.to_string())
    }
}

impl From<&BatchError> for Fault {
    fn from(error: &BatchError) -> Self {
        let code = match error {
            BatchError::LengthMismatch { .. } => {
                return Self::new(
                    ResponseError::InvalidRecord,
                    "a produce request must have exactly one record batch per partition",
                );
            }
            // Producers split the batch and retry its halves.
            BatchError::TooLarge { .. } | BatchError::TooManyRecords { .. } => {
                ResponseError::MessageTooLarge
            }
            BatchError::UnsupportedMagic(_) => ResponseError::UnsupportedForMessageFormat,
            BatchError::UnknownCompression(_) => ResponseError::UnsupportedCompressionType,
            BatchError::Truncated { .. }
            | BatchError::ImpossibleLength(_)
            | BatchError::ImpossibleOffset { .. }
            | BatchError::ChecksumMismatch { .. } => ResponseError::CorruptMessage,
            BatchError::Compression { error: CompressionError::TooLarge { .. }, .. } => {
                ResponseError::MessageTooLarge
            }
            BatchError::Compression { .. } => ResponseError::CorruptMessage,
            BatchError::LogAppendTime => ResponseError::InvalidTimestamp,
            BatchError::Records(refused) if refused.has_bad_timestamp => {
                ResponseError::InvalidTimestamp
            }
            BatchError::ImpossibleCount { .. }
            | BatchError::ControlBatch
            | BatchError::ImpossibleSequence { .. }
            | BatchError::Record { .. }
            | BatchError::Records(_)
            | BatchError::TrailingBytes { .. } => ResponseError::InvalidRecord,
        };
        Self::new(code, error.to_string())
    }
}

impl From<GroupError> for Fault {
    fn from(error: GroupError) -> Self {
        Self::new(group_code(error.kind), error.message)
    }
}

impl From<LeaseGroupError> for Fault {
    fn from(error: LeaseGroupError) -> Self {
        match error {
            LeaseGroupError::Create(error) => error.into(),
            LeaseGroupError::Read(error) => error.into(),
        }
    }
}

impl From<AdminError> for Fault {
    fn from(error: AdminError) -> Self {
        use ResponseError::*;
        let (code, message) = match error {
            AdminError::Execute(error) => return error.into(),
            AdminError::Append(error) => return error.into(),
            AdminError::Fetch(error) => return error.into(),
            AdminError::ShardUnavailable(unavailable) => return unavailable.into(),
            AdminError::Loading => return Self::plain(CoordinatorLoadInProgress),
            AdminError::Invalid(message) => (InvalidRequest, message),
            AdminError::InvalidConfig(message) => (ResponseError::InvalidConfig, message),
            AdminError::UnknownTopic(message) => (UnknownTopicOrPartition, message),
            AdminError::UnknownGroup(message) => (GroupIdNotFound, message),
            AdminError::NotFound(message) => (ResourceNotFound, message),
            AdminError::TopicDenied(message) => (TopicAuthorizationFailed, message),
            AdminError::GroupDenied(message) => (GroupAuthorizationFailed, message),
            AdminError::ClusterDenied(message) => (ClusterAuthorizationFailed, message),
            AdminError::GroupNotEmpty(message) => (NonEmptyGroup, message),
            AdminError::OffsetOutOfRange(message) => (ResponseError::OffsetOutOfRange, message),
            AdminError::AnotherNode(message) => (NotCoordinator, message),
            // Clients do not retry this code by themselves.
            AdminError::Unavailable(message) => (RequestTimedOut, message),
            AdminError::Damaged(message) => (KafkaStorageError, message),
            AdminError::Failed(message) => (UnknownServerError, message),
        };
        Self::new(code, message)
    }
}

pub(crate) fn coordinator_code(error: CoordinatorError) -> ResponseError {
    match error {
        CoordinatorError::NotCoordinator => ResponseError::NotCoordinator,
        CoordinatorError::Loading => ResponseError::CoordinatorLoadInProgress,
    }
}

pub(crate) fn group_code(kind: ErrorKind) -> ResponseError {
    match kind {
        ErrorKind::UnknownMemberId => ResponseError::UnknownMemberId,
        ErrorKind::FencedInstanceId => ResponseError::FencedInstanceId,
        ErrorKind::UnreleasedInstanceId => ResponseError::UnreleasedInstanceId,
        ErrorKind::IllegalGeneration => ResponseError::IllegalGeneration,
        ErrorKind::RebalanceInProgress => ResponseError::RebalanceInProgress,
        ErrorKind::InconsistentGroupProtocol => ResponseError::InconsistentGroupProtocol,
        ErrorKind::MemberIdRequired => ResponseError::MemberIdRequired,
        ErrorKind::GroupMaxSizeReached => ResponseError::GroupMaxSizeReached,
        ErrorKind::FencedMemberEpoch => ResponseError::FencedMemberEpoch,
        ErrorKind::StaleMemberEpoch => ResponseError::StaleMemberEpoch,
        ErrorKind::InvalidRegularExpression => ResponseError::InvalidRegularExpression,
        ErrorKind::StreamsInvalidTopology => ResponseError::StreamsInvalidTopology,
        ErrorKind::InvalidRequest => ResponseError::InvalidRequest,
    }
}

/// Records that caused the rejection of the batch. They are unknown if the batch is unreadable, and then
/// Kafka names none either.
pub(crate) fn refused_records(error: BatchError) -> Vec<RefusedRecord> {
    match error {
        BatchError::Records(refused) => refused.named,
        _ => Vec::new(),
    }
}

/// The result's error code; 0 on success.
pub(crate) fn code_of<T>(result: &Result<T, Fault>) -> i16 {
    result.as_ref().err().map_or(0, Fault::code)
}

#[cfg(test)]
mod tests {
    use admin::ErrorClass;
    use base::PartitionId;

    use super::*;

    /// HTTP answers by the class of an error, and the command line by Kafka's code.
    fn class_of(code: ResponseError) -> ErrorClass {
        use ResponseError::*;
        match code {
            TopicAuthorizationFailed | GroupAuthorizationFailed | ClusterAuthorizationFailed => {
                ErrorClass::Denied
            }
            UnknownTopicOrPartition | GroupIdNotFound | ResourceNotFound => ErrorClass::NotFound,
            NotCoordinator => ErrorClass::AnotherNode,
            NotLeaderOrFollower | NotController | CoordinatorLoadInProgress | RequestTimedOut => {
                ErrorClass::Unavailable
            }
            UnknownServerError | KafkaStorageError => ErrorClass::Failed,
            _ => ErrorClass::Invalid,
        }
    }

    #[test]
    fn code_of_an_operations_error_fits_its_class() {
        let said = || "said".to_owned();
        let partition = PartitionId::new(base::TopicId(1), 0);
        let refused: [Refusal; 9] = [
            Refusal::UnknownPartition { partition },
            Refusal::UnknownGroup { group: said() },
            Refusal::UnknownLeaseGroup { group: base::LeaseGroupId(1) },
            Refusal::TopicExists { name: said() },
            Refusal::InvalidGroupName { bytes: 2, at_most: 1 },
            Refusal::TooManyLeaseGroups { at_most: 1 },
            Refusal::OffsetOutOfRange { partition, offset: 3, start: 1, end: 2 },
            Refusal::TopicIdsExhausted,
            Refusal::UnitRefused,
        ];
        let unavailable = || {
            [
                Unavailable::NotLeader,
                Unavailable::Stopping,
                Unavailable::Failed("said".to_owned()),
                Unavailable::Unanswered,
            ]
        };
        let append = [
            AppendError::UnknownPartition(partition),
            AppendError::StorageFull { free_bytes: 1, reserve_bytes: 2 },
            AppendError::OutboxFull { to: base::ShardId(1) },
            AppendError::UnitRefused,
            AppendError::Moving(partition),
            AppendError::RefusedBefore,
            AppendError::TooManyIds { ids: 2, at_most: 1 },
        ];
        let fetch = [
            FetchError::UnknownPartition(partition),
            FetchError::OffsetOutOfRange { offset: 3, log_start: 1, end: 2 },
            FetchError::Storage(said()),
        ];
        let mut errors = vec![
            AdminError::Invalid(said()),
            AdminError::InvalidConfig(said()),
            AdminError::UnknownTopic(said()),
            AdminError::UnknownGroup(said()),
            AdminError::NotFound(said()),
            AdminError::TopicDenied(said()),
            AdminError::GroupDenied(said()),
            AdminError::ClusterDenied(said()),
            AdminError::GroupNotEmpty(said()),
            AdminError::OffsetOutOfRange(said()),
            AdminError::AnotherNode(said()),
            AdminError::Loading,
            AdminError::Unavailable(said()),
            AdminError::Damaged(said()),
            AdminError::Failed(said()),
        ];
        errors.extend(refused.map(AdminError::from));
        errors.extend(append.map(AdminError::from));
        errors.extend(fetch.map(AdminError::from));
        errors.extend(unavailable().map(AdminError::from));
        errors.extend(unavailable().map(|why| ExecuteError::from(why).into()));
        errors.extend(unavailable().map(|why| AppendError::from(why).into()));
        errors.extend(unavailable().map(|why| FetchError::from(why).into()));
        for error in errors {
            let (class, message) = (error.class(), error.message());
            let fault = Fault::from(error.clone());
            assert_eq!(class_of(fault.error), class, "{error:?}");
            let is_plain = error == AdminError::Loading;
            assert_eq!(fault.message(), Some(&*message).filter(|_| !is_plain), "{error:?}");
        }
    }
}
