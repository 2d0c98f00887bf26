//! The last steps of the records of a shard, in a fixed number of bytes.

use std::collections::VecDeque;

use base::{LeaseGroupId, Offset};
use dispatch::{SessionId, Step, StepKind};

use super::{HistoryQuery, PastStep};

/// A [`Step`] of a group and its time.
#[derive(Clone, Copy, Debug)]
struct RingEntry {
    at_ms: i64,
    group: LeaseGroupId,
    first: Offset,
    session: SessionId,
    partition: u32,
    count: u32,
    attempt: u16,
    what: StepKind,
}

/// First capacity that is allocated.
const KEPT_MIN: usize = 64;

const _: () = assert!(size_of::<RingEntry>() <= 48, "a ring remembers what fits into its bytes");

/// The oldest step is overwritten by a new one. Memory is allocated as the ring fills, up to its fixed size.
#[derive(Debug)]
pub struct Ring {
    kept_max: usize,
    kept: VecDeque<RingEntry>,
    /// Time of the last step that was overwritten.
    forgotten_ms: Option<i64>,
}

impl Ring {
    /// `bytes` is the capacity; 0 remembers nothing.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { kept_max: bytes / size_of::<RingEntry>(), kept: VecDeque::new(), forgotten_ms: None }
    }

    #[inline]
    pub fn remembers(&self) -> bool {
        self.kept_max > 0
    }

    pub fn add(&mut self, at_ms: i64, group: LeaseGroupId, step: Step) {
        if !self.remembers() {
            return;
        }
        if self.kept.len() == self.kept_max {
            self.forgotten_ms = self.kept.pop_front().map(|oldest| oldest.at_ms);
        } else if self.kept.len() == self.kept.capacity() {
            let more = self.kept.len().max(KEPT_MIN).min(self.kept_max - self.kept.len());
            self.kept.reserve_exact(more);
        }
        let Step { what, partition, first, count, session, attempt } = step;
        let kept = RingEntry { at_ms, group, first, session, partition, count, attempt, what };
        self.kept.push_back(kept);
    }

    /// Steps before this time are unknown.
    pub fn since_ms(&self, now_ms: i64) -> Option<i64> {
        if self.remembers() { self.forgotten_ms } else { Some(now_ms) }
    }

    pub fn of(&self, look: &HistoryQuery) -> Vec<PastStep> {
        let is_of = |kept: &&RingEntry| {
            kept.partition == look.partition
                && (kept.first..kept.first.saturating_add(kept.count.into())).contains(&look.offset)
                && look.groups.contains(&kept.group)
        };
        let past = |kept: &RingEntry| {
            let RingEntry { at_ms, group, what, session, attempt, .. } = *kept;
            PastStep { at_ms, group, what, session, attempt }
        };
        self.kept.iter().filter(is_of).map(past).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: LeaseGroupId = LeaseGroupId(7);
    const BYTES: usize = 64 << 10;

    fn step(first: Offset, count: u32) -> Step {
        Step { what: StepKind::Leased, partition: 1, first, count, session: 3, attempt: 1 }
    }

    fn look(partition: u32, offset: Offset) -> HistoryQuery {
        HistoryQuery { groups: vec![GROUP], partition, offset }
    }

    #[test]
    fn record_is_found_by_the_steps_of_its_ranges() {
        let mut ring = Ring::new(BYTES);
        ring.add(100, GROUP, step(10, 5));
        ring.add(101, LeaseGroupId(8), step(10, 5));
        ring.add(102, GROUP, Step { what: StepKind::Accepted, ..step(14, 1) });
        let found = ring.of(&look(1, 14));
        let times: Vec<_> = found.iter().map(|past| (past.at_ms, past.what)).collect();
        assert_eq!(times, [(100, StepKind::Leased), (102, StepKind::Accepted)]);
        assert_eq!(ring.of(&look(1, 10)).len(), 1);
        assert_eq!(ring.of(&look(1, 15)), []);
        assert_eq!(ring.of(&look(0, 14)), []);
        assert_eq!(ring.since_ms(1_000), None, "nothing is forgotten");
    }

    #[test]
    fn full_ring_overwrites_the_oldest_step() {
        let mut ring = Ring::new(BYTES);
        let kept_max = BYTES / size_of::<RingEntry>();
        for number in 0..kept_max as u64 + 10 {
            ring.add(number as i64, GROUP, step(number, 1));
        }
        assert_eq!(ring.kept.len(), kept_max);
        assert!(ring.kept.capacity() * size_of::<RingEntry>() <= BYTES);
        assert_eq!(ring.since_ms(1_000), Some(9));
        assert_eq!(ring.of(&look(1, 9)), []);
        assert_eq!(ring.of(&look(1, 10)).len(), 1);
    }
    #[test]
    fn ring_without_capacity_remembers_nothing_and_reports_it() {
        let mut ring = Ring::new(0);
        assert!(!ring.remembers());
        ring.add(100, GROUP, step(10, 5));
        assert_eq!(ring.of(&look(1, 10)), []);
        assert_eq!(ring.since_ms(1_000), Some(1_000));
    }
}
