//! Pauses before a node is connected again.

use std::time::Duration;

use crate::limits::LINK_REFUSED_RETRY;
use base::limits::{LINK_RETRY_MAX, LINK_RETRY_MIN};
use world::{Entropy, Instant};

use crate::end::ConnectError;

/// A connection that lasted this long was a success: the next attempt is made at once.
const LASTED: Duration = LINK_RETRY_MAX;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Records the end of a connection. Returns whether the next attempt is made at once.
    pub(crate) fn ended(&mut self, since: Instant, now: Instant) -> bool {
        let has_lasted = now.saturating_duration_since(since) >= LASTED;
        let is_first = self.failures == 0;
        self.failures = if has_lasted { 0 } else { self.failures.saturating_add(1) };
        has_lasted || is_first
    }

    /// Records a failed attempt. The pause is random between half of the grown pause and all of it, so that nodes
    /// that lost one peer at the same time do not reconnect at the same time.
    pub(crate) fn failed(&mut self, error: &ConnectError, entropy: &dyn Entropy) -> Duration {
        let doubled = LINK_RETRY_MIN.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let most = match error {
            ConnectError::Refused(_)
            | ConnectError::RefusedHere(_)
            | ConnectError::Insecure(_)
            | ConnectError::Tls(_) => LINK_REFUSED_RETRY,
            _ => doubled.min(LINK_RETRY_MAX),
        };
        let half = most / 2;
        half + half.mul_f64(f64::from(entropy.u32()) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use world::SeededEntropy;

    use super::*;

    #[test]
    fn pauses_are_random_and_grow_to_a_bound_until_a_success() {
        let entropy = SeededEntropy::new(1);
        let mut backoff = Backoff::default();
        let error = ConnectError::NobodyListens;
        let pauses: Vec<_> = (0..10).map(|_| backoff.failed(&error, &entropy)).collect();
        for (pause, most) in pauses.iter().zip([50, 100, 200, 400, 800, 1_000, 1_000, 1_000]) {
            let most = Duration::from_millis(most);
            assert!(*pause >= most / 2 && *pause <= most, "{pause:?} of {most:?}");
        }
        assert_ne!(pauses[7], pauses[8]);

        let now = Instant::now();
        // A connection that repeatedly ends as soon as it is made is no success.
        assert!(!backoff.ended(now, now));
        assert!(backoff.ended(now, now + LASTED));
        assert!(backoff.failed(&error, &entropy) <= LINK_RETRY_MIN);
    }
}
