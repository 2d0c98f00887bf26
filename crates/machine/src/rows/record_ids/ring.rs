//! Ids in the order of arrival, 32 bytes each. Snapshot images share the chunks: a change after a
//! capture copies at most one chunk.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Offset;
use base::limits::PARTITIONS_PER_TOPIC_MAX;

use crate::ids::{IdHash, KnownId};

const CHUNK: u64 = 1024;
const TIME_BITS: u32 = 44;
/// Exclusive bound of times: more than 500 years since the epoch.
pub(super) const TIME_END: i64 = 1 << TIME_BITS;
/// Exclusive bound of partition numbers.
pub(super) const PARTITION_END: u64 = 1 << (u64::BITS - TIME_BITS);
const _: () = assert!(PARTITIONS_PER_TOPIC_MAX as u64 <= PARTITION_END);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StoredId {
    hash: IdHash,
    offset: Offset,
    /// Partition and arrival time.
    place: u64,
}

const _: () = assert!(size_of::<StoredId>() == 32);

/// Places count from the first id ever pushed. They are specific to this replica: a snapshot does
/// not have them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    /// All but the last are full. The first chunk starts at place `first - first % CHUNK`.
    chunks: VecDeque<Arc<Vec<StoredId>>>,
    first: u64,
    end: u64,
}

impl Ring {
    pub(super) fn len(&self) -> u64 {
        self.end - self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Place of the oldest id.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Place after the last id.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn bytes(&self) -> u64 {
        let full = CHUNK * self.chunks.len().saturating_sub(1) as u64;
        let last = self.chunks.back().map_or(0, |last| last.capacity() as u64);
        (full + last) * size_of::<StoredId>() as u64
    }

    fn stored(&self, place: u64) -> Option<&StoredId> {
        if !(self.first..self.end).contains(&place) {
            return None;
        }
        let chunk = place / CHUNK - self.first / CHUNK;
        self.chunks.get(chunk as usize)?.get((place % CHUNK) as usize)
    }

    pub(super) fn hash(&self, place: u64) -> Option<IdHash> {
        self.stored(place).map(|stored| stored.hash)
    }

    pub(super) fn get(&self, place: u64) -> Option<KnownId> {
        self.stored(place).map(|stored| KnownId {
            hash: stored.hash,
            at_ms: (stored.place & (TIME_END as u64 - 1)) as i64,
            partition: (stored.place >> TIME_BITS) as u32,
            offset: stored.offset,
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = KnownId> {
        (self.first..self.end).filter_map(|place| self.get(place))
    }

    /// Returns its place. The caller has checked the bounds of time and partition.
    pub(super) fn push(&mut self, known: KnownId) -> u64 {
        let KnownId { hash, at_ms, partition, offset } = known;
        let place = self.end;
        if place.is_multiple_of(CHUNK) {
            self.chunks.push_back(Arc::default());
        }
        if let Some(last) = self.chunks.back_mut() {
            let packed = u64::from(partition) << TIME_BITS | at_ms as u64;
            Arc::make_mut(last).push(StoredId { hash, offset, place: packed });
        }
        self.end += 1;
        place
    }

    /// Removes the oldest id.
    pub(super) fn pop(&mut self) -> Option<KnownId> {
        let oldest = self.get(self.first)?;
        self.first += 1;
        if self.first == self.end {
            self.chunks.clear();
            self.first = self.end.next_multiple_of(CHUNK);
            self.end = self.first;
        } else if self.first.is_multiple_of(CHUNK) {
            self.chunks.pop_front();
        }
        Some(oldest)
    }
}

impl PartialEq for Ring {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
