//! What became of a record, and where records are found by what they say of themselves.

use serde::{Deserialize, Serialize};

use crate::document::{Death, StoredRecord};
use crate::payload::Payload;

// ------------------------------------------------------------------------------------------- found

/// What a record that is looked for has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    Key(Payload),
    /// The value of `postroad.id`.
    Id(String),
    /// AMQP's property.
    MessageId(String),
    /// Of the W3C's `traceparent`: 32 hexadecimal digits, or a whole value of that header.
    TraceId(String),
    Header {
        name: String,
        value: Payload,
    },
}

/// Where a search goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct After {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
}

/// A stretch of a search: the next request goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundRecords {
    pub records: Vec<FoundRecord>,
    /// How many records were compared, and how many bytes were read for that.
    pub looked_at: u64,
    pub looked_at_bytes: u64,
    /// Null: that was all.
    pub next: Option<After>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundRecord {
    pub topic: String,
    #[serde(flatten)]
    pub record: StoredRecord,
}

// ----------------------------------------------------------------------------------------- history

/// Where a record is, what it is to each group, and what happened to it, as far as that is remembered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordHistory {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
    pub presence: Presence,
    /// What the partition has.
    pub start: u64,
    pub end: u64,
    /// Null where it is not there.
    pub record: Option<StoredRecord>,
    /// Of a dead letter: where it was before, and why it is none any more.
    pub death: Option<Death>,
    /// Groups that settle one by one, of those that may be seen.
    pub groups: Vec<GroupHistory>,
    /// Groups that commit offsets, of those that committed one in this partition.
    pub offset_groups: Vec<OffsetGroupSeen>,
    /// There are more groups than were asked.
    pub truncated: bool,
    /// What happened before is not remembered everywhere; null: all that happened since the nodes were started is.
    pub remembered_since_ms: Option<i64>,
    /// Nodes that did not say what they remember.
    pub silent_nodes: Vec<u32>,
    /// What was written of the record, since its topic asks for that, is among what happened. Null: nothing is written of it.
    #[serde(default)]
    pub traced: Option<TracedSeen>,
}

/// How what was written of a record was looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedSeen {
    /// There was more to look through than a request may take, or it could not be read: there may be more than is said.
    pub cut_short: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    There,
    /// By retention, by compaction, by somebody, or because every group has settled it.
    Deleted,
    /// Nothing was appended at this place yet.
    ToCome,
}

/// What a record is to a group that settles one by one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupHistory {
    pub group: String,
    pub state: GroupState,
    /// When it is due, or when its lease ends.
    pub until_ms: Option<i64>,
    /// How often it was delivered and came back.
    pub attempts: u16,
    /// The offset of the record of its key that it waits for.
    pub behind: Option<u64>,
    /// Who has it.
    pub session: Option<SessionSeen>,
    pub paused: bool,
    /// Where the group's dead letters go, if the group says it itself.
    pub dead_letter_topic: Option<String>,
    /// What happened, in its order.
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    Settled,
    Ready,
    /// Ready but for an earlier record of its key.
    Blocked,
    Leased,
    Delayed,
    /// On its way to the dead letters, or settled by an entry of the log that is under way.
    DeadLettering,
    /// The record is not there.
    Gone,
    /// The node that leads did not say.
    Unknown,
}

/// Something that happened to a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// By the clock of the node that led the shard.
    pub at_ms: i64,
    pub node: u32,
    pub what: Happened,
    /// Of [`Happened::Died`]: `rejected`, `attempts` or `expired`.
    pub reason: Option<String>,
    /// Of which delivery; 1 is the first.
    pub attempt: Option<u16>,
    /// By whom.
    pub session: Option<SessionSeen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happened {
    Delivered,
    /// Settled with that, as by a consumer that acknowledges nothing.
    DeliveredAndSettled,
    Accepted,
    /// Given back by its session.
    Released,
    Rejected,
    /// Its lease ran out.
    TimedOut,
    /// Its consumer or its session went.
    SessionEnded,
    /// It is settled once its transaction is in the log.
    AcceptedInTransaction,
    /// What was to settle it took no effect.
    GivenBack,
    /// The group was moved, or the log begins behind it now.
    Voided,
    /// It is not delivered any more: a dead letter, where the group keeps them.
    Died,
    /// The log has its dead letter, or its transaction.
    Settled,
    /// An operator settled it.
    Removed,
}

/// Through what somebody has, or had, a record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionSeen {
    pub session: u64,
    /// Null, as the rest: its node does not remember it.
    pub protocol: Option<String>,
    pub user: Option<String>,
    pub client: Option<String>,
    /// The client's address and port.
    pub peer: Option<String>,
    /// The number of its connection.
    pub connection: Option<u64>,
}

/// What a record is to a group that commits offsets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffsetGroupSeen {
    pub group: String,
    /// Of the next record that it reads.
    pub offset: u64,
    /// Whether this one lies before that.
    pub read: bool,
}
