//! A message's body.

use bytes::Bytes;

/// A body as it came: slices of what the socket brought.
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
