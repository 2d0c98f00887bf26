//! What logs say of a partition that moves from one shard to another ([ADR 0024]).
//!
//! The catalog's log has what is wanted, and at the end where the partition is; the logs of the two shards have the
//! steps. What is decided is decided in the source's log alone: until it says [`MoveStep::HandOver`] a move can be
//! given up, and from then on it can only be finished. Each step names the move, and done twice it changes nothing.
//!
//! [ADR 0024]: ../../../docs/adr/0024-a-partition-moves-by-its-source.md

use base::{Level, Levelled, Offset, PartitionId, ShardId};
use serde::{Deserialize, Serialize};

use crate::ids::TopicIdsChange;
use crate::rows::partition::Partition;
use crate::snapshot::stored::PartitionV1;

/// One step of one move, in the log of one of the two shards. Its ordinals and fields are persisted: a variant is only
/// ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveStep {
    pub partition: PartitionId,
    /// The number of the move, which the catalog gave.
    pub id: u64,
    pub what: Step,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// In the source: nothing is appended from now on.
    Freeze { to: ShardId },
    /// In the source: that took too long, appends are taken again.
    Thaw,
    /// In the source: this move will never be handed over.
    Cancel,
    /// In the source, which was frozen and ends there still: the partition is the destination's, whatever happens.
    HandOver { end: Offset },
    /// In the source: the destination has it, and clients are told so; its bytes go.
    Leave,
    /// In the source: the catalog knows no more of a move that was cancelled.
    Forget,
    /// In the destination: the unit's batches are all that there is from one offset to another. Answers
    /// [`crate::Outcome::Imported`].
    Import { from: Offset, to: Offset },
    /// In the destination, which has imported all: the partition is served there. Answers
    /// [`crate::Outcome::Activated`].
    Activate { row: MovedRow, epoch_base: i32 },
    /// In the destination: what was imported goes, since the move was cancelled.
    Discard,
    /// In the destination, which imports the partition: ids of its records (`dedup.window.ms`), as `inherited`.
    ImportIds(TopicIdsChange),
}

base::levels!(Step {
    MOVES_SINCE => Freeze | Thaw | Cancel | HandOver | Leave | Forget | Import | Activate | Discard;
    Level::RECORD_IDS => ImportIds;
});

impl Levelled for MoveStep {
    fn level(&self) -> Level {
        self.what.level()
    }
}

/// The first level with moves.
pub const MOVES_SINCE: Level = Level(2);

/// What the source has of a partition apart from its records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MovedRow(pub(crate) PartitionV1);

impl MovedRow {
    pub fn of(partition: &Partition) -> Self {
        Self(partition.stored())
    }

    pub fn next_offset(&self) -> Offset {
        self.0.next_offset
    }

    /// About how many bytes it takes of an entry.
    pub(crate) fn weight(&self) -> usize {
        self.0
            .active
            .as_ref()
            .map_or(16, |active| 64 + active.epochs.len() * 12 + active.producers.len() * 96)
    }
}

/// How a move ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MoveEnd {
    /// The partition is where it was wanted.
    Placed { epoch_base: i32 },
    /// It stays where it was.
    Cancelled,
}

base::levels!(MoveEnd {
    MOVES_SINCE => Placed | Cancelled;
});
