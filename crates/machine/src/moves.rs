//! Log records of a partition's move from one shard to another ([ADR 0024]).
//!
//! The catalog's log has the target, and at the end the new placement; the logs of the two shards
//! have the steps. Only the source's log decides: until it has [`MoveStep::HandOver`] a move can be
//! cancelled, and afterwards it can only be finished. Each step has the move's id, and repeating it
//! changes nothing.
//!
//! [ADR 0024]: ../../../docs/adr/0024-a-partition-moves-by-its-source.md

use base::{Level, Levelled, Offset, PartitionId, ShardId};
use serde::{Deserialize, Serialize};

use crate::ids::TopicIdsChange;
use crate::stored::PartitionV1;

/// One step of one move, in the log of one of the two shards. Its ordinals and fields are persisted: a variant is only
/// ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveStep {
    pub partition: PartitionId,
    /// The move's id, assigned by the catalog.
    pub id: u64,
    pub what: Step,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// In the source: appends are refused from now on.
    Freeze { to: ShardId },
    /// In the source: the move took too long, appends are accepted again.
    Thaw,
    /// In the source: this move will never be handed over.
    Cancel,
    /// In the source, which was frozen and still ends there: the partition irrevocably belongs to
    /// the destination.
    HandOver { end: Offset },
    /// In the source: the destination serves it, and clients are redirected; its bytes are dropped.
    Leave,
    /// In the source: the catalog has dropped the cancelled move.
    Forget,
    /// In the destination: the unit's batches are everything between the two offsets. Returns
    /// [`crate::Outcome::Imported`].
    Import { from: Offset, to: Offset },
    /// In the destination, which has imported everything: it serves the partition. Returns
    /// [`crate::Outcome::Activated`].
    Activate { row: MovedRow, epoch_base: i32 },
    /// In the destination: imported data is dropped, since the move was cancelled.
    Discard,
    /// In the destination, which imports the partition: ids of its records (`dedup.window.ms`), as `inherited`.
    ImportIds(TopicIdsChange),
    /// As `Activate`, of a partition with aborted transactions: producer, first and last offset of each.
    ActivateWith { row: MovedRow, epoch_base: i32, aborted: Vec<(i64, Offset, Offset)> },
}

base::levels!(Step {
    MOVES_SINCE => Freeze | Thaw | Cancel | HandOver | Leave | Forget | Import | Activate | Discard;
    Level::RECORD_IDS => ImportIds;
    Level::TRANSACTIONS => ActivateWith;
});

impl Levelled for MoveStep {
    fn level(&self) -> Level {
        self.what.level()
    }
}

/// The first level with moves.
pub const MOVES_SINCE: Level = Level(2);

/// A partition's row in the source, apart from its records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MovedRow(pub(crate) PartitionV1);

impl MovedRow {
    pub fn next_offset(&self) -> Offset {
        self.0.next_offset
    }

    /// Approximate size in an entry.
    pub(crate) fn weight(&self) -> usize {
        self.0
            .active
            .as_ref()
            .map_or(16, |active| 64 + active.epochs.len() * 12 + active.producers.len() * 96)
    }
}

/// Result of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MoveEnd {
    /// The partition is in the target shard.
    Placed { epoch_base: i32 },
    /// It stays in the source.
    Cancelled,
}

base::levels!(MoveEnd {
    MOVES_SINCE => Placed | Cancelled;
});
