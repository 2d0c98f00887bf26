//! A message's body.

use bytes::{Bytes, BytesMut};

/// A received body: slices of the socket's buffers.
#[derive(Clone, Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    One(Bytes),
    Many(Vec<Bytes>),
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::One(bytes) }
    }
}

impl Body {
    pub fn push(&mut self, slice: Bytes) {
        if slice.is_empty() {
            return;
        }
        *self = match std::mem::take(self) {
            Self::Empty => Self::One(slice),
            Self::One(first) => Self::Many(vec![first, slice]),
            Self::Many(mut slices) => {
                slices.push(slice);
                Self::Many(slices)
            }
        };
    }

    pub fn slices(&self) -> &[Bytes] {
        match self {
            Self::Empty => &[],
            Self::One(slice) => std::slice::from_ref(slice),
            Self::Many(slices) => slices,
        }
    }

    pub fn bytes(&self) -> usize {
        self.slices().iter().map(Bytes::len).sum()
    }
}

/// Smaller pieces are copied together.
const SMALL_BYTES: usize = 4 << 10;

/// A body of which not all pieces have arrived.
///
/// A piece keeps the whole buffer that it was read into. That is little more than the piece if a client fills its
/// frames, and thousands of times as much if it sends a frame for each byte. So small pieces are copied.
#[derive(Debug, Default)]
pub struct ArrivingBody {
    body: Body,
    /// Copied pieces, which follow those in `body`.
    small: BytesMut,
}

impl ArrivingBody {
    /// Adds a piece; `is_last`: it is the last one. A body of one piece is never copied.
    pub fn push(&mut self, piece: Bytes, is_last: bool) {
        let is_alone = is_last && self.small.is_empty() && self.body.slices().is_empty();
        if piece.len() < SMALL_BYTES && !is_alone {
            self.small.extend_from_slice(&piece);
            return;
        }
        self.keep_small();
        self.body.push(piece);
    }

    pub fn finish(mut self) -> Body {
        self.keep_small();
        self.body
    }

    fn keep_small(&mut self) {
        self.body.push(std::mem::take(&mut self.small).freeze());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(pieces: &[&Bytes]) -> Body {
        let mut arriving = ArrivingBody::default();
        for (place, piece) in pieces.iter().enumerate() {
            arriving.push((*piece).clone(), place + 1 == pieces.len());
        }
        arriving.finish()
    }

    #[test]
    fn small_pieces_are_copied_and_large_ones_are_not() {
        let buffer = Bytes::from(vec![7; 2 * SMALL_BYTES]);
        let (small, large) = (buffer.slice(..3), buffer.slice(..SMALL_BYTES));
        let is_of_buffer = |slice: &Bytes| buffer.as_ptr_range().contains(&slice.as_ptr());

        let many = arrived(&vec![&small; 1_000]);
        assert_eq!((many.bytes(), many.slices().len()), (3_000, 1));
        assert!(!is_of_buffer(&many.slices()[0]));

        let mixed = arrived(&[&small, &small, &large, &large, &small]);
        assert_eq!(mixed.slices().iter().map(Bytes::len).collect::<Vec<_>>(), [6, 4096, 4096, 3]);
        assert_eq!(mixed.slices().iter().filter(|slice| is_of_buffer(slice)).count(), 2);
    }

    #[test]
    fn body_of_one_piece_is_not_copied() {
        let buffer = Bytes::from(vec![7; 100]);
        let alone = arrived(&[&buffer]);
        assert_eq!(alone.slices()[0].as_ptr(), buffer.as_ptr());
        assert!(arrived(&[]).slices().is_empty());
    }
}
