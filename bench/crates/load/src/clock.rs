//! The clock of stamps: nanoseconds since 1970, comparable between machines with the same time of
//! day, but monotonic within a process.
//!
//! Machines whose clocks differ use the time of one of them: each has a [`Clock`] with its own
//! offset.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

struct Anchor {
    instant: Instant,
    epoch_ns: u64,
}

fn anchor() -> &'static Anchor {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    ANCHOR.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Anchor { instant: Instant::now(), epoch_ns: since.as_nanos() as u64 }
    })
}

/// The process's own time, less the offset by which it is ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    ahead_ns: i64,
}

impl Clock {
    /// The clock of a machine that this process is `ahead_ns` ahead of.
    pub fn behind_by(ahead_ns: i64) -> Self {
        Self { ahead_ns }
    }

    pub fn now_ns(self) -> u64 {
        let anchor = anchor();
        let own = anchor.epoch_ns + anchor.instant.elapsed().as_nanos() as u64;
        own.saturating_sub_signed(self.ahead_ns)
    }

    /// Time until this clock shows `time_ns`; zero if it is past.
    pub fn until(self, time_ns: u64) -> Duration {
        Duration::from_nanos(time_ns.saturating_sub(self.now_ns()))
    }
}

/// Whole microseconds from one time to a later one; zero if clocks disagree.
pub fn micros_between(from_ns: u64, to_ns: u64) -> u64 {
    to_ns.saturating_sub(from_ns) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_with_an_offset_shows_the_other_machines_time() {
        let own = Clock::default();
        for ahead_ns in [5_000_000_000, -5_000_000_000] {
            let (shown, here) = (Clock::behind_by(ahead_ns).now_ns(), own.now_ns());
            let differs = here as i64 - shown as i64 - ahead_ns;
            assert!((0..1_000_000_000).contains(&differs), "{differs}");
        }
        assert_eq!(own.until(own.now_ns()), Duration::ZERO);
    }
}
