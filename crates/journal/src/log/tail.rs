//! The end of the log in memory: entries that are not yet durable, and recent ones for consumers
//! and followers that keep up.
//!
//! Entries are held as they were appended (the very `Bytes`), so caching costs no copy. The bound
//! counts content bytes. Entries that are not durable yet may exceed it, because no file has them.
//!
//! Entries that have been durable for a while are evicted even below the bound: their consumers, if
//! any, do not keep up and read from disk. Ten thousand idle queues with a message each therefore
//! take no memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use world::Instant;

use crate::address::Address;
use crate::frame::EncodedEntry;

#[derive(Debug)]
pub(crate) struct Tail {
    /// Dense by index. Placed entries come first, in order of position.
    entries: VecDeque<TailEntry>,
    placed: usize,
    bytes: usize,
    bytes_max: usize,
    /// Entries below this index are durable.
    durable_before: u64,
    /// Durable index at each call of [`Tail::evict_aged`], oldest first.
    known_durable: VecDeque<(Instant, u64)>,
}

#[derive(Debug)]
struct TailEntry {
    encoded: Arc<EncodedEntry>,
    segment: u32,
    position: u32,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            placed: 0,
            bytes: 0,
            bytes_max,
            durable_before: 0,
            known_durable: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, encoded: Arc<EncodedEntry>) {
        let index = encoded.entry.id.index;
        if self.entries.back().is_some_and(|last| last.index() + 1 != index) {
            // After a snapshot of another node the log continues at a higher index.
            self.truncate_from(0);
        }
        self.bytes += encoded.len as usize;
        self.entries.push_back(TailEntry { encoded, segment: 0, position: 0 });
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Arc<EncodedEntry>> {
        let first = self.entries.front()?.index();
        let place = index.checked_sub(first)?;
        self.entries.get(place as usize).map(|entry| &entry.encoded)
    }

    /// `encoded` is about to be written at this position. `false` if it is no longer in the log.
    pub(crate) fn place(
        &mut self,
        encoded: &Arc<EncodedEntry>,
        segment: u32,
        position: u32,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(self.placed) else { return false };
        if !Arc::ptr_eq(&entry.encoded, encoded) {
            return false;
        }
        (entry.segment, entry.position) = (segment, position);
        self.placed += 1;
        true
    }

    /// The entries of `batch`, and those before them, are durable. Some may have left the log since
    /// they were written. Evicts entries beyond the bound.
    pub(crate) fn durable(&mut self, batch: &[Arc<EncodedEntry>]) {
        let held = |entry: &&Arc<EncodedEntry>| {
            self.get(entry.entry.id.index).is_some_and(|held| Arc::ptr_eq(held, entry))
        };
        if let Some(last) = batch.iter().rev().find(held) {
            self.durable_before = last.entry.id.index + 1;
        }
        while self.bytes > self.bytes_max && self.pop_durable(self.durable_before).is_some() {}
    }

    /// Evicts the entries that were durable at a call at least `age` ago.
    pub(crate) fn evict_aged(&mut self, now: Instant, age: Duration) -> Vec<Arc<EncodedEntry>> {
        let mut aged_before = 0;
        while let Some(&(at, index)) = self.known_durable.front()
            && now.saturating_duration_since(at) >= age
        {
            aged_before = index;
            self.known_durable.pop_front();
        }
        let known = self.known_durable.back().map_or(aged_before, |(_, index)| *index);
        if self.durable_before > known {
            self.known_durable.push_back((now, self.durable_before));
        }
        let aged_before = aged_before.min(self.durable_before);
        let aged = std::iter::from_fn(|| self.pop_durable(aged_before)).collect();
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
        aged
    }

    /// The first entry, if it is durable and its index below `before`.
    fn pop_durable(&mut self, before: u64) -> Option<Arc<EncodedEntry>> {
        let entry = self.entries.front()?;
        if entry.index() >= before.min(self.durable_before) || self.placed == 0 {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.encoded.len as usize;
        self.placed -= 1;
        Some(entry.encoded)
    }

    /// Removes the entries from `index` on.
    pub(crate) fn truncate_from(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.index() >= index) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= entry.encoded.len as usize;
            }
        }
        self.placed = self.placed.min(self.entries.len());
        self.durable_before = self.durable_before.min(index);
        while self.known_durable.pop_back_if(|(_, before)| *before > index).is_some() {}
    }

    /// The body at `address`.
    pub(crate) fn body(&self, address: &Address) -> Option<Bytes> {
        let wanted = (address.segment, address.position);
        let unplaced = u32::MAX;
        let after = self.entries.partition_point(|entry| {
            let segment = if entry.segment == 0 { unplaced } else { entry.segment };
            (segment, entry.position) <= wanted
        });
        let entry = self.entries.get(after.checked_sub(1)?)?;
        if entry.segment != address.segment {
            return None;
        }
        let body = entry.encoded.body_at(address.position - entry.position)?;
        (body.bytes.len() == address.len as usize).then(|| body.bytes.clone())
    }
}

impl TailEntry {
    fn index(&self) -> u64 {
        self.encoded.entry.id.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, EntryId, EntryKind};

    const AGE: Duration = Duration::from_secs(10);

    fn entry(index: u64) -> Arc<EncodedEntry> {
        let id = EntryId { term: 1, leader: 1, index };
        let (kind, head) = (EntryKind::Command, Bytes::from_static(b"head"));
        Arc::new(EncodedEntry::new(Entry { id, kind, head, bodies: Vec::new() }))
    }

    /// Appends entries of these indexes, written and durable.
    fn write(tail: &mut Tail, indexes: std::ops::Range<u64>) {
        for index in indexes {
            let entry = entry(index);
            tail.push(Arc::clone(&entry));
            assert!(tail.place(&entry, 1, index as u32 * 100));
            tail.durable(std::slice::from_ref(&entry));
        }
    }

    #[test]
    fn entries_that_have_been_durable_for_long_are_evicted() {
        let mut tail = Tail::new(1 << 20);
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        write(&mut tail, 1..4);
        assert!(tail.evict_aged(after(0), AGE).is_empty());
        write(&mut tail, 4..6);
        let waiting = entry(6);
        tail.push(Arc::clone(&waiting));
        assert!(tail.evict_aged(after(9), AGE).is_empty());
        assert_eq!(tail.evict_aged(after(10), AGE).len(), 3);
        assert!(tail.get(3).is_none() && tail.get(4).is_some());
        assert_eq!(tail.evict_aged(after(19), AGE).len(), 2);
        // Entries that are not durable are nowhere else.
        assert!(tail.evict_aged(after(100), AGE).is_empty());
        assert!(tail.get(6).is_some());
        assert!(tail.place(&waiting, 1, 600));
    }

    #[test]
    fn the_age_of_a_replaced_entry_does_not_count() {
        let mut tail = Tail::new(1 << 20);
        let begun = Instant::now();
        write(&mut tail, 1..5);
        assert!(tail.evict_aged(begun, AGE).is_empty());
        tail.truncate_from(3);
        write(&mut tail, 3..5);
        assert!(tail.evict_aged(begun + AGE / 2, AGE).is_empty());
        assert!(tail.evict_aged(begun + AGE, AGE).is_empty());
        assert_eq!(tail.evict_aged(begun + AGE + AGE / 2, AGE).len(), 4);
        assert_eq!(tail.bytes, 0);
    }
}
