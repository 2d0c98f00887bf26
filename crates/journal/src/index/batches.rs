//! One stream's batches in one segment, with their addresses in memory or in the sidecar. A batch
//! is live if it belongs to the run and has an offset outside of all holes.

use std::ops::Range;

use base::OffsetRanges;

use super::addresses::AddressList;
use super::runs::Run;
use super::sidecar::Sidecar;
use crate::address::Address;

/// Batches in ascending order of offset, without overlap.
#[derive(Clone, Debug)]
pub(crate) enum Batches<'a> {
    Memory { list: &'a AddressList, places: Range<usize> },
    Sidecar { sidecar: &'a Sidecar, places: Range<usize> },
}

impl<'a> Batches<'a> {
    pub(crate) fn from_list(list: &'a AddressList) -> Self {
        Self::Memory { list, places: 0..list.len() }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory { places, .. } | Self::Sidecar { places, .. } => places.len(),
        }
    }

    pub(crate) fn get(&self, place: usize) -> Address {
        match self {
            Self::Memory { list, places } => *list.get(places.start + place),
            Self::Sidecar { sidecar, places } => sidecar.address(places.start + place),
        }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Address> + ExactSizeIterator + '_ {
        (0..self.len()).map(|place| self.get(place))
    }

    /// The batches of `run` that do not lie in the stream's `holes`.
    pub(crate) fn live(self, run: &Run, holes: Option<&'a OffsetRanges>) -> SegmentBatches<'a> {
        let start = self.partition_point(|batch| batch.next_offset() <= run.first_offset);
        let end = self.partition_point(|batch| batch.base_offset < run.next_offset);
        let batches = self.narrow(start, end.max(start));
        SegmentBatches { batches, holes, first_offset: run.first_offset }
    }

    /// The number of batches at the front for which `before` holds.
    pub(crate) fn partition_point(&self, before: impl Fn(&Address) -> bool) -> usize {
        self.partition_point_in(0..self.len(), before)
    }

    /// The first of `places` for which `before` is false, given that it is true for all earlier
    /// ones.
    fn partition_point_in(&self, places: Range<usize>, before: impl Fn(&Address) -> bool) -> usize {
        let Range { start: mut low, end: mut high } = places;
        while low < high {
            let middle = low + (high - low) / 2;
            if before(&self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn narrow(self, start: usize, end: usize) -> Self {
        match self {
            Self::Memory { list, places } => {
                Self::Memory { list, places: places.start + start..places.start + end }
            }
            Self::Sidecar { sidecar, places } => {
                Self::Sidecar { sidecar, places: places.start + start..places.start + end }
            }
        }
    }
}

/// A stream's live batches in one segment, ascending.
#[derive(Clone, Debug)]
pub(crate) struct SegmentBatches<'a> {
    batches: Batches<'a>,
    holes: Option<&'a OffsetRanges>,
    /// Everything below is dead, even inside the first batch.
    first_offset: u64,
}

impl<'a> SegmentBatches<'a> {
    /// The batches that end after `offset`.
    pub(crate) fn from(self, offset: u64) -> Self {
        let start = self.batches.partition_point(|batch| batch.next_offset() <= offset);
        let end = self.batches.len();
        Self { batches: self.batches.narrow(start, end), ..self }
    }

    /// The batches that have an offset in `from..to`.
    pub(crate) fn touching(self, from: u64, to: u64) -> Self {
        let start = self.batches.partition_point(|batch| batch.next_offset() <= from);
        let end = self.batches.partition_point(|batch| batch.base_offset < to);
        Self { batches: self.batches.narrow(start, end.max(start)), ..self }
    }

    pub(crate) fn iter(&self) -> LiveBatches<'_, 'a> {
        LiveBatches { live: self, places: 0..self.batches.len() }
    }

    /// The hole that covers all of `batch` from the trim point on.
    fn hole_around(&self, batch: &Address) -> Option<(u64, u64)> {
        let hole = self.holes?.around(batch.base_offset.max(self.first_offset))?;
        (batch.next_offset() <= hole.1).then_some(hole)
    }
}

/// Skips all batches of a hole at once: a hole may cover a whole segment.
#[derive(Clone, Debug)]
pub(crate) struct LiveBatches<'l, 'a> {
    live: &'l SegmentBatches<'a>,
    places: Range<usize>,
}

impl Iterator for LiveBatches<'_, '_> {
    type Item = Address;

    fn next(&mut self) -> Option<Address> {
        while !self.places.is_empty() {
            let batch = self.live.batches.get(self.places.start);
            let Some((_, end)) = self.live.hole_around(&batch) else {
                self.places.start += 1;
                return Some(batch);
            };
            let within = |batch: &Address| batch.next_offset() <= end;
            self.places.start = self.live.batches.partition_point_in(self.places.clone(), within);
        }
        None
    }
}

impl DoubleEndedIterator for LiveBatches<'_, '_> {
    fn next_back(&mut self) -> Option<Address> {
        let first_offset = self.live.first_offset;
        while !self.places.is_empty() {
            let batch = self.live.batches.get(self.places.end - 1);
            let Some((begin, _)) = self.live.hole_around(&batch) else {
                self.places.end -= 1;
                return Some(batch);
            };
            let before = |batch: &Address| batch.base_offset.max(first_offset) < begin;
            self.places.end = self.live.batches.partition_point_in(self.places.clone(), before);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    const LAST: u64 = 40;

    proptest! {
        #[test]
        fn batch_is_live_while_one_of_its_offsets_is(
            spans in prop::collection::vec((0..3_u64, 1..4_u32), 1..15),
            first_offset in 0..LAST,
            next_offset in 0..LAST,
            holes in prop::collection::vec((0..LAST, 1..9_u64), 0..6),
            from in 0..LAST,
        ) {
            let mut base_offset = 0;
            let addresses: Vec<Address> = spans
                .iter()
                .map(|&(gap, span)| {
                    let at = base_offset + gap;
                    base_offset = at + u64::from(span);
                    let (position, len, max_timestamp) = (at as u32, span, 0);
                    let (segment, base_offset, shared) = (1, at, false);
                    Address { segment, position, len, span, base_offset, max_timestamp, shared }
                })
                .collect();
            let holes: OffsetRanges = holes.iter().map(|&(at, len)| (at, at + len)).collect();
            let segment = NonZeroU32::new(1).unwrap();
            let run = Run { segment, bytes: 0, first_offset, next_offset, max_timestamp: 0 };
            let expected: Vec<Address> = addresses
                .iter()
                .filter(|it| it.base_offset < next_offset && it.next_offset() > from)
                .filter(|it| {
                    let live = |at: u64| at >= first_offset && holes.around(at).is_none();
                    (it.base_offset..it.next_offset()).any(live)
                })
                .copied()
                .collect();
            let list: AddressList = addresses.iter().copied().collect();
            let live = Batches::from_list(&list).live(&run, Some(&holes)).from(from);
            prop_assert_eq!(&live.iter().collect::<Vec<_>>(), &expected);
            let mut backwards: Vec<Address> = live.iter().rev().collect();
            backwards.reverse();
            prop_assert_eq!(&backwards, &expected);
        }
    }
}
