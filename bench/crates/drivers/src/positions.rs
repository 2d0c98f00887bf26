//! Positions in logs, where a settle covers everything before the position and nothing after it. A
//! receiver settles in any order, so this tracks what lies between. The position advances when
//! everything before it is settled. Messages that are fetched again (after a release) are delivered
//! only if they are neither in flight nor settled.

#[cfg(any(feature = "kafka", test))]
use std::collections::HashSet;
use std::collections::{BTreeMap, HashMap};

/// A destination of the receiver, and its partition.
pub(crate) type Partition = (u32, i32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Settled,
    Released,
}

#[derive(Debug, Default)]
struct Track {
    /// Deliveries from the position on. Offsets may have gaps.
    given: BTreeMap<i64, State>,
    /// Next offset to commit: everything before it is settled.
    position: Option<i64>,
    committed: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Positions {
    tracks: HashMap<Partition, Track>,
    /// Partition and offset of each delivery.
    deliveries: HashMap<u64, (Partition, i64)>,
    next: u64,
}

impl Positions {
    /// Registers a fetched message. Returns its delivery, or `None` if it must not be delivered
    /// (again).
    pub(crate) fn came(&mut self, partition: Partition, offset: i64) -> Option<u64> {
        let track = self.tracks.entry(partition).or_default();
        if track.position.is_some_and(|position| offset < position)
            || matches!(track.given.get(&offset), Some(State::InFlight | State::Settled))
        {
            return None;
        }
        track.given.insert(offset, State::InFlight);
        self.next += 1;
        self.deliveries.insert(self.next, (partition, offset));
        Some(self.next)
    }

    /// Settles a delivery for good. A delivery of a reassigned partition is ignored.
    pub(crate) fn accept(&mut self, delivery: u64) {
        let Some((partition, offset)) = self.deliveries.remove(&delivery) else { return };
        let Some(track) = self.tracks.get_mut(&partition) else { return };
        track.given.insert(offset, State::Settled);
        while let Some(first) = track.given.first_entry() {
            if *first.get() != State::Settled {
                break;
            }
            track.position = Some(first.key() + 1);
            first.remove();
        }
    }

    /// Releases a delivery. Returns the offset from which the partition must be read again.
    pub(crate) fn release(&mut self, delivery: u64) -> Option<(Partition, i64)> {
        let (partition, offset) = self.deliveries.remove(&delivery)?;
        self.tracks.get_mut(&partition)?.given.insert(offset, State::Released);
        Some((partition, offset))
    }

    /// Sets the position that an earlier owner of the partition committed.
    #[cfg(feature = "amqp")]
    pub(crate) fn begin(&mut self, partition: Partition, position: i64) {
        let track = self.tracks.entry(partition).or_default();
        (track.position, track.committed) = (Some(position), Some(position));
    }

    /// The positions that moved since the last call.
    pub(crate) fn moved(&mut self) -> Vec<(Partition, i64)> {
        let mut moved = Vec::new();
        for (partition, track) in &mut self.tracks {
            if let Some(position) = track.position.filter(|at| track.committed != Some(*at)) {
                track.committed = Some(position);
                moved.push((*partition, position));
            }
        }
        moved
    }

    /// Drops partitions that were reassigned to another receiver.
    #[cfg(any(feature = "kafka", test))]
    pub(crate) fn forget(&mut self, partitions: &HashSet<Partition>) {
        self.tracks.retain(|partition, _| !partitions.contains(partition));
        self.deliveries.retain(|_, (partition, _)| !partitions.contains(partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Partition = (0, 3);

    #[test]
    fn position_waits_for_the_first_open_message() {
        let mut positions = Positions::default();
        let ids: Vec<u64> = (10..13).filter_map(|offset| positions.came(HERE, offset)).collect();
        positions.accept(ids[1]);
        positions.accept(ids[2]);
        assert!(positions.moved().is_empty());
        positions.accept(ids[0]);
        assert_eq!(positions.moved(), [(HERE, 13)]);
        assert!(positions.moved().is_empty());
    }

    #[test]
    fn after_a_release_only_released_messages_are_redelivered() {
        let mut positions = Positions::default();
        let ids: Vec<u64> = (10..13).filter_map(|offset| positions.came(HERE, offset)).collect();
        positions.accept(ids[2]);
        assert_eq!(positions.release(ids[0]), Some((HERE, 10)));
        let again: Vec<_> = (10..14).map(|offset| positions.came(HERE, offset).is_some()).collect();
        assert_eq!(again, [true, false, false, true]);
    }

    #[test]
    fn settle_of_a_reassigned_partition_is_ignored() {
        let mut positions = Positions::default();
        let id = positions.came(HERE, 5).expect("is new");
        positions.forget(&HashSet::from([HERE]));
        positions.accept(id);
        assert!(positions.moved().is_empty());
        assert_eq!(positions.release(id), None);
    }
}
