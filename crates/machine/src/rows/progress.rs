//! Progress of a lease group in one partition: a floor, below which everything is settled, and
//! ranges of exceptions above it.
//!
//! The size follows the records out of order, not the stored ones. A group that settles in order
//! has only a floor, however many records wait above it. A record settled early is a range, which
//! merges with its neighbours. A record delivered and released has an attempt count. Nothing is
//! ever omitted to save room.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Offset, OffsetRanges, SharedMap};

use crate::stored::{ExceptionsV2, ProgressV2};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    floor: Offset,
    /// Shared with the images taken since its last change.
    above: Option<Arc<Exceptions>>,
}

// Every partition of every lease group has one.
const _: () = assert!(size_of::<Progress>() <= 16);

/// All exceptions are at or above the floor; an empty box is replaced by `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Exceptions {
    /// Not touching the floor: the record at it is not settled.
    settled: OffsetRanges,
    /// Unsettled records that were delivered, with their attempts; never 0.
    attempts: SharedMap<Offset, u16>,
}

impl Exceptions {
    fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.attempts.is_empty()
    }
}

impl Progress {
    /// Everything below `floor` is settled, and nothing else.
    pub fn at(floor: Offset) -> Self {
        Self { floor, above: None }
    }

    /// Everything below is settled; the record at the floor is unsettled, or does not exist yet.
    pub fn floor(&self) -> Offset {
        self.floor
    }

    /// Ranges above the floor that are settled, as begin and end, in order.
    pub fn settled(&self) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let above = self.above.iter();
        above.flat_map(|above| above.settled.iter())
    }

    /// The same as a set.
    pub fn settled_above(&self) -> OffsetRanges {
        self.above.as_ref().map_or_else(OffsetRanges::new, |above| above.settled.clone())
    }

    /// Unsettled records that were delivered, with their attempts, in order.
    pub fn attempts(&self) -> impl Iterator<Item = (Offset, u16)> + '_ {
        let above = self.above.iter();
        above.flat_map(|above| above.attempts.iter().map(|(&offset, &count)| (offset, count)))
    }

    /// Number of deliveries of this record; 0 once it is settled.
    pub fn attempts_of(&self, offset: Offset) -> u16 {
        let above = self.above.as_ref();
        above.and_then(|above| above.attempts.get(&offset)).copied().unwrap_or(0)
    }

    pub fn is_settled(&self, offset: Offset) -> bool {
        self.settled_around(offset).is_some()
    }

    /// The longest settled range that contains `offset`, as begin and end.
    pub fn settled_around(&self, offset: Offset) -> Option<(Offset, Offset)> {
        if offset < self.floor {
            return Some((0, self.floor));
        }
        self.above.as_ref()?.settled.around(offset)
    }

    /// The first offset at or after `offset` that is settled.
    pub fn next_settled(&self, offset: Offset) -> Option<Offset> {
        if self.is_settled(offset) {
            return Some(offset);
        }
        self.above.as_ref()?.settled.next_begin(offset)
    }

    /// Number of ranges and attempts. Counts them.
    pub fn exceptions(&self) -> usize {
        self.above.as_ref().map_or(0, |above| above.settled.len() + above.attempts.len())
    }

    /// Settles `from..to`; returns whether any of it was unsettled. Costs a search, and the merged
    /// ranges.
    pub(crate) fn settle(&mut self, from: Offset, to: Offset) -> bool {
        if to <= self.floor || from >= to {
            return false;
        }
        if from <= self.floor {
            self.raise_floor(to);
            return true;
        }
        let above = Arc::make_mut(self.above.get_or_insert_default());
        if above.settled.insert(from, to) == 0 {
            return false;
        }
        while let Some((&offset, _)) = above.attempts.range(from..to).next() {
            above.attempts.remove(&offset);
        }
        true
    }

    /// Sets the number of deliveries of a record; a settled one is skipped.
    pub(crate) fn note_attempts(&mut self, offset: Offset, count: u16) {
        if self.is_settled(offset) {
            return;
        }
        if count > 0 {
            Arc::make_mut(self.above.get_or_insert_default()).attempts.insert(offset, count);
        } else if let Some(above) = &mut self.above {
            Arc::make_mut(above).attempts.remove(&offset);
            self.drop_if_empty();
        }
    }

    /// Settles everything below `floor`; returns whether anything changed.
    pub(crate) fn raise_floor(&mut self, floor: Offset) -> bool {
        if floor <= self.floor {
            return false;
        }
        self.floor = floor;
        let Some(above) = &mut self.above else { return true };
        let above = Arc::make_mut(above);
        self.floor = above.settled.join_below(floor);
        while let Some((&first, _)) = above.attempts.first_key_value()
            && first < self.floor
        {
            above.attempts.remove(&first);
        }
        self.drop_if_empty();
        true
    }

    pub(crate) fn stored(&self) -> ProgressV2<'_> {
        let above = self.above.as_ref().map(|above| ExceptionsV2 {
            settled: Cow::Borrowed(&above.settled),
            attempts: Cow::Borrowed(&above.attempts),
        });
        ProgressV2 { floor: self.floor, above }
    }

    fn drop_if_empty(&mut self) {
        if self.above.as_ref().is_some_and(|above| above.is_empty()) {
            self.above = None;
        }
    }

    /// Whether progress of a snapshot could be the result of the methods above, in a partition of
    /// `start..end`.
    pub(crate) fn is_sound(&self, start: Offset, end: Offset) -> bool {
        let floor = (start..=end).contains(&self.floor);
        let above = self.above.as_ref().is_none_or(|above| {
            let ranges = || above.settled.iter().all(|(from, to)| self.floor < from && to <= end);
            let attempts = || {
                let within = |(&offset, &count): (&Offset, &u16)| {
                    count > 0 && offset < end && !self.is_settled(offset)
                };
                above.attempts.iter().all(within)
            };
            !above.is_empty() && ranges() && attempts()
        });
        floor && above
    }
}

impl From<ProgressV2<'_>> for Progress {
    fn from(stored: ProgressV2<'_>) -> Self {
        let above = stored.above.map(|above| {
            let (settled, attempts) = (above.settled.into_owned(), above.attempts.into_owned());
            Arc::new(Exceptions { settled, attempts })
        });
        Self { floor: stored.floor, above }
    }
}
