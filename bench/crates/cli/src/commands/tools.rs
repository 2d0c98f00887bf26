//! `tools`: Postroad and a rival in turns, with the rival's own tools.

use std::process::ExitCode;

use ::tools::{Failure, Options};
use clap::ValueEnum;
use peers::{Peers, Progress};

use crate::arguments::{Place, ToolsCommand};
use crate::failure::CliError;
use crate::fleet::Telling;

/// Exit code of a program that Ctrl-C ended, as in a shell.
const INTERRUPTED: u8 = 130;

pub(crate) async fn run(comparison: ToolsCommand) -> Result<ExitCode, CliError> {
    match comparison {
        ToolsCommand::Kafka { place, options } => compare(place, options, ::tools::kafka).await,
        ToolsCommand::Amqp { place, options } => compare(place, options, ::tools::amqp).await,
    }
}

type Compare<W, C> = fn(&Options<W, C>, Peers, &'static dyn Progress) -> Result<(), Failure>;

/// Brokers outlive this process by design, so an interrupted comparison has to stop them.
async fn compare<W, C>(
    place: Place,
    options: Options<W, C>,
    compare: Compare<W, C>,
) -> Result<ExitCode, CliError>
where
    W: ValueEnum + Clone + Send + Sync + 'static,
    C: ValueEnum + Clone + Send + Sync + 'static,
{
    let peers = place.open()?;
    let asked = options.clone();
    let comparing = tokio::task::spawn_blocking(move || compare(&asked, peers, &Telling));
    tokio::select! {
        compared = comparing => {
            compared.map_err(CliError::user)?.map_err(CliError::user)?;
            Ok(ExitCode::SUCCESS)
        }
        _ = tokio::signal::ctrl_c() => {
            eprintln!("\nends the brokers that were started");
            let peers = place.open()?;
            let ending = tokio::task::spawn_blocking(move || ::tools::interrupt(&options, peers));
            ending.await.map_err(CliError::user)?.map_err(CliError::user)?;
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}
