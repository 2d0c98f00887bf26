//! Inserting, changing and removing rows. Only the chunks that change are copied.

use std::borrow::Borrow;
use std::sync::Arc;

use super::{Chunk, ROWS_PER_CHUNK, SharedMap};

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Copies the chunk if a copy of the map shares it.
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

    /// The value of `key`. Inserts what `make` returns if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (chunk, at) = match self.place(&key) {
            (chunk, Ok(at)) => (chunk, at),
            (chunk, Err(at)) => self.insert_at(chunk, at, key, make()),
        };
        &mut Arc::make_mut(&mut self.chunks[chunk].1).values[at]
    }

    /// Returns the value that it replaced.
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

    /// Returns the place of the inserted row.
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

    /// Keeps the rows for which `keep` holds. Chunks without removed rows stay shared.
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

    /// Drops an empty chunk, and merges a small one with its neighbour.
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
