//! `sim`: runs seeds.

use std::io::{self, IsTerminal, Write};
use std::process::{self, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use clap::{Parser, Subcommand};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sim::profile::Profile;
use sim::trace::Trace;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Trace lines printed before a violation.
const LINES: usize = 40;
/// Time limit on this machine, outside the simulation: no seed takes so long, unless a task loops for ever.
const ENDS_WITHIN: Duration = Duration::from_secs(300);

/// A node in a world that a seed fixes, with faults, and the invariants that must survive them.
#[derive(Parser)]
#[command(name = "sim", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Runs one seed. Its last line has the hash of all that happened.
    Run {
        #[arg(long)]
        seed: u64,
        /// Which faults may come.
        #[arg(long, default_value = "all", value_parser = profile)]
        profile: Profile,
        /// Prints all that happens, to standard error.
        #[arg(long)]
        trace: bool,
        /// Prints what nodes log, to standard error.
        #[arg(long)]
        log: bool,
    },
    /// Runs many seeds, each in a process of its own, and tells which fail.
    Search {
        /// The first one.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        #[arg(long, default_value = "all", value_parser = profile)]
        profile: Profile,
        /// How many at a time; one a core if it is not said.
        #[arg(long)]
        jobs: Option<usize>,
        /// Stops after so many failures.
        #[arg(long, default_value_t = 10)]
        failures: usize,
    },
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = Profile::ALL.map(Profile::name).join(", ");
    Profile::from_name(name).ok_or_else(|| format!("profiles are {names}"))
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        SimCommand::Run { seed, profile, trace, log } => run(seed, profile, trace, log),
        SimCommand::Search { from, seeds, profile, jobs, failures } => {
            let jobs = jobs.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
            search(from..from + seeds, profile, jobs, failures)
        }
    }
}

fn run(seed: u64, profile: Profile, printed: bool, logged: bool) -> ExitCode {
    // Replaces the entropy that tokio and the standard library get from the kernel, before its first use.
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    if !base::collections::seed(seed) {
        eprintln!("a map was made before the seed was known: this is no repeatable run");
        return ExitCode::FAILURE;
    }
    if logged {
        // Times are the simulation's, which the trace has.
        tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(io::stderr).init();
    }
    sim::panics::watch_panics();
    thread::spawn(move || {
        thread::sleep(ENDS_WITHIN);
        println!("seed {seed}: Progress does not hold: it does not end within {ENDS_WITHIN:?}");
        process::exit(1);
    });
    let trace = if printed { Trace::printed() } else { Trace::default() };
    match sim::run::run(seed, profile, &trace) {
        Ok(report) => {
            println!("{report}");
            println!("seed {seed}: ok, trace {:016x}", report.hash);
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("the last that happened:");
            for line in trace.last(LINES) {
                println!("{line}");
            }
            println!("seed {seed}: {violation}");
            println!(
                "repeat: cargo run --release -p sim -- run --seed {seed} --profile {}",
                profile.name()
            );
            ExitCode::FAILURE
        }
    }
}

/// One process per seed: static state of one does not reach the next.
fn search(seeds: std::ops::Range<u64>, profile: Profile, jobs: usize, failures: usize) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("this program cannot find itself: {error}");
            return ExitCode::FAILURE;
        }
    };
    let next = AtomicU64::new(seeds.start);
    let done = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let shown = io::stderr().is_terminal();
    let count = seeds.end - seeds.start;
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let enough = failed.lock().is_ok_and(|failed| failed.len() >= failures);
            if seed >= seeds.end || enough {
                return;
            }
            let output = Command::new(&program)
                .args(["run", "--seed", &seed.to_string(), "--profile", profile.name()])
                .stdin(Stdio::null())
                .output();
            let output = match output {
                Ok(output) => output,
                Err(error) => {
                    eprintln!("seed {seed} cannot be run: {error}");
                    return;
                }
            };
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if !output.status.success() {
                let told = [output.stdout, output.stderr].concat();
                let told = String::from_utf8_lossy(&told).into_owned();
                println!("\n{}", told.trim_end());
                if let Ok(mut failed) = failed.lock() {
                    failed.push(seed);
                }
            }
            if shown {
                eprint!("\r{done} of {count} seeds");
                let _ = io::stderr().flush();
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    if shown {
        eprintln!();
    }
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_unstable();
    let ran = done.into_inner();
    match failed.is_empty() && ran == count {
        true => {
            println!("{ran} seeds of profile {}: ok", profile.name());
            ExitCode::SUCCESS
        }
        false => {
            println!(
                "{ran} seeds of profile {}: {} failed: {failed:?}",
                profile.name(),
                failed.len()
            );
            ExitCode::FAILURE
        }
    }
}
