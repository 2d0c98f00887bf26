//! History of a record, and search for records by their key, headers or ids.

use serde::{Deserialize, Serialize};

use crate::payload::Payload;
use crate::record::{Death, StoredRecord};

// ------------------------------------------------------------------------------------------- found

/// Property to search for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchKey {
    Key(Payload),
    /// The value of `postroad.id`.
    Id(String),
    /// AMQP's property.
    MessageId(String),
    /// Trace id of the W3C's `traceparent`: 32 hexadecimal digits, or a whole value of that header.
    TraceId(String),
    Header {
        name: String,
        value: Payload,
    },
}

/// Position at which a search continues.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchPosition {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
}

/// One part of a search; the next request continues.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundRecords {
    pub records: Vec<FoundRecord>,
    /// Number of records compared, and bytes read for that.
    pub looked_at: u64,
    pub looked_at_bytes: u64,
    /// Null: the search is complete.
    pub next: Option<SearchPosition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundRecord {
    pub topic: String,
    #[serde(flatten)]
    pub record: StoredRecord,
}

// ----------------------------------------------------------------------------------------- history

/// State of a record in each group, and its remembered events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordHistory {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
    pub presence: Presence,
    /// Log start and end offset of the partition.
    pub start: u64,
    pub end: u64,
    /// Null if the record is absent.
    pub record: Option<StoredRecord>,
    /// For a dead letter: its former place, and the reason of its death.
    pub death: Option<Death>,
    /// Lease groups visible to the caller.
    pub groups: Vec<GroupHistory>,
    /// Groups with a committed offset in this partition.
    pub offset_groups: Vec<OffsetGroupSeen>,
    /// There are more groups than were queried.
    pub truncated: bool,
    /// Start of the memory that all nodes cover; null: every event since the nodes started is remembered.
    pub remembered_since_ms: Option<i64>,
    /// Nodes that did not report their events.
    pub silent_nodes: Vec<u32>,
    /// Set if the topic stores traces: the events include the stored ones. Null: nothing is stored about the record.
    #[serde(default)]
    pub traced: Option<TracedSeen>,
}

/// Outcome of the search for a record's stored trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedSeen {
    /// The search hit a limit of the request, or an unreadable part: there may be more events than listed.
    pub cut_short: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    There,
    /// By retention, compaction or a user, or because every group has settled it.
    Deleted,
    /// Nothing has been appended at this offset yet.
    ToCome,
}

/// State of a record in a lease group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupHistory {
    pub group: String,
    pub state: GroupState,
    /// Due time of a delayed record, or end of its lease.
    pub until_ms: Option<i64>,
    /// Number of deliveries that came back.
    pub attempts: u16,
    /// Offset of an earlier record of the same key that blocks it.
    pub behind: Option<u64>,
    /// Session that holds it.
    pub session: Option<SessionSeen>,
    pub paused: bool,
    /// Dead-letter topic of the group, if set on the group itself.
    pub dead_letter_topic: Option<String>,
    /// Events in their order.
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    Settled,
    Ready,
    /// Ready except for an earlier record of its key.
    Blocked,
    Leased,
    Delayed,
    /// In transit to the dead letters, or settled by an entry of the log that is in flight.
    DeadLettering,
    /// The record is absent.
    Gone,
    /// The leader did not report it.
    Unknown,
}

/// An event in the life of a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Clock of the node that led the shard.
    pub at_ms: i64,
    pub node: u32,
    pub what: RecordEvent,
    /// For [`RecordEvent::Died`]: `rejected`, `attempts` or `expired`.
    pub reason: Option<String>,
    /// Delivery number, from 1.
    pub attempt: Option<u16>,
    /// Session that caused it.
    pub session: Option<SessionSeen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordEvent {
    Delivered,
    /// Settled on delivery, for a consumer that does not acknowledge.
    DeliveredAndSettled,
    Accepted,
    /// Returned by its session.
    Released,
    Rejected,
    /// Its lease expired.
    TimedOut,
    /// Its consumer or session ended.
    SessionEnded,
    /// Settled once its transaction is in the log.
    AcceptedInTransaction,
    /// The operation that was to settle it took no effect.
    GivenBack,
    /// The group was moved, or the log start offset passed the record.
    Voided,
    /// No longer delivered: a dead letter, if the group keeps them.
    Died,
    /// Its dead letter or its transaction is in the log.
    Settled,
    /// Settled by an operator.
    Removed,
}

/// Session that has, or had, a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionSeen {
    pub session: u64,
    /// Null, as the rest: its node no longer remembers it.
    pub protocol: Option<String>,
    pub user: Option<String>,
    pub client: Option<String>,
    /// The client's address and port.
    pub peer: Option<String>,
    /// Number of its connection.
    pub connection: Option<u64>,
}

/// State of a record in a group that commits offsets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffsetGroupSeen {
    pub group: String,
    /// Offset of the next record to read.
    pub offset: u64,
    /// Whether this record lies below that offset.
    pub read: bool,
}
