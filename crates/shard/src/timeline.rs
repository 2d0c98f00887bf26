//! One timeline for durations (leases) and for dates (a record's delay, its time to live, retention), though the wall
//! clock may be set at any moment.
//!
//! The timeline begins at the wall clock's time when the node starts, and advances by the monotonic clock. A date is
//! placed on it by the difference of the two at the time when the date was made, as given by the timestamp of its
//! record. So a step of the wall clock does not affect earlier dates, and later ones mean the new time. Where a date
//! may be from either side of a step, the later time is used: late, never early.
//!
//! Steps are not remembered over a restart: the timeline begins at the wall clock's time again.

use std::sync::{Arc, Mutex, PoisonError};

use world::Clock;

/// Clocks are not read in the same moment: a smaller difference is no step.
const STEP_MIN_MS: i64 = 50;
/// Maximum number of remembered steps. Beyond it the oldest two are merged.
const STEPS_MAX: usize = 16;

#[derive(Debug)]
pub struct Timeline {
    clock: Arc<dyn Clock>,
    /// The timeline's time when the monotonic clock was 0.
    origin_ms: i64,
    shifts: Mutex<Shifts>,
}

/// Lead of the timeline over the wall clock, now and at earlier times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shifts {
    now_ms: i64,
    /// In the order of time.
    former: Vec<LeadBeforeStep>,
}

/// The lead before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LeadBeforeStep {
    /// The wall clock's time at the step, had there been none. Earlier timestamps are lower.
    until_ms: i64,
    shift_ms: i64,
}

impl Timeline {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let origin_ms = clock.now_ms().saturating_sub(clock.monotonic_ms());
        Self { clock, origin_ms, shifts: Mutex::default() }
    }

    /// Returns the present time on the timeline. It never goes back or jumps.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.origin_ms.saturating_add(self.clock.monotonic_ms())
    }

    /// Reads the wall clock, and returns how dates are placed on the timeline. To be called periodically: a step that
    /// is noticed late cannot be told from elapsed time.
    pub fn shifts(&self) -> Shifts {
        let mut shifts = self.shifts.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = self.now_ms();
        shifts.note(now_ms, self.clock.now_ms());
        shifts.clone()
    }

    /// Returns the time against which earlier timestamps are compared, without any step of the wall clock: a record
    /// that is too old by it really is.
    #[inline]
    pub fn unstepped_ms(&self) -> i64 {
        let latest = self.shifts().latest_ms();
        self.now_ms().saturating_sub(latest)
    }
}

impl Shifts {
    fn note(&mut self, line_ms: i64, wall_ms: i64) {
        let shift_ms = line_ms.saturating_sub(wall_ms);
        if (shift_ms - self.now_ms).abs() < STEP_MIN_MS {
            return;
        }
        let until_ms = line_ms.saturating_sub(self.now_ms).saturating_add(1);
        self.former.push(LeadBeforeStep { until_ms, shift_ms: self.now_ms });
        self.now_ms = shift_ms;
        if self.former.len() > STEPS_MAX {
            let oldest = self.former.remove(0);
            let next = &mut self.former[0];
            next.until_ms = next.until_ms.max(oldest.until_ms);
            next.shift_ms = next.shift_ms.max(oldest.shift_ms);
        }
    }

    /// Returns the place on the timeline of a date made when the wall clock was at `stamp_ms`.
    #[inline]
    pub fn place(&self, date_ms: i64, stamp_ms: i64) -> i64 {
        date_ms.saturating_add(self.at(stamp_ms))
    }

    /// Returns the present wall clock's time for a time on the timeline.
    #[inline]
    pub fn wall(&self, line_ms: i64) -> i64 {
        line_ms.saturating_sub(self.now_ms)
    }

    fn at(&self, stamp_ms: i64) -> i64 {
        let before = self.former.iter().filter(|former| stamp_ms < former.until_ms);
        before.map(|former| former.shift_ms).fold(self.now_ms, i64::max)
    }

    fn latest_ms(&self) -> i64 {
        self.former.iter().map(|former| former.shift_ms).fold(self.now_ms, i64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::ManualClock;

    const START_MS: i64 = 1_700_000_000_000;
    const HOUR_MS: i64 = 3_600_000;

    fn timeline() -> (Arc<ManualClock>, Timeline) {
        let clock = Arc::new(ManualClock::new(START_MS));
        let timeline = Timeline::new(Arc::clone(&clock) as Arc<dyn Clock>);
        (clock, timeline)
    }

    #[test]
    fn step_of_the_wall_clock_does_not_move_the_timeline() {
        let (clock, timeline) = timeline();
        assert_eq!(timeline.now_ms(), START_MS);
        for step in [HOUR_MS, -3 * HOUR_MS] {
            clock.step_ms(step);
            assert_eq!(timeline.now_ms(), START_MS);
        }
        clock.advance_ms(5);
        assert_eq!(timeline.now_ms(), START_MS + 5);
    }

    #[test]
    fn step_ahead_keeps_earlier_dates_and_applies_to_later_ones() {
        let (clock, timeline) = timeline();
        timeline.shifts();
        let stamp = clock.now_ms();
        clock.advance_ms(10_000);
        clock.step_ms(HOUR_MS);
        clock.advance_ms(1_000);
        let shifts = timeline.shifts();
        assert_eq!(shifts.place(stamp + 60_000, stamp), START_MS + 60_000);
        let stamp = clock.now_ms();
        assert_eq!(shifts.place(stamp + 60_000, stamp), timeline.now_ms() + 60_000);
        assert_eq!(shifts.wall(timeline.now_ms()), clock.now_ms());
    }

    #[test]
    fn ambiguous_date_around_a_step_back_is_late_and_never_early() {
        let (clock, timeline) = timeline();
        let before = clock.now_ms();
        clock.advance_ms(10_000);
        clock.step_ms(-HOUR_MS);
        let shifts = timeline.shifts();
        let place = shifts.place(before + 60_000, before);
        assert_eq!(place, START_MS + 60_000 + HOUR_MS, "when the wall clock says so");
        let after = clock.now_ms();
        assert_eq!(shifts.place(after + 60_000, after), timeline.now_ms() + 60_000);
    }

    #[test]
    fn step_of_the_wall_clock_ages_no_record() {
        let (clock, timeline) = timeline();
        for step in [HOUR_MS, -2 * HOUR_MS, 5 * HOUR_MS] {
            let stamp = clock.now_ms();
            timeline.shifts();
            clock.step_ms(step);
            clock.advance_ms(1_000);
            assert!(timeline.unstepped_ms() - stamp <= 1_000, "after {step}");
        }
        assert!(timeline.unstepped_ms() <= clock.now_ms());
    }

    #[test]
    fn many_steps_are_merged_and_make_no_date_early() {
        let (clock, timeline) = timeline();
        let stamp = clock.now_ms();
        for _ in 0..100 {
            clock.advance_ms(1_000);
            clock.step_ms(HOUR_MS);
            timeline.shifts();
        }
        let shifts = timeline.shifts();
        assert!(shifts.former.len() <= STEPS_MAX);
        assert!(shifts.place(stamp + 60_000, stamp) >= START_MS + 60_000);
    }

    #[test]
    fn small_difference_of_the_clocks_is_no_step() {
        let (clock, timeline) = timeline();
        clock.step_ms(STEP_MIN_MS - 1);
        assert_eq!(timeline.shifts(), Shifts::default());
    }
}
