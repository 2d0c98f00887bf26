//! `cargo xtask soak`: long runs with faults on the real binary. A cycle of `kill`: load, `kill -9` at a random
//! moment, restart, and a check for all records that were acknowledged or shown. The other soaks are described in
//! their modules.

mod abuse;
mod dedup;
mod failover;
mod faults;
mod http;
mod leases;
mod load;
mod planted;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use client::blocking::Connection;

use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::random::Random;
use crate::server::{self, Postroad, Server};
use histories::log::{Ledger, Reader};
pub(crate) use leases::elections::in_ci as elections_in_ci;
pub(crate) use leases::in_ci as leases_in_ci;
use load::{Producer, SoakTarget};

#[derive(Debug, Subcommand)]
pub(crate) enum Soak {
    /// Abuse beside a well-behaved producer and consumer: their latency and the server's memory
    Abuse(abuse::AbuseOptions),
    /// Records with ids sent again after kills, restarts and moves: each is stored and delivered once
    Dedup(dedup::DedupOptions),
    /// Leaders are elected again under load, in a loop: no error, nothing lost, short pauses
    Elections(leases::elections::ElectionsOptions),
    /// Three nodes under load, whose leaders go in a loop: nothing lost, and writes soon go on
    Failover(failover::FailoverOptions),
    /// Three nodes with faults of all kinds, under workloads whose histories are checked
    Faults(faults::FaultsOptions),
    /// kill -9 under load, in a loop: no acknowledged record lost, offsets dense, order kept
    Kill(KillOptions),
    /// kill -9 with consumers at work, in a loop: nothing lost, nothing settled delivered again
    Leases(leases::LeasesOptions),
    /// Faults planted in the code, one at a time: the simulation has to find each
    Planted(planted::PlantedOptions),
    /// Simulated power loss: a node on a disk that drops, reorders and tears unsynced writes
    Power(PowerOptions),
}

pub(crate) fn run(soak: &Soak) -> Outcome {
    match soak {
        Soak::Abuse(options) => abuse::run(options),
        Soak::Dedup(options) => dedup::run(options),
        Soak::Elections(options) => leases::elections::run(options),
        Soak::Failover(options) => failover::run(options),
        Soak::Faults(options) => faults::run(options),
        Soak::Kill(options) => kill(options),
        Soak::Leases(options) => leases::run(options),
        Soak::Planted(options) => planted::run(options),
        Soak::Power(options) => power(options),
    }
}

#[derive(Debug, Args)]
pub(crate) struct PowerOptions {
    /// How many seeds to try
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Only this seed, to repeat a failure
    #[arg(long)]
    seed: Option<u64>,
}

/// The simulation is a test of its crate; here it runs longer, and optimised.
fn power(options: &PowerOptions) -> Outcome {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--release", "--package", "sim", "--test", "crash", "--", "--nocapture"]);
    command.env("SEEDS", options.seeds.to_string()).current_dir(paths::root());
    if let Some(seed) = options.seed {
        command.env("SEED", seed.to_string());
    }
    let status = command.status().context(|| "cannot run cargo")?;
    if !status.success() {
        return Err(Failure::new("a simulated crash lost or broke something")
            .remedy("cargo xtask soak power --seed SEED repeats the seed that is named above"));
    }
    Ok(())
}

#[derive(Clone, Debug, Args)]
pub(crate) struct KillOptions {
    /// How often the server is killed
    #[arg(long, default_value_t = 100)]
    pub(crate) times: u32,
    /// Repeats the choices of an earlier run (its moments still depend on the machine)
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Partitions of the topic
    #[arg(long, default_value_t = 8)]
    pub(crate) partitions: usize,
    /// Producers, each on its own connection
    #[arg(long, default_value_t = 3)]
    pub(crate) producers: usize,
    /// Size of a record's value
    #[arg(long, default_value_t = 200)]
    pub(crate) record_bytes: usize,
    /// The server lives under load for so long at most, in milliseconds
    #[arg(long, default_value_t = 1500)]
    pub(crate) alive_ms_max: u64,
    /// A restart may take this long until `ready`, in milliseconds
    #[arg(long, default_value_t = 5000)]
    pub(crate) ready_ms_max: u64,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    pub(crate) bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`; small segments, so that many are begun
    #[arg(last = true, default_values = ["--segment-bytes", "16MiB"])]
    pub(crate) serve: Vec<String>,
}

/// Progress of the run.
#[derive(Debug, Default)]
struct Tally {
    kills_under_load: u32,
    kills_while_starting: u32,
    restarts: Vec<Duration>,
    refused: u64,
    read: u64,
}

/// State of the run: the server, the ledger, and the verified positions.
#[derive(Debug)]
struct Run<'a> {
    options: &'a KillOptions,
    postroad: Postroad,
    target: SoakTarget,
    random: Random,
    producers: Vec<Producer>,
    ledger: Ledger,
    readers: Vec<Reader>,
    tally: Tally,
}

/// The short kill loop that every change must pass.
pub(crate) fn kill_in_ci(server: &Path, times: u32) -> Outcome {
    #[derive(Parser)]
    struct Defaults {
        #[command(flatten)]
        options: KillOptions,
    }
    let defaults = Defaults::parse_from(["soak"]).options;
    kill(&KillOptions { times, bin: Some(server.to_owned()), ..defaults })
}

fn kill(options: &KillOptions) -> Outcome {
    let seed = options.seed.unwrap_or_else(Random::any_seed);
    let binary = server::binary(options.bin.as_deref())?;
    let folder = paths::fresh("soak-kill")?;
    println!("soak kill: {} times, seed {seed}, data in {}", options.times, folder.display());
    let mut run = Run::new(options, binary, folder, seed)?;
    let begun = Instant::now();
    run.all().map_err(|failure| {
        failure.remedy(format!(
            "data and log are kept in {}; again: cargo xtask soak kill --times {} --seed {seed}",
            run.postroad.data.parent().unwrap_or(&run.postroad.data).display(),
            options.times
        ))
    })?;
    run.report(begun.elapsed());
    // Gigabytes of a passed run are of no use.
    paths::fresh("soak-kill").map(drop)
}

impl Run<'_> {
    fn new(options: &KillOptions, binary: PathBuf, folder: PathBuf, seed: u64) -> Outcome<Run<'_>> {
        let port = server::free_port()?;
        let postroad = Postroad {
            binary,
            data: folder.join("data"),
            log: folder.join("server.log"),
            port,
            arguments: options.serve.clone(),
        };
        let target = SoakTarget {
            address: ([127, 0, 0, 1], port).into(),
            topic: "soak".to_owned(),
            partitions: options.partitions,
            producers: options.producers,
            record_bytes: options.record_bytes,
        };
        let producer =
            |id| Producer::new(id as u32, options.partitions, seed.wrapping_add(id as u64 + 1));
        Ok(Run {
            options,
            postroad,
            random: Random::new(seed),
            producers: (0..options.producers).map(producer).collect(),
            ledger: Ledger::new(options.partitions),
            readers: readers(&target),
            target,
            tally: Tally::default(),
        })
    }

    fn all(&mut self) -> Outcome {
        let (mut server, _) = self.start()?;
        Connection::open(self.target.address, load::PATIENCE)
            .and_then(|mut connection| {
                let partitions = self.target.partitions as i32;
                connection.create_topic(&self.target.topic, partitions, &[])
            })
            .context(|| "cannot create the topic")?;
        let mut told = Instant::now();
        for cycle in 1..=self.options.times {
            server = self.cycle(server).map_err(|failure| {
                Failure::new(format!("kill {cycle} of {}: {failure}", self.options.times))
            })?;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                self.progress(cycle);
            }
        }
        self.end(server)
    }

    /// Load, kill, restart, verify.
    fn cycle(&mut self, server: Server) -> Outcome<Server> {
        self.load_until_killed(server)?;
        // Some rounds kill the server again during recovery, which must be repeatable.
        if self.random.between(0, 7) == 0 {
            let moment = self.random.duration(Duration::ZERO, Duration::from_millis(60));
            let starting = self.postroad.spawn()?;
            std::thread::sleep(moment);
            starting.server.kill()?;
            self.tally.kills_while_starting += 1;
        }
        let (server, took) = self.start()?;
        self.tally.restarts.push(took);
        self.tally.read += load::verify(&self.target, &mut self.ledger, &mut self.readers)?;
        Ok(server)
    }

    fn start(&self) -> Outcome<(Server, Duration)> {
        self.postroad.start(Duration::from_millis(self.options.ready_ms_max))
    }

    fn load_until_killed(&mut self, mut server: Server) -> Outcome {
        let life = Duration::from_millis(self.options.alive_ms_max);
        let moment = self.random.duration(Duration::from_millis(20).min(life), life);
        let (target, stop) = (&self.target, &AtomicBool::new(false));
        let mut tail = self.readers.clone();
        let producers = &mut self.producers;
        let (killed, shown) = std::thread::scope(|scope| {
            for producer in producers.iter_mut() {
                // An error is expected after the kill of its server.
                scope.spawn(move || drop(producer.run(target, stop)));
            }
            let consumer = scope.spawn(|| load::follow(target, &mut tail, stop));
            std::thread::sleep(moment);
            // A server that ended by itself is a finding.
            let killed = server.still_runs().and_then(|()| server.kill());
            stop.store(true, Ordering::Relaxed);
            (killed, consumer.join().expect("the consumer does not panic"))
        });
        killed?;
        self.tally.kills_under_load += 1;
        for producer in &mut self.producers {
            self.tally.refused += std::mem::take(&mut producer.refused);
            for batch in producer.acknowledged.drain(..) {
                self.ledger.acknowledge(batch).map_err(load::violated)?;
            }
        }
        for (partition, offset, mark) in shown.records {
            self.ledger.show(partition, offset, mark);
        }
        shown.violation.map_or(Ok(()), |violation| Err(load::violated(violation)))
    }

    /// Stops the server by SIGTERM, starts it once more, and checks the whole log from offset 0 against all
    /// acknowledgements.
    fn end(&mut self, server: Server) -> Outcome {
        let status = server.stop(Duration::from_secs(30))?;
        if !status.success() {
            return Err(Failure::new(format!("postroad ended with {status} after SIGTERM")));
        }
        let (server, _) = self.start()?;
        let mut readers = readers(&self.target);
        self.tally.read = load::verify(&self.target, &mut self.ledger, &mut readers)?;
        server.stop(Duration::from_secs(30))?;
        if self.ledger.records_acknowledged() == 0 {
            return Err(Failure::new("no record was acknowledged in the whole run"));
        }
        Ok(())
    }

    fn progress(&self, cycle: u32) {
        println!(
            "  {cycle} of {} kills, {} records acknowledged, worst restart {:.0?}",
            self.options.times,
            self.ledger.records_acknowledged(),
            self.tally.restarts.iter().max().copied().unwrap_or_default(),
        );
    }

    fn report(&mut self, took: Duration) {
        let tally = &mut self.tally;
        tally.restarts.sort_unstable();
        let middle = tally.restarts.get(tally.restarts.len() / 2).copied().unwrap_or_default();
        let worst = tally.restarts.last().copied().unwrap_or_default();
        println!("  killed under load     {}", tally.kills_under_load);
        println!("  killed while starting {}", tally.kills_while_starting);
        println!("  records acknowledged  {}", self.ledger.records_acknowledged());
        println!("  records in the log    {} (all read at the end)", tally.read);
        println!("  batches refused       {}", tally.refused);
        println!("  restart to ready      median {middle:.1?}, worst {worst:.1?}");
        println!("  took                  {took:.1?}");
        println!("no acknowledged record lost, offsets dense, order kept");
    }
}

fn readers(target: &SoakTarget) -> Vec<Reader> {
    (0..target.partitions).map(|partition| Reader::new(partition, target.producers)).collect()
}
