//! `cargo xtask ci`: the checks that a change must pass, the cheapest to fail first. `--full` adds the checks that take
//! long, and is run before a larger piece of work is complete.
//!
//! Tests, clients and the browser meet one build in the dev profile, with its assertions. The lints run while it is
//! compiled. Under `--full` clients and fault loops meet a release build, as users do.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::background_builds::BackgroundBuilds;
use crate::cargo::cargo_command;
use crate::compat::{self, Counts};
use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use crate::{api, console, fuzz, guide, paths, soak, test_binaries};

/// The benchmark suite is a workspace of its own. Its tests are built without the clients of its rivals, which would
/// take longer than all other steps together.
const SUITE: &str = "bench/Cargo.toml";

/// Arguments that select the tests of the benchmark suite: see [`SUITE`].
const SUITE_TESTS: [&str; 3] = ["--manifest-path", SUITE, "--no-default-features"];

const DRIVER_LINTS: &str = "clippy --locked --workspace --all-targets --manifest-path bench/Cargo.toml --all-features -- -D warnings";

const RELEASE_BUILD: [&str; 5] = ["build", "--locked", "--release", "--package", "postroad"];

/// Disk space that all steps together take, measured cold and rounded up.
const WRITTEN_GIGABYTES: f64 = 9.5;

/// Kills of the loop that each change runs, and of the long ones.
const KILLS: u32 = 10;
const FULL_KILLS: u32 = 200;
/// Lengths under `--full`. An election loop has a handful of elections a second.
const FULL_ELECTION_SECONDS: u64 = 600;
const FULL_FUZZ_SECONDS: u64 = 60;
const FULL_HISTORIES: u32 = 500_000;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Also the checks that take long: all clients, fuzzing, fault loops, the pages of the user guide, lints of all
    /// benchmark drivers
    #[arg(long)]
    full: bool,
}

/// The checks that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Those that every change must pass.
    Short,
    Full,
}

impl Tier {
    /// The server that clients meet, built by an earlier step.
    fn server(self) -> PathBuf {
        let profile = match self {
            Tier::Short => "debug",
            Tier::Full => "release",
        };
        paths::target().join(profile).join("postroad")
    }
}

struct Step {
    title: &'static str,
    /// `None`: of both.
    tier: Option<Tier>,
    remedy: &'static str,
    /// Builds of later steps, made while this one waits.
    meanwhile: fn(Tier) -> Vec<Command>,
    /// Returns the number of tests that it ran.
    run: fn(Tier) -> Outcome<Counts>,
}

const FULL: Option<Tier> = Some(Tier::Full);

const fn step(
    title: &'static str,
    tier: Option<Tier>,
    remedy: &'static str,
    run: fn(Tier) -> Outcome<Counts>,
) -> Step {
    Step { title, tier, remedy, meanwhile: |_| Vec::new(), run }
}

impl Step {
    const fn meanwhile(self, builds: fn(Tier) -> Vec<Command>) -> Self {
        Self { meanwhile: builds, ..self }
    }
}

const PASSED: Counts = Counts { passed: 1, failed: 0 };

const STEPS: [Step; 16] = [
    step("format", None, "cargo fmt --all", |_| {
        cargo(&["fmt", "--all", "--check"])?;
        cargo(&["fmt", "--manifest-path", SUITE, "--all", "--check"])?;
        cargo(&["fmt", "--manifest-path", fuzz::MANIFEST, "--check"])
    }),
    step("licences", None, "cargo deny check; deny.toml decides", |_| deny()),
    step("lints and tests", None, "cargo test -p PACKAGE NAME, or cargo clippy", |_| {
        test_binaries::run(&[])
    })
    .meanwhile(|tier| match tier {
        Tier::Short => vec![test_binaries::build_only(&SUITE_TESTS)],
        Tier::Full => vec![cargo_command(&RELEASE_BUILD)],
    }),
    step("release build", FULL, "cargo build --release -p postroad", |_| cargo(&RELEASE_BUILD)),
    step("the console in a browser", None, "cargo xtask console", |tier| {
        console::in_ci(tier.server()).map(|()| PASSED)
    }),
    step("real clients", None, "cargo xtask compat FAMILY --name SCENARIO repeats one", |tier| {
        compat::run(&compat::Options::for_ci(tier.server(), tier == Tier::Full))
    })
    .meanwhile(|tier| match tier {
        Tier::Short => Vec::new(),
        Tier::Full => {
            fuzz::build_all().into_iter().chain([test_binaries::build_only(&SUITE_TESTS)]).collect()
        }
    }),
    step(
        "tests of the benchmark suite",
        None,
        "cargo test --manifest-path bench/Cargo.toml",
        |_| test_binaries::run(&SUITE_TESTS),
    ),
    step(
        "lints of the benchmark drivers",
        FULL,
        "cargo clippy --manifest-path bench/Cargo.toml --all-features",
        |_| cargo(&DRIVER_LINTS.split(' ').collect::<Vec<_>>()),
    ),
    step("kill -9 under load", None, "cargo xtask soak kill", |tier| {
        let kills = if tier == Tier::Full { FULL_KILLS } else { KILLS };
        soak::kill_in_ci(&tier.server(), kills).map(|()| PASSED)
    }),
    step("kill -9 with consumers at work", FULL, "cargo xtask soak leases", |tier| {
        soak::leases_in_ci(&tier.server(), FULL_KILLS).map(|()| PASSED)
    }),
    step("elections with clients at work", FULL, "cargo xtask soak elections", |tier| {
        soak::elections_in_ci(&tier.server(), FULL_ELECTION_SECONDS).map(|()| PASSED)
    }),
    step("commands of README and the user guide", FULL, "cargo xtask guide", |_| {
        guide::in_ci().map(|()| PASSED)
    }),
    step("the API by its own description", FULL, "cargo xtask api", |tier| {
        api::in_ci(tier.server()).map(|()| PASSED)
    }),
    step("random histories, others in each run", FULL, "add the history to the test", |_| {
        random_histories()
    }),
    step("long tests in full", FULL, "THOROUGH=1 cargo test -p sim -p broker", |_| {
        test_binaries::run_thoroughly("sim seeds", "seed_")?;
        test_binaries::run_thoroughly("broker broker", "rewrites")
    }),
    step("fuzz targets", FULL, "cargo xtask fuzz", |_| {
        fuzz::short(FULL_FUZZ_SECONDS).map(|passed| Counts { passed, failed: 0 })
    }),
];

/// Runs the steps until one fails. Ends with one plain line that counts what was tested.
pub(crate) fn run(options: &Options) -> Outcome {
    let tier = if options.full { Tier::Full } else { Tier::Short };
    let steps: Vec<&Step> =
        STEPS.iter().filter(|step| step.tier.is_none_or(|only| only == tier)).collect();
    let begun = Instant::now();
    let free = free_gigabytes()?;
    println!("{free:.1} GB are free on this disk");
    if free < WRITTEN_GIGABYTES {
        println!("warning: a cold run writes about {WRITTEN_GIGABYTES} GB");
    }
    let mut counts = Counts::default();
    let mut times = Vec::new();
    let mut ahead = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n=== {}/{} {} ===", index + 1, steps.len(), step.title);
        let step_begun = Instant::now();
        ahead.push(BackgroundBuilds::begin((step.meanwhile)(tier)));
        let ran = (step.run)(tier).map_err(|failure| {
            println!("{} passed, {} failed", counts.passed, counts.failed + 1);
            // A full disk makes any step fail, with messages that seldom say so.
            let free = free_gigabytes().unwrap_or_default();
            println!("{free:.1} GB are free on this disk");
            let after = step_begun.elapsed();
            Failure::new(format!("{}, after {}: {failure}", step.title, minutes(after)))
                .remedy(step.remedy)
        })?;
        counts.passed += ran.passed;
        counts.failed += ran.failed;
        times.push((step.title, step_begun.elapsed()));
        println!("--- {}: {}", step.title, minutes(step_begun.elapsed()));
    }
    println!("\ntimes:");
    for (title, time) in times {
        println!("  {:>8}  {title}", minutes(time));
    }
    println!("  {:>8}  all\n", minutes(begun.elapsed()));
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(())
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// Free space on the disk of the checkout.
fn free_gigabytes() -> Outcome<f64> {
    let root = paths::root();
    let told = rustix::fs::statvfs(root).map_err(std::io::Error::from);
    let told = told.context(|| format!("cannot ask what is free at {}", root.display()))?;
    Ok((told.f_bavail as f64) * (told.f_frsize as f64) / 1e9)
}

fn cargo(arguments: &[&str]) -> Outcome<Counts> {
    let status = cargo_command(arguments).status().context(|| "cannot run cargo")?;
    if !status.success() {
        return Err(Failure::new(format!("cargo {} failed", arguments.join(" "))));
    }
    Ok(Counts::default())
}

/// Tests properties of the state machine and of delivery with cases that no run had before.
fn random_histories() -> Outcome<Counts> {
    let mut command =
        cargo_command(&["test", "--locked", "--release", "-p", "dispatch", "-p", "machine"]);
    command.env("PROPTEST_RNG_SEED", Random::any_seed().to_string());
    command.env("HISTORIES", FULL_HISTORIES.to_string());
    let status = command.status().context(|| "cannot run cargo")?;
    if !status.success() {
        return Err(Failure::new("a property does not hold"));
    }
    Ok(Counts { passed: 1, failed: 0 })
}

/// cargo-deny takes minutes to build, so it is used if it is installed and never installed here.
fn deny() -> Outcome<Counts> {
    let mut command = cargo_command(&["deny", "--version"]);
    let there = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        println!("skipped: cargo-deny is not installed (cargo install cargo-deny)");
        return Ok(Counts::default());
    }
    // Advisories are left out: they need the advisory database, and a change must not fail for a day's news.
    cargo(&["deny", "--offline", "check", "bans", "licenses", "sources"])
}
