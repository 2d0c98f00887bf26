//! Changes of the state other than appends, as they are persisted in the head of an entry.
//!
//! * `adoption`: changes of the catalog that a shard adopts
//! * `documents`: a change of several documents and a topic
//! * `message`: messages to other shards
//! * `transaction`: transactions of Kafka's producers
//!
//! It depends on `moves`, `ids` and `config`, and knows no state.

mod adoption;
mod documents;
mod message;
mod transaction;

use std::collections::BTreeMap;

use base::{LeaseGroupId, Level, Levelled, Offset, PartitionId, ShardId, TopicId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::level_of;
use crate::ids::RecordIdsChange;
use crate::moves::{MOVES_SINCE, MoveEnd, MoveStep, Step};
use crate::stored::uuid_bytes;

pub use adoption::{AdoptedGroup, AdoptedTopic, Adoption};
pub use documents::{Check, DocumentChange, DocumentsChange, NewGroup, TopicChange};
pub use message::{MessageCommand, MessageParts, Preparation, SentBatch, SentMessage};
pub use transaction::{EndCause, EndedPart, ProducerKey, TransactionCommand};

/// A change of the state other than an append.
///
/// Its ordinals and fields are persisted: a variant is only ever added at the end, and an existing
/// one never changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Returns [`crate::Outcome::Topics`]: each topic is created or refused on its own.
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
    /// `config` is the complete new set of the topic's own values, not a change to it.
    SetTopicConfig {
        topic: TopicId,
        config: BTreeMap<String, String>,
    },
    /// The complete new set of values of the node, which are defaults for topics.
    SetNodeConfig {
        config: BTreeMap<String, String>,
    },
    /// The complete new set of a group's own values.
    SetGroupConfig {
        group: String,
        config: BTreeMap<String, String>,
    },
    /// Deletes records below (DeleteRecords, retention). Returns [`crate::Outcome::Starts`].
    AdvanceStart {
        starts: Vec<(PartitionId, Offset)>,
    },
    /// Everything below `up_to` was compacted once.
    Compacted {
        partition: PartitionId,
        up_to: Offset,
    },
    /// Returns [`crate::Outcome::ProducerId`].
    AllocateProducerId,
    /// Creates the group if needed. Returns [`crate::Outcome::Committed`].
    CommitOffsets {
        group: String,
        offsets: Vec<CommitOffset>,
    },
    /// Partitions without a committed offset are skipped.
    DeleteOffsets {
        group: String,
        partitions: Vec<PartitionId>,
    },
    DeleteGroup {
        group: String,
    },
    /// In `groups`, which the leader knows to have been idle since before `before_ms`, expires
    /// offsets that were committed before it, and those whose own expiry has passed.
    ExpireOffsets {
        groups: Vec<String>,
        before_ms: i64,
    },
    /// Expires producers idle since before `before_ms`, in every partition.
    ExpireProducers {
        before_ms: i64,
    },
    /// Returns [`crate::Outcome::LeaseGroup`], also when the topic has a group of this name with an
    /// equal configuration.
    CreateLeaseGroup {
        topic: TopicId,
        name: String,
        /// Start offset in each partition; a missing one is the partition's start.
        starts: Vec<Offset>,
        /// The group's own values.
        config: BTreeMap<String, String>,
    },
    /// `config` is the complete new set of the lease group's own values.
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
    /// Moves floors forward or back: everything below is settled, nothing else is, and attempts are
    /// reset. Partitions that are not listed are unchanged.
    SeekLeaseGroup {
        group: LeaseGroupId,
        starts: Vec<(u32, Offset)>,
    },
    /// Changes the progress of any number of groups. Records already settled or absent, and unknown
    /// groups or partitions, are skipped.
    Settle {
        settles: Vec<GroupSettle>,
    },
    /// Creates or replaces a document. With `expect` only if it has that version; 0 is the version
    /// of an absent document. Returns [`crate::Outcome::Document`].
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
    /// Sets the shards 1 to `count`; never fewer than before.
    SetShards {
        count: u32,
    },
    /// A shard adopts changes of the catalog.
    Adopt(Adoption),
    /// Returns [`crate::Outcome::ProducerId`] with the first of `count` ids reserved for the
    /// caller.
    AllocateProducerIds {
        count: u32,
    },
    /// A message for another shard. Only in a unit, whose appends to the channel are its batches,
    /// in their order. The message's number is the first batch's offset there.
    Send {
        to: ShardId,
        batches: Vec<SentBatch>,
    },
    /// The other shard has all messages of the channel with lower numbers.
    Acknowledged {
        to: ShardId,
        below: Offset,
    },
    /// Any number of documents, and a topic with them.
    ChangeDocuments(DocumentsChange),
    /// Numbers assigned in the lost end of this log are not assigned again.
    SkipNumbers(MinimumCounters),
    /// Resumes channels after this shard or the other one lost the end of its log: each number only
    /// rises.
    ResumeChannels {
        /// The next message to a shard has at least this number.
        sent: Vec<(ShardId, Offset)>,
        /// The next message from a shard has at least this number.
        taken: Vec<(ShardId, Offset)>,
    },
    /// Changes a topic to `wanted` as a whole, if it still matches `seen`.
    ChangeTopic {
        topic: TopicId,
        seen: TopicDefinition,
        wanted: TopicDefinition,
    },
    /// Replaces the stored members of each group; empty bytes remove them.
    KeepMembers {
        groups: Vec<(String, Vec<u8>)>,
    },
    /// Moves these partitions to another shard, all of them or none.
    MovePartitions {
        topic: TopicId,
        partitions: Vec<u32>,
        to: ShardId,
    },
    /// Cancels the moves of these partitions, unless it is too late.
    CancelMoves {
        topic: TopicId,
        partitions: Vec<u32>,
    },
    /// Ends a move.
    EndMove {
        partition: PartitionId,
        id: u64,
        end: MoveEnd,
    },
    /// One step of a move.
    Move(MoveStep),
    /// Ids of records that this entry appends, and of others. Stands alone; it uses the outcomes of
    /// the appends.
    RecordIds(RecordIdsChange),
    /// A message as by `Send`, with commands. Its batches may be for no partition: without any batch
    /// it would have no number.
    SendWith {
        to: ShardId,
        batches: Vec<SentBatch>,
        commands: Vec<MessageCommand>,
        /// The other shard's preparation for the commands: see `Fence`.
        preparation: Preparation,
    },
    /// A command of a message from another shard. Only in the unit of that message.
    FromMessage(MessageCommand),
    /// Another shard gives up its earlier preparations: it has begun a term, or the sessions that requested them have
    /// ended. This shard sends it no more commands that need one of them. Returns [`crate::Outcome::Fenced`].
    Fence {
        shard: ShardId,
        before: Preparation,
    },
    /// A change of transactions of Kafka's producers.
    Transaction(TransactionCommand),
}

base::levels!(Command {
    Level::FIRST => DeleteTopic | CreatePartitions
        | SetGroupConfig | AdvanceStart | Compacted | AllocateProducerId
        | CommitOffsets | DeleteOffsets | DeleteGroup | ExpireOffsets | ExpireProducers
        | CreateLeaseGroup | SetLeaseGroupConfig | DeleteLeaseGroup | PauseLeaseGroup
        | SeekLeaseGroup | Settle | PutDocument | DeleteDocument | SetShards | Adopt
        | AllocateProducerIds | Send | Acknowledged | SkipNumbers
        | ResumeChannels | KeepMembers;
    MOVES_SINCE => MovePartitions | CancelMoves | EndMove;
    Level::RECORD_IDS => RecordIds;
    Level::MESSAGE_COMMANDS => Fence;
    @ Self::SendWith { commands, .. } => {
        commands.iter().map(Levelled::level).fold(Level::MESSAGE_COMMANDS, Ord::max)
    };
    @ Self::FromMessage(command) => command.level();
    @ Self::Transaction(command) => command.level();
    @ Self::Move(step) => step.level();
    @ Self::ChangeDocuments(change) => change.level();
    @ Self::CreateTopics { topics } => topics.iter().map(Levelled::level).max().unwrap_or_default();
    @ Self::SetTopicConfig { config, .. } => level_of(config);
    @ Self::SetNodeConfig { config } => level_of(config);
    @ Self::ChangeTopic { wanted, .. } => level_of(&wanted.config);
});

impl Levelled for NewTopic {
    fn level(&self) -> Level {
        level_of(&self.config)
    }
}

/// The changeable part of a topic.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TopicDefinition {
    /// Number of partitions; never fewer than before.
    pub partitions: u32,
    /// The complete set of its own values.
    pub config: BTreeMap<String, String>,
}

/// Minimum counters from which the catalog continues; lower assignments stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MinimumCounters {
    /// Shards with an earlier version adopt everything that exists.
    pub version: u64,
    pub next_topic: u32,
    pub next_lease_group: u32,
    pub next_producer_id: i64,
}

/// The log that a command belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    Catalog,
    /// The log of the shard with the rows.
    Rows,
}

impl Command {
    /// Whether it sends a message.
    pub fn is_message(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::SendWith { .. })
    }

    /// The message that it sends, and the shard that receives it.
    pub fn sends(&self) -> Option<(ShardId, MessageParts<'_>)> {
        let (to, batches, commands) = match self {
            Self::Send { to, batches } => (to, batches, &[][..]),
            Self::SendWith { to, batches, commands, .. } => (to, batches, &commands[..]),
            _ => return None,
        };
        Some((*to, MessageParts { batches, commands }))
    }

    pub fn home(&self) -> Home {
        match self {
            Self::CreateTopics { .. }
            | Self::DeleteTopic { .. }
            | Self::CreatePartitions { .. }
            | Self::SetTopicConfig { .. }
            | Self::ChangeTopic { .. }
            | Self::SetNodeConfig { .. }
            | Self::SetGroupConfig { .. }
            | Self::AllocateProducerId
            | Self::AllocateProducerIds { .. }
            | Self::CreateLeaseGroup { .. }
            | Self::SetLeaseGroupConfig { .. }
            | Self::DeleteLeaseGroup { .. }
            | Self::PauseLeaseGroup { .. }
            | Self::PutDocument { .. }
            | Self::DeleteDocument { .. }
            | Self::ChangeDocuments(_)
            | Self::SkipNumbers(_)
            | Self::MovePartitions { .. }
            | Self::CancelMoves { .. }
            | Self::EndMove { .. }
            | Self::SetShards { .. } => Home::Catalog,
            Self::AdvanceStart { .. }
            | Self::Compacted { .. }
            | Self::CommitOffsets { .. }
            | Self::DeleteOffsets { .. }
            | Self::DeleteGroup { .. }
            | Self::ExpireOffsets { .. }
            | Self::KeepMembers { .. }
            | Self::ExpireProducers { .. }
            | Self::SeekLeaseGroup { .. }
            | Self::Settle { .. }
            | Self::Adopt(_)
            | Self::Send { .. }
            | Self::ResumeChannels { .. }
            | Self::Move(_)
            | Self::RecordIds(_)
            | Self::SendWith { .. }
            | Self::FromMessage(_)
            | Self::Fence { .. }
            | Self::Transaction(_)
            | Self::Acknowledged { .. } => Home::Rows,
        }
    }

    /// Approximate size in an entry.
    pub fn weight(&self) -> usize {
        const SMALL: usize = 32;
        let values = |values: &BTreeMap<String, String>| -> usize {
            values.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
        };
        SMALL
            + match self {
                Self::CreateTopics { topics } => {
                    topics.iter().map(|new| SMALL + new.name.len() + values(&new.config)).sum()
                }
                Self::SetTopicConfig { config, .. }
                | Self::SetNodeConfig { config }
                | Self::SetGroupConfig { config, .. }
                | Self::SetLeaseGroupConfig { config, .. } => values(config),
                Self::ChangeTopic { seen, wanted, .. } => {
                    values(&seen.config) + values(&wanted.config)
                }
                Self::AdvanceStart { starts } => starts.len() * 16,
                Self::CommitOffsets { group, offsets } => {
                    let of = |commit: &CommitOffset| SMALL + commit.metadata.len();
                    group.len() + offsets.iter().map(of).sum::<usize>()
                }
                Self::DeleteOffsets { group, partitions } => group.len() + partitions.len() * 8,
                Self::ExpireOffsets { groups, .. } => groups.iter().map(|it| it.len() + 2).sum(),
                Self::KeepMembers { groups } => {
                    groups.iter().map(|(group, members)| 8 + group.len() + members.len()).sum()
                }
                Self::CreateLeaseGroup { name, starts, config, .. } => {
                    name.len() + starts.len() * 8 + values(config)
                }
                Self::SeekLeaseGroup { starts, .. } => starts.len() * 12,
                Self::Settle { settles } => settles.iter().map(GroupSettle::weight).sum(),
                Self::PutDocument { space, name, body, .. } => {
                    space.len() + name.len() + body.len()
                }
                Self::Adopt(adoption) => {
                    let of_group = |group: &AdoptedGroup| SMALL + group.starts.len() * 8;
                    let gone = adoption.topics_gone.len() + adoption.groups_gone.len();
                    adoption.topics.len() * SMALL
                        + adoption.groups.iter().map(of_group).sum::<usize>()
                        + gone * 5
                }
                Self::ChangeDocuments(change) => change.weight(),
                Self::Send { batches, .. } => batches.iter().map(SentBatch::weight).sum(),
                Self::SendWith { batches, commands, .. } => {
                    batches.iter().map(SentBatch::weight).sum::<usize>()
                        + commands.iter().map(MessageCommand::weight).sum::<usize>()
                }
                Self::FromMessage(command) => command.weight(),
                Self::ResumeChannels { sent, taken } => (sent.len() + taken.len()) * 12,
                Self::MovePartitions { partitions, .. } | Self::CancelMoves { partitions, .. } => {
                    partitions.len() * 5
                }
                Self::Move(MoveStep { what: Step::Activate { row, .. }, .. }) => row.weight(),
                Self::Move(MoveStep { what: Step::ActivateWith { row, aborted, .. }, .. }) => {
                    row.weight() + aborted.len() * 24
                }
                Self::Move(MoveStep { what: Step::ImportIds(ids), .. }) => ids.weight(),
                Self::RecordIds(change) => change.weight(),
                Self::Transaction(command) => command.weight(),
                Self::SetShards { .. }
                | Self::Fence { .. }
                | Self::EndMove { .. }
                | Self::Move(_)
                | Self::SkipNumbers(_)
                | Self::Acknowledged { .. }
                | Self::DeleteTopic { .. }
                | Self::CreatePartitions { .. }
                | Self::Compacted { .. }
                | Self::AllocateProducerId
                | Self::AllocateProducerIds { .. }
                | Self::DeleteGroup { .. }
                | Self::ExpireProducers { .. }
                | Self::DeleteLeaseGroup { .. }
                | Self::PauseLeaseGroup { .. }
                | Self::DeleteDocument { .. } => 0,
            }
    }
}

impl GroupSettle {
    /// Approximate size in an entry.
    pub fn weight(&self) -> usize {
        16 + self.settled.len() * 8 + self.attempts.len() * 7
    }
}

/// Changes of a lease group's progress in one partition. A record in both lists is settled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupSettle {
    pub group: LeaseGroupId,
    pub partition: u32,
    /// Ranges of newly settled records: first offset and length.
    pub settled: Vec<(Offset, u32)>,
    /// Total deliveries of each record; 0 resets it.
    pub attempts: Vec<(Offset, u16)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewTopic {
    pub name: String,
    /// Generated by the proposer, since the machine has no randomness.
    #[serde(with = "uuid_bytes")]
    pub uuid: Uuid,
    pub partitions: u32,
    /// The topic's own values; the node's values apply to all others.
    pub config: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommitOffset {
    pub partition: PartitionId,
    pub offset: Offset,
    /// -1: unknown to the client.
    pub leader_epoch: i32,
    pub metadata: String,
    /// Expiry time, if the client requested its own (OffsetCommit before version 5).
    pub expire_ms: Option<i64>,
}
