//! `postroad group`: consumers of topics, their lag and their committed offsets.

mod delete;
mod describe;
mod lag;
mod list;
mod reset;

use clap::{Args, Subcommand};
use client::Client;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;

use delete::Delete;
use describe::Describe;
use list::list;
use reset::Reset;

/// The kind of a share group, as listed.
const SHARE: &str = "share";

/// Refuses a share group: it has no committed offsets. Its progress is that of a queue.
async fn refuse_share_group(client: &Client, group: &str) -> Result<(), CommandError> {
    let groups = client.groups().await?;
    match groups.iter().any(|known| known.name == group && known.kind == SHARE) {
        true => Err(CommandError::user(format!(
            "{group} is a share group, which has no committed offsets; 'postroad queue list' has its queues, \
             'postroad queue describe TOPIC --group {group}' shows one, and 'postroad queue seek' moves it"
        ))),
        false => Ok(()),
    }
}

#[derive(Args, Debug)]
pub struct GroupArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// List groups and how far behind they are
    List,
    /// Show members, committed offsets and lag of groups
    Describe(Describe),
    /// Set the committed offsets of a group that has no members
    Reset(Reset),
    /// Delete groups with their committed offsets
    Delete(Delete),
}

pub(crate) async fn run(arguments: GroupArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        GroupCommand::List => list(&client, output).await,
        GroupCommand::Describe(describe) => describe.run(&client, output).await,
        GroupCommand::Reset(reset) => reset.run(&client, output).await,
        GroupCommand::Delete(delete) => delete.run(&client, output).await,
    }
}
