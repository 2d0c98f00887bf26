//! One stream's batches in one segment, wherever their addresses are kept.

use std::ops::Range;

use super::runs::Run;
use super::sidecar::Sidecar;
use crate::address::Address;

/// Ascending by offset, not overlapping.
#[derive(Clone, Debug)]
pub(crate) enum Batches<'a> {
    Memory(&'a [Address]),
    Sidecar { sidecar: &'a Sidecar, places: Range<usize> },
}

impl<'a> Batches<'a> {
    pub(crate) const NONE: Batches<'static> = Batches::Memory(&[]);

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(addresses) => addresses.len(),
            Self::Sidecar { places, .. } => places.len(),
        }
    }

    pub(crate) fn get(&self, place: usize) -> Address {
        match self {
            Self::Memory(addresses) => addresses[place],
            Self::Sidecar { sidecar, places } => sidecar.address(places.start + place),
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Address> + ExactSizeIterator + '_ {
        (0..self.len()).map(|place| self.get(place))
    }

    /// The part that `run` covers.
    pub(crate) fn live(self, run: &Run) -> Self {
        let start = self.partition_point(|batch| batch.next_offset() <= run.first_offset);
        let end = self.partition_point(|batch| batch.base_offset < run.next_offset);
        self.narrow(start, end.max(start))
    }

    /// The part that ends after `offset`.
    pub(crate) fn from(self, offset: u64) -> Self {
        let start = self.partition_point(|batch| batch.next_offset() <= offset);
        let end = self.len();
        self.narrow(start, end)
    }

    /// The number of batches at the front for which `before` holds.
    pub(crate) fn partition_point(&self, before: impl Fn(&Address) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
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
            Self::Memory(addresses) => Self::Memory(&addresses[start..end]),
            Self::Sidecar { sidecar, places } => {
                Self::Sidecar { sidecar, places: places.start + start..places.start + end }
            }
        }
    }
}
