//! The deliverable records of a partition.
//!
//! They are kept in four forms, by cost. *Loaded* records have all fields of a decision, 40 bytes
//! each, and are few: a window. Beyond the window a record is an offset in a range, by rank, and is
//! looked up again when its turn comes. *Due* records came out of the wheel, which keeps only time
//! and place. *Unranked* ones must be looked up again because ranks changed.
//!
//! Every loaded record precedes every one in a range, so that the best loaded record is the best of
//! the partition; due records join when they are looked up.
//!
//! Records of the same rank are ordered by offset. But in an unordered group, scheduled records are
//! ordered by the second of their due time: by offset, the last ones would starve while more become
//! due than are taken. Between the two kinds the older record precedes: by its timestamp, or its
//! due time.

use std::collections::{BTreeMap, VecDeque};

use base::{Offset, OffsetRanges};

use super::due::DueQueue;
use crate::record::Meta;

/// By offset. Records enter at the back and leave at the front, and released ones enter near the
/// front, so that searches and moves are short.
type Row = VecDeque<(Offset, Meta)>;

/// Order of a record among the loaded ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SortKey {
    pub(crate) rank: u8,
    /// The second (since the epoch) of its due time, if it is ordered by that.
    pub(crate) second: Option<i64>,
}

/// The next record to deliver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstReady {
    pub(crate) rank: u8,
    pub(crate) offset: Offset,
    pub(crate) meta: Meta,
    /// Its due time, or its timestamp.
    pub(crate) since_ms: i64,
}

#[derive(Debug, Default)]
pub(crate) struct ReadyRecords {
    /// By rank. The next record is the first of the first row.
    ranks: BTreeMap<u8, Row>,
    /// Records ordered by the second of their due time: by rank and second.
    scheduled: BTreeMap<(u8, i64), Row>,
    loaded: usize,
    loaded_scheduled: usize,
    ranged: BTreeMap<u8, OffsetRanges>,
    unranked: OffsetRanges,
    pub(crate) due: DueQueue,
    /// If the group is ordered by partition: the one record that may be delivered. It is loaded
    /// first and never unloaded, since all others wait for it: it may be behind any number of them
    /// if it was delivered under another ordering.
    pub(crate) holder: Option<Offset>,
}

/// Ranges at most this far apart are looked up together: another read costs as much as unpacking
/// this many records between them.
const NEAR: u64 = 32;

impl ReadyRecords {
    pub(crate) const fn new() -> Self {
        Self {
            ranks: BTreeMap::new(),
            scheduled: BTreeMap::new(),
            loaded: 0,
            loaded_scheduled: 0,
            ranged: BTreeMap::new(),
            unranked: OffsetRanges::new(),
            due: DueQueue::new(),
            holder: None,
        }
    }

    pub(crate) fn loaded(&self) -> usize {
        self.loaded
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.loaded == 0 && !self.has_ranges()
    }

    /// Number of loaded records that are ordered by offset.
    pub(crate) fn loaded_by_offset(&self) -> usize {
        self.loaded - self.loaded_scheduled
    }

    pub(crate) fn first(&self) -> Option<FirstReady> {
        self.first_from(0)
    }

    /// The first of a worse rank.
    pub(crate) fn first_behind(&self, rank: u8) -> Option<FirstReady> {
        self.first_from(rank.checked_add(1)?)
    }

    fn first_from(&self, rank: u8) -> Option<FirstReady> {
        let by_offset = self.ranks.range(rank..).next().and_then(|(&rank, row)| {
            let &(offset, meta) = row.front()?;
            Some(FirstReady { rank, offset, meta, since_ms: meta.timestamp })
        });
        let from = (rank, i64::MIN);
        let scheduled = self.scheduled.range(from..).next().and_then(|(&(rank, second), row)| {
            let &(offset, meta) = row.front()?;
            Some(FirstReady { rank, offset, meta, since_ms: second.saturating_mul(1_000) })
        });
        // On a tie `min_by_key` returns the first: the one ordered by offset.
        by_offset.into_iter().chain(scheduled).min_by_key(|first| (first.rank, first.since_ms))
    }

    /// The row of a record of this rank, and its place there.
    fn find(&self, rank: u8, offset: Offset) -> Option<(SortKey, usize)> {
        let in_row = |row: &Row| match row.front() {
            Some(front) if front.0 == offset => Some(0),
            _ => place(row, offset).ok(),
        };
        let by_offset = self.ranks.get(&rank).and_then(in_row);
        if let Some(place) = by_offset {
            return Some((SortKey { rank, second: None }, place));
        }
        let mut scheduled = self.scheduled.range((rank, i64::MIN)..=(rank, i64::MAX));
        scheduled.find_map(|(&(_, second), row)| {
            Some((SortKey { rank, second: Some(second) }, in_row(row)?))
        })
    }

    fn row(&self, sort_key: SortKey) -> Option<&Row> {
        match sort_key.second {
            None => self.ranks.get(&sort_key.rank),
            Some(second) => self.scheduled.get(&(sort_key.rank, second)),
        }
    }

    pub(crate) fn get(&self, rank: u8, offset: Offset) -> Option<&Meta> {
        let (sort_key, place) = self.find(rank, offset)?;
        self.row(sort_key)?.get(place).map(|(_, meta)| meta)
    }

    pub(crate) fn take(&mut self, rank: u8, offset: Offset) -> Option<Meta> {
        let (sort_key, place) = self.find(rank, offset)?;
        self.take_at(sort_key, place).map(|(_, meta)| meta)
    }

    fn take_at(&mut self, sort_key: SortKey, place: usize) -> Option<(Offset, Meta)> {
        let take = |row: &mut Row| match place {
            0 => row.pop_front(),
            _ => row.remove(place),
        };
        let SortKey { rank, second } = sort_key;
        let taken = match second {
            None => {
                let row = self.ranks.get_mut(&rank)?;
                let taken = take(row)?;
                if row.is_empty() {
                    self.ranks.remove(&rank);
                }
                taken
            }
            Some(second) => {
                let row = self.scheduled.get_mut(&(rank, second))?;
                let taken = take(row)?;
                if row.is_empty() {
                    self.scheduled.remove(&(rank, second));
                }
                self.loaded_scheduled -= 1;
                taken
            }
        };
        self.loaded -= 1;
        Some(taken)
    }

    /// Inserts a record at its place, with at most `loaded_max` loaded.
    pub(crate) fn insert(
        &mut self,
        sort_key: SortKey,
        offset: Offset,
        meta: Meta,
        loaded_max: usize,
    ) {
        let SortKey { rank, second } = sort_key;
        let behind = self.ranged_first().is_some_and(|best| match second {
            None => best < (rank, offset),
            Some(_) => best.0 < rank,
        });
        if behind && self.holder != Some(offset) {
            self.ranged.entry(rank).or_default().insert(offset, offset + 1);
            return;
        }
        let row = match second {
            None => self.ranks.entry(rank).or_default(),
            Some(second) => self.scheduled.entry((rank, second)).or_default(),
        };
        match place(row, offset) {
            Ok(_) => return,
            Err(place) => row.insert(place, (offset, meta)),
        }
        self.loaded += 1;
        self.loaded_scheduled += usize::from(second.is_some());
        if self.loaded > loaded_max {
            self.unload_last();
        }
    }

    /// Unloads the worst record: back into a range, or among the due ones.
    fn unload_last(&mut self) {
        let by_offset = self.ranks.last_key_value().map(|(&rank, row)| (rank, row.len()));
        let scheduled = self.scheduled.last_key_value();
        let scheduled = scheduled.map(|(&(rank, second), row)| (rank, second, row.len()));
        match (by_offset, scheduled) {
            // Scheduled records of a rank first: as due ones they cost little, and the others keep
            // a window.
            (by_offset, Some((rank, second, count)))
                if by_offset.is_none_or(|(other, _)| other <= rank) =>
            {
                let sort_key = SortKey { rank, second: Some(second) };
                if let Some((offset, _)) = self.take_at(sort_key, count - 1) {
                    self.due.put_back(offset);
                }
            }
            (Some((rank, count)), _) => {
                let last = self.ranks[&rank].back().map(|(offset, _)| *offset);
                let back = if last == self.holder { 2 } else { 1 };
                let Some(place) = count.checked_sub(back) else { return };
                if let Some((offset, _)) = self.take_at(SortKey { rank, second: None }, place) {
                    self.ranged.entry(rank).or_default().insert(offset, offset + 1);
                }
            }
            (None, _) => {}
        }
    }

    fn worst_rank(&self) -> Option<u8> {
        let by_offset = self.ranks.keys().next_back().copied();
        let scheduled = self.scheduled.keys().next_back().map(|(rank, _)| *rank);
        by_offset.max(scheduled)
    }

    fn ranged_first(&self) -> Option<(u8, Offset)> {
        let (&rank, ranges) = self.ranged.first_key_value()?;
        ranges.first().map(|(first, _)| (rank, first))
    }

    /// The record that the whole partition waits for, if it must be looked up.
    pub(crate) fn holder_to_look_up(&self) -> Option<Offset> {
        self.holder.filter(|&holder| self.has_in_ranges(holder))
    }

    fn has_in_ranges(&self, offset: Offset) -> bool {
        self.due.contains(offset)
            || self.unranked.contains(offset)
            || self.ranged.values().any(|ranges| ranges.contains(offset))
    }

    /// The next range to look up beyond the loaded records, at most `span` offsets.
    pub(crate) fn next_range(&self, span: u64) -> Option<(Offset, Offset)> {
        self.ranged.first_key_value()?.1.first_near(NEAR, span)
    }

    /// The range to look up regardless of the loaded records: due or of unknown rank.
    pub(crate) fn next_due(&mut self, span: u64) -> Option<(Offset, Offset)> {
        self.unranked.first_near(NEAR, span).or_else(|| self.due.next(NEAR, span))
    }

    /// The memory of the ranges in cells: it grows as a backlog with priorities is scattered.
    pub(crate) fn cells(&self) -> usize {
        self.ranged.values().map(OffsetRanges::cells).sum::<usize>() + self.unranked.cells()
    }

    /// Whether there is anything to look up.
    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranged.is_empty() || !self.unranked.is_empty() || !self.due.is_empty()
    }

    /// Removes a looked-up record from the ranges. Returns `false` if it must wait: a due one needs
    /// room, or a better rank than the worst loaded record; others must be the best and need room.
    pub(crate) fn look_up(&mut self, rank: u8, offset: Offset, window: usize) -> bool {
        if self.holder == Some(offset) {
            return !self.take_ranges(offset, offset + 1).is_empty();
        }
        if self.unranked.remove(offset, offset + 1) > 0 {
            return true;
        }
        let fits = self.loaded < window * 2 || self.worst_rank().is_some_and(|worst| rank < worst);
        if fits && self.due.take(offset) {
            return true;
        }
        self.loaded < window
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

    /// Removes and returns the ranges to look up in `[first, end)`.
    pub(crate) fn take_ranges(&mut self, first: Offset, end: Offset) -> Vec<(Offset, Offset)> {
        let mut taken = self.due.take_range(first, end);
        taken.extend(self.unranked.within(first, end));
        self.unranked.remove(first, end);
        let ranks: Vec<u8> = self.ranged.keys().copied().collect();
        for rank in ranks {
            taken.extend(self.ranged[&rank].within(first, end));
            self.remove_ranged(rank, first, end);
        }
        taken.sort_unstable();
        taken
    }

    /// Removes one record from any place; returns whether it was here.
    pub(crate) fn remove(&mut self, offset: Offset) -> bool {
        match self.find_any(offset) {
            Some((sort_key, place)) => self.take_at(sort_key, place).is_some(),
            None => !self.take_ranges(offset, offset + 1).is_empty(),
        }
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.find_any(offset).is_some() || self.has_in_ranges(offset)
    }

    /// The place of a loaded record of any rank.
    fn find_any(&self, offset: Offset) -> Option<(SortKey, usize)> {
        let mut ranks = self.ranks.iter().filter_map(|(&rank, row)| {
            place(row, offset).ok().map(|place| (SortKey { rank, second: None }, place))
        });
        let mut scheduled = self.scheduled.iter().filter_map(|(&(rank, second), row)| {
            place(row, offset).ok().map(|place| (SortKey { rank, second: Some(second) }, place))
        });
        ranks.next().or_else(|| scheduled.next())
    }

    /// The timestamp of a record if it is loaded.
    pub(crate) fn timestamp(&self, offset: Offset) -> Option<i64> {
        let (sort_key, place) = self.find_any(offset)?;
        self.row(sort_key)?.get(place).map(|(_, meta)| meta.timestamp)
    }

    /// Drops all records below `end`.
    pub(crate) fn drop_below(&mut self, end: Offset) {
        let drop = |row: &mut Row| {
            let below = row.partition_point(|record| record.0 < end);
            row.drain(..below).count()
        };
        let mut dropped = 0;
        self.scheduled.retain(|_, row| {
            dropped += drop(row);
            !row.is_empty()
        });
        self.loaded_scheduled -= dropped;
        self.ranks.retain(|_, row| {
            dropped += drop(row);
            !row.is_empty()
        });
        self.loaded -= dropped;
        self.take_ranges(0, end);
    }

    /// The policy changed: reorders loaded records, and looks the others up again. `sort_key` gets
    /// the due time of records that were ordered by it.
    pub(crate) fn rearrange(
        &mut self,
        loaded_max: usize,
        sort_key: impl Fn(&Meta, Option<i64>) -> SortKey,
    ) {
        for (_, ranges) in std::mem::take(&mut self.ranged) {
            for (first, end) in ranges.iter() {
                self.unranked.insert(first, end);
            }
        }
        (self.loaded, self.loaded_scheduled) = (0, 0);
        let by_offset = std::mem::take(&mut self.ranks).into_values().flatten();
        let scheduled = std::mem::take(&mut self.scheduled).into_iter();
        let scheduled = scheduled.flat_map(|((_, second), row)| {
            row.into_iter().map(move |record| (record, Some(second.saturating_mul(1_000))))
        });
        for ((offset, meta), since_ms) in by_offset.map(|record| (record, None)).chain(scheduled) {
            self.insert(sort_key(&meta, since_ms), offset, meta, loaded_max);
        }
    }

    /// Removes all records. The holder may be leased, and then still holds the partition.
    pub(crate) fn clear(&mut self) {
        *self = Self { holder: self.holder, ..Self::default() };
    }
}

fn place(records: &Row, offset: Offset) -> Result<usize, usize> {
    match records.back() {
        Some(back) if back.0 >= offset => records.binary_search_by_key(&offset, |record| record.0),
        _ => Err(records.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINARY: SortKey = SortKey { rank: 255, second: None };

    fn at(rank: u8) -> SortKey {
        SortKey { rank, second: None }
    }

    fn since(second: i64) -> SortKey {
        SortKey { rank: 255, second: Some(second) }
    }

    fn offsets(ready: &mut ReadyRecords) -> Vec<Offset> {
        let mut offsets = Vec::new();
        while let Some(FirstReady { rank, offset, .. }) = ready.first() {
            assert!(ready.take(rank, offset).is_some());
            offsets.push(offset);
        }
        offsets
    }

    #[test]
    fn best_records_are_loaded_and_the_others_are_ranges() {
        let mut ready = ReadyRecords::default();
        for offset in 0..10 {
            ready.insert(ORDINARY, offset, Meta::default(), 4);
        }
        assert_eq!((ready.loaded(), ready.cells()), (4, 1));
        assert_eq!(ready.next_range(99), Some((4, 10)));
        ready.insert(at(250), 20, Meta::default(), 4);
        assert_eq!(ready.first().map(|first| first.offset), Some(20));
        assert_eq!(ready.next_range(99), Some((3, 10)));
        assert!(ready.contains(3) && ready.contains(20) && !ready.contains(21));
        assert!(!ready.look_up(255, 3, 4), "there is no room");
        assert!(!ready.look_up(255, 4, 5), "it is not the best");
        assert!(ready.look_up(255, 3, 5));
        assert!(!ready.look_up(255, 3, 5), "it was already");
    }

    #[test]
    fn record_is_removed_from_any_form() {
        let mut ready = ReadyRecords::default();
        ready.insert(at(3), 5, Meta { key: 8, ..Meta::default() }, 3);
        ready.insert(at(9), 1, Meta::default(), 3);
        ready.insert(SortKey { rank: 9, second: Some(4) }, 3, Meta::default(), 3);
        ready.insert(at(9), 2, Meta::default(), 2);
        ready.due.push(7);
        for offset in [5, 3, 2, 7] {
            assert!(ready.contains(offset) && ready.remove(offset) && !ready.contains(offset));
        }
        assert!(!ready.remove(7));
        assert_eq!((ready.loaded(), ready.loaded_by_offset(), ready.has_ranges()), (1, 1, false));
    }

    #[test]
    fn records_due_longest_go_first_and_older_ones_before_them() {
        let mut ready = ReadyRecords::default();
        for (second, offset) in [(30, 1), (20, 9), (30, 0), (20, 8)] {
            ready.insert(since(second), offset, Meta::default(), 99);
        }
        for (timestamp, offset) in [(25_000, 2), (20_000, 5), (90_000, 7)] {
            ready.insert(ORDINARY, offset, Meta { timestamp, ..Meta::default() }, 99);
        }
        assert_eq!((ready.loaded(), ready.loaded_by_offset()), (7, 3));
        // By offset 2 precedes 5, though it is younger.
        assert_eq!(offsets(&mut ready), [8, 9, 2, 5, 0, 1, 7]);
    }

    #[test]
    fn records_due_last_are_unloaded_beyond_the_window() {
        let mut ready = ReadyRecords::default();
        for (second, offset) in [(10, 7), (30, 3), (20, 5)] {
            ready.insert(since(second), offset, Meta::default(), 2);
        }
        ready.insert(ORDINARY, 1, Meta::default(), 2);
        assert_eq!((ready.loaded(), ready.due.len(), ready.cells()), (2, 2, 0));
        assert_eq!(ready.next_due(1), Some((3, 4)));
        assert!(!ready.look_up(255, 3, 1), "there is no room");
        assert!(ready.look_up(250, 3, 1), "it is better than what has the room");
        assert_eq!(offsets(&mut ready), [1, 7]);
    }
}
