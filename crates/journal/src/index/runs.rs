//! A stream's runs: which segments hold its batches, and which offsets in each.
//!
//! This is all that memory keeps of a sealed segment, so its size decides what a partition costs.
//! Most partitions of a large topic set have exactly one run: it lies inline, and the enum borrows
//! the segment number's zero as its tag, so that a stream is no larger than the run itself.

use std::num::NonZeroU32;

/// The batches of one stream in one segment: those that end after `first_offset` and begin before
/// `next_offset`. What the segment holds of the stream below `first_offset` is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) segment: NonZeroU32,
    /// Live bytes. An upper bound while the run is ragged (trimmed inside a sealed segment).
    pub(crate) bytes: u32,
    pub(crate) first_offset: u64,
    pub(crate) next_offset: u64,
    /// Largest timestamp of a batch in it; an upper bound once the run was trimmed.
    pub(crate) max_timestamp: i64,
}

impl Run {
    pub(crate) fn segment(&self) -> u32 {
        self.segment.get()
    }
}

/// Ascending by offset and, since the log is, by segment. Never empty inside an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    One(Run),
    Many(Vec<Run>),
}

// 100,000 idle partitions pay for this type 100,000 times.
const _: () = assert!(size_of::<Runs>() == 32);

impl Runs {
    pub(crate) fn as_slice(&self) -> &[Run] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Many(runs) => runs,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Run] {
        match self {
            Self::One(run) => std::slice::from_mut(run),
            Self::Many(runs) => runs,
        }
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Run> {
        self.as_mut_slice().last_mut()
    }

    pub(crate) fn push(&mut self, run: Run) {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, run]),
            Self::Many(runs) => runs.push(run),
        }
    }

    /// Forgets the first `count` runs; `false` when none is left.
    pub(crate) fn drop_front(&mut self, count: usize) -> bool {
        match self {
            Self::One(_) => count == 0,
            Self::Many(runs) => {
                runs.drain(..count);
                self.shrink()
            }
        }
    }

    /// Forgets the run in `segment`; `false` when none is left.
    pub(crate) fn drop_segment(&mut self, segment: u32) -> bool {
        match self {
            Self::One(run) => run.segment() != segment,
            Self::Many(runs) => {
                runs.retain(|run| run.segment() != segment);
                self.shrink()
            }
        }
    }

    pub(crate) fn find_mut(&mut self, segment: u32) -> Option<&mut Run> {
        let runs = self.as_mut_slice();
        let place = runs.binary_search_by_key(&segment, Run::segment).ok()?;
        Some(&mut runs[place])
    }

    pub(crate) fn find(&self, segment: u32) -> Option<&Run> {
        let runs = self.as_slice();
        let place = runs.binary_search_by_key(&segment, Run::segment).ok()?;
        Some(&runs[place])
    }

    /// A stream that is down to one run gives its vector back.
    fn shrink(&mut self) -> bool {
        if let Self::Many(runs) = self {
            match runs.as_slice() {
                [] => return false,
                [only] => *self = Self::One(*only),
                _ => {}
            }
        }
        true
    }
}
