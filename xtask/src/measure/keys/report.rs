//! The figures of all rounds.

use super::KeysOptions;
use crate::figures::{Figures, median};

/// A ratio up to this is noise; it is higher if the rounds without a failing key differ by more.
const NOISE: f64 = 1.25;

/// Result of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundResult {
    pub(super) poisoned: bool,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Consumption rate of the backlog of all keys, in records per second.
    pub(super) drained_per_second: f64,
    pub(super) dead: usize,
}

pub(super) fn report(options: &KeysOptions, turns: &[RoundResult]) -> Figures {
    let of = |poisoned: bool, figure: fn(&RoundResult) -> f64| -> Vec<f64> {
        turns.iter().filter(|turn| turn.poisoned == poisoned).map(figure).collect()
    };
    let mut figures = Figures::new(format!(
        "measure keys: {} keys, {} consumers, {} records/s",
        options.keys, options.consumers, options.rate
    ));
    figures.add(
        "backlog of all keys consumed",
        median(&of(false, |it| it.drained_per_second)),
        "/s",
    );
    figures.add("others' p50 without", median(&of(false, |it| it.p50_ms)), "ms");
    figures.add("others' p50 with a key that fails", median(&of(true, |it| it.p50_ms)), "ms");
    let (without, with) = (of(false, |it| it.p99_ms), of(true, |it| it.p99_ms));
    for (pair, (without, with)) in without.iter().zip(&with).enumerate() {
        figures.add(format!("pair {}: others' p99 without", pair + 1), *without, "ms");
        figures.add(format!("pair {}: others' p99 with", pair + 1), *with, "ms");
    }
    figures.add("others' p99 without", median(&without), "ms");
    figures.add("others' p99 with a key that fails", median(&with), "ms");
    let ratios: Vec<f64> =
        without.iter().zip(&with).map(|(without, with)| with / without).collect();
    let (low, high) =
        without.iter().fold((f64::MAX, 0.0_f64), |(low, high), &it| (low.min(it), high.max(it)));
    let noise = NOISE.max(high / low);
    let ratio = median(&ratios);
    let target = format!("<= {noise:.2} (noise)");
    figures.judge("p99 with to without, median", ratio, "", target, ratio <= noise);
    let dead = turns.iter().filter(|turn| turn.poisoned).map(|turn| turn.dead).min();
    let all = options.poison as usize;
    figures.judge(
        "failed records that are dead letters",
        dead.unwrap_or_default() as f64,
        "",
        format!("{all}, reason attempts"),
        dead == Some(all),
    );
    figures.judge("keys out of order", 0.0, "", "none", true);
    figures.judge("redriven records out of order", 0.0, "", "none", true);
    figures
}
