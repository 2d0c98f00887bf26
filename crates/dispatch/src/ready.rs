//! What of a partition may be handed out.
//!
//! Three forms, by what they cost. *Loaded* records are known with all that a decision needs, 40
//! bytes each, and are few: a window. Beyond the window a record is an offset in a range, by rank,
//! and is looked up again when its turn comes. *Due* are offsets that came out of the wheel, which
//! keeps nothing but time and place.
//!
//! Every loaded record goes before every one in a range, so the best of the loaded is the best of
//! the partition; the due ones join as they are looked up.

use std::collections::BTreeMap;

use base::Offset;

use crate::ranges::Ranges;
use crate::record::Scanned;

/// What is remembered of a record that is loaded, blocked or leased.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) timestamp: i64,
    pub(crate) expires_ms: i64,
    /// 0 = none.
    pub(crate) key: u64,
    pub(crate) bytes: u32,
    pub(crate) priority: u8,
}

impl From<&Scanned> for Meta {
    fn from(record: &Scanned) -> Self {
        Self {
            timestamp: record.timestamp,
            expires_ms: record.expires_ms,
            key: record.key.unwrap_or(0),
            bytes: record.bytes,
            priority: record.priority,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// By rank and offset: the first is the next.
    loaded: BTreeMap<(u8, Offset), Meta>,
    ranged: BTreeMap<u8, Ranges>,
    pub(crate) due: Ranges,
}

impl Ready {
    pub(crate) fn loaded(&self) -> usize {
        self.loaded.len()
    }

    pub(crate) fn first(&self) -> Option<(u8, Offset, &Meta)> {
        self.loaded.first_key_value().map(|(&(rank, offset), meta)| (rank, offset, meta))
    }

    pub(crate) fn get(&self, rank: u8, offset: Offset) -> Option<&Meta> {
        self.loaded.get(&(rank, offset))
    }

    pub(crate) fn take(&mut self, rank: u8, offset: Offset) -> Option<Meta> {
        match self.loaded.first_entry() {
            Some(first) if *first.key() == (rank, offset) => Some(first.remove()),
            _ => self.loaded.remove(&(rank, offset)),
        }
    }

    /// Puts a record in its place, with at most `loaded_max` loaded.
    pub(crate) fn insert(&mut self, rank: u8, offset: Offset, meta: Meta, loaded_max: usize) {
        if self.ranged_first().is_some_and(|best| best < (rank, offset)) {
            self.ranged.entry(rank).or_default().insert(offset, offset + 1);
            return;
        }
        self.loaded.insert((rank, offset), meta);
        if self.loaded.len() > loaded_max
            && let Some(((rank, offset), _)) = self.loaded.pop_last()
        {
            self.ranged.entry(rank).or_default().insert(offset, offset + 1);
        }
    }

    fn ranged_first(&self) -> Option<(u8, Offset)> {
        let (&rank, ranges) = self.ranged.first_key_value()?;
        ranges.first().map(|(first, _)| (rank, first))
    }

    /// The range to look up next.
    pub(crate) fn next_range(&self) -> Option<(Offset, Offset)> {
        self.ranged.first_key_value()?.1.first()
    }

    /// How many ranges there are: what a backlog with priorities costs.
    pub(crate) fn ranges(&self) -> usize {
        self.ranged.values().map(Ranges::ranges).sum::<usize>() + self.due.ranges()
    }

    /// Whether there is anything to look up.
    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranged.is_empty() || !self.due.is_empty()
    }

    /// Takes a record out of the ranges, because it was looked up.
    pub(crate) fn look_up(&mut self, rank: u8, offset: Offset) -> bool {
        self.due.remove(offset, offset + 1) > 0 || self.remove_ranged(rank, offset, offset + 1) > 0
    }

    fn remove_ranged(&mut self, rank: u8, first: Offset, end: Offset) -> u64 {
        let Some(ranges) = self.ranged.get_mut(&rank) else { return 0 };
        let removed = ranges.remove(first, end);
        if ranges.is_empty() {
            self.ranged.remove(&rank);
        }
        removed
    }

    /// Takes out what the ranges have in `[first, end)`.
    pub(crate) fn take_ranges(&mut self, first: Offset, end: Offset) -> Vec<(Offset, Offset)> {
        let mut taken = self.due.within(first, end);
        self.due.remove(first, end);
        let ranks: Vec<u8> = self.ranged.keys().copied().collect();
        for rank in ranks {
            taken.extend(self.ranged[&rank].within(first, end));
            self.remove_ranged(rank, first, end);
        }
        taken.sort_unstable();
        taken
    }

    /// Takes one record out, wherever it is: `None` if it is nowhere, `Some(None)` if its key is
    /// not known here.
    pub(crate) fn remove(&mut self, offset: Offset) -> Option<Option<Meta>> {
        if let Some(place) = self.place_of(offset) {
            return self.loaded.remove(&place).map(Some);
        }
        (!self.take_ranges(offset, offset + 1).is_empty()).then_some(None)
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.place_of(offset).is_some()
            || self.due.contains(offset)
            || self.ranged.values().any(|ranges| ranges.contains(offset))
    }

    /// The loaded record's place, whatever its rank.
    fn place_of(&self, offset: Offset) -> Option<(u8, Offset)> {
        let mut rank = self.loaded.first_key_value()?.0.0;
        loop {
            if self.loaded.contains_key(&(rank, offset)) {
                return Some((rank, offset));
            }
            rank = self.loaded.range((rank.checked_add(1)?, 0)..).next()?.0.0;
        }
    }

    /// The timestamp of a record if it is loaded.
    pub(crate) fn timestamp(&self, offset: Offset) -> Option<i64> {
        Some(self.loaded[&self.place_of(offset)?].timestamp)
    }

    /// Drops what is below `end`.
    pub(crate) fn drop_below(&mut self, end: Offset) {
        self.loaded.retain(|(_, offset), _| *offset >= end);
        self.take_ranges(0, end);
    }

    /// Ranks changed: loaded records get their new place, the others are looked up again.
    pub(crate) fn rank_again(&mut self, loaded_max: usize, rank: impl Fn(u8) -> u8) {
        for (_, ranges) in std::mem::take(&mut self.ranged) {
            for (first, end) in ranges.iter() {
                self.due.insert(first, end);
            }
        }
        for ((_, offset), meta) in std::mem::take(&mut self.loaded) {
            self.insert(rank(meta.priority), offset, meta, loaded_max);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_loaded_and_the_rest_are_ranges() {
        let mut ready = Ready::default();
        for offset in 0..10 {
            ready.insert(255, offset, Meta::default(), 4);
        }
        assert_eq!((ready.loaded(), ready.ranges()), (4, 1));
        assert_eq!(ready.next_range(), Some((4, 10)));
        ready.insert(250, 20, Meta::default(), 4);
        assert_eq!(ready.first().map(|first| first.1), Some(20));
        assert_eq!(ready.next_range(), Some((3, 10)));
        assert!(ready.contains(3) && ready.contains(20) && !ready.contains(21));
        assert!(ready.look_up(255, 3));
        assert!(!ready.look_up(255, 3));
    }

    #[test]
    fn a_record_is_removed_wherever_it_is() {
        let mut ready = Ready::default();
        ready.insert(3, 5, Meta { key: 8, ..Meta::default() }, 2);
        ready.insert(9, 1, Meta::default(), 2);
        ready.insert(9, 2, Meta::default(), 2);
        ready.due.insert(7, 8);
        assert_eq!(ready.remove(5).flatten().map(|meta| meta.key), Some(8));
        assert_eq!(ready.remove(2), Some(None));
        assert_eq!(ready.remove(7), Some(None));
        assert_eq!(ready.remove(7), None);
        assert_eq!((ready.loaded(), ready.has_ranges()), (1, false));
    }
}
