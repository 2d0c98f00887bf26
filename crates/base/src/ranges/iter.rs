//! The ranges of a set.

use std::collections::btree_map;

use super::{Cell, bits_through, first_of};
use crate::Offset;

/// The ranges of a set, ascending.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    pub(super) cells: btree_map::Range<'a, u64, Cell>,
    /// A block's first offset, and its bits that were not returned yet.
    pub(super) part: (Offset, u64),
    /// The next range so far: the following cell may continue it.
    pub(super) open: Option<(Offset, Offset)>,
}

impl Ranges<'_> {
    /// The next piece of a range that lies in one cell.
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
