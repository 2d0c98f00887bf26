//! How much another machine's clock is ahead of ours.
//!
//! It is asked for its time; the answer belongs to the midst of the round trip, give or take half
//! of it. Of several, the shortest round trip says it best.

use load::clock::Clock;
use results::ClockOffset;

/// Round trips for one figure.
pub(crate) const PROBES: usize = 16;
/// A clock that nobody sets goes wrong by no more than this share.
const DRIFT: f64 = 100e-6;

/// One round trip: ours as we asked, theirs, ours as the answer came.
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

    /// Their clock against the midst of the round trip.
    pub(crate) fn ahead_ns(self) -> i64 {
        let midst_ns = self.asked_ns + self.round_trip_ns() / 2;
        self.theirs_ns.wrapping_sub(midst_ns) as i64
    }

    /// How wrong their clock can be, if it is taken for ours.
    fn wrong_by_at_most_ns(self) -> u64 {
        self.theirs_ns.abs_diff(self.asked_ns).max(self.theirs_ns.abs_diff(self.answered_ns))
    }

    fn wrong_by_at_least_ns(self) -> u64 {
        let before = self.asked_ns.saturating_sub(self.theirs_ns);
        before.max(self.theirs_ns.saturating_sub(self.answered_ns))
    }
}

/// The one with the shortest round trip.
pub(crate) fn best(probes: &[Probe]) -> Option<Probe> {
    probes.iter().copied().min_by_key(|probe| probe.round_trip_ns())
}

pub(crate) fn offset(best: Probe) -> ClockOffset {
    ClockOffset {
        ahead_us: best.ahead_ns() as f64 / 1e3,
        uncertainty_us: best.round_trip_ns() as f64 / 2e3,
    }
}

/// How wrong a corrected clock may be, as the load goes on: each answer bounds it, and it grows
/// with the time since the best of them.
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
        // It went astray faster than clocks do: what was known is worth nothing.
        let astray = probe.wrong_by_at_least_ns() as f64 > grown;
        self.wrong_ns = if astray { at_most } else { grown.min(at_most) };
        self.at_ns = probe.answered_ns;
    }

    fn at(self, now_ns: u64) -> f64 {
        self.wrong_ns + now_ns.saturating_sub(self.at_ns) as f64 * DRIFT
    }
}

/// How far any two of these clocks may be apart now. One machine agrees with itself.
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
    fn the_shortest_round_trip_says_how_much_a_clock_is_ahead() {
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
    fn a_bound_grows_with_time_and_shrinks_with_a_better_answer() {
        let mut bound = Bound::new(probe(0, 500, 1_000));
        // A second later, an answer that says little: 100 us have been added.
        bound.learn(probe(1_000_000_000, 1_009_000_000, 1_010_000_000));
        assert!((bound.wrong_ns - 101_500.0).abs() < 1_000.0, "{bound:?}");
        bound.learn(probe(2_000_000_000, 2_000_000_400, 2_000_001_000));
        assert_eq!(bound.wrong_ns, 600.0);
        // Theirs is 5 us before we asked: it is wrong by that at least.
        bound.learn(probe(2_000_002_000, 1_999_997_000, 2_000_003_000));
        assert_eq!(bound.wrong_ns, 6_000.0);
    }
}
