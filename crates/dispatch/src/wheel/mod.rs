//! All timers in one hierarchical wheel: no timer of its own per record.
//!
//! Eleven levels of 64 slots reach from a millisecond to any `i64`. An entry is on the level of the
//! highest digit (base 64) in which its time differs from the wheel's, and descends a level when
//! that digit is reached. Entries are 20 bytes in chunks, and cannot be removed: when one fires,
//! the engine checks whether it is still live. A delay therefore costs 20 bytes and no index.
//! Leases mostly end before their deadline and are for that reason not in the wheel
//! ([`crate::lease`] links them instead).

mod subject;

use std::collections::BinaryHeap;
use std::mem;

pub(crate) use subject::{Kind, WheelSubject};

const LEVELS: usize = 11;
const SLOTS: usize = 64;
const DIGIT_BITS: u32 = 6;
/// Entries of a chunk: at most one half-filled chunk per slot is wasted.
const CHUNK: usize = 256;

/// 20 bytes: 64-bit fields are split so that their alignment costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    due: [u32; 2],
    what: [u32; 2],
    pub(crate) place: u32,
}

const _: () = assert!(size_of::<Entry>() == 20);

impl Entry {
    pub(crate) fn new(due_ms: i64, what: u64, place: u32) -> Self {
        let due = due_ms.max(0) as u64;
        Self { due: split(due), what: split(what), place }
    }

    pub(crate) fn due_ms(self) -> i64 {
        self.due() as i64
    }

    pub(crate) fn what(self) -> u64 {
        joined(self.what)
    }

    fn due(self) -> u64 {
        joined(self.due)
    }
}

fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

fn joined([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[derive(Debug, Default)]
struct Slot {
    chunks: Vec<Vec<Entry>>,
}

impl Slot {
    fn push(&mut self, entry: Entry) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(entry),
            // The first chunk grows on demand, so that a single entry is cheap.
            None => self.chunks.push(vec![entry]),
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
    }
}

#[derive(Debug)]
struct Level {
    occupied: u64,
    slots: [Slot; SLOTS],
}

#[derive(Debug, Default)]
pub(crate) struct Wheel {
    /// The time up to which all entries have fired, except those in the two lists below.
    now: u64,
    /// Allocated on first use: an engine without delays has none.
    levels: [Option<Box<Level>>; LEVELS],
    /// Due entries: left over by a bounded tick, or added after their time.
    overdue: Vec<Entry>,
    /// Chunks of a slot that are descending a level.
    descending: Vec<Vec<Entry>>,
    entries: usize,
}

impl Wheel {
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    pub(crate) fn insert(&mut self, entry: Entry, now_ms: i64) {
        if self.entries == 0 {
            self.now = now_ms.max(0) as u64;
        }
        self.add(entry);
    }

    /// As [`Wheel::insert`] if the current time is not at hand.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.entries += 1;
        self.place(entry);
    }

    fn place(&mut self, entry: Entry) {
        let due = entry.due();
        if due <= self.now {
            self.overdue.push(entry);
            return;
        }
        let level = level_of(due ^ self.now);
        let slot = digit(due, level);
        let level = self.levels[level].get_or_insert_with(|| {
            Box::new(Level { occupied: 0, slots: std::array::from_fn(|_| Slot::default()) })
        });
        level.occupied |= 1 << slot;
        level.slots[slot].push(entry);
    }

    /// The first occupied slot, and the time at which it begins.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // All slots of a lower level precede those of a higher one.
        self.levels.iter().enumerate().find_map(|(number, level)| {
            let occupied = level.as_ref()?.occupied;
            if occupied == 0 {
                return None;
            }
            let slot = occupied.trailing_zeros() as usize;
            Some((number, slot, self.slot_begins(number, slot)))
        })
    }

    fn slot_begins(&self, level: usize, slot: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        let above = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        self.now & above | (slot as u64) << shift
    }

    /// Time of the next work: at times before the first entry is due.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        if !self.descending.is_empty() {
            return Some(self.now as i64);
        }
        let overdue = self.overdue.iter().map(|entry| entry.due()).min();
        let slot = self.next_slot().map(|(_, _, begins)| begins);
        overdue.into_iter().chain(slot).min().map(|due| due as i64)
    }

    /// Moves entries due by `now_ms` to `due`, in the order of time, until `work` entries were
    /// processed; returns the remaining work.
    pub(crate) fn advance(&mut self, now_ms: i64, mut work: usize, due: &mut Vec<Entry>) -> usize {
        let now = now_ms.max(0) as u64;
        self.take_overdue(now, &mut work, due);
        loop {
            while let Some(chunk) = self.descending.pop() {
                work = work.saturating_sub(chunk.len());
                for entry in chunk {
                    self.place(entry);
                }
                if work == 0 {
                    return 0;
                }
            }
            self.take_overdue(now, &mut work, due);
            if work == 0 {
                return 0;
            }
            let Some((level, slot, begins)) = self.next_slot().filter(|next| next.2 <= now) else {
                break;
            };
            self.now = begins;
            let chunks = self.take_slot(level, slot);
            if level > 0 {
                // Taken from the end, and so returned in the order of insertion.
                self.descending = chunks;
                self.descending.reverse();
            } else {
                for chunk in chunks {
                    self.overdue.extend(chunk);
                }
                self.overdue.reverse();
            }
        }
        self.now = self.now.max(now);
        work
    }

    fn take_overdue(&mut self, now: u64, work: &mut usize, due: &mut Vec<Entry>) {
        let mut early = Vec::new();
        while *work > 0
            && let Some(entry) = self.overdue.pop()
        {
            *work -= 1;
            // Not due only after the clock went back.
            if entry.due() <= now {
                self.entries -= 1;
                due.push(entry);
            } else {
                early.push(entry);
            }
        }
        self.overdue.append(&mut early);
        if self.overdue.is_empty() && self.overdue.capacity() > CHUNK {
            self.overdue = Vec::new();
        }
    }

    fn take_slot(&mut self, level: usize, slot: usize) -> Vec<Vec<Entry>> {
        let Some(level) = &mut self.levels[level] else { return Vec::new() };
        level.occupied &= !(1 << slot);
        mem::take(&mut level.slots[slot].chunks)
    }

    fn slots(&self) -> impl Iterator<Item = (u64, &Slot)> {
        self.levels.iter().enumerate().flat_map(move |(number, level)| {
            let slots = level.iter().flat_map(|level| level.slots.iter().enumerate());
            slots.map(move |(slot, entries)| (self.slot_begins(number, slot), entries))
        })
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let waiting = self.slots().flat_map(|(_, slot)| slot.chunks.iter().flatten());
        self.overdue.iter().chain(self.descending.iter().flatten()).chain(waiting).copied()
    }

    /// The first `count` entries by `key`, which must order by time first, above `after`.
    pub(crate) fn first_by<K: Ord>(
        &self,
        count: usize,
        after: Option<&K>,
        key: impl Fn(Entry) -> Option<(i64, K)>,
    ) -> Vec<K> {
        let mut kept: BinaryHeap<(i64, K)> = BinaryHeap::new();
        let mut consider = |entries: &mut dyn Iterator<Item = Entry>, begins: Option<u64>| {
            // Skips a whole slot that is behind all results so far.
            if kept.len() == count && begins.zip(kept.peek()).is_some_and(|(b, k)| b as i64 > k.0) {
                return;
            }
            for (due, key) in entries.filter_map(&key) {
                if after.is_some_and(|after| key <= *after) {
                    continue;
                }
                kept.push((due, key));
                if kept.len() > count {
                    kept.pop();
                }
            }
        };
        let mut early = self.overdue.iter().chain(self.descending.iter().flatten()).copied();
        consider(&mut early, None);
        for (begins, slot) in self.slots().filter(|(_, slot)| !slot.chunks.is_empty()) {
            consider(&mut slot.chunks.iter().flatten().copied(), Some(begins));
        }
        kept.into_sorted_vec().into_iter().map(|(_, key)| key).collect()
    }

    /// Drops stale entries.
    pub(crate) fn retain(&mut self, mut live: impl FnMut(Entry) -> bool) {
        let kept: Vec<Entry> = self.entries().filter(|&entry| live(entry)).collect();
        let now = self.now;
        *self = Self { now, ..Self::default() };
        self.entries = kept.len();
        for entry in kept {
            self.place(entry);
        }
    }
}

fn level_of(difference: u64) -> usize {
    ((u64::BITS - 1 - difference.max(1).leading_zeros()) / DIGIT_BITS) as usize
}

fn digit(due: u64, level: usize) -> usize {
    (due >> (DIGIT_BITS * level as u32)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn due(wheel: &mut Wheel, now_ms: i64) -> Vec<i64> {
        let mut out = Vec::new();
        wheel.advance(now_ms, usize::MAX, &mut out);
        out.into_iter().map(Entry::due_ms).collect()
    }

    #[test]
    fn entry_fires_at_its_millisecond_and_not_before() {
        for due_ms in [1_001, 1_063, 1_064, 5_000, 100_000, 1 << 40, i64::MAX - 1] {
            let mut wheel = Wheel::default();
            wheel.insert(Entry::new(due_ms, 7, 3), 1_000);
            assert_eq!(due(&mut wheel, due_ms - 1), []);
            assert_eq!(due(&mut wheel, due_ms), [due_ms]);
            assert_eq!(wheel.len(), 0);
            assert_eq!(wheel.next_ms(), None);
        }
    }

    #[test]
    fn work_is_bounded_and_continues_with_the_next_call() {
        let mut wheel = Wheel::default();
        for number in 0..10_000 {
            wheel.insert(Entry::new(5_000 + number % 3, number as u64, 0), 0);
        }
        let mut out = Vec::new();
        let mut calls = 0;
        while wheel.next_ms().is_some_and(|next| next <= 6_000) {
            let before = out.len();
            wheel.advance(6_000, 1_000, &mut out);
            assert!(out.len() - before <= 1_000);
            calls += 1;
        }
        assert!(calls >= 10);
        assert_eq!(out.len(), 10_000);
        assert!(out.is_sorted_by_key(|entry| entry.due_ms()));
    }

    #[test]
    fn no_entry_fires_early_when_the_clock_goes_back() {
        let mut wheel = Wheel::default();
        wheel.insert(Entry::new(10_000, 1, 0), 0);
        assert_eq!(due(&mut wheel, 9_000), []);
        wheel.insert(Entry::new(5_000, 2, 0), 4_000);
        assert_eq!(due(&mut wheel, 4_000), []);
        assert_eq!(wheel.next_ms(), Some(5_000));
        assert_eq!(due(&mut wheel, 5_000), [5_000]);
        assert_eq!(due(&mut wheel, 10_000), [10_000]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(
            steps in prop::collection::vec((0i64..200_000, 0i64..40_000, 0usize..4), 1..80)
        ) {
            let mut wheel = Wheel::default();
            let mut list: Vec<i64> = Vec::new();
            let mut now = 1_000_000;
            for (delay, passes, count) in steps {
                for more in 0..count as i64 {
                    let due_ms = now + 1 + delay * (more + 1);
                    wheel.insert(Entry::new(due_ms, due_ms as u64, 0), now);
                    list.push(due_ms);
                }
                now += passes;
                if let Some(next) = wheel.next_ms() {
                    prop_assert!(list.iter().all(|&due_ms| due_ms >= next));
                }
                let mut expected: Vec<i64> =
                    list.extract_if(.., |due_ms| *due_ms <= now).collect();
                expected.sort_unstable();
                prop_assert_eq!(due(&mut wheel, now), expected);
                prop_assert_eq!(wheel.len(), list.len());
                list.sort_unstable();
                let listed =
                    wheel.first_by(5, None, |entry| Some((entry.due_ms(), entry.due_ms())));
                prop_assert_eq!(&listed[..], &list[..list.len().min(5)]);
            }
        }
    }
}
