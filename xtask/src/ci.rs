//! `cargo xtask ci`: all checks that a change must pass, the cheapest to fail first. Tests run in the dev profile,
//! with its assertions. Real clients and the kill loop run against a release build, as users do.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;

use crate::ahead::Ahead;
use crate::compat::{self, Counts};
use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use crate::{api, console, fuzz, guide, paths, soak, test_binaries};

/// A kill loop short enough for every change; `soak kill` is the long one.
const KILLS: u32 = 10;
/// Length of the election loop, with a handful of elections a second.
const ELECTION_SECONDS: u64 = 15;

/// Length of each fuzz target's run. A real hunt takes hours.
const FUZZ_SECONDS: u64 = 10;

/// The benchmark suite is a workspace of its own. It is built here without the clients of its rivals, which would
/// take longer than all other steps together.
const SUITE: &str = "bench/Cargo.toml";

/// Arguments that select the tests of the benchmark suite: see [`SUITE`].
const SUITE_TESTS: [&str; 3] = ["--manifest-path", SUITE, "--no-default-features"];

const RELEASE_BUILD: [&str; 5] = ["build", "--locked", "--release", "--package", "postroad"];

/// Disk space that all steps together take, measured cold and rounded up.
const WRITTEN_GIGABYTES: f64 = 9.5;

/// Lengths of the loops under `--full`.
const FULL_KILLS: u32 = 200;
const FULL_ELECTION_SECONDS: u64 = 600;
const FULL_FUZZ_SECONDS: u64 = 600;
const FULL_HISTORIES: u32 = 500_000;

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Also for hours: longer fuzzing and fault loops, and the API by its own description
    #[arg(long)]
    full: bool,
}

/// Selection of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All steps, including format, lints and licences.
    Everything,
    /// Only the steps that run the product.
    Tests,
}

struct Step {
    title: &'static str,
    lint: bool,
    remedy: &'static str,
    /// Builds of later steps, made while this one waits.
    meanwhile: fn() -> Vec<Command>,
    /// Returns the number of tests that it ran.
    run: fn() -> Outcome<Counts>,
}

const STEPS: [Step; 13] = [
    Step {
        title: "format",
        lint: true,
        remedy: "cargo fmt --all",
        meanwhile: Vec::new,
        run: || {
            cargo(&["fmt", "--all", "--check"])?;
            cargo(&["fmt", "--manifest-path", SUITE, "--all", "--check"])?;
            cargo(&["fmt", "--manifest-path", fuzz::MANIFEST, "--check"])
        },
    },
    Step {
        title: "lints",
        lint: true,
        remedy: "cargo clippy --workspace --all-targets, and mend what it names",
        meanwhile: Vec::new,
        run: || {
            let workspace = ["clippy", "--locked", "--workspace", "--all-targets"];
            cargo(&[&workspace[..], &["--", "-D", "warnings"]].concat())
        },
    },
    Step {
        title: "lints of the benchmark suite",
        lint: true,
        remedy: "cargo clippy --manifest-path bench/Cargo.toml --workspace --all-targets --all-features",
        meanwhile: Vec::new,
        run: || {
            let workspace = ["clippy", "--locked", "--workspace", "--all-targets"];
            // The suite's tests need no clients; only this step shows that every driver still compiles.
            let suite = ["--manifest-path", SUITE, "--all-features"];
            cargo(&[&workspace[..], &suite, &["--", "-D", "warnings"]].concat())
        },
    },
    Step {
        title: "licences and advisories",
        lint: true,
        remedy: "cargo deny check, and replace the dependency or decide in deny.toml",
        meanwhile: Vec::new,
        run: deny,
    },
    Step {
        title: "tests of the workspace",
        lint: false,
        remedy: "cargo test -p PACKAGE NAME repeats one",
        meanwhile: || vec![cargo_command(&RELEASE_BUILD)],
        run: || test_binaries::run(&[]),
    },
    Step {
        title: "release build",
        lint: false,
        remedy: "cargo build --release -p postroad",
        meanwhile: Vec::new,
        run: || cargo(&RELEASE_BUILD),
    },
    Step {
        title: "the console in a browser",
        lint: false,
        remedy: "cargo xtask console",
        meanwhile: Vec::new,
        run: || console::in_ci().map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "real clients",
        lint: false,
        remedy: "cargo xtask compat FAMILY --name SCENARIO repeats one",
        meanwhile: || {
            fuzz::build_all().into_iter().chain([test_binaries::build_only(&SUITE_TESTS)]).collect()
        },
        run: || compat::run(&compat::Options::for_ci()),
    },
    Step {
        title: "fuzz targets",
        lint: false,
        remedy: "cargo xtask fuzz",
        meanwhile: Vec::new,
        run: || fuzz::short(FUZZ_SECONDS).map(|passed| Counts { passed, failed: 0 }),
    },
    Step {
        title: "tests of the benchmark suite",
        lint: false,
        remedy: "cargo test --manifest-path bench/Cargo.toml -p PACKAGE NAME repeats one",
        meanwhile: Vec::new,
        run: || test_binaries::run(&SUITE_TESTS),
    },
    Step {
        title: "kill -9 under load",
        lint: false,
        remedy: "cargo xtask soak kill",
        meanwhile: Vec::new,
        run: || soak::short_kill(KILLS).map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "kill -9 with consumers at work",
        lint: false,
        remedy: "cargo xtask soak leases",
        meanwhile: Vec::new,
        run: || soak::short_leases(KILLS).map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "elections with clients at work",
        lint: false,
        remedy: "cargo xtask soak elections",
        meanwhile: Vec::new,
        run: || soak::short_elections(ELECTION_SECONDS).map(|()| Counts { passed: 1, failed: 0 }),
    },
];

/// Hours of the checks that every change runs for minutes, and checks that are too slow for every change.
const FULL: [Step; 7] = [
    Step {
        title: "random histories, others in each run",
        lint: false,
        remedy: "add the history to the test as a case, and mend it",
        meanwhile: Vec::new,
        run: random_histories,
    },
    Step {
        title: "commands of README and the user guide",
        lint: false,
        remedy: "cargo xtask guide",
        meanwhile: Vec::new,
        run: || guide::in_ci().map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "the API by its own description",
        lint: false,
        remedy: "cargo xtask api",
        meanwhile: Vec::new,
        run: || api::in_ci().map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "fuzz targets, longer",
        lint: false,
        remedy: "cargo xtask fuzz --seconds 600",
        meanwhile: Vec::new,
        run: || fuzz::short(FULL_FUZZ_SECONDS).map(|passed| Counts { passed, failed: 0 }),
    },
    Step {
        title: "kill -9 under load, longer",
        lint: false,
        remedy: "cargo xtask soak kill",
        meanwhile: Vec::new,
        run: || soak::short_kill(FULL_KILLS).map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "kill -9 with consumers at work, longer",
        lint: false,
        remedy: "cargo xtask soak leases",
        meanwhile: Vec::new,
        run: || soak::short_leases(FULL_KILLS).map(|()| Counts { passed: 1, failed: 0 }),
    },
    Step {
        title: "elections with clients at work, longer",
        lint: false,
        remedy: "cargo xtask soak elections",
        meanwhile: Vec::new,
        run: || {
            soak::short_elections(FULL_ELECTION_SECONDS).map(|()| Counts { passed: 1, failed: 0 })
        },
    },
];

/// Runs the steps until one fails. Ends with one plain line that counts what was tested.
pub(crate) fn run(scope: Scope, options: &Options) -> Outcome {
    let longer = FULL.iter().filter(|_| options.full);
    let steps: Vec<&Step> = STEPS
        .iter()
        .filter(|step| scope == Scope::Everything || !step.lint)
        .chain(longer)
        .collect();
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
        ahead.push(Ahead::begin((step.meanwhile)()));
        let ran = (step.run)().map_err(|failure| {
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

/// The cargo that built this program, in the repository's root, without standard input. Incremental data would only
/// fill the disk, since each crate is compiled once. Debug symbols would fill more than half of it; a panic names
/// its line without them.
pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(paths::root()).stdin(Stdio::null());
    command.env("CARGO_INCREMENTAL", "0");
    // Only for the dev profile: with debug symbols set for release, too, steps that start a server would build it
    // again.
    command.env("CARGO_PROFILE_DEV_DEBUG", "false");
    command
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
