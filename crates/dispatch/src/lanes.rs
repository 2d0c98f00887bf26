//! Key lanes: one record of a key at a time, for any number of keys.
//!
//! A lane exists only while a record holds the key: leased, backing off, ready as the next one, or
//! becoming a dead letter. Later records of a held key wait in its lane, and block no other key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{HashMap, Offset};

use crate::record::Meta;

#[derive(Debug)]
struct KeyLane {
    /// The one record of the key that may be delivered.
    holder: Offset,
    /// By offset. Most lanes have none.
    blocked: VecDeque<(Offset, Meta)>,
}

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Keys are ordered within a partition.
    by_key: HashMap<(u32, u64), KeyLane>,
    blocked: usize,
    /// Records leased while another one holds their lane: the end of that lease was not durable
    /// when the term ended, and is repeated. They hold the lane after it, also if they are released
    /// before. Key 0: the lane is the partition.
    further: BTreeMap<(u32, u64), BTreeSet<Offset>>,
}

impl Lanes {
    /// Records that wait in lanes.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked
    }

    /// Whether `offset` must wait for another record of its key.
    pub(crate) fn blocks(&self, partition: u32, key: u64, offset: Offset) -> bool {
        self.by_key.get(&(partition, key)).is_some_and(|lane| lane.holder != offset)
    }

    pub(crate) fn hold(&mut self, partition: u32, key: u64, offset: Offset) {
        let lane = KeyLane { holder: offset, blocked: VecDeque::new() };
        let holder = self.by_key.entry((partition, key)).or_insert(lane).holder;
        if holder != offset {
            self.add_further(partition, key, offset);
        }
    }

    /// The record is leased, and holds its lane after all earlier ones are done.
    pub(crate) fn add_further(&mut self, partition: u32, key: u64, offset: Offset) {
        self.further.entry((partition, key)).or_default().insert(offset);
    }

    /// Removes the record from those that hold its lane later. Returns false if it was not one of
    /// them.
    pub(crate) fn remove_further(&mut self, partition: u32, key: u64, offset: Offset) -> bool {
        let Some(of_lane) = self.further.get_mut(&(partition, key)) else { return false };
        let removed = of_lane.remove(&offset);
        if of_lane.is_empty() {
            self.further.remove(&(partition, key));
        }
        removed
    }

    /// The next leased record to hold the lane.
    pub(crate) fn next_further(&mut self, partition: u32, key: u64) -> Option<Offset> {
        let first = *self.further.get(&(partition, key))?.first()?;
        self.remove_further(partition, key, first).then_some(first)
    }

    /// Removes those in a range.
    pub(crate) fn forget_further(&mut self, partition: u32, first: Offset, end: Offset) {
        if first >= end {
            return;
        }
        self.further.retain(|(of, _), offsets| {
            if *of == partition {
                offsets.retain(|offset| !(first..end).contains(offset));
            }
            !offsets.is_empty()
        });
    }

    pub(crate) fn block(&mut self, partition: u32, offset: Offset, meta: Meta) {
        if let Some(lane) = self.by_key.get_mut(&(partition, meta.key)) {
            let place = lane.blocked.partition_point(|waiting| waiting.0 < offset);
            lane.blocked.insert(place, (offset, meta));
            self.blocked += 1;
        }
    }

    /// The holder is done: the next record of its key holds the lane, and must be made ready.
    pub(crate) fn release(
        &mut self,
        partition: u32,
        key: u64,
        offset: Offset,
    ) -> Option<(Offset, Meta)> {
        if self.remove_further(partition, key, offset) {
            return None;
        }
        self.by_key.get(&(partition, key)).filter(|lane| lane.holder == offset)?;
        let further = self.next_further(partition, key);
        let lane = self.by_key.get_mut(&(partition, key))?;
        let next = match further {
            Some(further) => {
                lane.holder = further;
                // A record that was released meanwhile waits among the blocked ones.
                let place = lane.blocked.binary_search_by_key(&further, |waiting| waiting.0);
                lane.blocked.remove(place.ok()?)?
            }
            None => {
                let Some(next) = lane.blocked.pop_front() else {
                    self.by_key.remove(&(partition, key));
                    return None;
                };
                lane.holder = next.0;
                next
            }
        };
        self.blocked -= 1;
        Some(next)
    }

    /// Removes a blocked record.
    pub(crate) fn remove_blocked(&mut self, partition: u32, offset: Offset) {
        for lane in lanes_of(&mut self.by_key, partition) {
            if let Ok(place) = lane.blocked.binary_search_by_key(&offset, |waiting| waiting.0) {
                lane.blocked.remove(place);
                self.blocked -= 1;
            }
        }
    }

    /// Drops the waiting records below `end` in a partition.
    pub(crate) fn drop_blocked_below(&mut self, partition: u32, end: Offset) {
        for lane in lanes_of(&mut self.by_key, partition) {
            while lane.blocked.front().is_some_and(|waiting| waiting.0 < end) {
                lane.blocked.pop_front();
                self.blocked -= 1;
            }
        }
    }

    /// The holders of a partition's lanes, ascending.
    pub(crate) fn holders(&self, partition: u32) -> Vec<(Offset, u64)> {
        let of_partition = self.by_key.iter().filter(|((p, _), _)| *p == partition);
        let mut holders: Vec<_> =
            of_partition.map(|((_, key), lane)| (lane.holder, *key)).collect();
        holders.sort_unstable();
        holders
    }

    /// Offsets of a partition that wait in lanes, ascending.
    pub(crate) fn blocked_of(&self, partition: u32) -> Vec<Offset> {
        let of_partition = self.by_key.iter().filter(|((p, _), _)| *p == partition);
        let blocked = of_partition.flat_map(|(_, lane)| &lane.blocked);
        let mut offsets: Vec<_> = blocked.map(|waiting| waiting.0).collect();
        offsets.sort_unstable();
        offsets
    }

    /// The record that holds the lane of this waiting record.
    pub(crate) fn holder_before(&self, partition: u32, offset: Offset) -> Option<Offset> {
        let mut of_partition = self.by_key.iter().filter(|((p, _), _)| *p == partition);
        let waits = |lane: &KeyLane| lane.blocked.binary_search_by_key(&offset, |it| it.0).is_ok();
        of_partition.find(|(_, lane)| waits(lane)).map(|(_, lane)| lane.holder)
    }

    /// Removes a partition's lanes.
    pub(crate) fn clear(&mut self, partition: u32) {
        self.further.retain(|(of, _), _| *of != partition);
        let blocked = &mut self.blocked;
        self.by_key.retain(|(p, _), lane| {
            if *p == partition {
                *blocked -= lane.blocked.len();
            }
            *p != partition
        });
    }

    /// Removes all lanes. Returns the records that waited, by partition and offset.
    pub(crate) fn dissolve(&mut self) -> Vec<(u32, Offset, Meta)> {
        self.blocked = 0;
        self.further.clear();
        let mut waited = Vec::new();
        for ((partition, _), lane) in self.by_key.drain() {
            let blocked = lane.blocked.into_iter();
            waited.extend(blocked.map(|(offset, meta)| (partition, offset, meta)));
        }
        waited.sort_unstable_by_key(|&(partition, offset, _)| (partition, offset));
        waited
    }
}

/// Walks all lanes: for rare operations only.
fn lanes_of(
    by_key: &mut HashMap<(u32, u64), KeyLane>,
    partition: u32,
) -> impl Iterator<Item = &mut KeyLane> {
    by_key.iter_mut().filter(move |((p, _), _)| *p == partition).map(|(_, lane)| lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(key: u64) -> Meta {
        Meta { key, ..Meta::default() }
    }

    #[test]
    fn lane_is_held_by_one_record_at_a_time_and_removed_with_the_last() {
        let mut lanes = Lanes::default();
        lanes.hold(0, 9, 1);
        assert!(!lanes.blocks(0, 9, 1) && lanes.blocks(0, 9, 2) && !lanes.blocks(1, 9, 2));
        lanes.block(0, 5, meta(9));
        lanes.block(0, 3, meta(9));
        assert_eq!(lanes.blocked(), 2);
        assert_eq!(lanes.release(0, 9, 7), None);
        assert_eq!(lanes.release(0, 9, 1).map(|next| next.0), Some(3));
        assert!(lanes.blocks(0, 9, 5));
        assert_eq!(lanes.release(0, 9, 3).map(|next| next.0), Some(5));
        assert_eq!(lanes.release(0, 9, 5), None);
        assert!(lanes.by_key.is_empty());
        assert_eq!(lanes.blocked(), 0);
    }

    #[test]
    fn lane_with_two_leased_records_is_free_after_both_are_done() {
        for done in [[1, 2], [2, 1]] {
            let mut lanes = Lanes::default();
            lanes.hold(0, 9, 1);
            lanes.hold(0, 9, 2);
            lanes.block(0, 3, meta(9));
            assert_eq!(lanes.release(0, 9, done[0]), None);
            assert!(lanes.blocks(0, 9, 3));
            assert_eq!(lanes.release(0, 9, done[1]).map(|next| next.0), Some(3));
            assert!(lanes.further.is_empty());
        }
        // The second one was released, and precedes records that were never leased.
        let mut lanes = Lanes::default();
        lanes.hold(0, 9, 1);
        lanes.hold(0, 9, 2);
        lanes.block(0, 0, meta(9));
        lanes.block(0, 2, meta(9));
        assert_eq!(lanes.release(0, 9, 1).map(|next| next.0), Some(2));
        assert!(lanes.blocks(0, 9, 0) && lanes.further.is_empty());
        assert_eq!(lanes.release(0, 9, 2).map(|next| next.0), Some(0));
        assert_eq!(lanes.blocked(), 0);
    }
}
