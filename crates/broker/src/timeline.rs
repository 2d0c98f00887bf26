//! One line of time for what lasts (leases) and for what has a date (a record's delay, its time to
//! live, retention), though the wall clock may be set at any moment.
//!
//! The line begins at the wall clock's time when the node starts and goes on by the monotonic clock.
//! A date is moved onto it by how far the wall clock was from the line when the date was made; the
//! timestamp of its record says when that was. So a step of the wall clock changes nothing for what
//! was made before it, and what is made afterwards means the clock as it is now. Where it cannot be
//! told which side of a step a date is from, the later time is taken: late, never early.
//!
//! Over a restart nothing is known of steps: the line begins anew at the wall clock's time.

use std::sync::{Arc, Mutex, PoisonError};

use world::Clock;

/// Two clocks are not read in the same moment: nearer than this they agree.
const STEP_MIN_MS: i64 = 50;
/// Steps that are told apart. Of more, the oldest two count as one.
const STEPS_MAX: usize = 16;

#[derive(Debug)]
pub struct Timeline {
    clock: Arc<dyn Clock>,
    /// The line's time when the monotonic clock was 0.
    origin_ms: i64,
    shifts: Mutex<Shifts>,
}

/// How far the line is ahead of the wall clock, now and at times before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shifts {
    now_ms: i64,
    /// In the order of time.
    former: Vec<Former>,
}

/// Before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Former {
    /// The wall clock's time as the step was made, had there been none. What was stamped before it
    /// has a lower one.
    until_ms: i64,
    shift_ms: i64,
}

impl Timeline {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let origin_ms = clock.now_ms().saturating_sub(clock.monotonic_ms());
        Self { clock, origin_ms, shifts: Mutex::default() }
    }

    /// Where the line is now. Never goes back or jumps.
    pub fn now_ms(&self) -> i64 {
        self.origin_ms.saturating_add(self.clock.monotonic_ms())
    }

    /// Looks at the wall clock, and says how dates are moved onto the line. To be called now and
    /// then: a step that is noticed late cannot be told from the time that passed.
    pub fn shifts(&self) -> Shifts {
        let mut shifts = self.shifts.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = self.now_ms();
        shifts.note(now_ms, self.clock.now_ms());
        shifts.clone()
    }

    /// A time for everything that was stamped until now to be compared with, of which no step of
    /// the wall clock is a part: what is old by it is old indeed.
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
        self.former.push(Former { until_ms, shift_ms: self.now_ms });
        self.now_ms = shift_ms;
        if self.former.len() > STEPS_MAX {
            let oldest = self.former.remove(0);
            let next = &mut self.former[0];
            next.until_ms = next.until_ms.max(oldest.until_ms);
            next.shift_ms = next.shift_ms.max(oldest.shift_ms);
        }
    }

    /// Where on the line a date is that was made when the wall clock said `stamp_ms`.
    pub fn place(&self, date_ms: i64, stamp_ms: i64) -> i64 {
        date_ms.saturating_add(self.at(stamp_ms))
    }

    /// What the wall clock says, as it is now, when the line is there.
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
    fn a_step_does_not_move_the_line() {
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
    fn a_date_from_before_a_step_ahead_stays_where_it_was_and_one_from_after_it_means_the_new_time()
    {
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
    fn a_date_that_may_be_from_before_a_step_back_is_late_and_never_early() {
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
    fn nothing_grows_old_by_a_step() {
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
    fn steps_without_end_are_remembered_as_a_few_and_none_makes_a_date_early() {
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
    fn clocks_that_are_not_read_at_once_have_not_been_set() {
        let (clock, timeline) = timeline();
        clock.step_ms(STEP_MIN_MS - 1);
        assert_eq!(timeline.shifts(), Shifts::default());
    }
}
