//! One turn of one broker: started fresh on an empty folder, warmed, measured from outside, and
//! stopped. Both brokers go through the same function, so that neither is treated better.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;

use super::kafka::{Distribution, Flush};
use crate::client::{Answer, Connection, batch};
use crate::failure::{Context, Failure, Outcome};
use crate::process::{self, Memory};
use crate::server::{Postroad, Server, free_port};

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// Postroad: a sync before every acknowledgement
    Postroad,
    /// Apache Kafka as it comes: no sync
    Kafka,
    /// Apache Kafka with log.flush.interval.messages=1
    KafkaFlush,
}

impl Contender {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Contender::Postroad => "Postroad (sync)",
            Contender::Kafka => "Kafka (no sync)",
            Contender::KafkaFlush => "Kafka (flush)",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
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

impl Workload {
    /// Who takes part. Kafka at 10,000 partitions is not asked for.
    pub(crate) fn contenders(self) -> &'static [Contender] {
        use Contender::*;
        match self {
            Workload::Produce16 | Workload::Produce1000 | Workload::Latency => {
                &[Postroad, Kafka, KafkaFlush]
            }
            Workload::Produce10000 => &[Postroad],
            Workload::Consume => &[Postroad, Kafka],
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Workload::Produce16 => "produce, 16 partitions",
            Workload::Produce1000 => "produce, 1,000 partitions",
            Workload::Produce10000 => "produce, 10,000 partitions",
            Workload::Latency => "one at a time",
            Workload::Consume => "consume a backlog",
        }
    }

    fn partitions(self) -> i32 {
        match self {
            Workload::Produce16 | Workload::Consume => 16,
            Workload::Produce1000 => 1_000,
            Workload::Produce10000 => 10_000,
            Workload::Latency => 1,
        }
    }
}

/// What one turn gave.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Of ProducerPerformance or ConsumerPerformance.
    pub(crate) records_per_second: Option<f64>,
    /// ConsumerPerformance without the time to join its group.
    pub(crate) fetched_per_second: Option<f64>,
    /// Of EndToEndLatency.
    pub(crate) tool_p50_ms: Option<f64>,
    pub(crate) tool_p99_ms: Option<f64>,
    /// Of RoundTrip.
    pub(crate) acknowledged_p50_us: Option<f64>,
    pub(crate) consumed_p50_us: Option<f64>,
    pub(crate) consumed_p99_us: Option<f64>,
    /// Of the server, while it was measured.
    pub(crate) cpu_seconds: f64,
    pub(crate) cpu_seconds_per_million: f64,
    /// Resident memory before any load, at its peak, and two seconds after the load.
    pub(crate) idle_mb: f64,
    pub(crate) peak_mb: f64,
    pub(crate) after_mb: f64,
}

/// What a turn needs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) kafka: &'a Distribution,
    pub(crate) postroad: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) payload: &'a Path,
    /// Further arguments of `postroad serve`.
    pub(crate) arguments: &'a [String],
    /// Divides every count, for a quick look.
    pub(crate) scale_down: u64,
}

const TOPIC: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(120);
const RECORD_BYTES: usize = 1024;

impl Stage<'_> {
    /// Runs one turn from an empty folder to a stopped server.
    pub(crate) fn turn(&self, workload: Workload, contender: Contender) -> Outcome<Figures> {
        let folder = self.empty_folder()?;
        let server = self.start(contender, &folder)?;
        std::thread::sleep(Duration::from_secs(2));
        let idle_mb = megabytes(&server, Memory::Resident)?;
        create(&server, workload.partitions())?;
        let mut figures = match workload {
            Workload::Produce16 | Workload::Produce1000 | Workload::Produce10000 => {
                self.produce(&server, workload, contender)?
            }
            Workload::Latency => self.latency(&server, contender)?,
            Workload::Consume => self.consume(&server)?,
        };
        std::thread::sleep(Duration::from_secs(2));
        figures.idle_mb = idle_mb;
        figures.peak_mb = megabytes(&server, Memory::Peak)?;
        figures.after_mb = megabytes(&server, Memory::Resident)?;
        server.stop(Duration::from_secs(60))?;
        self.empty_folder()?;
        Ok(figures)
    }

    fn empty_folder(&self) -> Outcome<PathBuf> {
        let folder = self.folder.join("turn");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    fn start(&self, contender: Contender, folder: &Path) -> Outcome<Server> {
        match contender {
            Contender::Kafka => self.kafka.start(Flush::Never, folder),
            Contender::KafkaFlush => self.kafka.start(Flush::EveryMessage, folder),
            Contender::Postroad => {
                let postroad = Postroad {
                    binary: self.postroad.to_owned(),
                    data: folder.join("data"),
                    log: folder.join("server.log"),
                    port: free_port()?,
                    arguments: self.arguments.to_vec(),
                };
                Ok(postroad.start(PATIENCE)?.0)
            }
        }
    }

    fn scaled(&self, count: u64) -> u64 {
        (count / self.scale_down).max(500)
    }

    fn produce(
        &self,
        server: &Server,
        workload: Workload,
        contender: Contender,
    ) -> Outcome<Figures> {
        // Enough for a run of about ten seconds at the rate that each is known for.
        let (warm_up, records) = match (contender, workload) {
            (Contender::KafkaFlush, Workload::Produce16) => (50_000, 300_000),
            (Contender::KafkaFlush, _) => (10_000, 60_000),
            (_, Workload::Produce16) => (200_000, 1_200_000),
            _ => (100_000, 800_000),
        };
        self.kafka.produce(server.address, TOPIC, self.scaled(warm_up), self.payload)?;
        let records = self.scaled(records);
        let clock = CpuClock::start(server)?;
        let produced = self.kafka.produce(server.address, TOPIC, records, self.payload)?;
        let figures =
            Figures { records_per_second: Some(produced.records_per_second), ..Figures::default() };
        clock.stop(server, records, figures)
    }

    fn consume(&self, server: &Server) -> Outcome<Figures> {
        let records = self.scaled(2_000_000);
        self.kafka.produce(server.address, TOPIC, records, self.payload)?;
        self.kafka.consume(server.address, TOPIC, records / 10)?;
        let clock = CpuClock::start(server)?;
        let consumed = self.kafka.consume(server.address, TOPIC, records)?;
        let figures = Figures {
            records_per_second: Some(consumed.records_per_second),
            fetched_per_second: Some(consumed.fetched_per_second),
            ..Figures::default()
        };
        clock.stop(server, records, figures)
    }

    fn latency(&self, server: &Server, contender: Contender) -> Outcome<Figures> {
        let records = self.scaled(if contender == Contender::KafkaFlush { 3_000 } else { 5_000 });
        let tool = self.kafka.end_to_end(server.address, TOPIC, records)?;
        let clock = CpuClock::start(server)?;
        let round_trip = self.kafka.round_trip(server.address, TOPIC, records)?;
        let figures = Figures {
            tool_p50_ms: Some(tool.p50_ms),
            tool_p99_ms: Some(tool.p99_ms),
            acknowledged_p50_us: Some(round_trip.acknowledged_p50_us),
            consumed_p50_us: Some(round_trip.consumed_p50_us),
            consumed_p99_us: Some(round_trip.consumed_p99_us),
            ..Figures::default()
        };
        // RoundTrip's warm-up is as long as its run.
        clock.stop(server, 2 * records, figures)
    }
}

/// The CPU that a server used over a stretch.
#[derive(Debug)]
struct CpuClock {
    seconds_before: f64,
}

impl CpuClock {
    fn start(server: &Server) -> Outcome<CpuClock> {
        Ok(CpuClock { seconds_before: process::cpu_seconds(server.pid())? })
    }

    fn stop(self, server: &Server, records: u64, figures: Figures) -> Outcome<Figures> {
        let cpu_seconds = process::cpu_seconds(server.pid())? - self.seconds_before;
        let cpu_seconds_per_million = cpu_seconds * 1e6 / records as f64;
        Ok(Figures { cpu_seconds, cpu_seconds_per_million, ..figures })
    }
}

fn megabytes(server: &Server, memory: Memory) -> Outcome<f64> {
    Ok(process::memory_bytes(server.pid(), memory)? as f64 / f64::from(1 << 20))
}

/// Creates the topic, waits until every partition has a leader, and writes one record to each:
/// Kafka makes a partition's files at its first record, which is not what is measured here.
fn create(server: &Server, partitions: i32) -> Outcome {
    let mut connection =
        Connection::open(server.address, PATIENCE).context(|| "cannot connect to the server")?;
    connection.create_topic(TOPIC, partitions, &[]).context(|| "cannot create the topic")?;
    let begun = Instant::now();
    loop {
        let led = connection.partitions_led(TOPIC).context(|| "cannot ask for metadata")?;
        if led == partitions as usize {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{led} of {partitions} partitions have a leader")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    touch(&mut connection, (0..partitions).collect()).context(|| "cannot write the first records")
}

/// One record to each of these partitions. Kafka names a leader some time before that one takes
/// records, so a refused partition is asked again.
fn touch(connection: &mut Connection, mut partitions: Vec<i32>) -> io::Result<()> {
    const IN_FLIGHT: usize = 5;
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let one = batch(std::iter::once(value));
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut refused = Vec::new();
        for some in partitions.chunks(IN_FLIGHT) {
            let sent: io::Result<Vec<i32>> = some
                .iter()
                .map(|&partition| connection.produce(TOPIC, partition, one.clone()))
                .collect();
            for (&partition, correlation) in some.iter().zip(sent?) {
                if let Answer::Refused { .. } = connection.answer(correlation)? {
                    refused.push(partition);
                }
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        partitions = refused;
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(io::Error::other(format!("{} partitions refuse records", partitions.len())))
}
