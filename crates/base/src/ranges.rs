//! A set of offsets as the fewest ranges: what is settled above a floor, what is dead in between.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Offset;

/// Begin and end of each range. Ascending, none empty, and no two touch: neighbours are joined, so
/// that the set costs what is scattered and not what is in it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OffsetRanges {
    ranges: BTreeMap<Offset, Offset>,
}

impl OffsetRanges {
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Begin and end of each, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Offset, Offset)> + '_ {
        self.ranges.iter().map(|(&from, &to)| (from, to))
    }

    /// The range that `offset` lies in.
    pub fn around(&self, offset: Offset) -> Option<(Offset, Offset)> {
        let (&from, &to) = self.ranges.range(..=offset).next_back()?;
        (offset < to).then_some((from, to))
    }

    /// Where the first range begins that begins at or after `offset`.
    pub fn next_begin(&self, offset: Offset) -> Option<Offset> {
        self.ranges.range(offset..).next().map(|(&from, _)| from)
    }

    /// Puts `from..to` in; whether anything of it was not. Costs a search, and what it joins.
    pub fn insert(&mut self, from: Offset, to: Offset) -> bool {
        if from >= to {
            return false;
        }
        let (mut begin, mut end) = (from, to);
        if let Some((&before, after)) = self.ranges.range_mut(..=from).next_back()
            && from <= *after
        {
            if to <= *after {
                return false;
            }
            begin = before;
        }
        while let Some((&next, &after)) = self.ranges.range(begin..=end).next_back() {
            end = end.max(after);
            if next == begin {
                // It only grows, in its place.
                break;
            }
            self.ranges.remove(&next);
        }
        self.ranges.insert(begin, end);
        true
    }

    /// The parts of `from..to` that are not in it, ascending.
    pub fn gaps(&self, from: Offset, to: Offset) -> Vec<(Offset, Offset)> {
        let mut gaps = Vec::new();
        let mut at = self.around(from).map_or(from, |(_, end)| end);
        while at < to {
            let (begin, end) = match self.ranges.range(at..to).next() {
                Some((&begin, &end)) => (begin, end),
                None => (to, to),
            };
            if at < begin {
                gaps.push((at, begin));
            }
            at = end;
        }
        gaps
    }

    /// Takes out the ranges that begin at or below `offset`; answers where the last of them ended,
    /// or `offset` if that is further.
    pub fn join_below(&mut self, offset: Offset) -> Offset {
        let mut reached = offset;
        while let Some(first) = self.ranges.first_entry()
            && *first.key() <= reached
        {
            reached = reached.max(first.remove());
        }
        reached
    }

    /// Takes out the ranges that end at or below `offset`.
    pub fn forget_below(&mut self, offset: Offset) {
        while let Some(first) = self.ranges.first_entry()
            && *first.get() <= offset
        {
            first.remove();
        }
    }

    /// The ranges that have something of `from..to`, as they are.
    pub fn touching(&self, from: Offset, to: Offset) -> Self {
        let begin = self.around(from).map_or(from, |(begin, _)| begin);
        let within = if begin < to { Some(self.ranges.range(begin..to)) } else { None };
        Self { ranges: within.into_iter().flatten().map(|(&from, &to)| (from, to)).collect() }
    }

    /// Whether ranges that were read from a disk are such a set.
    pub fn is_sound(&self) -> bool {
        let ends = || self.ranges.values();
        self.iter().all(|(from, to)| from < to)
            && self.ranges.keys().skip(1).zip(ends()).all(|(next, end)| end < next)
    }
}

impl FromIterator<(Offset, Offset)> for OffsetRanges {
    fn from_iter<T: IntoIterator<Item = (Offset, Offset)>>(ranges: T) -> Self {
        let mut set = Self::new();
        for (from, to) in ranges {
            set.insert(from, to);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const END: Offset = 60;

    fn as_set(ranges: &OffsetRanges) -> BTreeSet<Offset> {
        ranges.iter().flat_map(|(from, to)| from..to).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn ranges_are_a_set_of_offsets_in_the_fewest_ranges(
            steps in prop::collection::vec((0..4_u8, 0..END, 0..20_u64), 1..60),
        ) {
            let (mut ranges, mut model) = (OffsetRanges::new(), BTreeSet::new());
            for (step, from, len) in steps {
                let to = from + len;
                match step {
                    0 => {
                        let reached = ranges.join_below(from);
                        let next = (from..).find(|at| !model.contains(at)).unwrap();
                        prop_assert_eq!(reached, next);
                        model.retain(|at| *at > reached);
                    }
                    1 => {
                        let kept = ranges.around(from.saturating_sub(1)).filter(|it| it.1 > from);
                        ranges.forget_below(from);
                        let least = kept.map_or(from, |(begin, _)| begin);
                        model.retain(|at| *at >= least);
                    }
                    _ => {
                        let new = (from..to).any(|at| !model.contains(&at));
                        let gaps: BTreeSet<_> =
                            ranges.gaps(from, to).into_iter().flat_map(|(a, b)| a..b).collect();
                        let missing: BTreeSet<_> =
                            (from..to).filter(|at| !model.contains(at)).collect();
                        prop_assert_eq!(gaps, missing);
                        prop_assert_eq!(ranges.insert(from, to), new);
                        model.extend(from..to);
                    }
                }
                prop_assert!(ranges.is_sound());
                prop_assert_eq!(&as_set(&ranges), &model);
                for at in 0..END + 20 {
                    let around = ranges.around(at);
                    prop_assert_eq!(around.is_some(), model.contains(&at));
                    prop_assert!(around.is_none_or(|(from, to)| from <= at && at < to));
                    let next = ranges.next_begin(at);
                    let first =
                        model.range(at..).find(|it| **it == 0 || !model.contains(&(**it - 1)));
                    prop_assert_eq!(next, first.copied());
                }
                let expected: OffsetRanges =
                    ranges.iter().filter(|it| it.0 < to && it.1 > from).collect();
                if from < to {
                    prop_assert_eq!(ranges.touching(from, to), expected);
                }
            }
        }
    }

    #[test]
    fn what_is_no_set_is_not_sound() {
        for ranges in [&[(3, 3)][..], &[(4, 2)], &[(0, 2), (2, 4)], &[(0, 5), (3, 6)]] {
            let ranges = ranges.iter().copied().collect();
            assert!(!OffsetRanges { ranges }.is_sound());
        }
    }
}
