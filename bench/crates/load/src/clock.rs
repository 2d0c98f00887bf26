//! The time that stamps carry: nanoseconds since 1970, so that machines with the same time of day
//! can be compared, but never stepping back within a process.

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

pub fn now_ns() -> u64 {
    let anchor = anchor();
    anchor.epoch_ns + anchor.instant.elapsed().as_nanos() as u64
}

/// The instant at which this process's clock shows (or showed) that time.
pub fn instant_of(time_ns: u64) -> Instant {
    let anchor = anchor();
    anchor.instant + Duration::from_nanos(time_ns.saturating_sub(anchor.epoch_ns))
}

/// From one time to a later one, in whole microseconds; none if clocks disagree.
pub fn micros_between(from_ns: u64, to_ns: u64) -> u64 {
    to_ns.saturating_sub(from_ns) / 1_000
}
