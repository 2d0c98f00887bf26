//! Reads the log: determines the next offsets to read, and processes the results.

use base::Offset;

use super::Dispatch;
use super::transfer::ClaimedState;
use crate::policy::Ordering;
use crate::record::{DeadReason, Meta, ReadRange, ScannedRecord};
use crate::wheel::{Entry, WheelSubject};

/// Whether a partition must be read.
enum ScanNeed {
    Read {
        from: Offset,
        up_to: Offset,
        due: bool,
    },
    /// There is something to read, but no room for it now.
    NoRoom,
    Nothing,
}

impl Dispatch {
    /// The next range to read. Each want is returned ONCE, and one per partition at a time, so that
    /// several reads may be in flight. Each requires [`Dispatch::scanned`] or
    /// [`Dispatch::scan_failed`]. `None` if enough is known, or there are no consumers.
    #[must_use = "a want that is not answered stops its partition"]
    pub fn wants(&mut self) -> Option<ReadRange> {
        if !self.is_demanded() {
            return None;
        }
        for _ in 0..self.wanting.len() {
            let index = self.wanting.pop_front()?;
            match self.need(index) {
                ScanNeed::Read { from, up_to, due } => {
                    let partition = &mut self.partitions[index];
                    partition.listed = false;
                    partition.reading = true;
                    partition.read_due = due;
                    let known = up_to <= partition.scan_next;
                    return Some(ReadRange { partition: index, from, up_to, known });
                }
                ScanNeed::NoRoom => self.wanting.push_back(index),
                ScanNeed::Nothing => self.partitions[index].listed = false,
            }
        }
        None
    }

    /// Also true while the consumers have no credit: reading ahead costs at most a window.
    fn is_demanded(&self) -> bool {
        let demanded = self.consumers.len() > 0 || self.pulled || self.policy.expire_unattended;
        demanded && !self.paused || self.policy.measured
    }

    fn need(&mut self, index: u32) -> ScanNeed {
        let (window, low) = (self.bounds.window(self.loaded), self.bounds.low(self.loaded));
        let may_read_on = self.may_read_on(index);
        let has_back = self.claims.has_back(index);
        let partition = &mut self.partitions[index];
        let want = |due, (from, up_to)| ScanNeed::Read { from, up_to, due };
        let unread =
            (partition.scan_next < partition.end).then_some((partition.scan_next, partition.end));
        if partition.reading || unread.is_none() && partition.is_empty() {
            return ScanNeed::Nothing;
        }
        let read_due = partition.read_due;
        let ready = &mut partition.ready;
        if let Some(holder) = ready.holder_to_look_up() {
            return want(true, (holder, holder + 1));
        }
        let loaded = ready.loaded();
        if let Some(unread) = unread.filter(|_| has_back) {
            return want(false, unread);
        }
        // With priorities the best record may be the last: all is read, while loaded records can be
        // delivered.
        let ahead = self.policy.measured || self.policy.ranks() && loaded > 0;
        // Due records take no part of the window of the others: an unread record may be scheduled,
        // and must be read before its due time, however many others are due.
        let lacks = ready.loaded_by_offset() < low;
        let turn = read_due && (ahead || lacks) && may_read_on;
        if let Some(unread) = unread.filter(|_| turn && self.policy.ordering == Ordering::Free) {
            return want(false, unread);
        }
        if loaded < window * 2
            && let Some(due) = ready.next_due(window as u64)
        {
            return want(true, due);
        }
        if let Some(unread) = unread.filter(|_| ahead && may_read_on) {
            return want(false, unread);
        }
        if !lacks {
            return ScanNeed::Nothing;
        }
        match (ready.next_range(window as u64), unread) {
            (Some(range), _) if loaded < window => want(false, range),
            (Some(_), _) => ScanNeed::Nothing,
            (None, Some(unread)) if may_read_on => want(false, unread),
            (None, Some(_)) => ScanNeed::NoRoom,
            (None, None) => ScanNeed::Nothing,
        }
    }

    /// Whether there is room to read one more record.
    pub(super) fn may_read_on(&self, index: u32) -> bool {
        let ready = &self.partitions[index].ready;
        let room = if self.policy.reads_ahead() {
            ready.cells() < self.bounds.cells_per_partition
        } else {
            ready.loaded_by_offset() < self.bounds.window(self.loaded)
        };
        let has_room = room
            && self.lanes.blocked() < self.bounds.blocked
            && self.delayed + (self.due as u64) < self.bounds.delayed
            && self.ending < self.bounds.dead;
        // All known records may wait for an unread released one. This exceeds no bound: the
        // previous term's engine held as many.
        has_room || self.claims.has_back(index)
    }

    /// The read failed or was abandoned: the engine will request it again.
    pub fn scan_failed(&mut self, partition: u32) {
        if let Some(found) = self.partitions.get_mut(partition) {
            found.reading = false;
            self.list(partition);
        }
    }

    /// Accepts the records of the log in `from..up_to`, ascending. Offsets without a record are
    /// holes, and are settled. A part may be known already. The engine may stop early (bounds) and
    /// request the rest later.
    pub fn scanned(
        &mut self,
        partition: u32,
        from: Offset,
        up_to: Offset,
        records: impl IntoIterator<Item = ScannedRecord>,
        now_ms: i64,
    ) {
        if !self.partitions.has(partition) {
            return;
        }
        self.now_ms = now_ms;
        self.partitions[partition].reading = false;
        self.extended(partition, up_to);
        // Records below `known` were looked up; the rest is new.
        let known = self.partitions[partition].scan_next;
        let mut at = from;
        let mut records = records.into_iter().filter(|it| (from..up_to).contains(&it.offset));
        let mut next = records.next();
        while let Some(record) = next.filter(|record| record.offset < known) {
            if record.offset >= at {
                self.settle_vanished(partition, at, record.offset);
                self.process_lookup(partition, &record, now_ms);
                at = record.offset + 1;
            }
            next = records.next();
        }
        self.settle_vanished(partition, at, up_to.min(known));
        // A result for a want from before a seek back may begin behind `known`: it is not used.
        if from <= known && known < up_to {
            let reached = self.read_on(partition, up_to, next.into_iter().chain(records), now_ms);
            let found = &mut self.partitions[partition];
            found.scan_next = found.scan_next.max(reached);
        }
        if self.partitions[partition].ready.loaded() > 0 {
            self.pulled = false;
        }
        self.list(partition);
        self.sweep_wheel();
    }

    /// Processes new records. Returns the offset at which it stopped.
    fn read_on(
        &mut self,
        partition: u32,
        up_to: Offset,
        records: impl Iterator<Item = ScannedRecord>,
        now_ms: i64,
    ) -> Offset {
        let mut at = self.partitions[partition].scan_next;
        for record in records {
            if record.offset < at {
                continue;
            }
            if !self.may_read_on(partition) {
                return at;
            }
            let found = &self.partitions[partition];
            let settled = found.is_settled(record.offset);
            self.settle_holes(partition, at, record.offset);
            at = record.offset + 1;
            self.partitions[partition].scan_next = at;
            let claimed = self.read_claimed(partition, record.offset);
            match claimed {
                _ if settled => {}
                None => self.process_new(partition, &record, now_ms),
                Some(ClaimedState::Held) => {}
                Some(ClaimedState::Back { due_ms }) => {
                    self.read_released(partition, &record, due_ms, now_ms)
                }
            }
        }
        self.settle_holes(partition, at, up_to);
        up_to
    }

    /// The log has no records in this range. Leased ones stay leased: their consumers have them.
    fn settle_holes(&mut self, partition: u32, first: Offset, end: Offset) {
        let claimed = self.claims.remove_range(partition, first, end);
        let mut at = first;
        for (offset, claimed) in claimed {
            match claimed {
                ClaimedState::Held => {
                    self.settle_range(partition, at, offset);
                    at = offset + 1;
                }
                // It held its key, and was deleted.
                ClaimedState::Back { .. } => {
                    self.settle_range(partition, at, offset + 1);
                    self.free_range(partition, offset, offset + 1);
                    at = offset + 1;
                }
            }
        }
        self.settle_range(partition, at, end);
    }

    /// Processes a record read for the first time.
    fn process_new(&mut self, partition: u32, record: &ScannedRecord, now_ms: i64) {
        let window = self.bounds.window(self.loaded);
        let found = &mut self.partitions[partition];
        found.waiting_bytes += Meta::from(record).value_bytes();
        let found = &self.partitions[partition];
        let dies = self.is_expired(&Meta::from(record), now_ms) && self.ending < self.bounds.dead;
        if record.due_ms > now_ms && !dies {
            self.delay(partition, record.offset, record.due_ms, now_ms);
        } else if record.due_ms > i64::MIN
            && self.policy.ordering == Ordering::Free
            && found.ready.loaded() >= window
        {
            // There is no room for more than the fact that it is due.
            self.with_ready(partition, |ready| ready.due.push(record.offset));
        } else {
            self.add_ready(partition, record, now_ms);
        }
    }

    /// Processes a record read for the first time that was released from a transferred lease.
    fn read_released(&mut self, partition: u32, record: &ScannedRecord, due_ms: i64, now_ms: i64) {
        let meta = Meta::from(record);
        self.partitions[partition].waiting_bytes += meta.value_bytes();
        match due_ms {
            i64::MIN => self.make_ready(partition, record.offset, meta),
            due_ms if due_ms > now_ms => self.delay(partition, record.offset, due_ms, now_ms),
            _ => {
                self.back_offs.remove(&(partition, record.offset));
                self.add_ready(partition, record, now_ms);
            }
        }
    }

    /// Processes a record that was looked up again.
    fn process_lookup(&mut self, partition: u32, record: &ScannedRecord, now_ms: i64) {
        let rank = self.policy.rank(record.priority);
        let window = self.bounds.window(self.loaded);
        let found = &self.partitions[partition];
        if !found.ready.has_ranges() {
            return;
        }
        let looked_up =
            self.with_ready(partition, |ready| ready.look_up(rank, record.offset, window));
        if looked_up {
            self.add_ready(partition, record, now_ms);
        }
    }

    fn add_ready(&mut self, partition: u32, record: &ScannedRecord, now_ms: i64) {
        let meta = Meta::from(record);
        let found = &self.partitions[partition];
        let expired = self.is_expired(&meta, now_ms) && !found.is_prompt(record.offset, &meta);
        if expired && self.ending < self.bounds.dead {
            let attempts = found.attempts(record.offset);
            self.subtract_waiting(partition, &meta);
            self.die(partition, record.offset, DeadReason::Expired, attempts, meta);
        } else {
            self.make_ready_since(partition, record.offset, meta, record.due_ms);
        }
    }

    pub(super) fn is_expired(&self, meta: &Meta, now_ms: i64) -> bool {
        self.policy.expires_ms(meta.timestamp, meta.expires_ms) <= now_ms
    }

    /// Settles looked-up records in `first..end` that no longer exist.
    fn settle_vanished(&mut self, partition: u32, first: Offset, end: Offset) {
        let found = &self.partitions[partition];
        if first >= end || !found.ready.has_ranges() {
            return;
        }
        // Nearly always all of it is settled, and was therefore punched out of the log.
        for (first, end) in found.settled.gaps(first.max(found.floor), end) {
            for (first, end) in self.with_ready(partition, |ready| ready.take_ranges(first, end)) {
                let gone = self.settle_range(partition, first, end);
                self.subtract_waiting_estimate(partition, gone);
                self.free_range(partition, first, end);
            }
        }
    }

    /// Puts the record into the wheel, and nowhere else.
    pub(super) fn delay(&mut self, partition: u32, offset: Offset, due_ms: i64, now_ms: i64) {
        let found = &mut self.partitions[partition];
        found.delayed += 1;
        self.delayed += 1;
        let place = WheelSubject::record(partition, found.epoch);
        self.wheel.insert(Entry::new(due_ms, offset, place.pack()), now_ms);
    }
}
