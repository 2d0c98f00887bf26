//! When space is taken back: soon after something changed, and not for as long as nothing does.
//!
//! A dead segment is deleted only once a snapshot says that it is dead, and without traffic none
//! comes by itself. One is taken for it at once where that frees at least as much as it writes, and
//! else after a while: a large state is not written over and over for one small segment after the
//! other.

use std::time::Duration;

use journal::Reclaimed;
use tokio::time::Instant;

/// What an entry changed may be sealed, or covered by a snapshot, only some time after it.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// And however quiet it is: a pass walks the segments, which takes microseconds for a thousand.
const PASS_EVERY: Duration = Duration::from_secs(60);
/// How long dead segments wait that are worth less than a snapshot.
const SNAPSHOT_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Space {
    changed: Option<Instant>,
    passed: Option<Instant>,
    /// Since when dead segments have waited for a snapshot.
    waiting: Option<Instant>,
}

impl Space {
    pub(crate) fn changed(&mut self, now: Instant) {
        self.changed = Some(now);
    }

    /// Whether a pass may find something.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let within = |at: Option<Instant>, time| at.is_some_and(|at| now - at < time);
        self.waiting.is_some() || within(self.changed, BUSY_FOR) || !within(self.passed, PASS_EVERY)
    }

    /// Takes in what a pass did. Whether a snapshot is to be taken for what waits, when the last one
    /// has so many bytes.
    pub(crate) fn passed(&mut self, now: Instant, done: Reclaimed, snapshot_bytes: u64) -> bool {
        self.passed = Some(now);
        if done.waiting == 0 {
            self.waiting = None;
            return false;
        }
        let since = *self.waiting.get_or_insert(now);
        done.waiting_bytes >= snapshot_bytes || now - since >= SNAPSHOT_AFTER
    }

    /// A snapshot was taken: what it knows as dead goes in the next pass.
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

    fn dead(bytes: u64) -> Reclaimed {
        Reclaimed { waiting: 1, waiting_bytes: bytes, ..Reclaimed::default() }
    }

    fn after(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    #[test]
    fn a_small_dead_segment_waits_and_a_large_one_does_not() {
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
        // One was written each second before.
        assert!((8..=10).contains(&snapshots.count()));
    }

    #[test]
    fn several_small_ones_together_are_worth_a_snapshot() {
        let begun = Instant::now();
        let mut space = Space::default();
        assert!(!space.passed(begun, dead(16 * MEGABYTE), 40 * MEGABYTE));
        assert!(space.passed(after(begun, 1), dead(48 * MEGABYTE), 40 * MEGABYTE));
    }

    #[test]
    fn nothing_is_looked_at_while_nothing_changes() {
        let begun = Instant::now();
        let mut space = Space::default();
        let mut passes = |from: u64, to: u64| {
            let due = (from..to).filter(|&second| {
                let now = after(begun, second);
                let due = space.is_due(now);
                if due {
                    space.passed(now, Reclaimed::default(), 0);
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
    fn what_waits_for_a_snapshot_is_looked_at_until_it_has_gone() {
        let begun = Instant::now();
        let mut space = Space::default();
        space.passed(begun, dead(1), 100);
        assert!(space.is_due(after(begun, 1)));
        space.passed(after(begun, 1), Reclaimed::default(), 100);
        assert!(!space.is_due(after(begun, 2)));
    }
}
