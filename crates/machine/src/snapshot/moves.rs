//! Partitions that came to a shard, or went from it (version 7).
//!
//! ```text
//! topics with some x RowsMovesV7 by id
//! ```

use std::sync::Arc;

use base::{ShardId, TopicId};

use super::{inconsistent, put, take};
use crate::entry::DecodeError;
use crate::rows::Rows;
use crate::rows::moves::{Import, IncomingMove, OutgoingMove, Phase, TopicMoves};
use crate::rows::partition::Partition;
use crate::rows::topic::TopicRows;
use crate::stored::RowsMovesV7;

pub(super) fn encode<'a>(
    topics: impl Iterator<Item = &'a TopicRows>,
    mut bytes: Vec<u8>,
) -> Vec<u8> {
    for (topic, moves) in topics.filter_map(|topic| Some((topic, topic.moves()?))) {
        let TopicMoves { guests, arrived, imports, leaving } = moves;
        let stored = RowsMovesV7 {
            topic: topic.id().0,
            guests: guests.iter().map(|(index, guest)| (*index, guest.stored())).collect(),
            arrived: arrived.iter().map(|(index, it)| (*index, it.id, it.epoch_base)).collect(),
            imports: imports.iter().map(|(index, it)| (*index, it.id, it.start, it.next)).collect(),
            leaving: leaving
                .iter()
                .map(|(index, it)| (*index, it.id, it.to.0, it.phase.stored()))
                .collect(),
        };
        bytes = put(bytes, &stored);
    }
    bytes
}

pub(super) fn decode(rows: &mut Rows, topics: u64, body: &mut &[u8]) -> Result<(), DecodeError> {
    if topics == 0 {
        return Err(inconsistent("moves of partitions", "without any"));
    }
    for _ in 0..topics {
        let RowsMovesV7 { topic, guests, arrived, imports, leaving } =
            take(body, "partitions that moved")?;
        let wrong = || inconsistent("partitions that moved of topic", topic);
        let guests = guests.into_iter().map(|(index, guest)| (index, Partition::from(guest)));
        let arrived = arrived
            .into_iter()
            .map(|(index, id, epoch_base)| (index, IncomingMove { id, epoch_base }));
        let imports =
            imports.into_iter().map(|(index, id, start, next)| (index, Import { id, start, next }));
        let leaving = leaving.into_iter().map(|(index, id, to, phase)| {
            Some((index, OutgoingMove { id, to: ShardId(to), phase: Phase::restored(phase)? }))
        });
        let leaving: Option<Vec<_>> = leaving.collect();
        let moves = TopicMoves {
            guests: guests.collect(),
            arrived: arrived.collect(),
            imports: imports.collect(),
            leaving: leaving.ok_or_else(wrong)?.into_iter().collect(),
        };
        let found = rows.topics.get_mut(&TopicId(topic)).ok_or_else(wrong)?;
        if found.moves().is_some()
            || moves.is_empty()
            || !moves.is_sound(found.row_count(), found.stripe())
        {
            return Err(wrong());
        }
        Arc::make_mut(found).restore_moves(moves);
        rows.moving.insert(TopicId(topic));
    }
    Ok(())
}

impl Phase {
    fn stored(self) -> u8 {
        match self {
            Self::Frozen => 0,
            Self::Cancelled => 1,
            Self::HandedOver => 2,
            Self::Away => 3,
        }
    }

    fn restored(stored: u8) -> Option<Self> {
        [Self::Frozen, Self::Cancelled, Self::HandedOver, Self::Away]
            .get(usize::from(stored))
            .copied()
    }
}
