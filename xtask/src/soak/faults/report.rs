//! Verdicts of runs, and how long writes stalled.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::nemesis::{FaultTime, Nemesis};
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
    pub(super) stalls: Vec<Duration>,
}

/// Longest gap between acknowledged writes of each writer that overlaps each fault. Writes are sorted.
pub(super) fn stalls(writers: &[Vec<u64>], faults: &[FaultTime], end: u64) -> Vec<Duration> {
    let mut stalls = Vec::new();
    for FaultTime { begun, ended } in faults {
        let until = ended + AFTER_FAULT_MS;
        for writes in writers.iter().filter(|writes| !writes.is_empty()) {
            let first = writes.partition_point(|at| at < begun).saturating_sub(1);
            let mut longest = 0;
            for at in first..writes.len() {
                let next = writes.get(at + 1).copied().unwrap_or(end.max(writes[at]));
                if writes[at] > until {
                    break;
                }
                longest = longest.max(next - writes[at]);
            }
            stalls.push(Duration::from_millis(longest));
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
        let mut stalls: Vec<Duration> = runs.iter().flat_map(|run| run.stalls.clone()).collect();
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

pub(super) fn name(nemesis: Nemesis) -> String {
    nemesis.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
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
        let writes = vec![0, 10, 20, 5_020, 5_030, 30_000];
        let fault = FaultTime { begun: 1_000, ended: 2_000 };
        let found = stalls(&[writes, vec![]], &[fault], 40_000);
        // The gap after 5,030 began within ten seconds of the fault's end.
        assert_eq!(found, [Duration::from_millis(24_970)]);
        let steady: Vec<u64> = (0..400).map(|at| at * 100).collect();
        assert_eq!(stalls(&[steady], &[fault], 40_000), [Duration::from_millis(100)]);
        let ends = vec![0, 500];
        assert_eq!(stalls(&[ends], &[fault], 9_000), [Duration::from_millis(8_500)]);
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
            stalls: vec![Duration::from_millis(stall)],
        };
        let runs =
            [run(Nemesis::KillOne, 500), run(Nemesis::KillOne, 1_500), run(Nemesis::Pause, 1)];
        let rows = rows(&runs);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].runs, rows[0].violations), (2, 2));
        assert!(table(&rows).contains("p99 at most 1.00 s MISSED"), "{}", table(&rows));
    }
}
