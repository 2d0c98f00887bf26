//! The engine's state of one partition, its deliverable records, and the table of partitions.

mod due;
mod ready;
mod table;

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use base::{Offset, OffsetRanges};

use crate::changes::PartitionChanges;
use crate::record::{DeadReason, Meta, PartitionStart};
pub(crate) use ready::{FirstReady, ReadyRecords, SortKey};
pub(crate) use table::Table;

/// A record whose end is being written to the log, or will be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndingRecord {
    /// Why it becomes a dead letter; `None`: it was accepted.
    pub(crate) reason: Option<DeadReason>,
    pub(crate) meta: Meta,
}

/// Order of a partition among those with deliverable records: best rank, then oldest first (by
/// timestamp, or by scheduled time).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Head {
    pub(crate) rank: u8,
    pub(crate) since_ms: i64,
    pub(crate) partition: u32,
}

/// A group may have a million partitions, most of them empty. The fields that only partitions with
/// records need are therefore in [`UnsettledRecords`], which is allocated when one of them changes.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// Everything below is settled.
    pub(crate) floor: Offset,
    /// Everything below is known: settled, ready, blocked, delayed, leased or ending. A known
    /// record in none of the other sets is delayed: only the wheel has it.
    pub(crate) scan_next: Offset,
    pub(crate) end: Offset,
    /// Entries of the wheel with another epoch are from before a reset of the partition.
    pub(crate) epoch: u32,
    pub(crate) leased: u32,
    /// A want was returned and its result is pending.
    pub(crate) reading: bool,
    /// The last want was for due records: the next one is for unread ones.
    pub(crate) read_due: bool,
    /// It is in the list of partitions that may have to be read.
    pub(crate) listed: bool,
    /// It is in the list of partitions with deltas.
    pub(crate) changed: bool,
    unsettled: Option<Box<UnsettledRecords>>,
}

/// State of a partition's unsettled records.
#[derive(Debug)]
pub(crate) struct UnsettledRecords {
    /// Above the floor.
    pub(crate) settled: OffsetRanges,
    /// Attempts of unsettled records that were released.
    attempts: BTreeMap<Offset, u16>,
    /// Number of these that are part of the engine's sum.
    attempts_counted: u32,
    /// As [`PartitionStart::seen_below`]; 0 if all of these are settled.
    seen_below: Offset,
    pub(crate) ending: BTreeMap<Offset, EndingRecord>,
    pub(crate) ready: ReadyRecords,
    /// Its entry in the engine's list of heads.
    pub(crate) head: Option<Head>,
    /// The offset of the head record.
    pub(crate) head_offset: Offset,
    /// Time of the wheel's timer for the head's expiry; `i64::MAX` = never.
    pub(crate) head_timer_ms: i64,
    /// Records waiting in the wheel.
    pub(crate) delayed: u64,
    /// Number of delivered records modulo [`crate::policy::HIGH_TO_NORMAL`]: alternates two
    /// priorities.
    pub(crate) handed_out: u8,
    /// Bytes of the values of known records that are neither leased, dead nor settled.
    pub(crate) waiting_bytes: u64,
    /// Records `[first, end)` arrived while a consumer waited: they do not expire before they were
    /// offered.
    pub(crate) prompt: (Offset, Offset),
    settled_since: Vec<(Offset, Offset)>,
    returned_since: Vec<Offset>,
}

impl UnsettledRecords {
    const fn new() -> Self {
        Self {
            settled: OffsetRanges::new(),
            attempts: BTreeMap::new(),
            attempts_counted: 0,
            seen_below: 0,
            ending: BTreeMap::new(),
            ready: ReadyRecords::new(),
            head: None,
            head_offset: 0,
            head_timer_ms: i64::MAX,
            delayed: 0,
            handed_out: 0,
            waiting_bytes: 0,
            prompt: (0, 0),
            settled_since: Vec::new(),
            returned_since: Vec::new(),
        }
    }

    /// Whether it equals a new one. The alternation of two priorities (`handed_out`) may restart.
    fn is_new(&self) -> bool {
        self.settled.is_empty()
            && self.attempts.is_empty()
            && self.attempts_counted == 0
            && self.seen_below == 0
            && self.ending.is_empty()
            && self.ready.is_empty()
            && self.ready.holder.is_none()
            && self.head.is_none()
            && self.head_timer_ms == i64::MAX
            && self.delayed == 0
            && self.waiting_bytes == 0
            && self.prompt == (0, 0)
            && self.settled_since.is_empty()
            && self.returned_since.is_empty()
    }
}

/// State of partitions without unsettled records.
static NOTHING: UnsettledRecords = UnsettledRecords::new();

impl Deref for Partition {
    type Target = UnsettledRecords;

    fn deref(&self) -> &UnsettledRecords {
        self.unsettled.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Partition {
    fn deref_mut(&mut self) -> &mut UnsettledRecords {
        self.unsettled.get_or_insert_with(|| Box::new(UnsettledRecords::new()))
    }
}

impl Partition {
    pub(crate) fn new(start: PartitionStart, epoch: u32) -> Self {
        let mut settled = start.settled;
        let floor = settled.join_below(start.floor.max(start.log_start));
        // Settled beyond the known end: the end will follow.
        let end = start.end.max(floor);
        let mut partition = Self { floor, scan_next: floor, end, epoch, ..Self::default() };
        let unsettled = |&(offset, _): &(Offset, u16)| offset >= floor && !settled.contains(offset);
        let attempts: BTreeMap<_, _> = start.attempts.into_iter().filter(unsettled).collect();
        if !settled.is_empty() || !attempts.is_empty() {
            partition.settled = settled;
            partition.attempts = attempts;
        }
        if start.seen_below > floor {
            partition.seen_below = start.seen_below;
        }
        partition
    }

    /// Frees memory if nothing is unsettled.
    pub(crate) fn shrink(&mut self) {
        if let Some(unsettled) = &mut self.unsettled
            && unsettled.seen_below <= self.floor
        {
            unsettled.seen_below = 0;
        }
        if self.unsettled.as_ref().is_some_and(|unsettled| unsettled.is_new()) {
            self.unsettled = None;
        }
    }

    /// It has no unsettled state: only its floor and end are known.
    pub(crate) fn is_empty(&self) -> bool {
        self.unsettled.is_none()
    }

    /// Number of unsettled offsets. Settled ones never extend beyond the end.
    pub(crate) fn depth(&self) -> u64 {
        self.end - self.floor - self.settled.offsets()
    }

    /// Number of unsettled records that were read: an estimate, because some unread ones may be
    /// settled already.
    pub(crate) fn known(&self) -> u64 {
        self.depth().saturating_sub(self.end.saturating_sub(self.scan_next))
    }

    pub(crate) fn is_settled(&self, offset: Offset) -> bool {
        offset < self.floor || !self.settled.is_empty() && self.settled.contains(offset)
    }

    /// Whether the record arrived while a consumer waited, and has not been delivered since. Never
    /// true for a scheduled record: no consumer waits for it yet.
    pub(crate) fn is_prompt(&self, offset: Offset, meta: &Meta) -> bool {
        let awaited = (self.prompt.0..self.prompt.1).contains(&offset);
        awaited && !meta.scheduled && self.attempts(offset) == 0
    }

    /// Number of times that the record was delivered and released.
    pub(crate) fn attempts(&self, offset: Offset) -> u16 {
        if self.attempts.is_empty() { 0 } else { self.attempts.get(&offset).copied().unwrap_or(0) }
    }

    pub(crate) fn attempts_counted(&self) -> usize {
        self.attempts_counted as usize
    }

    /// Number of records with attempts in the engine's sum before, and from now on.
    pub(crate) fn count_attempts(&mut self) -> (usize, usize) {
        if self.is_empty() {
            return (0, 0);
        }
        let count = self.attempts.len();
        let before = std::mem::replace(&mut self.attempts_counted, count as u32);
        (before as usize, count)
    }

    /// Number of known deliveries of the record: a possible delivery counts.
    pub(crate) fn deliveries(&self, offset: Offset) -> u16 {
        self.attempts(offset).max(u16::from(offset < self.seen_below))
    }

    pub(crate) fn came_back(&mut self, offset: Offset, attempts: u16) {
        self.attempts.insert(offset, attempts);
        self.returned_since.push(offset);
    }

    /// Settles `[first, end)`; returns the number of newly settled records.
    pub(crate) fn settle(&mut self, first: Offset, end: Offset) -> u64 {
        let first = first.max(self.floor);
        if first >= end {
            return 0;
        }
        match self.settled_since.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            Some(last) if last.0 == end => last.0 = first,
            _ => self.settled_since.push((first, end)),
        }
        self.cover(first, end)
    }

    /// Settles a record that the log already settles, without a delta; returns the number of newly
    /// settled records.
    pub(crate) fn settle_durably(&mut self, offset: Offset) -> u64 {
        self.cover(offset, offset + 1)
    }

    /// Raises the floor without a delta: everything below was deleted from the log.
    pub(crate) fn lift_floor(&mut self, floor: Offset) -> u64 {
        self.cover(self.floor, floor)
    }

    fn cover(&mut self, first: Offset, end: Offset) -> u64 {
        let first = first.max(self.floor);
        if first >= end {
            return 0;
        }
        if !self.attempts.is_empty() {
            while let Some((&offset, _)) = self.attempts.range(first..end).next() {
                self.attempts.remove(&offset);
            }
        }
        // When records are settled in order, as usual, the set above the floor stays empty.
        if first == self.floor && self.settled.is_empty() {
            self.floor = end;
            return end - first;
        }
        let new = self.settled.insert(first, end);
        if let Some((lowest, reached)) = self.settled.first()
            && lowest <= self.floor
        {
            self.settled.pop_first();
            self.floor = reached;
        }
        new
    }

    /// The deltas since the last call.
    pub(crate) fn drain(&mut self, partition: u32) -> PartitionChanges {
        self.changed = false;
        let mut changes = PartitionChanges { partition, ..PartitionChanges::default() };
        let mut settled = std::mem::take(&mut self.settled_since);
        settled.sort_unstable();
        let mut joined: Option<(Offset, Offset)> = None;
        for (first, end) in settled {
            match &mut joined {
                Some(before) if before.1 >= first => before.1 = before.1.max(end),
                _ => {
                    push_range(&mut changes.settled, joined);
                    joined = Some((first, end));
                }
            }
        }
        push_range(&mut changes.settled, joined);
        let mut returned = std::mem::take(&mut self.returned_since);
        returned.sort_unstable();
        returned.dedup();
        // Records settled since then have no attempts any more.
        let counted = returned.into_iter().filter_map(|o| Some((o, *self.attempts.get(&o)?)));
        changes.attempts.extend(counted);
        changes
    }
}

/// Lengths are 32 bits: a longer range becomes several.
fn push_range(settled: &mut Vec<(Offset, u32)>, range: Option<(Offset, Offset)>) {
    let Some((mut first, end)) = range else { return };
    while first < end {
        let length = (end - first).min(u64::from(u32::MAX)) as u32;
        settled.push((first, length));
        first += u64::from(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(end: Offset) -> Partition {
        Partition::new(PartitionStart { end, ..PartitionStart::default() }, 0)
    }

    #[test]
    fn floor_rises_over_records_settled_out_of_order() {
        let mut partition = partition(10);
        assert_eq!(partition.settle(2, 3), 1);
        assert_eq!(partition.settle(0, 1), 1);
        assert_eq!((partition.floor, partition.depth()), (1, 8));
        assert_eq!(partition.settle(1, 2), 1);
        assert_eq!((partition.floor, partition.depth()), (3, 7));
        assert!(partition.settled.is_empty());
    }

    #[test]
    fn deltas_are_coalesced_and_omit_attempts_of_settled_records() {
        let mut partition = partition(10);
        for offset in [4, 2, 3, 7] {
            partition.came_back(offset, 1);
        }
        for offset in [4, 2, 3] {
            partition.settle(offset, offset + 1);
        }
        let changes = partition.drain(5);
        assert_eq!((changes.partition, changes.settled), (5, vec![(2, 3)]));
        assert_eq!(changes.attempts, [(7, 1)]);
        assert_eq!(partition.drain(5), PartitionChanges { partition: 5, ..Default::default() });
    }

    #[test]
    fn start_below_the_log_start_is_raised_to_it() {
        let start = PartitionStart {
            floor: 2,
            settled: [(3, 6), (8, 9)].into_iter().collect(),
            attempts: vec![(2, 1), (6, 3)],
            seen_below: 7,
            log_start: 5,
            end: 20,
        };
        let partition = Partition::new(start, 0);
        assert_eq!((partition.floor, partition.scan_next, partition.depth()), (6, 6, 13));
        assert_eq!((partition.attempts(2), partition.attempts(6)), (0, 3));
        let deliveries = |offset| partition.deliveries(offset);
        assert_eq!((deliveries(6), deliveries(7)), (3, 0));
    }
}
