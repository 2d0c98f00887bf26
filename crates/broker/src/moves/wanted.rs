//! What is to be done next about moves in a shard: by its rows, and by what this node knows of the catalog. The copy of
//! the catalog may be old; what is done is done only where a newer one would not say otherwise.

use base::{PartitionId, ShardId, TopicId};
use machine::rows::moves::{Leaving, Phase};

use crate::shard::View;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// It is served here and wanted elsewhere.
    Move(Move),
    /// It was handed over.
    Finish(Move),
    /// The catalog says where it is: its bytes are of no use here.
    Leave { partition: PartitionId, id: u64 },
    /// It is not to be handed over.
    Cancel(Move),
    /// The catalog knows no more of a move that was cancelled.
    Forget { partition: PartitionId, id: u64 },
    /// What came here of a partition whose move was cancelled.
    Discard { partition: PartitionId, id: u64 },
    /// Parts of a topic that was deleted came after this shard had heard of that.
    Drop { topic: TopicId, adopted: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) partition: PartitionId,
    pub(super) id: u64,
    pub(super) to: ShardId,
    /// It takes no appends.
    pub(super) frozen: bool,
}

impl Wanted {
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

/// The next of all, apart from partitions that rest.
pub(super) fn next(view: &View<'_>, rests: impl Fn(PartitionId) -> bool) -> Option<Wanted> {
    let (catalog, rows) = (view.catalog, view.rows);
    if catalog.moving_count() == 0 && rows.moving_topics().next().is_none() {
        return None;
    }
    // Of one that was not there when this copy was last brought up to date nothing can be said.
    let knows = |id: u64| catalog.moves() >= id;
    let moving = |partition: PartitionId| {
        let topic = catalog.topic(partition.topic)?;
        topic.moving.get(&partition.index)
    };
    let is_gone = |topic: TopicId| catalog.topic(topic).is_none() && topic.0 < catalog.next_topic();
    let of_leaving = |(partition, leaving): (PartitionId, Leaving)| {
        let Leaving { id, to, phase } = leaving;
        let it = Move { partition, id, to, frozen: phase == Phase::Frozen };
        let is_wanted = moving(partition).is_some_and(|moving| moving.id == id);
        match phase {
            Phase::HandedOver if is_wanted || !knows(id) => Some(Wanted::Finish(it)),
            Phase::HandedOver => Some(Wanted::Leave { partition, id }),
            Phase::Cancelled if is_wanted => Some(Wanted::Cancel(it)),
            Phase::Cancelled if knows(id) => Some(Wanted::Forget { partition, id }),
            Phase::Frozen if !is_wanted && knows(id) => Some(Wanted::Cancel(it)),
            Phase::Frozen | Phase::Cancelled | Phase::Away => None,
        }
    };
    let topics_gone = rows.moving_topics().filter(|(topic, _)| is_gone(topic.id()));
    let dropped = topics_gone.map(|(topic, _)| {
        let adopted = rows.adopted();
        Wanted::Drop { topic: topic.id(), adopted }
    });
    let leaving = rows.all_leaving().filter(|(it, _)| !is_gone(it.topic)).filter_map(of_leaving);
    let discarded = rows.all_imports().filter_map(|(partition, import)| {
        let id = import.id;
        let is_wanted = moving(partition).is_some_and(|moving| moving.id == id);
        (!is_wanted && knows(id)).then_some(Wanted::Discard { partition, id })
    });
    let begun = catalog.all_moving().filter_map(|(partition, moving)| {
        rows.partition(partition)?;
        let (id, to) = (moving.id, moving.to);
        let known = rows.topic(partition.topic)?.leaving(partition.index);
        // Later moves are answered by the log as they come.
        let frozen = known.is_some_and(|it| it.id == id && it.phase == Phase::Frozen);
        let it = Move { partition, id, to, frozen };
        // Two shards have it while a move is finished: the source does that.
        let is_here = to != view.shard;
        is_here.then_some(if moving.cancelled { Wanted::Cancel(it) } else { Wanted::Move(it) })
    });
    let all = dropped.chain(leaving).chain(discarded).chain(begun);
    all.into_iter().find(|wanted| !rests(wanted.partition()))
}
