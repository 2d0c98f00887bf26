//! Postroad and Apache Kafka, with Kafka's own tools as the client of both.

mod consume;
mod latency;
mod produce;
mod targets;
mod tools;
mod topic;

use std::fs;
use std::path::PathBuf;

use clap::ValueEnum;
use peers::Tier;
use serde::Serialize;

use crate::contest::{Contest, Entry};
use crate::failure::{Failure, Outcome};
use crate::report::{Column, Report, Target};
use crate::stage::{Cast, Footprint, Stage, Used};
use tools::Tools;

/// The compared servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Postroad: a sync before every acknowledgement
    Postroad,
    /// Apache Kafka as it comes: no sync
    Kafka,
    /// Apache Kafka with log.flush.interval.messages=1
    KafkaFlush,
}

impl Entry for Contender {
    fn title(self) -> &'static str {
        match self {
            Contender::Postroad => "Postroad (sync)",
            Contender::Kafka => "Kafka (no sync)",
            Contender::KafkaFlush => "Kafka (flush)",
        }
    }
}

/// The measured workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// 1 KB records, acks=all, 16 partitions
    Produce16,
    /// The same over 1,000 partitions
    Produce1000,
    /// The same over 10,000 partitions (Postroad; Kafka's at 1,000 beside it)
    Produce10000,
    /// One 1 KB record at a time, produced, acknowledged and consumed
    Latency,
    /// Reading a backlog of 2 GB
    Consume,
}

impl Entry for Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::Produce16 => "produce, 16 partitions",
            Workload::Produce1000 => "produce, 1,000 partitions",
            Workload::Produce10000 => "produce, 10,000 partitions",
            Workload::Latency => "one at a time",
            Workload::Consume => "consume a backlog",
        }
    }
}

impl Workload {
    fn partitions(self) -> i32 {
        match self {
            Workload::Produce16 | Workload::Consume => 16,
            Workload::Produce1000 => 1_000,
            Workload::Produce10000 => 10_000,
            Workload::Latency => 1,
        }
    }
}

/// Figures of one turn.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// From ProducerPerformance or ConsumerPerformance.
    records_per_second: Option<f64>,
    /// ConsumerPerformance without the time to join its group.
    fetched_per_second: Option<f64>,
    /// From EndToEndLatency.
    tool_p50_ms: Option<f64>,
    tool_p99_ms: Option<f64>,
    /// From RoundTrip.
    acknowledged_p50_us: Option<f64>,
    consumed_p50_us: Option<f64>,
    consumed_p99_us: Option<f64>,
    #[serde(flatten)]
    used: Used,
    #[serde(flatten)]
    memory: Footprint,
}

impl Contender {
    fn cast(self) -> Cast {
        let (broker, tier) = match self {
            Contender::Postroad => ("postroad", Tier::T3),
            Contender::Kafka => ("kafka", Tier::T1),
            Contender::KafkaFlush => ("kafka", Tier::T3),
        };
        Cast { broker, tier, protocol: "kafka" }
    }
}

/// The comparison with Kafka.
pub(crate) struct Kafka {
    stage: Stage,
    tools: Tools,
    payload: PathBuf,
}

impl Contest for Kafka {
    const NAME: &'static str = "kafka";
    const TITLE: &'static str = "Postroad and Apache Kafka";
    type Contender = Contender;
    type Workload = Workload;
    type Figures = Figures;
    const POSTROAD: Contender = Contender::Postroad;
    const COLUMNS: &'static [Column<Figures>] = &[
        Column::<Figures>::of("records/s", &[|of| of.records_per_second]).with_spread(),
        Column::<Figures>::of("tool p50/p99 ms", &[|of| of.tool_p50_ms, |of| of.tool_p99_ms]),
        Column::<Figures>::of("p50/p99 us", &[|of| of.consumed_p50_us, |of| of.consumed_p99_us]),
        Column::<Figures>::of("ack p50 us", &[|of| of.acknowledged_p50_us]),
        Column::<Figures>::of("CPU s per million", &[|of| Some(of.used.cpu_seconds_per_million)])
            .decimals(2),
        Column::<Figures>::of("idle MB", &[|of| Some(of.memory.idle_mb)]),
        Column::<Figures>::of("peak MB", &[|of| Some(of.memory.peak_mb)]),
        Column::<Figures>::of("after MB", &[|of| Some(of.memory.after_mb)]),
    ];

    fn prepare(stage: Stage, _legs: &mut Vec<(Workload, Contender)>) -> Outcome<Kafka> {
        // The tools are part of Kafka, so the broker is installed with them.
        let tools = Tools::install(&stage)?;
        let payload = stage.folder().join("payload1k.txt");
        fs::write(&payload, payload_line()).map_err(Failure::file("write", &payload))?;
        Ok(Kafka { stage, tools, payload })
    }

    /// Kafka at 10,000 partitions is not measured.
    fn contenders(workload: Workload) -> &'static [Contender] {
        use Contender::{Kafka, KafkaFlush, Postroad};
        match workload {
            Workload::Produce16 | Workload::Produce1000 | Workload::Latency => {
                &[Postroad, Kafka, KafkaFlush]
            }
            Workload::Produce10000 => &[Postroad],
            Workload::Consume => &[Postroad, Kafka],
        }
    }

    /// Postroad at 10,000 partitions is compared with itself at 16 and Kafka at 1,000.
    fn is_reference_for(leg: (Workload, Contender), asked: Workload) -> bool {
        let held_against = matches!(
            leg,
            (Workload::Produce16, Contender::Postroad) | (Workload::Produce1000, Contender::Kafka)
        );
        asked == Workload::Produce10000 && held_against
    }

    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn turn(&self, (workload, contender): (Workload, Contender)) -> Outcome<Figures> {
        let (figures, memory) = self.stage.turn(contender.cast(), |server| {
            topic::create(server, workload.partitions())?;
            match workload {
                Workload::Produce16 | Workload::Produce1000 | Workload::Produce10000 => {
                    self.produce(server, workload, contender)
                }
                Workload::Latency => self.latency(server, contender),
                Workload::Consume => self.consume(server),
            }
        })?;
        Ok(Figures { memory, ..figures })
    }

    fn main_figure(figures: &Figures) -> String {
        let main = match (figures.records_per_second, figures.consumed_p50_us) {
            (Some(rate), _) => format!("{rate:.0} records/s"),
            (None, Some(p50)) => format!("p50 {p50:.0} us"),
            (None, None) => String::new(),
        };
        let (cpu, peak) = (figures.used.cpu_seconds_per_million, figures.memory.peak_mb);
        format!("{main}, {cpu:.2} CPU s per million, peak {peak:.0} MB")
    }

    fn targets(report: &Report<Workload, Contender, Figures>) -> Vec<Target> {
        targets::of(report)
    }
}

impl Kafka {
    fn scaled(&self, count: u64) -> u64 {
        (count / if self.stage.quick { 10 } else { 1 }).max(500)
    }
}

/// One line of 1,024 letters: the tool reads one record from each line.
fn payload_line() -> Vec<u8> {
    (0..1024_u32).map(|i| b'a' + (i * 7 % 26) as u8).collect()
}
