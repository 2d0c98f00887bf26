//! Maps values to positions on an axis, and chooses its ticks.

/// Spacing of values along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spacing {
    /// From zero.
    Linear,
    /// From zero, with ticks at powers of two: for bytes.
    Binary,
    /// Without a fixed start: for time.
    Time,
    Log,
    /// Shares of one, spaced as `1 / (1 - share)` on a log scale, as in HDR plots.
    Percentile,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Scale {
    spacing: Spacing,
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<f64>,
}

/// Number of ticks of a linear axis.
const TICKS: f64 = 5.0;

impl Scale {
    /// Returns `None` if there is nothing to show.
    pub(crate) fn of(spacing: Spacing, values: impl Iterator<Item = f64>) -> Option<Self> {
        let usable = |value: &f64| match spacing {
            Spacing::Log => value.is_finite() && *value > 0.0,
            Spacing::Percentile => (0.0..1.0).contains(value),
            _ => value.is_finite() && value.abs() < 1e15,
        };
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(usable) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        Some(match spacing {
            Spacing::Linear => {
                Self::linear(low, high, |least| round_step(least, &[1.0, 2.0, 2.5, 5.0, 10.0]))
            }
            Spacing::Binary => Self::linear(low, high, |least| least.max(1.0).log2().ceil().exp2()),
            Spacing::Time => Self::time(low, high),
            Spacing::Log => Self::log(low, high),
            Spacing::Percentile => Self::percentile(high),
        })
    }

    /// Position of a value; between 0 and 1 within the axis.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let along = |value: f64| match self.spacing {
            Spacing::Linear | Spacing::Binary | Spacing::Time => value,
            Spacing::Log => value.max(f64::MIN_POSITIVE).ln(),
            Spacing::Percentile => (1.0 / (1.0 - value)).ln(),
        };
        (along(value) - along(self.low)) / (along(self.high) - along(self.low))
    }

    pub(crate) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (-0.001..=1.001).contains(&self.place(value))
    }

    /// Description for the script that reads values off the plot: kind, lower and upper end.
    pub(crate) fn described(&self) -> String {
        let kind = match self.spacing {
            Spacing::Linear | Spacing::Binary | Spacing::Time => "lin",
            Spacing::Log => "log",
            Spacing::Percentile => "pct",
        };
        format!("{kind} {} {}", self.low, self.high)
    }

    /// `step`: rounds its argument up to a round number.
    fn linear(low: f64, high: f64, step: fn(f64) -> f64) -> Self {
        let (low, high) =
            (low.min(0.0), if high <= 0.0 && low >= 0.0 { 1.0 } else { high.max(0.0) });
        let step = step((high - low) / TICKS);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let ticks = (first as i64..=last as i64).map(|tick| tick as f64 * step).collect();
        Self { spacing: Spacing::Linear, low: first * step, high: last * step, ticks }
    }

    fn time(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let wide = (high - low) / 6.0;
        let steps =
            [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];
        let step = steps.into_iter().find(|step| *step >= wide);
        let step = step.unwrap_or_else(|| (wide / 3600.0).ceil() * 3600.0);
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        let ticks = (first..=last).map(|tick| tick as f64 * step).collect();
        Self { spacing: Spacing::Time, low, high, ticks }
    }

    fn log(low: f64, high: f64) -> Self {
        let decade = |value: f64| 10f64.powf(value.log10().floor());
        let floor = |value: f64, steps: &[f64]| {
            let within =
                steps.iter().rev().find(|step| decade(value) * **step <= value * 1.000_001);
            decade(value) * within.unwrap_or(&1.0)
        };
        let low = floor(low, &[1.0, 2.0, 5.0]);
        let top = floor(high, &[1.0, 2.0, 5.0]);
        let high = if high <= top * 1.000_001 && top > low { top } else { next_of_1_2_5(top) };
        let decades = (high / low).log10();
        let steps: &[f64] = match decades {
            few if few <= 2.3 => &[1.0, 2.0, 5.0],
            some if some <= 3.7 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let mut ticks = Vec::new();
        let mut at = decade(low);
        while at <= high * 1.000_001 {
            let here = steps.iter().map(|step| at * step);
            ticks.extend(here.filter(|tick| (low * 0.999_999..=high * 1.000_001).contains(tick)));
            at *= 10.0;
        }
        Self { spacing: Spacing::Log, low, high, ticks }
    }

    fn percentile(high: f64) -> Self {
        let nines = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
        let high = high.clamp(0.99, 0.999_999_5);
        let ticks = nines.into_iter().filter(|share| *share <= high).collect();
        Self { spacing: Spacing::Percentile, low: 0.0, high, ticks }
    }
}

/// The number that follows in the sequence 1, 2, 5, 10, 20, ...
fn next_of_1_2_5(value: f64) -> f64 {
    let leading = value / 10f64.powf((value.log10() + 1e-9).floor());
    if (1.5..3.0).contains(&leading) { value * 2.5 } else { value * 2.0 }
}

/// The smallest step, times a power of ten, that is not below `least`.
fn round_step(least: f64, steps: &[f64]) -> f64 {
    let decade = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let found = steps.iter().find(|step| decade * **step >= least * 0.999_999);
    decade * found.unwrap_or(&10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(spacing: Spacing, values: &[f64]) -> Vec<f64> {
        Scale::of(spacing, values.iter().copied()).expect("a scale").ticks
    }

    #[test]
    fn linear_axes_begin_at_zero_and_end_on_a_tick() {
        assert_eq!(ticks(Spacing::Linear, &[12.0, 97.0]), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(Spacing::Linear, &[0.0]).first(), Some(&0.0));
    }

    #[test]
    fn bytes_have_ticks_at_powers_of_two() {
        let mebi = 1_048_576.0;
        assert_eq!(ticks(Spacing::Binary, &[500.0 * mebi])[1..3], [128.0 * mebi, 256.0 * mebi]);
    }

    #[test]
    fn time_axes_use_clock_steps() {
        assert_eq!(ticks(Spacing::Time, &[-10.0, 60.0]), [0.0, 15.0, 30.0, 45.0, 60.0]);
    }

    #[test]
    fn log_axes_show_decades() {
        assert_eq!(ticks(Spacing::Log, &[1.0, 1e6]), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(ticks(Spacing::Log, &[100.0, 1000.0]), [100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn every_value_is_within_its_axis() {
        for spacing in [Spacing::Linear, Spacing::Binary, Spacing::Time, Spacing::Log] {
            for values in [[3.0, 3.0], [0.000_12, 7.0], [999.0, 1001.0], [5.0, 123_456_789.0]] {
                let scale = Scale::of(spacing, values.into_iter()).expect("a scale");
                for value in values {
                    assert!(scale.shows(value), "{spacing:?} {values:?} {scale:?}");
                }
                assert!(scale.ticks.len() < 12, "{spacing:?} {values:?} {:?}", scale.ticks);
            }
        }
    }

    #[test]
    fn no_usable_value_gives_no_scale() {
        for spacing in [Spacing::Linear, Spacing::Time, Spacing::Log, Spacing::Percentile] {
            assert!(Scale::of(spacing, [f64::NAN, f64::INFINITY].into_iter()).is_none());
        }
        assert!(Scale::of(Spacing::Log, [0.0, -1.0].into_iter()).is_none());
    }

    #[test]
    fn percentile_axis_is_spaced_by_nines() {
        let scale = Scale::of(Spacing::Percentile, [0.5, 0.999].into_iter()).expect("a scale");
        let step = scale.place(0.99) - scale.place(0.9);
        assert!((scale.place(0.999) - scale.place(0.99) - step).abs() < 1e-9);
    }
}
