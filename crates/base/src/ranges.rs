//! A set of offsets: what is settled above a floor, what is dead in between, what is to be looked up.
//!
//! Offsets come scattered (records that are due at random) and in long rows. So the set is kept by
//! blocks of 64 offsets: rows of whole blocks as one cell, a block with a part of its offsets as one
//! bit each. What is dense costs nothing, and what is scattered a bit or so and not a range: of ten
//! million records settled at random, two and a half million ranges at the worst, that is about 7 MB
//! instead of 75, and a look-up among a hundred and fifty thousand cells.

use std::collections::{BTreeMap, btree_map};
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Offset;

const BLOCK_BITS: u32 = 6;

const _: () = assert!(1 << BLOCK_BITS == u64::BITS);

/// Offsets as ranges `[begin, end)`: ascending, none empty, and no two touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OffsetRanges {
    /// By the number of the (first) block. Equal sets have equal cells: no `Part` is empty or whole,
    /// and no two `Whole` touch.
    cells: BTreeMap<u64, Cell>,
    offsets: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    /// A bit for each offset of the block.
    Part(u64),
    /// Every offset of the blocks up to this one, which is no more in it.
    Whole(u64),
}

const _: () = assert!(size_of::<Cell>() == 16);

fn block_of(offset: Offset) -> u64 {
    offset >> BLOCK_BITS
}

fn first_of(block: u64) -> Offset {
    block << BLOCK_BITS
}

/// Bits of the offsets from this one on, in its block.
fn bits_from(offset: Offset) -> u64 {
    u64::MAX << (offset % u64::from(u64::BITS))
}

/// Bits of the offsets up to `last`, in its block.
fn bits_through(last: Offset) -> u64 {
    u64::MAX >> (u64::from(u64::BITS) - 1 - last % u64::from(u64::BITS))
}

impl OffsetRanges {
    pub const fn new() -> Self {
        Self { cells: BTreeMap::new(), offsets: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// How many offsets are in the set.
    pub fn offsets(&self) -> u64 {
        self.offsets
    }

    /// How many cells it takes: what it costs.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// How many ranges it makes. Counts them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Begin and end of each range, ascending.
    pub fn iter(&self) -> Ranges<'_> {
        self.iter_from(0)
    }

    /// The ranges as they are from `offset` on: the first is cut there if it began before.
    pub fn iter_from(&self, offset: Offset) -> Ranges<'_> {
        let block = block_of(offset);
        let (open, part) = match self.cell(block) {
            Some((_, Cell::Whole(end))) => (Some((offset, first_of(end))), (0, 0)),
            Some((_, Cell::Part(bits))) => (None, (first_of(block), bits & bits_from(offset))),
            None => (None, (0, 0)),
        };
        Ranges { cells: self.cells.range(block + 1..), part, open }
    }

    /// The cell that a block is in, with its first block.
    fn cell(&self, block: u64) -> Option<(u64, Cell)> {
        let (&first, &cell) = self.cells.range(..=block).next_back()?;
        let holds = match cell {
            Cell::Part(_) => first == block,
            Cell::Whole(end) => block < end,
        };
        holds.then_some((first, cell))
    }

    pub fn contains(&self, offset: Offset) -> bool {
        match self.cell(block_of(offset)) {
            Some((_, Cell::Part(bits))) => bits >> (offset % u64::from(u64::BITS)) & 1 == 1,
            Some((_, Cell::Whole(_))) => true,
            None => false,
        }
    }

    /// The end of the range that `offset` lies in.
    pub fn end_of(&self, offset: Offset) -> Option<Offset> {
        let (begin, end) = self.iter_from(offset).next()?;
        (begin == offset).then_some(end)
    }

    /// Where the range begins that `offset` lies in.
    fn begin_of(&self, offset: Offset) -> Offset {
        let mut at = offset;
        loop {
            // All between `at` and `offset` is in the set: how far does it go before?
            match self.cell(block_of(at)) {
                Some((first, Cell::Whole(_))) => at = first_of(first),
                Some((first, Cell::Part(bits))) => {
                    let missing = !bits & bits_through(at);
                    if missing != 0 {
                        let after = u64::BITS - missing.leading_zeros();
                        return first_of(first) + u64::from(after);
                    }
                    at = first_of(first);
                }
                None => return at + 1,
            }
            if at == 0 {
                return 0;
            }
            at -= 1;
        }
    }

    /// The range that `offset` lies in.
    pub fn around(&self, offset: Offset) -> Option<(Offset, Offset)> {
        let end = self.end_of(offset)?;
        Some((self.begin_of(offset), end))
    }

    /// Where the first range begins that begins at or after `offset`.
    pub fn next_begin(&self, offset: Offset) -> Option<Offset> {
        let (begin, end) = self.iter_from(offset).next()?;
        if begin > offset || offset == 0 || !self.contains(offset - 1) {
            return Some(begin);
        }
        self.iter_from(end).next().map(|(begin, _)| begin)
    }

    pub fn first(&self) -> Option<(Offset, Offset)> {
        self.iter().next()
    }

    /// From the first range to the end of the last that follows in steps of at most `near`, `span`
    /// offsets at most.
    pub fn first_near(&self, near: u64, span: u64) -> Option<(Offset, Offset)> {
        let mut ranges = self.iter();
        let (first, mut reached) = ranges.next()?;
        let most = first.saturating_add(span.max(1));
        for (next, end) in ranges {
            if reached >= most || next - reached > near {
                break;
            }
            reached = end;
        }
        Some((first, reached.min(most)))
    }

    /// What of `from..to` is in the set.
    pub fn within(&self, from: Offset, to: Offset) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let ranges = self.iter_from(from).take_while(move |(begin, _)| *begin < to);
        ranges.map(move |(begin, end)| (begin, end.min(to)))
    }

    /// The parts of `from..to` that are not in it, ascending.
    pub fn gaps(&self, from: Offset, to: Offset) -> Vec<(Offset, Offset)> {
        let mut gaps = Vec::new();
        let mut at = from;
        for (begin, end) in self.within(from, to) {
            if at < begin {
                gaps.push((at, begin));
            }
            at = end;
        }
        if at < to {
            gaps.push((at, to));
        }
        gaps
    }

    /// The ranges that have something of `from..to`, as they are.
    pub fn touching(&self, from: Offset, to: Offset) -> Self {
        let begin = self.around(from).map_or(from, |(begin, _)| begin);
        self.iter_from(begin).take_while(|(begin, _)| *begin < to).collect()
    }

    /// Puts `from..to` in; how many of them are new.
    pub fn insert(&mut self, from: Offset, to: Offset) -> u64 {
        if from >= to {
            return 0;
        }
        let before = self.offsets;
        let (first, last) = (block_of(from), block_of(to - 1));
        if first == last {
            self.set(first, bits_from(from) & bits_through(to - 1));
        } else {
            self.set(first, bits_from(from));
            self.set_blocks(first + 1, last);
            self.set(last, bits_through(to - 1));
        }
        self.offsets - before
    }

    fn set(&mut self, block: u64, mask: u64) {
        match self.cells.range_mut(..=block).next_back() {
            Some((_, Cell::Whole(end))) if block < *end => return,
            Some((&found, Cell::Part(bits))) if found == block => {
                self.offsets += u64::from((mask & !*bits).count_ones());
                *bits |= mask;
                if *bits != u64::MAX {
                    return;
                }
                self.cells.remove(&block);
            }
            _ => {
                self.offsets += u64::from(mask.count_ones());
                if mask != u64::MAX {
                    self.cells.insert(block, Cell::Part(mask));
                    return;
                }
            }
        }
        self.join(block, block + 1);
    }

    /// Puts in all of these blocks.
    fn set_blocks(&mut self, first: u64, end: u64) {
        if first < end {
            self.take_blocks(first, end);
            self.offsets += first_of(end) - first_of(first);
            self.join(first, end);
        }
    }

    /// Makes these blocks, which are in no cell, a cell, or a part of the neighbours.
    fn join(&mut self, mut first: u64, mut end: u64) {
        if let Some((&before, &Cell::Whole(reached))) = self.cells.range(..first).next_back()
            && reached == first
        {
            first = before;
        }
        if let Some(&Cell::Whole(reached)) = self.cells.get(&end) {
            self.cells.remove(&end);
            end = reached;
        }
        self.cells.insert(first, Cell::Whole(end));
    }

    /// Takes out all of these blocks.
    fn take_blocks(&mut self, first: u64, end: u64) {
        let mut taken = 0;
        if let Some((before, Cell::Whole(reached))) = self.cell(first)
            && before < first
        {
            self.cells.insert(before, Cell::Whole(first));
            taken += first_of(reached.min(end)) - first_of(first);
            if reached > end {
                self.cells.insert(end, Cell::Whole(reached));
            }
        }
        while let Some((&block, &cell)) = self.cells.range(first..end).next() {
            self.cells.remove(&block);
            match cell {
                Cell::Part(bits) => taken += u64::from(bits.count_ones()),
                Cell::Whole(reached) => {
                    taken += first_of(reached.min(end)) - first_of(block);
                    if reached > end {
                        self.cells.insert(end, Cell::Whole(reached));
                    }
                }
            }
        }
        self.offsets -= taken;
    }

    /// Takes `from..to` out; how many of them were in the set.
    pub fn remove(&mut self, from: Offset, to: Offset) -> u64 {
        if from >= to || self.cells.is_empty() {
            return 0;
        }
        let before = self.offsets;
        let (first, last) = (block_of(from), block_of(to - 1));
        if first == last {
            self.clear(first, bits_from(from) & bits_through(to - 1));
        } else {
            self.clear(first, bits_from(from));
            self.take_blocks(first + 1, last);
            self.clear(last, bits_through(to - 1));
        }
        before - self.offsets
    }

    fn clear(&mut self, block: u64, mask: u64) {
        let bits = match self.cell(block) {
            Some((_, Cell::Part(bits))) => bits,
            Some((_, Cell::Whole(_))) if mask == u64::MAX => {
                self.take_blocks(block, block + 1);
                return;
            }
            Some((first, Cell::Whole(end))) => {
                // The block comes out of its row, to lose a part.
                self.cells.remove(&first);
                if first < block {
                    self.cells.insert(first, Cell::Whole(block));
                }
                if block + 1 < end {
                    self.cells.insert(block + 1, Cell::Whole(end));
                }
                u64::MAX
            }
            None => return,
        };
        self.offsets -= u64::from((bits & mask).count_ones());
        match bits & !mask {
            0 => self.cells.remove(&block),
            left => self.cells.insert(block, Cell::Part(left)),
        };
    }

    /// Takes out the ranges that begin at or below `offset`; answers where the last of them ended,
    /// or `offset` if that is further.
    pub fn join_below(&mut self, offset: Offset) -> Offset {
        let reached = self.end_of(offset).unwrap_or(offset);
        self.remove(0, reached);
        reached
    }

    /// Takes out the ranges that end at or below `offset`.
    pub fn forget_below(&mut self, offset: Offset) {
        let begin = self.around(offset).map_or(offset, |(begin, _)| begin);
        self.remove(0, begin);
    }

    pub fn pop_first(&mut self) -> Option<(Offset, Offset)> {
        let (begin, end) = self.first()?;
        self.remove(begin, end);
        Some((begin, end))
    }
}

/// The ranges of a set, ascending.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    cells: btree_map::Range<'a, u64, Cell>,
    /// A block's first offset, and the bits of it that were not looked at yet.
    part: (Offset, u64),
    /// What was found so far of the next range: what follows may belong to it.
    open: Option<(Offset, Offset)>,
}

impl Ranges<'_> {
    /// The next that is together in one cell.
    fn piece(&mut self) -> Option<(Offset, Offset)> {
        while self.part.1 == 0 {
            match self.cells.next()? {
                (&block, &Cell::Part(bits)) => self.part = (first_of(block), bits),
                (&block, &Cell::Whole(end)) => return Some((first_of(block), first_of(end))),
            }
        }
        let (first, bits) = self.part;
        let skipped = bits.trailing_zeros();
        let length = (bits >> skipped).trailing_ones();
        let begin = first + u64::from(skipped);
        let end = begin + u64::from(length);
        self.part.1 = bits & !bits_through(end - 1);
        Some((begin, end))
    }
}

impl Iterator for Ranges<'_> {
    type Item = (Offset, Offset);

    fn next(&mut self) -> Option<(Offset, Offset)> {
        loop {
            let piece = self.piece();
            match (self.open, piece) {
                (Some(open), Some(piece)) if open.1 == piece.0 => {
                    self.open = Some((open.0, piece.1));
                }
                (None, None) => return None,
                (None, piece) => self.open = piece,
                (open, piece) => {
                    self.open = piece;
                    return open;
                }
            }
        }
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

/// As a map of begins and ends: how it is kept in memory is nobody's business.
impl Serialize for OffsetRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (begin, end) in self.iter() {
            map.serialize_entry(&begin, &end)?;
        }
        map.end()
    }
}

/// Believes nothing: what is no such set is an error.
impl<'de> Deserialize<'de> for OffsetRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = OffsetRanges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ranges that ascend and do not touch")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OffsetRanges, A::Error> {
                let mut set = OffsetRanges::new();
                let mut reached = None;
                while let Some((begin, end)) = map.next_entry::<Offset, Offset>()? {
                    if begin >= end || reached.is_some_and(|reached| begin <= reached) {
                        return Err(A::Error::custom("ranges of offsets that are none, or touch"));
                    }
                    set.insert(begin, end);
                    reached = Some(end);
                }
                Ok(set)
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Five blocks, so that ranges begin, end and go on in each place of one.
    const END: Offset = 320;

    fn as_set(ranges: &OffsetRanges) -> BTreeSet<Offset> {
        ranges.iter().flat_map(|(from, to)| from..to).collect()
    }

    /// Half of the time a whole number of blocks.
    fn place() -> impl Strategy<Value = Offset> {
        prop_oneof![0..END, (0..END / 64).prop_map(|block| block * 64)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

        #[test]
        fn ranges_are_a_set_of_offsets_in_the_fewest_ranges(
            steps in prop::collection::vec((0..8_u8, place(), place()), 1..60),
        ) {
            let (mut ranges, mut model) = (OffsetRanges::new(), BTreeSet::new());
            for (step, one, other) in steps {
                let (from, to) = (one.min(other), one.max(other));
                let held = |model: &BTreeSet<Offset>| {
                    model.range(from..to).copied().collect::<BTreeSet<_>>()
                };
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
                    2 => {
                        let first = ranges.pop_first();
                        prop_assert_eq!(first.map(|it| it.0), model.first().copied());
                        model.retain(|at| first.is_none_or(|(_, end)| *at >= end));
                    }
                    3 | 4 => {
                        let inside = held(&model);
                        prop_assert_eq!(ranges.remove(from, to), inside.len() as u64);
                        model.retain(|at| !inside.contains(at));
                    }
                    _ => {
                        let missing: BTreeSet<_> =
                            (from..to).filter(|at| !model.contains(at)).collect();
                        let gaps: BTreeSet<_> =
                            ranges.gaps(from, to).into_iter().flat_map(|(a, b)| a..b).collect();
                        prop_assert_eq!(&gaps, &missing);
                        prop_assert_eq!(ranges.insert(from, to), missing.len() as u64);
                        model.extend(from..to);
                    }
                }
                let listed: Vec<_> = ranges.iter().collect();
                prop_assert!(listed.iter().all(|(from, to)| from < to));
                prop_assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0));
                prop_assert_eq!(&as_set(&ranges), &model);
                prop_assert_eq!(ranges.offsets(), model.len() as u64);
                prop_assert_eq!(ranges.is_empty(), model.is_empty());
                // However it came to be, an equal set is the same.
                prop_assert_eq!(&listed.iter().copied().collect::<OffsetRanges>(), &ranges);
                for at in 0..END + 70 {
                    let around = ranges.around(at);
                    prop_assert_eq!(around, listed.iter().copied().find(|it| it.0 <= at && at < it.1));
                    prop_assert_eq!(ranges.contains(at), around.is_some());
                    prop_assert_eq!(ranges.end_of(at), around.map(|it| it.1));
                    let first = listed.iter().find(|it| it.0 >= at).map(|it| it.0);
                    prop_assert_eq!(ranges.next_begin(at), first);
                }
                let within: BTreeSet<_> =
                    ranges.within(from, to).flat_map(|(a, b)| a..b).collect();
                prop_assert_eq!(within, held(&model));
                let touching: OffsetRanges =
                    listed.iter().copied().filter(|it| it.0 < to && it.1 > from).collect();
                if from < to {
                    prop_assert_eq!(ranges.touching(from, to), touching);
                }
            }
        }
    }

    #[test]
    fn what_is_near_the_first_range_is_taken_with_it_up_to_a_span() {
        let ranges: OffsetRanges =
            [(10, 12), (15, 16), (90, 300), (600, 601)].into_iter().collect();
        assert_eq!(ranges.first_near(0, 999), Some((10, 12)));
        assert_eq!(ranges.first_near(3, 999), Some((10, 16)));
        assert_eq!(ranges.first_near(80, 999), Some((10, 300)));
        assert_eq!(ranges.first_near(80, 100), Some((10, 110)));
        assert_eq!(ranges.first_near(999, 999), Some((10, 601)));
        assert_eq!(OffsetRanges::new().first_near(9, 9), None);
    }

    #[test]
    fn the_last_offsets_there_are_can_be_in_it() {
        let mut ranges = OffsetRanges::new();
        assert_eq!(ranges.insert(5, Offset::MAX), Offset::MAX - 5);
        assert_eq!(ranges.around(1 << 40), Some((5, Offset::MAX)));
        assert_eq!(ranges.remove(Offset::MAX - 2, Offset::MAX), 2);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(5, Offset::MAX - 2)]);
        assert!(ranges.cells() < 4);
    }

    #[test]
    fn scattered_offsets_cost_a_cell_for_each_block_and_rows_one() {
        let every_other: OffsetRanges = (0..6_400).map(|at| (at * 2, at * 2 + 1)).collect();
        assert_eq!((every_other.len(), every_other.cells()), (6_400, 200));
        let row: OffsetRanges = [(64, 6_400), (6_400, 64_000)].into_iter().collect();
        assert_eq!((row.len(), row.cells()), (1, 1));
    }
}
