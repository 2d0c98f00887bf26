//! `postroad shard`: the node's shards and their leaders.

use clap::{Args, Subcommand};
use client::Client;
use operations::document::{ElectedTerm, Operation, ShardContent, ShardList, ShardSummary};
use serde::Serialize;
use world::Instant;

use super::shard_move;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, bytes, count};

#[derive(Args, Debug)]
pub struct ShardArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: ShardCommand,
}

#[derive(Subcommand, Debug)]
enum ShardCommand {
    /// List the node's shards: what each holds, its log and its disk
    List,
    /// Say on which three nodes of a cluster a shard is to be
    ///
    /// It stays there until the nodes leave the cluster, or something else is said. Clients go on meanwhile.
    Move(shard_move::Move),
    /// Have the cluster place all shards again, also those that were put somewhere by `move`
    Balance(shard_move::Balance),
    /// End the leaders' terms and elect new ones: a rehearsal of a change of leaders
    ///
    /// Requests wait for some milliseconds. Nothing is lost and no lease ends.
    Elect,
}

pub(crate) async fn run(arguments: ShardArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        ShardCommand::List => list(&client, output).await,
        ShardCommand::Move(wanted) => wanted.run(&client, output).await,
        ShardCommand::Balance(wanted) => wanted.run(&client, output).await,
        ShardCommand::Elect => elect(&client, output).await,
    }
}

async fn list(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let ShardList { shards } = client.operate(&Operation::ListShards {}).await?;
    output.show(&shards, |shards| table(shards))?;
    Ok(())
}

fn table(shards: &[ShardSummary]) -> String {
    let mut table = Table::new(&[
        ">SHARD",
        "HOLDS",
        ">TERM",
        ">ENTRIES",
        ">TOPICS",
        ">PARTITIONS",
        ">SEGMENTS",
        ">LIVE",
        ">SYNCS",
        ">SYNC MS",
        ">UNPLACED",
    ]);
    for it in shards {
        let holds = match it.holds {
            ShardContent::Catalog => "catalog",
            ShardContent::Records => "records",
        };
        table.row([
            it.shard.to_string(),
            holds.to_owned(),
            it.term.to_string(),
            count(it.log_end),
            count(it.topics),
            count(it.partitions),
            count(it.segments),
            bytes(it.live_bytes),
            count(it.syncs),
            format!("{:.2}", it.sync_micros as f64 / 1e3),
            count(it.unplaced),
        ]);
    }
    table.render()
}

#[derive(Serialize)]
struct Election {
    term: u64,
    /// From the request to the reply.
    took_ms: f64,
}

async fn elect(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let begun = Instant::now();
    let ElectedTerm { term } = client.operate(&Operation::ElectLeader {}).await?;
    let election = Election { term, took_ms: begun.elapsed().as_secs_f64() * 1e3 };
    output.show(&election, |Election { term, took_ms }| {
        format!("term {term} began after {took_ms:.1} ms\n")
    })?;
    Ok(())
}
