//! `cargo xtask measure keys`: a queue ordered by key with very many keys and consumers, without and with one key
//! whose records always fail. The figure is the cost of the failing key for the others. Two things are checked: no
//! key is ever out of order, and the failed records come back in order.
//!
//! * [`producer`]: sends the records; [`value`]: their content
//! * [`consumer`]: leases and settles them
//! * [`lanes`]: checks the order within each key
//! * [`report`]: the figures

mod consumer;
mod lanes;
mod producer;
mod report;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::{PATIENCE, postroad};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::Output;
use crate::paths;
use crate::server::Postroad;
use consumer::consume;
use host::probe::quantile_us;
use lanes::Lanes;
use producer::Producer;
use report::{RoundResult, report};

#[derive(Debug, Args)]
pub(crate) struct KeysOptions {
    /// Keys, each with records in the queue
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
    /// Consumers, each with its own connection
    #[arg(long, default_value_t = 100)]
    consumers: usize,
    /// Partitions of the topic
    #[arg(long, default_value_t = 8)]
    partitions: u32,
    /// Records sent in a second while latencies are taken
    #[arg(long, default_value_t = 4_000)]
    rate: u32,
    /// How long they are taken
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Records of the key that fails
    #[arg(long, default_value_t = 50)]
    poison: u32,
    /// Rounds; in each round once without and once with the key that fails
    #[arg(long, default_value_t = 3)]
    pairs: u32,
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

const FOLDER: &str = "measure-keys";
const QUEUE: &str = "keys";
const DEAD_LETTERS: &str = "keys-dead";
const GROUP: &str = "main";
const ATTEMPTS_MAX: u16 = 5;
const BACKOFF: &str = "20ms";
const STACK_BYTES: usize = 512 << 10;

pub(super) fn run(options: &KeysOptions) -> Outcome {
    let mut turns = Vec::new();
    for pair in 1..=options.pairs.max(1) {
        for poisoned in [false, true] {
            let turn = turn(options, poisoned).map_err(|failure| {
                let with = if poisoned { "with" } else { "without" };
                Failure::new(format!("pair {pair}, {with} the key that fails: {failure}"))
                    .remedy(format!("data and log are kept in target/xtask/{FOLDER}"))
            })?;
            eprintln!(
                "  pair {pair}, {} a key that fails: the others' p50 {:.2} ms, p99 {:.2} ms",
                if poisoned { "with" } else { "without" },
                turn.p50_ms,
                turn.p99_ms
            );
            turns.push(turn);
        }
    }
    paths::fresh(FOLDER)?;
    report(options, &turns).publish(options.output)
}

/// State that the threads of one round share.
#[derive(Debug)]
struct Stage {
    address: SocketAddr,
    /// Origin of the times in values.
    origin: Instant,
    /// The key whose records always fail: consumers release them.
    poison: Option<u32>,
    heals: AtomicBool,
    stops: AtomicBool,
    seen: Mutex<ConsumerResult>,
}

#[derive(Debug)]
struct ConsumerResult {
    lanes: Lanes,
    latencies: Vec<Duration>,
    failure: Option<String>,
}

impl Stage {
    fn seen(&self) -> MutexGuard<'_, ConsumerResult> {
        self.seen.lock().expect("no consumer panics")
    }

    /// Waits until this number of records has ended.
    fn wait(&self, ended: u64, what: &str) -> Outcome {
        let mut moved = (0, Instant::now());
        loop {
            {
                let seen = self.seen();
                if let Some(failure) = &seen.failure {
                    return Err(Failure::new(failure.clone()));
                }
                let now = seen.lanes.ended();
                if now >= ended {
                    return Ok(());
                }
                if now != moved.0 {
                    moved = (now, Instant::now());
                }
            }
            if moved.1.elapsed() > Duration::from_secs(30) {
                return Err(Failure::new(format!(
                    "{what}: {} of {ended} records have ended, and for 30 s none did",
                    moved.0
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn turn(options: &KeysOptions, poisoned: bool) -> Outcome<RoundResult> {
    let folder = paths::fresh(FOLDER)?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let (server, _) = postroad.start(PATIENCE)?;
    declare(options, &postroad)?;
    // The failing key comes after the others.
    let poison = options.keys;
    let stage = Stage {
        address: server.address,
        origin: Instant::now(),
        poison: poisoned.then_some(poison),
        heals: AtomicBool::new(false),
        stops: AtomicBool::new(false),
        seen: Mutex::new(ConsumerResult {
            lanes: Lanes::new(options.keys as usize + 1, ATTEMPTS_MAX),
            latencies: Vec::new(),
            failure: None,
        }),
    };
    let mut producer = Producer::new(&stage, options)?;
    producer.send_backlog()?;
    let turn = thread::scope(|scope| {
        for _ in 0..options.consumers {
            let consumer = thread::Builder::new().stack_size(STACK_BYTES);
            let spawned = consumer.spawn_scoped(scope, || consume(&stage));
            spawned.context(|| "cannot start a consumer")?;
        }
        let turn = work(options, &postroad, &stage, &mut producer);
        stage.stops.store(true, Ordering::Relaxed);
        turn
    })?;
    server.stop(PATIENCE)?;
    Ok(turn)
}

fn declare(options: &KeysOptions, postroad: &Postroad) -> Outcome {
    let (partitions, attempts) = (options.partitions.to_string(), ATTEMPTS_MAX.to_string());
    let declare = ["queue", "declare", QUEUE, "--group", GROUP, "--ordering", "key"];
    let values = ["--partitions", &partitions, "--attempts", &attempts, "--backoff", BACKOFF];
    let others = ["--dead-letter", DEAD_LETTERS, "--lease", "1m"];
    postroad.run_command(&[&declare[..], &values, &others].concat()).map(drop)
}

fn work(
    options: &KeysOptions,
    postroad: &Postroad,
    stage: &Stage,
    producer: &mut Producer<'_>,
) -> Outcome<RoundResult> {
    let begun = Instant::now();
    stage.wait(u64::from(options.keys), "the backlog")?;
    let drained_per_second = f64::from(options.keys) / begun.elapsed().as_secs_f64();
    producer.send_paced()?;
    stage.wait(producer.sent, "the records that are timed")?;
    let mut latencies = std::mem::take(&mut stage.seen().latencies);
    latencies.sort_unstable();
    if latencies.is_empty() {
        return Err(Failure::new("no latency was taken").remedy("take them for more --seconds"));
    }
    let ms = |quantile| quantile_us(&latencies, quantile) / 1e3;
    let (p50_ms, p99_ms) = (ms(0.5), ms(0.99));
    let dead = match stage.poison {
        Some(key) => check_redrive(options, postroad, stage, key)?,
        None => 0,
    };
    let poisoned = stage.poison.is_some();
    Ok(RoundResult { poisoned, p50_ms, p99_ms, drained_per_second, dead })
}

/// Checks that the failed key's records are dead letters, in order and with the right reason, and that they are
/// delivered in order after a redrive. Returns their number.
fn check_redrive(
    options: &KeysOptions,
    postroad: &Postroad,
    stage: &Stage,
    key: u32,
) -> Outcome<usize> {
    let max = (options.poison * 2).max(10).to_string();
    let shown = postroad.run_json_command(&["dead-letter", "show", DEAD_LETTERS, "-n", &max])?;
    let letters = shown.as_array().ok_or_else(|| Failure::new("dead letters are no list"))?;
    for (sequence, letter) in letters.iter().enumerate() {
        let death = letter.get("death").unwrap_or(&Value::Null);
        let is = |name: &str, wanted: Value| death.get(name) == Some(&wanted);
        let right = is("reason", "attempts".into())
            && is("attempts", ATTEMPTS_MAX.into())
            && is("topic", QUEUE.into())
            && is("group", GROUP.into());
        let named = letter.get("key").and_then(Value::as_str) == Some(&key.to_string());
        if !right || !named {
            return Err(Failure::new(format!(
                "dead letter {sequence} should be of key {key}, after {ATTEMPTS_MAX} attempts: \
                 {letter}"
            )));
        }
    }
    let ended = {
        let mut seen = stage.seen();
        let failed = seen.lanes.ended_of(key);
        if failed as usize != letters.len() {
            return Err(Failure::new(format!(
                "{failed} records were given up, and there are {} dead letters",
                letters.len()
            )));
        }
        stage.heals.store(true, Ordering::Relaxed);
        seen.lanes.redrive(key);
        seen.lanes.ended()
    };
    postroad.run_command(&["dead-letter", "redrive", DEAD_LETTERS])?;
    stage.wait(ended + letters.len() as u64, "the records that were sent back")?;
    Ok(letters.len())
}
