//! Token bucket of a quota. It may go into debt, since a batch may be larger than a second's share.
//!
//! Its state is one time: the moment until which everything taken is paid for at the rate. The distance to the past
//! is what may be taken at once, a second's worth at most; the distance to the future is debt. One number is updated
//! without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Credit that may be saved up, as time at the rate.
pub(super) const BURST_NANOS: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Bucket {
    /// Per second, as the bits of an `f64`.
    rate: AtomicU64,
    paid_until: AtomicU64,
}

impl Bucket {
    pub fn new(rate: f64) -> Self {
        Self { rate: AtomicU64::new(rate.to_bits()), paid_until: AtomicU64::new(0) }
    }

    fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Changes the rate. The owed amount stays the same, and is paid at the new rate.
    pub fn set_rate(&self, rate: f64, now: u64) {
        let before = f64::from_bits(self.rate.swap(rate.to_bits(), Ordering::Relaxed));
        if before == rate {
            return;
        }
        let scaled = |until: u64| {
            let owed = until.checked_sub(now)? as f64;
            Some(now.saturating_add((owed * before / rate) as u64))
        };
        // Without debt, the saved-up time stays the same.
        let _ = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, scaled);
    }

    /// Takes an amount. Returns how long the client must wait.
    pub fn charge(&self, amount: u64, now: u64) -> Duration {
        // Casts saturate.
        let cost = (amount as f64 * 1e9 / self.rate()) as u64;
        let charged = |until: u64| until.max(now.saturating_sub(BURST_NANOS)).saturating_add(cost);
        let update = |until| Some(charged(until));
        let before = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        let until = charged(before.unwrap_or_else(|until| until));
        Duration::from_nanos(until.saturating_sub(now))
    }

    /// Time until the debt is paid.
    pub fn debt(&self, now: u64) -> Duration {
        Duration::from_nanos(self.paid_until.load(Ordering::Relaxed).saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn charge_over_one_second_of_rate_becomes_debt() {
        let (bucket, now) = (Bucket::new(100.0), 10 * SECOND);
        assert_eq!(bucket.charge(100, now), Duration::ZERO);
        // A batch of five seconds' share is taken whole, as debt.
        assert_eq!(bucket.charge(500, now), Duration::from_secs(5));
        assert_eq!(bucket.debt(now + 2 * SECOND), Duration::from_secs(3));
        assert_eq!(bucket.charge(100, now + 2 * SECOND), Duration::from_secs(4));
        assert_eq!(bucket.debt(now + 6 * SECOND), Duration::ZERO);
        // Credit accumulates for one second at most.
        assert_eq!(bucket.charge(200, now + 60 * SECOND), Duration::from_secs(1));
    }

    #[test]
    fn debt_is_paid_at_the_current_rate() {
        let (bucket, now) = (Bucket::new(10.0), 10 * SECOND);
        bucket.charge(1010, now);
        assert_eq!(bucket.debt(now), Duration::from_secs(100));
        bucket.set_rate(1000.0, now);
        assert_eq!(bucket.debt(now), Duration::from_secs(1));
        // Without debt, a new rate has no effect on the balance.
        bucket.set_rate(1.0, now + 5 * SECOND);
        assert_eq!(bucket.debt(now + 5 * SECOND), Duration::ZERO);
    }

    #[test]
    fn debt_saturates_instead_of_overflowing() {
        let bucket = Bucket::new(0.001);
        bucket.charge(u64::MAX, u64::MAX / 2);
        bucket.charge(u64::MAX, u64::MAX / 2);
        assert_eq!(bucket.debt(u64::MAX / 2), Duration::from_nanos(u64::MAX - u64::MAX / 2));
    }

    proptest! {
        /// A client that waits for its debt before it takes more gets exactly its rate, whatever the amounts.
        #[test]
        fn throughput_over_time_equals_the_rate(amounts in prop::collection::vec(1_u64..100_000, 1..200)) {
            let (bucket, rate) = (Bucket::new(1000.0), 1000.0);
            let mut now = 100 * SECOND;
            let begun = now;
            let mut taken = 0;
            for amount in &amounts {
                taken += amount;
                now += u64::try_from(bucket.charge(*amount, now).as_nanos()).expect("fits");
            }
            let seconds = (now - begun) as f64 / 1e9;
            let least = (taken as f64 / rate - 1.0).max(0.0);
            prop_assert!((seconds - least).abs() < 0.001, "{seconds} for {taken}");
        }
    }
}
