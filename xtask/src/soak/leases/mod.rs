//! `cargo xtask soak leases`: `kill -9` in a loop while producers and consumers of both protocols work on queues.
//! No confirmed record is lost, and no record is redelivered after a confirmed settle.
//!
//! Every consumer gets a proof of its settles (the response of ShareAcknowledge, `tx.commit-ok`), so that the
//! ledger knows which records may be redelivered. After some of the kills, and at the end, the queues are consumed
//! until they are empty: only this proves that no record is lost.
//!
//! * `load`: the queues and their workers
//! * `elections`: the same load under leader elections

mod delayed;
pub(super) mod elections;
pub(super) mod load;
pub(super) mod workers;

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Args, Parser};

use crate::failure::{Failure, Outcome};
use crate::figures::Figures;
use crate::paths;
use crate::random::Random;
use crate::server::Server;
use load::{Load, LoadOptions, first_of};

#[derive(Clone, Debug, Args)]
pub(crate) struct LeasesOptions {
    /// How often the server is killed
    #[arg(long, default_value_t = 100)]
    times: u32,
    /// The server lives under load for so long at most, in milliseconds
    #[arg(long, default_value_t = 1500)]
    alive_ms_max: u64,
    /// After so many kills all queues are consumed to their end
    #[arg(long, default_value_t = 5)]
    empty_every: u32,
    #[command(flatten)]
    load: LoadOptions,
}

const FOLDER: &str = "soak-leases";

/// The short kill loop that every change must pass.
pub(crate) fn in_ci(server: &Path, times: u32) -> Outcome {
    #[derive(Parser)]
    struct Defaults {
        #[command(flatten)]
        options: LeasesOptions,
    }
    let mut options = Defaults::parse_from(["soak"]).options;
    options.load.bin = Some(server.to_owned());
    run(&LeasesOptions { times, ..options })
}

pub(crate) fn run(options: &LeasesOptions) -> Outcome {
    let seed = options.load.seed.unwrap_or_else(Random::any_seed);
    let folder = paths::fresh(FOLDER)?;
    eprintln!("soak leases: {} times, seed {seed}, data in {}", options.times, folder.display());
    let load = Load::new(&options.load, &folder, seed)?;
    let mut run = Run { options, load, restarts: Vec::new() };
    let begun = Instant::now();
    run.all().map_err(|failure| {
        failure.remedy(format!(
            "data and log are kept in {}; again: cargo xtask soak leases --times {} --seed {seed}",
            folder.display(),
            options.times
        ))
    })?;
    run.report(begun.elapsed()).publish(options.load.output)?;
    // Gigabytes of a passed run are of no use.
    paths::fresh(FOLDER).map(drop)
}

/// State of the run.
#[derive(Debug)]
struct Run<'a> {
    options: &'a LeasesOptions,
    load: Load<'a>,
    restarts: Vec<Duration>,
}

impl Run<'_> {
    fn all(&mut self) -> Outcome {
        let (mut server, _) = self.load.start()?;
        self.load.declare()?;
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
        self.load.end(server)
    }

    /// Load, kill, restart; some rounds also consume all records.
    fn cycle(&mut self, server: Server, cycle: u32) -> Outcome<Server> {
        self.work_until_killed(server)?;
        let (mut server, took) = self.load.start()?;
        self.restarts.push(took);
        if cycle.is_multiple_of(self.options.empty_every.max(1)) || cycle == self.options.times {
            self.load.empty(&mut server)?;
        }
        Ok(server)
    }

    fn work_until_killed(&mut self, mut server: Server) -> Outcome {
        let life = Duration::from_millis(self.options.alive_ms_max);
        let random = &mut self.load.random;
        let moment = random.duration(Duration::from_millis(20).min(life), life);
        let seed = random.next();
        let findings = Mutex::new(Vec::new());
        let stage = &self.load.stage;
        stage.begin(true);
        let killed = std::thread::scope(|scope| {
            self.load.work(scope, seed, true, &findings);
            std::thread::sleep(moment);
            // A server that ended by itself is a finding.
            let killed = server.still_runs().and_then(|()| server.kill());
            stage.stop();
            killed
        });
        stage.ledger().crash();
        killed?;
        first_of(findings)
    }

    fn progress(&self, cycle: u32) {
        let tally = self.load.stage.ledger().tally;
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
        let tally = self.load.stage.ledger().tally;
        let mut figures = Figures::new("soak leases");
        figures.add("killed with consumers at work", f64::from(self.options.times), "");
        self.load.report(&mut figures);
        figures.add("settles that a kill left unanswered", tally.unanswered as f64, "");
        let again = tally.unanswered_came_again as f64;
        figures.add("of those, came again", again, "");
        figures.add("restart to ready, median", middle.as_secs_f64() * 1e3, "ms");
        figures.add("restart to ready, worst", worst.as_secs_f64() * 1e3, "ms");
        figures.add("took", took.as_secs_f64(), "s");
        figures
    }
}
