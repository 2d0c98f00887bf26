//! The next step of the moves in a shard, by its rows and by this node's copy of the catalog. The copy may be old; a
//! step is taken only where a newer copy could not contradict it.

use base::{PartitionId, ShardId, TopicId};
use machine::rows::moves::{OutgoingMove, Phase};
use shard::View;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MoveAction {
    /// The partition is served here and wanted elsewhere.
    Move(Move),
    /// The partition was handed over.
    Finish(Move),
    /// The catalog has the new place: the bytes here are no longer needed.
    Leave { partition: PartitionId, id: u64 },
    /// The partition is not to be handed over.
    Cancel(Move),
    /// The catalog has no cancelled move any more.
    Forget { partition: PartitionId, id: u64 },
    /// Records copied here for a move that was cancelled.
    Discard { partition: PartitionId, id: u64 },
    /// Records of a deleted topic copied here after this shard had adopted the deletion.
    Drop { topic: TopicId, adopted: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) partition: PartitionId,
    pub(super) id: u64,
    pub(super) to: ShardId,
    /// The partition accepts no appends.
    pub(super) frozen: bool,
}

impl MoveAction {
    pub(super) fn partition(&self) -> PartitionId {
        match *self {
            Self::Move(it) | Self::Finish(it) | Self::Cancel(it) => it.partition,
            Self::Leave { partition, .. }
            | Self::Forget { partition, .. }
            | Self::Discard { partition, .. } => partition,
            Self::Drop { topic, .. } => PartitionId::new(topic, 0),
        }
    }
}

/// Returns the next step of all, apart from delayed partitions.
pub(super) fn next(view: &View<'_>, rests: impl Fn(PartitionId) -> bool) -> Option<MoveAction> {
    let (catalog, rows) = (view.catalog, view.rows);
    if catalog.moving_count() == 0 && rows.moving_topics().next().is_none() {
        return None;
    }
    // A move newer than this copy of the catalog is undecided.
    let knows = |id: u64| catalog.moves() >= id;
    let moving = |partition: PartitionId| {
        let topic = catalog.topic(partition.topic)?;
        topic.moving.get(&partition.index)
    };
    let of_leaving = |(partition, leaving): (PartitionId, OutgoingMove)| {
        let OutgoingMove { id, to, phase } = leaving;
        let it = Move { partition, id, to, frozen: phase == Phase::Frozen };
        let is_wanted = moving(partition).is_some_and(|moving| moving.id == id);
        match phase {
            Phase::HandedOver if is_wanted || !knows(id) => Some(MoveAction::Finish(it)),
            Phase::HandedOver => Some(MoveAction::Leave { partition, id }),
            Phase::Cancelled if is_wanted => Some(MoveAction::Cancel(it)),
            Phase::Cancelled if knows(id) => Some(MoveAction::Forget { partition, id }),
            Phase::Frozen if !is_wanted && knows(id) => Some(MoveAction::Cancel(it)),
            Phase::Frozen | Phase::Cancelled | Phase::Away => None,
        }
    };
    let topics_gone = rows.moving_topics().filter(|(topic, _)| catalog.is_deleted(topic.id()));
    let dropped = topics_gone.map(|(topic, _)| {
        let adopted = rows.adopted();
        MoveAction::Drop { topic: topic.id(), adopted }
    });
    let leaving =
        rows.all_leaving().filter(|(it, _)| !catalog.is_deleted(it.topic)).filter_map(of_leaving);
    let discarded = rows.all_imports().filter_map(|(partition, import)| {
        let id = import.id;
        let is_wanted = moving(partition).is_some_and(|moving| moving.id == id);
        (!is_wanted && knows(id)).then_some(MoveAction::Discard { partition, id })
    });
    let begun = catalog.all_moving().filter_map(|(partition, moving)| {
        rows.partition(partition)?;
        let (id, to) = (moving.id, moving.to);
        let known = rows.topic(partition.topic)?.leaving(partition.index);
        // The log decides about later moves when they come.
        let frozen = known.is_some_and(|it| it.id == id && it.phase == Phase::Frozen);
        let it = Move { partition, id, to, frozen };
        // Two shards have the row while a move is finished: the source does that.
        let is_here = to != view.shard;
        is_here.then_some(if moving.cancelled {
            MoveAction::Cancel(it)
        } else {
            MoveAction::Move(it)
        })
    });
    let all = dropped.chain(leaving).chain(discarded).chain(begun);
    all.into_iter().find(|wanted| !rests(wanted.partition()))
}
