//! When space is reclaimed: soon after a change, and rarely while nothing changes.
//!
//! A dead segment is deleted only once a snapshot records it as dead, and without traffic no snapshot is taken. One
//! is taken for it at once if that frees at least as much as it writes, and otherwise after a while: a large state is
//! not written over and over for one small segment after the other.

use std::time::Duration;

use journal::ReclaimReport;
use tokio::time::Instant;

/// An entry may be sealed, or covered by a snapshot, only some time after it was written.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// Interval of passes without changes: a pass walks the segments, which takes microseconds for a thousand.
const PASS_EVERY: Duration = Duration::from_secs(60);
/// Time after which a snapshot is taken for dead segments smaller than it.
const SNAPSHOT_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Space {
    changed: Option<Instant>,
    passed: Option<Instant>,
    /// Time since which dead segments have waited for a snapshot.
    waiting: Option<Instant>,
}

impl Space {
    pub(crate) fn changed(&mut self, now: Instant) {
        self.changed = Some(now);
    }

    /// Whether a pass may find a segment to reclaim.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let within = |at: Option<Instant>, time| at.is_some_and(|at| now - at < time);
        self.waiting.is_some() || within(self.changed, BUSY_FOR) || !within(self.passed, PASS_EVERY)
    }

    /// Notes the result of a pass. Returns whether to take a snapshot for the waiting segments, given the size of the
    /// last one.
    pub(crate) fn passed(
        &mut self,
        now: Instant,
        done: ReclaimReport,
        snapshot_bytes: u64,
    ) -> bool {
        self.passed = Some(now);
        if done.waiting == 0 {
            self.waiting = None;
            return false;
        }
        let since = *self.waiting.get_or_insert(now);
        done.waiting_bytes >= snapshot_bytes || now - since >= SNAPSHOT_AFTER
    }

    /// A snapshot was taken: the next pass deletes the segments that it records as dead.
    pub(crate) fn snapshot_taken(&mut self, now: Instant) {
        self.waiting = Some(now);
    }

    /// A pass or a snapshot failed.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.changed = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u64 = 1 << 20;

    fn dead(bytes: u64) -> ReclaimReport {
        ReclaimReport { waiting: 1, waiting_bytes: bytes, ..ReclaimReport::default() }
    }

    fn after(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    #[test]
    fn small_dead_segment_waits_and_a_large_one_does_not() {
        let begun = Instant::now();
        let mut space = Space::default();
        assert!(space.passed(begun, dead(16 * MEGABYTE), 16 * MEGABYTE));
        space.snapshot_taken(begun);
        let snapshots = (0..=300).filter(|&second| {
            let due = space.passed(after(begun, second), dead(16 * MEGABYTE), 500 * MEGABYTE);
            if due {
                space.snapshot_taken(after(begun, second));
            }
            due
        });
        // Without the delay there would be one each second.
        assert!((8..=10).contains(&snapshots.count()));
    }

    #[test]
    fn several_small_dead_segments_together_are_worth_a_snapshot() {
        let begun = Instant::now();
        let mut space = Space::default();
        assert!(!space.passed(begun, dead(16 * MEGABYTE), 40 * MEGABYTE));
        assert!(space.passed(after(begun, 1), dead(48 * MEGABYTE), 40 * MEGABYTE));
    }

    #[test]
    fn passes_are_rare_while_nothing_changes() {
        let begun = Instant::now();
        let mut space = Space::default();
        let mut passes = |from: u64, to: u64| {
            let due = (from..to).filter(|&second| {
                let now = after(begun, second);
                let due = space.is_due(now);
                if due {
                    space.passed(now, ReclaimReport::default(), 0);
                }
                due
            });
            due.count()
        };
        assert_eq!(passes(0, 600), 10);
        space.changed(after(begun, 600));
        assert!((600..660).all(|second| space.is_due(after(begun, second))));
    }

    #[test]
    fn pass_stays_due_until_the_dead_segment_is_deleted() {
        let begun = Instant::now();
        let mut space = Space::default();
        space.passed(begun, dead(1), 100);
        assert!(space.is_due(after(begun, 1)));
        space.passed(after(begun, 1), ReclaimReport::default(), 100);
        assert!(!space.is_due(after(begun, 2)));
    }
}
