//! Changes of the state other than appends, as they are persisted in the head of an entry.

use std::collections::BTreeMap;

use base::{LeaseGroupId, Level, Levelled, Offset, PartitionId, ShardId, TopicId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catalog::feed::{AdoptedGroup, Adoption};
use crate::catalog::together::DocumentsChange;
use crate::config::level_of;
use crate::ids::RecordIdsChange;
use crate::moves::{MOVES_SINCE, MoveEnd, MoveStep, Step};

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
    /// There are shards 1 to `count`; never fewer than before.
    SetShards {
        count: u32,
    },
    /// A shard takes over what changed in the catalog.
    Adopt(Adoption),
    /// Answers [`crate::Outcome::ProducerId`] with the first of `count` ids that nobody else gets.
    AllocateProducerIds {
        count: u32,
    },
    /// A message for another shard. Only in a unit, whose appends to the channel are its batches, in their
    /// order. The message's number is the first one's offset there.
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
    /// Whatever the lost end of this log gave out is not given out again.
    SkipNumbers(Skipped),
    /// Channels whose other ends, or this one, lost the end of their logs go on: each number only rises.
    ResumeChannels {
        /// The next message to a shard has at least this number.
        sent: Vec<(ShardId, Offset)>,
        /// The next message from a shard has at least this number.
        taken: Vec<(ShardId, Offset)>,
    },
    /// Makes a topic what is wanted, all of it or nothing, if it is what whoever asks has seen.
    ChangeTopic {
        topic: TopicId,
        seen: TopicDefinition,
        wanted: TopicDefinition,
    },
    /// Replaces the stored members of each group; no bytes: removes them.
    KeepMembers {
        groups: Vec<(String, Vec<u8>)>,
    },
    /// These partitions are wanted in another shard, all of them or none.
    MovePartitions {
        topic: TopicId,
        partitions: Vec<u32>,
        to: ShardId,
    },
    /// Of these those that move are wanted where they are, unless it is too late.
    CancelMoves {
        topic: TopicId,
        partitions: Vec<u32>,
    },
    /// A move is over.
    EndMove {
        partition: PartitionId,
        id: u64,
        end: MoveEnd,
    },
    /// One step of a move.
    Move(MoveStep),
    /// Ids of records that this entry appends, and of others. Stands alone; it sees how the appends ended.
    RecordIds(RecordIdsChange),
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

/// What of a topic can be changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TopicDefinition {
    /// How many; never fewer than before.
    pub partitions: u32,
    /// The whole set of its own values.
    pub config: BTreeMap<String, String>,
}

/// The catalog goes on from here; what is below stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Skipped {
    /// Shards with an earlier version take over all that there is.
    pub version: u64,
    pub next_topic: u32,
    pub next_lease_group: u32,
    pub next_producer_id: i64,
}

/// In whose log a command belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    Catalog,
    /// The shard that has the rows.
    Rows,
}

impl Command {
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
            | Self::Acknowledged { .. } => Home::Rows,
        }
    }

    /// About how many bytes it takes of an entry.
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
                Self::Send { batches, .. } => {
                    batches.iter().map(|batch| 8 + batch.targets.len() * 8).sum()
                }
                Self::ResumeChannels { sent, taken } => (sent.len() + taken.len()) * 12,
                Self::MovePartitions { partitions, .. } | Self::CancelMoves { partitions, .. } => {
                    partitions.len() * 5
                }
                Self::Move(MoveStep { what: Step::Activate { row, .. }, .. }) => row.weight(),
                Self::Move(MoveStep { what: Step::ImportIds(ids), .. }) => ids.weight(),
                Self::RecordIds(change) => change.weight(),
                Self::SetShards { .. }
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
    /// About how many bytes it takes of an entry.
    pub fn weight(&self) -> usize {
        16 + self.settled.len() * 8 + self.attempts.len() * 7
    }
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

/// A batch of a message, and which of the other shard's partitions get it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SentBatch {
    /// How many bytes the batch has: the machine sees none of them.
    pub bytes: u32,
    pub targets: Vec<PartitionId>,
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
