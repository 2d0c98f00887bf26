//! Targets for Postroad relative to Kafka.

use super::{Contender, Figures, Workload};
use crate::report::{Figure, Report, Target, at_least, at_most, megabytes, without_target};

type Leg = (Workload, Contender);
type KafkaReport = Report<Workload, Contender, Figures>;

const POSTROAD_16: Leg = (Workload::Produce16, Contender::Postroad);
const POSTROAD_1000: Leg = (Workload::Produce1000, Contender::Postroad);
const POSTROAD_10000: Leg = (Workload::Produce10000, Contender::Postroad);
const KAFKA_1000: Leg = (Workload::Produce1000, Contender::Kafka);

/// Compared rates: ours, theirs, and the lowest acceptable ratio, if there is one.
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

const RATE: Figure<Figures> = |of| of.records_per_second;
const CPU: Figure<Figures> = |of| Some(of.used.cpu_seconds_per_million);

/// Evaluates every target with available figures.
pub(super) fn of(report: &KafkaReport) -> Vec<Target> {
    let mut targets = Vec::new();
    judge_rates(report, &mut targets);
    judge_latency(report, &mut targets);
    judge_cost(report, &mut targets);
    targets.into_iter().flatten().collect()
}

fn judge_rates(report: &KafkaReport, targets: &mut Vec<Option<Target>>) {
    targets.extend(RATES.map(|(what, ours, theirs, factor)| {
        let (ours, theirs) = (report.median(ours, RATE), report.median(theirs, RATE));
        match factor {
            Some(factor) => at_least(what, ours, theirs, factor),
            None => without_target(what, ours, theirs),
        }
    }));
    let megabytes = report.median(POSTROAD_16, RATE).map(|records| records * 1024.0 / 1e6);
    let disk = report.disk_megabytes_per_second();
    targets.push(at_least("produce 16: MB/s to the disk's synced MB/s", megabytes, disk, 0.7));
}

fn judge_latency(report: &KafkaReport, targets: &mut Vec<Option<Target>>) {
    use Contender::{Kafka, KafkaFlush, Postroad};
    let p50 = |contender| report.median((Workload::Latency, contender), |of| of.consumed_p50_us);
    let p99 = |contender| report.median((Workload::Latency, contender), |of| of.consumed_p99_us);
    let bound = report.two_hops_and_a_sync_us();
    targets.extend([
        at_most("latency p50 to Kafka (flush)", p50(Postroad), p50(KafkaFlush), 0.5),
        at_most("latency p99 to Kafka (flush)", p99(Postroad), p99(KafkaFlush), 0.5),
        without_target("latency p50 to Kafka (no sync)", p50(Postroad), p50(Kafka)),
        without_target("latency p99 to Kafka (no sync)", p99(Postroad), p99(Kafka)),
        at_most("latency p50 to two hops and a sync", p50(Postroad), bound, 1.5),
    ]);
}

fn judge_cost(report: &KafkaReport, targets: &mut Vec<Option<Target>>) {
    use Contender::{Kafka, Postroad};
    for (workload, what) in [
        (Workload::Produce16, "produce, 16 partitions: CPU per record to Kafka (no sync)"),
        (Workload::Consume, "consume a backlog: CPU per record to Kafka (no sync)"),
    ] {
        let cpu = |contender| report.median((workload, contender), CPU);
        targets.push(at_most(what, cpu(Postroad), cpu(Kafka), 0.5));
    }
    let idle = report.worst(Postroad, |of| Some(of.memory.idle_mb));
    let peak = report.worst(Postroad, |of| Some(of.memory.peak_mb));
    targets.extend([
        megabytes("memory when idle, worst turn", idle, 64.0),
        megabytes("memory at the peak, worst turn", peak, 256.0),
    ]);
}
