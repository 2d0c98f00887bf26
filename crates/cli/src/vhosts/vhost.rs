//! `postroad vhost`: AMQP's virtual hosts, each with queues, exchanges and policies of its own.

use clap::{Args, Subcommand};
use client::Client;
use operations::amqp::{CreateResult, EmptyDocument, Operation, VhostSummary};
use serde::Serialize;

use super::amqp;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, count};

#[derive(Args, Debug)]
pub struct VhostArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: VhostCommand,
}

#[derive(Subcommand, Debug)]
enum VhostCommand {
    /// Create a vhost; users get rights in it by 'postroad user allow'
    Add(NamedVhost),
    /// List vhosts
    List,
    /// Delete a vhost with all its queues and their messages; its connections are closed
    Delete(NamedVhost),
}

#[derive(Args, Debug)]
struct NamedVhost {
    /// The vhost
    name: String,
}

pub(crate) async fn run(arguments: VhostArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        VhostCommand::Add(named) => add(&client, output, named.name).await,
        VhostCommand::List => list(&client, output).await,
        VhostCommand::Delete(named) => delete(&client, output, named.name).await,
    }
}

#[derive(Serialize)]
struct CreatedVhost {
    vhost: String,
    created: bool,
}

async fn add(client: &Client, output: OutputFormat, name: String) -> Result<(), CommandError> {
    let made: CreateResult =
        amqp::operate(client, &Operation::AddVhost { name: name.clone() }).await?;
    output.show(&CreatedVhost { vhost: name, created: made.created }, |added| {
        match added.created {
            true => format!("created vhost {}\n", added.vhost),
            false => format!("found vhost {}\n", added.vhost),
        }
    })?;
    Ok(())
}

async fn list(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let vhosts = amqp::vhosts(client).await?;
    output.show(&vhosts, |vhosts| table(vhosts))?;
    Ok(())
}

fn table(vhosts: &[VhostSummary]) -> String {
    let mut table = Table::new(&["VHOST", ">QUEUES", ">EXCHANGES", ">POLICIES"]);
    for vhost in vhosts {
        let numbers = [vhost.queues, vhost.exchanges, vhost.policies].map(count);
        table.row([vhost.name.clone()].into_iter().chain(numbers));
    }
    table.render()
}

#[derive(Serialize)]
struct DeletedVhost {
    vhost: String,
}

async fn delete(client: &Client, output: OutputFormat, name: String) -> Result<(), CommandError> {
    let _: EmptyDocument =
        amqp::operate(client, &Operation::DeleteVhost { name: name.clone() }).await?;
    output.show(&DeletedVhost { vhost: name }, |deleted| {
        format!("deleted vhost {}\n", deleted.vhost)
    })?;
    Ok(())
}

/// The vhost that a command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct VhostOption {
    /// The vhost
    #[arg(long, value_name = "VHOST", default_value = base::queue_topics::DEFAULT_VHOST)]
    pub(crate) vhost: String,
}
