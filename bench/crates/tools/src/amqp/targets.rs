//! Targets for Postroad relative to RabbitMQ.

use super::{Contender, Figures, Workload};
use crate::report::{Figure, Report, Target, at_least, at_most, without_target};

type AmqpReport = Report<Workload, Contender, Figures>;

const CONSUMED: Figure<Figures> = |of| of.consumed_per_second;
const CPU: Figure<Figures> = |of| Some(of.used?.cpu_seconds_per_million);
const PEERS: [(Contender, &str); 2] = [
    (Contender::RabbitmqClassic, "classic (no sync)"),
    (Contender::RabbitmqQuorum, "quorum (sync)"),
];

/// Evaluates every target with available figures.
pub(super) fn of(report: &AmqpReport) -> Vec<Target> {
    let mut targets = Vec::new();
    for workload in [Workload::OneQueue, Workload::TenQueues] {
        judge_throughput(report, workload, &mut targets);
    }
    judge_fanout(report, &mut targets);
    judge_latency(report, &mut targets);
    judge_memory(report, &mut targets);
    targets.into_iter().flatten().collect()
}

fn judge_throughput(report: &AmqpReport, workload: Workload, targets: &mut Vec<Option<Target>>) {
    let queues = if workload == Workload::OneQueue { "1 queue" } else { "10 queues" };
    for (peer, name) in PEERS {
        let factor = if peer == Contender::RabbitmqClassic { 3.0 } else { 4.0 };
        let pair = |figure| {
            let ours = report.median((workload, Contender::Postroad), figure);
            (ours, report.median((workload, peer), figure))
        };
        let (ours, theirs) = pair(CONSUMED);
        targets.push(at_least(&format!("{queues}: consumed rate to {name}"), ours, theirs, factor));
        let (ours, theirs) = pair(CPU);
        targets.push(at_most(&format!("{queues}: CPU per message to {name}"), ours, theirs, 0.2));
    }
}

fn judge_fanout(report: &AmqpReport, targets: &mut Vec<Option<Target>>) {
    for (peer, name) in PEERS {
        let pair = |figure| {
            let ours = report.median((Workload::Fanout, Contender::Postroad), figure);
            (ours, report.median((Workload::Fanout, peer), figure))
        };
        let (ours, theirs) = pair(CONSUMED);
        targets.push(without_target(&format!("fanout to 10: deliveries to {name}"), ours, theirs));
        let (ours, theirs) = pair(CPU);
        targets.push(without_target(
            &format!("fanout to 10: CPU per delivery to {name}"),
            ours,
            theirs,
        ));
    }
    let disk =
        |workload| report.median((workload, Contender::Postroad), |of| of.disk_bytes_per_message);
    let (ten, one) = (disk(Workload::Fanout), disk(Workload::OneQueue));
    targets.push(at_most("fanout to 10: disk bytes per message to 1 queue", ten, one, 1.3));
}

fn judge_latency(report: &AmqpReport, targets: &mut Vec<Option<Target>>) {
    let quantiles: [(&str, Figure<Figures>, bool); 4] = [
        ("confirm p50", |of| of.confirm_p50_us, false),
        ("confirm p99", |of| of.confirm_p99_us, true),
        ("consumer p50", |of| of.consumer_p50_us, false),
        ("consumer p99", |of| of.consumer_p99_us, true),
    ];
    for (quantile, figure, has_target) in quantiles {
        for (peer, name) in PEERS {
            let ours = report.median((Workload::Latency, Contender::Postroad), figure);
            let theirs = report.median((Workload::Latency, peer), figure);
            let what = format!("2,000/s: {quantile} to {name}");
            targets.push(match has_target {
                true => at_most(&what, ours, theirs, 0.5),
                false => without_target(&what, ours, theirs),
            });
        }
    }
}

fn judge_memory(report: &AmqpReport, targets: &mut Vec<Option<Target>>) {
    for (peer, name) in PEERS {
        let bytes =
            |contender| report.median((Workload::Queues10000, contender), |of| of.bytes_per_queue);
        let what = format!("10,000 queues: memory per queue to {name}");
        targets.push(at_most(&what, bytes(Contender::Postroad), bytes(peer), 0.05));
    }
}
