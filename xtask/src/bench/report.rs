//! From turns to a verdict: medians over the pairs, ratios, and each target of the product beside
//! what was measured, as a table for people, Markdown for notes and JSON for machines.

use std::fmt::Write;

use serde::Serialize;

use super::workload::{Contender, Figures, Workload};
use crate::probe::{Machine, Synced};

/// One turn, as it went.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Turn {
    pub(crate) pair: u32,
    pub(crate) workload: Workload,
    pub(crate) contender: Contender,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// One comparison, and whether its target was met; some have no target and are told for their worth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) figure: String,
    pub(crate) target: String,
    pub(crate) met: Option<bool>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) date: String,
    pub(crate) quick: bool,
    pub(crate) pairs: u32,
    /// One probe a pair.
    pub(crate) machine: Vec<Machine>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) targets: Vec<Target>,
}

type Figure = fn(&Figures) -> Option<f64>;

const RATE: Figure = |figures| figures.records_per_second;
type Leg = (Workload, Contender);

const POSTROAD_16: Leg = (Workload::Produce16, Contender::Postroad);
const POSTROAD_1000: Leg = (Workload::Produce1000, Contender::Postroad);
const POSTROAD_10000: Leg = (Workload::Produce10000, Contender::Postroad);
const KAFKA_1000: Leg = (Workload::Produce1000, Contender::Kafka);

/// Rates held against each other: ours, theirs, and the least ratio that is wanted, if any is.
const RATES: [(&str, Leg, Leg, Option<f64>); 8] = [
    (
        "produce 16: rate to Kafka (no sync)",
        POSTROAD_16,
        (Workload::Produce16, Contender::Kafka),
        Some(1.0),
    ),
    (
        "produce 16: rate to Kafka (flush)",
        POSTROAD_16,
        (Workload::Produce16, Contender::KafkaFlush),
        Some(4.0),
    ),
    ("produce 1,000: rate to Kafka (no sync)", POSTROAD_1000, KAFKA_1000, None),
    (
        "produce 1,000: rate to Kafka (flush)",
        POSTROAD_1000,
        (Workload::Produce1000, Contender::KafkaFlush),
        Some(20.0),
    ),
    ("produce 10,000: rate to its own at 16", POSTROAD_10000, POSTROAD_16, Some(0.9)),
    ("produce 10,000: rate to Kafka (no sync) at 1,000", POSTROAD_10000, KAFKA_1000, Some(2.0)),
    (
        "produce 10,000: rate to Kafka (flush) at 1,000",
        POSTROAD_10000,
        (Workload::Produce1000, Contender::KafkaFlush),
        None,
    ),
    (
        "consume: rate to Kafka",
        (Workload::Consume, Contender::Postroad),
        (Workload::Consume, Contender::Kafka),
        Some(1.0),
    ),
];

const CPU: Figure = |figures| Some(figures.cpu_seconds_per_million);

impl Report {
    /// The median of one figure over the pairs.
    fn median(&self, workload: Workload, contender: Contender, figure: Figure) -> Option<f64> {
        let turns = self.turns.iter();
        let turns = turns.filter(|turn| turn.workload == workload && turn.contender == contender);
        median(turns.filter_map(|turn| figure(&turn.figures)).collect())
    }

    /// The disk's best bandwidth with a sync after every write, whatever the size of the writes.
    fn disk_megabytes_per_second(&self) -> Option<f64> {
        let best = |machine: &Machine| {
            machine.disk.iter().map(|synced| synced.megabytes_per_second).reduce(f64::max)
        };
        median(self.machine.iter().filter_map(best).collect())
    }

    /// The middle latency of the smallest write and sync.
    fn disk_sync_us(&self) -> Option<f64> {
        let smallest = |machine: &Machine| machine.disk.first().map(|synced| synced.p50_us);
        median(self.machine.iter().filter_map(smallest).collect())
    }

    fn loopback_hop_us(&self) -> Option<f64> {
        median(self.machine.iter().map(|machine| machine.loopback_hop_us).collect())
    }

    /// Works out every target whose figures are there.
    pub(crate) fn judge(&mut self) {
        let mut targets = Vec::new();
        self.judge_rates(&mut targets);
        self.judge_latency(&mut targets);
        self.judge_cost(&mut targets);
        self.targets = targets.into_iter().flatten().collect();
    }

    fn judge_rates(&self, targets: &mut Vec<Option<Target>>) {
        let rate = |(workload, contender)| self.median(workload, contender, RATE);
        targets.extend(RATES.map(|(what, ours, theirs, factor)| {
            let (ours, theirs) = (rate(ours), rate(theirs));
            match factor {
                Some(factor) => at_least(what, ours, theirs, factor),
                None => told(what, ours, theirs),
            }
        }));
        let megabytes = rate(POSTROAD_16).map(|records| records * 1024.0 / 1e6);
        let disk = self.disk_megabytes_per_second();
        targets.push(at_least("produce 16: MB/s to the disk's synced MB/s", megabytes, disk, 0.7));
    }

    fn judge_latency(&self, targets: &mut Vec<Option<Target>>) {
        let consumed = |contender, figure| self.median(Workload::Latency, contender, figure);
        let p50: Figure = |figures| figures.consumed_p50_us;
        let p99: Figure = |figures| figures.consumed_p99_us;
        let bound =
            self.loopback_hop_us().zip(self.disk_sync_us()).map(|(hop, sync)| 2.0 * hop + sync);
        let ours = consumed(Contender::Postroad, p50);
        targets.extend([
            at_most(
                "latency p50 to Kafka (flush)",
                ours,
                consumed(Contender::KafkaFlush, p50),
                0.5,
            ),
            at_most(
                "latency p99 to Kafka (flush)",
                consumed(Contender::Postroad, p99),
                consumed(Contender::KafkaFlush, p99),
                0.5,
            ),
            told("latency p50 to Kafka (no sync)", ours, consumed(Contender::Kafka, p50)),
            told(
                "latency p99 to Kafka (no sync)",
                consumed(Contender::Postroad, p99),
                consumed(Contender::Kafka, p99),
            ),
            at_most("latency p50 to two hops and a sync", ours, bound, 1.5),
        ]);
    }

    fn judge_cost(&self, targets: &mut Vec<Option<Target>>) {
        use Contender::{Kafka, Postroad};
        for workload in [Workload::Produce16, Workload::Consume] {
            let cpu = |contender| self.median(workload, contender, CPU);
            let what = format!("{}: CPU per record to Kafka (no sync)", workload.title());
            targets.push(at_most(&what, cpu(Postroad), cpu(Kafka), 0.5));
        }
        let ours = || self.turns.iter().filter(|turn| turn.contender == Postroad);
        let idle = ours().map(|turn| turn.figures.idle_mb).reduce(f64::max);
        let peak = ours().map(|turn| turn.figures.peak_mb).reduce(f64::max);
        targets.extend([
            megabytes("memory when idle, worst turn", idle, 64.0),
            megabytes("memory at the peak, worst turn", peak, 256.0),
        ]);
    }

    /// The whole report as Markdown, which is also what a person sees.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# Postroad and Apache Kafka, {}\n\n", self.date);
        let note = if self.quick { "; quick: counts are too small for conclusions" } else { "" };
        let _ = writeln!(text, "{} pair(s), medians{note}.\n", self.pairs);
        self.write_machine(&mut text);
        self.write_turns(&mut text);
        self.write_targets(&mut text);
        text
    }

    fn write_machine(&self, text: &mut String) {
        let mut table = Table::new(&["write + fdatasync", "p50 us", "p99 us", "MB/s"]);
        let sizes = self.machine.first().map_or(0, |machine| machine.disk.len());
        for size in 0..sizes {
            let of = |figure: fn(&Synced) -> f64| {
                let figures = self.machine.iter().map(|machine| figure(&machine.disk[size]));
                median(figures.collect()).map_or_else(dash, |figure| format!("{figure:.0}"))
            };
            let bytes = self.machine[0].disk[size].write_bytes;
            let rate = of(|synced| synced.megabytes_per_second);
            let name = format!("{} KB", bytes / 1024);
            table.row([name, of(|synced| synced.p50_us), of(|synced| synced.p99_us), rate]);
        }
        table.write(text);
        if let (Some(hop), Some(sync)) = (self.loopback_hop_us(), self.disk_sync_us()) {
            let bound = 2.0 * hop + sync;
            let _ = writeln!(
                text,
                "\nLoopback hop {hop:.0} us (1 KB). Two hops and one sync: {bound:.0} us, times 1.5: {:.0} us.\n",
                bound * 1.5
            );
        }
    }

    fn write_turns(&self, text: &mut String) {
        let mut table = Table::new(&[
            "workload",
            "broker",
            "records/s",
            "tool p50/p99 ms",
            "p50/p99 us",
            "ack p50 us",
            "CPU s per million",
            "idle MB",
            "peak MB",
            "after MB",
        ]);
        let mut legs: Vec<_> =
            self.turns.iter().map(|turn| (turn.workload, turn.contender)).collect();
        legs.sort_unstable();
        legs.dedup();
        for (workload, contender) in legs {
            let of = |figure: Figure| {
                let median = self.median(workload, contender, figure);
                median.map_or_else(dash, |figure| format!("{figure:.0}"))
            };
            let cpu = self.median(workload, contender, CPU);
            table.row([
                workload.title().to_owned(),
                contender.title().to_owned(),
                of(RATE),
                format!("{} / {}", of(|f| f.tool_p50_ms), of(|f| f.tool_p99_ms)),
                format!("{} / {}", of(|f| f.consumed_p50_us), of(|f| f.consumed_p99_us)),
                of(|f| f.acknowledged_p50_us),
                cpu.map_or_else(dash, |cpu| format!("{cpu:.2}")),
                of(|f| Some(f.idle_mb)),
                of(|f| Some(f.peak_mb)),
                of(|f| Some(f.after_mb)),
            ]);
        }
        table.write(text);
        text.push('\n');
    }

    fn write_targets(&self, text: &mut String) {
        let mut table = Table::new(&["target", "measured", "wanted", ""]);
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

fn dash() -> String {
    "-".to_owned()
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

/// A ratio that no target stands for.
fn told(what: &str, ours: Option<f64>, theirs: Option<f64>) -> Option<Target> {
    let target = at_most(what, ours, theirs, 0.0)?;
    Some(Target { target: "-".to_owned(), met: None, ..target })
}

fn at_least(what: &str, ours: Option<f64>, theirs: Option<f64>, factor: f64) -> Option<Target> {
    ratio(what, ours, theirs, factor, |ratio, factor| ratio >= factor)
}

fn at_most(what: &str, ours: Option<f64>, theirs: Option<f64>, factor: f64) -> Option<Target> {
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

fn megabytes(what: &str, figure: Option<f64>, most: f64) -> Option<Target> {
    let figure = figure?;
    Some(Target {
        what: what.to_owned(),
        figure: format!("{figure:.0} MB"),
        target: format!("at most {most:.0} MB"),
        met: Some(figure <= most),
    })
}

/// A number with as many decimals as it needs to be told from another.
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
    fn new(titles: &[&str]) -> Table {
        Table { rows: vec![titles.iter().map(|&title| title.to_owned()).collect()] }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
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
    use super::*;

    fn turn(workload: Workload, contender: Contender, rate: f64) -> Turn {
        let figures = Figures { records_per_second: Some(rate), ..Figures::default() };
        Turn { pair: 1, workload, contender, figures }
    }

    fn report(turns: Vec<Turn>) -> Report {
        let date = "today".to_owned();
        let mut report =
            Report { date, quick: false, pairs: 1, machine: vec![], turns, targets: vec![] };
        report.judge();
        report
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_target_is_judged_by_the_ratio_of_medians_and_only_where_both_were_measured() {
        let report = report(vec![
            turn(Workload::Produce16, Contender::Postroad, 100.0),
            turn(Workload::Produce16, Contender::Postroad, 120.0),
            turn(Workload::Produce16, Contender::Postroad, 500.0),
            turn(Workload::Produce16, Contender::Kafka, 110.0),
            turn(Workload::Produce16, Contender::KafkaFlush, 40.0),
        ]);
        let find = |what: &str| report.targets.iter().find(|target| target.what == what);
        assert!(find("produce 16: rate to Kafka (no sync)").unwrap().met == Some(true));
        let flush = find("produce 16: rate to Kafka (flush)").unwrap();
        assert_eq!((flush.met, flush.target.as_str()), (Some(false), "at least 4x"));
        assert_eq!(flush.figure, "3.00x (120 / 40.00)");
        assert!(find("consume: rate to Kafka").is_none());
    }

    #[test]
    fn the_markdown_holds_every_leg_and_target() {
        let text = report(vec![turn(Workload::Consume, Contender::Kafka, 42.0)]).markdown();
        assert!(text.contains("| consume a backlog | Kafka (no sync) | 42 "));
    }
}
