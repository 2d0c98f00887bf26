//! What happened last to the records of a shard, in a fixed room.

use std::collections::VecDeque;

use base::limits::HISTORY_BYTES_PER_SHARD;
use base::{LeaseGroupId, Offset};
use dispatch::{SessionId, Step, What};

use super::{Look, Past};

/// A [`Step`] of a group, when it happened.
#[derive(Clone, Copy, Debug)]
struct Kept {
    at_ms: i64,
    group: LeaseGroupId,
    first: Offset,
    session: SessionId,
    partition: u32,
    count: u32,
    attempt: u16,
    what: What,
}

const KEPT_MAX: usize = HISTORY_BYTES_PER_SHARD / size_of::<Kept>();
/// The room of a shard of which little is known yet.
const KEPT_MIN: usize = 64;

const _: () = assert!(size_of::<Kept>() <= 48, "a ring remembers what fits into its bytes");

/// The oldest is forgotten for what is new. It takes memory as it fills, up to its fixed size, and none before.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    kept: VecDeque<Kept>,
    /// When the last happened that was forgotten.
    forgotten_ms: Option<i64>,
}

impl Ring {
    pub(crate) fn add(&mut self, at_ms: i64, group: LeaseGroupId, step: Step) {
        if self.kept.len() == KEPT_MAX {
            self.forgotten_ms = self.kept.pop_front().map(|oldest| oldest.at_ms);
        } else if self.kept.len() == self.kept.capacity() {
            let more = self.kept.len().max(KEPT_MIN).min(KEPT_MAX - self.kept.len());
            self.kept.reserve_exact(more);
        }
        let Step { what, partition, first, count, session, attempt } = step;
        let kept = Kept { at_ms, group, first, session, partition, count, attempt, what };
        self.kept.push_back(kept);
    }

    /// What happened before this is not known any more.
    pub(crate) fn since_ms(&self) -> Option<i64> {
        self.forgotten_ms
    }

    pub(crate) fn of(&self, look: &Look) -> Vec<Past> {
        let is_of = |kept: &&Kept| {
            kept.partition == look.partition
                && (kept.first..kept.first.saturating_add(kept.count.into())).contains(&look.offset)
                && look.groups.contains(&kept.group)
        };
        let past = |kept: &Kept| {
            let Kept { at_ms, group, what, session, attempt, .. } = *kept;
            Past { at_ms, group, what, session, attempt }
        };
        self.kept.iter().filter(is_of).map(past).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: LeaseGroupId = LeaseGroupId(7);

    fn step(first: Offset, count: u32) -> Step {
        Step { what: What::Leased, partition: 1, first, count, session: 3, attempt: 1 }
    }

    fn look(partition: u32, offset: Offset) -> Look {
        Look { groups: vec![GROUP], partition, offset }
    }

    #[test]
    fn a_record_is_found_in_the_range_that_it_was_a_part_of() {
        let mut ring = Ring::default();
        ring.add(100, GROUP, step(10, 5));
        ring.add(101, LeaseGroupId(8), step(10, 5));
        ring.add(102, GROUP, Step { what: What::Accepted, ..step(14, 1) });
        let found = ring.of(&look(1, 14));
        let times: Vec<_> = found.iter().map(|past| (past.at_ms, past.what)).collect();
        assert_eq!(times, [(100, What::Leased), (102, What::Accepted)]);
        assert_eq!(ring.of(&look(1, 10)).len(), 1);
        assert_eq!(ring.of(&look(1, 15)), []);
        assert_eq!(ring.of(&look(0, 14)), []);
        assert_eq!(ring.since_ms(), None, "nothing is forgotten");
    }

    #[test]
    fn the_oldest_is_forgotten_and_the_room_is_fixed() {
        let mut ring = Ring::default();
        for number in 0..KEPT_MAX as u64 + 10 {
            ring.add(number as i64, GROUP, step(number, 1));
        }
        assert_eq!(ring.kept.len(), KEPT_MAX);
        assert!(ring.kept.capacity() * size_of::<Kept>() <= HISTORY_BYTES_PER_SHARD);
        assert_eq!(ring.since_ms(), Some(9));
        assert_eq!(ring.of(&look(1, 9)), []);
        assert_eq!(ring.of(&look(1, 10)).len(), 1);
    }
}
