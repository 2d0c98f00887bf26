//! Search for the highest rate that a system sustains.
//!
//! A rate is tried for a while, and passes or fails; the next is higher or lower. It changes by a
//! factor until one fails, and then bisects until the interval is small.

/// Default for the largest relative gap between the highest pass and the lowest failure.
pub const PRECISION: f64 = 0.05;
const FACTOR: f64 = 2.0;

/// State of the search, from which the next rate follows.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    passed: Option<f64>,
    failed: Option<f64>,
    start: f64,
    least: f64,
    most: f64,
    precision: f64,
}

impl Search {
    /// Starts at this rate, between the lowest sensible rate and the highest.
    pub fn from(start: f64, least: f64, most: f64) -> Self {
        Self { passed: None, failed: None, start, least, most, precision: PRECISION }
    }

    /// Ends when pass and failure are within this relative gap.
    pub fn within(self, precision: f64) -> Self {
        Self { precision, ..self }
    }

    /// The next rate to try; `None` at the end of the search.
    pub fn next(&self) -> Option<f64> {
        match (self.passed, self.failed) {
            (None, None) => Some(self.start),
            (Some(passed), None) => (passed < self.most).then(|| (passed * FACTOR).min(self.most)),
            (None, Some(failed)) => {
                (failed > self.least).then(|| (failed / FACTOR).max(self.least))
            }
            (Some(passed), Some(failed)) => {
                (failed - passed > self.precision * passed).then(|| (passed * failed).sqrt())
            }
        }
    }

    pub fn tried(&mut self, rate: f64, passed: bool) {
        if passed {
            self.passed = Some(self.passed.map_or(rate, |known| known.max(rate)));
        } else {
            self.failed = Some(self.failed.map_or(rate, |known| known.min(rate)));
        }
    }

    /// The highest rate that passed.
    pub fn found(&self) -> Option<f64> {
        self.passed
    }
}

/// Tolerance for the p99 send delay, and for the growth of the confirm latency during a try: a
/// standstill of the machine is not the system's limit.
const TOLERATED_S: f64 = 0.1;

/// Reason that a rate was not sustained; `None` if it was. `seconds`: the measured time. `lag`:
/// (second, messages behind) over the measured time.
pub fn verdict(
    target: f64,
    seconds: f64,
    confirmed_per_second: f64,
    errors: u64,
    lag: &[(f64, f64)],
    send_delay_p99_us: u64,
) -> Option<String> {
    if errors > 0 {
        return Some(format!("{errors} errors"));
    }
    // In a try of one second, ten milliseconds of messages in flight are a hundredth.
    let tolerated = f64::max(0.01, TOLERATED_S / seconds);
    if confirmed_per_second < (1.0 - tolerated) * target {
        return Some(format!("{confirmed_per_second:.0} a second were confirmed"));
    }
    let growth = slope(&lag[lag.len() / 2..]);
    if growth > 0.005 * target {
        return Some(format!("receivers fall behind by {growth:.0} a second"));
    }
    let late_ms = send_delay_p99_us / 1_000;
    (late_ms as f64 >= 1_000.0 * TOLERATED_S)
        .then(|| format!("messages are sent {late_ms} ms late (p99)"))
}

/// Slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut above, mut below) = (0.0, 0.0);
    for point in points {
        above += (point.0 - x) * (point.1 - y);
        below += (point.0 - x).powi(2);
    }
    if below > 0.0 { above / below } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(limit: f64, start: f64) -> (Option<f64>, usize) {
        let (mut search, mut tries) = (Search::from(start, 10.0, 1e7), 0);
        while let Some(rate) = search.next() {
            search.tried(rate, rate <= limit);
            tries += 1;
        }
        (search.found(), tries)
    }

    #[test]
    fn the_limit_is_found_within_the_precision_in_few_tries() {
        for limit in [37.0, 1_000.0, 9_999.0, 123_456.0, 2_000_000.0] {
            let (found, tries) = find(limit, 10_000.0);
            let found = found.expect("there is one");
            assert!(
                found <= limit && found >= limit / (1.0 + PRECISION) - 1e-6,
                "{limit}: {found}"
            );
            assert!(tries < 20, "{limit}: {tries}");
        }
    }

    #[test]
    fn search_ends_when_nothing_or_everything_passes() {
        assert_eq!(find(1.0, 10_000.0).0, None);
        assert_eq!(find(1e9, 10_000.0).0, Some(1e7));
    }

    #[test]
    fn verdict_reports_each_reason_to_fail() {
        let steady: Vec<(f64, f64)> = (0..20).map(|at| (f64::from(at), 50.0)).collect();
        let growing: Vec<(f64, f64)> =
            (0..20).map(|at| (f64::from(at), f64::from(at) * 20.0)).collect();
        assert_eq!(verdict(1000.0, 60.0, 999.0, 0, &steady, 5_000), None);
        assert!(verdict(1000.0, 60.0, 999.0, 1, &steady, 5_000).is_some());
        assert!(verdict(1000.0, 60.0, 900.0, 0, &steady, 5_000).is_some());
        assert!(verdict(1000.0, 60.0, 999.0, 0, &growing, 5_000).is_some());
        // Messages in flight at the end of a short try are no shortfall; more are.
        assert_eq!(verdict(1000.0, 1.0, 920.0, 0, &steady, 5_000), None);
        assert!(verdict(1000.0, 1.0, 880.0, 0, &steady, 5_000).is_some());
        assert!(verdict(1000.0, 60.0, 999.0, 0, &steady, 200_000).is_some());
    }
}
