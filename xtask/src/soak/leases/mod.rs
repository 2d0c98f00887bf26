//! `cargo xtask soak leases`: `kill -9` in a loop while producers and consumers of both protocols are
//! at work on queues. Nothing confirmed is lost, and nothing whose settle was confirmed comes again.
//!
//! Every consumer gets a proof of its settles (ShareAcknowledge's answer, `tx.commit-ok`), so that
//! the ledger knows which records may come again and which may not. After some of the kills, and at
//! the end, the queues are consumed to their end: only then can it be said that nothing is missing.

mod ledger;
mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, Parser};

use crate::client::{self, Connection};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::random::Random;
use crate::server::{self, Postroad, Server};
use workers::{Ended, GROUP, PATIENCE, Stage};

#[derive(Clone, Debug, Args)]
pub(crate) struct LeasesOptions {
    /// How often the server is killed
    #[arg(long, default_value_t = 100)]
    times: u32,
    /// Repeats the choices of an earlier run (its moments still depend on the machine)
    #[arg(long)]
    seed: Option<u64>,
    /// Queues, the last of them ordered by key
    #[arg(long, default_value_t = 4)]
    queues: usize,
    /// Partitions of each
    #[arg(long, default_value_t = 2)]
    partitions: usize,
    /// Producers of each protocol
    #[arg(long, default_value_t = 2)]
    producers: usize,
    /// Consumers of each protocol
    #[arg(long, default_value_t = 3)]
    consumers: usize,
    /// Size of a record's value
    #[arg(long, default_value_t = 200)]
    record_bytes: usize,
    /// The server lives under load for so long at most, in milliseconds
    #[arg(long, default_value_t = 1500)]
    alive_ms_max: u64,
    /// A restart may take this long until `ready`, in milliseconds
    #[arg(long, default_value_t = 5000)]
    ready_ms_max: u64,
    /// After so many kills all queues are consumed to their end
    #[arg(long, default_value_t = 5)]
    empty_every: u32,
    /// What to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`; small segments, so that many are begun
    #[arg(last = true, default_values = ["--segment-bytes", "16MiB"])]
    serve: Vec<String>,
}

const FOLDER: &str = "soak-leases";
const DEAD_LETTERS: &str = "leases-dead";
/// A consumer that works has no record for nearly as long.
const LEASE: &str = "1m";

/// The loop of a few kills that every change must pass.
pub(crate) fn short(times: u32) -> Outcome {
    #[derive(Parser)]
    struct Defaults {
        #[command(flatten)]
        options: LeasesOptions,
    }
    let defaults = Defaults::parse_from(["soak"]).options;
    run(&LeasesOptions { times, ..defaults })
}

pub(crate) fn run(options: &LeasesOptions) -> Outcome {
    let seed = options.seed.unwrap_or_else(Random::any_seed);
    let binary = server::binary(options.bin.as_deref())?;
    let folder = paths::fresh(FOLDER)?;
    eprintln!("soak leases: {} times, seed {seed}, data in {}", options.times, folder.display());
    let mut run = Run::new(options, binary, folder, seed)?;
    let begun = Instant::now();
    run.all().map_err(|failure| {
        failure.remedy(format!(
            "data and log are kept in {}; again: cargo xtask soak leases --times {} --seed {seed}",
            run.postroad.data.parent().unwrap_or(&run.postroad.data).display(),
            options.times
        ))
    })?;
    run.report(begun.elapsed()).publish(options.output)?;
    // Gigabytes of a passed run are of no use to anyone.
    paths::fresh(FOLDER).map(drop)
}

/// The run: the server's place, the load with its ledger, and how it is going.
#[derive(Debug)]
struct Run<'a> {
    options: &'a LeasesOptions,
    postroad: Postroad,
    stage: Stage,
    random: Random,
    restarts: Vec<Duration>,
    emptied: u32,
    empty_took: Duration,
    dead_letters: usize,
}

impl Run<'_> {
    fn new(
        options: &LeasesOptions,
        binary: PathBuf,
        folder: PathBuf,
        seed: u64,
    ) -> Outcome<Run<'_>> {
        let (port, amqp_port) = (server::free_port()?, server::free_port()?);
        let amqp = ([127, 0, 0, 1], amqp_port).into();
        let own = ["--amqp".to_owned(), format!("127.0.0.1:{amqp_port}")];
        let postroad = Postroad {
            binary,
            data: folder.join("data"),
            log: folder.join("server.log"),
            port,
            arguments: [&own[..], &options.serve].concat(),
        };
        let queues = (0..options.queues).map(|number| format!("leases-{number}")).collect();
        let kafka = ([127, 0, 0, 1], port).into();
        let producers = options.producers * 2;
        let bytes = options.record_bytes;
        Ok(Run {
            options,
            postroad,
            stage: Stage::new(kafka, amqp, queues, options.partitions, bytes, producers),
            random: Random::new(seed),
            restarts: Vec::new(),
            emptied: 0,
            empty_took: Duration::ZERO,
            dead_letters: 0,
        })
    }

    fn all(&mut self) -> Outcome {
        let (mut server, _) = self.start()?;
        self.declare()?;
        let mut told = Instant::now();
        for cycle in 1..=self.options.times {
            server = self.cycle(server, cycle).map_err(|failure| {
                Failure::new(format!("kill {cycle} of {}: {failure}", self.options.times))
            })?;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                self.progress(cycle);
            }
        }
        self.end(server)
    }

    fn start(&self) -> Outcome<(Server, Duration)> {
        self.postroad.start(Duration::from_millis(self.options.ready_ms_max))
    }

    fn declare(&self) -> Outcome {
        let partitions = self.options.partitions.to_string();
        let last = self.stage.queues.len() - 1;
        for (number, queue) in self.stage.queues.iter().enumerate() {
            let ordering = if number == last { "key" } else { "free" };
            self.postroad.ask(&[
                "queue",
                "declare",
                queue,
                "--group",
                GROUP,
                "--partitions",
                &partitions,
                "--ordering",
                ordering,
                "--lease",
                LEASE,
                "--dead-letter",
                DEAD_LETTERS,
            ])?;
        }
        Ok(())
    }

    /// Load, kill, restart; now and then everything is consumed.
    fn cycle(&mut self, server: Server, cycle: u32) -> Outcome<Server> {
        self.work_until_killed(server)?;
        let (mut server, took) = self.start()?;
        self.restarts.push(took);
        if cycle.is_multiple_of(self.options.empty_every.max(1)) || cycle == self.options.times {
            self.empty(&mut server)?;
        }
        Ok(server)
    }

    fn work_until_killed(&mut self, mut server: Server) -> Outcome {
        let life = Duration::from_millis(self.options.alive_ms_max);
        let moment = self.random.duration(Duration::from_millis(20).min(life), life);
        let seed = self.random.next();
        let findings = Mutex::new(Vec::new());
        let stage = &self.stage;
        stage.begin(true);
        let killed = std::thread::scope(|scope| {
            self.work(scope, seed, true, &findings);
            std::thread::sleep(moment);
            // A server that ended by itself is a finding, not a kill.
            let killed = server.still_runs().and_then(|()| server.kill());
            stage.stop();
            killed
        });
        stage.ledger().crash();
        killed?;
        first_of(findings)
    }

    /// Starts the workers, each on its own thread.
    fn work<'s, 'e>(
        &'e self,
        scope: &'s std::thread::Scope<'s, 'e>,
        seed: u64,
        produces: bool,
        findings: &'e Mutex<Vec<String>>,
    ) {
        let stage = &self.stage;
        let worker = move |number: usize, work: fn(&Stage, u32, Random) -> Result<(), Ended>| {
            let random = Random::new(seed.wrapping_add(number as u64));
            scope.spawn(move || {
                let found = work(stage, number as u32, random).err().and_then(Ended::finding);
                if let Some(found) = found {
                    findings.lock().expect("no worker panics").push(found);
                    // The others need not go on.
                    stage.stop();
                }
            });
        };
        let each = self.options.producers;
        for number in 0..if produces { each } else { 0 } {
            worker(number, workers::produce_batches);
            worker(each + number, workers::publish_messages);
        }
        for number in 0..self.options.consumers {
            let number = 2 * each + 2 * number;
            worker(number, |stage, _, random| workers::consume_shares(stage, random));
            worker(number + 1, |stage, _, random| workers::consume_transactions(stage, random));
        }
    }

    /// Consumes until all queues are empty; then nothing confirmed may be left.
    fn empty(&mut self, server: &mut Server) -> Outcome {
        let seed = self.random.next();
        let begun = Instant::now();
        let findings = Mutex::new(Vec::new());
        self.stage.begin(false);
        let emptied = std::thread::scope(|scope| {
            self.work(scope, seed, false, &findings);
            let emptied = self.wait_until_empty(server, &findings);
            self.stage.stop();
            emptied
        });
        first_of(findings)?;
        emptied?;
        self.emptied += 1;
        self.empty_took = self.empty_took.max(begun.elapsed());
        self.stage.ledger().check_empty().map_err(violated)
    }

    fn wait_until_empty(&self, server: &mut Server, findings: &Mutex<Vec<String>>) -> Outcome {
        let mut moved = Instant::now();
        let mut before = BTreeMap::new();
        loop {
            server.still_runs()?;
            let depths = self.depths()?;
            let failed = !findings.lock().expect("no worker panics").is_empty();
            if failed || depths.values().all(|&depth| depth == 0) {
                return Ok(());
            }
            if depths != before {
                (before, moved) = (depths, Instant::now());
            } else if moved.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "VIOLATION: records wait and do not come to the consumers that want them, for \
                     {PATIENCE:?}: {before:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// How many records of each queue are not settled.
    fn depths(&self) -> Outcome<BTreeMap<String, u64>> {
        let list = self.postroad.ask_json(&["queue", "list"])?;
        let queues = list.as_array().ok_or_else(|| Failure::new("queue list is no list"))?;
        let depth = |queue: &serde_json::Value| {
            let topic = queue.get("topic")?.as_str()?;
            Some((topic.to_owned(), queue.get("depth")?.as_u64()?))
        };
        let depths: BTreeMap<String, u64> = queues.iter().filter_map(depth).collect();
        let ours = depths.into_iter().filter(|(topic, _)| self.stage.queues.contains(topic));
        let ours: BTreeMap<String, u64> = ours.collect();
        match ours.len() == self.stage.queues.len() {
            true => Ok(ours),
            false => Err(Failure::new(format!("queue list shows only {ours:?}: {list}"))),
        }
    }

    /// A polite stop, one more start with nothing left in the queues, and all dead letters.
    fn end(&mut self, server: Server) -> Outcome {
        let status = server.stop(PATIENCE)?;
        if !status.success() {
            return Err(Failure::new(format!("postroad ended with {status} after SIGTERM")));
        }
        let (mut server, _) = self.start()?;
        self.empty(&mut server)?;
        let dead = self.dead_letters()?;
        self.dead_letters = dead.len();
        self.stage.ledger().check_dead(&dead).map_err(violated)?;
        server.stop(PATIENCE)?;
        let tally = self.stage.ledger().tally;
        match tally.accepted == 0 || tally.confirmed == 0 {
            true => Err(Failure::new("nothing was confirmed or settled in the whole run")),
            false => Ok(()),
        }
    }

    /// The values of all dead letters, read by offset.
    fn dead_letters(&self) -> Outcome<Vec<Bytes>> {
        let mut connection =
            Connection::open(self.stage.kafka, PATIENCE).context(|| "cannot connect")?;
        let led = connection.partitions_led(DEAD_LETTERS).context(|| "cannot ask for metadata")?;
        let ends = connection
            .end_offsets(DEAD_LETTERS, led as i32)
            .context(|| "cannot list the ends of the dead letters")?;
        let mut values = Vec::new();
        for (partition, &end) in ends.iter().enumerate() {
            let mut next = 0;
            while next < end {
                let at = [(partition as i32, next)];
                let fetched = connection.fetch(DEAD_LETTERS, &at, Duration::from_millis(100));
                let fetched = fetched.context(|| "cannot fetch dead letters")?;
                let batches = fetched.into_iter().next().map(|it| it.records).unwrap_or_default();
                let records = client::records_of(batches).context(|| "cannot read dead letters")?;
                // A fetch begins with the batch that holds the offset.
                let records = records.into_iter().filter(|record| record.offset >= next);
                let before = values.len();
                let mut last = next;
                values.extend(records.map(|record| {
                    last = record.offset;
                    record.value.unwrap_or_default()
                }));
                if values.len() == before {
                    return Err(Failure::new(format!(
                        "{DEAD_LETTERS}, partition {partition}: nothing at {next}, the end is {end}"
                    )));
                }
                next = last + 1;
            }
        }
        Ok(values)
    }

    fn progress(&self, cycle: u32) {
        let tally = self.stage.ledger().tally;
        eprintln!(
            "  {cycle} of {} kills, {} records confirmed, {} settles confirmed, worst restart {:.0?}",
            self.options.times,
            tally.confirmed,
            tally.accepted + tally.rejected,
            self.restarts.iter().max().copied().unwrap_or_default(),
        );
    }

    fn report(&mut self, took: Duration) -> Figures {
        self.restarts.sort_unstable();
        let middle = self.restarts.get(self.restarts.len() / 2).copied().unwrap_or_default();
        let worst = self.restarts.last().copied().unwrap_or_default();
        let tally = self.stage.ledger().tally;
        let mut figures = Figures::new("soak leases");
        figures.add("killed with consumers at work", f64::from(self.options.times), "");
        figures.add("queues consumed to their end", f64::from(self.emptied), "times");
        figures.add("longest of those", self.empty_took.as_secs_f64(), "s");
        figures.add("records confirmed to producers", tally.confirmed as f64, "");
        figures.add("deliveries", tally.delivered as f64, "");
        figures.add("accepted, and confirmed", tally.accepted as f64, "");
        figures.add("rejected, and confirmed", tally.rejected as f64, "");
        figures.add("dead letters, all read", self.dead_letters as f64, "");
        figures.add("given back", tally.given_back as f64, "");
        figures.add("settles that a kill left unanswered", tally.unanswered as f64, "");
        let again = tally.unanswered_came_again as f64;
        figures.add("of those, came again", again, "");
        figures.add("restart to ready, median", middle.as_secs_f64() * 1e3, "ms");
        figures.add("restart to ready, worst", worst.as_secs_f64() * 1e3, "ms");
        figures.add("took", took.as_secs_f64(), "s");
        let none = "none";
        figures.judge("confirmed records lost", 0.0, "", none, true);
        figures.judge("deliveries after a confirmed settle", 0.0, "", none, true);
        figures.judge("records with two consumers at a time", 0.0, "", none, true);
        figures
    }
}

fn first_of(findings: Mutex<Vec<String>>) -> Outcome {
    let findings = findings.into_inner().expect("no worker panics");
    match findings.into_iter().next() {
        Some(finding) => Err(Failure::new(finding)),
        None => Ok(()),
    }
}

fn violated(violation: ledger::Violation) -> Failure {
    Failure::new(format!("VIOLATION: {violation}"))
}
