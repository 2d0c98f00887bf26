//! Time as a dependency. Code that decides by time reads a [`Clock`], so that a test can control it. The machine
//! has no clock: time reaches it as data in entries.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
#[expect(clippy::disallowed_types, reason = "the one place that reads it")]
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

pub trait Clock: Send + Sync + Debug + 'static {
    /// Wall-clock time in milliseconds since the Unix epoch, for dates. May jump, also backwards: measure
    /// durations with [`Clock::monotonic_ms`].
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment in the past, including the time of a suspended machine. Does not jump when
    /// the wall clock is set.
    fn monotonic_ms(&self) -> i64;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_types, reason = "the one place that reads it")]
    fn now_ms(&self) -> i64 {
        // A clock before 1970 reads as 1970: no decision here is better with a negative time.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }

    #[cfg(target_os = "linux")]
    fn monotonic_ms(&self) -> i64 {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        since.tv_sec * 1_000 + since.tv_nsec / 1_000_000
    }

    #[cfg(not(target_os = "linux"))]
    fn monotonic_ms(&self) -> i64 {
        static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed().as_millis() as i64
    }
}

/// A clock that follows the time of the runtime in which it is created. In a simulation time passes only while all
/// tasks wait.
#[derive(Debug)]
pub struct RuntimeClock {
    begun: Instant,
    begun_ms: i64,
    stepped_ms: AtomicI64,
}

impl RuntimeClock {
    /// Starts with the wall clock at `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self { begun: Instant::now(), begun_ms: now_ms, stepped_ms: AtomicI64::new(0) }
    }

    /// Sets the wall clock; no time passes.
    pub fn step_ms(&self, by_ms: i64) {
        self.stepped_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for RuntimeClock {
    fn now_ms(&self) -> i64 {
        self.begun_ms + self.monotonic_ms() + self.stepped_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.begun.elapsed().as_millis() as i64
    }
}

/// A clock that stands still until it is advanced.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicI64,
}

impl ManualClock {
    pub fn new(now_ms: i64) -> Self {
        Self { wall_ms: AtomicI64::new(now_ms), monotonic_ms: AtomicI64::new(0) }
    }

    /// Lets time pass on both clocks.
    pub fn advance_ms(&self, by_ms: i64) {
        self.monotonic_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.wall_ms.fetch_add(by_ms, Ordering::SeqCst);
    }

    /// Sets the wall clock; no time passes.
    pub fn step_ms(&self, by_ms: i64) {
        self.wall_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn runtime_clock_advances_with_timers_and_steps_move_only_the_wall_clock() {
        let clock = RuntimeClock::new(1_000);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((clock.now_ms(), clock.monotonic_ms()), (61_000, 60_000));
        clock.step_ms(-5_000);
        assert_eq!((clock.now_ms(), clock.monotonic_ms()), (56_000, 60_000));
    }
}
