//! Comparison of two sets of runs: improvements, regressions and noise.
//!
//! Runs are paired by test, form, system, tier and parameters; the version does not count, since it
//! is usually what changed. Failed or interrupted runs have no figures, but their number is shown.
//! A single run without a spread never proves an improvement.

mod table;

use std::collections::{BTreeMap, BTreeSet};

use driver::Tier;
use results::{Better, Latency, Run, Verdict};
use serde::Serialize;

use crate::figures;
use crate::statistics::Spread;
use crate::study;

/// Result of [`compare`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub pairs: Vec<Pair>,
    /// Runs without a counterpart.
    pub only_before: Vec<Key>,
    pub only_after: Vec<Key>,
}

/// Attributes by which runs are paired.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Key {
    pub test: String,
    pub form: String,
    pub system: String,
    pub tier: Tier,
    pub parameters: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    pub key: Key,
    pub before: Side,
    pub after: Side,
    /// Other differences between the sides, which may be the cause.
    pub differences: Vec<String>,
    pub lines: Vec<Line>,
}

/// Number of runs of each kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Side {
    pub passed: usize,
    pub failed: usize,
    pub interrupted: usize,
    pub client_bound: usize,
}

/// One figure of both sides.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    pub measure: String,
    pub unit: String,
    pub better: Better,
    pub before: Spread,
    pub after: Spread,
    /// After over before, minus one; `None` if the division is impossible.
    pub change: Option<f64>,
    /// Threshold below which a difference is noise, in the measure's unit.
    pub noise: Option<f64>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Better,
    Worse,
    /// More than noise, but the measure has no better direction.
    Changed,
    /// Below two standard deviations, or below a small share.
    Noise,
    /// Single runs, so the spread is unknown.
    Unproven,
}

/// Pairs the runs of both sides and judges every figure.
pub fn compare(before: &[Run], after: &[Run]) -> Comparison {
    let (before, after) = (by_key(before), by_key(after));
    let missing = |here: &BTreeMap<Key, Vec<&Run>>, there: &BTreeMap<Key, Vec<&Run>>| {
        here.keys().filter(|key| !there.contains_key(*key)).cloned().collect()
    };
    let pair = |(key, earlier): (&Key, &Vec<&Run>)| {
        let later = after.get(key)?;
        Some(Pair {
            key: key.clone(),
            before: Side::of(earlier),
            after: Side::of(later),
            differences: differences(earlier, later),
            lines: lines(earlier, later),
        })
    };
    Comparison {
        pairs: before.iter().filter_map(pair).collect(),
        only_before: missing(&before, &after),
        only_after: missing(&after, &before),
    }
}

impl Comparison {
    /// Whether a figure is worse by more than noise, or a test fails that did not fail before.
    pub fn is_worse(&self) -> bool {
        let fails = |pair: &Pair| pair.before.failed == 0 && pair.after.failed > 0;
        let worse = |pair: &Pair| pair.lines.iter().any(|line| line.outcome == Outcome::Worse);
        self.pairs.iter().any(|pair| fails(pair) || worse(pair))
    }

    /// Number of lines with this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.pairs
            .iter()
            .flat_map(|pair| &pair.lines)
            .filter(|line| line.outcome == outcome)
            .count()
    }

    /// The comparison as JSON, for programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("names are texts and figures are finite")
    }
}

impl Side {
    fn of(runs: &[&Run]) -> Self {
        let mut side = Self::default();
        for run in runs {
            match run.verdict {
                Verdict::Passed => side.passed += 1,
                Verdict::Failed(_) => side.failed += 1,
                Verdict::Interrupted(_) => side.interrupted += 1,
                // Such a run did not take place.
                Verdict::NotSupported(_) => {}
            }
            side.client_bound += usize::from(figures::is_client_bound(run));
        }
        side
    }
}

fn by_key(runs: &[Run]) -> BTreeMap<Key, Vec<&Run>> {
    let mut groups: BTreeMap<Key, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.not_supported().is_none()) {
        let written = |(name, value): (&String, _)| (name.clone(), study::written(value));
        let key = Key {
            test: run.test.name.clone(),
            form: run.test.form.clone(),
            system: run.system.name.clone(),
            tier: run.system.tier,
            parameters: run.test.parameters.iter().map(written).collect(),
        };
        groups.entry(key).or_default().push(run);
    }
    groups
}

/// Lists the attributes that differ between the two sides.
fn differences(before: &[&Run], after: &[&Run]) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |name: &str, of: &dyn Fn(&Run) -> String| {
        let values = |runs: &[&Run]| {
            let values: BTreeSet<String> = runs.iter().map(|run| of(run)).collect();
            values.into_iter().collect::<Vec<_>>().join(" | ")
        };
        let (before, after) = (values(before), values(after));
        if before != after {
            found.push(format!("{name}: {before} → {after}"));
        }
    };
    note("version", &|run| run.system.version.clone());
    note("client", &|run| run.system.client.clone());
    note("“sent” means", &|run| run.system.sent_means.clone());
    note("suite", &|run| run.suite.clone());
    note("CPU", &|run| format!("{}, {} cores", run.host.cpu, run.host.cores));
    note("disk", &|run| run.host.disk.clone());
    note("kernel", &|run| run.host.kernel.clone());
    let settings = || before.iter().chain(after).flat_map(|run| run.system.settings.keys());
    for name in settings().collect::<BTreeSet<_>>() {
        note(name, &|run| {
            run.system.settings.get(name).cloned().unwrap_or("as it comes".to_owned())
        });
    }
    found
}

/// One figure of a run, and its interpretation.
struct Figure {
    unit: String,
    better: Better,
    value: f64,
    deviation: Option<f64>,
}

/// All figures of a run by name, in display order.
fn figures_of(run: &Run) -> Vec<(String, Figure)> {
    let mut found: Vec<(String, Figure)> = Vec::new();
    for measure in &run.measures {
        let figure = Figure {
            unit: measure.unit.clone(),
            better: measure.better,
            value: measure.value,
            deviation: measure.deviation,
        };
        found.push((measure.name.clone(), figure));
    }
    let lower = |unit: &str, value| Figure {
        unit: unit.to_owned(),
        better: Better::Lower,
        value,
        deviation: None,
    };
    for (name, latency) in &run.latencies {
        found.extend(percentiles(name, latency).map(|(name, value)| (name, lower("us", value))));
    }
    let derived = [
        ("server CPU s/million", "", figures::cpu_per_million(run)),
        ("server memory", "bytes", figures::memory_max(run)),
        ("errors", "", Some(run.seconds.iter().map(|second| second.errors).sum::<u64>() as f64)),
        ("longest way", "us", Some(run.audit.dwell_max_us as f64)),
    ];
    let some = derived.into_iter().filter_map(|(name, unit, value)| Some((name, unit, value?)));
    found.extend(some.map(|(name, unit, value)| (name.to_owned(), lower(unit, value))));
    found
}

fn percentiles(name: &str, latency: &Latency) -> impl Iterator<Item = (String, f64)> {
    let shares = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];
    let at =
        |(share, title)| Some((format!("{name} {title}"), figures::quantile_us(latency, share)?));
    shares.into_iter().filter_map(at).collect::<Vec<_>>().into_iter()
}

fn lines(before: &[&Run], after: &[&Run]) -> Vec<Line> {
    let read = |runs: &[&Run]| -> Vec<(String, Figure)> {
        runs.iter().filter(|run| run.counts()).flat_map(|run| figures_of(run)).collect()
    };
    let (before, after) = (read(before), read(after));
    let mut lines: Vec<Line> = Vec::new();
    for (name, figure) in &before {
        let known = |line: &Line| line.measure == *name && line.unit == figure.unit;
        if !lines.iter().any(known) {
            lines.extend(line(name, figure, &before, &after));
        }
    }
    lines
}

/// Returns `None` unless both sides have the figure.
fn line(
    name: &str,
    like: &Figure,
    before: &[(String, Figure)],
    after: &[(String, Figure)],
) -> Option<Line> {
    let spread = |side: &[(String, Figure)]| {
        let same = |(other, figure): &&(String, Figure)| other == name && figure.unit == like.unit;
        let own: Vec<&Figure> = side.iter().filter(same).map(|(_, figure)| figure).collect();
        let values: Vec<f64> = own.iter().map(|figure| figure.value).collect();
        Spread::of(&values, own.first().and_then(|figure| figure.deviation))
    };
    let (before, after) = (spread(before)?, spread(after)?);
    let change = Some(after.median / before.median - 1.0).filter(|change| change.is_finite());
    Some(Line {
        measure: name.to_owned(),
        unit: like.unit.clone(),
        better: like.better,
        before,
        after,
        change,
        noise: before.noise(&after),
        outcome: outcome(like.better, &before, &after),
    })
}

fn outcome(better: Better, before: &Spread, after: &Spread) -> Outcome {
    match (before.differs(after), better) {
        (None, _) => Outcome::Unproven,
        (Some(false), _) => Outcome::Noise,
        (Some(true), Better::Neither) => Outcome::Changed,
        (Some(true), Better::Higher) if after.median > before.median => Outcome::Better,
        (Some(true), Better::Lower) if after.median < before.median => Outcome::Better,
        (Some(true), _) => Outcome::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn runs(rates: &[f64]) -> Vec<Run> {
        let run = |rate: &f64| {
            let mut run = example::run("mqperf/base", "alpha");
            run.measures = vec![example::measure("received", *rate, "messages/s", Better::Higher)];
            run
        };
        rates.iter().map(run).collect()
    }

    fn outcome_of(before: &[f64], after: &[f64]) -> Line {
        let comparison = compare(&runs(before), &runs(after));
        comparison.pairs[0]
            .lines
            .iter()
            .find(|line| line.measure == "received")
            .expect("it")
            .clone()
    }

    #[test]
    fn a_difference_below_two_deviations_is_noise() {
        let line = outcome_of(&[100.0, 110.0, 90.0], &[105.0, 115.0, 95.0]);
        assert_eq!((line.outcome, line.noise), (Outcome::Noise, Some(20.0)));
        assert!((line.change.expect("a change") - 0.05).abs() < 1e-9);
    }

    #[test]
    fn difference_beyond_noise_is_better_or_worse_by_the_measures_direction() {
        let (low, high) = ([100.0, 101.0, 99.0], [120.0, 121.0, 119.0]);
        assert_eq!(outcome_of(&low, &high).outcome, Outcome::Better);
        assert_eq!(outcome_of(&high, &low).outcome, Outcome::Worse);
        let spread = |median| Spread { median, deviation: Some(1.0), runs: 3 };
        assert_eq!(outcome(Better::Lower, &spread(10.0), &spread(20.0)), Outcome::Worse);
        assert_eq!(outcome(Better::Lower, &spread(20.0), &spread(10.0)), Outcome::Better);
        assert_eq!(outcome(Better::Neither, &spread(20.0), &spread(10.0)), Outcome::Changed);
    }

    #[test]
    fn single_runs_are_unproven_without_a_stated_deviation() {
        assert_eq!(outcome_of(&[100.0], &[500.0]).outcome, Outcome::Unproven);
        assert_eq!(outcome_of(&[100.0], &[100.0]).outcome, Outcome::Noise);
        let (mut before, after) = (runs(&[100.0]), runs(&[500.0]));
        before[0].measures[0].deviation = Some(10.0);
        let comparison = compare(&before, &after);
        assert_eq!(comparison.pairs[0].lines[0].outcome, Outcome::Better);
    }

    #[test]
    fn failed_runs_give_no_figures_but_are_counted() {
        let (before, mut after) = (runs(&[100.0, 101.0]), runs(&[300.0, 301.0]));
        after[0].verdict = Verdict::Failed(vec!["1 lost".to_owned()]);
        let comparison = compare(&before, &after);
        let pair = &comparison.pairs[0];
        assert_eq!((pair.after.passed, pair.after.failed), (1, 1));
        assert_eq!(pair.lines[0].after.median, 301.0);
        assert!(comparison.is_worse());
    }

    #[test]
    fn runs_of_another_tier_or_parameter_do_not_pair() {
        let before = runs(&[100.0]);
        let mut after = runs(&[100.0, 100.0]);
        after[0].system.tier = Tier::T1;
        after[1].test.parameters.insert("senders".to_owned(), 25.into());
        let comparison = compare(&before, &after);
        assert!(comparison.pairs.is_empty());
        assert_eq!((comparison.only_before.len(), comparison.only_after.len()), (1, 2));
    }

    #[test]
    fn other_differences_are_listed() {
        let (before, mut after) = (runs(&[100.0]), runs(&[100.0]));
        after[0].system.version = "1.1.0".to_owned();
        after[0].system.settings.insert("linger.ms".to_owned(), "5".to_owned());
        let differences = compare(&before, &after).pairs[0].differences.clone();
        assert_eq!(differences, ["version: 1.0.0 → 1.1.0", "linger.ms: as it comes → 5"]);
    }

    #[test]
    fn all_three_forms_name_each_figure() {
        let comparison = compare(&runs(&[100.0, 101.0, 99.0]), &runs(&[120.0, 121.0, 119.0]));
        for text in [comparison.terminal(), comparison.markdown(), comparison.json()] {
            assert!(
                text.contains("received") && text.contains("receive p99") && !text.contains("NaN")
            );
        }
        let read: serde_json::Value = serde_json::from_str(&comparison.json()).expect("JSON");
        assert_eq!(read["pairs"][0]["lines"][0]["outcome"], "better");
        assert_eq!(comparison.count(Outcome::Better), 1);
    }

    #[test]
    fn non_finite_values_make_no_line() {
        let comparison = compare(&runs(&[f64::NAN]), &runs(&[1.0]));
        assert!(comparison.pairs[0].lines.iter().all(|line| line.measure != "received"));
        assert!(!comparison.json().contains("null,\n          \"deviation\""));
        assert!(compare(&[], &[]).terminal().contains("no run"));
    }
}
