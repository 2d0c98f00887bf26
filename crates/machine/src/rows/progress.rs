//! How far a lease group has come in one partition: a floor, below which everything is settled,
//! and ranges of exceptions above it.
//!
//! The decision that shapes it: what is kept follows what is out of order, not what is stored. A
//! group that settles in order has a floor and nothing else, whatever waits above; a record that
//! was settled early is a range, which its neighbours join; what was delivered and came back is a
//! count. Nothing is ever left out to save room.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Offset, OffsetRanges, SharedMap};

use crate::snapshot::stored::{ExceptionsV2, ProgressV2};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    floor: Offset,
    /// Shared with the images that were taken since it changed.
    above: Option<Arc<Exceptions>>,
}

// Every partition of every lease group has one.
const _: () = assert!(size_of::<Progress>() <= 16);

/// All of it is at or above the floor, and a box with nothing in it is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Exceptions {
    /// Not touching the floor: the record at it is not settled.
    settled: OffsetRanges,
    /// Records that are not settled and were delivered, and how often; never 0.
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

    /// Everything below is settled; the record at the floor is not, or is not there yet.
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

    /// Records that are not settled and were delivered, and how often, in order.
    pub fn attempts(&self) -> impl Iterator<Item = (Offset, u16)> + '_ {
        let above = self.above.iter();
        above.flat_map(|above| above.attempts.iter().map(|(&offset, &count)| (offset, count)))
    }

    /// How often this record was delivered; 0 once it is settled.
    pub fn attempts_of(&self, offset: Offset) -> u16 {
        let above = self.above.as_ref();
        above.and_then(|above| above.attempts.get(&offset)).copied().unwrap_or(0)
    }

    pub fn is_settled(&self, offset: Offset) -> bool {
        self.settled_around(offset).is_some()
    }

    /// The longest settled range that `offset` lies in, as begin and end.
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

    /// How many ranges and attempts it remembers. Counts them.
    pub fn exceptions(&self) -> usize {
        self.above.as_ref().map_or(0, |above| above.settled.len() + above.attempts.len())
    }

    /// Settles `from..to`; whether anything of it was not. Costs a search, and what it joins.
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

    /// Notes how often a record was delivered; one that is settled is passed over.
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

    /// Settles everything below `floor`; whether anything changed.
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

    /// Whether one that was read from a snapshot can be one that the methods above made, in a
    /// partition of `start..end`.
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
