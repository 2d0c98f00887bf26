//! Results of a chore: figures, some with a target, printed as a table or as JSON. Progress goes to stderr, so that
//! `--output json` stays JSON.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{Context, Failure, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Debug, Serialize)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

/// Percentile in milliseconds; 0 if there are no values. A `part` of 1.0 is the maximum.
pub(crate) fn percentile(waits: &mut [Duration], part: f64) -> f64 {
    waits.sort_unstable();
    let last = waits.len().saturating_sub(1);
    let at = (last as f64 * part).round() as usize;
    waits.get(at).map_or(0.0, |wait| wait.as_secs_f64() * 1e3)
}

/// The figures of one chore, in the order in which they were found.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    chore: String,
    figures: Vec<Figure>,
}

impl Figures {
    pub(crate) fn new(chore: impl Into<String>) -> Figures {
        Figures { chore: chore.into(), figures: Vec::new() }
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { what: what.into(), value, unit, target: None, met: None });
    }

    pub(crate) fn judge(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        target: impl Into<String>,
        met: bool,
    ) {
        let (target, met) = (Some(target.into()), Some(met));
        self.figures.push(Figure { what: what.into(), value, unit, target, met });
    }

    /// Appends the figures of a part of the chore.
    pub(crate) fn append(&mut self, part: Figures) {
        self.figures.extend(part.figures);
    }

    /// Prints the figures, and fails if one of them missed its target.
    pub(crate) fn publish(&self, output: Output) -> Outcome {
        match output {
            Output::Json => {
                let json = serde_json::to_string_pretty(self).context(|| "cannot write JSON")?;
                println!("{json}");
            }
            Output::Table => print!("{}", self.table()),
        }
        let missed = self.figures.iter().filter(|figure| figure.met == Some(false));
        let missed: Vec<&str> = missed.map(|figure| figure.what.as_str()).collect();
        match missed.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(format!("{}: missed: {}", self.chore, missed.join(", ")))),
        }
    }

    fn table(&self) -> String {
        let mut table = format!("{}\n", self.chore);
        for figure in &self.figures {
            let value = format!("{} {}", rounded(figure.value), figure.unit);
            let verdict = match (&figure.target, figure.met) {
                (Some(target), Some(met)) => {
                    format!("   target {target:<24} {}", if met { "met" } else { "MISSED" })
                }
                _ => String::new(),
            };
            let line = format!("  {:<52} {value:>18}{verdict}", figure.what);
            table.push_str(line.trim_end());
            table.push('\n');
        }
        table
    }
}

/// Formats three significant digits, and whole numbers without a fraction.
fn rounded(value: f64) -> String {
    match value.abs() {
        whole if whole >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        tens if tens >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The middle value; the higher one of the two middle values of an even number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_line_for_each_figure_with_its_verdict() {
        let mut figures = Figures::new("measure something");
        figures.add("records", 1_000.0, "");
        figures.judge("p99", 12.34, "ms", "< 10 ms", false);
        let table = figures.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].trim_start().starts_with("records") && lines[1].ends_with("1000"));
        assert!(lines[2].contains("12.3 ms") && lines[2].ends_with("MISSED"));
        let missed = figures.publish(Output::Table).unwrap_err();
        assert!(missed.to_string().contains("missed: p99"));
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
