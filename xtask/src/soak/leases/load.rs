//! Producers and consumers of both protocols on queues, and the final checks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::records::records_of;

use super::workers::{self, GROUP, PATIENCE, Stage, WorkerEnd};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::random::Random;
use crate::server::{self, Postroad, Server};
use histories::leases as ledger;

#[derive(Clone, Debug, Args)]
pub(super) struct LoadOptions {
    /// Repeats the choices of an earlier run (its moments still depend on the machine)
    #[arg(long)]
    pub(super) seed: Option<u64>,
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
    /// A restart may take this long until `ready`, in milliseconds
    #[arg(long, default_value_t = 5000)]
    ready_ms_max: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    pub(super) bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`; small segments, so that many are begun
    #[arg(last = true, default_values = ["--segment-bytes", "16MiB"])]
    serve: Vec<String>,
}

const DEAD_LETTERS: &str = "leases-dead";
/// Lease time; a working consumer holds no record for nearly as long.
const LEASE: &str = "1m";

/// The server, its workers and their ledger.
#[derive(Debug)]
pub(super) struct Load<'a> {
    options: &'a LoadOptions,
    pub(super) postroad: Postroad,
    pub(super) stage: Stage,
    pub(super) random: Random,
    emptied: u32,
    empty_took: Duration,
    dead_letters: usize,
}

impl<'a> Load<'a> {
    pub(super) fn new(options: &'a LoadOptions, folder: &Path, seed: u64) -> Outcome<Load<'a>> {
        let binary = server::binary(options.bin.as_deref())?;
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
        Ok(Load {
            options,
            postroad,
            stage: Stage::new(kafka, vec![amqp], queues, options.partitions, bytes, producers),
            random: Random::new(seed),
            emptied: 0,
            empty_took: Duration::ZERO,
            dead_letters: 0,
        })
    }

    pub(super) fn start(&self) -> Outcome<(Server, Duration)> {
        self.postroad.start(Duration::from_millis(self.options.ready_ms_max))
    }

    pub(super) fn declare(&self) -> Outcome {
        declare(&self.postroad, &self.stage.queues, self.options.partitions)
    }

    /// Starts the workers, each on its own thread.
    pub(super) fn work<'s, 'e>(
        &'e self,
        scope: &'s std::thread::Scope<'s, 'e>,
        seed: u64,
        produces: bool,
        findings: &'e Mutex<Vec<String>>,
    ) {
        let stage = &self.stage;
        let worker =
            move |number: usize, work: fn(&Stage, u32, Random) -> Result<(), WorkerEnd>| {
                let random = Random::new(seed.wrapping_add(number as u64));
                scope.spawn(move || {
                    let found =
                        work(stage, number as u32, random).err().and_then(WorkerEnd::finding);
                    if let Some(found) = found {
                        findings.lock().expect("no worker panics").push(found);
                        // One finding ends the run.
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

    /// Consumes until all queues are empty, and checks that no confirmed record is lost.
    pub(super) fn empty(&mut self, server: &mut Server) -> Outcome {
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

    fn depths(&self) -> Outcome<BTreeMap<String, u64>> {
        depths(&self.postroad, &self.stage.queues)
    }

    /// Stops the server by SIGTERM, starts it once more, and checks that the queues are empty and all dead letters
    /// are right.
    pub(super) fn end(&mut self, server: Server) -> Outcome {
        let status = server.stop(PATIENCE)?;
        if !status.success() {
            return Err(Failure::new(format!("postroad ended with {status} after SIGTERM")));
        }
        let (mut server, _) = self.start()?;
        self.empty(&mut server)?;
        let dead = dead_letters(&[self.stage.kafka])?;
        self.dead_letters = dead.len();
        self.stage.ledger().check_dead(&dead).map_err(violated)?;
        server.stop(PATIENCE)?;
        let tally = self.stage.ledger().tally;
        match tally.accepted == 0 || tally.confirmed == 0 {
            true => Err(Failure::new("nothing was confirmed or settled in the whole run")),
            false => Ok(()),
        }
    }

    /// Adds the counts. There are no violations to report, since the first one ends the run.
    pub(super) fn report(&self, figures: &mut Figures) {
        let tally = self.stage.ledger().tally;
        figures.add("queues consumed to their end", f64::from(self.emptied), "times");
        figures.add("longest of those", self.empty_took.as_secs_f64(), "s");
        figures.add("records confirmed to producers", tally.confirmed as f64, "");
        figures.add("deliveries", tally.delivered as f64, "");
        figures.add("accepted, and confirmed", tally.accepted as f64, "");
        figures.add("rejected, and confirmed", tally.rejected as f64, "");
        figures.add("dead letters, all read", self.dead_letters as f64, "");
        figures.add("released", tally.released as f64, "");
        let none = "none";
        figures.judge("confirmed records lost", 0.0, "", none, true);
        figures.judge("deliveries after a confirmed settle", 0.0, "", none, true);
        figures.judge("records with two consumers at a time", 0.0, "", none, true);
    }
}

/// Declares the queues, the last of them ordered by key.
pub(in crate::soak) fn declare(
    postroad: &Postroad,
    queues: &[String],
    partitions: usize,
) -> Outcome {
    let partitions = partitions.to_string();
    for (number, queue) in queues.iter().enumerate() {
        let ordering = if number + 1 == queues.len() { "key" } else { "free" };
        postroad.run_command(&[
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

/// Number of unsettled records of each queue.
pub(in crate::soak) fn depths(
    postroad: &Postroad,
    queues: &[String],
) -> Outcome<BTreeMap<String, u64>> {
    let list = postroad.run_json_command(&["queue", "list"])?;
    let listed = list.as_array().ok_or_else(|| Failure::new("queue list is no list"))?;
    let depth = |queue: &serde_json::Value| {
        let topic = queue.get("topic")?.as_str()?;
        Some((topic.to_owned(), queue.get("depth")?.as_u64()?))
    };
    let depths: BTreeMap<String, u64> = listed.iter().filter_map(depth).collect();
    let ours: BTreeMap<String, u64> =
        depths.into_iter().filter(|(topic, _)| queues.contains(topic)).collect();
    match ours.len() == queues.len() {
        true => Ok(ours),
        false => Err(Failure::new(format!("queue list shows only {ours:?}: {list}"))),
    }
}

/// Values of all dead letters, read from their leaders among these nodes.
pub(in crate::soak) fn dead_letters(nodes: &[SocketAddr]) -> Outcome<Vec<Bytes>> {
    let mut values = Vec::new();
    for (partition, leader) in leaders(nodes, DEAD_LETTERS)? {
        let mut connection = Connection::open(leader, PATIENCE).context(|| "cannot connect")?;
        let end = connection
            .end_offset(DEAD_LETTERS, partition)
            .context(|| "cannot list the ends of the dead letters")?;
        let mut next = 0;
        while next < end {
            let fetched =
                connection.fetch(DEAD_LETTERS, &[(partition, next)], Duration::from_millis(100));
            let fetched = fetched.context(|| "cannot fetch dead letters")?;
            let batches = fetched.into_iter().next().map(|it| it.records).unwrap_or_default();
            let records = records_of(batches).context(|| "cannot read dead letters")?;
            // A fetch begins with the batch that contains the offset.
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

/// The topic's partitions with their leaders.
fn leaders(nodes: &[SocketAddr], topic: &str) -> Outcome<Vec<(i32, SocketAddr)>> {
    let mut connection = Connection::open(nodes[0], PATIENCE).context(|| "cannot connect")?;
    let answer = connection.metadata(&[topic.to_owned()]).context(|| "cannot ask for metadata")?;
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let led = partitions.map(|it| {
        let place = usize::try_from(it.leader_id.0 - 1).ok();
        let leader = place.and_then(|place| nodes.get(place)).copied();
        leader.map(|leader| (it.partition_index, leader)).ok_or(it.partition_index)
    });
    led.collect::<Result<_, _>>()
        .map_err(|partition| Failure::new(format!("nobody leads partition {partition} of {topic}")))
}

pub(super) fn first_of(findings: Mutex<Vec<String>>) -> Outcome {
    let findings = findings.into_inner().expect("no worker panics");
    match findings.into_iter().next() {
        Some(finding) => Err(Failure::new(finding)),
        None => Ok(()),
    }
}

fn violated(violation: ledger::Violation) -> Failure {
    Failure::new(format!("VIOLATION: {violation}"))
}
