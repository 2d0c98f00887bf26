//! An ordered map in chunks: a sorted list of chunks, each of some sorted rows.
//!
//! Two levels are enough for the millions that a shard has at most, and are searched as fast as a
//! deep tree. Keys that ascend, as numbers do that are handed out in order, fill chunks whole.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Index, RangeBounds};
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Rows of a chunk at most. The first change of one after a copy was taken copies so many.
pub const ROWS_PER_CHUNK: usize = 64;

#[derive(Clone)]
pub struct SharedMap<K, V> {
    /// By the first key of each, none empty. The first chunk's says nothing: it holds all below the
    /// second's.
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
        // Many maps hold one thing.
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

    /// Ascending.
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

    /// From the first row on for which `before` does not hold; it holds for those before that.
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

    /// Bytes of memory that it takes, without what its keys and values have elsewhere.
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

    /// How many chunks `other` does not have: what a change after a copy made.
    pub fn chunks_not_in(&self, other: &Self) -> usize {
        let is_in = |chunk: &Arc<_>| other.chunks.iter().any(|(_, held)| Arc::ptr_eq(held, chunk));
        self.chunks.iter().filter(|(_, chunk)| !is_in(chunk)).count()
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// The chunk that a key is in if it is in any, and its place there, or the place where it goes.
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

    /// Ascending.
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

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Copies the chunk if a copy of the map has it too.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.place(key);
        let at = at.ok()?;
        Some(&mut Arc::make_mut(&mut self.chunks[chunk].1).values[at])
    }

    pub fn last_mut(&mut self) -> Option<&mut V> {
        let (_, last) = self.chunks.last_mut()?;
        Arc::make_mut(last).values.last_mut()
    }

    /// What is there, or what `make` makes.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (chunk, at) = match self.place(&key) {
            (chunk, Ok(at)) => (chunk, at),
            (chunk, Err(at)) => self.insert_at(chunk, at, key, make()),
        };
        &mut Arc::make_mut(&mut self.chunks[chunk].1).values[at]
    }

    /// What was there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            (chunk, Ok(at)) => {
                let held = &mut Arc::make_mut(&mut self.chunks[chunk].1).values[at];
                Some(std::mem::replace(held, value))
            }
            (chunk, Err(at)) => {
                self.insert_at(chunk, at, key, value);
                None
            }
        }
    }

    /// Where it is then.
    fn insert_at(&mut self, chunk: usize, at: usize, key: K, value: V) -> (usize, usize) {
        self.len += 1;
        let Some((_, found)) = self.chunks.get_mut(chunk) else {
            self.chunks.reserve_exact(1);
            self.chunks.push((key.clone(), Arc::new(Chunk::of(key, value))));
            return (0, 0);
        };
        let held = found.keys.len();
        if held < ROWS_PER_CHUNK {
            let found = Arc::make_mut(found);
            found.keys.insert(at, key);
            found.values.insert(at, value);
            return (chunk, at);
        }
        if at == held {
            // Keys that ascend leave full chunks behind them.
            self.chunks.insert(chunk + 1, (key.clone(), Arc::new(Chunk::of(key, value))));
            return (chunk + 1, 0);
        }
        let left = Arc::make_mut(found);
        let half = held / 2;
        let mut right =
            Chunk { keys: left.keys.split_off(half), values: left.values.split_off(half) };
        left.keys.shrink_to_fit();
        left.values.shrink_to_fit();
        let (into, place) = if at <= half { (&mut *left, at) } else { (&mut right, at - half) };
        into.keys.insert(place, key);
        into.values.insert(place, value);
        let first = right.keys[0].clone();
        self.chunks.insert(chunk + 1, (first, Arc::new(right)));
        (chunk + usize::from(at > half), place)
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.place(key);
        let at = at.ok()?;
        self.len -= 1;
        let found = Arc::make_mut(&mut self.chunks[chunk].1);
        found.keys.remove(at);
        let removed = found.values.remove(at);
        self.join(chunk);
        Some(removed)
    }

    /// Keeps the rows for which `keep` holds. Chunks of which none goes stay shared.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut chunk = self.chunks.len();
        while chunk > 0 {
            chunk -= 1;
            let found = &self.chunks[chunk].1;
            let kept: Vec<bool> =
                found.keys.iter().zip(&found.values).map(|(key, value)| keep(key, value)).collect();
            let gone = kept.iter().filter(|kept| !**kept).count();
            if gone > 0 {
                self.len -= gone;
                let found = Arc::make_mut(&mut self.chunks[chunk].1);
                let mut keys = kept.iter();
                found.keys.retain(|_| keys.next().is_none_or(|kept| *kept));
                let mut values = kept.iter();
                found.values.retain(|_| values.next().is_none_or(|kept| *kept));
                self.join(chunk);
            }
        }
    }

    /// Drops a chunk that became empty, and puts a small one to its neighbour.
    fn join(&mut self, chunk: usize) {
        let held = self.chunks[chunk].1.keys.len();
        if held == 0 {
            self.chunks.remove(chunk);
            return;
        }
        let Some((_, next)) = self.chunks.get(chunk + 1) else { return };
        if held + next.keys.len() <= ROWS_PER_CHUNK / 2 {
            let (_, next) = self.chunks.remove(chunk + 1);
            let next = Arc::unwrap_or_clone(next);
            let found = Arc::make_mut(&mut self.chunks[chunk].1);
            found.keys.extend(next.keys);
            found.values.extend(next.values);
        }
    }
}

impl<K: Ord, V> Index<&K> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the caller knows that the key is there")
    }
}

#[derive(Debug)]
pub struct Iter<'a, K, V> {
    chunks: &'a [(K, Arc<Chunk<K, V>>)],
    /// Chunk and place of the next row, and of the first that is not in it.
    front: (usize, usize),
    end: (usize, usize),
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

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(rows: I) -> Self {
        let mut map = Self::new();
        map.extend(rows);
        map
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, rows: I) {
        rows.into_iter().for_each(|(key, value)| drop(self.insert(key, value)));
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

/// As any map is.
impl<K: Serialize, V: Serialize> Serialize for SharedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len))?;
        for (key, value) in self {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, K, V> Deserialize<'de> for SharedMap<K, V>
where
    K: Deserialize<'de> + Ord + Clone,
    V: Deserialize<'de> + Clone,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows<K, V>(PhantomData<(K, V)>);

        impl<'de, K, V> Visitor<'de> for Rows<K, V>
        where
            K: Deserialize<'de> + Ord + Clone,
            V: Deserialize<'de> + Clone,
        {
            type Value = SharedMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut rows: A) -> Result<Self::Value, A::Error> {
                let mut map = SharedMap::new();
                while let Some((key, value)) = rows.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }

        deserializer.deserialize_map(Rows(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u32),
        Ascend(u16),
        Remove(u16),
        RemoveAll(u16, u16),
        Change(u16, u32),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..600_u16, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
            1 => (0..200_u16).prop_map(Step::Ascend),
            4 => (0..600_u16).prop_map(Step::Remove),
            1 => (0..600_u16, 0..300_u16).prop_map(|(from, count)| Step::RemoveAll(from, count)),
            2 => (0..600_u16, any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
            1 => Just(Step::Copy),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_its_copies_stay_as_they_were(
            steps in prop::collection::vec(step(), 1..120),
            from in 0..700_u16,
            to in 0..700_u16,
        ) {
            let (mut map, mut model) = (SharedMap::new(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        prop_assert_eq!(map.insert(key, value), model.insert(key, value));
                    }
                    Step::Ascend(count) => {
                        let first = model.last_key_value().map_or(0, |(key, _)| key + 1);
                        for key in first..first.saturating_add(count) {
                            prop_assert_eq!(*map.get_or_insert_with(key, || 7), 7);
                            model.insert(key, 7);
                        }
                    }
                    Step::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    Step::RemoveAll(from, count) => {
                        let gone = from..from + count;
                        map.retain(|key, _| !gone.contains(key));
                        model.retain(|key, _| !gone.contains(key));
                    }
                    Step::Change(key, value) => {
                        prop_assert_eq!(map.get_mut(&key).is_some(), model.contains_key(&key));
                        if let (Some(held), Some(known)) = (map.get_mut(&key), model.get_mut(&key)) {
                            (*held, *known) = (value, value);
                        }
                    }
                    Step::Copy => copies.push((map.clone(), model.clone())),
                }
                prop_assert_eq!(map.len(), model.len());
                let sound = map.chunks.iter().all(|(_, chunk)| {
                    (1..=ROWS_PER_CHUNK).contains(&chunk.keys.len())
                        && chunk.keys.len() == chunk.values.len()
                });
                prop_assert!(sound);
            }
            copies.push((map, model));
            for (map, model) in copies {
                prop_assert!(map.iter().eq(&model));
                prop_assert!(model.iter().all(|(key, value)| map.get(key) == Some(value)));
                prop_assert!(map.range(from..).eq(model.range(from..)));
                prop_assert!(map.range(..=to).eq(model.range(..=to)));
                let after = (Bound::Excluded(from), Bound::Unbounded);
                prop_assert!(map.range(after).eq(model.range(after)));
                let tail = map.iter_from(|key, _| *key < from);
                prop_assert!(tail.eq(model.range(from..)));
                prop_assert_eq!(map.last_key_value(), model.last_key_value());
                if from <= to {
                    prop_assert!(map.range(from..to).eq(model.range(from..to)));
                }
            }
        }
    }

    #[test]
    fn a_change_after_a_copy_copies_one_chunk() {
        let mut map: SharedMap<u32, u32> = (0..100_000).map(|key| (key, key)).collect();
        assert_eq!(map.chunks.len(), 100_000_usize.div_ceil(ROWS_PER_CHUNK), "all are full");
        let copy = map.clone();
        *map.get_mut(&50_000).unwrap() = 0;
        assert_eq!((map.get(&50_000), copy.get(&50_000)), (Some(&0), Some(&50_000)));
        assert_eq!(map.chunks_not_in(&copy), 1);
    }
}
