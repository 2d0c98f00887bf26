//! `cargo xtask measure keys`: a queue ordered by key with very many keys and consumers, without and
//! with one key whose records always fail. What the failing key costs the others is the figure; that
//! no key is ever out of order, and that the failed records come back in order, is checked.

mod lanes;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use clap::Args;
use client::CallError;
use client::blocking::{Connection, SentBatches, ShareMember};
use client::records::NewRecord;
use client::requests::Answer;
use client::share::{Leased, Settlement};
use serde_json::Value;
use uuid::Uuid;

use super::{PATIENCE, postroad};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output, median};
use crate::paths;
use crate::probe::quantile_us;
use crate::random::Random;
use crate::records::batch_of;
use crate::server::Postroad;
use lanes::{Lanes, Place};

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

const FOLDER: &str = "measure-keys";
const QUEUE: &str = "keys";
const DEAD_LETTERS: &str = "keys-dead";
const GROUP: &str = "main";
const ATTEMPTS_MAX: u16 = 5;
const BACKOFF: &str = "20ms";
/// Sent at a time while latencies are taken.
const STEP: Duration = Duration::from_millis(5);
/// Not counted: the first of them find cold caches.
const WARM_UP: Duration = Duration::from_secs(2);
const FETCH_RECORDS: usize = 10;
const FETCH_WAIT: Duration = Duration::from_millis(250);
const STACK_BYTES: usize = 512 << 10;
/// More than this is not noise, whatever the runs without a failing key differ by.
const NOISE: f64 = 1.25;

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

/// What one run gave.
#[derive(Clone, Copy, Debug)]
struct Turn {
    poisoned: bool,
    p50_ms: f64,
    p99_ms: f64,
    /// All keys' records that waited when the consumers came, a second.
    drained_per_second: f64,
    dead: usize,
}

fn report(options: &KeysOptions, turns: &[Turn]) -> Figures {
    let of = |poisoned: bool, figure: fn(&Turn) -> f64| -> Vec<f64> {
        turns.iter().filter(|turn| turn.poisoned == poisoned).map(figure).collect()
    };
    let mut figures = Figures::new(format!(
        "measure keys: {} keys, {} consumers, {} records/s",
        options.keys, options.consumers, options.rate
    ));
    figures.add(
        "backlog of all keys consumed",
        median(&of(false, |it| it.drained_per_second)),
        "/s",
    );
    figures.add("others' p50 without", median(&of(false, |it| it.p50_ms)), "ms");
    figures.add("others' p50 with a key that fails", median(&of(true, |it| it.p50_ms)), "ms");
    let (without, with) = (of(false, |it| it.p99_ms), of(true, |it| it.p99_ms));
    for (pair, (without, with)) in without.iter().zip(&with).enumerate() {
        figures.add(format!("pair {}: others' p99 without", pair + 1), *without, "ms");
        figures.add(format!("pair {}: others' p99 with", pair + 1), *with, "ms");
    }
    figures.add("others' p99 without", median(&without), "ms");
    figures.add("others' p99 with a key that fails", median(&with), "ms");
    let ratios: Vec<f64> =
        without.iter().zip(&with).map(|(without, with)| with / without).collect();
    let (low, high) =
        without.iter().fold((f64::MAX, 0.0_f64), |(low, high), &it| (low.min(it), high.max(it)));
    let noise = NOISE.max(high / low);
    let ratio = median(&ratios);
    let target = format!("<= {noise:.2} (noise)");
    figures.judge("p99 with to without, median", ratio, "", target, ratio <= noise);
    let dead = turns.iter().filter(|turn| turn.poisoned).map(|turn| turn.dead).min();
    let all = options.poison as usize;
    figures.judge(
        "failed records that are dead letters",
        dead.unwrap_or_default() as f64,
        "",
        format!("{all}, reason attempts"),
        dead == Some(all),
    );
    figures.judge("keys out of order", 0.0, "", "none", true);
    figures.judge("redriven records out of order", 0.0, "", "none", true);
    figures
}

/// What the threads of a turn share.
#[derive(Debug)]
struct Stage {
    address: SocketAddr,
    /// Times in values are since then.
    origin: Instant,
    /// Its records are given back, always.
    poison: Option<u32>,
    heals: AtomicBool,
    stops: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    lanes: Lanes,
    latencies: Vec<Duration>,
    failure: Option<String>,
}

impl Stage {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no consumer panics")
    }

    /// Waits until so many records have ended.
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

fn turn(options: &KeysOptions, poisoned: bool) -> Outcome<Turn> {
    let folder = paths::fresh(FOLDER)?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let (server, _) = postroad.start(PATIENCE)?;
    declare(options, &postroad)?;
    // The key that may fail is one more than the others.
    let poison = options.keys;
    let stage = Stage {
        address: server.address,
        origin: Instant::now(),
        poison: poisoned.then_some(poison),
        heals: AtomicBool::new(false),
        stops: AtomicBool::new(false),
        seen: Mutex::new(Seen {
            lanes: Lanes::new(options.keys as usize + 1, ATTEMPTS_MAX),
            latencies: Vec::new(),
            failure: None,
        }),
    };
    let mut producer = Producer::new(&stage, options)?;
    producer.backlog()?;
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
    postroad.ask(&[&declare[..], &values, &others].concat()).map(drop)
}

fn work(
    options: &KeysOptions,
    postroad: &Postroad,
    stage: &Stage,
    producer: &mut Producer<'_>,
) -> Outcome<Turn> {
    let begun = Instant::now();
    stage.wait(u64::from(options.keys), "the backlog")?;
    let drained_per_second = f64::from(options.keys) / begun.elapsed().as_secs_f64();
    producer.paced()?;
    stage.wait(producer.sent, "the records that are timed")?;
    let mut latencies = std::mem::take(&mut stage.seen().latencies);
    latencies.sort_unstable();
    if latencies.is_empty() {
        return Err(Failure::new("no latency was taken").remedy("take them for more --seconds"));
    }
    let ms = |quantile| quantile_us(&latencies, quantile) / 1e3;
    let (p50_ms, p99_ms) = (ms(0.5), ms(0.99));
    let dead = match stage.poison {
        Some(key) => redriven(options, postroad, stage, key)?,
        None => 0,
    };
    let poisoned = stage.poison.is_some();
    Ok(Turn { poisoned, p50_ms, p99_ms, drained_per_second, dead })
}

/// The records of the key that failed are dead letters, in order and with their reason; sent back,
/// they come in order. Returns how many.
fn redriven(options: &KeysOptions, postroad: &Postroad, stage: &Stage, key: u32) -> Outcome<usize> {
    let max = (options.poison * 2).max(10).to_string();
    let shown = postroad.ask_json(&["dead-letter", "show", DEAD_LETTERS, "-n", &max])?;
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
    postroad.ask(&["dead-letter", "redrive", DEAD_LETTERS])?;
    stage.wait(ended + letters.len() as u64, "the records that were sent back")?;
    Ok(letters.len())
}

// ------------------------------------------------------------------------------------- producer

const VALUE_BYTES: usize = 16;

fn value(place: Place, sent_ns: u64) -> Bytes {
    let mut value = BytesMut::with_capacity(VALUE_BYTES);
    value.put_u32(place.key);
    value.put_u32(place.sequence);
    value.put_u64(sent_ns);
    value.freeze()
}

/// The place, and when it was sent; never for what is not timed.
fn parse(value: &[u8]) -> Option<(Place, Option<Duration>)> {
    let (key, rest) = value.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let sent_ns = u64::from_be_bytes(*rest.first_chunk()?);
    let place = Place { key: u32::from_be_bytes(*key), sequence: u32::from_be_bytes(*sequence) };
    Some((place, (sent_ns > 0).then(|| Duration::from_nanos(sent_ns))))
}

struct Producer<'a> {
    stage: &'a Stage,
    options: &'a KeysOptions,
    connection: Connection,
    random: Random,
    /// By key.
    next: Vec<u32>,
    in_flight: VecDeque<SentBatches>,
    sent: u64,
}

impl<'a> Producer<'a> {
    fn new(stage: &'a Stage, options: &'a KeysOptions) -> Outcome<Producer<'a>> {
        let connection = Connection::open(stage.address, PATIENCE);
        Ok(Producer {
            stage,
            options,
            connection: connection.context(|| "cannot connect to postroad")?,
            random: Random::new(1),
            next: vec![0; options.keys as usize + 1],
            in_flight: VecDeque::new(),
            sent: 0,
        })
    }

    /// One record of each key, before there are consumers.
    fn backlog(&mut self) -> Outcome {
        const STEP_KEYS: usize = 1_000;
        let keys: Vec<u32> = (0..self.options.keys).collect();
        for keys in keys.chunks(STEP_KEYS) {
            self.send(keys, None)?;
        }
        self.answered(0)
    }

    /// Records of random keys at the wanted rate, two of a key at a time so that one waits for the
    /// other; the key that may fail has its turns in between.
    fn paced(&mut self) -> Outcome {
        let time = Duration::from_secs(u64::from(self.options.seconds));
        let steps = (time.as_micros() / STEP.as_micros()) as u32;
        let begun = Instant::now();
        let (mut wanted, mut poison) = (0.0, 0);
        for step in 0..steps {
            let due = STEP * step;
            thread::sleep(due.saturating_sub(begun.elapsed()));
            wanted += f64::from(self.options.rate) * STEP.as_secs_f64();
            let mut keys = Vec::new();
            while wanted >= 1.0 {
                let key = self.random.between(0, u64::from(self.options.keys) - 1) as u32;
                keys.extend([key, key]);
                wanted -= 2.0;
            }
            let poison_due =
                (u64::from(step + 1) * u64::from(self.options.poison) / u64::from(steps)) as u32;
            while poison < poison_due {
                keys.push(self.options.keys);
                poison += 1;
            }
            let timed = due >= WARM_UP;
            let sent = timed.then(|| self.stage.origin.elapsed());
            self.send(&keys, sent)?;
        }
        self.answered(0)
    }

    fn send(&mut self, keys: &[u32], sent: Option<Duration>) -> Outcome {
        let sent_ns = sent.map_or(0, |sent| sent.as_nanos() as u64);
        let mut records = vec![Vec::new(); self.options.partitions as usize];
        for &key in keys {
            let next = &mut self.next[key as usize];
            let value = value(Place { key, sequence: *next }, sent_ns);
            *next += 1;
            let key_bytes = Some(Bytes::from(key.to_string()));
            records[(key % self.options.partitions) as usize].push(NewRecord {
                key: key_bytes,
                value,
                headers: Vec::new(),
            });
        }
        self.sent += keys.len() as u64;
        let batches = records.into_iter().enumerate().filter(|(_, records)| !records.is_empty());
        let batches = batches
            .map(|(partition, records)| (partition as i32, batch_of(records.into_iter())))
            .collect();
        let sent = self.connection.produce_each(QUEUE, batches);
        self.in_flight.push_back(sent.context(|| "postroad does not take the load")?);
        self.answered(16)
    }

    /// Takes answers until so many are under way at most.
    fn answered(&mut self, under_way: usize) -> Outcome {
        while self.in_flight.len() > under_way {
            let Some(sent) = self.in_flight.pop_front() else { break };
            let answers = self.connection.answers(sent).context(|| "no answer came")?;
            if let Some(refused) = answers.iter().find(|it| matches!(it, Answer::Refused { .. })) {
                return Err(Failure::new(format!("a batch was refused: {refused:?}")));
            }
        }
        Ok(())
    }
}

// ------------------------------------------------------------------------------------- consumers

fn consume(stage: &Stage) {
    if let Err(failure) = consume_until_stopped(stage) {
        stage.seen().failure.get_or_insert(failure);
    }
}

fn consume_until_stopped(stage: &Stage) -> Result<(), String> {
    let told = |error: CallError| format!("a consumer: {error}");
    let queues = [QUEUE.to_owned()];
    let id = Uuid::new_v4();
    let member = ShareMember::open(stage.address, PATIENCE, GROUP, &queues, id);
    let mut member = member.map_err(told)?;
    let mut settles = Vec::new();
    while !stage.stops.load(Ordering::Relaxed) {
        let mut leased = member.fetch(FETCH_RECORDS, FETCH_WAIT, &settles).map_err(told)?;
        settles.clear();
        leased.sort_by_key(|record| (record.partition, record.offset));
        let now = stage.origin.elapsed();
        let mut seen = stage.seen();
        for record in &leased {
            let settlement = look_at(stage, &mut seen, record, now)?;
            settles.push(record.settle(settlement));
        }
        // All of a fetch are held until all have been looked at.
        for (record, settle) in leased.iter().zip(&settles) {
            let Some((place, _)) = parse(&record.value) else { continue };
            match settle.settlement {
                Settlement::Accept => seen.lanes.accept(place),
                _ => seen.lanes.release(place),
            }
        }
    }
    if !settles.is_empty() {
        member.acknowledge(&settles).map_err(told)?;
    }
    Ok(())
}

fn look_at(
    stage: &Stage,
    seen: &mut Seen,
    record: &Leased,
    now: Duration,
) -> Result<Settlement, String> {
    let Leased { partition, offset, attempt, .. } = *record;
    let place = || format!("partition {partition}, offset {offset}, delivery {attempt}");
    let named = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
    let parsed = parse(&record.value).filter(|(at, _)| named == Some(at.key));
    let (at, sent) = parsed.ok_or_else(|| format!("{}: not a record of ours", place()))?;
    let delivered = seen.lanes.deliver(at);
    delivered.map_err(|violation| format!("VIOLATION: {violation} ({})", place()))?;
    if stage.poison == Some(at.key) {
        let heals = stage.heals.load(Ordering::Relaxed);
        return Ok(if heals { Settlement::Accept } else { Settlement::Release });
    }
    if let Some(sent) = sent
        && attempt == 1
    {
        seen.latencies.push(now.saturating_sub(sent));
    }
    Ok(Settlement::Accept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_its_place_and_when_it_was_sent() {
        let place = Place { key: 7, sequence: 3 };
        let sent = Duration::from_millis(5);
        assert_eq!(parse(&value(place, sent.as_nanos() as u64)), Some((place, Some(sent))));
        assert_eq!(parse(&value(place, 0)), Some((place, None)));
        assert_eq!(parse(b"short"), None);
    }
}
