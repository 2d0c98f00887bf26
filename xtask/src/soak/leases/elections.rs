//! `cargo xtask soak elections`: frequent leader elections under the load of `soak leases`. No client sees an
//! error, no record is lost or delivered twice, and writes pause only shortly.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, Parser};
use client::blocking::Connection;
use client::requests::ProduceOutcome;

use super::delayed;
use super::load::{Load, LoadOptions, first_of};
use super::workers::PATIENCE;
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, percentile};
use crate::paths;
use crate::random::Random;
use crate::records::batch;

#[derive(Clone, Debug, Args)]
pub(crate) struct ElectionsOptions {
    /// For how long, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// From one election to the next, in milliseconds
    #[arg(long, default_value_t = 1000)]
    every_ms: u64,
    /// A producer may wait so long for an answer because of an election (99th percentile), in milliseconds
    #[arg(long, default_value_t = 50.0)]
    pause_ms_max: f64,
    /// So many delayed records are stored beside the load, none of which is due
    #[arg(long, default_value_t = 0)]
    delayed: u64,
    #[command(flatten)]
    load: LoadOptions,
}

const FOLDER: &str = "soak-elections";
/// Topic of a producer that sends one record after the other, to measure its waits.
const PROBE: &str = "elections-probe";
const ELECT: &[u8] = br#"{"elect-leader":{}}"#;
/// The part of the time, before the first election, in which the probe measures the baseline.
const CALM_PART: u32 = 10;

/// The short election loop that every change must pass.
pub(crate) fn in_ci(server: &Path, seconds: u64) -> Outcome {
    #[derive(Parser)]
    struct Defaults {
        #[command(flatten)]
        options: ElectionsOptions,
    }
    let mut options = Defaults::parse_from(["soak"]).options;
    options.load.bin = Some(server.to_owned());
    // A busy machine has pauses of its own.
    run(&ElectionsOptions { seconds, every_ms: 200, pause_ms_max: f64::INFINITY, ..options })
}

pub(crate) fn run(options: &ElectionsOptions) -> Outcome {
    let seed = options.load.seed.unwrap_or_else(Random::any_seed);
    let folder = paths::fresh(FOLDER)?;
    eprintln!("soak elections: {} s, seed {seed}, data in {}", options.seconds, folder.display());
    let mut run = Run {
        options,
        load: Load::new(&options.load, &folder, seed)?,
        waits: ProbeWaits::default(),
    };
    run.all().map_err(|failure| {
        failure.remedy(format!("data and log are kept in {}", folder.display()))
    })?;
    run.report().publish(options.load.output)?;
    // Gigabytes of a passed run are of no use.
    paths::fresh(FOLDER).map(drop)
}

#[derive(Debug)]
struct Run<'a> {
    options: &'a ElectionsOptions,
    load: Load<'a>,
    waits: ProbeWaits,
}

/// Waits of the probe.
#[derive(Debug, Default)]
struct ProbeWaits {
    /// Send time and wait of each of its records.
    all: Vec<(Instant, Duration)>,
    /// Time of each election request, and the time until this node was the leader again.
    elections: Vec<(Instant, Duration)>,
}

impl ProbeWaits {
    /// The longest wait between each election and the next.
    fn pauses(&self) -> Vec<Duration> {
        let last = self.all.last().map(|(sent, wait)| *sent + *wait);
        let ends = self.elections.iter().skip(1).map(|(at, _)| *at).chain(last);
        self.elections
            .iter()
            .zip(ends)
            .filter_map(|((from, _), to)| self.longest(*from, to))
            .collect()
    }

    /// The longest wait in each interval before the first election. These intervals are as long as those between
    /// two elections.
    fn calm(&self, every: Duration) -> Vec<Duration> {
        let (Some((begun, _)), Some((first, _))) = (self.all.first(), self.elections.first())
        else {
            return Vec::new();
        };
        let spans = std::iter::successors(Some(*begun), |from| Some(*from + every));
        let spans = spans.take_while(|from| *from + every <= *first);
        spans.filter_map(|from| self.longest(from, from + every)).collect()
    }

    /// The longest of the waits that overlap a time span.
    fn longest(&self, from: Instant, to: Instant) -> Option<Duration> {
        let within = self.all.iter().filter(|(sent, wait)| *sent + *wait >= from && *sent < to);
        within.map(|(_, wait)| *wait).max()
    }
}

impl Run<'_> {
    fn all(&mut self) -> Outcome {
        let (mut server, _) = self.load.start()?;
        self.load.declare()?;
        Connection::open(self.load.stage.kafka, PATIENCE)
            .and_then(|mut connection| connection.create_topic(PROBE, 1, &[]))
            .context(|| "cannot create the topic")?;
        let records = self.options.delayed;
        if records > 0 {
            let (kafka, load) = (self.load.stage.kafka, &mut self.load);
            delayed::store(&load.postroad, kafka, records, &mut load.random)?;
        }
        let seed = self.load.random.next();
        let findings = Mutex::new(Vec::new());
        let (load, stop) = (&self.load, AtomicBool::new(false));
        let (elections, waits) = std::thread::scope(|scope| {
            let wait = || {
                if let Err(failure) = delayed::consume(load.stage.kafka, &stop) {
                    findings.lock().expect("no worker panics").push(failure.to_string());
                }
            };
            if records > 0 {
                scope.spawn(wait);
            }
            let wait_until_read = || match records {
                0 => Ok(()),
                _ => delayed::wait_until_read(&load.postroad, records),
            };
            let read = wait_until_read();
            load.stage.begin(true);
            load.work(scope, seed, true, &findings);
            let probe = scope.spawn(|| self.probe(&stop));
            let elections = read.and_then(|()| {
                self.elect(&mut || {
                    server.still_runs()?;
                    Ok(findings.lock().expect("no worker panics").is_empty())
                })
            });
            // The last leader must have all of them, too, unless their consumer has failed.
            let nothing_found = findings.lock().expect("no worker panics").is_empty();
            let elections = match nothing_found {
                true => elections.and_then(|it| wait_until_read().map(|()| it)),
                false => elections,
            };
            stop.store(true, Ordering::Relaxed);
            load.stage.stop();
            (elections, probe.join().expect("the probe does not panic"))
        });
        first_of(findings)?;
        self.waits = ProbeWaits { all: waits?, elections: elections? };
        self.load.empty(&mut server)?;
        self.load.end(server)
    }

    /// Triggers elections until the time is over or a worker has a finding.
    fn elect(
        &self,
        continues: &mut dyn FnMut() -> Outcome<bool>,
    ) -> Outcome<Vec<(Instant, Duration)>> {
        let time = Duration::from_secs(self.options.seconds);
        let (begun, mut told) = (Instant::now(), Instant::now());
        std::thread::sleep(time / CALM_PART);
        // Connected only now, since the server closes idle connections.
        let operator = Connection::open(self.load.stage.kafka, PATIENCE);
        let mut operator = operator.context(|| "cannot connect as an operator")?;
        let mut elections = Vec::new();
        while begun.elapsed() < time && continues()? {
            let at = Instant::now();
            operator.operate(ELECT).context(|| "no leader was elected")?;
            elections.push((at, at.elapsed()));
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let tally = self.load.stage.ledger().tally;
                eprintln!(
                    "  {} elections, {} records confirmed, {} settles confirmed",
                    elections.len(),
                    tally.confirmed,
                    tally.accepted + tally.rejected
                );
            }
            std::thread::sleep(
                Duration::from_millis(self.options.every_ms).saturating_sub(at.elapsed()),
            );
        }
        Ok(elections)
    }

    /// Sends one record after the other.
    fn probe(&self, stop: &AtomicBool) -> Outcome<Vec<(Instant, Duration)>> {
        let mut waits = Vec::new();
        let mut connection = Connection::open(self.load.stage.kafka, PATIENCE)
            .context(|| "the probe cannot connect")?;
        while !stop.load(Ordering::Relaxed) {
            let sent = Instant::now();
            let records = std::iter::once(Bytes::from_static(b"probe"));
            let answer = connection
                .produce(PROBE, 0, batch(records))
                .and_then(|sent| connection.answer(sent))
                .context(|| "the probe got no answer")?;
            if let ProduceOutcome::Refused { code } = answer {
                return Err(Failure::new(format!(
                    "a record of the probe was refused: code {code}"
                )));
            }
            waits.push((sent, sent.elapsed()));
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(waits)
    }

    fn report(&self) -> Figures {
        let mut figures = Figures::new("soak elections");
        figures.add("elections", self.waits.elections.len() as f64, "");
        figures.add("delayed records stored", self.options.delayed as f64, "");
        self.load.report(&mut figures);
        let every = Duration::from_millis(self.options.every_ms);
        let (mut calm, mut pauses) = (self.waits.calm(every), self.waits.pauses());
        let figure = |what: &str, waits: &mut Vec<Duration>, part: f64, figures: &mut Figures| {
            figures.add(format!("longest wait {what}"), percentile(waits, part), "ms");
        };
        let mut took = self.waits.elections.iter().map(|(_, took)| *took).collect::<Vec<_>>();
        figures.add("an election, median", percentile(&mut took, 0.5), "ms");
        figures.add("an election, p99", percentile(&mut took, 0.99), "ms");
        figure("in such a span without an election, median", &mut calm, 0.5, &mut figures);
        figure("in such a span without an election, worst", &mut calm, 1.0, &mut figures);
        figure("around an election, median", &mut pauses, 0.5, &mut figures);
        figure("around an election, worst", &mut pauses, 1.0, &mut figures);
        let p99 = percentile(&mut pauses, 0.99);
        let max = self.options.pause_ms_max;
        let target = format!("at most {max} ms");
        figures.judge("longest wait around an election, p99", p99, "ms", &target, p99 <= max);
        figures
    }
}
