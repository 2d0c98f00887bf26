//! A set of offsets as ranges: what is dense costs nothing, however much it is.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use base::Offset;

/// Ranges `[first, end)`, never touching each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ranges {
    by_first: BTreeMap<Offset, Offset>,
    offsets: u64,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    /// How many offsets are in the set.
    pub(crate) fn offsets(&self) -> u64 {
        self.offsets
    }

    /// How many ranges they make: what the set costs.
    pub(crate) fn ranges(&self) -> usize {
        self.by_first.len()
    }

    pub(crate) fn first(&self) -> Option<(Offset, Offset)> {
        self.by_first.first_key_value().map(|(&first, &end)| (first, end))
    }

    /// From the first range to the end of the last that follows in steps of at most `near`, `span`
    /// offsets at most.
    pub(crate) fn first_near(&self, near: u64, span: u64) -> Option<(Offset, Offset)> {
        let (first, mut reached) = self.first()?;
        let most = first.saturating_add(span.max(1));
        for (next, end) in self.iter().skip(1) {
            if reached >= most || next - reached > near {
                break;
            }
            reached = end;
        }
        Some((first, reached.min(most)))
    }

    pub(crate) fn pop_first(&mut self) -> Option<(Offset, Offset)> {
        let (first, end) = self.by_first.pop_first()?;
        self.offsets -= end - first;
        Some((first, end))
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.end_of(offset).is_some()
    }

    /// The end of the range that holds `offset`.
    pub(crate) fn end_of(&self, offset: Offset) -> Option<Offset> {
        let (_, &end) = self.by_first.range(..=offset).next_back()?;
        (offset < end).then_some(end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        self.by_first.iter().map(|(&first, &end)| (first, end))
    }

    /// Adds `[first, end)`; how many offsets are new.
    pub(crate) fn insert(&mut self, first: Offset, end: Offset) -> u64 {
        if first >= end {
            return 0;
        }
        let mut new = end - first;
        let mut joined = (first, end);
        if let Some((&before, before_end)) = self.by_first.range_mut(..=first).next_back()
            && *before_end >= first
        {
            if *before_end >= end {
                return 0;
            }
            new -= *before_end - first;
            joined.0 = before;
            *before_end = end;
        }
        while let Some((&after, &after_end)) =
            self.by_first.range((Excluded(first), Included(end))).next()
        {
            new -= after_end.min(end) - after;
            joined.1 = joined.1.max(after_end);
            self.by_first.remove(&after);
        }
        self.by_first.insert(joined.0, joined.1);
        self.offsets += new;
        new
    }

    /// Takes `[first, end)` out; how many offsets were in the set.
    pub(crate) fn remove(&mut self, first: Offset, end: Offset) -> u64 {
        if first >= end || self.by_first.is_empty() {
            return 0;
        }
        let mut removed = 0;
        if let Some((&before, before_end)) = self.by_first.range_mut(..first).next_back()
            && *before_end > first
        {
            let tail = *before_end;
            *before_end = first;
            removed += tail.min(end) - first;
            if tail > end {
                self.by_first.insert(end, tail);
            }
            debug_assert!(before < first);
        }
        while let Some((&inside, &inside_end)) = self.by_first.range(first..end).next() {
            self.by_first.remove(&inside);
            removed += inside_end.min(end) - inside;
            if inside_end > end {
                self.by_first.insert(end, inside_end);
            }
        }
        self.offsets -= removed;
        removed
    }

    /// What of `[first, end)` is in the set.
    pub(crate) fn within(&self, first: Offset, end: Offset) -> Vec<(Offset, Offset)> {
        let before = self.by_first.range(..first).next_back().map(|(&f, &e)| (f, e));
        before
            .into_iter()
            .chain(self.by_first.range(first..end.max(first)).map(|(&f, &e)| (f, e)))
            .map(|(f, e)| (f.max(first), e.min(end)))
            .filter(|(f, e)| f < e)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_one_range() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.insert(5, 6), 1);
        assert_eq!(ranges.insert(7, 8), 1);
        assert_eq!(ranges.insert(6, 7), 1);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(5, 8)]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_offsets(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 1..60)
        ) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (insert, first, length) in steps {
                let end = first + length;
                let before = set.len() as u64;
                if insert {
                    set.extend(first..end);
                    prop_assert_eq!(ranges.insert(first, end), set.len() as u64 - before);
                } else {
                    set.retain(|offset| !(first..end).contains(offset));
                    prop_assert_eq!(ranges.remove(first, end), before - set.len() as u64);
                }
                prop_assert_eq!(ranges.offsets(), set.len() as u64);
                let listed: Vec<_> = ranges.iter().flat_map(|(f, e)| f..e).collect();
                prop_assert_eq!(listed, set.iter().copied().collect::<Vec<_>>());
                let firsts: Vec<_> = ranges.iter().collect();
                prop_assert!(firsts.windows(2).all(|pair| pair[0].1 < pair[1].0));
                let within: Vec<_> =
                    ranges.within(first, end).into_iter().flat_map(|(f, e)| f..e).collect();
                prop_assert_eq!(within, set.range(first..end).copied().collect::<Vec<_>>());
                for offset in 0..75 {
                    prop_assert_eq!(ranges.contains(offset), set.contains(&offset));
                }
            }
        }
    }
}
