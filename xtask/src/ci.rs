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

const PASSED: Counts = Counts { passed: 1, failed: 0 };

const STEPS: [Step; 16] = [
    Step {
        title: "format",
        tier: None,
        remedy: "cargo fmt --all",
        meanwhile: |_| Vec::new(),
        run: |_| {
            cargo(&["fmt", "--all", "--check"])?;
            cargo(&["fmt", "--manifest-path", SUITE, "--all", "--check"])?;
            cargo(&["fmt", "--manifest-path", fuzz::MANIFEST, "--check"])
        },
    },
    Step {
        title: "licences",
        tier: None,
        remedy: "cargo deny check, and replace the dependency or decide in deny.toml",
        meanwhile: |_| Vec::new(),
        run: |_| deny(),
    },
    Step {
        title: "lints and tests of the workspace",
        tier: None,
        remedy: "cargo test -p PACKAGE NAME repeats a test, cargo clippy --workspace --all-targets the lints",
        meanwhile: |tier| match tier {
            Tier::Short => vec![test_binaries::build_only(&SUITE_TESTS)],
            Tier::Full => vec![cargo_command(&RELEASE_BUILD)],
        },
        run: |_| test_binaries::run(&[]),
    },
    Step {
        title: "release build",
        tier: Some(Tier::Full),
        remedy: "cargo build --release -p postroad",
        meanwhile: |_| Vec::new(),
        run: |_| cargo(&RELEASE_BUILD),
    },
    Step {
        title: "the console in a browser",
        tier: None,
        remedy: "cargo xtask console",
        meanwhile: |_| Vec::new(),
        run: |tier| console::in_ci(tier.server()).map(|()| PASSED),
    },
    Step {
        title: "real clients",
        tier: None,
        remedy: "cargo xtask compat FAMILY --name SCENARIO repeats one",
        meanwhile: |tier| match tier {
            Tier::Short => Vec::new(),
            Tier::Full => fuzz::build_all()
                .into_iter()
                .chain([test_binaries::build_only(&SUITE_TESTS)])
                .collect(),
        },
        run: |tier| compat::run(&compat::Options::for_ci(tier.server(), tier == Tier::Full)),
    },
    Step {
        title: "lints and tests of the benchmark suite",
        tier: None,
        remedy: "cargo test --manifest-path bench/Cargo.toml -p PACKAGE NAME repeats one",
        meanwhile: |_| Vec::new(),
        run: |_| test_binaries::run(&SUITE_TESTS),
    },
    Step {
        title: "lints of the benchmark drivers",
        tier: Some(Tier::Full),
        remedy: "cargo clippy --manifest-path bench/Cargo.toml --workspace --all-targets --all-features",
        meanwhile: |_| Vec::new(),
        run: |_| {
            let workspace = ["clippy", "--locked", "--workspace", "--all-targets"];
            let suite = ["--manifest-path", SUITE, "--all-features"];
            cargo(&[&workspace[..], &suite, &["--", "-D", "warnings"]].concat())
        },
    },
    Step {
        title: "kill -9 under load",
        tier: None,
        remedy: "cargo xtask soak kill",
        meanwhile: |_| Vec::new(),
        run: |tier| {
            let kills = if tier == Tier::Full { FULL_KILLS } else { KILLS };
            soak::kill_in_ci(&tier.server(), kills).map(|()| PASSED)
        },
    },
    Step {
        title: "kill -9 with consumers at work",
        tier: Some(Tier::Full),
        remedy: "cargo xtask soak leases",
        meanwhile: |_| Vec::new(),
        run: |tier| soak::leases_in_ci(&tier.server(), FULL_KILLS).map(|()| PASSED),
    },
    Step {
        title: "elections with clients at work",
        tier: Some(Tier::Full),
        remedy: "cargo xtask soak elections",
        meanwhile: |_| Vec::new(),
        run: |tier| soak::elections_in_ci(&tier.server(), FULL_ELECTION_SECONDS).map(|()| PASSED),
    },
    Step {
        title: "commands of README and the user guide",
        tier: Some(Tier::Full),
        remedy: "cargo xtask guide",
        meanwhile: |_| Vec::new(),
        run: |_| guide::in_ci().map(|()| PASSED),
    },
    Step {
        title: "the API by its own description",
        tier: Some(Tier::Full),
        remedy: "cargo xtask api",
        meanwhile: |_| Vec::new(),
        run: |tier| api::in_ci(tier.server()).map(|()| PASSED),
    },
    Step {
        title: "random histories, others in each run",
        tier: Some(Tier::Full),
        remedy: "add the history to the test as a case, and mend it",
        meanwhile: |_| Vec::new(),
        run: |_| random_histories(),
    },
    Step {
        title: "long tests in full",
        tier: Some(Tier::Full),
        remedy: "THOROUGH=1 cargo test -p sim --test seeds, or -p broker rewrites",
        meanwhile: |_| Vec::new(),
        run: |_| {
            test_binaries::run_thoroughly("sim seeds", "seed_")?;
            test_binaries::run_thoroughly("broker broker", "rewrites")
        },
    },
    Step {
        title: "fuzz targets",
        tier: Some(Tier::Full),
        remedy: "cargo xtask fuzz",
        meanwhile: |_| Vec::new(),
        run: |_| fuzz::short(FULL_FUZZ_SECONDS).map(|passed| Counts { passed, failed: 0 }),
    },
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
