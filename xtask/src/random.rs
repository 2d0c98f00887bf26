//! A seeded generator (SplitMix64), so that a failing run can be repeated with its seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A random seed.
    pub(crate) fn any_seed() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        mix(now.as_nanos() as u64 ^ u64::from(std::process::id())) >> 32
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Uniform over `low..=high`, except for a bias too small to matter here.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_micros(self.between(low.as_micros() as u64, high.as_micros() as u64))
    }
}

/// SplitMix64's finalizer: every input bit changes about half of the output bits.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
