//! A stream's runs: the segments that hold its batches, with the offsets in each.
//!
//! Memory keeps nothing else of a sealed segment, so the size of a run decides the cost of a
//! partition. Most partitions of a large topic set have exactly one run. It is stored inline, and
//! the enum uses the segment number's zero as its tag, so that a stream is no larger than the run
//! itself. Several runs are a map in chunks, shared with the captures for snapshots: only the last
//! chunk of a stream that is written to is copied.

use std::num::NonZeroU32;
use std::sync::Arc;

use base::SharedMap;

/// The batches of one stream in one segment: those that end after `first_offset` and begin before
/// `next_offset`. Offsets of the stream below `first_offset` in the segment are dead.
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

/// Ascending by offset and therefore by segment. Never empty inside an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    One(Run),
    /// By segment.
    Many(Arc<SharedMap<u32, Run>>),
}

// 100,000 idle partitions pay for this type 100,000 times.
const _: () = assert!(size_of::<Runs>() == 32);

impl Runs {
    fn one(&self) -> Option<&Run> {
        match self {
            Self::One(run) => Some(run),
            Self::Many(_) => None,
        }
    }

    fn many(&self) -> Option<&SharedMap<u32, Run>> {
        match self {
            Self::One(_) => None,
            Self::Many(runs) => Some(runs),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.many().map_or(1, SharedMap::len)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.one().into_iter().chain(self.many().into_iter().flat_map(SharedMap::values))
    }

    /// Runs that end after `offset`.
    pub(crate) fn after(&self, offset: u64) -> impl Iterator<Item = &Run> {
        let one = self.one().filter(|run| run.next_offset > offset);
        let many = self.many().map(|runs| runs.iter_from(|_, run| run.next_offset <= offset));
        one.into_iter().chain(many.into_iter().flatten().map(|(_, run)| run))
    }

    pub(crate) fn first(&self) -> Option<&Run> {
        match self {
            Self::One(run) => Some(run),
            Self::Many(runs) => runs.first_key_value().map(|(_, run)| run),
        }
    }

    pub(crate) fn last(&self) -> Option<&Run> {
        match self {
            Self::One(run) => Some(run),
            Self::Many(runs) => runs.last_key_value().map(|(_, run)| run),
        }
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Run> {
        match self {
            Self::One(run) => Some(run),
            Self::Many(runs) => Arc::make_mut(runs).last_mut(),
        }
    }

    pub(crate) fn push(&mut self, run: Run) {
        match self {
            Self::One(first) => {
                let runs = [(first.segment(), *first), (run.segment(), run)];
                *self = Self::Many(Arc::new(runs.into_iter().collect()));
            }
            Self::Many(runs) => drop(Arc::make_mut(runs).insert(run.segment(), run)),
        }
    }

    /// Forgets the run in `segment`; `false` when none is left.
    pub(crate) fn drop_segment(&mut self, segment: u32) -> bool {
        match self {
            Self::One(run) => run.segment() != segment,
            Self::Many(runs) => {
                if runs.contains_key(&segment) {
                    Arc::make_mut(runs).remove(&segment);
                }
                self.shrink()
            }
        }
    }

    pub(crate) fn find_mut(&mut self, segment: u32) -> Option<&mut Run> {
        match self {
            Self::One(run) => (run.segment() == segment).then_some(run),
            Self::Many(runs) => Arc::make_mut(runs).get_mut(&segment),
        }
    }

    pub(crate) fn find(&self, segment: u32) -> Option<&Run> {
        match self {
            Self::One(run) => (run.segment() == segment).then_some(run),
            Self::Many(runs) => runs.get(&segment),
        }
    }

    /// Returns a stream with a single run to the inline form.
    fn shrink(&mut self) -> bool {
        if let Self::Many(runs) = self {
            match runs.first_key_value() {
                None => return false,
                Some((_, only)) if runs.len() == 1 => *self = Self::One(*only),
                Some(_) => {}
            }
        }
        true
    }
}
