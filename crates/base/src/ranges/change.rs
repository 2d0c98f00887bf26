//! Insertion and removal of offsets.

use super::{Cell, OffsetRanges, bits_from, bits_through, block_of, first_of};
use crate::Offset;

impl OffsetRanges {
    /// Inserts `from..to`; returns how many of the offsets are new.
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

    /// Inserts all offsets of these blocks.
    fn set_blocks(&mut self, first: u64, end: u64) {
        if first < end {
            self.take_blocks(first, end);
            self.offsets += first_of(end) - first_of(first);
            self.join(first, end);
        }
    }

    /// Makes these blocks, which are in no cell, a cell, or extends the neighbours by them.
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

    /// Removes all offsets of these blocks.
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

    /// Removes `from..to`; returns how many of the offsets were in the set.
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
                // Splits the row, so that the block is a cell of its own.
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

    /// Removes the ranges that begin at or below `offset`. Returns the end of the last of them, or `offset` if
    /// that is further.
    pub fn join_below(&mut self, offset: Offset) -> Offset {
        let reached = self.end_of(offset).unwrap_or(offset);
        self.remove(0, reached);
        reached
    }

    /// Removes the ranges that end at or below `offset`.
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

impl FromIterator<(Offset, Offset)> for OffsetRanges {
    fn from_iter<T: IntoIterator<Item = (Offset, Offset)>>(ranges: T) -> Self {
        let mut set = Self::new();
        for (from, to) in ranges {
            set.insert(from, to);
        }
        set
    }
}
