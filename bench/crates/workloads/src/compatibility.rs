//! Results in the terms of earlier published suites.
//!
//! `omb`: field names of OpenMessaging Benchmark's result file (milliseconds; end-to-end samples of
//! zero are kept here, while that suite drops them). `mqperf`: the values that its Grafana panel
//! would have shown: the 95th percentile interpolated within buckets of 50 ms, which is 47.5 for
//! anything below 50.

use std::collections::BTreeMap;

use load::Outcome;
use results::Latency;
use serde_json::{Map, Value, json};

pub(crate) fn blocks(outcome: &Outcome) -> BTreeMap<String, Value> {
    [("omb", omb(outcome)), ("mqperf", mqperf(outcome))]
        .map(|(name, block)| (name.to_owned(), block))
        .into()
}

fn omb(outcome: &Outcome) -> Value {
    let measured = outcome.seconds.iter().filter(|second| second.at >= 0);
    let column =
        |of: fn(&results::Second) -> u64| -> Vec<u64> { measured.clone().map(of).collect() };
    let mut block = Map::new();
    block.insert("publishRate".into(), json!(column(|second| second.confirmed)));
    block.insert("publishErrorRate".into(), json!(column(|second| second.errors)));
    block.insert("consumeRate".into(), json!(column(|second| second.received)));
    block.insert("backlog".into(), json!(column(|second| second.backlog)));
    let latencies = &outcome.latencies;
    add_aggregate(&mut block, "PublishLatency", &latencies.send, 1e3);
    add_aggregate(&mut block, "EndToEndLatency", &latencies.receive, 1e3);
    add_aggregate(&mut block, "PublishDelayLatency", &latencies.send_delay, 1.0);
    Value::Object(block)
}

fn add_aggregate(block: &mut Map<String, Value>, name: &str, latency: &Latency, divisor: f64) {
    let summary = latency.summary();
    let of = |micros: u64| json!(micros as f64 / divisor);
    block.insert(format!("aggregated{name}Avg"), json!(summary.mean / divisor));
    for (label, micros) in [
        ("50pct", summary.p50),
        ("75pct", summary.p75),
        ("95pct", summary.p95),
        ("99pct", summary.p99),
        ("999pct", summary.p999),
        ("9999pct", summary.p9999),
        ("Max", summary.max),
    ] {
        block.insert(format!("aggregated{name}{label}"), of(micros));
    }
}

/// Upper bounds of send latencies in milliseconds; those of processing extend to a minute.
const BUCKETS: [u64; 25] = [
    0, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000, 1250, 1500, 1750,
    2000, 2500, 3000, 3500, 4000, 4500,
];
const MORE_BUCKETS: [u64; 11] =
    [5000, 6000, 7000, 8000, 9000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000];

fn mqperf(outcome: &Outcome) -> Value {
    json!({
        "send_p95_ms": bucketed(&outcome.latencies.send, 0.95),
        "processing_p95_ms": bucketed(&outcome.latencies.receive, 0.95),
    })
}

/// Prometheus' `histogram_quantile` over these buckets. `None`: there are no samples.
fn bucketed(latency: &Latency, quantile: f64) -> Option<f64> {
    let wanted = quantile * latency.count() as f64;
    let mut below = (0_u64, 0_u64);
    for bound in BUCKETS.into_iter().chain(MORE_BUCKETS) {
        // Whole milliseconds: 0.9 ms counts as 0.
        let count = latency.count_up_to_us(bound * 1_000 + 999);
        if count as f64 >= wanted && count > 0 {
            let (bound_below, count_below) = below;
            let share = (wanted - count_below as f64) / (count - count_below).max(1) as f64;
            return Some(bound_below as f64 + (bound - bound_below) as f64 * share);
        }
        below = (bound, count);
    }
    (latency.count() > 0).then_some(60_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(micros: &[u64]) -> Latency {
        let mut latency = Latency::default();
        micros.iter().for_each(|micros| latency.record_us(*micros));
        latency
    }

    #[test]
    fn latency_below_50_ms_is_reported_as_47_5_ms() {
        for micros in [2_000, 20_000, 49_000] {
            let shown = bucketed(&latency(&[micros; 100]), 0.95).expect("there are some");
            assert!((shown - 47.5).abs() < 1e-9, "{micros}: {shown}");
        }
    }

    #[test]
    fn sub_millisecond_samples_lower_the_percentile() {
        let half: Vec<u64> = [300, 5_000].repeat(50);
        let shown = bucketed(&latency(&half), 0.95).expect("there are some");
        assert!((shown - 45.0).abs() < 0.1, "{shown}");
    }

    #[test]
    fn latency_beyond_the_last_bucket_is_a_minute_and_no_samples_are_none() {
        assert_eq!(bucketed(&latency(&[90_000_000; 10]), 0.95), Some(60_000.0));
        assert_eq!(bucketed(&latency(&[]), 0.95), None);
    }
}
