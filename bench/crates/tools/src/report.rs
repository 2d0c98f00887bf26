//! From turns to a verdict: medians over the pairs, ratios, and each target beside the measured
//! figure. Rendered as a table for people, Markdown for notes and JSON for machines.

use std::fmt::Write;

use host::probe::{Machine, Synced};
use serde::Serialize;

use crate::contest::Entry;

/// One turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turn<W, C, F> {
    pub(crate) pair: u32,
    pub(crate) workload: W,
    pub(crate) contender: C,
    #[serde(flatten)]
    pub(crate) figures: F,
}

/// One comparison, and whether its target was met; some have no target and are informative.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) figure: String,
    pub(crate) target: String,
    pub(crate) met: Option<bool>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report<W, C, F> {
    pub(crate) date: String,
    pub(crate) quick: bool,
    pub(crate) pairs: u32,
    /// One probe for each pair.
    pub(crate) machine: Vec<Machine>,
    pub(crate) turns: Vec<Turn<W, C, F>>,
    pub(crate) targets: Vec<Target>,
}

/// One figure of a turn, if it has that figure.
pub(crate) type Figure<F> = fn(&F) -> Option<f64>;

/// A column of the table of turns: medians over the pairs.
#[derive(Debug)]
pub(crate) struct Column<F: 'static> {
    pub(crate) title: &'static str,
    /// Several figures share one cell, separated by slashes.
    pub(crate) figures: &'static [Figure<F>],
    pub(crate) decimals: usize,
    /// Shows the minimum and the maximum of the pairs after the median, as a measure of its
    /// reliability.
    pub(crate) spread: bool,
}

impl<F> Column<F> {
    pub(crate) const fn of(title: &'static str, figures: &'static [Figure<F>]) -> Column<F> {
        Column { title, figures, decimals: 0, spread: false }
    }

    pub(crate) const fn decimals(self, decimals: usize) -> Column<F> {
        Column { decimals, ..self }
    }

    pub(crate) const fn with_spread(self) -> Column<F> {
        Column { spread: true, ..self }
    }
}

impl<W: Entry, C: Entry, F> Report<W, C, F> {
    fn figures(&self, (workload, contender): (W, C), figure: Figure<F>) -> Vec<f64> {
        let turns = self.turns.iter();
        let turns = turns.filter(|turn| turn.workload == workload && turn.contender == contender);
        turns.filter_map(|turn| figure(&turn.figures)).collect()
    }

    /// The median of one figure over the pairs.
    pub(crate) fn median(&self, leg: (W, C), figure: Figure<F>) -> Option<f64> {
        median(self.figures(leg, figure))
    }

    /// The largest of one figure over all turns of one contender.
    pub(crate) fn worst(&self, contender: C, figure: Figure<F>) -> Option<f64> {
        let turns = self.turns.iter().filter(|turn| turn.contender == contender);
        turns.filter_map(|turn| figure(&turn.figures)).reduce(f64::max)
    }

    /// The disk's highest bandwidth with a sync after every write, over all write sizes.
    pub(crate) fn disk_megabytes_per_second(&self) -> Option<f64> {
        let best = |machine: &Machine| {
            machine.disk.iter().map(|synced| synced.megabytes_per_second).reduce(f64::max)
        };
        median(self.machine.iter().filter_map(best).collect())
    }

    /// Median latency of the smallest write and sync.
    fn disk_sync_us(&self) -> Option<f64> {
        let smallest = |machine: &Machine| machine.disk.first().map(|synced| synced.p50_us);
        median(self.machine.iter().filter_map(smallest).collect())
    }

    fn loopback_hop_us(&self) -> Option<f64> {
        median(self.machine.iter().map(|machine| machine.loopback_hop_us).collect())
    }

    /// Lower bound of any durable broker's latency: there, a sync, and back.
    pub(crate) fn two_hops_and_a_sync_us(&self) -> Option<f64> {
        Some(2.0 * self.loopback_hop_us()? + self.disk_sync_us()?)
    }

    /// The whole report as Markdown, which is also the terminal output.
    pub(crate) fn markdown(&self, title: &str, columns: &[Column<F>]) -> String {
        let mut text = format!("# {title}, {}\n\n", self.date);
        let note = if self.quick { "; quick: counts are too small for conclusions" } else { "" };
        let _ = writeln!(text, "{} pair(s), medians{note}.\n", self.pairs);
        self.write_machine(&mut text);
        self.write_turns(&mut text, columns);
        self.write_targets(&mut text);
        text
    }

    fn write_machine(&self, text: &mut String) {
        let mut table = Table::new(["write + fdatasync", "p50 us", "p99 us", "MB/s"]);
        let sizes = self.machine.first().map_or(0, |machine| machine.disk.len());
        for size in 0..sizes {
            let of = |figure: fn(&Synced) -> f64| {
                let figures = self.machine.iter().map(|machine| figure(&machine.disk[size]));
                median(figures.collect())
                    .map_or_else(|| "-".to_owned(), |figure| format!("{figure:.0}"))
            };
            let bytes = self.machine[0].disk[size].write_bytes;
            let rate = of(|synced| synced.megabytes_per_second);
            let name = format!("{} KB", bytes / 1024);
            table.row([name, of(|synced| synced.p50_us), of(|synced| synced.p99_us), rate]);
        }
        table.write(text);
        if let (Some(hop), Some(bound)) = (self.loopback_hop_us(), self.two_hops_and_a_sync_us()) {
            let _ = writeln!(
                text,
                "\nLoopback hop {hop:.0} us (1 KB). Two hops and one sync: {bound:.0} us, times 1.5: {:.0} us.\n",
                bound * 1.5
            );
        }
    }

    fn write_turns(&self, text: &mut String, columns: &[Column<F>]) {
        let titles = columns.iter().map(|column| column.title);
        let mut table = Table::new(["workload", "broker"].into_iter().chain(titles));
        let mut legs: Vec<_> =
            self.turns.iter().map(|turn| (turn.workload, turn.contender)).collect();
        legs.sort_unstable();
        legs.dedup();
        for leg in legs {
            let names = [leg.0.title().to_owned(), leg.1.title().to_owned()];
            let cells = columns.iter().map(|column| self.cell(leg, column));
            table.row(names.into_iter().chain(cells));
        }
        table.write(text);
        text.push('\n');
    }

    fn cell(&self, leg: (W, C), column: &Column<F>) -> String {
        let decimals = column.decimals;
        let medians = column.figures.iter().map(|&figure| {
            let figures = self.figures(leg, figure);
            let Some(median) = median(figures.clone()) else { return "-".to_owned() };
            let (least, most) = (smallest(&figures), largest(&figures));
            if column.spread && least < most {
                format!("{median:.decimals$} ({least:.decimals$}-{most:.decimals$})")
            } else {
                format!("{median:.decimals$}")
            }
        });
        medians.collect::<Vec<String>>().join(" / ")
    }

    fn write_targets(&self, text: &mut String) {
        let mut table = Table::new(["target", "measured", "wanted", ""]);
        for target in &self.targets {
            let met = match target.met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            table.row([
                target.what.clone(),
                target.figure.clone(),
                target.target.clone(),
                met.to_owned(),
            ]);
        }
        table.write(text);
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        length if length % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

fn smallest(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

fn largest(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// A ratio without a target.
pub(crate) fn without_target(what: &str, ours: Option<f64>, theirs: Option<f64>) -> Option<Target> {
    let target = at_most(what, ours, theirs, 0.0)?;
    Some(Target { target: "-".to_owned(), met: None, ..target })
}

pub(crate) fn at_least(
    what: &str,
    ours: Option<f64>,
    theirs: Option<f64>,
    factor: f64,
) -> Option<Target> {
    ratio(what, ours, theirs, factor, |ratio, factor| ratio >= factor)
}

pub(crate) fn at_most(
    what: &str,
    ours: Option<f64>,
    theirs: Option<f64>,
    factor: f64,
) -> Option<Target> {
    ratio(what, ours, theirs, factor, |ratio, factor| ratio <= factor)
}

fn ratio(
    what: &str,
    ours: Option<f64>,
    theirs: Option<f64>,
    factor: f64,
    met: fn(f64, f64) -> bool,
) -> Option<Target> {
    let (ours, theirs) = (ours?, theirs?);
    let ratio = ours / theirs;
    let wanted = if met(f64::INFINITY, factor) { "at least" } else { "at most" };
    Some(Target {
        what: what.to_owned(),
        figure: format!(
            "{ratio:.2}x ({ours:.4} / {theirs:.4})",
            ours = Short(ours),
            theirs = Short(theirs)
        ),
        target: format!("{wanted} {factor}x"),
        met: Some(met(ratio, factor)),
    })
}

pub(crate) fn megabytes(what: &str, figure: Option<f64>, most: f64) -> Option<Target> {
    let figure = figure?;
    Some(Target {
        what: what.to_owned(),
        figure: format!("{figure:.0} MB"),
        target: format!("at most {most:.0} MB"),
        met: Some(figure <= most),
    })
}

/// A number with a suitable number of decimals.
#[derive(Clone, Copy)]
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = if self.0 < 100.0 { 2 } else { 0 };
        write!(f, "{:.decimals$}", self.0)
    }
}

/// A Markdown table whose columns line up, so that it reads in a terminal as well.
#[derive(Debug)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<'a>(titles: impl IntoIterator<Item = &'a str>) -> Table {
        Table { rows: vec![titles.into_iter().map(str::to_owned).collect()] }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn write(&self, text: &mut String) {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:<width$} ");
            }
            text.push_str("|\n");
            if index == 0 {
                for width in &widths {
                    let _ = write!(text, "|{}", "-".repeat(width + 2));
                }
                text.push_str("|\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
    enum Runner {
        Hare,
        Tortoise,
    }

    impl Entry for Runner {
        fn title(self) -> &'static str {
            match self {
                Runner::Hare => "the hare",
                Runner::Tortoise => "the tortoise",
            }
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
    enum Track {
        Field,
    }

    impl Entry for Track {
        fn title(self) -> &'static str {
            "a field"
        }
    }

    const SPEED: Figure<f64> = |speed| Some(*speed);

    fn report(runs: &[(Runner, f64)]) -> Report<Track, Runner, f64> {
        let turn = |(pair, &(contender, figures)): (u32, &(Runner, f64))| Turn {
            pair,
            workload: Track::Field,
            contender,
            figures,
        };
        let turns = (1..).zip(runs).map(turn).collect();
        let date = "today".to_owned();
        Report { date, quick: false, pairs: 1, machine: vec![], turns, targets: vec![] }
    }

    #[test]
    fn median_is_the_middle_value_or_the_mean_of_both() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn target_compares_medians_if_both_were_measured() {
        use Runner::{Hare, Tortoise};
        let report = report(&[(Hare, 100.0), (Hare, 120.0), (Hare, 500.0), (Tortoise, 40.0)]);
        let speed = |runner| report.median((Track::Field, runner), SPEED);
        let target = at_least("speed", speed(Hare), speed(Tortoise), 4.0).unwrap();
        assert_eq!((target.met, target.target.as_str()), (Some(false), "at least 4x"));
        assert_eq!(target.figure, "3.00x (120 / 40.00)");
        assert_eq!(at_least("speed", speed(Hare), speed(Tortoise), 2.0).unwrap().met, Some(true));
        assert_eq!(at_most("speed", speed(Hare), speed(Tortoise), 2.0).unwrap().met, Some(false));
        assert_eq!(without_target("speed", speed(Hare), speed(Tortoise)).unwrap().met, None);
        assert_eq!(without_target("speed", speed(Hare), None), None);
        assert_eq!(report.worst(Hare, SPEED), Some(500.0));
    }

    #[test]
    fn markdown_contains_all_legs_with_spread_and_all_targets() {
        let mut report =
            report(&[(Runner::Hare, 42.0), (Runner::Hare, 43.0), (Runner::Hare, 50.0)]);
        report.targets.extend(at_least("speed", Some(42.0), Some(6.0), 7.0));
        let columns = [Column::of("speed", &[SPEED]).with_spread()];
        let text = report.markdown("A race", &columns);
        assert!(text.starts_with("# A race, today\n"));
        assert!(text.contains("| a field  | the hare | 43 (42-50) |"), "{text}");
        assert!(text.contains("| speed  | 7.00x (42.00 / 6.00) | at least 7x | met |"), "{text}");
    }
}
