//! A set of offsets: those settled above a floor, dead between live ones, or to be looked up.
//!
//! Offsets come scattered (records that are due at random) and in long rows. So the set is kept by blocks of 64
//! offsets: a row of whole blocks is one cell, a block with a part of its offsets is one cell with a bit each. Ten
//! million records settled at random make two and a half million ranges at the worst. As cells these take about 7
//! MB instead of 75, and a look-up searches a hundred and fifty thousand cells.
//!
//! * [`change`]: insertion and removal
//! * [`iter`]: its ranges
//! * [`serialize`]: the form in snapshots

mod change;
mod iter;
mod serialize;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::Offset;

pub use iter::Ranges;

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
    /// Every offset of the blocks up to this one, exclusive.
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

    /// Number of offsets in the set.
    pub fn offsets(&self) -> u64 {
        self.offsets
    }

    /// Number of cells: a measure of its memory.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Number of ranges. Counts them.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Begin and end of each range, ascending.
    pub fn iter(&self) -> Ranges<'_> {
        self.iter_from(0)
    }

    /// The ranges from `offset` on. A range that contains `offset` is cut there.
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

    /// The begin of the range that `offset` lies in.
    fn begin_of(&self, offset: Offset) -> Offset {
        let mut at = offset;
        loop {
            // All from `at + 1` to `offset` is in the set. Go back while the offsets before are too.
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

    /// The begin of the first range that begins at or after `offset`.
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

    /// From the first range to the end of the last range that follows with gaps of at most `near`, cut at `span`
    /// offsets.
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

    /// The part of the set within `from..to`.
    pub fn within(&self, from: Offset, to: Offset) -> impl Iterator<Item = (Offset, Offset)> + '_ {
        let ranges = self.iter_from(from).take_while(move |(begin, _)| *begin < to);
        ranges.map(move |(begin, end)| (begin, end.min(to)))
    }

    /// The parts of `from..to` that are not in the set, ascending.
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

    /// The ranges that overlap `from..to`, uncut.
    pub fn touching(&self, from: Offset, to: Offset) -> Self {
        let begin = self.around(from).map_or(from, |(begin, _)| begin);
        self.iter_from(begin).take_while(|(begin, _)| *begin < to).collect()
    }
}
