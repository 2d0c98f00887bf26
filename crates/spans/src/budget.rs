//! Limits the rate of records that are read for spans.

use std::time::Duration;

use world::Instant;

/// A token bucket: at most this many records a second, and at most one second's worth at once.
#[derive(Debug)]
pub(crate) struct Budget {
    a_second: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    pub(crate) fn new(a_second: u32, now: Instant) -> Self {
        let a_second = f64::from(a_second);
        Self { a_second, left: a_second, at: now }
    }

    /// Takes up to `wanted` tokens, as many as are available.
    pub(crate) fn take(&mut self, wanted: u32, now: Instant) -> u32 {
        let passed: Duration = now.saturating_duration_since(self.at);
        self.at = now;
        self.left = (self.left + passed.as_secs_f64() * self.a_second).min(self.a_second);
        let taken = wanted.min(self.left as u32);
        self.left -= f64::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_refills_up_to_one_second() {
        let begin = Instant::now();
        let mut budget = Budget::new(100, begin);
        assert_eq!(budget.take(60, begin), 60);
        assert_eq!(budget.take(60, begin), 40);
        assert_eq!(budget.take(1, begin), 0);
        assert_eq!(budget.take(60, begin + Duration::from_millis(500)), 50);
        assert_eq!(budget.take(1_000, begin + Duration::from_secs(60)), 100);
    }
}
