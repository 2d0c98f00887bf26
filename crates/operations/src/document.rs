//! What an operation asks for and what it answers: the gateway and its clients are one workspace and
//! share these types.
//!
//! On the wire each is a JSON document. Unknown fields of a request are refused, those of an answer
//! are passed over, so that an answer may gain some. Times are milliseconds since the epoch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{After, By};
use crate::offset_groups::OffsetPlace;
use crate::payload::Payload;

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
pub struct Place {
    pub partition: u32,
    pub offset: u64,
}

/// What is asked for by an operator who may be on another machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithToken {
    pub token: Option<String>,
    pub operation: Operation,
}

/// What is asked for. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Makes the lease group, or gives it these values. Answers [`DeclaredQueue`].
    DeclareQueue {
        queue: QueueName,
        /// Where a new one begins.
        from: Start,
        /// Own values to set; others stay.
        config: BTreeMap<String, String>,
    },
    /// By topic and group, after the given one. Answers [`QueuePage`].
    ListQueues { after: Option<QueueName>, queues_max: u32 },
    /// Answers [`QueueReport`].
    DescribeQueue { queue: QueueName },
    /// Unsettled records, untouched, by partition and offset from the given place. Answers
    /// [`RecordPage`].
    PeekQueue {
        queue: QueueName,
        /// `None`: all.
        partition: Option<u32>,
        from: Option<Place>,
        records_max: u32,
    },
    /// Settles all that nobody has leased. Answers [`Counted`].
    PurgeQueue { queue: QueueName },
    /// Settles single records. Answers [`Removed`].
    RemoveRecords { queue: QueueName, records: Vec<Place> },
    /// Answers [`Done`].
    PauseQueue { queue: QueueName, paused: bool },
    /// Where partitions go on; those that are not named stay. Answers [`Done`].
    SeekQueue { queue: QueueName, to: Vec<Place> },
    /// Answers [`Done`].
    DeleteQueue {
        queue: QueueName,
        /// Also one that has consumers.
        force: bool,
    },
    /// Which topics take dead letters. Answers [`DeadLetterTopics`].
    ListDeadLetterTopics {},
    /// Answers [`DeadLetterCounts`], of some of the records: the next request goes on.
    CountDeadLetters { topic: String, from: Option<Place> },
    /// Answers [`DeadLetterPage`].
    ShowDeadLetters { topic: String, only: DeadLetterFilter, from: Option<Place>, records_max: u32 },
    /// Answers [`DeadLettersMoved`], of some of the records: the next request goes on.
    RedriveDeadLetters {
        topic: String,
        only: DeadLetterFilter,
        /// `None`: the topic that each came from.
        to: Option<String>,
        span: Span,
    },
    /// Answers [`DeadLettersMoved`], of some of the records: the next request goes on.
    DeleteDeadLetters { topic: String, only: DeadLetterFilter, span: Span },
    /// Records to be delivered later. Answers [`ScheduledPage`].
    ListScheduled { queue: QueueName, after: Option<Place>, records_max: u32 },
    /// Answers [`Removed`].
    CancelScheduled { queue: QueueName, what: Cancel },
    /// Answers [`ShardList`].
    ListShards {},
    /// Ends the leaders' terms and begins other ones. Answers [`Elected`].
    ElectLeader {},
    /// The node's, of all protocols, by number after the given one. Answers [`ConnectionPage`].
    ListConnections { after: Option<u64>, connections_max: u32 },
    /// Tells the client, where its protocol has a word for it, and closes. Answers [`Done`].
    CloseConnection { connection: u64 },
    /// Groups that commit offsets, by name after the given one. Answers
    /// [`OffsetGroupPage`](crate::offset_groups::OffsetGroupPage).
    ListOffsetGroups { after: Option<String>, groups_max: u32 },
    /// At the node that coordinates it. Answers [`OffsetGroupReport`](crate::offset_groups::OffsetGroupReport).
    DescribeOffsetGroup {
        group: String,
        /// Members after this one.
        after: Option<String>,
        members_max: u32,
    },
    /// Where a group without members goes on; partitions that are not named stay. Answers [`Done`].
    SeekOffsetGroup {
        group: String,
        to: Vec<OffsetPlace>,
        /// Only find out whether it could be done.
        dry_run: bool,
    },
    /// Deletes a group without members, and what it has committed. Answers [`Done`].
    DeleteOffsetGroup { group: String, dry_run: bool },
    /// Where a record is, and what became of it. Answers [`RecordHistory`](crate::history::RecordHistory).
    DescribeRecord { topic: String, place: Place },
    /// In all topics that may be read, unless one is named. Answers [`FoundRecords`](crate::history::FoundRecords).
    FindRecords {
        topic: Option<String>,
        by: By,
        from_ms: Option<i64>,
        after: Option<After>,
        records_max: u32,
    },
    /// An operation of another gateway, and its answer, in documents of that gateway.
    Family { family: String, operation: serde_json::Value },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// With what the topic holds.
    Earliest,
    /// With what comes.
    Latest,
}

/// Which dead letters are meant: all that match everything that is given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterFilter {
    /// The topic that they came from.
    pub source: Option<String>,
    pub reason: Option<String>,
    /// These and no others.
    pub records: Option<Vec<Place>>,
}

/// A stretch of a long piece of work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// `None`: the beginning.
    pub from: Option<Place>,
    /// Where the partitions ended when the work began, as the first answer said. What comes
    /// meanwhile is left alone: otherwise what dies again at once would keep the work going.
    pub until: Option<Vec<u64>>,
    pub records_max: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cancel {
    /// The value of `postroad.id`.
    Id(String),
    Records(Vec<Place>),
}

// --------------------------------------------------------------------------------------- answers

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardList {
    /// The catalog's first.
    pub shards: Vec<ShardSummary>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardSummary {
    pub shard: u32,
    pub holds: ShardContent,
    /// In which the node leads it.
    pub term: u64,
    /// The index after the last entry of its log.
    pub log_end: u64,
    pub topics: u64,
    pub partitions: u64,
    pub segments: u64,
    /// Of bodies in its segments that may still be read.
    pub live_bytes: u64,
    /// Since the node was started.
    pub syncs: u64,
    /// The average time of a sync since the node was started.
    pub sync_micros: u64,
    /// Records that other shards sent to topics that were deleted before they arrived, and that were dropped,
    /// since the node was started.
    pub unplaced: u64,
    /// Nodes that lack what the shard's log no longer has, as far as its leader knows: they are sent a snapshot.
    pub catching_up: Vec<CatchingUp>,
}

/// A node that is sent a snapshot of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CatchingUp {
    pub node: u64,
    /// Of the batches that it lacked it has so many bytes; 0 of 0 until it has said.
    pub bytes: u64,
    pub of_bytes: u64,
}

/// What a shard has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardContent {
    /// What topics, groups, configurations and documents there are.
    Catalog,
    /// Partitions.
    Records,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Elected {
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
    /// The client's library and its version; null: it has not told them.
    pub client: Option<String>,
    /// Null: nobody has logged in.
    pub user: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    pub records: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeclaredQueue {
    /// False when it was there already.
    pub created: bool,
    /// Whether values of one that was there changed.
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
    /// Records that are not settled: those that are ready, leased, delayed or on their way to the
    /// dead letters.
    pub depth: u64,
    pub ready: u64,
    pub leased: u64,
    pub leased_bytes: u64,
    /// As far as the group was read: one that nobody consumes counts all as ready.
    pub delayed: u64,
    pub consumers: u32,
    /// Timestamp of the oldest record that is not settled.
    pub oldest_unsettled_ms: Option<i64>,
    /// Its age: 0 when all is settled, null when it has no timestamp.
    pub lag_seconds: Option<f64>,
    /// Records that the topic ever took.
    pub published: u64,
    /// Since the node started, as the next three.
    pub delivered: u64,
    pub redelivered: u64,
    pub settled: u64,
    pub dead_letters: u64,
    /// Over the last ten seconds.
    pub rates: QueueRates,
    /// When this was counted.
    pub at_ms: i64,
}

/// Records a second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct QueueRates {
    /// Of the topic.
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
    /// The first of them.
    pub leases: Vec<Lease>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueConfig {
    pub name: String,
    pub value: String,
    /// Whether the group has it of its own, and not by default.
    pub own: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionProgress {
    pub partition: u32,
    /// Everything below is settled.
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
    /// 1: the first.
    pub attempt: u16,
    /// Who has it; a number that is told for as long as the session lives.
    pub session: u64,
    /// Null: when its session ends.
    pub expires_ms: Option<i64>,
}

/// A record as it lies in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredRecord {
    pub partition: u32,
    pub offset: u64,
    pub timestamp_ms: i64,
    pub key: Option<Payload>,
    pub value: Option<Payload>,
    pub headers: Vec<StoredHeader>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredHeader {
    pub name: String,
    pub value: Option<Payload>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordPage {
    pub records: Vec<QueuedRecord>,
    /// Where the next page begins; null: this is the last.
    pub next: Option<Place>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueuedRecord {
    pub state: RecordState,
    /// When it is due, or when its lease ends.
    pub until_ms: Option<i64>,
    /// How often it was delivered and came back.
    pub attempts: u16,
    #[serde(flatten)]
    pub record: StoredRecord,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordState {
    Ready,
    /// Ready but for an earlier record of its key.
    Blocked,
    Leased,
    Delayed,
    /// On its way to the dead letters.
    DeadLettering,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Removed {
    pub removed: u64,
    pub refused: Vec<NotRemoved>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotRemoved {
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
    pub next: Option<Place>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetterCount {
    /// The topic that they came from; null: they do not say.
    pub source: Option<String>,
    pub group: Option<String>,
    pub reason: Option<String>,
    pub records: u64,
    /// When the first and the last of them died.
    pub first_ms: Option<i64>,
    pub last_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetterPage {
    pub records: Vec<DeadLetter>,
    pub next: Option<Place>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    pub death: Death,
    #[serde(flatten)]
    pub record: StoredRecord,
}

/// What a dead letter's headers say about its end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Death {
    pub reason: Option<String>,
    /// How often it had been delivered.
    pub attempts: Option<u64>,
    /// Where it was.
    pub topic: Option<String>,
    pub partition: Option<u32>,
    pub offset: Option<u64>,
    pub group: Option<String>,
    pub time_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeadLettersMoved {
    /// To where they go, or out of the world.
    pub records: u64,
    /// They match and stay: a consumer has them, or nobody knows where they go.
    pub left: u64,
    pub next: Option<Place>,
    /// For the next [`Span`].
    pub until: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduledPage {
    pub records: Vec<ScheduledRecord>,
    pub next: Option<Place>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduledRecord {
    pub due_ms: i64,
    pub id: Option<Payload>,
    #[serde(flatten)]
    pub record: StoredRecord,
}
