//! What a node that has no rows of a shard asks of the node that leads it, and what is told.
//!
//! A question is about one shard. How much is asked and told at a time is bounded by who asks, and again by who answers
//! ([`crate::telling`]).
//!
//! * [`parts`]: what is told of a group or a partition, as it is seen in rows

mod parts;

use std::time::Duration;

use base::{LeaseGroupId, Level, Offset, PartitionId};
use bytes::Bytes;
use machine::CommittedOffset;
use serde::{Deserialize, Serialize};

use crate::bounds::{Bounds, TimedOffset};
use crate::error::FetchError;

pub(crate) use parts::{GroupFacts, MoveFacts, Part, after, epoch_at};
pub use parts::{LeaseProgress, OffsetAges};

/// Since when a node may be without the rows of a shard.
pub(crate) const ASKED_SINCE: Level = Level::REPLICAS;
/// Partitions, groups or records that one question is about.
pub(crate) const ASKED_AT_ONCE_MAX: usize = 2_000;
/// Names or offsets that one answer has.
pub(crate) const TOLD_AT_ONCE_MAX: usize = 1_000;
/// Who waits for records is answered after so long, also if there are none.
pub(crate) const WAITS_FOR: Duration = Duration::from_secs(2);

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    Bounds(Vec<PartitionId>),
    EpochsAt(Vec<(PartitionId, Offset)>),
    LastAppends(Vec<PartitionId>),
    LiveBytes(Vec<PartitionId>),
    LeaseProgress {
        group: LeaseGroupId,
        partitions: Vec<u32>,
    },
    LeaseFloors(Vec<(LeaseGroupId, u32)>),
    /// Of these offsets of a partition, which the group has settled.
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
    /// How far the moves with these numbers are, which begin or end in the shard.
    Moves(Vec<(PartitionId, u64)>),
    /// To be answered once the rows follow the catalog up to this version.
    Adopted {
        version: u64,
    },
    /// Batches from the one that has this offset on.
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
    /// To be answered once one of these partitions does not begin or end there, or after [`WAITS_FOR`].
    Changed(Vec<(PartitionId, Option<Bounds>)>),
}

base::levels!(Question {
    ASKED_SINCE => Bounds | EpochsAt | LastAppends | LiveBytes | LeaseProgress | LeaseFloors | Settled | Groups
        | GroupCount | GroupsAfter | Offsets | OffsetsAfter | Moves | Adopted | Read | OffsetAtTime
        | OffsetOfMaxTimestamp | Changed;
});

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
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

base::levels!(Told {
    ASKED_SINCE => Bounds | Epochs | LastAppends | LiveBytes | LeaseProgress | LeaseFloors | Settled | Groups
        | GroupCount | GroupNames | Offsets | OffsetsAfter | Moves | Adopted | Read | Timed;
});

/// What is told, and the batches that go with it.
pub(crate) type Answered = Result<(Told, Vec<Bytes>), FetchError>;

impl Question {
    /// How many things it is about.
    pub(crate) fn len(&self) -> usize {
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
