//! `postroad shard`: who leads.

use clap::{Args, Subcommand};
use operations::document::{Elected, Operation};
use serde::Serialize;
use world::Instant;

use super::{ClientOptions, CommandError};

#[derive(Args, Debug)]
pub(crate) struct ShardArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: ShardCommand,
}

#[derive(Subcommand, Debug)]
enum ShardCommand {
    /// End the leader's term and elect it anew: a rehearsal of what clients see when leaders change
    ///
    /// Requests wait for some milliseconds. Nothing is lost and no lease ends.
    Elect,
}

#[derive(Serialize)]
struct Election {
    term: u64,
    /// From the request to the answer.
    took_ms: f64,
}

pub(crate) async fn run(arguments: ShardArguments) -> Result<(), CommandError> {
    let ShardCommand::Elect = arguments.command;
    let client = arguments.client.connect().await?;
    let begun = Instant::now();
    let Elected { term } = client.operate(&Operation::ElectLeader {}).await?;
    let election = Election { term, took_ms: begun.elapsed().as_secs_f64() * 1e3 };
    arguments.client.output().show(&election, |Election { term, took_ms }| {
        format!("term {term} began after {took_ms:.1} ms\n")
    })?;
    Ok(())
}
