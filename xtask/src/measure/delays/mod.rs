//! `cargo xtask measure delays`: records with random due times in a server that is killed while they become due.
//! Each must be delivered once it is due, none early by the clock of this machine, and again only if its settle was
//! not confirmed. The figures are the worst lateness and the memory of a delayed record.
//!
//! * [`schedule`]: due times of the records, and storing them
//! * [`stage`]: state of the records, and the figures
//! * [`consumer`]: leases and settles them

mod consumer;
mod schedule;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::{PATIENCE, postroad};
use crate::failure::{Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::random::Random;
use crate::records::now_ms;
use crate::server::{Postroad, Server};
use consumer::consume;
use host::process::{self, Memory};
use schedule::{Schedule, load};
use stage::{ASKED, Stage};

#[derive(Debug, Args)]
pub(crate) struct DelaysOptions {
    /// Records; 10000000 is the full size
    #[arg(long, default_value_t = 200_000)]
    records: u64,
    /// Due times are spread over so many seconds [default: one for each 10,000 records, at least 30]
    #[arg(long)]
    spread: Option<u64>,
    /// Seconds from the start until the first is due [default: 10, and one for each 50,000 records]
    #[arg(long)]
    lead: Option<u64>,
    /// How often the server is killed while they come due
    #[arg(long, default_value_t = 4)]
    kills: u32,
    /// Consumers
    #[arg(long, default_value_t = 4)]
    consumers: usize,
    /// Partitions of the topic
    #[arg(long, default_value_t = 8)]
    partitions: u32,
    /// Records in a batch
    #[arg(long, default_value_t = 20)]
    batch: usize,
    /// Repeats the choices of an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const FOLDER: &str = "measure-delays";
const QUEUE: &str = "delays";
const GROUP: &str = "main";
const FETCH_WAIT: Duration = Duration::from_millis(200);
/// Interval at which a consumer tries to reconnect to a killed server.
const LOOK: Duration = Duration::from_millis(20);
/// Records that are still missing after no delivery for this long, with all of them due, are lost.
const GRACE: Duration = Duration::from_secs(60);

pub(super) fn run(options: &DelaysOptions) -> Outcome {
    let seed = options.seed.unwrap_or_else(Random::any_seed);
    let folder = paths::fresh(FOLDER)?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let figures = measure(options, &postroad, seed).map_err(|failure| {
        failure.remedy(format!("seed {seed}; data and log are kept in {}", folder.display()))
    })?;
    figures.publish(options.output)?;
    paths::fresh(FOLDER).map(drop)
}

fn measure(options: &DelaysOptions, postroad: &Postroad, seed: u64) -> Outcome<Figures> {
    let (server, _) = postroad.start(PATIENCE)?;
    let partitions = options.partitions.to_string();
    let declare = ["queue", "declare", QUEUE, "--group", GROUP, "--lease", "1m"];
    postroad.run_command(&[&declare[..], &["--partitions", &partitions]].concat())?;
    let lead = options.lead.unwrap_or(10 + options.records / 50_000);
    let spread = options.spread.unwrap_or((options.records / 10_000).max(30));
    let first_ms = now_ms() + lead as i64 * 1000;
    let schedule = Schedule { seed, first_ms, spread_ms: spread * 1000 };
    let idle = resident(&server)?;
    let stored = load(options, &server, &schedule)?;
    let loaded = resident(&server)?;

    let mut figures = Figures::new(format!(
        "measure delays: {} records, due within {spread} s, {} kills",
        options.records, options.kills
    ));
    figures.add("stored", stored, "records/s");
    let stage = Stage::new(server.address, options.records, schedule);
    let (server, read) = thread::scope(|scope| {
        for _ in 0..options.consumers {
            scope.spawn(|| consume(&stage));
        }
        let done = work(options, postroad, &stage, server, seed);
        stage.stops.store(true, Ordering::Relaxed);
        done
    })?;
    server.stop(PATIENCE)?;
    figures.add("memory before", idle as f64 / 1e6, "MB");
    figures.add("stored, nobody consumes", loaded as f64 / 1e6, "MB");
    figures.add("all read and delayed", read.resident as f64 / 1e6, "MB");
    figures.add("  of them delayed at that moment", read.delayed as f64, "records");
    figures.add("until all were read", read.took.as_secs_f64(), "s");
    let each = |more: u64| more as f64 / read.delayed.max(1) as f64;
    figures.add(
        "per delayed record, all growth",
        each(read.resident.saturating_sub(idle)),
        "bytes",
    );
    figures.add(
        "per delayed record, since stored",
        each(read.resident.saturating_sub(loaded)),
        "bytes",
    );
    stage.report(options, &mut figures);
    Ok(figures)
}

/// Resident memory of the server after a moment without load.
fn resident(server: &Server) -> Outcome<u64> {
    thread::sleep(Duration::from_secs(2));
    Ok(process::memory_bytes(server.pid(), Memory::Resident)?)
}

/// Figures taken once the server had read all records.
#[derive(Clone, Copy, Debug)]
struct ReadFigures {
    delayed: u64,
    resident: u64,
    took: Duration,
}

/// Waits until the server has read all records, kills it at random moments while they become due, and waits for all
/// of them.
fn work(
    options: &DelaysOptions,
    postroad: &Postroad,
    stage: &Stage,
    server: Server,
    seed: u64,
) -> Outcome<(Server, ReadFigures)> {
    let read = wait_until_read(postroad, stage, &server, options.records)?;
    let mut random = Random::new(seed);
    let (from, to) = (now_ms().max(stage.schedule.first_ms), stage.schedule.last_ms());
    let mut moments: Vec<i64> = (0..options.kills)
        .map(|_| random.between(from as u64, to.max(from) as u64) as i64)
        .collect();
    moments.sort_unstable();
    let mut server = server;
    for (number, moment) in moments.into_iter().enumerate() {
        wait_until(stage, &mut server, moment)?;
        server.kill()?;
        stage.ready_ms.store(i64::MAX, Ordering::Relaxed);
        let (again, took) = postroad.start(PATIENCE)?;
        stage.ready_ms.store(now_ms(), Ordering::Relaxed);
        let came = stage.came.load(Ordering::Relaxed);
        eprintln!("  kill {}: {came} had come; ready again after {took:.1?}", number + 1);
        server = again;
    }
    wait_until(stage, &mut server, stage.schedule.last_ms())?;
    let (mut moved, mut told) = (Instant::now(), Instant::now());
    let mut before = 0;
    while !stage.is_complete() {
        stage.failed()?;
        server.still_runs()?;
        let came = stage.came.load(Ordering::Relaxed) + stage.came_again.load(Ordering::Relaxed);
        if came != before {
            (before, moved) = (came, Instant::now());
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("  all are due, {came} of {} came", options.records);
        }
        if moved.elapsed() > GRACE {
            return Err(missing(stage, postroad));
        }
        thread::sleep(LOOK);
    }
    // Time for the confirms of the last settles.
    thread::sleep(FETCH_WAIT * 3);
    stage.failed()?;
    Ok((server, read))
}

fn missing(stage: &Stage, postroad: &Postroad) -> Failure {
    let waits = |(_, state): &(usize, &AtomicU8)| state.load(Ordering::Relaxed) < ASKED;
    let missing: Vec<usize> =
        stage.records.iter().enumerate().filter(waits).map(|(number, _)| number).collect();
    let first = missing.first().copied().unwrap_or_default() as u64;
    let due_ms = stage.schedule.due_ms(first);
    let queue =
        postroad.run_command(&["queue", "list"]).unwrap_or_else(|failure| failure.to_string());
    Failure::new(format!(
        "VIOLATION: {} records have not come, or not again; all are due, and for {GRACE:?} none \
         came; the first is record {first}, due at {due_ms} (ms since 1970)\n{queue}",
        missing.len()
    ))
}

fn wait_until(stage: &Stage, server: &mut Server, moment_ms: i64) -> Outcome {
    let mut told = Instant::now();
    while now_ms() < moment_ms {
        stage.failed()?;
        server.still_runs()?;
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let came = stage.came.load(Ordering::Relaxed);
            let worst = stage.seen().late.worst_ms;
            eprintln!("  {came} of {} came, {worst} ms late at worst", stage.records.len());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Waits until the server has read the whole queue, which consumers make it do: its count of delayed records then
/// equals the number of records that are neither due nor settled.
fn wait_until_read(
    postroad: &Postroad,
    stage: &Stage,
    server: &Server,
    records: u64,
) -> Outcome<ReadFigures> {
    let begun = Instant::now();
    loop {
        stage.failed()?;
        let list = postroad.run_json_command(&["queue", "list", QUEUE])?;
        let count = |name: &str| list.get(0).and_then(|queue| queue.get(name)?.as_u64());
        let (Some(delayed), Some(ready)) = (count("delayed"), count("ready")) else {
            return Err(Failure::new(format!("queue list has no counts: {list}")));
        };
        if delayed == records || (ready == 0 && delayed > 0) {
            let took = begun.elapsed();
            let resident = process::memory_bytes(server.pid(), Memory::Resident)?;
            return Ok(ReadFigures { delayed, resident, took });
        }
        if now_ms() > stage.schedule.last_ms() {
            return Err(Failure::new(format!(
                "of {records} delayed records {delayed} were read when the last was due"
            ))
            .remedy("give it more time, with --lead or --spread"));
        }
        thread::sleep(Duration::from_millis(100));
    }
}
