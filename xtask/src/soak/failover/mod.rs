//! `cargo xtask soak failover`: three nodes under load, in which the leader of a partition fails again and again.
//! No acknowledged record may be lost, and writes must resume soon.

mod idle;
mod ids;
mod jobs;
mod load;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use client::blocking::Connection;

use self::idle::Idle;
use self::ids::Ids;
use self::jobs::Jobs;
use self::load::{Producer, ProducerTarget, verify};
use super::load::{PATIENCE, violated};
use crate::cluster::{Cluster, NODES, NodeFault, leaders_by_any};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output, percentile};
use crate::paths;
use crate::random::Random;
use crate::server;
use histories::log::{Ledger, Reader};

#[derive(Clone, Debug, Args)]
pub(crate) struct FailoverOptions {
    /// How often a leader goes
    #[arg(long, default_value_t = 100)]
    times: u32,
    /// How it goes
    #[arg(long, value_enum, default_value_t = NodeFault::Kill)]
    how: NodeFault,
    /// Repeats the choices of an earlier run (its moments still depend on the machine)
    #[arg(long)]
    seed: Option<u64>,
    /// Partitions of the topic, each with a producer
    #[arg(long, default_value_t = 6)]
    partitions: usize,
    /// Work queues beside them, of AMQP's clients
    #[arg(long, default_value_t = 2)]
    queues: usize,
    /// Idle partitions, 1,000 a topic
    #[arg(long, default_value_t = 0)]
    idle_partitions: usize,
    /// Idle AMQP queues; needs at least one that is used
    #[arg(long, default_value_t = 0)]
    idle_queues: usize,
    /// Ids of records in the window (`dedup.window.ms`) of a topic without clients
    #[arg(long, default_value_t = 0)]
    idle_ids: usize,
    /// After so many rounds the queues are consumed to their end
    #[arg(long, default_value_t = 10)]
    empty_every: u32,
    /// Size of a record's value
    #[arg(long, default_value_t = 200)]
    record_bytes: usize,
    /// The load lasts so long at most before a node goes, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    alive_ms_max: u64,
    /// A node is away for so long at most, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    away_ms_max: u64,
    /// Founding, and a restart, may take this long until `ready`, in milliseconds
    #[arg(long, default_value_t = 30_000)]
    ready_ms_max: u64,
    /// Writes of a partition whose leader went may wait so long (median), in milliseconds [default: 300 after
    /// kill -9, 100 after SIGTERM, 2000 after a cut or SIGSTOP]
    #[arg(long)]
    pause_ms_median_max: Option<f64>,
    /// And so long (99th percentile), in milliseconds [default: 1000 after kill -9, 300 after SIGTERM, 3000 after a
    /// cut or SIGSTOP]
    #[arg(long)]
    pause_ms_p99_max: Option<f64>,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`; small segments, so that many are begun
    #[arg(last = true, default_values = ["--segment-bytes", "16MiB"])]
    serve: Vec<String>,
}

pub(super) fn run(options: &FailoverOptions) -> Outcome {
    if options.idle_queues > 0 && options.queues == 0 {
        return Err(Failure::new("--idle-queues needs AMQP").remedy("add --queues 1"));
    }
    let seed = options.seed.unwrap_or_else(Random::any_seed);
    let binary = server::binary(options.bin.as_deref())?;
    let folder = paths::fresh("soak-failover")?;
    eprintln!("soak failover: {} times, seed {seed}, data in {}", options.times, folder.display());
    let within = Duration::from_millis(options.ready_ms_max);
    let (how, with_amqp) = (options.how, options.queues > 0);
    let cluster = Cluster::found(&binary, &folder, &options.serve, how, with_amqp, within)?;
    let mut run = Run::new(options, cluster, seed);
    let kept = folder.display().to_string();
    run.all().map_err(|failure| {
        failure.remedy(format!(
            "data and logs are kept in {kept}; again: cargo xtask soak failover --seed {seed}"
        ))
    })?;
    run.report().publish(options.output)?;
    paths::fresh("soak-failover").map(drop)
}

/// Time until shards have moved back to the nodes that led them before.
const EVEN_WITHIN: Duration = Duration::from_secs(60);

/// Minimum load after a failure; writes must have resumed within it.
fn load_after_failure(how: NodeFault) -> Duration {
    match how {
        NodeFault::Kill | NodeFault::Term => Duration::from_millis(1_500),
        NodeFault::Cut | NodeFault::Stop => Duration::from_millis(4_000),
    }
}

struct Run<'a> {
    options: &'a FailoverOptions,
    cluster: Cluster,
    target: ProducerTarget,
    random: Random,
    producers: Vec<Producer>,
    ledger: Ledger,
    /// Messages that consumers held when a leader failed, summed over all rounds.
    in_flight: usize,
    readers: Vec<Reader>,
    jobs: Option<Jobs>,
    idle: Option<Idle>,
    ids: Option<Ids>,
    dead_letters: usize,
    /// Times until the next acknowledged write: of partitions whose leader failed, and of the others.
    pauses: Vec<Duration>,
    others: Vec<Duration>,
    restarts: Vec<Duration>,
    /// Time of the last node's return, and time from then until leaders were even again.
    returned: Instant,
    even: Duration,
    refused: u64,
    unanswered: u64,
    read: u64,
}

impl Run<'_> {
    fn new(options: &FailoverOptions, cluster: Cluster, seed: u64) -> Run<'_> {
        let target = ProducerTarget {
            nodes: cluster.addresses(),
            topic: "soak".to_owned(),
            partitions: options.partitions,
            record_bytes: options.record_bytes,
            // A node that is cut off or paused neither replies nor closes connections, so the client needs a short
            // timeout.
            answered_within: match options.how {
                NodeFault::Kill | NodeFault::Term => Duration::from_secs(15),
                NodeFault::Cut | NodeFault::Stop => Duration::from_millis(500),
            },
        };
        let jobs = (options.queues > 0).then(|| {
            let amqp = cluster.amqp.clone();
            Jobs::new(cluster.address(0), amqp, options.queues, options.record_bytes)
        });
        let producer = |partition| Producer::new(partition, seed.wrapping_add(partition as u64));
        Run {
            options,
            cluster,
            random: Random::new(seed),
            producers: (0..options.partitions).map(producer).collect(),
            ledger: Ledger::new(options.partitions),
            in_flight: 0,
            readers: (0..options.partitions).map(|partition| Reader::new(partition, 1)).collect(),
            jobs,
            idle: None,
            ids: None,
            dead_letters: 0,
            target,
            pauses: Vec::new(),
            others: Vec::new(),
            restarts: Vec::new(),
            returned: Instant::now(),
            even: Duration::ZERO,
            refused: 0,
            unanswered: 0,
            read: 0,
        }
    }

    fn all(&mut self) -> Outcome {
        Connection::open(self.cluster.address(0), PATIENCE)
            .and_then(|mut connection| {
                connection.create_topic(&self.target.topic, self.target.partitions as i32, &[])
            })
            .context(|| "cannot create the topic")?;
        if let Some(jobs) = &self.jobs {
            jobs.declare(self.cluster.node(0))?;
        }
        let idle = (self.options.idle_partitions, self.options.idle_queues);
        if idle != (0, 0) {
            self.idle = Some(Idle::make(&self.cluster, idle.0, idle.1)?);
        }
        self.wait_until_whole()?;
        if self.options.idle_ids > 0 {
            self.ids = Some(Ids::store(&self.cluster, self.options.idle_ids)?);
        }
        let mut told = Instant::now();
        for cycle in 1..=self.options.times {
            self.cycle().map_err(|failure| {
                Failure::new(format!("round {cycle} of {}: {failure}", self.options.times))
            })?;
            if cycle.is_multiple_of(self.options.empty_every.max(1)) {
                self.empty()?;
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!(
                    "  {cycle} of {}, {} records acknowledged, longest pause {:.0?}",
                    self.options.times,
                    self.ledger.records_acknowledged(),
                    self.pauses.iter().max().copied().unwrap_or_default(),
                );
            }
        }
        self.end()
    }

    fn wait_until_whole(&self) -> Outcome {
        let within = Duration::from_millis(self.options.ready_ms_max);
        self.cluster.wait_until_whole(&self.target.topic, self.target.partitions, within)
    }

    /// One round: under load a leader fails and returns; then everything is verified.
    fn cycle(&mut self) -> Outcome {
        let alive = Duration::from_millis(self.options.alive_ms_max);
        let alive = self.random.duration(Duration::from_millis(100).min(alive), alive);
        let away = Duration::from_millis(self.options.away_ms_max);
        let away = self.random.duration(Duration::ZERO, away);
        let partition = self.random.between(0, self.target.partitions as u64 - 1) as usize;
        let leaders =
            leaders_by_any(&self.target.nodes, &self.target.topic, self.target.partitions)?;
        let victim = leaders[partition]
            .ok_or_else(|| Failure::new(format!("nobody leads partition {partition}")))?;
        let ready = Duration::from_millis(self.options.ready_ms_max);

        let (target, stop) = (&self.target, &AtomicBool::new(false));
        let (cluster, how, jobs) = (&mut self.cluster, self.options.how, &self.jobs);
        let (producers, in_flight) = (&mut self.producers, &mut self.in_flight);
        let seed = self.random.next();
        let gone = std::thread::scope(|scope| {
            for producer in producers.iter_mut() {
                scope.spawn(move || producer.run(target, stop));
            }
            if let Some(jobs) = jobs {
                jobs.work(scope, seed, true);
            }
            std::thread::sleep(alive);
            let mut going = |cluster: &mut Cluster| -> Outcome<(Instant, Duration)> {
                *in_flight += jobs.as_ref().map_or(0, |jobs| jobs.node_fails(victim));
                let at = Instant::now();
                let leaving = cluster.take_away(victim, how)?;
                std::thread::sleep(away + load_after_failure(how));
                if let Some(leaving) = leaving {
                    leaving.ended(ready)?;
                }
                if let (NodeFault::Stop, Some(jobs)) = (how, jobs) {
                    jobs.node_resumes(victim);
                }
                Ok((at, cluster.bring_back(victim, how, ready)?))
            };
            let gone = going(cluster);
            stop.store(true, Ordering::Relaxed);
            jobs.iter().for_each(Jobs::stop);
            gone
        });
        let (gone_at, restart) = gone?;
        self.returned = Instant::now();
        if how.ends_the_process() {
            self.restarts.push(restart);
        }
        self.cluster.still_runs()?;
        self.record_producers(gone_at, victim, &leaders)?;
        self.jobs.iter().try_for_each(Jobs::check)?;
        self.wait_until_whole()?;
        self.read += verify(&self.target, &mut self.ledger, &mut self.readers)?;
        Ok(())
    }

    fn empty(&mut self) -> Outcome {
        let seed = self.random.next();
        self.jobs.iter().try_for_each(|jobs| jobs.empty(self.cluster.node(0), seed))
    }

    /// Adds acknowledgements to the ledger, and the pauses to the figures.
    fn record_producers(
        &mut self,
        gone_at: Instant,
        victim: usize,
        leaders: &[Option<usize>],
    ) -> Outcome {
        for (producer, leader) in self.producers.iter_mut().zip(leaders) {
            self.refused += std::mem::take(&mut producer.refused);
            self.unanswered += std::mem::take(&mut producer.unanswered);
            let after = producer.acknowledged.iter().find(|(_, sent_at, _)| *sent_at >= gone_at);
            let Some((_, _, first)) = after else {
                return Err(Failure::new("a partition took no write after its leader had gone"));
            };
            let pause = first.saturating_duration_since(gone_at);
            match *leader == Some(victim) {
                true => self.pauses.push(pause),
                false => self.others.push(pause),
            }
            for (batch, _, _) in producer.acknowledged.drain(..) {
                self.ledger.acknowledge(batch).map_err(violated)?;
            }
        }
        Ok(())
    }

    /// Waits until the numbers of shards that nodes lead differ by at most one.
    fn wait_until_even(&mut self) -> Outcome {
        loop {
            let status = self.cluster.node(0).run_json_command(&["cluster", "status"])?;
            let shards = status["shards"].as_array().map_or(&[][..], Vec::as_slice);
            let led = |node: usize| shards.iter().filter(|it| it["leader"] == node + 1).count();
            let led: Vec<usize> = (0..NODES).map(led).collect();
            let spread =
                led.iter().max().zip(led.iter().min()).map_or(0, |(most, least)| most - least);
            if spread <= 1 && led.iter().sum::<usize>() == shards.len() {
                self.even = self.returned.elapsed();
                return Ok(());
            }
            if self.returned.elapsed() > 2 * EVEN_WITHIN {
                return Err(Failure::new(format!("the nodes still lead {led:?} shards")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Restarts all nodes, and reads the whole log from the beginning.
    fn end(&mut self) -> Outcome {
        self.wait_until_even()?;
        let within = Duration::from_secs(30);
        self.cluster.stop(within)?;
        self.cluster.start_all(Duration::from_millis(self.options.ready_ms_max))?;
        self.wait_until_whole()?;
        self.empty()?;
        if let Some(jobs) = &self.jobs {
            self.dead_letters = jobs.check_dead(&self.target.nodes)?;
        }
        let mut readers: Vec<Reader> =
            (0..self.target.partitions).map(|partition| Reader::new(partition, 1)).collect();
        self.read = verify(&self.target, &mut self.ledger, &mut readers)?;
        self.cluster.stop(within)
    }

    fn report(&mut self) -> Figures {
        let mut figures = Figures::new("soak failover");
        self.idle.iter().for_each(|idle| idle.report(&mut figures));
        self.ids.iter().for_each(|ids| ids.report(&mut figures));
        figures.add("leaders that went", f64::from(self.options.times), "");
        figures.add("records acknowledged", self.ledger.records_acknowledged() as f64, "");
        figures.add("records in the log, all read at the end", self.read as f64, "");
        figures.add("batches refused", self.refused as f64, "");
        figures.add("batches without an answer", self.unanswered as f64, "");
        if let Some(jobs) = &self.jobs {
            let tally = jobs.tally();
            figures.add("messages confirmed by AMQP", tally.confirmed as f64, "");
            figures.add("deliveries", tally.delivered as f64, "");
            figures.add("settles confirmed", (tally.accepted + tally.rejected) as f64, "");
            figures.add("settles without an answer", tally.unanswered as f64, "");
            figures.add("of those, came again", tally.unanswered_came_again as f64, "");
            figures.add("acknowledged without an answer", tally.acknowledged as f64, "");
            figures.add("of those, came again", tally.acknowledged_came_again as f64, "");
            let share = 100.0 * tally.taken as f64 / self.in_flight.max(1) as f64;
            figures.add(
                "in flight at the other nodes when a leader went",
                self.in_flight as f64,
                "",
            );
            let what = "of those, delivered to somebody else";
            match self.options.how {
                NodeFault::Kill | NodeFault::Term => {
                    figures.judge(what, share, "%", "at most 1 %", share <= 1.0);
                }
                // A node that is cut off or paused loses the messages of its consumers.
                NodeFault::Cut | NodeFault::Stop => figures.add(what, share, "%"),
            }
            if self.options.how == NodeFault::Stop {
                figures.add("arrived late of a node that stood still", tally.late as f64, "");
            }
            figures.add("dead letters, all read", self.dead_letters as f64, "");
            figures.add("connections that broke", jobs.broken() as f64, "");
        }
        if self.options.how.ends_the_process() {
            figures.add("a restart until ready, median", percentile(&mut self.restarts, 0.5), "ms");
            figures.add("a restart until ready, worst", percentile(&mut self.restarts, 1.0), "ms");
        }
        figures.judge(
            "leaders are even again after",
            self.even.as_secs_f64(),
            "s",
            format!("at most {} s", EVEN_WITHIN.as_secs()),
            self.even <= EVEN_WITHIN,
        );
        figures.add("other partitions wait, p99", percentile(&mut self.others, 0.99), "ms");
        let (median, p99) = match self.options.how {
            NodeFault::Kill => (300.0, 1_000.0),
            NodeFault::Term => (100.0, 300.0),
            NodeFault::Cut | NodeFault::Stop => (2_000.0, 3_000.0),
        };
        let judged = [
            ("median", 0.5, self.options.pause_ms_median_max.unwrap_or(median)),
            ("p99", 0.99, self.options.pause_ms_p99_max.unwrap_or(p99)),
        ];
        for (name, part, most) in judged {
            let pause = percentile(&mut self.pauses, part);
            let target = format!("at most {most} ms");
            figures.judge(
                format!("writes go on after, {name}"),
                pause,
                "ms",
                target,
                pause <= most,
            );
        }
        figures.add("writes go on after, worst", percentile(&mut self.pauses, 1.0), "ms");
        figures
    }
}
