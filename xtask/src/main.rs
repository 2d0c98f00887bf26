//! Chores of the repository, as `cargo xtask CHORE`. They are written in Rust instead of shell, so that a chore is
//! typed, tested and the same on every machine; one chore, one file.

mod api;
mod background_builds;
mod cargo;
mod ci;
mod cluster;
mod command;
mod compat;
mod console;
mod dist;
mod failure;
mod figures;
mod fuzz;
mod guide;
mod measure;
mod pair;
mod paths;
mod rabbitmq;
mod random;
mod records;
mod server;
mod side_by_side;
mod soak;
mod test_binaries;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The chores of the repository")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Everything that a change must pass: format, lints, all tests, real clients, a kill loop; `--full`: all checks
    Ci(ci::Options),
    /// Stock Kafka clients against the real binary (tests/compat)
    Compat(compat::Options),
    /// The console in a real browser, against the real binary (console/)
    Console(console::Options),
    /// Types the commands of README.md and docs/user as they are printed, and compares what they print
    Guide(guide::Options),
    /// The HTTP API, tried with what its own description permits (schemathesis)
    Api(api::Options),
    /// Fuzz targets of the parsers of untrusted bytes (fuzz/)
    Fuzz(fuzz::Options),
    /// Artifacts of a release: a static binary, an archive, a Debian package, an image
    Dist(dist::Options),
    /// Long runs with faults on the real binary (soak kill, soak power)
    #[command(subcommand)]
    Soak(soak::Soak),
    /// Single figures of the real binary against their targets (measure restart, partitions, machine)
    #[command(subcommand)]
    Measure(measure::Measure),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Ci(options) => ci::run(&options),
        Chore::Compat(options) => compat::run(&options)
            .map(|counts| println!("{} passed, {} failed", counts.passed, counts.failed)),
        Chore::Console(options) => console::run(&options),
        Chore::Guide(options) => guide::run(&options),
        Chore::Api(options) => api::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Dist(options) => dist::run(&options),
        Chore::Soak(soak) => soak::run(&soak),
        Chore::Measure(measure) => measure::run(&measure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nfailed: {failure}");
            ExitCode::FAILURE
        }
    }
}
