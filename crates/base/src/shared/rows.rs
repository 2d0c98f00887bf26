//! A vector in chunks. A short one has no chunks, because it is copied with the row that holds it. A chunk would
//! cost a topic with one partition as much as one with a hundred.

use std::ops::Index;
use std::slice;
use std::sync::Arc;

/// Rows of a chunk. The first change of a chunk after a copy of the vector copies this many.
pub const ROWS_PER_CHUNK: usize = 128;

#[derive(Clone, Debug)]
pub struct SharedRows<T>(Rows<T>);

#[derive(Clone, Debug)]
enum Rows<T> {
    /// At most one chunk of rows.
    Few(Vec<T>),
    /// More than one chunk of rows; all chunks but the last are full.
    Many(Box<[Arc<[T]>]>),
}

// Every topic and every lease group has one, and most have one row in it.
const _: () = assert!(size_of::<SharedRows<u64>>() == size_of::<Vec<u64>>());

impl<T> SharedRows<T> {
    pub fn len(&self) -> usize {
        match &self.0 {
            Rows::Few(rows) => rows.len(),
            Rows::Many(chunks) => {
                let last = chunks.last().map_or(0, |last| last.len());
                chunks.len().saturating_sub(1) * ROWS_PER_CHUNK + last
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        match &self.0 {
            Rows::Few(rows) => rows.get(at),
            Rows::Many(chunks) => chunks.get(at / ROWS_PER_CHUNK)?.get(at % ROWS_PER_CHUNK),
        }
    }

    pub fn iter(&self) -> Iter<'_, T> {
        match &self.0 {
            Rows::Few(rows) => Iter { chunk: rows.iter(), rest: [].iter() },
            Rows::Many(chunks) => Iter { chunk: [].iter(), rest: chunks.iter() },
        }
    }

    /// Number of rows in chunks that `other` shares, so that they take memory once.
    pub fn rows_shared_with(&self, other: &Self) -> usize {
        let (Rows::Many(own), Rows::Many(other)) = (&self.0, &other.0) else { return 0 };
        let shared = own.iter().zip(other).filter(|(own, other)| Arc::ptr_eq(own, other));
        shared.map(|(chunk, _)| chunk.len()).sum()
    }
}

impl<T: Clone> SharedRows<T> {
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        match &mut self.0 {
            Rows::Few(rows) => rows.get_mut(at),
            Rows::Many(chunks) => {
                let chunk = chunks.get_mut(at / ROWS_PER_CHUNK)?;
                if at % ROWS_PER_CHUNK >= chunk.len() {
                    return None;
                }
                Arc::make_mut(chunk).get_mut(at % ROWS_PER_CHUNK)
            }
        }
    }

    /// Adds rows like `row` until there are `len`. Full chunks stay as they are.
    pub fn grow(&mut self, len: usize, row: &T) {
        let held = self.len();
        if len <= held {
            return;
        }
        match &mut self.0 {
            Rows::Few(rows) if len <= ROWS_PER_CHUNK => {
                rows.reserve_exact(len - held);
                rows.resize(len, row.clone());
            }
            Rows::Few(rows) => {
                let rows = rows.drain(..).chain(std::iter::repeat_n(row.clone(), len - held));
                self.0 = Rows::Many(in_chunks(rows).into());
            }
            Rows::Many(chunks) => {
                let full = held / ROWS_PER_CHUNK;
                let open = chunks.get(full).map_or(&[][..], |chunk| chunk);
                let more = std::iter::repeat_n(row.clone(), len - held);
                let added = in_chunks(open.iter().cloned().chain(more));
                self.0 = Rows::Many(chunks[..full].iter().cloned().chain(added).collect());
            }
        }
    }
}

fn in_chunks<T>(mut rows: impl Iterator<Item = T>) -> Vec<Arc<[T]>> {
    let mut chunks = Vec::new();
    loop {
        let chunk: Arc<[T]> = rows.by_ref().take(ROWS_PER_CHUNK).collect();
        if chunk.is_empty() {
            return chunks;
        }
        chunks.push(chunk);
    }
}

impl<T> From<Vec<T>> for SharedRows<T> {
    fn from(mut rows: Vec<T>) -> Self {
        if rows.len() <= ROWS_PER_CHUNK {
            rows.shrink_to_fit();
            return Self(Rows::Few(rows));
        }
        Self(Rows::Many(in_chunks(rows.into_iter()).into()))
    }
}

impl<T> FromIterator<T> for SharedRows<T> {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        Self::from(Vec::from_iter(rows))
    }
}

impl<T> Index<usize> for SharedRows<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        self.get(at).unwrap_or_else(|| panic!("row {at} of {}", self.len()))
    }
}

impl<T: PartialEq> PartialEq for SharedRows<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T> IntoIterator for &'a SharedRows<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    chunk: slice::Iter<'a, T>,
    rest: slice::Iter<'a, Arc<[T]>>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(row) = self.chunk.next() {
                return Some(row);
            }
            self.chunk = self.rest.next()?.iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_rows_match_a_vector_after_any_growth() {
        for steps in [&[1, 2, 128][..], &[128, 129, 130], &[100, 300], &[256, 257, 384, 385]] {
            let (mut rows, mut model) = (SharedRows::from(Vec::new()), Vec::new());
            for (value, &len) in steps.iter().enumerate() {
                rows.grow(len, &value);
                model.resize(len, value);
                assert_eq!((rows.len(), rows.get(len)), (len, None));
                assert!(rows.get_mut(len).is_none());
                *rows.get_mut(len - 1).unwrap() = 99;
                model[len - 1] = 99;
                assert!(rows.iter().eq(&model), "{steps:?}");
                assert!((0..len).all(|at| rows[at] == model[at]));
                assert_eq!(rows, SharedRows::from(model.clone()));
            }
        }
    }

    #[test]
    fn change_after_a_copy_copies_one_chunk_and_not_the_copy() {
        let mut rows: SharedRows<usize> = (0..1_000).collect();
        let copy = rows.clone();
        assert_eq!(rows.rows_shared_with(&copy), 1_000);
        *rows.get_mut(500).unwrap() = 0;
        assert_eq!((rows[500], copy[500]), (0, 500));
        assert_eq!(rows.rows_shared_with(&copy), 1_000 - ROWS_PER_CHUNK);
    }
}
