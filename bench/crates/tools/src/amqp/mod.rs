//! Postroad and RabbitMQ, with RabbitMQ's own PerfTest as the client of both.
//!
//! RabbitMQ has two kinds of durable queue: a classic one confirms after a write, a quorum one
//! after a sync. Postroad syncs before every confirm and is compared with both.

mod fanout;
mod latency;
mod perf_test;
mod queues;
mod targets;
mod throughput;

use clap::ValueEnum;
use peers::Tier;
use serde::Serialize;

use crate::contest::{Contest, Entry};
use crate::failure::{Failure, Outcome};
use crate::report::{Column, Report, Target};
use crate::stage::{Cast, Footprint, Stage, Used};
use perf_test::{Measured, PerfTest};

/// The compared servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Postroad: a sync before every confirm
    Postroad,
    /// RabbitMQ's classic durable queues: no sync
    RabbitmqClassic,
    /// RabbitMQ's quorum queues: a sync before every confirm
    RabbitmqQuorum,
}

impl Entry for Contender {
    fn title(self) -> &'static str {
        match self {
            Contender::Postroad => "Postroad (sync)",
            Contender::RabbitmqClassic => "RabbitMQ classic (no sync)",
            Contender::RabbitmqQuorum => "RabbitMQ quorum (sync)",
        }
    }
}

/// The measured workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// 1 KB persistent, 200 unconfirmed, prefetch 100, each acknowledged, through 1 queue
    OneQueue,
    /// The same through 10 queues, with a producer and a consumer each
    TenQueues,
    /// One producer, a fanout exchange and 10 queues with a consumer each: deliveries, bytes on disk
    Fanout,
    /// 1 queue and a publisher limited to 2,000 messages/s: latencies
    Latency,
    /// 10,000 queues with one message each: memory
    Queues10000,
}

impl Entry for Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::OneQueue => "1 queue",
            Workload::TenQueues => "10 queues",
            Workload::Fanout => "fanout to 10",
            Workload::Latency => "2,000/s",
            Workload::Queues10000 => "10,000 queues",
        }
    }
}

/// Figures of one turn. `used` is absent without a sustained load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Figures {
    consumed_per_second: Option<f64>,
    confirmed_per_second: Option<f64>,
    confirm_p50_us: Option<f64>,
    confirm_p99_us: Option<f64>,
    consumer_p50_us: Option<f64>,
    consumer_p99_us: Option<f64>,
    /// Cores that PerfTest kept busy. If that is nearly all of them, the client is the bottleneck.
    client_cores: Option<f64>,
    bytes_per_queue: Option<f64>,
    /// Bytes written to the disk for each confirmed message.
    disk_bytes_per_message: Option<f64>,
    #[serde(flatten)]
    used: Option<Used>,
    #[serde(flatten)]
    memory: Footprint,
}

impl Figures {
    /// Figures of a PerfTest run in which the server processed `messages` messages.
    fn of(run: &Measured, messages: f64) -> Self {
        let interval = &run.interval;
        Self {
            consumed_per_second: Some(interval.received_per_second),
            confirmed_per_second: Some(interval.confirmed_per_second),
            confirm_p50_us: Some(interval.confirm.p50_us),
            confirm_p99_us: Some(interval.confirm.p99_us),
            consumer_p50_us: Some(interval.consumer.p50_us),
            consumer_p99_us: Some(interval.consumer.p99_us),
            client_cores: Some(run.client_cpu_seconds / run.seconds),
            used: Some(Used::of(run.server_cpu_seconds, messages)),
            ..Self::default()
        }
    }
}

impl Contender {
    fn cast(self) -> Cast {
        let (broker, tier) = match self {
            Contender::Postroad => ("postroad", Tier::T3),
            // The queue type alone decides.
            Contender::RabbitmqClassic => ("rabbitmq", Tier::T1),
            Contender::RabbitmqQuorum => ("rabbitmq", Tier::T3),
        };
        Cast { broker, tier, protocol: "amqp" }
    }
}

/// The comparison with RabbitMQ.
pub(crate) struct Amqp {
    stage: Stage,
    perf_test: PerfTest,
}

impl Contest for Amqp {
    const NAME: &'static str = "amqp";
    const TITLE: &'static str = "Postroad and RabbitMQ";
    type Contender = Contender;
    type Workload = Workload;
    type Figures = Figures;
    const POSTROAD: Contender = Contender::Postroad;
    const COLUMNS: &'static [Column<Figures>] = &[
        Column::<Figures>::of("consumed/s", &[|of| of.consumed_per_second]).with_spread(),
        Column::<Figures>::of("confirmed/s", &[|of| of.confirmed_per_second]),
        Column::<Figures>::of(
            "confirm p50/p99 us",
            &[|of| of.confirm_p50_us, |of| of.confirm_p99_us],
        ),
        Column::<Figures>::of(
            "consumer p50/p99 us",
            &[|of| of.consumer_p50_us, |of| of.consumer_p99_us],
        ),
        Column::<Figures>::of("CPU s per million", &[|of| Some(of.used?.cpu_seconds_per_million)])
            .decimals(1),
        Column::<Figures>::of("client cores", &[|of| of.client_cores]).decimals(2),
        Column::<Figures>::of("bytes per queue", &[|of| of.bytes_per_queue]),
        Column::<Figures>::of("disk bytes per message", &[|of| of.disk_bytes_per_message]),
        Column::<Figures>::of("idle MB", &[|of| Some(of.memory.idle_mb)]),
        Column::<Figures>::of("peak MB", &[|of| Some(of.memory.peak_mb)]),
        Column::<Figures>::of("after MB", &[|of| Some(of.memory.after_mb)]),
    ];

    fn prepare(stage: Stage, legs: &mut Vec<(Workload, Contender)>) -> Outcome<Amqp> {
        if legs.iter().any(|&(_, contender)| contender != Contender::Postroad) {
            match stage.peers.install("rabbitmq", stage.progress) {
                Ok(installed) => eprintln!("RabbitMQ {}", installed.version),
                Err(failure) => {
                    legs.retain(|&(_, contender)| contender == Contender::Postroad);
                    let failure = Failure::from(failure);
                    eprintln!("RabbitMQ cannot be installed here, Postroad runs alone: {failure}");
                }
            }
        }
        Ok(Amqp { perf_test: PerfTest::install(&stage)?, stage })
    }

    fn contenders(_workload: Workload) -> &'static [Contender] {
        Contender::value_variants()
    }

    fn is_reference_for((workload, _): (Workload, Contender), asked: Workload) -> bool {
        asked == Workload::Fanout && workload == Workload::OneQueue
    }

    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn turn(&self, (workload, contender): (Workload, Contender)) -> Outcome<Figures> {
        let (figures, memory) = self.stage.turn(contender.cast(), |server| match workload {
            Workload::OneQueue => self.throughput(server, contender, 1),
            Workload::TenQueues => self.throughput(server, contender, 10),
            Workload::Fanout => self.fanout(server, contender),
            Workload::Latency => self.latency(server, contender),
            Workload::Queues10000 => self.queues(server, contender),
        })?;
        Ok(Figures { memory, ..figures })
    }

    fn main_figure(figures: &Figures) -> String {
        let mut parts = Vec::new();
        if let Some(rate) = figures.consumed_per_second {
            parts.push(format!("{rate:.0} consumed/s"));
        }
        if let (Some(confirm), Some(consumer)) = (figures.confirm_p99_us, figures.consumer_p99_us) {
            parts.push(format!("p99 {confirm:.0} us confirm, {consumer:.0} us consumer"));
        }
        if let Some(used) = figures.used {
            parts.push(format!("{:.1} CPU s per million", used.cpu_seconds_per_million));
        }
        if let Some(bytes) = figures.disk_bytes_per_message {
            parts.push(format!("{bytes:.0} disk bytes per message"));
        }
        if let Some(bytes) = figures.bytes_per_queue {
            parts.push(format!("{bytes:.0} bytes per queue"));
        }
        parts.push(format!("peak {:.0} MB", figures.memory.peak_mb));
        parts.join(", ")
    }

    fn targets(report: &Report<Workload, Contender, Figures>) -> Vec<Target> {
        targets::of(report)
    }
}
