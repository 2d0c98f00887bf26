//! The rows of a map, ascending.

use std::sync::Arc;

use super::{Chunk, SharedMap};

#[derive(Debug)]
pub struct Iter<'a, K, V> {
    pub(super) chunks: &'a [(K, Arc<Chunk<K, V>>)],
    /// Chunk and place of the next row, and of the first row behind the range.
    pub(super) front: (usize, usize),
    pub(super) end: (usize, usize),
}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.front >= self.end {
                return None;
            }
            let (chunk, at) = self.front;
            let (_, found) = self.chunks.get(chunk)?;
            if let (Some(key), Some(value)) = (found.keys.get(at), found.values.get(at)) {
                self.front = (chunk, at + 1);
                return Some((key, value));
            }
            self.front = (chunk + 1, 0);
        }
    }
}

impl<'a, K, V> IntoIterator for &'a SharedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}
