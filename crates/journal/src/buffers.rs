//! Pool of read buffers.
//!
//! A new buffer is zeroed before a read writes over it, and its pages may have to be faulted in.
//! Together that costs about as much as the copy out of the page cache. Large buffers therefore
//! return here once the last slice of a read is dropped. They are freed after a while without use.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::limits::{READ_BUFFER_KEPT_BYTES_MIN, READ_BUFFERS_KEPT_BYTES_MAX};
use bytes::Bytes;
use parking_lot::Mutex;
use world::Instant;

/// Buffers of one journal.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<FreeBuffers>>);

#[derive(Debug, Default)]
struct FreeBuffers {
    /// Free buffers in the order of their return. Each is initialized to its length.
    free: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

/// `len` bytes to read into. Their content before the read is unspecified, though initialized.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    len: usize,
    kept: Weak<Mutex<FreeBuffers>>,
}

impl Buffers {
    pub(crate) fn take(&self, len: usize) -> Buffer {
        if len < READ_BUFFER_KEPT_BYTES_MIN {
            return Buffer::unkept(vec![0; len]);
        }
        let kept = self.0.lock().take(len);
        // Rounded lengths make a returned buffer fit more requests.
        let memory =
            kept.unwrap_or_else(|| vec![0; len.next_multiple_of(READ_BUFFER_KEPT_BYTES_MIN)]);
        Buffer { memory, len, kept: Arc::downgrade(&self.0) }
    }

    /// Frees buffers that have been unused for `age`.
    pub(crate) fn free_aged(&self, now: Instant, age: Duration) {
        let aged = self.0.lock().take_aged(now, age);
        // Dropped without the lock: freeing takes time.
        drop(aged);
    }
}

impl FreeBuffers {
    /// Takes the smallest buffer that fits, unless most of it would be unused.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |memory: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&memory.len());
        let fitting = self.free.iter().enumerate().filter(|(_, (_, memory))| fits(memory));
        let (place, _) = fitting.min_by_key(|(_, (_, memory))| memory.len())?;
        let (_, memory) = self.free.remove(place)?;
        self.bytes -= memory.len();
        Some(memory)
    }

    fn put(&mut self, now: Instant, memory: Vec<u8>) {
        self.bytes += memory.len();
        self.free.push_back((now, memory));
        while self.bytes > READ_BUFFERS_KEPT_BYTES_MAX
            && let Some((_, memory)) = self.free.pop_front()
        {
            self.bytes -= memory.len();
        }
    }

    fn take_aged(&mut self, now: Instant, age: Duration) -> Vec<Vec<u8>> {
        let aged = self.free.iter().take_while(|(since, _)| *since + age <= now).count();
        let aged: Vec<Vec<u8>> = self.free.drain(..aged).map(|(_, memory)| memory).collect();
        self.bytes -= aged.iter().map(Vec::len).sum::<usize>();
        aged
    }
}

impl Buffer {
    /// A buffer that does not return to the pool.
    pub(crate) fn unkept(memory: Vec<u8>) -> Self {
        Self { len: memory.len(), memory, kept: Weak::new() }
    }

    /// The bytes read, for sharing. The memory returns to the pool with the last slice of it.
    pub(crate) fn freeze(mut self) -> Bytes {
        match self.kept.strong_count() {
            0 => Bytes::from(std::mem::take(&mut self.memory)),
            _ => Bytes::from_owner(self),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.upgrade() {
            kept.lock().put(Instant::now(), std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: usize = READ_BUFFER_KEPT_BYTES_MIN;
    const AGE: Duration = Duration::from_secs(5);

    fn kept(buffers: &Buffers) -> Vec<usize> {
        buffers.0.lock().free.iter().map(|(_, memory)| memory.len()).collect()
    }

    #[test]
    fn memory_returns_to_the_pool_with_its_last_slice() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(MIN + 1);
        buffer.as_mut().fill(7);
        let bytes = buffer.freeze();
        let slice = bytes.slice(3..5);
        drop(bytes);
        assert_eq!((&slice[..], kept(&buffers)), (&[7, 7][..], vec![]));
        drop(slice);
        assert_eq!(kept(&buffers), [2 * MIN]);
        let again = buffers.take(2 * MIN);
        assert_eq!((again.as_ref().len(), kept(&buffers)), (2 * MIN, vec![]));
    }

    #[test]
    fn read_takes_the_smallest_fitting_buffer_and_no_far_larger_one() {
        let buffers = Buffers::default();
        drop([8, 4, 2].map(|times| buffers.take(times * MIN)));
        let mut found = kept(&buffers);
        found.sort_unstable();
        assert_eq!(found, [2 * MIN, 4 * MIN, 8 * MIN]);
        let small = buffers.take(MIN + 5);
        let other = buffers.take(MIN + 5);
        assert_eq!((small.memory.len(), other.memory.len()), (2 * MIN, 2 * MIN));
        assert_eq!(kept(&buffers).len(), 2, "the second was made anew");
    }

    #[test]
    fn free_buffers_are_bounded() {
        let buffers = Buffers::default();
        drop(buffers.take(MIN - 1));
        assert!(kept(&buffers).is_empty(), "a small one is not worth keeping");
        let size = READ_BUFFERS_KEPT_BYTES_MAX / 4;
        let taken: Vec<Buffer> = (0..6).map(|_| buffers.take(size)).collect();
        drop(taken);
        assert_eq!(kept(&buffers), [size; 4]);
        assert_eq!(buffers.0.lock().bytes, READ_BUFFERS_KEPT_BYTES_MAX);
    }

    #[test]
    fn buffers_unused_for_a_while_are_freed() {
        let mut kept = FreeBuffers::default();
        let begun = Instant::now();
        for (memory, after) in [(vec![0; 3], Duration::ZERO), (vec![0; 5], AGE / 2)] {
            kept.put(begun + after, memory);
        }
        assert!(kept.take_aged(begun + AGE / 2, AGE).is_empty());
        assert_eq!(kept.take_aged(begun + AGE, AGE), [vec![0; 3]]);
        assert_eq!((kept.free.len(), kept.bytes), (1, 5));
    }

    #[test]
    fn bytes_read_outlive_the_journal() {
        let buffers = Buffers::default();
        let bytes = buffers.take(MIN).freeze();
        drop(buffers);
        assert_eq!(bytes.len(), MIN);
    }
}
