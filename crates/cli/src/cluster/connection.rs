//! `postroad connection`: the client connections, of all protocols.

use clap::{Args, Subcommand};
use client::Client;
use operations::document::{ConnectionSummary, EmptyReply, Operation};
use operations::time::human_time;
use serde::Serialize;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};

#[derive(Args, Debug)]
pub struct ConnectionArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: ConnectionCommand,
}

#[derive(Subcommand, Debug)]
enum ConnectionCommand {
    /// List the connections of clients, this command's too
    List,
    /// Close a connection; its client may connect again
    Close {
        /// The connection's number, from 'postroad connection list'
        #[arg(value_name = "ID")]
        id: u64,
    },
}

pub(crate) async fn run(arguments: ConnectionArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        ConnectionCommand::List => list(&client, output).await,
        ConnectionCommand::Close { id } => close(&client, output, id).await,
    }
}

async fn list(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let connections = client.connections().await?;
    output.show(&connections, |connections| table(connections))?;
    Ok(())
}

fn table(connections: &[ConnectionSummary]) -> String {
    let mut table = Table::new(&[">ID", "PROTOCOL", "PEER", "SINCE", "USER", "CLIENT"]);
    let told = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for it in connections {
        table.row([
            it.id.to_string(),
            it.protocol.clone(),
            it.peer.clone(),
            human_time(it.since_ms),
            told(&it.user),
            told(&it.client),
        ]);
    }
    table.render()
}

#[derive(Serialize)]
struct Closed {
    connection: u64,
}

async fn close(client: &Client, output: OutputFormat, id: u64) -> Result<(), CommandError> {
    let _: EmptyReply = client.operate(&Operation::CloseConnection { connection: id }).await?;
    output.show(&Closed { connection: id }, |closed| {
        format!("told connection {} to close\n", closed.connection)
    })?;
    Ok(())
}
