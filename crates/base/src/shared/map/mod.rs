//! An ordered map in chunks: a sorted list of chunks, each of some sorted rows.
//!
//! Two levels are enough for the millions of rows that a shard has at most, and are searched as fast as a deep
//! tree. Ascending keys, such as numbers handed out in order, fill chunks completely.
//!
//! * [`change`]: inserting, changing and removing rows
//! * [`iter`]: its rows
//! * [`serialize`]: the form in snapshots

mod change;
mod iter;
mod serialize;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, Index, RangeBounds};
use std::sync::Arc;

pub use iter::Iter;

/// Rows of a chunk at most. The first change of a chunk after a copy of the map copies this many.
pub const ROWS_PER_CHUNK: usize = 64;

#[derive(Clone)]
pub struct SharedMap<K, V> {
    /// By the first key of each, none empty. The first chunk's key is not used: that chunk holds all
    /// keys below the second's.
    chunks: Vec<(K, Arc<Chunk<K, V>>)>,
    len: usize,
}

/// Keys apart from values: a search looks at keys only.
#[derive(Clone)]
struct Chunk<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Chunk<K, V> {
    fn of(key: K, value: V) -> Self {
        // Many maps hold one row.
        let (mut keys, mut values) = (Vec::with_capacity(1), Vec::with_capacity(1));
        keys.push(key);
        values.push(value);
        Self { keys, values }
    }
}

impl<K, V> SharedMap<K, V> {
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// The rows, ascending.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { chunks: &self.chunks, front: (0, 0), end: (self.chunks.len(), 0) }
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        let (_, last) = self.chunks.last()?;
        Some((last.keys.last()?, last.values.last()?))
    }

    /// The rows from the first one for which `before` does not hold; it holds for all rows before that.
    pub fn iter_from(&self, before: impl Fn(&K, &V) -> bool) -> Iter<'_, K, V> {
        let begins_before =
            |(_, chunk): &(K, Arc<Chunk<K, V>>)| before(&chunk.keys[0], &chunk.values[0]);
        let chunk = self.chunks.partition_point(begins_before).saturating_sub(1);
        let mut rows =
            Iter { chunks: &self.chunks, front: (chunk, 0), end: (self.chunks.len(), 0) };
        if let Some((_, found)) = self.chunks.get(chunk) {
            let (mut low, mut high) = (0, found.keys.len());
            while low < high {
                let middle = low + (high - low) / 2;
                match before(&found.keys[middle], &found.values[middle]) {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            rows.front = (chunk, low);
        }
        rows
    }

    /// Bytes of memory, without allocations of its keys and values.
    pub fn allocation_size(&self) -> usize {
        let of_chunk = |(_, chunk): &(K, Arc<Chunk<K, V>>)| {
            let counts = 2 * size_of::<usize>();
            let rows =
                chunk.keys.capacity() * size_of::<K>() + chunk.values.capacity() * size_of::<V>();
            counts + size_of::<Chunk<K, V>>() + rows
        };
        self.chunks.capacity() * size_of::<(K, Arc<Chunk<K, V>>)>()
            + self.chunks.iter().map(of_chunk).sum::<usize>()
    }

    /// Number of chunks that `other` does not share: those that changed since a copy.
    pub fn chunks_not_in(&self, other: &Self) -> usize {
        let is_in = |chunk: &Arc<_>| other.chunks.iter().any(|(_, held)| Arc::ptr_eq(held, chunk));
        self.chunks.iter().filter(|(_, chunk)| !is_in(chunk)).count()
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// The chunk in which a key is or would be, with its place there or the place of its insertion.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let after = self.chunks.partition_point(|(first, _)| first.borrow() <= key);
        let chunk = after.saturating_sub(1);
        match self.chunks.get(chunk) {
            Some((_, found)) => (chunk, found.keys.binary_search_by(|held| held.borrow().cmp(key))),
            None => (0, Err(0)),
        }
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.place(key);
        let (at, (_, chunk)) = (at.ok()?, self.chunks.get(chunk)?);
        Some((&chunk.keys[at], &chunk.values[at]))
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).1.is_ok()
    }

    /// The rows of a range, ascending.
    pub fn range<Q: Ord + ?Sized, R: RangeBounds<Q>>(&self, range: R) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let at = |key: &Q, after: bool| match self.place(key) {
            (chunk, Ok(at)) => (chunk, at + usize::from(after)),
            (chunk, Err(at)) => (chunk, at),
        };
        let front = match range.start_bound() {
            Bound::Included(key) => at(key, false),
            Bound::Excluded(key) => at(key, true),
            Bound::Unbounded => (0, 0),
        };
        let end = match range.end_bound() {
            Bound::Included(key) => at(key, true),
            Bound::Excluded(key) => at(key, false),
            Bound::Unbounded => (self.chunks.len(), 0),
        };
        Iter { chunks: &self.chunks, front, end }
    }
}

impl<K: Ord, V> Index<&K> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the caller knows that the key is there")
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for SharedMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Chunk<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys.iter().zip(&self.values)).finish()
    }
}
