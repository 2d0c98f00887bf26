//! The persisted form of a snapshot. These types ARE the format (in postcard's encoding, field by
//! field): they never change. Additions of a later version get types of their own, and the state's
//! types may change freely.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::{OffsetRanges, SharedMap};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A topic's, a node's or a group's own values, by name.
type Values = BTreeMap<String, String>;

#[derive(Serialize, Deserialize)]
pub(crate) struct CatalogV1<'a> {
    pub(crate) next_topic: u32,
    pub(crate) next_producer_id: i64,
    pub(crate) node_config: Cow<'a, Values>,
    pub(crate) group_configs: BTreeMap<Cow<'a, str>, Cow<'a, Values>>,
    pub(crate) topics: u64,
    pub(crate) groups: u64,
}

/// Followed by the given number of [`PartitionV1`].
#[derive(Serialize, Deserialize)]
pub(crate) struct TopicV1<'a> {
    pub(crate) id: u32,
    #[serde(with = "uuid_bytes")]
    pub(crate) uuid: Uuid,
    pub(crate) name: Cow<'a, str>,
    pub(crate) created_ms: i64,
    pub(crate) overrides: Cow<'a, Values>,
    pub(crate) partitions: u64,
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
pub(crate) struct GroupV1<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) offsets: u64,
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
pub(crate) struct DeliveryV2 {
    pub(crate) next_lease_group: u32,
    pub(crate) documents_version: u64,
    pub(crate) lease_groups: u64,
    pub(crate) documents: u64,
}

/// Followed by the given number of [`ProgressV2`], then by [`LeaseGroupEndV2`].
#[derive(Serialize, Deserialize)]
pub(crate) struct LeaseGroupV2<'a> {
    pub(crate) id: u32,
    pub(crate) topic: u32,
    pub(crate) name: Cow<'a, str>,
    pub(crate) overrides: Cow<'a, Values>,
    pub(crate) partitions: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct LeaseGroupEndV2 {
    pub(crate) paused: bool,
    pub(crate) created_ms: i64,
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
pub(crate) struct DocumentV2<'a> {
    pub(crate) space: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) version: u64,
    pub(crate) body: Cow<'a, [u8]>,
}

/// The addition of version 3, at the end.
#[derive(Serialize, Deserialize)]
pub(crate) struct TimeV3 {
    /// The time of the log, ms since the epoch.
    pub(crate) last_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum RoleV4 {
    Catalog,
    Rows { shard: u32 },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CatalogV4<'a> {
    pub(crate) next_topic: u32,
    pub(crate) next_producer_id: i64,
    pub(crate) shards: u32,
    /// Number of shards over which groups are spread.
    pub(crate) slot_shards: u32,
    pub(crate) node_config: Cow<'a, Values>,
    pub(crate) group_configs: BTreeMap<Cow<'a, str>, Cow<'a, Values>>,
    pub(crate) topics: u64,
    pub(crate) next_lease_group: u32,
    pub(crate) lease_groups: u64,
    pub(crate) documents_version: u64,
    pub(crate) documents: u64,
    /// Version of the last change.
    pub(crate) version: u64,
    /// Version up to which removals were dropped.
    pub(crate) forgotten: u64,
    pub(crate) changes: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TopicV4<'a> {
    pub(crate) id: u32,
    #[serde(with = "uuid_bytes")]
    pub(crate) uuid: Uuid,
    pub(crate) name: Cow<'a, str>,
    pub(crate) created_ms: i64,
    pub(crate) overrides: Cow<'a, Values>,
    pub(crate) partitions: u32,
    /// The shard of partition 0, counted from the first with rows, and the number of shards of the
    /// round-robin.
    pub(crate) start: u32,
    pub(crate) shards: u32,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct DefinitionV4<'a> {
    pub(crate) id: u32,
    pub(crate) topic: u32,
    pub(crate) name: Cow<'a, str>,
    pub(crate) overrides: Cow<'a, Values>,
    pub(crate) paused: bool,
    pub(crate) created_ms: i64,
    pub(crate) starts: Cow<'a, [u64]>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ChangeV4 {
    pub(crate) version: u64,
    pub(crate) changed: ChangedV4,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ChangedV4 {
    Topic(u32),
    LeaseGroup(u32),
    TopicGone(u32),
    LeaseGroupGone(u32),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RowsV4 {
    /// The adopted version of the catalog.
    pub(crate) adopted: u64,
    pub(crate) topics: u64,
    pub(crate) groups: u64,
    pub(crate) lease_groups: u64,
}

/// Followed by the given number of [`PartitionV1`].
#[derive(Serialize, Deserialize)]
pub(crate) struct TopicRowsV4 {
    pub(crate) id: u32,
    pub(crate) first: u32,
    pub(crate) step: u32,
    pub(crate) deletes_settled: bool,
    pub(crate) rows: u64,
}

/// Followed by a [`ProgressV2`] for each row of the topic.
#[derive(Serialize, Deserialize)]
pub(crate) struct GroupRowsV4 {
    pub(crate) id: u32,
    pub(crate) topic: u32,
}

/// The addition of version 5, at the end: messages to and from other shards. Followed by the given
/// numbers of [`OutboxV5`] and [`ExpectedV5`], by shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChannelsV5 {
    pub(crate) outboxes: u64,
    pub(crate) sources: u64,
}

/// Replaces it in version 10. The given number of [`FenceV10`] follows at the end, by shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChannelsV10 {
    pub(crate) outboxes: u64,
    pub(crate) sources: u64,
    pub(crate) fences: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FenceV10 {
    pub(crate) shard: u32,
    pub(crate) term: u64,
    pub(crate) number: u64,
}

/// Followed by a [`PartitionV1`] and the given number of [`MessageV5`].
#[derive(Serialize, Deserialize)]
pub(crate) struct OutboxV5 {
    pub(crate) to: u32,
    pub(crate) messages: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct MessageV5 {
    pub(crate) number: u64,
    pub(crate) batches: Vec<SentBatchV5>,
}

/// Replaces it in version 10.
#[derive(Serialize, Deserialize)]
pub(crate) struct MessageV10 {
    pub(crate) number: u64,
    pub(crate) batches: Vec<SentBatchV5>,
    pub(crate) commands: Vec<MessageCommandV10>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum MessageCommandV10 {
    Settle {
        settles: Vec<GroupSettleV10>,
    },
    /// Since version 11: producer, epoch, number, whether it is a commit.
    EndTransaction {
        producer: i64,
        epoch: i16,
        number: u64,
        commit: bool,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct GroupSettleV10 {
    pub(crate) group: u32,
    pub(crate) partition: u32,
    /// First offset and length.
    pub(crate) settled: Vec<(u64, u32)>,
    /// Offset and deliveries.
    pub(crate) attempts: Vec<(u64, u16)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct SentBatchV5 {
    pub(crate) bytes: u32,
    /// Topics and partitions.
    pub(crate) targets: Vec<(u32, u32)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ExpectedV5 {
    pub(crate) from: u32,
    pub(crate) number: u64,
}

/// The addition of version 6, before the channels: followed by the given number of
/// [`MembershipV6`], by name.
#[derive(Serialize, Deserialize)]
pub(crate) struct MembershipsV6 {
    pub(crate) groups: u64,
    /// Whether channels follow.
    pub(crate) channels: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct MembershipV6<'a> {
    pub(crate) group: Cow<'a, str>,
    pub(crate) members: Cow<'a, [u8]>,
}

/// The addition of version 7 in a catalog, at the end: moves of partitions. Followed by the given
/// number of [`TopicMovesV7`].
#[derive(Serialize, Deserialize)]
pub(crate) struct CatalogMovesV7 {
    pub(crate) version: u64,
    pub(crate) topics: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TopicMovesV7 {
    pub(crate) topic: u32,
    /// Moved partitions: shard and epoch base.
    pub(crate) placed: Vec<(u32, u32, i32)>,
    /// Moving partitions: target shard, id of the move, whether it is cancelled.
    pub(crate) moving: Vec<(u32, u32, u64, bool)>,
}

/// The addition of version 7 in rows, before members of groups and channels, which are present if
/// flagged.
#[derive(Serialize, Deserialize)]
pub(crate) struct PartsV7 {
    pub(crate) members: bool,
    pub(crate) channels: bool,
    /// Number of topics with moves; a [`RowsMovesV7`] of each follows at the end.
    pub(crate) topics: u64,
}

/// Replaces it in version 8.
#[derive(Serialize, Deserialize)]
pub(crate) struct PartsV8 {
    pub(crate) members: bool,
    pub(crate) channels: bool,
    pub(crate) topics: u64,
    /// Number of nodes that brought rows; a [`BroughtV8`] of each follows at the very end.
    pub(crate) nodes: u64,
}

/// The parts of version 9.
#[derive(Serialize, Deserialize)]
pub(crate) struct PartsV9 {
    pub(crate) members: bool,
    pub(crate) channels: bool,
    pub(crate) topics: u64,
    pub(crate) nodes: u64,
    /// Number of topics with ids of records; a [`TopicIdsV9`] of each follows with its ids, at the
    /// very end.
    pub(crate) with_ids: u64,
    /// No id within a window is missing.
    pub(crate) ids_complete: bool,
    /// Number of ids that a limit displaced.
    pub(crate) ids_forgotten_early: u64,
}

/// Followed by the given number of [`IdV9`], in the order of arrival.
#[derive(Serialize, Deserialize)]
pub(crate) struct TopicIdsV9 {
    pub(crate) topic: u32,
    pub(crate) forgotten_to_ms: Option<i64>,
    pub(crate) ids: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct IdV9 {
    pub(crate) hash: [u8; 16],
    /// Arrival time, less that of the id before it.
    pub(crate) later_ms: i64,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

/// The addition of version 11, at the end: transactions of Kafka's producers. Followed by the given numbers of
/// [`TransactionalIdV11`], [`ParticipationV11`] and [`PartitionTransactionsV11`].
#[derive(Serialize, Deserialize)]
pub(crate) struct TransactionsV11 {
    pub(crate) next_number: u64,
    pub(crate) ids: u64,
    pub(crate) producers: u64,
    pub(crate) partitions: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TransactionalIdV11<'a> {
    pub(crate) id: Cow<'a, str>,
    /// Id and epoch.
    pub(crate) producer: (i64, i16),
    /// Id and epoch, and whether its EndTxn changed the epoch.
    pub(crate) former: Option<((i64, i16), bool)>,
    pub(crate) timeout_ms: u32,
    pub(crate) phase: TransactionPhaseV11,
    pub(crate) updated_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum TransactionPhaseV11 {
    Empty,
    Ongoing {
        number: u64,
        started_ms: i64,
        shards: Vec<u32>,
        /// Topics and partitions.
        added: Vec<(u32, u32)>,
    },
    Ended {
        number: u64,
        commit: bool,
        /// Shards and numbers of messages.
        messages: Vec<(u32, u64)>,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ParticipationV11<'a> {
    pub(crate) producer: i64,
    pub(crate) epoch: i16,
    pub(crate) home: u32,
    pub(crate) number: u64,
    pub(crate) is_open: bool,
    /// Topics and partitions.
    pub(crate) partitions: Vec<(u32, u32)>,
    /// Groups with offsets.
    pub(crate) pending: Vec<(Cow<'a, str>, Vec<PendingOffsetV11>)>,
    pub(crate) updated_ms: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PendingOffsetV11 {
    pub(crate) topic: u32,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
    pub(crate) expire_ms: Option<i64>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PartitionTransactionsV11 {
    pub(crate) topic: u32,
    pub(crate) index: u32,
    /// First offset and producer.
    pub(crate) open: Vec<(u64, i64)>,
    /// Producer, first and last offset.
    pub(crate) aborted: Vec<(i64, u64, u64)>,
}

/// Rows brought by one incarnation of a node.
#[derive(Serialize, Deserialize)]
pub(crate) struct BroughtV8 {
    pub(crate) node: u32,
    pub(crate) incarnation: u64,
    pub(crate) next: u64,
    pub(crate) at_ms: i64,
    /// Number, rows, offset of the first row, offsets of each.
    pub(crate) taken: Vec<(u64, u32, u64, u32)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct RowsMovesV7 {
    pub(crate) topic: u32,
    pub(crate) guests: Vec<(u32, PartitionV1)>,
    /// Id of the move, epoch base.
    pub(crate) arrived: Vec<(u32, u64, i32)>,
    /// Id of the move, first and next offset.
    pub(crate) imports: Vec<(u32, u64, u64, u64)>,
    /// Id of the move, target shard, and its phase: 0 frozen, 1 cancelled, 2 handed over, 3 away.
    pub(crate) leaving: Vec<(u32, u64, u32, u8)>,
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
