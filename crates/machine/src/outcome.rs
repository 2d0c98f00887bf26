//! Results of applying an entry: for the waiting requests, and for the broker, which performs the
//! consequences (addresses to index or to drop, fetches to wake).

use base::{LeaseGroupId, Level, Offset, PartitionId, ShardId, TopicId};
use serde::{Deserialize, Serialize};

use crate::command::ProducerKey;
use crate::config::{ConfigError, Word};
use crate::sequence::SequenceRefusal;
use crate::topic_name::TopicNameError;

/// Result of one append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOutcome {
    /// In the partition, and readable.
    Taken {
        base_offset: Offset,
    },
    /// Already present: respond with this offset; the bytes of the copy are dead.
    Duplicate {
        base_offset: Offset,
    },
    /// Its base offset is not the partition's next one, because an append proposed before it was
    /// refused. It may be proposed again.
    NotSequenced {
        expected: Offset,
    },
    /// Deleted in the meantime, or never present.
    UnknownPartition,
    Producer(SequenceRefusal),
    /// Another part of its unit was refused.
    UnitRefused,
    /// Its message was accepted before.
    PassedOver,
    /// The partition is moving or has moved to another shard, where it may be appended.
    Moving,
    Transaction(TransactionRefusal),
}

/// Why a batch or a command of a transaction is refused. Sent between nodes in replies, as [`Refusal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum TransactionRefusal {
    #[error("the transaction is not open in this shard")]
    NotOpen,
    /// Kafka: `INVALID_PRODUCER_EPOCH` for a batch, `PRODUCER_FENCED` for a command.
    #[error("the producer's epoch is fenced by {current}")]
    Fenced { current: i16 },
    /// Kafka: `INVALID_PRODUCER_ID_MAPPING`.
    #[error("the transactional id has another producer id, or none")]
    UnknownProducer,
    /// Kafka: `CONCURRENT_TRANSACTIONS`.
    #[error("the former transaction of the producer has not ended here yet")]
    Concurrent,
    /// Kafka: `INVALID_TXN_STATE`.
    #[error("the state of the transaction does not permit it")]
    InvalidState,
    /// A repetition: its first request ended the transaction so.
    #[error("the transaction has ended")]
    Ended { commit: bool, producer: ProducerKey },
    #[error("it needs a new producer id")]
    NeedsProducerId,
    #[error("a transactional id has 1 to 32767 bytes")]
    InvalidId,
    #[error("one more transactional id does not fit")]
    TooManyIds,
    #[error("one more transaction does not fit: too many are open")]
    TooManyOpen,
    #[error("one more partition does not fit into the transaction")]
    TooManyPartitions,
    #[error(
        "the partition has too many aborted transactions: they are forgotten when their records are deleted"
    )]
    TooManyAborted,
    #[error("the markers are not those of the partitions in which the transaction is open")]
    Markers,
    #[error("a transaction is open in the partition")]
    OpenInPartition,
}

/// Result of a successful command. Sent between nodes in replies: a new variant is the last one, and only commands
/// that are as new have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    /// One for each topic of `CreateTopics`, in its order.
    Topics(Vec<Result<TopicId, Refusal>>),
    /// One for each partition of `AdvanceStart`, in its order: the current start.
    Starts(Vec<Result<Offset, Refusal>>),
    ProducerId {
        id: i64,
        epoch: i16,
    },
    /// All offsets of `CommitOffsets` are committed, except these.
    Committed {
        refused: Vec<(PartitionId, Refusal)>,
    },
    /// Number of offsets or producers that `ExpireOffsets` or `ExpireProducers` removed.
    Expired {
        count: u64,
    },
    LeaseGroup(LeaseGroupId),
    /// The new version of the document.
    Document {
        version: u64,
    },
    /// Everything of the partition below is in the destination shard.
    Imported {
        next: Offset,
    },
    /// The destination shard serves the partition.
    Activated {
        epoch_base: i32,
    },
    /// All messages that were decided before have lower numbers.
    Fenced {
        end: Offset,
    },
    /// The producer of a transactional id from now on.
    Producer {
        producer: ProducerKey,
    },
    /// A shard takes part in the transaction with this number.
    Joined {
        number: u64,
    },
}

/// Why a command, or a part of one, changed nothing. Sent between nodes in replies: a new variant is the last one, and
/// only commands that are as new have it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("there is no topic {topic}")]
    UnknownTopic { topic: TopicId },
    #[error("there is no partition {partition}")]
    UnknownPartition { partition: PartitionId },
    #[error(transparent)]
    InvalidTopicName(#[from] TopicNameError),
    #[error("topic {name} exists already")]
    TopicExists { name: String },
    #[error("topic {name} would differ from {existing} only in `.` and `_`")]
    TopicCollision { name: String, existing: String },
    #[error("another topic has this id, or it is the nil one")]
    TopicUuidInUse,
    #[error("every topic number was handed out")]
    TopicIdsExhausted,
    #[error("every producer id was handed out")]
    ProducerIdsExhausted,
    #[error("{requested} partitions are not possible: {at_least} to {at_most} are")]
    InvalidPartitionCount { requested: u32, at_least: u32, at_most: u32 },
    #[error("{requested} more partitions do not fit: {held} are there and {at_most} is the limit")]
    TooManyPartitions { requested: u32, held: u64, at_most: u64 },
    #[error(transparent)]
    InvalidConfig(#[from] ConfigError),
    #[error("there is no group {group}")]
    UnknownGroup { group: String },
    #[error("a group's name has 1 to {at_most} bytes, not {bytes}")]
    InvalidGroupName { bytes: usize, at_most: usize },
    #[error("offset {offset} of {partition} is not between {start} and {end}")]
    OffsetOutOfRange { partition: PartitionId, offset: Offset, start: Offset, end: Offset },
    #[error("{bytes} bytes of metadata with an offset are more than {at_most}")]
    MetadataTooLarge { bytes: usize, at_most: usize },
    #[error("one more committed offset does not fit: {groups} groups of {bytes} bytes are there")]
    TooManyOffsets { groups: usize, bytes: u64 },
    #[error("one more group's configuration does not fit: {at_most} is the limit")]
    TooManyGroupConfigs { at_most: usize },
    #[error("there is no lease group {group}")]
    UnknownLeaseGroup { group: LeaseGroupId },
    #[error("lease group {name} exists already, with another configuration")]
    LeaseGroupExists { group: LeaseGroupId, name: String },
    #[error("every lease group number was handed out")]
    LeaseGroupIdsExhausted,
    #[error("one more lease group does not fit: {at_most} is the limit")]
    TooManyLeaseGroups { at_most: usize },
    #[error(
        "{requested} more partitions of lease groups do not fit: {held} are there and {at_most} is the limit"
    )]
    TooManyLeaseGroupPartitions { requested: u64, held: u64, at_most: u64 },
    #[error("there is no document {name:?} in {space:?}")]
    UnknownDocument { space: String, name: String },
    /// `version` is the current version; 0 if the document does not exist.
    #[error("document {name:?} in {space:?} has version {version}, not {expected}")]
    DocumentConflict { space: String, name: String, version: u64, expected: u64 },
    #[error("the name of a {what} has 1 to {at_most} bytes, not {bytes}")]
    InvalidDocumentName { what: Word, bytes: usize, at_most: usize },
    #[error("{bytes} bytes of a document are more than {at_most}")]
    DocumentTooLarge { bytes: usize, at_most: usize },
    #[error("one more document does not fit: {documents} of {bytes} bytes are there")]
    TooManyDocuments { documents: usize, bytes: u64 },
    #[error("{requested} shards are not possible: {at_least} to {at_most} are")]
    InvalidShardCount { requested: u32, at_least: u32, at_most: u32 },
    #[error("the shard has version {version} of the catalog, not {expected}")]
    AdoptionConflict { version: u64, expected: u64 },
    #[error("this is not for the log of {shard}")]
    NotHere { shard: ShardId },
    #[error("something that was to take effect with it was refused")]
    UnitRefused,
    #[error("a command of this kind cannot be bound to others")]
    NotInUnit,
    #[error("a message takes effect only together with the batches that it consists of")]
    NotAMessage,
    #[error("{messages} messages of {bytes} bytes wait for {to}: one more does not fit")]
    OutboxFull { to: ShardId, messages: usize, bytes: u64 },
    #[error("topic {topic} is not what it was any more")]
    TopicChanged { topic: TopicId },
    #[error(
        "this needs feature level {needed}, and the cluster is at {at}: once all nodes run a version that supports it, \
         type `postroad cluster upgrade --finalize`"
    )]
    LevelTooLow { needed: Level, at: Level },
    #[error("partition {partition} does not move, or is not at this step of it")]
    MoveOutOfTurn { partition: PartitionId },
    #[error(
        "partition {partition} moves to {to} already: wait for it, or type `postroad topic move` with --cancel"
    )]
    MovesAlready { partition: PartitionId, to: ShardId },
    #[error("there is no {shard} with records: `postroad shard list` says which there are")]
    UnknownShard { shard: ShardId },
    #[error(
        "topic {topic} is a queue, or has share groups or other lease groups ({groups} in all): its partitions cannot move yet"
    )]
    HasLeaseGroups { topic: TopicId, groups: usize },
    #[error(
        "partition {partition} was moved to {at}, or moves: records of the topic can be leased where all of its          partitions are where they were made; type `postroad topic move TOPIC --partitions {index} --to-shard {home}`"
    )]
    PartitionMoved { partition: PartitionId, index: u32, at: ShardId, home: u32 },
    #[error("{moving} partitions move already, and {at_most} may at a time: wait for some of them")]
    TooManyMoves { moving: usize, at_most: usize },
    #[error("{to} has begun another term since it prepared for this")]
    PreparedEarlier { to: ShardId },
    #[error(transparent)]
    Transaction(#[from] TransactionRefusal),
}

/// Represents every partition of a lease group in [`EntryEffects::moved`].
pub const ALL_PARTITIONS: u32 = u32::MAX;

/// All effects of one entry. The buffer is reused for all entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EntryEffects {
    /// One for each append, in order.
    pub appends: Vec<AppendOutcome>,
    /// One for each command, in order.
    pub commands: Vec<Result<Outcome, Refusal>>,
    /// Deleted topics with their partition counts: the journal drops their streams.
    pub removed: Vec<(TopicId, u32)>,
    /// Partitions with their new start: the journal drops everything below.
    pub trimmed: Vec<(PartitionId, Offset)>,
    /// Ranges above the start of a topic with `retention.settled` that every lease group has
    /// settled: the journal drops the batches inside. Each range is maximal, so that a batch which
    /// was settled piece by piece is inside the last one.
    pub punched: Vec<(PartitionId, Offset, Offset)>,
    /// Lease groups, with a partition or [`ALL_PARTITIONS`], that were deleted or changed by
    /// anything but `Settle`: their delivery must reload them.
    pub moved: Vec<(LeaseGroupId, u32)>,
    /// Partitions that another shard serves from now on: waiting fetches must look them up again.
    pub handed_over: Vec<PartitionId>,
    /// Partitions whose bytes belong to another shard now, or were never needed: the journal drops
    /// their streams.
    pub left: Vec<PartitionId>,
}

impl EntryEffects {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.appends.clear();
        self.commands.clear();
        self.removed.clear();
        self.trimmed.clear();
        self.punched.clear();
        self.moved.clear();
        self.handed_over.clear();
        self.left.clear();
    }
}
