//! Transactions in one partition: the open ones, and ranges of aborted ones.

use base::Offset;
use serde::{Deserialize, Serialize};

use crate::limits::ABORTED_PER_PARTITION_MAX;

/// A partition with an open or an aborted transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionTransactions {
    /// First offset and producer of each open transaction, by offset.
    open: Vec<(Offset, i64)>,
    /// By last offset.
    aborted: Vec<AbortedRange>,
}

/// Records of an aborted transaction: those of the producer between the two offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AbortedRange {
    pub producer: i64,
    pub first: Offset,
    /// Offset of the marker.
    pub last: Offset,
}

impl PartitionTransactions {
    pub(crate) fn new(open: Vec<(Offset, i64)>, aborted: Vec<AbortedRange>) -> Self {
        Self { open, aborted }
    }

    /// The aborted ranges of a partition on another node, without its open transactions.
    pub fn with_aborted(mut aborted: Vec<AbortedRange>) -> Self {
        aborted.sort_unstable_by_key(|it| it.last);
        Self { open: Vec::new(), aborted }
    }

    /// First offset and producer of each open transaction, by offset.
    pub fn open(&self) -> &[(Offset, i64)] {
        &self.open
    }

    /// By last offset, the marker's.
    pub fn aborted(&self) -> &[AbortedRange] {
        &self.aborted
    }

    /// Aborted ranges that have records between the two offsets, the second excluded.
    pub fn aborted_between(&self, from: Offset, to: Offset) -> impl Iterator<Item = &AbortedRange> {
        let begin = self.aborted.partition_point(|it| it.last < from);
        self.aborted[begin..].iter().filter(move |it| it.first < to)
    }

    /// Whether a record of the producer at this offset belongs to an aborted transaction.
    pub fn is_aborted(&self, producer: i64, offset: Offset) -> bool {
        let begin = self.aborted.partition_point(|it| it.last < offset);
        let mut ranges = self.aborted[begin..].iter();
        ranges.any(|it| it.producer == producer && it.first <= offset)
    }

    /// First offset of the earliest open transaction.
    pub fn first_open(&self) -> Option<Offset> {
        self.open.first().map(|(first, _)| *first)
    }

    pub fn has_open(&self, producer: i64) -> bool {
        self.open.iter().any(|(_, known)| *known == producer)
    }

    /// Whether one more transaction may begin: each may leave an aborted range.
    pub(crate) fn has_room(&self) -> bool {
        self.open.len() + self.aborted.len() < ABORTED_PER_PARTITION_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.aborted.is_empty()
    }

    /// A transaction begins with the record at `first`.
    pub(super) fn begin(&mut self, producer: i64, first: Offset) {
        self.open.push((first, producer));
    }

    /// The producer's transaction ends with a marker at `last`.
    pub(super) fn end(&mut self, producer: i64, last: Offset, commit: bool) {
        let Some(at) = self.open.iter().position(|(_, known)| *known == producer) else { return };
        let (first, _) = self.open.remove(at);
        if !commit {
            self.aborted.push(AbortedRange { producer, first, last });
        }
    }

    pub(super) fn advance_start(&mut self, start: Offset) {
        let gone = self.aborted.partition_point(|it| it.last < start);
        self.aborted.drain(..gone);
        for (first, _) in &mut self.open {
            *first = (*first).max(start);
        }
    }

    /// Whether it could be the result of appends to a partition that ends at `next`.
    pub(crate) fn is_sound(&self, next: Offset) -> bool {
        let mut producers: Vec<i64> = self.open.iter().map(|(_, producer)| *producer).collect();
        producers.sort_unstable();
        !self.is_empty()
            && producers.is_sorted_by(|a, b| a < b)
            && producers.first().is_none_or(|id| *id >= 0)
            && self.open.is_sorted_by(|a, b| a.0 <= b.0)
            && self.open.last().is_none_or(|(first, _)| *first <= next)
            && self.aborted.is_sorted_by(|a, b| a.last < b.last)
            && self.aborted.last().is_none_or(|it| it.last < next)
            && self.aborted.iter().all(|it| it.producer >= 0 && it.first <= it.last)
    }
}
