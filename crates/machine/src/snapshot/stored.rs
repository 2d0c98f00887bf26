//! The persisted form of a snapshot. These types ARE the format (in postcard's encoding, field by
//! field): they never change. Additions of a later version get types of their own, and the state's
//! types may change freely.

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

/// Followed by the given number of [`PartitionV1`].
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
    /// Leader epochs with their starts.
    pub(crate) epochs: Vec<(i32, u64)>,
    pub(crate) producers: Vec<(i64, ProducerV1)>,
    pub(crate) compacted_to: u64,
    pub(crate) last_append_ms: i64,
    pub(crate) max_timestamp: i64,
}

/// Number of batches of a producer in the format.
pub(crate) const PRODUCER_BATCHES_V1: usize = 5;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProducerV1 {
    pub(crate) last_ms: i64,
    pub(crate) epoch: i16,
    pub(crate) remembered: u8,
    /// First and last sequence, base offset. Oldest first; only the first `remembered` count.
    pub(crate) batches: [(i32, i32, u64); PRODUCER_BATCHES_V1],
}

/// Followed by the given number of [`CommittedOffsetV1`], ascending by topic and partition.
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

/// Followed by the given number of [`ProgressV2`], then by [`LeaseGroupEndV2`].
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

/// The addition of version 3, at the end.
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
    /// Number of shards over which groups are spread.
    pub(super) slot_shards: u32,
    pub(super) node_config: Cow<'a, Values>,
    pub(super) group_configs: BTreeMap<Cow<'a, str>, Cow<'a, Values>>,
    pub(super) topics: u64,
    pub(super) next_lease_group: u32,
    pub(super) lease_groups: u64,
    pub(super) documents_version: u64,
    pub(super) documents: u64,
    /// Version of the last change.
    pub(super) version: u64,
    /// Version up to which removals were dropped.
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
    /// The shard of partition 0, counted from the first with rows, and the number of shards of the
    /// round-robin.
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
    /// The adopted version of the catalog.
    pub(super) adopted: u64,
    pub(super) topics: u64,
    pub(super) groups: u64,
    pub(super) lease_groups: u64,
}

/// Followed by the given number of [`PartitionV1`].
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

/// The addition of version 5, at the end: messages to and from other shards. Followed by the given
/// numbers of [`OutboxV5`] and [`ExpectedV5`], by shard.
#[derive(Serialize, Deserialize)]
pub(super) struct ChannelsV5 {
    pub(super) outboxes: u64,
    pub(super) sources: u64,
}

/// Followed by a [`PartitionV1`] and the given number of [`MessageV5`].
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

/// The addition of version 6, before the channels: followed by the given number of
/// [`MembershipV6`], by name.
#[derive(Serialize, Deserialize)]
pub(super) struct MembershipsV6 {
    pub(super) groups: u64,
    /// Whether channels follow.
    pub(super) channels: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct MembershipV6<'a> {
    pub(super) group: Cow<'a, str>,
    pub(super) members: Cow<'a, [u8]>,
}

/// The addition of version 7 in a catalog, at the end: moves of partitions. Followed by the given
/// number of [`TopicMovesV7`].
#[derive(Serialize, Deserialize)]
pub(super) struct CatalogMovesV7 {
    pub(super) version: u64,
    pub(super) topics: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TopicMovesV7 {
    pub(super) topic: u32,
    /// Moved partitions: shard and epoch base.
    pub(super) placed: Vec<(u32, u32, i32)>,
    /// Moving partitions: target shard, id of the move, whether it is cancelled.
    pub(super) moving: Vec<(u32, u32, u64, bool)>,
}

/// The addition of version 7 in rows, before members of groups and channels, which are present if
/// flagged.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsV7 {
    pub(super) members: bool,
    pub(super) channels: bool,
    /// Number of topics with moves; a [`RowsMovesV7`] of each follows at the end.
    pub(super) topics: u64,
}

/// Replaces it in version 8.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsV8 {
    pub(super) members: bool,
    pub(super) channels: bool,
    pub(super) topics: u64,
    /// Number of nodes that brought rows; a [`BroughtV8`] of each follows at the very end.
    pub(super) nodes: u64,
}

/// The parts of version 9.
#[derive(Serialize, Deserialize)]
pub(super) struct PartsV9 {
    pub(super) members: bool,
    pub(super) channels: bool,
    pub(super) topics: u64,
    pub(super) nodes: u64,
    /// Number of topics with ids of records; a [`TopicIdsV9`] of each follows with its ids, at the
    /// very end.
    pub(super) with_ids: u64,
    /// No id within a window is missing.
    pub(super) ids_complete: bool,
    /// Number of ids that a limit displaced.
    pub(super) ids_forgotten_early: u64,
}

/// Followed by the given number of [`IdV9`], in the order of arrival.
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

/// Rows brought by one incarnation of a node.
#[derive(Serialize, Deserialize)]
pub(super) struct BroughtV8 {
    pub(super) node: u32,
    pub(super) incarnation: u64,
    pub(super) next: u64,
    pub(super) at_ms: i64,
    /// Number, rows, offset of the first row, offsets of each.
    pub(super) taken: Vec<(u64, u32, u64, u32)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RowsMovesV7 {
    pub(super) topic: u32,
    pub(super) guests: Vec<(u32, PartitionV1)>,
    /// Id of the move, epoch base.
    pub(super) arrived: Vec<(u32, u64, i32)>,
    /// Id of the move, first and next offset.
    pub(super) imports: Vec<(u32, u64, u64, u64)>,
    /// Id of the move, target shard, and its phase: 0 frozen, 1 cancelled, 2 handed over, 3 away.
    pub(super) leaving: Vec<(u32, u64, u32, u8)>,
}
