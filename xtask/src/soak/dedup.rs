//! `cargo xtask soak dedup`: three nodes whose producers send each record again after a fault. Records with ids
//! must be stored once within `dedup.window.ms`. This holds also if their first copy was settled and deleted, at
//! the next leader, after restarts and in another shard.
//!
//! A round sends records, injects a fault, and sends the records of the last rounds again. Jobs go to a queue whose
//! consumer settles in transactions: a job whose settle was committed must not be delivered again. The other
//! records go to a log whose partitions move between shards; in the end it must contain each of them once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::records::NewRecord;
use client::requests::ProduceOutcome;
use client_amqp::{AmqpError, Mode, blocking as amqp};

use crate::cluster::{Cluster, NODES, NodeFault, leaders_by_any};
use crate::failure::{Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::random::Random;
use crate::records::batch_of;
use crate::server;

const JOBS: &str = "jobs";
const LOG: &str = "log";
const PARTITIONS: usize = 4;
const WINDOW: &str = "dedup.window.ms=3600000";
/// Records of a round, for each partition of each topic.
const RECORDS: usize = 25;
/// Rounds whose records are sent again.
const AGAIN: usize = 3;
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Time until all nodes run, and each partition has accepted its records.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(20);
const PREFETCH: u16 = 50;

#[derive(Clone, Debug, Args)]
pub(crate) struct DedupOptions {
    /// Rounds: a node is killed, is restarted, or a partition moves to another shard, in turn
    #[arg(long, default_value_t = 100)]
    times: u32,
    /// Repeats the choices of an earlier run (its moments still depend on the machine)
    #[arg(long)]
    seed: Option<u64>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`; small segments, so that many are deleted
    #[arg(last = true, default_values = ["--segment-bytes", "16MiB", "--shards", "3"])]
    serve: Vec<String>,
}

/// Records of one partition, sent together: their ids are their values.
#[derive(Clone, Debug)]
struct Batch {
    topic: &'static str,
    partition: usize,
    ids: Vec<String>,
}

/// Jobs by id, as their consumer sees them.
#[derive(Debug, Default)]
struct SettledJobs {
    /// Jobs whose commit was confirmed.
    committed: BTreeSet<String>,
    /// Commits without a reply: the job may be delivered again, or not.
    unanswered: u64,
    /// Deliveries of a job after its confirmed commit.
    again: Vec<String>,
}

pub(super) fn run(options: &DedupOptions) -> Outcome {
    let seed = options.seed.unwrap_or_else(Random::any_seed);
    let binary = server::binary(options.bin.as_deref())?;
    let folder = paths::fresh("soak-dedup")?;
    eprintln!("soak dedup: {} rounds, seed {seed}, data in {}", options.times, folder.display());
    let cluster =
        Cluster::found(&binary, &folder, &options.serve, NodeFault::Kill, true, PATIENCE)?;
    let mut run = Run { cluster, random: Random::new(seed), sent: Vec::new(), copies: 0, moves: 0 };
    let kept = folder.display().to_string();
    let figures = run.all(options.times).map_err(|failure| {
        failure.remedy(format!(
            "data and logs are kept in {kept}; again: cargo xtask soak dedup --seed {seed}"
        ))
    })?;
    figures.publish(options.output)?;
    paths::fresh("soak-dedup").map(drop)
}

struct Run {
    cluster: Cluster,
    random: Random,
    /// The batches of each round.
    sent: Vec<Vec<Batch>>,
    copies: u64,
    moves: u32,
}

impl Run {
    fn all(&mut self, times: u32) -> Outcome<Figures> {
        let partitions = PARTITIONS.to_string();
        let node = self.cluster.node(0);
        for topic in [JOBS, LOG] {
            node.run_command(&[
                "topic",
                "create",
                topic,
                "--partitions",
                &partitions,
                "-c",
                WINDOW,
            ])?;
            self.cluster.wait_until_whole(topic, PARTITIONS, PATIENCE)?;
        }
        node.run_command(&["queue", "declare", JOBS])?;
        let (stop, settled) = (AtomicBool::new(false), Mutex::new(SettledJobs::default()));
        let addresses = self.cluster.amqp.clone();
        std::thread::scope(|scope| {
            let consuming = scope.spawn(|| consume(&addresses, &stop, &settled));
            let done = self.rounds(times).and_then(|()| self.drained(&settled));
            stop.store(true, Ordering::Relaxed);
            consuming.join().map_err(|_| Failure::new("the consumer panicked"))?;
            done
        })?;
        let settled = settled.into_inner().expect("no thread panicked");
        if let Some(job) = settled.again.first() {
            let count = settled.again.len();
            let what = format!(
                "VIOLATION: {count} jobs were delivered again after their settle, as {job}"
            );
            return Err(Failure::new(what));
        }
        let stored = self.log_has_each_once()?;
        self.cluster.stop(PATIENCE)?;
        let mut figures = Figures::new("soak dedup");
        figures.add("rounds", f64::from(times), "");
        figures.add("partitions that moved to another shard", f64::from(self.moves), "");
        figures.add("jobs, each settled once", settled.committed.len() as f64, "");
        figures.add("commits without an answer", settled.unanswered as f64, "");
        figures.add("records of the log, each stored once", stored as f64, "");
        figures.add("copies that were sent", self.copies as f64, "");
        Ok(figures)
    }

    fn rounds(&mut self, times: u32) -> Outcome {
        let mut reported = Instant::now();
        for round in 0..times {
            self.round(round).map_err(|failure| {
                Failure::new(format!("round {} of {times}: {failure}", round + 1))
            })?;
            if reported.elapsed() > Duration::from_secs(10) {
                reported = Instant::now();
                eprintln!("  {} of {times}, {} copies sent", round + 1, self.copies);
            }
        }
        Ok(())
    }

    fn round(&mut self, round: u32) -> Outcome {
        let mut batches = Vec::new();
        for topic in [JOBS, LOG] {
            for partition in 0..PARTITIONS {
                let ids =
                    (0..RECORDS).map(|number| format!("{topic}-{partition}-{round}-{number}"));
                batches.push(Batch { topic, partition, ids: ids.collect() });
            }
        }
        batches.iter().try_for_each(|batch| self.send(batch))?;
        self.sent.push(batches);
        match round % 3 {
            0 => self.restart(NodeFault::Kill)?,
            1 => self.restart(NodeFault::Term)?,
            _ => self.move_partition()?,
        }
        let from = self.sent.len().saturating_sub(AGAIN);
        let again: Vec<Batch> = self.sent[from..].iter().flatten().cloned().collect();
        for batch in &again {
            self.send(batch)?;
            self.copies += batch.ids.len() as u64;
        }
        Ok(())
    }

    /// Sends a batch until a node acknowledges it.
    fn send(&self, batch: &Batch) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        let nodes = self.cluster.addresses();
        let mut last = String::new();
        while Instant::now() < deadline {
            match leaders_by_any(&nodes, batch.topic, PARTITIONS).map(|it| it[batch.partition]) {
                Ok(Some(place)) => match send_to(nodes[place], batch) {
                    Ok(ProduceOutcome::Acknowledged { .. }) => return Ok(()),
                    Ok(other) => last = format!("{other:?}"),
                    Err(error) => last = error.to_string(),
                },
                Ok(None) => "it has no leader".clone_into(&mut last),
                Err(failure) => last = failure.to_string(),
            }
            std::thread::sleep(RETRY_EVERY);
        }
        let Batch { topic, partition, .. } = batch;
        Err(Failure::new(format!("{topic} {partition} takes no batch for {PATIENCE:?}: {last}")))
    }

    /// Stops the leader of a partition and starts it again.
    fn restart(&mut self, how: NodeFault) -> Outcome {
        let topic = [JOBS, LOG][self.random.between(0, 1) as usize];
        let leaders = leaders_by_any(&self.cluster.addresses(), topic, PARTITIONS)?;
        let any = self.random.between(0, PARTITIONS as u64 - 1) as usize;
        let victim = leaders[any].unwrap_or(any % NODES);
        if let Some(leaving) = self.cluster.take_away(victim, how)? {
            leaving.ended(PATIENCE)?;
        }
        self.cluster.bring_back(victim, how, PATIENCE)?;
        [JOBS, LOG]
            .into_iter()
            .try_for_each(|topic| self.cluster.wait_until_whole(topic, PARTITIONS, PATIENCE))
    }

    fn move_partition(&mut self) -> Outcome {
        let partition = self.random.between(0, PARTITIONS as u64 - 1).to_string();
        let shard = self.random.between(1, 3).to_string();
        let words = ["topic", "move", LOG, "--partitions", &partition, "--to-shard", &shard];
        match self.cluster.node(0).run_command(&words) {
            Ok(_) => self.moves += 1,
            Err(failure) if failure.to_string().contains("already") => {}
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Waits until all jobs are settled.
    fn drained(&self, settled: &Mutex<SettledJobs>) -> Outcome {
        let jobs = self.sent.iter().flatten().filter(|it| it.topic == JOBS).flat_map(|it| &it.ids);
        let jobs: BTreeSet<&String> = jobs.collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (missing, unanswered) = {
                let settled = settled.lock().expect("no thread panicked");
                let missing = jobs.iter().filter(|job| !settled.committed.contains(**job)).count();
                (missing as u64, settled.unanswered)
            };
            if missing <= unanswered {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!(
                    "VIOLATION: {missing} jobs were not delivered, {unanswered} may be settled"
                );
                return Err(Failure::new(what));
            }
            std::thread::sleep(RETRY_EVERY);
        }
    }

    fn log_has_each_once(&self) -> Outcome<usize> {
        let log = self.cluster.node(0).run_command(&["consume", LOG, "--from", "earliest"])?;
        let mut stored: BTreeMap<&str, u32> = BTreeMap::new();
        log.lines().for_each(|id| *stored.entry(id).or_default() += 1);
        let sent = self.sent.iter().flatten().filter(|it| it.topic == LOG).flat_map(|it| &it.ids);
        let mut count = 0;
        for id in sent {
            count += 1;
            match stored.get(id.as_str()) {
                Some(1) => {}
                found => {
                    let times = found.copied().unwrap_or(0);
                    let what = format!("VIOLATION: the log has the record {id} {times} times");
                    return Err(Failure::new(what));
                }
            }
        }
        Ok(count)
    }
}

fn send_to(node: SocketAddr, batch: &Batch) -> std::io::Result<ProduceOutcome> {
    let record = |id: &String| NewRecord {
        headers: vec![("postroad.id", id.clone())],
        ..NewRecord::of(Bytes::from(id.clone()))
    };
    let mut connection = Connection::open(node, ANSWERED_WITHIN)?;
    let records = batch_of(batch.ids.iter().map(record));
    let sent = connection.produce(batch.topic, batch.partition as i32, records)?;
    Ok(connection.answer(sent)?)
}

/// Settles all jobs; changes to another node whenever the connection ends.
fn consume(nodes: &[SocketAddr], stop: &AtomicBool, settled: &Mutex<SettledJobs>) {
    for node in nodes.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // An error is expected if the node is down.
        let _ = consume_at(*node, stop, settled);
        std::thread::sleep(RETRY_EVERY);
    }
}

fn consume_at(
    node: SocketAddr,
    stop: &AtomicBool,
    settled: &Mutex<SettledJobs>,
) -> Result<(), AmqpError> {
    let mut connection = amqp::Connection::open(node, ANSWERED_WITHIN, Mode::Transactions)?;
    connection.consume(JOBS, PREFETCH)?;
    while !stop.load(Ordering::Relaxed) {
        let mut jobs = Vec::new();
        while let Some(delivery) = connection.delivery(Duration::from_millis(20))? {
            jobs.push(String::from_utf8_lossy(&delivery.body).into_owned());
            connection.ack(delivery.tag);
            if jobs.len() >= PREFETCH.into() {
                break;
            }
        }
        {
            let mut settled = settled.lock().expect("no thread panicked");
            let again = jobs.iter().filter(|job| settled.committed.contains(*job)).cloned();
            let again: Vec<String> = again.collect();
            settled.again.extend(again);
        }
        if jobs.is_empty() {
            continue;
        }
        let done = connection.commit();
        let mut settled = settled.lock().expect("no thread panicked");
        match done {
            Ok(()) => settled.committed.extend(jobs),
            Err(error) => {
                settled.unanswered += jobs.len() as u64;
                return Err(error);
            }
        }
    }
    Ok(())
}
