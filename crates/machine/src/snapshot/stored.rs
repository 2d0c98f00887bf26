//! The persisted form of what a snapshot holds. These types ARE the format (in postcard's encoding,
//! field by field): they never change. What a later version adds gets types of its own, and the
//! state's types change as they like.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::{OffsetRanges, SharedMap};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::command::uuid_bytes;

/// A topic's, a node's or a group's own values, by name.
type Values = BTreeMap<String, String>;

#[derive(Serialize, Deserialize)]
pub(super) struct CatalogV1<'a> {
    pub(super) next_topic: u32,
    pub(super) next_producer_id: i64,
    pub(super) node_config: Cow<'a, Values>,
    pub(super) group_configs: BTreeMap<Cow<'a, str>, Cow<'a, Values>>,
    pub(super) topics: u64,
    pub(super) groups: u64,
}

/// Followed by as many [`PartitionV1`] as it says.
#[derive(Serialize, Deserialize)]
pub(super) struct TopicV1<'a> {
    pub(super) id: u32,
    #[serde(with = "uuid_bytes")]
    pub(super) uuid: Uuid,
    pub(super) name: Cow<'a, str>,
    pub(super) created_ms: i64,
    pub(super) overrides: Cow<'a, Values>,
    pub(super) partitions: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PartitionV1 {
    pub(crate) log_start: u64,
    pub(crate) next_offset: u64,
    pub(crate) active: Option<ActiveV1>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ActiveV1 {
    /// Leader epochs, and where each begins.
    pub(crate) epochs: Vec<(i32, u64)>,
    pub(crate) producers: Vec<(i64, ProducerV1)>,
    pub(crate) compacted_to: u64,
    pub(crate) last_append_ms: i64,
    pub(crate) max_timestamp: i64,
}

/// How many batches of a producer the format has room for.
pub(crate) const PRODUCER_BATCHES_V1: usize = 5;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProducerV1 {
    pub(crate) last_ms: i64,
    pub(crate) epoch: i16,
    pub(crate) remembered: u8,
    /// First and last sequence, base offset. Oldest first; only the first `remembered` count.
    pub(crate) batches: [(i32, i32, u64); PRODUCER_BATCHES_V1],
}

/// Followed by as many [`CommittedOffsetV1`] as it says, ascending by topic and partition.
#[derive(Serialize, Deserialize)]
pub(super) struct GroupV1<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) offsets: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CommittedOffsetV1<'a> {
    pub(crate) topic: u32,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: Cow<'a, str>,
    pub(crate) commit_ms: i64,
    pub(crate) expire_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct DeliveryV2 {
    pub(super) next_lease_group: u32,
    pub(super) documents_version: u64,
    pub(super) lease_groups: u64,
    pub(super) documents: u64,
}

/// Followed by as many [`ProgressV2`] as it says, then by [`LeaseGroupEndV2`].
#[derive(Serialize, Deserialize)]
pub(super) struct LeaseGroupV2<'a> {
    pub(super) id: u32,
    pub(super) topic: u32,
    pub(super) name: Cow<'a, str>,
    pub(super) overrides: Cow<'a, Values>,
    pub(super) partitions: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct LeaseGroupEndV2 {
    pub(super) paused: bool,
    pub(super) created_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ProgressV2<'a> {
    pub(crate) floor: u64,
    pub(crate) above: Option<ExceptionsV2<'a>>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ExceptionsV2<'a> {
    /// Encoded as a map of begins and ends.
    pub(crate) settled: Cow<'a, OffsetRanges>,
    pub(crate) attempts: Cow<'a, SharedMap<u64, u16>>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct DocumentV2<'a> {
    pub(super) space: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) version: u64,
    pub(super) body: Cow<'a, [u8]>,
}

/// What version 3 added, at the end.
#[derive(Serialize, Deserialize)]
pub(super) struct TimeV3 {
    /// The time of the log, ms since the epoch.
    pub(super) last_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(super) enum RoleV4 {
    Catalog,
    Rows { shard: u32 },
}

#[derive(Serialize, Deserialize)]
pub(super) struct CatalogV4<'a> {
    pub(super) next_topic: u32,
    pub(super) next_producer_id: i64,
    pub(super) shards: u32,
    /// Over how many of them groups are spread.
    pub(super) slot_shards: u32,
    pub(super) node_config: Cow<'a, Values>,
    pub(super) group_configs: BTreeMap<Cow<'a, str>, Cow<'a, Values>>,
    pub(super) topics: u64,
    pub(super) next_lease_group: u32,
    pub(super) lease_groups: u64,
    pub(super) documents_version: u64,
    pub(super) documents: u64,
    /// Of the last change.
    pub(super) version: u64,
    /// Up to which removals are forgotten.
    pub(super) forgotten: u64,
    pub(super) changes: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TopicV4<'a> {
    pub(super) id: u32,
    #[serde(with = "uuid_bytes")]
    pub(super) uuid: Uuid,
    pub(super) name: Cow<'a, str>,
    pub(super) created_ms: i64,
    pub(super) overrides: Cow<'a, Values>,
    pub(super) partitions: u32,
    /// The shard of partition 0, counted from the first with rows, and how many shards it goes round.
    pub(super) start: u32,
    pub(super) shards: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct DefinitionV4<'a> {
    pub(super) id: u32,
    pub(super) topic: u32,
    pub(super) name: Cow<'a, str>,
    pub(super) overrides: Cow<'a, Values>,
    pub(super) paused: bool,
    pub(super) created_ms: i64,
    pub(super) starts: Cow<'a, [u64]>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChangeV4 {
    pub(super) version: u64,
    pub(super) changed: ChangedV4,
}

#[derive(Serialize, Deserialize)]
pub(super) enum ChangedV4 {
    Topic(u32),
    LeaseGroup(u32),
    TopicGone(u32),
    LeaseGroupGone(u32),
}

#[derive(Serialize, Deserialize)]
pub(super) struct RowsV4 {
    /// The catalog's version that is taken over.
    pub(super) adopted: u64,
    pub(super) topics: u64,
    pub(super) groups: u64,
    pub(super) lease_groups: u64,
}

/// Followed by as many [`PartitionV1`] as it says.
#[derive(Serialize, Deserialize)]
pub(super) struct TopicRowsV4 {
    pub(super) id: u32,
    pub(super) first: u32,
    pub(super) step: u32,
    pub(super) deletes_settled: bool,
    pub(super) rows: u64,
}

/// Followed by a [`ProgressV2`] for each row of the topic.
#[derive(Serialize, Deserialize)]
pub(super) struct GroupRowsV4 {
    pub(super) id: u32,
    pub(super) topic: u32,
}

/// What version 5 added, at the end: what is sent to other shards, and what was taken from them.
/// Followed by as many [`OutboxV5`] and [`ExpectedV5`] as it says, by shard.
#[derive(Serialize, Deserialize)]
pub(super) struct ChannelsV5 {
    pub(super) outboxes: u64,
    pub(super) sources: u64,
}

/// Followed by a [`PartitionV1`] and as many [`MessageV5`] as it says, by number.
#[derive(Serialize, Deserialize)]
pub(super) struct OutboxV5 {
    pub(super) to: u32,
    pub(super) messages: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MessageV5 {
    pub(super) number: u64,
    pub(super) batches: Vec<SentBatchV5>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SentBatchV5 {
    pub(super) bytes: u32,
    /// Topics and partitions.
    pub(super) targets: Vec<(u32, u32)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ExpectedV5 {
    pub(super) from: u32,
    pub(super) number: u64,
}

/// What version 6 added, before the channels: followed by as many [`MembershipV6`] as it says, by name.
#[derive(Serialize, Deserialize)]
pub(super) struct MembershipsV6 {
    pub(super) groups: u64,
    /// Whether channels come behind them.
    pub(super) channels: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MembershipV6<'a> {
    pub(super) group: Cow<'a, str>,
    pub(super) members: Cow<'a, [u8]>,
}

/// What version 7 added in a catalog, at the end: moves of partitions. Followed by as many [`TopicMovesV7`] as it says.
#[derive(Serialize, Deserialize)]
pub(super) struct CatalogMovesV7 {
    pub(super) version: u64,
    pub(super) topics: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TopicMovesV7 {
    pub(super) topic: u32,
    /// Partitions that moved: shard and epoch base.
    pub(super) placed: Vec<(u32, u32, i32)>,
    /// Partitions that move: to which shard, the move's number, whether it is cancelled.
    pub(super) moving: Vec<(u32, u32, u64, bool)>,
}

/// What version 7 added in rows, before members of groups and channels: each only if it says so.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsV7 {
    pub(super) members: bool,
    pub(super) channels: bool,
    /// Topics with moves, followed by a [`RowsMovesV7`] of each, at the end.
    pub(super) topics: u64,
}

/// What version 8 has in its place.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsV8 {
    pub(super) members: bool,
    pub(super) channels: bool,
    pub(super) topics: u64,
    /// Those that brought something, a [`BroughtV8`] of each behind all else.
    pub(super) nodes: u64,
}

/// The parts of version 9.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsV9 {
    pub(super) members: bool,
    pub(super) channels: bool,
    pub(super) topics: u64,
    pub(super) nodes: u64,
    /// Topics with ids of records: a [`TopicIdsV9`] of each with its ids, behind all else.
    pub(super) with_ids: u64,
    /// No id within a window is missing.
    pub(super) ids_complete: bool,
    /// Ids that a limit displaced.
    pub(super) ids_forgotten_early: u64,
}

/// Followed by as many [`IdV9`] as it says, in the order of arrival.
#[derive(Serialize, Deserialize)]
pub(super) struct TopicIdsV9 {
    pub(super) topic: u32,
    pub(super) forgotten_to_ms: Option<i64>,
    pub(super) ids: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct IdV9 {
    pub(super) hash: [u8; 16],
    /// Arrival time, less that of the id before it.
    pub(super) later_ms: i64,
    pub(super) partition: u32,
    pub(super) offset: u64,
}

/// What a run of a node brought.
#[derive(Serialize, Deserialize)]
pub(super) struct BroughtV8 {
    pub(super) node: u32,
    pub(super) incarnation: u64,
    pub(super) next: u64,
    pub(super) at_ms: i64,
    /// Number, rows, offset of the first one, offsets of each.
    pub(super) taken: Vec<(u64, u32, u64, u32)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RowsMovesV7 {
    pub(super) topic: u32,
    pub(super) guests: Vec<(u32, PartitionV1)>,
    /// The move's number, epoch base.
    pub(super) arrived: Vec<(u32, u64, i32)>,
    /// The move's number, first and next offset.
    pub(super) imports: Vec<(u32, u64, u64, u64)>,
    /// The move's number, to which shard, and its phase: 0 frozen, 1 cancelled, 2 handed over, 3 away.
    pub(super) leaving: Vec<(u32, u64, u32, u8)>,
}
