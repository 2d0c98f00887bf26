//! The end of the log in memory: what is not yet durable, and the recent rest for consumers and
//! followers that keep up.
//!
//! Entries are held as they were appended (the very `Bytes`), so caching costs no copy. The bound
//! counts content bytes and gives way for what is not durable yet: that lives nowhere else.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::address::Address;
use crate::frame::EncodedEntry;

#[derive(Debug)]
pub(crate) struct Tail {
    /// Dense by index; those that are placed come first and ascend by place.
    entries: VecDeque<TailEntry>,
    placed: usize,
    bytes: usize,
    bytes_max: usize,
    /// Entries below this index are durable.
    durable_before: u64,
}

#[derive(Debug)]
struct TailEntry {
    encoded: Arc<EncodedEntry>,
    segment: u32,
    position: u32,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), placed: 0, bytes: 0, bytes_max, durable_before: 0 }
    }

    pub(crate) fn push(&mut self, encoded: Arc<EncodedEntry>) {
        let index = encoded.entry.id.index;
        if self.entries.back().is_some_and(|last| last.index() + 1 != index) {
            // After a snapshot from elsewhere the log goes on further up.
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

    /// `encoded` is about to be written at this place. `false` when it is no longer in the log.
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

    /// Entries up to `last` are durable; those beyond the bound go.
    pub(crate) fn durable(&mut self, last: &Arc<EncodedEntry>) {
        let index = last.entry.id.index;
        if self.get(index).is_some_and(|held| Arc::ptr_eq(held, last)) {
            self.durable_before = index + 1;
        }
        while self.bytes > self.bytes_max
            && let Some(entry) = self.entries.front()
            && entry.index() < self.durable_before
            && self.placed > 0
        {
            self.bytes -= entry.encoded.len as usize;
            self.placed -= 1;
            self.entries.pop_front();
        }
    }

    /// Forgets the entries from `index` on.
    pub(crate) fn truncate_from(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.index() >= index) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= entry.encoded.len as usize;
            }
        }
        self.placed = self.placed.min(self.entries.len());
        self.durable_before = self.durable_before.min(index);
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
