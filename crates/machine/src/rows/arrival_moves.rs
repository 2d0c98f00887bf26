//! Distinguishes the stays of a partition in a shard: it may move to another shard and come back.

use std::collections::BTreeMap;

use base::PartitionId;

use super::Rows;

/// The move by which each partition arrived; partitions that never moved are absent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ArrivalMoves(BTreeMap<PartitionId, u64>);

impl Rows {
    pub fn lives(&self) -> ArrivalMoves {
        let topics = self.moving.iter().filter_map(|topic| Some((*topic, self.topic(*topic)?)));
        let lives = topics.flat_map(|(topic, rows)| {
            let moves = rows.moves();
            let arrived = moves.into_iter().flat_map(|moves| moves.arrived.iter());
            let arrived = arrived.map(|(index, it)| (*index, it.id));
            let imports = moves.into_iter().flat_map(|moves| moves.imports.iter());
            // The import is later and overrides the arrival, which may belong to an earlier stay.
            arrived
                .chain(imports.map(|(index, it)| (*index, it.id)))
                .map(move |(index, id)| (PartitionId::new(topic, index), id))
        });
        ArrivalMoves(lives.collect())
    }
}

impl ArrivalMoves {
    /// Partitions whose stays differ between the two, or that have a stay in only one. Their
    /// records here belong to the earlier stay.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = PartitionId> + 'a {
        let here = self.0.iter().filter(|(id, by)| other.0.get(id) != Some(by));
        let there = other.0.keys().filter(|id| !self.0.contains_key(id));
        here.map(|(id, _)| id).chain(there).copied()
    }
}

#[cfg(test)]
mod tests {
    use base::TopicId;

    use super::*;

    #[test]
    fn partition_with_another_move_or_with_none_is_another_stay() {
        let lives = |told: &[(u32, u64)]| {
            let one = |(index, by): &(u32, u64)| (PartitionId::new(TopicId(1), *index), *by);
            ArrivalMoves(told.iter().map(one).collect())
        };
        let there = lives(&[(1, 10), (2, 11), (3, 12)]);
        let here = lives(&[(1, 10), (2, 4), (5, 1)]);
        let mut differing: Vec<u32> = there.differing(&here).map(|it| it.index).collect();
        differing.sort_unstable();
        assert_eq!(differing, [2, 3, 5]);
        assert_eq!(there.differing(&there).count(), 0);
    }
}
