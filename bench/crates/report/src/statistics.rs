//! Medians, spreads and noise. One rule applies throughout: a difference below two standard
//! deviations is noise, and the deviation of a single run is unknown. A small difference is noise
//! even with a tiny spread, since a machine changes by more than that between two sets of runs.

use serde::Serialize;

/// A difference below this share of the larger figure is noise.
const NOISE_SHARE_MIN: f64 = 0.02;

/// The same figure from several runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    /// Standard deviation of one run. `None`: a single run without a stated deviation.
    pub deviation: Option<f64>,
    pub runs: usize,
}

impl Spread {
    /// Returns `None` without finite values. `stated`: the deviation that a single run states.
    pub fn of(values: &[f64], stated: Option<f64>) -> Option<Self> {
        let mut sorted: Vec<f64> =
            values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let runs = sorted.len();
        let median = match runs {
            0 => return None,
            odd if odd % 2 == 1 => sorted[odd / 2],
            even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
        };
        let stated = stated.filter(|deviation| deviation.is_finite());
        let deviation = if runs > 1 { Some(sample_deviation(&sorted)) } else { stated };
        Some(Self { median, deviation, runs })
    }

    /// Two standard deviations of one run, pooled over both sides, but at least a small share of
    /// the figure. `None`: neither side has a deviation.
    pub fn noise(&self, other: &Self) -> Option<f64> {
        let variances: Vec<f64> =
            [self.deviation, other.deviation].into_iter().flatten().map(|d| d * d).collect();
        if variances.is_empty() {
            return None;
        }
        let pooled = 2.0 * (variances.iter().sum::<f64>() / variances.len() as f64).sqrt();
        let least = NOISE_SHARE_MIN * self.median.abs().max(other.median.abs());
        Some(pooled.max(least))
    }

    /// Whether the two differ by more than noise; `None` if the noise is unknown.
    pub fn differs(&self, other: &Self) -> Option<bool> {
        let difference = (self.median - other.median).abs();
        if difference == 0.0 {
            return Some(false);
        }
        self.noise(other).map(|noise| difference >= noise)
    }
}

/// Divides by n - 1: the runs are a sample of the system's behaviour.
fn sample_deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_sample_deviation_are_computed() {
        let odd = Spread::of(&[3.0, 1.0, 2.0], None).expect("values");
        assert_eq!((odd.median, odd.deviation, odd.runs), (2.0, Some(1.0), 3));
        let even = Spread::of(&[4.0, 1.0, 2.0, 3.0], None).expect("values");
        assert_eq!(even.median, 2.5);
        assert!(Spread::of(&[f64::NAN], None).is_none());
    }

    #[test]
    fn single_run_has_only_its_stated_deviation() {
        assert_eq!(Spread::of(&[5.0], None).expect("one").deviation, None);
        assert_eq!(Spread::of(&[5.0], Some(0.5)).expect("one").deviation, Some(0.5));
        assert_eq!(Spread::of(&[5.0], Some(f64::NAN)).expect("one").deviation, None);
    }

    #[test]
    fn difference_below_two_deviations_is_noise() {
        let at = |median, deviation| Spread { median, deviation, runs: 3 };
        assert_eq!(at(100.0, Some(10.0)).differs(&at(119.0, Some(10.0))), Some(false));
        assert_eq!(at(100.0, Some(10.0)).differs(&at(121.0, Some(10.0))), Some(true));
        // The spread of one side applies to both.
        assert_eq!(at(100.0, Some(10.0)).differs(&at(121.0, None)), Some(true));
        assert_eq!(at(100.0, None).differs(&at(121.0, None)), None);
        assert_eq!(at(100.0, None).differs(&at(100.0, None)), Some(false));
        assert_eq!(at(0.0, Some(0.0)).differs(&at(3.0, Some(0.0))), Some(true));
    }

    #[test]
    fn small_difference_is_noise_with_any_spread() {
        let at = |median| Spread { median, deviation: Some(0.1), runs: 3 };
        assert_eq!(at(1000.0).differs(&at(1015.0)), Some(false));
        assert_eq!(at(1000.0).differs(&at(1030.0)), Some(true));
        assert_eq!(at(-1000.0).differs(&at(-1015.0)), Some(false));
    }
}
