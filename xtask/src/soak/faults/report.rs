//! Verdicts of runs, and how long writes stalled.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::nemesis::{FaultTime, Nemesis};
use super::workloads::Workload;
use crate::figures::percentile;

/// A stall that begins this soon after a fault still counts as caused by it.
const AFTER_FAULT_MS: u64 = 10_000;

#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) nemesis: String,
    pub(super) seed: u64,
    pub(super) faults: usize,
    pub(super) violations: Vec<String>,
    /// Why the run could not be judged.
    pub(super) failure: Option<String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    pub(super) stalls: Vec<Stall>,
}

/// The acknowledged writes of one client, in milliseconds since the run began.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) workload: Workload,
    pub(super) writes: Vec<u64>,
}

/// A time without an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Stall {
    pub(super) length: Duration,
    /// Since the run began.
    pub(super) begun: Duration,
    pub(super) workload: Workload,
}

/// Longest gap between acknowledged writes of each writer that overlaps each fault. Writes are sorted.
pub(super) fn stalls(writers: &[Writer], faults: &[FaultTime], end: u64) -> Vec<Stall> {
    let mut stalls = Vec::new();
    for FaultTime { begun, ended } in faults {
        let until = ended + AFTER_FAULT_MS;
        for Writer { workload, writes } in writers.iter().filter(|it| !it.writes.is_empty()) {
            let first = writes.partition_point(|at| at < begun).saturating_sub(1);
            let mut longest = (0, 0);
            for at in first..writes.len() {
                let next = writes.get(at + 1).copied().unwrap_or(end.max(writes[at]));
                if writes[at] > until {
                    break;
                }
                longest = longest.max((next - writes[at], writes[at]));
            }
            let (length, begun) =
                (Duration::from_millis(longest.0), Duration::from_millis(longest.1));
            stalls.push(Stall { length, begun, workload: *workload });
        }
    }
    stalls
}

/// Stalls of all runs of a nemesis.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) nemesis: String,
    pub(super) runs: usize,
    pub(super) faults: usize,
    pub(super) violations: usize,
    pub(super) failures: usize,
    pub(super) stall_ms_median: f64,
    pub(super) stall_ms_p99: f64,
    pub(super) stall_ms_longest: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stall_ms_p99_max: Option<f64>,
}

pub(super) fn rows(runs: &[Run]) -> Vec<Row> {
    let mut by_nemesis: BTreeMap<Nemesis, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        if let Ok(nemesis) = Nemesis::from_str(&run.nemesis, false) {
            by_nemesis.entry(nemesis).or_default().push(run);
        }
    }
    let row = |(nemesis, runs): (Nemesis, Vec<&Run>)| {
        let mut stalls: Vec<Duration> =
            runs.iter().flat_map(|run| &run.stalls).map(|stall| stall.length).collect();
        Row {
            nemesis: name(nemesis),
            runs: runs.len(),
            faults: runs.iter().map(|run| run.faults).sum(),
            violations: runs.iter().map(|run| run.violations.len()).sum(),
            failures: runs.iter().filter(|run| run.failure.is_some()).count(),
            stall_ms_median: percentile(&mut stalls, 0.5),
            stall_ms_p99: percentile(&mut stalls, 0.99),
            stall_ms_longest: percentile(&mut stalls, 1.0),
            stall_ms_p99_max: nemesis.stall_max().map(|max| max.as_secs_f64() * 1e3),
        }
    };
    by_nemesis.into_iter().map(row).collect()
}

pub(super) fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

pub(super) fn table(rows: &[Row]) -> String {
    let head = ["nemesis", "runs", "faults", "violations", "failed", "median", "p99", "longest"];
    let mut table = String::new();
    let line = |cells: [String; 8]| {
        let [name, rest @ ..] = cells;
        let rest: String = rest.iter().map(|cell| format!(" {cell:>10}")).collect();
        format!("  {name:<18}{rest}")
    };
    table.push_str(
        "stalls of writes: longest gap between acknowledgements of a writer, for each fault\n",
    );
    table.push_str(&line(head.map(str::to_owned)));
    table.push('\n');
    for row in rows {
        let seconds = |ms: f64| format!("{:.2} s", ms / 1e3);
        let cells = [
            row.nemesis.clone(),
            row.runs.to_string(),
            row.faults.to_string(),
            row.violations.to_string(),
            row.failures.to_string(),
            seconds(row.stall_ms_median),
            seconds(row.stall_ms_p99),
            seconds(row.stall_ms_longest),
        ];
        table.push_str(&line(cells));
        if let Some(max) = row.stall_ms_p99_max {
            let met = if row.stall_ms_p99 <= max { "met" } else { "MISSED" };
            table.push_str(&format!("   p99 at most {} {met}", seconds(max)));
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_the_longest_gap_that_overlaps_a_fault() {
        let fault = FaultTime { begun: 1_000, ended: 2_000 };
        let found = |writes: &[u64], end| {
            let writer =
                |writes: &[u64]| Writer { workload: Workload::Queue, writes: writes.to_vec() };
            let found = stalls(&[writer(writes), writer(&[])], &[fault], end);
            let millis = |stall: &Stall| (stall.begun.as_millis(), stall.length.as_millis());
            found.iter().map(millis).collect::<Vec<_>>()
        };
        // The gap after 5,030 began within ten seconds of the fault's end.
        assert_eq!(found(&[0, 10, 20, 5_020, 5_030, 30_000], 40_000), [(5_030, 24_970)]);
        let steady: Vec<u64> = (0..400).map(|at| at * 100).collect();
        assert_eq!(found(&steady, 40_000)[0].1, 100);
        assert_eq!(found(&[0, 500], 9_000), [(500, 8_500)]);
    }

    #[test]
    fn table_has_a_row_for_each_nemesis_with_its_target() {
        let run = |nemesis, stall| Run {
            nemesis: name(nemesis),
            seed: 1,
            faults: 1,
            violations: vec!["one".to_owned()],
            failure: None,
            counts: BTreeMap::new(),
            stalls: vec![Stall {
                length: Duration::from_millis(stall),
                begun: Duration::ZERO,
                workload: Workload::Queue,
            }],
        };
        let runs =
            [run(Nemesis::KillOne, 500), run(Nemesis::KillOne, 1_500), run(Nemesis::Pause, 1)];
        let rows = rows(&runs);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].runs, rows[0].violations), (2, 2));
        assert!(table(&rows).contains("p99 at most 1.00 s MISSED"), "{}", table(&rows));
    }
}
