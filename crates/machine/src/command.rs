//! What an entry of the log may say, and how its head is encoded.
//!
//! An entry has bodies (batches, which the journal keeps) and a head (time and commands). The head
//! is what is encoded here; of a body the machine sees only what [`Append`] says.

use std::collections::BTreeMap;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What one log entry says: appends first, in the order of its bodies, then commands; all of it
/// happens at `now_ms`.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub now_ms: i64,
    pub appends: &'a [Append],
    pub commands: &'a [Command],
}

/// One body: what its batch's 61-byte header says, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Append {
    pub partition: PartitionId,
    pub base_offset: Offset,
    /// How many offsets the batch covers: its last offset delta plus one.
    pub span: u32,
    pub leader_epoch: i32,
    pub max_timestamp: i64,
    /// -1: none, and then epoch and sequence mean nothing.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

impl Append {
    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }
}

/// A change of the state other than an append.
///
/// Its ordinals and fields are persisted: a variant is only ever added at the end, and one that is
/// there never changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Answers [`crate::Outcome::Topics`]: each topic is made or refused by itself.
    CreateTopics {
        topics: Vec<NewTopic>,
    },
    DeleteTopic {
        topic: TopicId,
    },
    /// Grows a topic to `total` partitions.
    CreatePartitions {
        topic: TopicId,
        total: u32,
    },
    /// `config` is the whole new set of the topic's own values, not a change to it.
    SetTopicConfig {
        topic: TopicId,
        config: BTreeMap<String, String>,
    },
    /// The whole new set of what holds for the node and for topics that say nothing themselves.
    SetNodeConfig {
        config: BTreeMap<String, String>,
    },
    /// The whole new set of a group's own values.
    SetGroupConfig {
        group: String,
        config: BTreeMap<String, String>,
    },
    /// Deletes what is below (DeleteRecords, retention). Answers [`crate::Outcome::Starts`].
    AdvanceStart {
        starts: Vec<(PartitionId, Offset)>,
    },
    /// Everything below `up_to` was compacted once.
    Compacted {
        partition: PartitionId,
        up_to: Offset,
    },
    /// Answers [`crate::Outcome::ProducerId`].
    AllocateProducerId,
    /// Makes the group if there is none. Answers [`crate::Outcome::Committed`].
    CommitOffsets {
        group: String,
        offsets: Vec<CommitOffset>,
    },
    /// Partitions without a committed offset are passed over.
    DeleteOffsets {
        group: String,
        partitions: Vec<PartitionId>,
    },
    DeleteGroup {
        group: String,
    },
    /// In `groups`, which the leader knows to have been idle since before `before_ms`, forgets
    /// offsets that were committed before it, and those whose own expiry has come.
    ExpireOffsets {
        groups: Vec<String>,
        before_ms: i64,
    },
    /// Forgets producers that were silent since before `before_ms`, in every partition.
    ExpireProducers {
        before_ms: i64,
    },
    /// Answers [`crate::Outcome::LeaseGroup`], also when the topic has a group of this name with
    /// an equal configuration.
    CreateLeaseGroup {
        topic: TopicId,
        name: String,
        /// Where each partition begins; one that is missing begins at its start.
        starts: Vec<Offset>,
        /// The group's own values.
        config: BTreeMap<String, String>,
    },
    /// `config` is the whole new set of the lease group's own values.
    SetLeaseGroupConfig {
        group: LeaseGroupId,
        config: BTreeMap<String, String>,
    },
    DeleteLeaseGroup {
        group: LeaseGroupId,
    },
    PauseLeaseGroup {
        group: LeaseGroupId,
        paused: bool,
    },
    /// Forwards or back: everything below is settled, nothing else is, and no attempt is counted.
    /// Partitions that are not named stay as they are.
    SeekLeaseGroup {
        group: LeaseGroupId,
        starts: Vec<(u32, Offset)>,
    },
    /// Changes to the progress of any number of groups. What is settled already, or not there, or
    /// belongs to a group or a partition that is not there, is passed over.
    Settle {
        settles: Vec<GroupSettle>,
    },
    /// Makes or replaces a document. With `expect` only where its version is that one; 0 is that
    /// of a document which is not there. Answers [`crate::Outcome::Document`].
    PutDocument {
        space: String,
        name: String,
        body: Vec<u8>,
        expect: Option<u64>,
    },
    DeleteDocument {
        space: String,
        name: String,
        expect: Option<u64>,
    },
}

/// What changes in a lease group's progress in one partition. A record that is named by both is
/// settled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupSettle {
    pub group: LeaseGroupId,
    pub partition: u32,
    /// Ranges of records that are settled now: the first one's offset, and how many.
    pub settled: Vec<(Offset, u32)>,
    /// How often each of these was delivered, all told; 0 forgets it.
    pub attempts: Vec<(Offset, u16)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewTopic {
    pub name: String,
    /// Made by the proposer, since the machine knows no randomness.
    #[serde(with = "uuid_bytes")]
    pub uuid: Uuid,
    pub partitions: u32,
    /// The topic's own values; what it does not say is the node's.
    pub config: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommitOffset {
    pub partition: PartitionId,
    pub offset: Offset,
    /// -1: not known to the client.
    pub leader_epoch: i32,
    pub metadata: String,
    /// When it expires, if the client asked for a time of its own (OffsetCommit before version 5).
    pub expire_ms: Option<i64>,
}

/// First byte of every head.
const HEAD_VERSION: u8 = 1;

/// What a head that holds only appends needs: version, varint of a time, a zero.
const HEAD_BYTES_TYPICAL: usize = 16;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("there is nothing to decode")]
    Empty,
    #[error("not a machine snapshot")]
    NotASnapshot,
    #[error("version {found} is not known here (up to {known} is)")]
    UnknownVersion { found: u32, known: u32 },
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Checksum { expected: u32, found: u32 },
    #[error("{what} cannot be decoded: {source}")]
    Malformed { what: &'static str, source: postcard::Error },
    #[error("{bytes} bytes are left over")]
    LeftOver { bytes: usize },
    #[error("{what} {name:?} is not consistent")]
    Inconsistent { what: &'static str, name: String },
}

pub fn encode_head(now_ms: i64, commands: &[Command]) -> Bytes {
    let mut head = Vec::with_capacity(HEAD_BYTES_TYPICAL);
    head.push(HEAD_VERSION);
    let head = postcard::to_extend(&(now_ms, commands), head)
        .expect("a vector grows, and no command holds a type that postcard cannot encode");
    Bytes::from(head)
}

pub fn decode_head(head: &[u8]) -> Result<(i64, Vec<Command>), DecodeError> {
    let (&version, rest) = head.split_first().ok_or(DecodeError::Empty)?;
    if version != HEAD_VERSION {
        let (found, known) = (u32::from(version), u32::from(HEAD_VERSION));
        return Err(DecodeError::UnknownVersion { found, known });
    }
    let (decoded, rest) = postcard::take_from_bytes(rest)
        .map_err(|source| DecodeError::Malformed { what: "an entry's head", source })?;
    if rest.is_empty() { Ok(decoded) } else { Err(DecodeError::LeftOver { bytes: rest.len() }) }
}

/// A UUID as its 16 bytes.
pub(crate) mod uuid_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use uuid::Uuid;

    pub(crate) fn serialize<S: Serializer>(uuid: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        uuid.as_bytes().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        <[u8; 16]>::deserialize(from).map(Uuid::from_bytes)
    }
}
