//! Offset of another machine's clock from this one's.
//!
//! The remote time is taken for the middle of the round trip, give or take half of it. The shortest
//! of several round trips is the most accurate.

use load::clock::Clock;
use results::ClockOffset;

/// Round trips for one figure.
pub(crate) const PROBES: usize = 16;
/// Largest drift of an undisciplined clock.
const DRIFT: f64 = 100e-6;

/// One round trip: local time of the request, remote time, local time of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    pub(crate) asked_ns: u64,
    pub(crate) theirs_ns: u64,
    pub(crate) answered_ns: u64,
}

impl Probe {
    fn round_trip_ns(self) -> u64 {
        self.answered_ns.saturating_sub(self.asked_ns)
    }

    /// The remote clock against the middle of the round trip.
    pub(crate) fn ahead_ns(self) -> i64 {
        let midst_ns = self.asked_ns + self.round_trip_ns() / 2;
        self.theirs_ns.wrapping_sub(midst_ns) as i64
    }

    /// Upper bound of the remote clock's error relative to the local one.
    fn wrong_by_at_most_ns(self) -> u64 {
        self.theirs_ns.abs_diff(self.asked_ns).max(self.theirs_ns.abs_diff(self.answered_ns))
    }

    fn wrong_by_at_least_ns(self) -> u64 {
        let before = self.asked_ns.saturating_sub(self.theirs_ns);
        before.max(self.theirs_ns.saturating_sub(self.answered_ns))
    }
}

/// Returns the probe with the shortest round trip.
pub(crate) fn best(probes: &[Probe]) -> Option<Probe> {
    probes.iter().copied().min_by_key(|probe| probe.round_trip_ns())
}

pub(crate) fn offset(best: Probe) -> ClockOffset {
    ClockOffset {
        ahead_us: best.ahead_ns() as f64 / 1e3,
        uncertainty_us: best.round_trip_ns() as f64 / 2e3,
    }
}

/// Error bound of a corrected clock during the load. Each reply limits it, and it grows with the
/// time since the best reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    wrong_ns: f64,
    at_ns: u64,
}

impl Bound {
    pub(crate) fn new(best: Probe) -> Self {
        Self { wrong_ns: best.round_trip_ns() as f64 / 2.0, at_ns: best.answered_ns }
    }

    pub(crate) fn learn(&mut self, probe: Probe) {
        let grown = self.at(probe.answered_ns);
        let at_most = probe.wrong_by_at_most_ns() as f64;
        // The clock drifted faster than assumed, so the old bound is void.
        let astray = probe.wrong_by_at_least_ns() as f64 > grown;
        self.wrong_ns = if astray { at_most } else { grown.min(at_most) };
        self.at_ns = probe.answered_ns;
    }

    fn at(self, now_ns: u64) -> f64 {
        self.wrong_ns + now_ns.saturating_sub(self.at_ns) as f64 * DRIFT
    }
}

/// Largest possible difference of any two of these clocks now. A single machine has none.
pub(crate) fn apart_ns(bounds: impl Iterator<Item = Bound>) -> u64 {
    let now_ns = Clock::default().now_ns();
    let mut each: Vec<f64> = bounds.map(|bound| bound.at(now_ns)).collect();
    each.sort_by(|a, b| b.total_cmp(a));
    if each.len() < 2 { 0 } else { (each[0] + each[1]).ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(asked_ns: u64, theirs_ns: u64, answered_ns: u64) -> Probe {
        Probe { asked_ns, theirs_ns, answered_ns }
    }

    #[test]
    fn offset_comes_from_the_shortest_round_trip() {
        let probes = [
            probe(1_000, 50_000, 9_000),
            probe(10_000, 61_000, 12_000),
            probe(20_000, 79_000, 30_000),
        ];
        let best = best(&probes).expect("there are some");
        assert_eq!(best, probes[1]);
        assert_eq!(offset(best), ClockOffset { ahead_us: 50.0, uncertainty_us: 1.0 });
        assert_eq!(probe(10_000, 1_000, 12_000).ahead_ns(), -10_000);
    }

    #[test]
    fn error_bound_grows_with_time_and_shrinks_with_a_better_probe() {
        let mut bound = Bound::new(probe(0, 500, 1_000));
        // A second later comes an imprecise reply: the bound has grown by 100 us.
        bound.learn(probe(1_000_000_000, 1_009_000_000, 1_010_000_000));
        assert!((bound.wrong_ns - 101_500.0).abs() < 1_000.0, "{bound:?}");
        bound.learn(probe(2_000_000_000, 2_000_000_400, 2_000_001_000));
        assert_eq!(bound.wrong_ns, 600.0);
        // The remote time is 5 us before the request, so the error is at least that.
        bound.learn(probe(2_000_002_000, 1_999_997_000, 2_000_003_000));
        assert_eq!(bound.wrong_ns, 6_000.0);
    }
}
