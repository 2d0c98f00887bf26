//! Queries of nodes without rows of a shard to its leader, and the replies.
//!
//! A query concerns one shard. Its size and that of its reply are limited by the client, and again by the server
//! (`query_server` of the broker).
//!
//! * [`facts`]: facts about a group or a partition, read from rows

mod facts;

use std::time::Duration;

use base::{LeaseGroupId, Level, Offset, PartitionId};
use bytes::Bytes;
use machine::CommittedOffset;
use machine::rows::transactions::partition::AbortedRange;
use serde::{Deserialize, Serialize};
use shard::error::FetchError;

use crate::bounds::{Bounds, LogRange, TimedOffset};

pub use facts::{GroupFacts, GroupSnapshot, MoveFacts, after, epoch_at};
pub use facts::{LeaseProgress, OffsetAges};

/// Level from which a node may be without the rows of a shard.
pub(crate) const ASKED_SINCE: Level = Level::REPLICAS;
/// Maximum number of partitions, groups or records in one query.
pub const ASKED_AT_ONCE_MAX: usize = 2_000;
/// Maximum number of names or offsets in one reply.
pub const TOLD_AT_ONCE_MAX: usize = 1_000;
/// Longest wait for records; then the reply comes even if there are none.
pub const WAITS_FOR: Duration = Duration::from_secs(2);

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ShardQuery {
    Bounds(Vec<PartitionId>),
    EpochsAt(Vec<(PartitionId, Offset)>),
    LastAppends(Vec<PartitionId>),
    LiveBytes(Vec<PartitionId>),
    LeaseProgress {
        group: LeaseGroupId,
        partitions: Vec<u32>,
    },
    LeaseFloors(Vec<(LeaseGroupId, u32)>),
    /// Which of these offsets of a partition the group has settled.
    Settled {
        group: LeaseGroupId,
        partition: u32,
        offsets: Vec<Offset>,
    },
    Groups(Vec<String>),
    GroupCount,
    GroupsAfter {
        name: String,
        max: u32,
    },
    Offsets {
        group: String,
        partitions: Vec<PartitionId>,
    },
    OffsetsAfter {
        group: String,
        partition: Option<PartitionId>,
        max: u32,
    },
    /// Progress of the moves with these numbers, which begin or end in the shard.
    Moves(Vec<(PartitionId, u64)>),
    /// Replied to once the rows have adopted this version of the catalog.
    Adopted {
        version: u64,
    },
    /// Reads batches from the one with this offset on.
    Read {
        partition: PartitionId,
        offset: Offset,
        bytes_max: u32,
    },
    OffsetAtTime {
        partition: PartitionId,
        timestamp_ms: i64,
    },
    OffsetOfMaxTimestamp(PartitionId),
    /// Replied to once the bounds of one of these partitions differ, or after [`WAITS_FOR`].
    Changed(Vec<(PartitionId, Option<LogRange>)>),
    /// As `Bounds`, with the stable ends.
    StableBounds(Vec<PartitionId>),
    /// As `Changed`, with the stable ends.
    StableChanged(Vec<(PartitionId, Option<Bounds>)>),
    /// As `Read`, with the stable end and the aborted transactions.
    ReadStable {
        partition: PartitionId,
        offset: Offset,
        bytes_max: u32,
    },
}

base::levels!(ShardQuery {
    ASKED_SINCE => Bounds | EpochsAt | LastAppends | LiveBytes | LeaseProgress | LeaseFloors | Settled | Groups
        | GroupCount | GroupsAfter | Offsets | OffsetsAfter | Moves | Adopted | Read | OffsetAtTime
        | OffsetOfMaxTimestamp | Changed;
    Level::TRANSACTIONS => StableBounds | StableChanged | ReadStable;
});

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardQueryReply {
    Bounds(Vec<Option<LogRange>>),
    Epochs(Vec<Option<i32>>),
    LastAppends(Vec<Option<Option<i64>>>),
    LiveBytes(Vec<u64>),
    LeaseProgress(Vec<Option<LeaseProgress>>),
    LeaseFloors(Vec<Option<Offset>>),
    Settled(Vec<bool>),
    Groups(Vec<Option<GroupFacts>>),
    GroupCount(u64),
    GroupNames(Vec<String>),
    Offsets(Vec<Option<CommittedOffset>>),
    OffsetsAfter(Vec<(PartitionId, CommittedOffset)>),
    Moves(Vec<MoveFacts>),
    Adopted,
    /// The batches are in the body.
    Read(LogRange),
    Timed(Option<TimedOffset>),
    StableBounds(Vec<Option<Bounds>>),
    /// The batches are in the body. `aborted`: the aborted transactions with records in the range that was read.
    ReadStable {
        bounds: Bounds,
        aborted: Vec<AbortedRange>,
    },
}

base::levels!(ShardQueryReply {
    ASKED_SINCE => Bounds | Epochs | LastAppends | LiveBytes | LeaseProgress | LeaseFloors | Settled | Groups
        | GroupCount | GroupNames | Offsets | OffsetsAfter | Moves | Adopted | Read | Timed;
    Level::TRANSACTIONS => StableBounds | ReadStable;
});

/// The reply, and its batches.
pub type QueryResult = Result<(ShardQueryReply, Vec<Bytes>), FetchError>;

impl ShardQuery {
    /// Number of items in the query.
    pub fn item_count(&self) -> usize {
        match self {
            Self::Bounds(of)
            | Self::StableBounds(of)
            | Self::LastAppends(of)
            | Self::LiveBytes(of) => of.len(),
            Self::EpochsAt(of) => of.len(),
            Self::LeaseProgress { partitions, .. } => partitions.len(),
            Self::LeaseFloors(of) => of.len(),
            Self::Settled { offsets, .. } => offsets.len(),
            Self::Groups(of) => of.len(),
            Self::Offsets { partitions, .. } => partitions.len(),
            Self::Moves(of) => of.len(),
            Self::Changed(of) => of.len(),
            Self::StableChanged(of) => of.len(),
            Self::GroupCount
            | Self::GroupsAfter { .. }
            | Self::OffsetsAfter { .. }
            | Self::Adopted { .. }
            | Self::Read { .. }
            | Self::ReadStable { .. }
            | Self::OffsetAtTime { .. }
            | Self::OffsetOfMaxTimestamp(_) => 1,
        }
    }
}
