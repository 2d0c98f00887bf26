//! Every chore of the repository, as `cargo xtask CHORE`. In Rust rather than in shell, so that a
//! chore is typed, tested and the same on every machine; one chore, one file.

mod bench;
mod client;
mod failure;
mod measure;
mod paths;
mod process;
mod random;
mod server;
mod soak;

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
    /// Paired benchmarks on this machine (bench kafka)
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Long runs with faults on the real binary (soak kill)
    #[command(subcommand)]
    Soak(soak::Soak),
    /// Single figures of the real binary against their targets (measure restart, measure partitions)
    #[command(subcommand)]
    Measure(measure::Measure),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Bench(bench) => bench::run(&bench),
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
