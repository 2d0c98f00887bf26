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
use serde::{Deserialize, Serialize};
use shard::error::FetchError;

use crate::bounds::{Bounds, TimedOffset};

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
    Changed(Vec<(PartitionId, Option<Bounds>)>),
}

base::levels!(ShardQuery {
    ASKED_SINCE => Bounds | EpochsAt | LastAppends | LiveBytes | LeaseProgress | LeaseFloors | Settled | Groups
        | GroupCount | GroupsAfter | Offsets | OffsetsAfter | Moves | Adopted | Read | OffsetAtTime
        | OffsetOfMaxTimestamp | Changed;
});

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ShardQueryReply {
    Bounds(Vec<Option<Bounds>>),
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
    Read(Bounds),
    Timed(Option<TimedOffset>),
}

base::levels!(ShardQueryReply {
    ASKED_SINCE => Bounds | Epochs | LastAppends | LiveBytes | LeaseProgress | LeaseFloors | Settled | Groups
        | GroupCount | GroupNames | Offsets | OffsetsAfter | Moves | Adopted | Read | Timed;
});

/// The reply, and its batches.
pub type QueryResult = Result<(ShardQueryReply, Vec<Bytes>), FetchError>;

impl ShardQuery {
    /// Number of items in the query.
    pub fn item_count(&self) -> usize {
        match self {
            Self::Bounds(of) | Self::LastAppends(of) | Self::LiveBytes(of) => of.len(),
            Self::EpochsAt(of) => of.len(),
            Self::LeaseProgress { partitions, .. } => partitions.len(),
            Self::LeaseFloors(of) => of.len(),
            Self::Settled { offsets, .. } => offsets.len(),
            Self::Groups(of) => of.len(),
            Self::Offsets { partitions, .. } => partitions.len(),
            Self::Moves(of) => of.len(),
            Self::Changed(of) => of.len(),
            Self::GroupCount
            | Self::GroupsAfter { .. }
            | Self::OffsetsAfter { .. }
            | Self::Adopted { .. }
            | Self::Read { .. }
            | Self::OffsetAtTime { .. }
            | Self::OffsetOfMaxTimestamp(_) => 1,
        }
    }
}
