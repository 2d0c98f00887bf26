//! `cargo xtask measure delays`: records with random due times in a server that is killed while they
//! come due. Each must come once it is due, none early by the clock of this machine, and again only
//! if its settle was not confirmed. How late the latest was, and what a delayed record costs in
//! memory, are the figures.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use clap::Args;
use client::CallError;
use client::blocking::ShareMember;
use client::records::NewRecord;
use client::share::{Settle, Settlement};
use uuid::Uuid;

use super::load::Load;
use super::{PATIENCE, postroad};
use crate::failure::{Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::process::{self, Memory};
use crate::random::Random;
use crate::records::now_ms;
use crate::server::{Postroad, Server};

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
    /// What to print
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
const DELIVER_AT: &str = "postroad.deliver-at";
const FETCH_RECORDS: usize = 500;
const FETCH_WAIT: Duration = Duration::from_millis(200);
/// A consumer that finds the server gone looks for it so often.
const LOOK: Duration = Duration::from_millis(20);
/// All are due and none came for so long: what has not come by then does not come.
const GRACE: Duration = Duration::from_secs(60);
/// A record that comes later than this while the server is up fails the chore.
const LATE_MAX: Duration = Duration::from_secs(5);

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
    postroad.ask(&[&declare[..], &["--partitions", &partitions]].concat())?;
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

/// Resident memory of a server that was left alone for a moment.
fn resident(server: &Server) -> Outcome<u64> {
    thread::sleep(Duration::from_secs(2));
    process::memory_bytes(server.pid(), Memory::Resident)
}

/// When which record is due: a function of its number, so that nothing needs to be remembered.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    seed: u64,
    first_ms: i64,
    spread_ms: u64,
}

impl Schedule {
    fn due_ms(&self, number: u64) -> i64 {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9E37_79B9));
        self.first_ms + random.between(0, self.spread_ms) as i64
    }

    fn last_ms(&self) -> i64 {
        self.first_ms + self.spread_ms as i64
    }
}

fn value(number: u64) -> Bytes {
    const FILLER: &[u8] = &[b'.'; 56];
    let mut value = BytesMut::with_capacity(8 + FILLER.len());
    value.put_u64(number);
    value.put_slice(FILLER);
    value.freeze()
}

/// Stores all of them; how many a second.
fn load(options: &DelaysOptions, server: &Server, schedule: &Schedule) -> Outcome<f64> {
    let mut load = Load::new(server.address, QUEUE, options.partitions)?;
    let begun = Instant::now();
    let mut number = 0;
    load.fill(options.records, options.batch, || {
        let due_ms = schedule.due_ms(number);
        number += 1;
        NewRecord {
            key: None,
            value: value(number - 1),
            headers: vec![(DELIVER_AT, due_ms.to_string())],
        }
    })?;
    if now_ms() > schedule.first_ms {
        let late = (now_ms() - schedule.first_ms) / 1000;
        return Err(Failure::new(format!(
            "the first records were due {late} s before the last ones were stored"
        ))
        .remedy("give it more time to store them, with --lead"));
    }
    Ok(options.records as f64 / begun.elapsed().as_secs_f64())
}

// ------------------------------------------------------------------------------------- the stage

/// What is known of a record.
const WAITS: u8 = 0;
/// Came, and was not settled: if its consumer's server dies now, it must come again.
const CAME: u8 = 1;
/// Its settle was sent, and not confirmed: it may come again.
const ASKED: u8 = 2;
/// Its settle was confirmed.
const SETTLED: u8 = 3;

#[derive(Debug)]
struct Stage {
    address: SocketAddr,
    schedule: Schedule,
    records: Vec<AtomicU8>,
    stops: AtomicBool,
    /// When the server was last ready.
    ready_ms: AtomicI64,
    came: AtomicU64,
    came_again: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    failure: Option<String>,
    /// Of those that were due while the server was up.
    late: Lateness,
    /// Of those that were due before it was ready again: since it was.
    late_after_restart: Lateness,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    records: u64,
    sum_ms: i64,
    worst_ms: i64,
}

impl Lateness {
    fn take(&mut self, late_ms: i64) {
        self.records += 1;
        self.sum_ms += late_ms;
        self.worst_ms = self.worst_ms.max(late_ms);
    }

    fn mean_ms(&self) -> f64 {
        self.sum_ms as f64 / self.records.max(1) as f64
    }
}

impl Stage {
    fn new(address: SocketAddr, records: u64, schedule: Schedule) -> Stage {
        Stage {
            address,
            schedule,
            records: (0..records).map(|_| AtomicU8::new(WAITS)).collect(),
            stops: AtomicBool::new(false),
            ready_ms: AtomicI64::new(i64::MIN),
            came: AtomicU64::new(0),
            came_again: AtomicU64::new(0),
            seen: Mutex::new(Seen::default()),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no consumer panics")
    }

    fn failed(&self) -> Outcome {
        match &self.seen().failure {
            Some(failure) => Err(Failure::new(failure.clone())),
            None => Ok(()),
        }
    }

    /// All have come, and those that a kill took from their consumer have come again.
    fn is_complete(&self) -> bool {
        let open = |state: &AtomicU8| state.load(Ordering::Relaxed) < ASKED;
        self.came.load(Ordering::Relaxed) >= self.records.len() as u64
            && !self.records.iter().any(open)
    }

    fn report(&self, options: &DelaysOptions, figures: &mut Figures) {
        let seen = self.seen();
        figures.add("came", self.came.load(Ordering::Relaxed) as f64, "records");
        let again = self.came_again.load(Ordering::Relaxed);
        figures.add("came again, settle not confirmed", again as f64, "records");
        figures.add("late on the average", seen.late.mean_ms(), "ms");
        let late_max = LATE_MAX.as_millis() as i64;
        figures.judge(
            "late at worst, server up",
            seen.late.worst_ms as f64,
            "ms",
            format!("< {} s", LATE_MAX.as_secs()),
            seen.late.worst_ms < late_max,
        );
        if options.kills > 0 {
            let after = seen.late_after_restart;
            figures.add("due while it was down", after.records as f64, "records");
            figures.add("  late on the average, since ready", after.mean_ms(), "ms");
            figures.add("  late at worst, since ready", after.worst_ms as f64, "ms");
        }
        figures.judge("came early", 0.0, "records", "none", true);
        figures.judge("came after a confirmed settle", 0.0, "records", "none", true);
        figures.judge("never came", 0.0, "records", "none", true);
    }
}

/// How it was when all records had been read.
#[derive(Clone, Copy, Debug)]
struct Read {
    delayed: u64,
    resident: u64,
    took: Duration,
}

/// Waits until all are read, kills the server now and then while they come due, and waits for all.
fn work(
    options: &DelaysOptions,
    postroad: &Postroad,
    stage: &Stage,
    server: Server,
    seed: u64,
) -> Outcome<(Server, Read)> {
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
    // The last settles are confirmed, too.
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
    let queue = postroad.ask(&["queue", "list"]).unwrap_or_else(|failure| failure.to_string());
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

/// The consumers make the server read the queue. It has read all when it counts as many as are
/// neither due nor settled.
fn wait_until_read(
    postroad: &Postroad,
    stage: &Stage,
    server: &Server,
    records: u64,
) -> Outcome<Read> {
    let begun = Instant::now();
    loop {
        stage.failed()?;
        let list = postroad.ask_json(&["queue", "list", QUEUE])?;
        let count = |name: &str| list.get(0).and_then(|queue| queue.get(name)?.as_u64());
        let (Some(delayed), Some(ready)) = (count("delayed"), count("ready")) else {
            return Err(Failure::new(format!("queue list has no counts: {list}")));
        };
        if delayed == records || (ready == 0 && delayed > 0) {
            let took = begun.elapsed();
            let resident = process::memory_bytes(server.pid(), Memory::Resident)?;
            return Ok(Read { delayed, resident, took });
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

// ------------------------------------------------------------------------------------- consumers

/// Consumes, over one restart of the server after the other.
fn consume(stage: &Stage) {
    while !stage.stops.load(Ordering::Relaxed) {
        match consume_until_killed(stage) {
            Ok(()) => return,
            Err(Ended::Gone) => thread::sleep(LOOK),
            Err(Ended::Wrong(failure)) => {
                stage.seen().failure.get_or_insert(failure);
                return;
            }
        }
    }
}

enum Ended {
    /// The connection broke: the server was killed, or is not there yet.
    Gone,
    Wrong(String),
}

impl From<CallError> for Ended {
    fn from(error: CallError) -> Ended {
        let error = std::io::Error::from(error);
        use std::io::ErrorKind::{InvalidData, Other, TimedOut, WouldBlock};
        match error.kind() {
            InvalidData | Other | TimedOut | WouldBlock => Ended::Wrong(error.to_string()),
            _ => Ended::Gone,
        }
    }
}

fn consume_until_killed(stage: &Stage) -> Result<(), Ended> {
    let queues = [QUEUE.to_owned()];
    let id = Uuid::new_v4();
    let mut member = ShareMember::open(stage.address, PATIENCE, GROUP, &queues, id)?;
    let (mut settles, mut numbers): (Vec<Settle>, Vec<u64>) = (Vec::new(), Vec::new());
    loop {
        let stops = stage.stops.load(Ordering::Relaxed);
        let mut leased = match stops {
            // Nothing is taken that would not be settled.
            true if settles.is_empty() => return Ok(()),
            true => member.acknowledge(&settles).map(|()| Vec::new())?,
            false => member.fetch(FETCH_RECORDS, FETCH_WAIT, &settles)?,
        };
        let now_ms = now_ms();
        for number in numbers.drain(..) {
            stage.records[number as usize].store(SETTLED, Ordering::Relaxed);
        }
        settles.clear();
        leased.sort_by_key(|record| (record.partition, record.offset));
        let mut lateness = Vec::with_capacity(leased.len());
        for record in &leased {
            let at = || {
                let (partition, offset, attempt) =
                    (record.partition, record.offset, record.attempt);
                format!("partition {partition}, offset {offset}, delivery {attempt}")
            };
            let number = record.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let number = number.filter(|&number| number < stage.records.len() as u64);
            let Some(number) = number else {
                return Err(Ended::Wrong(format!("{}: a record that nobody sent", at())));
            };
            let due_ms = stage.schedule.due_ms(number);
            if now_ms < due_ms {
                let early = due_ms - now_ms;
                return Err(Ended::Wrong(format!(
                    "VIOLATION: record {number} came {early} ms early ({})",
                    at()
                )));
            }
            match stage.records[number as usize].swap(CAME, Ordering::Relaxed) {
                SETTLED => {
                    return Err(Ended::Wrong(format!(
                        "VIOLATION: record {number} came again after its settle was confirmed ({})",
                        at()
                    )));
                }
                WAITS => {
                    stage.came.fetch_add(1, Ordering::Relaxed);
                    lateness.push((due_ms, now_ms));
                }
                _ => drop(stage.came_again.fetch_add(1, Ordering::Relaxed)),
            }
            numbers.push(number);
            settles.push(record.settle(Settlement::Accept));
        }
        took_in(stage, &lateness);
        // From the next request on.
        for &number in &numbers {
            stage.records[number as usize].store(ASKED, Ordering::Relaxed);
        }
    }
}

fn took_in(stage: &Stage, lateness: &[(i64, i64)]) {
    let ready_ms = stage.ready_ms.load(Ordering::Relaxed);
    let mut seen = stage.seen();
    for &(due_ms, now_ms) in lateness {
        match due_ms < ready_ms {
            // While it is not known to be ready, it was just now.
            true => seen.late_after_restart.take((now_ms - ready_ms).max(0)),
            false => seen.late.take(now_ms - due_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_lie_within_the_spread_and_are_the_same_each_time() {
        let schedule = Schedule { seed: 3, first_ms: 1_000, spread_ms: 50 };
        let dues: Vec<i64> = (0..1_000).map(|number| schedule.due_ms(number)).collect();
        assert!(dues.iter().all(|due| (1_000..=schedule.last_ms()).contains(due)));
        assert_eq!(dues[7], schedule.due_ms(7));
        assert!(dues.iter().any(|&due| due < 1_010) && dues.iter().any(|&due| due > 1_040));
    }
}
