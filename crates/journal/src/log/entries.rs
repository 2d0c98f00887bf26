//! Reads entries back from memory or from their segments.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{Log, Slot};
use crate::error::ReadError;
use crate::frame::{EncodedEntry, EntryLayout};

enum EntrySource {
    Memory(Arc<EncodedEntry>),
    Disk(Slot),
}

/// Requested form of entries.
pub(crate) trait Form: Sized {
    fn from_memory(encoded: &Arc<EncodedEntry>) -> Self;
    /// `bytes` begin with the entry, and are sound.
    fn from_disk(layout: &EntryLayout, bytes: &Bytes) -> Self;
}

impl Form for crate::entry::Entry {
    fn from_memory(encoded: &Arc<EncodedEntry>) -> Self {
        encoded.entry.clone()
    }

    fn from_disk(layout: &EntryLayout, bytes: &Bytes) -> Self {
        layout.entry(bytes)
    }
}

impl Form for Arc<EncodedEntry> {
    fn from_memory(encoded: &Arc<EncodedEntry>) -> Self {
        Arc::clone(encoded)
    }

    fn from_disk(layout: &EntryLayout, bytes: &Bytes) -> Self {
        Arc::new(EncodedEntry::found(layout, bytes))
    }
}

impl Log {
    /// Existing entries of `range`, at most `bytes_max` bytes but at least one. Blocking if one of
    /// them is not in memory.
    pub(crate) fn entries<F: Form>(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<F>, ReadError> {
        let places = self.places(range, bytes_max)?;
        let mut entries = Vec::with_capacity(places.len());
        let mut together: Vec<(u64, Slot)> = Vec::new();
        for (index, place) in places {
            match place {
                EntrySource::Memory(encoded) => {
                    self.read_entries(&std::mem::take(&mut together), &mut entries)?;
                    entries.push(F::from_memory(&encoded));
                }
                EntrySource::Disk(slot) => {
                    if together.last().is_some_and(|(_, last)| !slot.is_near(last)) {
                        self.read_entries(&std::mem::take(&mut together), &mut entries)?;
                    }
                    together.push((index, slot));
                }
            }
        }
        self.read_entries(&together, &mut entries)?;
        Ok(entries)
    }

    /// The same without the disk: entries up to the first that is not in memory. `None` if the
    /// first is not.
    pub(crate) fn held_entries<F: Form>(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Option<Vec<F>>, ReadError> {
        let places = self.places(range, bytes_max)?;
        let wanted = !places.is_empty();
        let held = places.into_iter().map_while(|(_, place)| match place {
            EntrySource::Memory(encoded) => Some(F::from_memory(&encoded)),
            EntrySource::Disk(_) => None,
        });
        let held: Vec<F> = held.collect();
        Ok((!wanted || !held.is_empty()).then_some(held))
    }

    fn places(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<(u64, EntrySource)>, ReadError> {
        let state = self.state.read();
        if range.start < state.first && range.start < range.end {
            let last = state.next_index().saturating_sub(1);
            return Err(ReadError::NoSuchEntry { index: range.start, first: state.first, last });
        }
        let (mut places, mut bytes) = (Vec::new(), 0);
        for index in range {
            let Some(slot) = state.slot(index) else { break };
            bytes += slot.len as usize;
            if bytes > bytes_max && !places.is_empty() {
                break;
            }
            let place = match state.tail.get(index) {
                Some(encoded) => EntrySource::Memory(encoded.clone()),
                None => EntrySource::Disk(*slot),
            };
            places.push((index, place));
        }
        Ok(places)
    }

    /// Reads neighbouring entries with one call.
    fn read_entries<F: Form>(
        &self,
        slots: &[(u64, Slot)],
        entries: &mut Vec<F>,
    ) -> Result<(), ReadError> {
        let (Some((_, first)), Some((_, last))) = (slots.first(), slots.last()) else {
            return Ok(());
        };
        let len = last.position + last.len - first.position;
        let bytes = Bytes::from(self.read_bytes(first.frame.segment, first.position, len)?);
        for (index, slot) in slots {
            let start = (slot.position - first.position) as usize;
            let bytes = bytes.slice(start.min(bytes.len())..);
            let layout = EntryLayout::read(&bytes).ok().filter(|layout| {
                layout.id.index == *index
                    && layout.len == slot.len as usize
                    && layout.is_sound(&bytes)
            });
            let Some(layout) = layout else {
                return Err(self.damaged(slot.frame.segment, slot.position));
            };
            entries.push(F::from_disk(&layout, &bytes));
        }
        Ok(())
    }
}
