//! `postroad-bench`: the published tests, on any of the brokers, on this machine, audited.

mod arguments;
mod commands;
mod failure;
mod fleet;
mod live;
mod metrics;
mod table;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("POSTROAD_BENCH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // One worker thread by default, so that a broker on the same machine has the other cores.
    let threads = arguments.threads.unwrap_or(1).max(1);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("postroad-bench: cannot start its threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(async {
        match arguments.command {
            Command::List(list) => commands::list::run(&list),
            Command::Systems(systems) => commands::systems::run(&systems),
            Command::Peers(peers) => commands::peers::run(peers).await,
            Command::Run(run) => commands::run::run(run).await,
            Command::Agent(agent) => commands::agent::run(agent).await,
            Command::Conformance(conformance) => commands::conformance::run(conformance).await,
            Command::Tools(comparison) => commands::tools::run(comparison).await,
            Command::Report(report) => commands::report::run(&report),
            Command::Compare(compare) => commands::report::compare(&compare),
        }
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("postroad-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
