//! `cargo xtask soak abuse`: harm that one client can do to the others. Each case starts a fresh server, runs
//! well-behaved clients for a while, and then abuses the server concurrently. It reports the latencies before and
//! during the abuse, and the server's peak memory.
//!
//! A case fails when the server takes more memory than [`MEMORY_MAX`], when it ends, when one of the
//! well-behaved clients stops, or when the p99 of one of them passes the limit (`--p99-ms`).

mod amqp_cases;
mod bystanders;
mod http_cases;
mod kafka_cases;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::failure::{Context, Failure, Outcome};
use crate::figures::Output;
use crate::paths;
use crate::server::{self, Postroad};
use bystanders::{Bystanders, Latency};
use host::process::{self, Memory};

const MEMORY_MAX: u64 = 512 << 20;
/// Timeout of a start, a connect or a reply.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Args)]
pub(crate) struct AbuseOptions {
    /// Only this case; may be given several times. `list` prints their names
    #[arg(long = "case")]
    cases: Vec<String>,
    /// How long each abuse goes on
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How long the well-behaved clients run alone before
    #[arg(long, default_value_t = 5)]
    before_seconds: u64,
    /// Size of the backlog of cases that have one, in GB
    #[arg(long, default_value_t = 2.0)]
    backlog_gb: f64,
    /// The most that the p99 of a well-behaved client's records may be during an abuse. For a
    /// release build on a quiet machine
    #[arg(long, default_value_t = 250.0, value_parser = limit_ms)]
    p99_ms: f64,
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

/// A limit that every latency meets, or none, is a mistake.
fn limit_ms(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if f64::is_finite(limit) && limit > 0.0 => Ok(limit),
        _ => Err("must be a number of milliseconds above 0".to_owned()),
    }
}

struct Case {
    name: &'static str,
    what: &'static str,
    /// Runs before the well-behaved clients start.
    prepare: Option<fn(&Abuse) -> Outcome>,
    abuse: fn(&Abuse) -> Outcome,
}

impl Case {
    fn new(name: &'static str, what: &'static str, abuse: fn(&Abuse) -> Outcome) -> Self {
        Self { name, what, prepare: None, abuse }
    }

    fn after(self, prepare: fn(&Abuse) -> Outcome) -> Self {
        Self { prepare: Some(prepare), ..self }
    }
}

/// All cases, in the order in which they run.
fn cases() -> Vec<Case> {
    let mut cases = kafka_cases::all();
    cases.extend(amqp_cases::all());
    cases.extend(http_cases::all());
    cases
}

/// Addresses, process id and counters of one abuse.
struct Abuse {
    kafka: SocketAddr,
    amqp: SocketAddr,
    http: SocketAddr,
    pid: u32,
    backlog_bytes: u64,
    seconds: u64,
    begun: Instant,
    /// Accepted and rejected requests.
    done: AtomicU64,
    refused: AtomicU64,
    notes: std::sync::Mutex<Vec<String>>,
}

impl Abuse {
    fn continues(&self) -> bool {
        self.begun.elapsed() < Duration::from_secs(self.seconds)
    }

    fn left(&self) -> Duration {
        Duration::from_secs(self.seconds).saturating_sub(self.begun.elapsed())
    }

    fn count(&self, taken: bool) {
        let counter = if taken { &self.done } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, note: impl Into<String>) {
        self.notes.lock().expect("nobody panics with it").push(note.into());
    }

    /// Runs the same in several threads. Returns the first failure.
    fn in_threads(&self, threads: usize, each: impl Fn(usize) -> Outcome + Sync) -> Outcome {
        std::thread::scope(|scope| {
            let each = &each;
            let running: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || each(number))).collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("a thread of an abuse does not panic"))
                .collect::<Outcome<Vec<()>>>()
                .map(drop)
        })
    }
}

#[derive(Debug, Serialize)]
struct Report {
    case: &'static str,
    what: &'static str,
    /// Limit of the p99 of the well-behaved clients during the abuse.
    p99_ms_max: f64,
    done: u64,
    refused: u64,
    peak_memory_bytes: u64,
    bystanders: Vec<Latency>,
    notes: Vec<String>,
    /// Reasons for the failure of the case.
    failures: Vec<String>,
}

pub(crate) fn run(options: &AbuseOptions) -> Outcome {
    let all = cases();
    if options.cases.iter().any(|name| name == "list") {
        all.iter().for_each(|case| println!("{:<26} {}", case.name, case.what));
        return Ok(());
    }
    let is_known = |name: &String| all.iter().any(|case| case.name == name);
    if let Some(unknown) = options.cases.iter().find(|name| !is_known(name)) {
        return Err(Failure::new(format!("there is no case `{unknown}`"))
            .remedy("cargo xtask soak abuse --case list"));
    }
    let chosen = all.iter().filter(|case| {
        options.cases.is_empty() || options.cases.iter().any(|name| name == case.name)
    });
    let binary = server::binary(options.bin.as_deref())?;
    let mut reports = Vec::new();
    for case in chosen {
        eprintln!("{}: {}", case.name, case.what);
        let report = one(case, options, binary.clone())?;
        if options.output == Output::Table {
            print(&report);
        }
        reports.push(report);
    }
    if options.output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&reports).context(|| "cannot write JSON")?);
    } else {
        summary(&reports);
    }
    let failed: Vec<&str> =
        reports.iter().filter(|it| !it.failures.is_empty()).map(|it| it.case).collect();
    if failed.is_empty() {
        return paths::fresh("soak-abuse").map(drop);
    }
    Err(Failure::new(format!(
        "{} of {} cases failed: {}",
        failed.len(),
        reports.len(),
        failed.join(", ")
    ))
    .remedy("the server's logs are in target/soak-abuse"))
}

fn one(case: &Case, options: &AbuseOptions, binary: PathBuf) -> Outcome<Report> {
    let folder = paths::fresh(&format!("soak-abuse/{}", case.name))?;
    let amqp = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
    let http = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
    let listeners = [("--amqp", amqp), ("--http", http)];
    let mut arguments: Vec<String> =
        listeners.iter().flat_map(|(flag, at)| [flag.to_string(), at.to_string()]).collect();
    arguments.extend(options.serve.iter().cloned());
    let postroad = Postroad {
        binary,
        data: folder.join("data"),
        log: folder.join("server.log"),
        port: server::free_port()?,
        arguments,
    };
    let (mut server, _) = postroad.start(PATIENCE)?;
    let kafka = server.address;
    let mut abuse = Abuse {
        kafka,
        amqp,
        http,
        pid: server.pid(),
        backlog_bytes: (options.backlog_gb * 1e9) as u64,
        seconds: options.seconds,
        begun: Instant::now(),
        done: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        notes: std::sync::Mutex::default(),
    };
    if let Some(prepare) = case.prepare {
        prepare(&abuse)?;
    }
    let bystanders = Bystanders::start(kafka, amqp)?;
    std::thread::sleep(Duration::from_secs(options.before_seconds));
    bystanders.mark_abuse();
    abuse.begun = Instant::now();
    let mut failures = Vec::new();
    if let Err(failure) = (case.abuse)(&abuse) {
        failures.push(format!("the abuse: {failure}"));
    }
    let still_runs = server.still_runs();
    let peak = process::memory_bytes(server.pid(), Memory::Peak).unwrap_or_default();
    let (latencies, stopped) = bystanders.end();
    if let Err(failure) = still_runs {
        failures.push(format!("the server: {failure}"));
    } else {
        failures.extend(stopped);
    }
    failures.extend(latencies.iter().filter_map(|latency| latency.above(options.p99_ms)));
    if peak > MEMORY_MAX {
        failures.push(format!("{} MB of memory", peak >> 20));
    }
    server.kill()?;
    let _ = std::fs::remove_dir_all(&postroad.data);
    settle_disk();
    Ok(Report {
        case: case.name,
        what: case.what,
        p99_ms_max: options.p99_ms,
        done: abuse.done.into_inner(),
        refused: abuse.refused.into_inner(),
        peak_memory_bytes: peak,
        bystanders: latencies,
        notes: abuse.notes.into_inner().expect("nobody panicked with it"),
        failures,
    })
}

/// Deleting gigabytes keeps a file system busy for a while: the next case's syncs must not wait for it.
fn settle_disk() {
    // Without `sync` the figures are only noisier.
    let _ = Command::new("sync").status();
}

fn print(report: &Report) {
    let (done, refused, peak) = (report.done, report.refused, report.peak_memory_bytes >> 20);
    println!("  taken {done}, refused {refused}, peak memory {peak} MB");
    for latency in &report.bystanders {
        println!("  {latency}");
    }
    report.notes.iter().for_each(|note| println!("  {note}"));
    report.failures.iter().for_each(|failure| println!("  FAILED: {failure}"));
}

/// One line for each case: p99 of the well-behaved clients, before and during the abuse.
fn summary(reports: &[Report]) {
    println!();
    if let Some(report) = reports.first() {
        println!("p99 during an abuse: {} ms at most", report.p99_ms_max);
    }
    print!("{:<26} {:>8}", "case", "peak MB");
    for latency in reports.first().map(|report| &report.bystanders[..]).unwrap_or_default() {
        print!(" {:>21}", format!("{} p99 ms", latency.who));
    }
    println!();
    for report in reports {
        print!("{:<26} {:>8}", report.case, report.peak_memory_bytes >> 20);
        for latency in &report.bystanders {
            let both = format!("{:.1} -> {:.1}", latency.before.p99_ms, latency.during.p99_ms);
            print!(" {both:>21}");
        }
        println!("  {}", if report.failures.is_empty() { "ok" } else { "FAILED" });
    }
}
