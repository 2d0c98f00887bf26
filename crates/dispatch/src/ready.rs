//! What of a partition may be handed out.
//!
//! Three forms, by what they cost. *Loaded* records are known with all that a decision needs, 40
//! bytes each, and are few: a window. Beyond the window a record is an offset in a range, by rank,
//! and is looked up again when its turn comes. *Due* are offsets that came out of the wheel, which
//! keeps nothing but time and place.
//!
//! Every loaded record goes before every one in a range, so the best of the loaded is the best of
//! the partition; the due ones join as they are looked up.

use std::collections::{BTreeMap, VecDeque};

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
    /// By rank, then by offset: the first of the first is the next. Records come in at the back
    /// and go out in front, and what came back goes in near the front, so that nothing is searched
    /// or moved for long.
    ranks: BTreeMap<u8, VecDeque<(Offset, Meta)>>,
    loaded: usize,
    ranged: BTreeMap<u8, Ranges>,
    pub(crate) due: Ranges,
}

/// Ranges so near each other are looked up together.
const NEAR: u64 = 256;

impl Ready {
    pub(crate) fn loaded(&self) -> usize {
        self.loaded
    }

    pub(crate) fn first(&self) -> Option<(u8, Offset, &Meta)> {
        let (&rank, records) = self.ranks.first_key_value()?;
        records.front().map(|(offset, meta)| (rank, *offset, meta))
    }

    pub(crate) fn get(&self, rank: u8, offset: Offset) -> Option<&Meta> {
        let records = self.ranks.get(&rank)?;
        let front = records.front().filter(|front| front.0 == offset);
        front.or_else(|| records.get(place(records, offset).ok()?)).map(|(_, meta)| meta)
    }

    pub(crate) fn take(&mut self, rank: u8, offset: Offset) -> Option<Meta> {
        let records = self.ranks.get_mut(&rank)?;
        let (_, meta) = match records.front() {
            Some(front) if front.0 == offset => records.pop_front()?,
            _ => records.remove(place(records, offset).ok()?)?,
        };
        self.loaded -= 1;
        if records.is_empty() {
            self.ranks.remove(&rank);
        }
        Some(meta)
    }

    /// Puts a record in its place, with at most `loaded_max` loaded.
    pub(crate) fn insert(&mut self, rank: u8, offset: Offset, meta: Meta, loaded_max: usize) {
        if self.ranged_first().is_some_and(|best| best < (rank, offset)) {
            self.ranged.entry(rank).or_default().insert(offset, offset + 1);
            return;
        }
        let records = self.ranks.entry(rank).or_default();
        match place(records, offset) {
            Ok(_) => return,
            Err(place) => records.insert(place, (offset, meta)),
        }
        self.loaded += 1;
        if self.loaded > loaded_max {
            self.unload_last();
        }
    }

    /// The worst of the loaded becomes an offset in a range.
    fn unload_last(&mut self) {
        let Some(mut worst) = self.ranks.last_entry() else { return };
        if let Some((offset, _)) = worst.get_mut().pop_back() {
            self.loaded -= 1;
            self.ranged.entry(*worst.key()).or_default().insert(offset, offset + 1);
        }
        if worst.get().is_empty() {
            worst.remove();
        }
    }

    fn ranged_first(&self) -> Option<(u8, Offset)> {
        let (&rank, ranges) = self.ranged.first_key_value()?;
        ranges.first().map(|(first, _)| (rank, first))
    }

    /// What to look up next beyond the loaded ones, of `span` offsets at most.
    pub(crate) fn next_range(&self, span: u64) -> Option<(Offset, Offset)> {
        self.ranged.first_key_value()?.1.first_near(NEAR, span)
    }

    /// What has come out of the wheel to be looked up.
    pub(crate) fn next_due(&self, span: u64) -> Option<(Offset, Offset)> {
        self.due.first_near(NEAR, span)
    }

    /// How many ranges there are: what a backlog with priorities costs.
    pub(crate) fn ranges(&self) -> usize {
        self.ranged.values().map(Ranges::ranges).sum::<usize>() + self.due.ranges()
    }

    /// Whether there is anything to look up.
    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranged.is_empty() || !self.due.is_empty()
    }

    /// Takes a record out of the ranges, because it was looked up: if it is due, or the best of
    /// them and there is room.
    pub(crate) fn look_up(&mut self, rank: u8, offset: Offset, loaded_max: usize) -> bool {
        if self.due.remove(offset, offset + 1) > 0 {
            return true;
        }
        self.loaded < loaded_max
            && self.ranged_first() == Some((rank, offset))
            && self.remove_ranged(rank, offset, offset + 1) > 0
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

    /// Takes one record out, wherever it is; whether it was here.
    pub(crate) fn remove(&mut self, offset: Offset) -> bool {
        match self.rank_of(offset) {
            Some(rank) => self.take(rank, offset).is_some(),
            None => !self.take_ranges(offset, offset + 1).is_empty(),
        }
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.rank_of(offset).is_some()
            || self.due.contains(offset)
            || self.ranged.values().any(|ranges| ranges.contains(offset))
    }

    /// The rank that a loaded record has.
    fn rank_of(&self, offset: Offset) -> Option<u8> {
        let mut ranks = self.ranks.iter();
        ranks.find(|(_, records)| place(records, offset).is_ok()).map(|(&rank, _)| rank)
    }

    /// The timestamp of a record if it is loaded.
    pub(crate) fn timestamp(&self, offset: Offset) -> Option<i64> {
        self.get(self.rank_of(offset)?, offset).map(|meta| meta.timestamp)
    }

    /// Drops what is below `end`.
    pub(crate) fn drop_below(&mut self, end: Offset) {
        let loaded = &mut self.loaded;
        self.ranks.retain(|_, records| {
            let below = records.partition_point(|record| record.0 < end);
            records.drain(..below);
            *loaded -= below;
            !records.is_empty()
        });
        self.take_ranges(0, end);
    }

    /// Ranks changed: loaded records get their new place, the others are looked up again.
    pub(crate) fn rank_again(&mut self, loaded_max: usize, rank: impl Fn(u8) -> u8) {
        for (_, ranges) in std::mem::take(&mut self.ranged) {
            for (first, end) in ranges.iter() {
                self.due.insert(first, end);
            }
        }
        self.loaded = 0;
        for (offset, meta) in std::mem::take(&mut self.ranks).into_values().flatten() {
            self.insert(rank(meta.priority), offset, meta, loaded_max);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn place(records: &VecDeque<(Offset, Meta)>, offset: Offset) -> Result<usize, usize> {
    match records.back() {
        Some(back) if back.0 >= offset => records.binary_search_by_key(&offset, |record| record.0),
        _ => Err(records.len()),
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
        assert_eq!(ready.next_range(99), Some((4, 10)));
        ready.insert(250, 20, Meta::default(), 4);
        assert_eq!(ready.first().map(|first| first.1), Some(20));
        assert_eq!(ready.next_range(99), Some((3, 10)));
        assert!(ready.contains(3) && ready.contains(20) && !ready.contains(21));
        assert!(!ready.look_up(255, 3, 4), "there is no room");
        assert!(!ready.look_up(255, 4, 5), "it is not the best");
        assert!(ready.look_up(255, 3, 5));
        assert!(!ready.look_up(255, 3, 5), "it was already");
    }

    #[test]
    fn a_record_is_removed_wherever_it_is() {
        let mut ready = Ready::default();
        ready.insert(3, 5, Meta { key: 8, ..Meta::default() }, 2);
        ready.insert(9, 1, Meta::default(), 2);
        ready.insert(9, 2, Meta::default(), 2);
        ready.due.insert(7, 8);
        assert!(ready.remove(5) && ready.remove(2) && ready.remove(7));
        assert!(!ready.remove(7));
        assert_eq!((ready.loaded(), ready.has_ranges()), (1, false));
    }
}
