//! `cargo xtask measure catch-up`: a node of three is away during many writes, and returns. Measures how fast it
//! catches up, also with kills meanwhile, and the cost for clients of the other nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::requests::ProduceOutcome;

use super::{PATIENCE, TOPIC};
use crate::cluster::{Cluster, NODES, NodeFault, leaders_by_any};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output, percentile};
use crate::records::batch;
use crate::{paths, server};

#[derive(Debug, Args)]
pub(crate) struct CatchUpOptions {
    /// Gigabytes (10^9 bytes) that are written while the node is away; three times as much room is needed
    #[arg(long, default_value_t = 10.0)]
    gb: f64,
    /// Partitions of the topic
    #[arg(long, default_value_t = 6)]
    partitions: usize,
    /// How often the node is killed while it catches up, evenly over what it lacks
    #[arg(long, default_value_t = 0)]
    kills: u32,
    /// Records a second that clients write all the time, one at a time
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// A folder on another disk (or in memory) for the node that is away, so that it shares no disk with the others
    #[arg(long, value_name = "DIR")]
    apart: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const RECORD_BYTES: usize = 1024;
const BATCH_RECORDS: usize = 256;
const IN_FLIGHT: usize = 4;
/// Length of the load before, which is the baseline.
const CALM: Duration = Duration::from_secs(20);
/// Pause after the fill: work of nodes and disks that the fill left behind is no cost of catching up.
const SETTLE: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(1_800);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Lag of a follower under load, in entries.
const NEARLY: u64 = 200;
/// A write that takes this long is printed with its time.
const STALL: Duration = Duration::from_millis(30);
/// The place of the node that is away.
const AWAY: usize = NODES - 1;

pub(super) fn run(options: &CatchUpOptions) -> Outcome {
    let folder = paths::fresh("measure-catch-up")?;
    let binary = server::binary(options.bin.as_deref())?;
    let data = folder.join(format!("node-{}", AWAY + 1));
    let apart =
        options.apart.as_deref().map(|it| RelocatedDirectory::new(it, &data)).transpose()?;
    let mut cluster =
        Cluster::found(&binary, &folder, &options.serve, NodeFault::Kill, false, PATIENCE)?;
    Connection::open(cluster.address(0), PATIENCE)
        .and_then(|mut it| it.create_topic(TOPIC, options.partitions as i32, &[]))
        .context(|| "cannot create the topic")?;
    cluster.wait_until_whole(TOPIC, options.partitions, PATIENCE)?;

    eprintln!("{} records a second for {CALM:?}", options.rate);
    let mut calm = write_steadily(options, &cluster, || {
        std::thread::sleep(CALM);
        Ok(())
    })?;
    cluster.take_away(AWAY, NodeFault::Kill)?;
    let bytes = fill(options, &cluster)?;
    let had = stored(&data);
    eprintln!("{:.1} GB are written; the node comes back after {SETTLE:?}", bytes as f64 / 1e9);
    std::thread::sleep(SETTLE);

    let addresses = survivors(&cluster);
    let (mut kills, mut took) = (0, Duration::ZERO);
    let mut during = write_steadily_at(options, &addresses, || {
        let begun = Instant::now();
        cluster.bring_back(AWAY, NodeFault::Kill, PATIENCE)?;
        while let Some(lacks) = missing_entries(&cluster)? {
            let share = f64::from(kills + 1) / f64::from(options.kills + 1);
            let has = stored(&data).saturating_sub(had);
            if kills < options.kills && has as f64 >= share * bytes as f64 {
                kills += 1;
                eprintln!("  killed with {:.1} GB", has as f64 / 1e9);
                cluster.take_away(AWAY, NodeFault::Kill)?;
                cluster.bring_back(AWAY, NodeFault::Kill, PATIENCE)?;
            }
            if begun.elapsed() > WITHIN {
                return Err(Failure::new(format!("it lacks {lacks} entries after {WITHIN:?}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        took = begun.elapsed();
        Ok(())
    })?;
    cluster.still_runs()?;
    cluster.stop(PATIENCE)?;

    let mut figures = Figures::new("measure catch-up");
    let rate = bytes as f64 / took.as_secs_f64() / f64::from(1 << 20);
    figures.add("written while it was away", bytes as f64 / 1e9, "GB");
    figures.add("has everything after", took.as_secs_f64(), "s");
    figures.judge("that is", rate, "MiB/s", "at least 100 MiB/s", rate >= 100.0);
    figures.add("killed meanwhile", f64::from(kills), "times");
    figures.add("a write before, p50", percentile(&mut calm, 0.5), "ms");
    figures.add("a write before, p99", percentile(&mut calm, 0.99), "ms");
    figures.add("a write meanwhile, p50", percentile(&mut during, 0.5), "ms");
    let (before, meanwhile) = (percentile(&mut calm, 0.99), percentile(&mut during, 0.99));
    let most = before * 1.1;
    figures.judge(
        "a write meanwhile, p99",
        meanwhile,
        "ms",
        format!("at most {most:.2} ms"),
        meanwhile <= most,
    );
    figures.publish(options.output)?;
    drop(apart);
    paths::fresh("measure-catch-up").map(drop)
}

/// A directory for one node elsewhere, with a link to it at the place where the cluster expects it.
struct RelocatedDirectory {
    folder: PathBuf,
}

impl RelocatedDirectory {
    fn new(elsewhere: &Path, data: &Path) -> Outcome<RelocatedDirectory> {
        let folder = elsewhere.join(format!("postroad-catch-up-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .context(|| format!("cannot create {}", folder.display()))?;
        let folder = std::fs::canonicalize(&folder)
            .context(|| format!("cannot find {}", folder.display()))?;
        let apart = RelocatedDirectory { folder };
        std::os::unix::fs::symlink(&apart.folder, data)
            .context(|| format!("cannot make a link at {}", data.display()))?;
        Ok(apart)
    }
}

impl Drop for RelocatedDirectory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn survivors(cluster: &Cluster) -> Vec<SocketAddr> {
    (0..AWAY).map(|place| cluster.address(place)).collect()
}

/// Largest lag of the node in any shard, in entries; `None` once it has caught up in every shard.
fn missing_entries(cluster: &Cluster) -> Outcome<Option<u64>> {
    let status = cluster.node(0).run_json_command(&["cluster", "status"])?;
    let node = AWAY as u64 + 1;
    let live = status["nodes"].as_array().into_iter().flatten();
    let is_live = live.clone().any(|it| it["node"] == node && it["live"] == true);
    let shards = status["shards"].as_array().into_iter().flatten();
    let lags = shards.flat_map(|shard| shard["lags"].as_array().into_iter().flatten());
    let of_it = lags.filter(|lag| lag["node"] == node);
    let entries: Vec<u64> = of_it
        .map(|lag| match lag["snapshot_of_bytes"].is_null() {
            true => lag["entries"].as_u64().unwrap_or(u64::MAX),
            false => u64::MAX,
        })
        .collect();
    let worst = entries.iter().copied().max().unwrap_or(0);
    Ok((!is_live || worst > NEARLY).then_some(worst))
}

/// Bytes on the disk below a folder.
fn stored(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(it) if it.is_dir() => stored(&entry.path()),
            // Blocks instead of lengths: files are extended before they are written.
            Ok(it) => std::os::unix::fs::MetadataExt::blocks(&it) * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Writes to the leaders of all partitions at full speed. Returns the bytes of batches.
fn fill(options: &CatchUpOptions, cluster: &Cluster) -> Outcome<u64> {
    let addresses = survivors(cluster);
    let leaders = all_led(&addresses, options.partitions)?;
    let mut led: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
    for (partition, leader) in leaders.iter().enumerate() {
        led.entry(*leader).or_default().push(partition as i32);
    }
    let (wanted, written) = ((options.gb * 1e9) as u64, AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writing: Vec<_> = led
            .into_iter()
            .map(|(leader, partitions)| {
                let (address, written) = (addresses[leader], &written);
                scope.spawn(move || fill_at(address, &partitions, wanted, written))
            })
            .collect();
        writing.into_iter().try_for_each(|it| it.join().expect("it does not panic"))
    })?;
    Ok(written.into_inner())
}

fn fill_at(address: SocketAddr, partitions: &[i32], wanted: u64, written: &AtomicU64) -> Outcome {
    let mut connection = Connection::open(address, PATIENCE).context(|| "cannot connect")?;
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let made = batch(std::iter::repeat_n(value, BATCH_RECORDS));
    let mut under_way = std::collections::VecDeque::new();
    while written.load(Ordering::Relaxed) < wanted || !under_way.is_empty() {
        if written.load(Ordering::Relaxed) < wanted {
            let batches: Vec<_> = partitions.iter().map(|it| (*it, made.clone())).collect();
            let bytes = batches.len() * made.len();
            let sent = connection.produce_each(TOPIC, batches).context(|| "cannot send")?;
            under_way.push_back(sent);
            written.fetch_add(bytes as u64, Ordering::Relaxed);
            if under_way.len() < IN_FLIGHT {
                continue;
            }
        }
        let Some(sent) = under_way.pop_front() else { break };
        let answers = connection.answers(sent).context(|| "no answer came")?;
        if let Some(refused) =
            answers.iter().find(|it| matches!(it, ProduceOutcome::Refused { .. }))
        {
            return Err(Failure::new(format!("a batch is {refused:?}")));
        }
    }
    Ok(())
}

/// The place of each partition's leader, once each of them is one of these nodes.
fn all_led(addresses: &[SocketAddr], partitions: usize) -> Outcome<Vec<usize>> {
    let begun = Instant::now();
    loop {
        let leaders = leaders_by_any(addresses, TOPIC, partitions)?;
        let here = |leader: &Option<usize>| leader.filter(|place| *place < addresses.len());
        if let Some(all) = leaders.iter().map(here).collect() {
            return Ok(all);
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new("some partitions have no leader"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn write_steadily(
    options: &CatchUpOptions,
    cluster: &Cluster,
    what: impl FnOnce() -> Outcome,
) -> Outcome<Vec<Duration>> {
    write_steadily_at(options, &cluster.addresses(), what)
}

/// Writes a record at a time at a fixed rate while `what` runs. Returns the latency of each record, counted from
/// the time at which it was due, so that a record delayed by an earlier one counts as late.
fn write_steadily_at(
    options: &CatchUpOptions,
    addresses: &[SocketAddr],
    what: impl FnOnce() -> Outcome,
) -> Outcome<Vec<Duration>> {
    let leader = all_led(addresses, options.partitions)?[0];
    let mut connection =
        Connection::open(addresses[leader], PATIENCE).context(|| "cannot connect")?;
    let stop = AtomicBool::new(false);
    let every = Duration::from_secs_f64(1.0 / options.rate.max(0.1));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| -> Outcome<Vec<Duration>> {
            let made = batch(std::iter::once(Bytes::from(vec![b'y'; RECORD_BYTES])));
            let (begun, mut waits) = (Instant::now(), Vec::new());
            let mut told = begun;
            while !stop.load(Ordering::Relaxed) {
                let due = begun + every.mul_f64(waits.len() as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let sent = connection.produce(TOPIC, 0, made.clone());
                let sent = sent.context(|| "cannot send")?;
                match connection.answer(sent).context(|| "no answer came")? {
                    ProduceOutcome::Acknowledged { .. } => {
                        let wait = due.elapsed();
                        // One stall delays all records that become due meanwhile, and is printed once.
                        if wait >= STALL && due >= told {
                            let at = (due - begun).as_secs_f64();
                            eprintln!("  at {at:.1} s a write took {wait:.1?}");
                            told = Instant::now();
                        }
                        waits.push(wait);
                    }
                    ProduceOutcome::Refused { code } => {
                        return Err(Failure::new(format!("a record was refused with {code}")));
                    }
                }
            }
            Ok(waits)
        });
        let done = what();
        stop.store(true, Ordering::Relaxed);
        let waits = writing.join().expect("it does not panic");
        done.and(waits)
    })
}
