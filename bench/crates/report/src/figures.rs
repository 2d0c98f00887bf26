//! Figures derived from a run's file: the cost of a message, the memory, and series from counters.
//! Each has one definition here, used by the page, the tables and the comparison.

use results::{Latency, Process, Run, Usage};

/// Names of histograms, the fairest first: from the due time, or else from the send time.
pub(crate) const RECEIVE: [&str; 2] = ["receive-due", "receive"];
pub(crate) const SEND: [&str; 2] = ["send-due", "send"];

/// The first named histogram with samples.
pub(crate) fn latency<'a>(run: &'a Run, names: &[&str]) -> Option<&'a Latency> {
    let found = names.iter().filter_map(|name| run.latencies.get(*name));
    found.into_iter().find(|latency| latency.count() > 0)
}

/// Returns `None` if there are too few samples for this share.
pub(crate) fn quantile_us(latency: &Latency, share: f64) -> Option<f64> {
    let enough = latency.count() as f64 * (1.0 - share) >= 0.999;
    enough.then(|| latency.quantile_us(share) as f64)
}

/// Whether the suite was the bottleneck, not the system: the figures are a bound.
pub(crate) fn is_client_bound(run: &Run) -> bool {
    run.remarks.iter().any(|remark| remark.contains("client-bound"))
}

fn servers(run: &Run) -> impl Iterator<Item = &Process> {
    run.processes.iter().filter(|process| !process.is_suite() && process.usage.len() > 1)
}

/// Number of confirmed messages, including the warm-up.
pub(crate) fn confirmed(run: &Run) -> u64 {
    match run.audit.confirmed {
        0 => run.seconds.iter().map(|second| second.confirmed).sum(),
        counted => counted,
    }
}

/// CPU seconds of all server processes over the whole run, for a million confirmed messages.
pub(crate) fn cpu_per_million(run: &Run) -> Option<f64> {
    let messages = confirmed(run);
    let used: f64 = servers(run).map(Process::cpu_seconds).sum();
    let known = messages > 0 && servers(run).next().is_some() && used.is_finite();
    known.then(|| used / (messages as f64 / 1e6))
}

/// Peak of the total resident memory of all server processes, in bytes.
pub(crate) fn memory_max(run: &Run) -> Option<f64> {
    let most = memory_over_time(run).into_iter().map(|(_, bytes)| bytes).fold(0.0, f64::max);
    (most > 0.0).then_some(most)
}

/// Samples with a larger gap give no value for the time between them.
const STALE_SECONDS: f64 = 3.0;

/// Whole seconds in which the processes were sampled.
fn watched(run: &Run) -> std::ops::Range<i64> {
    let times = || servers(run).flat_map(|process| &process.usage).map(|usage| usage.at);
    let first = times().fold(f64::INFINITY, f64::min);
    let last = times().fold(f64::NEG_INFINITY, f64::max);
    if first > last || last - first > 1e6 {
        0..0
    } else {
        first.floor() as i64..last.ceil() as i64 + 1
    }
}

/// Resident bytes of all server processes together, for each second.
pub(crate) fn memory_over_time(run: &Run) -> Vec<(f64, f64)> {
    let at = |process: &Process, time: f64| {
        let seen = process.usage.iter().rev().find(|usage| usage.at <= time)?;
        (time - seen.at < STALE_SECONDS).then_some(seen.resident_bytes as f64)
    };
    over_time(run, at)
}

/// Cores that all server processes together keep busy, for each second.
pub(crate) fn cores_over_time(run: &Run) -> Vec<(f64, f64)> {
    over_time(run, |process, time| {
        let between = |pair: &&[Usage]| pair[0].at <= time && time < pair[1].at;
        let pair = process.usage.windows(2).find(between)?;
        let (span, used) = (pair[1].at - pair[0].at, pair[1].cpu - pair[0].cpu);
        (span < STALE_SECONDS && used >= 0.0).then(|| used / span)
    })
}

/// The sum over the server processes that have a value at each time.
fn over_time(run: &Run, value: impl Fn(&Process, f64) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for second in watched(run) {
        let time = second as f64 + 0.5;
        let values: Vec<f64> = servers(run).filter_map(|process| value(process, time)).collect();
        if !values.is_empty() {
            points.push((time, values.iter().sum()));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn process(name: &str, looks: &[(f64, f64, u64)]) -> Process {
        let look = |(at, cpu, resident_bytes): &(f64, f64, u64)| Usage {
            at: *at,
            cpu: *cpu,
            resident_bytes: *resident_bytes,
            written_bytes: 0,
        };
        Process { name: name.to_owned(), usage: looks.iter().map(look).collect() }
    }

    #[test]
    fn the_cost_counts_servers_only_and_survives_a_restart() {
        let mut run = example::run("mqperf/base", "kafka");
        run.audit.confirmed = 2_000_000;
        run.processes = vec![
            process("broker", &[(0.0, 10.0, 1), (1.0, 14.0, 1), (2.0, 1.0, 1)]),
            process("broker 2", &[(0.0, 1.0, 1), (2.0, 2.0, 1)]),
            process("suite", &[(0.0, 0.0, 1), (2.0, 100.0, 1)]),
        ];
        assert_eq!(cpu_per_million(&run), Some(3.0));
        run.audit.confirmed = 0;
        run.seconds.clear();
        assert_eq!(cpu_per_million(&run), None);
    }

    #[test]
    fn memory_is_the_peak_of_the_sum_not_the_sum_of_peaks() {
        let mut run = example::run("mqperf/base", "kafka");
        run.processes = vec![
            process("broker", &[(0.0, 0.0, 100), (1.0, 0.0, 300), (2.0, 0.0, 100)]),
            process("broker 2", &[(0.0, 0.0, 300), (1.0, 0.0, 100), (2.0, 0.0, 100)]),
        ];
        assert_eq!(memory_max(&run), Some(400.0));
    }

    #[test]
    fn quantile_needs_enough_samples() {
        let mut latency = Latency::default();
        (1..=100).for_each(|micros| latency.record_us(micros));
        assert!(quantile_us(&latency, 0.99).is_some());
        assert!(quantile_us(&latency, 0.999).is_none());
    }
}
