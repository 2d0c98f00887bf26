//! `cargo xtask measure`: single figures of the real binary, each with its target.

mod catch_up;
mod console;
mod cost;
mod delays;
mod idle;
mod keys;
mod latency;
pub(crate) mod load;
mod produce;
mod scale;
mod space;
mod waiting;

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, Subcommand};
use client::blocking::{Connection, SentBatches};
use client::requests::ProduceOutcome;

use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::records::batch;
use crate::server::{self, Postroad, Server};
use host::probe;
use host::process::{self, Memory};

#[derive(Debug, Subcommand)]
pub(crate) enum Measure {
    /// Time to `ready` of an empty start, and after kill -9 with gigabytes stored
    Restart(RestartOptions),
    /// Time to create many partitions, memory and file descriptors that they take
    Partitions(PartitionsOptions),
    /// Rate and latency of acknowledged records, from a load that costs next to nothing
    Produce(produce::ProduceOptions),
    /// One record at a time, until it is acknowledged and until it is consumed
    Latency(latency::LatencyOptions),
    /// A queue ordered by key, with and without a key that fails: what that costs the others
    Keys(keys::KeysOptions),
    /// Delayed records under kill -9: each once it is due, how late, and bytes of memory each
    Delays(delays::DelaysOptions),
    /// Bytes on disk after settles out of order and requeues, with idle queues all over the journal
    Space(space::SpaceOptions),
    /// Bytes of memory for each record that waits in a queue
    Waiting(waiting::WaitingOptions),
    /// A node of three that was away while gigabytes were written: how fast it has them, what that costs writers
    CatchUp(catch_up::CatchUpOptions),
    /// Processor time and memory of a node that is left alone with much stored
    Idle(idle::IdleOptions),
    /// Cost of TLS, log-ins, rules, quotas, scrapes and the history of records, against a server without
    Cost(cost::CostOptions),
    /// How soon the console's pages are there, with many topics, sessions and a load
    Console(console::ConsoleOptions),
    /// One, three and five nodes times one, two and four shards a node: idle, a record's cost and latency, another hop
    Scale(scale::ScaleOptions),
    /// Three nodes with very many partitions and queues: how soon they are made, their memory, and how soon another node
    /// leads
    Rows(scale::RowsOptions),
    /// Limits of this machine: write + fdatasync by size, and a hop over loopback
    Machine(MachineOptions),
}

#[derive(Debug, Args)]
pub(crate) struct RestartOptions {
    /// Gigabytes (10^9 bytes) to store before the kill
    #[arg(long, default_value_t = 10.0)]
    gb: f64,
    /// Partitions of the topic
    #[arg(long, default_value_t = 16)]
    partitions: i32,
    /// Restarts to time, each after a kill -9
    #[arg(long, default_value_t = 3)]
    restarts: u32,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PartitionsOptions {
    /// Partitions to create in one topic
    #[arg(long, default_value_t = 100_000)]
    count: i32,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MachineOptions {
    /// Seconds for each size of write
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A folder on the disk to measure
    #[arg(long, default_value = "target/xtask")]
    dir: PathBuf,
}

const EMPTY_START_MAX: Duration = Duration::from_millis(200);
const RESTART_MAX: Duration = Duration::from_secs(2);
const CREATE_MAX: Duration = Duration::from_secs(5);
const BYTES_PER_PARTITION_MAX: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(120);
const TOPIC: &str = "measured";

pub(crate) fn run(measure: &Measure) -> Outcome {
    match measure {
        Measure::Restart(options) => restart(options),
        Measure::Partitions(options) => partitions(options),
        Measure::Produce(options) => produce::run(options),
        Measure::Latency(options) => latency::run(options),
        Measure::Keys(options) => keys::run(options),
        Measure::Delays(options) => delays::run(options),
        Measure::Space(options) => space::run(options),
        Measure::Waiting(options) => waiting::run(options),
        Measure::CatchUp(options) => catch_up::run(options),
        Measure::Idle(options) => idle::run(options),
        Measure::Cost(options) => cost::run(options),
        Measure::Console(options) => console::run(options),
        Measure::Scale(options) => scale::run(options),
        Measure::Rows(options) => scale::rows(options),
        Measure::Machine(options) => machine(options),
    }
}

/// Figures with a target; a missed one fails the chore at its end, when all have been printed.
#[derive(Debug, Default)]
struct Verdict {
    missed: Vec<&'static str>,
}

impl Verdict {
    fn print(&mut self, what: &'static str, figure: String, target: &str, met: bool) {
        println!("  {what:<44} {figure:>14}   target {target:<16} {}", verdict(met));
        if !met {
            self.missed.push(what);
        }
    }

    fn end(self) -> Outcome {
        if self.missed.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!("missed: {}", self.missed.join(", "))))
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

fn postroad(bin: Option<&Path>, folder: &Path, arguments: &[String]) -> Outcome<Postroad> {
    Ok(Postroad {
        binary: server::binary(bin)?,
        data: folder.join("data"),
        log: folder.join("server.log"),
        port: server::free_port()?,
        arguments: arguments.to_vec(),
    })
}

fn restart(options: &RestartOptions) -> Outcome {
    let folder = paths::fresh("measure-restart")?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let mut verdict = Verdict::default();
    let (server, took) = postroad.start(PATIENCE)?;
    let met = took < EMPTY_START_MAX;
    verdict.print("empty start to ready", format!("{took:.1?}"), "< 200 ms", met);

    let bytes = (options.gb * 1e9) as u64;
    let begun = Instant::now();
    let stored = fill(server.address, options.partitions, bytes)?;
    let rate = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
    println!("  stored {:.1} GB in {:.0?} ({rate:.0} MB/s)", bytes as f64 / 1e9, begun.elapsed());
    server.kill()?;

    let mut worst = Duration::ZERO;
    for round in 1..=options.restarts {
        let cold = drop_page_cache();
        let (server, ready) = postroad.start(PATIENCE)?;
        let begun = Instant::now();
        let ends = check_ends(server.address, options.partitions, &stored)?;
        println!(
            "  restart {round}: ready after {ready:.1?}, first answers {:.1?} later, {ends} records, {}",
            begun.elapsed(),
            if cold { "page cache emptied before" } else { "page cache warm (not root)" }
        );
        worst = worst.max(ready);
        server.kill()?;
    }
    verdict.print("restart to ready, worst", format!("{worst:.1?}"), "< 2 s", worst < RESTART_MAX);
    paths::fresh("measure-restart")?;
    verdict.end()
}

/// Fills the topic evenly. Returns the number of acknowledged records of each partition.
fn fill(address: SocketAddr, partitions: i32, bytes: u64) -> Outcome<Vec<i64>> {
    const RECORD_BYTES: usize = 1024;
    const BATCH_RECORDS: usize = 512;
    const IN_FLIGHT: usize = 8;
    let mut connection =
        Connection::open(address, PATIENCE).context(|| "cannot connect to postroad")?;
    connection.create_topic(TOPIC, partitions, &[]).context(|| "cannot create the topic")?;
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let batch = batch(std::iter::repeat_n(value, BATCH_RECORDS));
    let batches = bytes.div_ceil(batch.len() as u64);
    let mut stored = vec![0; partitions as usize];
    let mut in_flight = VecDeque::with_capacity(IN_FLIGHT);
    let mut told = Instant::now();
    for number in 0..batches {
        if in_flight.len() == IN_FLIGHT {
            await_replies(&mut connection, &mut in_flight, &mut stored, BATCH_RECORDS)?;
        }
        let partition = (number % partitions as u64) as i32;
        let sent = connection
            .produce(TOPIC, partition, batch.clone())
            .context(|| "postroad does not take the load")?;
        in_flight.push_back((sent, partition as usize));
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            println!("  filling: {:.0} %", number as f64 * 100.0 / batches as f64);
        }
    }
    while !in_flight.is_empty() {
        await_replies(&mut connection, &mut in_flight, &mut stored, BATCH_RECORDS)?;
    }
    Ok(stored)
}

fn await_replies(
    connection: &mut Connection,
    in_flight: &mut VecDeque<(SentBatches, usize)>,
    stored: &mut [i64],
    records: usize,
) -> Outcome {
    let Some((sent, partition)) = in_flight.pop_front() else { return Ok(()) };
    match connection.answer(sent).context(|| "postroad does not answer the load")? {
        ProduceOutcome::Acknowledged { .. } => stored[partition] += records as i64,
        ProduceOutcome::Refused { code } => {
            return Err(Failure::new(format!("a batch was refused with error code {code}")));
        }
    }
    Ok(())
}

/// Checks after a restart that every acknowledged record is within the end offsets, and readable.
fn check_ends(address: SocketAddr, partitions: i32, stored: &[i64]) -> Outcome<i64> {
    let mut connection =
        Connection::open(address, PATIENCE).context(|| "cannot connect after the restart")?;
    let ends = connection.end_offsets(TOPIC, partitions).context(|| "cannot list end offsets")?;
    if ends != stored {
        return Err(Failure::new(format!("end offsets {ends:?}, but acknowledged {stored:?}")));
    }
    let tail: Vec<(i32, i64)> =
        ends.iter().enumerate().map(|(index, end)| (index as i32, end - 1)).collect();
    let fetched = connection.fetch(TOPIC, &tail, Duration::ZERO).context(|| "cannot fetch")?;
    if let Some(bad) = fetched.iter().find(|partition| partition.error_code != 0) {
        let (partition, code) = (bad.partition, bad.error_code);
        return Err(Failure::new(format!("partition {partition}: fetch gave error code {code}")));
    }
    if fetched.iter().all(|partition| partition.records.is_empty()) {
        return Err(Failure::new(format!("a fetch of the last records, {tail:?}, gave nothing")));
    }
    Ok(ends.iter().sum())
}

/// Drops the page cache, so that the restart reads from the disk. This needs root; otherwise the restart is warm.
fn drop_page_cache() -> bool {
    let file = File::options().write(true).open("/proc/sys/vm/drop_caches");
    file.and_then(|mut file| file.write_all(b"1")).is_ok()
}

fn machine(options: &MachineOptions) -> Outcome {
    let folder = paths::root().join(&options.dir);
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let each = Duration::try_from_secs_f64(options.seconds).context(|| "--seconds")?;
    let machine = probe::machine(&folder, each)?;
    println!(
        "{:>17} {:>9} {:>9} {:>9} {:>7}",
        "write + fdatasync", "p50 us", "p99 us", "MB/s", "writes"
    );
    for synced in &machine.disk {
        let size = format!("{} KB", synced.write_bytes / 1024);
        let (p50, p99, writes) = (synced.p50_us, synced.p99_us, synced.writes);
        println!(
            "{size:>17} {p50:>9.0} {p99:>9.0} {:>9.0} {writes:>7}",
            synced.megabytes_per_second
        );
    }
    println!("loopback hop {:.1} us (half of a 1 KB ping-pong)", machine.loopback_hop_us);
    Ok(())
}

fn partitions(options: &PartitionsOptions) -> Outcome {
    let folder = paths::fresh("measure-partitions")?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let (server, _) = postroad.start(PATIENCE)?;
    let count = options.count;
    // A first topic pays for allocations of first use.
    let mut connection =
        Connection::open(server.address, PATIENCE).context(|| "cannot connect to postroad")?;
    connection.create_topic("first", 1, &[]).context(|| "cannot create a topic")?;
    let before = Footprint::of(&server)?;
    let begun = Instant::now();
    connection.create_topic(TOPIC, count, &[]).context(|| "cannot create the partitions")?;
    let created = begun.elapsed();
    let after = Footprint::of(&server)?;

    let mut verdict = Verdict::default();
    println!("  {count} partitions in one topic");
    let met = created < CREATE_MAX;
    verdict.print("created in", format!("{created:.1?}"), "< 5 s", met);
    let each = (after.resident as f64 - before.resident as f64) / f64::from(count);
    let met = each < BYTES_PER_PARTITION_MAX;
    verdict.print("resident memory per idle partition", format!("{each:.0} bytes"), "< 100", met);
    let met = after.files <= before.files;
    let files = format!("{} -> {}", before.files, after.files);
    verdict.print("open files before and after", files, "no more", met);
    println!(
        "  resident memory {:.1} MB -> {:.1} MB",
        before.resident as f64 / 1e6,
        after.resident as f64 / 1e6
    );

    let led = connection.partitions_led(TOPIC).context(|| "cannot ask for metadata")?;
    if led != count as usize {
        return Err(Failure::new(format!("{led} of {count} partitions have a leader")));
    }
    server.kill()?;
    let (server, ready) = postroad.start(PATIENCE)?;
    let again = Footprint::of(&server)?;
    let rss = again.resident as f64 / 1e6;
    println!("  restarted after kill -9: ready after {ready:.1?}, resident {rss:.1} MB");
    server.stop(PATIENCE)?;
    paths::fresh("measure-partitions")?;
    verdict.end()
}

#[derive(Debug)]
struct Footprint {
    resident: u64,
    files: usize,
}

impl Footprint {
    /// Footprint of an idle server: it sleeps first, since buffers of a recent burst are not part of the idle size.
    fn of(server: &Server) -> Outcome<Footprint> {
        std::thread::sleep(Duration::from_secs(2));
        Ok(Footprint {
            resident: process::memory_bytes(server.pid(), Memory::Resident)?,
            files: process::open_files(server.pid())?,
        })
    }
}
