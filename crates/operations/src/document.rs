//! Requests and replies of operations. The gateway and its clients are one workspace and share these types.
//!
//! On the wire each is a JSON document. Unknown fields are rejected in a request and ignored in a reply, so that
//! replies may gain fields. Times are milliseconds since the epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{SearchKey, SearchPosition};
use crate::offset_groups::OffsetPlace;
use crate::payload::Payload;
pub use crate::record::{Death, StoredHeader, StoredRecord};

/// A topic's lease group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueName {
    pub topic: String,
    pub group: String,
}

/// A record's place in a topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordPosition {
    pub partition: u32,
    pub offset: u64,
}

/// A request by an operator who may be on another machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithToken {
    pub token: Option<String>,
    pub operation: Operation,
}

/// A request. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Creates the lease group, or gives it these values. Reply: [`DeclaredQueue`].
    DeclareQueue {
        queue: QueueName,
        /// Start position of a new group.
        from: Start,
        /// Own values to set; others stay.
        config: BTreeMap<String, String>,
    },
    /// By topic and group, after the given one. Reply: [`QueuePage`].
    ListQueues { after: Option<QueueName>, queues_max: u32 },
    /// Reply: [`QueueReport`].
    DescribeQueue { queue: QueueName },
    /// Unsettled records, left untouched, by partition and offset from the given place. Reply: [`RecordPage`].
    PeekQueue {
        queue: QueueName,
        /// `None`: all.
        partition: Option<u32>,
        from: Option<RecordPosition>,
        records_max: u32,
    },
    /// Settles all records that are not leased. Reply: [`RecordCount`].
    PurgeQueue { queue: QueueName },
    /// Settles single records. Reply: [`RemovedRecords`].
    RemoveRecords { queue: QueueName, records: Vec<RecordPosition> },
    /// Reply: [`EmptyReply`].
    PauseQueue { queue: QueueName, paused: bool },
    /// Moves the position of these partitions; others stay. Reply: [`EmptyReply`].
    SeekQueue { queue: QueueName, to: Vec<RecordPosition> },
    /// Reply: [`EmptyReply`].
    DeleteQueue {
        queue: QueueName,
        /// Also deletes a queue that has consumers.
        force: bool,
    },
    /// Topics that take dead letters. Reply: [`DeadLetterTopics`].
    ListDeadLetterTopics {},
    /// Counts some of the records; the next request continues. Reply: [`DeadLetterCounts`].
    CountDeadLetters { topic: String, from: Option<RecordPosition> },
    /// Reply: [`DeadLetterPage`].
    ShowDeadLetters {
        topic: String,
        only: DeadLetterFilter,
        from: Option<RecordPosition>,
        records_max: u32,
    },
    /// Moves some of the records; the next request continues. Reply: [`DeadLettersMoved`].
    RedriveDeadLetters {
        topic: String,
        only: DeadLetterFilter,
        /// `None`: the topic that each came from.
        to: Option<String>,
        span: Span,
    },
    /// Deletes some of the records; the next request continues. Reply: [`DeadLettersMoved`].
    DeleteDeadLetters { topic: String, only: DeadLetterFilter, span: Span },
    /// Records to be delivered later. Reply: [`ScheduledPage`].
    ListScheduled { queue: QueueName, after: Option<RecordPosition>, records_max: u32 },
    /// Reply: [`RemovedRecords`].
    CancelScheduled { queue: QueueName, what: Cancel },
    /// Reply: [`ShardList`].
    ListShards {},
    /// Ends the leaders' terms and starts elections. Reply: [`ElectedTerm`].
    ElectLeader {},
    /// The node's connections, of all protocols, by number after the given one. Reply: [`ConnectionPage`].
    ListConnections { after: Option<u64>, connections_max: u32 },
    /// Notifies the client, if its protocol can, and closes the connection. Reply: [`EmptyReply`].
    CloseConnection { connection: u64 },
    /// Groups that commit offsets, by name after the given one. Reply:
    /// [`OffsetGroupPage`](crate::offset_groups::OffsetGroupPage).
    ListOffsetGroups { after: Option<String>, groups_max: u32 },
    /// Served by the group's coordinator. Reply: [`OffsetGroupReport`](crate::offset_groups::OffsetGroupReport).
    DescribeOffsetGroup {
        group: String,
        /// Members after this one.
        after: Option<String>,
        members_max: u32,
    },
    /// Resets the offsets of a group without members; unnamed partitions stay. Reply: [`EmptyReply`].
    SeekOffsetGroup {
        group: String,
        to: Vec<OffsetPlace>,
        /// Only checks whether the change is possible.
        dry_run: bool,
    },
    /// Deletes a group without members, with its committed offsets. Reply: [`EmptyReply`].
    DeleteOffsetGroup { group: String, dry_run: bool },
    /// State and history of a record. Reply: [`RecordHistory`](crate::history::RecordHistory).
    DescribeRecord { topic: String, place: RecordPosition },
    /// Searches the given topic, or all readable ones. Reply: [`FoundRecords`](crate::history::FoundRecords).
    FindRecords {
        topic: Option<String>,
        by: SearchKey,
        from_ms: Option<i64>,
        after: Option<SearchPosition>,
        records_max: u32,
    },
    /// An operation of another gateway, and its reply, in documents of that gateway.
    Family { family: String, operation: serde_json::Value },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// With the oldest record of the topic.
    Earliest,
    /// With the next record appended.
    Latest,
}

/// Selects dead letters that match all given fields.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterFilter {
    /// The topic that they came from.
    pub source: Option<String>,
    pub reason: Option<String>,
    /// Only these records.
    pub records: Option<Vec<RecordPosition>>,
}

/// One part of a long operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// `None`: the beginning.
    pub from: Option<RecordPosition>,
    /// Partition ends when the operation began, from the first reply. Later records are left alone; otherwise records
    /// that are dead-lettered again at once would keep the operation running.
    pub until: Option<Vec<u64>>,
    pub records_max: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cancel {
    /// The value of `postroad.id`.
    Id(String),
    Records(Vec<RecordPosition>),
}

// --------------------------------------------------------------------------------------- replies

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EmptyReply {}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardList {
    /// The catalog shard first.
    pub shards: Vec<ShardSummary>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardSummary {
    pub shard: u32,
    pub holds: ShardContent,
    /// Term in which the node leads it.
    pub term: u64,
    /// The index after the last entry of its log.
    pub log_end: u64,
    pub topics: u64,
    pub partitions: u64,
    pub segments: u64,
    /// Live bytes of bodies in its segments: those that may still be read.
    pub live_bytes: u64,
    /// Since the node was started.
    pub syncs: u64,
    /// The average time of a sync since the node was started.
    pub sync_micros: u64,
    /// Undeliverable records since the node started: other shards sent them to topics that were deleted before they
    /// arrived, and they were dropped.
    pub unplaced: u64,
    /// Nodes that lack entries the shard's log no longer has, as far as its leader knows. They are sent a snapshot.
    pub catching_up: Vec<SnapshotTransfer>,
}

/// A node that is sent a snapshot of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotTransfer {
    pub node: u64,
    /// Bytes received of the missing batches, of `of_bytes`; 0 of 0 until the node has reported.
    pub bytes: u64,
    pub of_bytes: u64,
}

/// Contents of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardContent {
    /// Topics, groups, configurations and documents.
    Catalog,
    /// Partitions.
    Records,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ElectedTerm {
    /// The term that began.
    pub term: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionPage {
    pub connections: Vec<ConnectionSummary>,
    /// Whether there are more after the last one.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionSummary {
    /// A number that no other connection has had since the node started.
    pub id: u64,
    pub protocol: String,
    /// The client's address and port.
    pub peer: String,
    pub since_ms: i64,
    /// The client's library and its version; null: the client has not sent them.
    pub client: Option<String>,
    /// Null: not authenticated.
    pub user: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecordCount {
    pub records: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeclaredQueue {
    /// False if the queue existed.
    pub created: bool,
    /// Whether values of an existing queue changed.
    pub changed: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueuePage {
    pub queues: Vec<QueueSummary>,
    /// Whether there are more after the last one.
    pub more: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueSummary {
    pub topic: String,
    pub group: String,
    pub partitions: u32,
    pub paused: bool,
    /// Unsettled records: ready, leased, delayed, or in transit to the dead letters.
    pub depth: u64,
    pub ready: u64,
    pub leased: u64,
    pub leased_bytes: u64,
    /// Within the part that the group has read; a group without consumers counts all records as ready.
    pub delayed: u64,
    pub consumers: u32,
    /// Timestamp of the oldest record that is not settled.
    pub oldest_unsettled_ms: Option<i64>,
    /// Age of that record: 0 when all are settled, null when it has no timestamp.
    pub lag_seconds: Option<f64>,
    /// Records ever appended to the topic.
    pub published: u64,
    /// Since the node started, as the next three.
    pub delivered: u64,
    pub redelivered: u64,
    pub settled: u64,
    pub dead_letters: u64,
    /// Over the last ten seconds.
    pub rates: QueueRates,
    /// Time of these counts.
    pub at_ms: i64,
}

/// Records a second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct QueueRates {
    /// Into the topic.
    pub published: f64,
    pub delivered: f64,
    pub settled: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueReport {
    pub summary: QueueSummary,
    pub created_ms: i64,
    pub config: Vec<QueueConfig>,
    pub progress: Vec<PartitionProgress>,
    /// The first leases.
    pub leases: Vec<Lease>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueConfig {
    pub name: String,
    pub value: String,
    /// Whether the value is set on the group, not a default.
    pub own: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionProgress {
    pub partition: u32,
    /// Every record below it is settled.
    pub floor: u64,
    pub end: u64,
    /// Records above the floor that are settled.
    pub settled_above: u64,
    /// Unsettled records that were delivered and came back.
    pub retried: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    pub partition: u32,
    pub offset: u64,
    /// Delivery number, from 1.
    pub attempt: u16,
    /// Number of the session that holds the lease, valid while the session lives.
    pub session: u64,
    /// Null: at the end of its session.
    pub expires_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordPage {
    pub records: Vec<QueuedRecord>,
    /// Start of the next page; null: this is the last.
    pub next: Option<RecordPosition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuedRecord {
    pub state: RecordState,
    /// Due time of a delayed record, or end of its lease.
    pub until_ms: Option<i64>,
    /// Number of deliveries that came back.
    pub attempts: u16,
    #[serde(flatten)]
    pub record: StoredRecord,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    Ready,
    /// Ready except for an earlier record of its key.
    Blocked,
    Leased,
    Delayed,
    /// In transit to the dead letters.
    DeadLettering,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RemovedRecords {
    pub removed: u64,
    pub refused: Vec<UnremovedRecord>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnremovedRecord {
    pub partition: u32,
    pub offset: u64,
    pub reason: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetterTopics {
    pub topics: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetterCounts {
    pub counts: Vec<DeadLetterCount>,
    pub next: Option<RecordPosition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetterCount {
    /// The topic that they came from; null: their headers do not name it.
    pub source: Option<String>,
    pub group: Option<String>,
    pub reason: Option<String>,
    pub records: u64,
    /// Times of the first and the last death.
    pub first_ms: Option<i64>,
    pub last_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetterPage {
    pub records: Vec<DeadLetter>,
    pub next: Option<RecordPosition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    pub death: Death,
    #[serde(flatten)]
    pub record: StoredRecord,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLettersMoved {
    /// Records moved to their target, or deleted.
    pub records: u64,
    /// Matching records that stay: leased by a consumer, or without a known target.
    pub left: u64,
    pub next: Option<RecordPosition>,
    /// Value for the next [`Span`].
    pub until: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduledPage {
    pub records: Vec<ScheduledRecord>,
    pub next: Option<RecordPosition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduledRecord {
    pub due_ms: i64,
    pub id: Option<Payload>,
    #[serde(flatten)]
    pub record: StoredRecord,
}
