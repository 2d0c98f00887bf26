//! `postroad node`: changes the nodes of a cluster.

use clap::{Args, Subcommand};
use client::Client;
use operations::cluster::{NodeDecision, Operation, ScrubStatus};
use operations::time::human_time;

use super::operate;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, bytes};

#[derive(Args, Debug)]
pub struct NodeArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// Have a node lead nothing, as before it is stopped for a while or removed; it keeps what it has
    Drain(NodeArgument),
    /// Have a node lead again; one that is about to leave stays
    Resume(NodeArgument),
    /// Have a node that is drained or dead give up what it has, and be none of the cluster's then
    Remove(NodeArgument),
    /// Replace a node by another one that has joined: it is removed once the other has all its shards
    ///
    /// The node may be dead, and need not be drained.
    Replace {
        #[command(flatten)]
        node: NodeArgument,
        /// The number of the node that takes its place
        #[arg(long, value_name = "M")]
        with: u64,
    },
    /// Have the node that is asked look through all that it has stored, now
    ///
    /// It does so by itself, too (serve --scrub-interval). What a node of a cluster finds damaged it fetches from
    /// another one.
    Scrub {
        /// Only say how far it is, and what is damaged
        #[arg(long)]
        status: bool,
    },
}

#[derive(Args, Clone, Copy, Debug)]
struct NodeArgument {
    /// The node's number, from 'postroad cluster status'
    #[arg(value_name = "N")]
    node: u64,
}

pub(crate) async fn run(arguments: NodeArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    let (operation, so, follows) = match arguments.command {
        NodeCommand::Scrub { status } => return scrub(&client, output, !status).await,
        NodeCommand::Drain(NodeArgument { node }) => {
            (Operation::DrainNode { node }, "is drained", "it hands over what it leads")
        }
        NodeCommand::Resume(NodeArgument { node }) => {
            (Operation::ResumeNode { node }, "is active", "shards that are its own go back to it")
        }
        NodeCommand::Remove(NodeArgument { node }) => (
            Operation::RemoveNode { node },
            "leaves",
            "it gives up one shard after the other; stop its process once it says that it was removed",
        ),
        NodeCommand::Replace { node: NodeArgument { node }, with } => (
            Operation::ReplaceNode { node, with },
            "leaves",
            "it gives up each shard once the other one votes there",
        ),
    };
    let decided: NodeDecision = operate(&client, &operation).await?;
    output.show(&decided, |NodeDecision { node, changed }| match changed {
        true => format!(
            "node {node} {so}: {follows}\nlook at it with 'postroad cluster status --watch'\n"
        ),
        false => format!("node {node} {so} already\n"),
    })?;
    Ok(())
}

async fn scrub(client: &Client, output: OutputFormat, begin: bool) -> Result<(), CommandError> {
    let stored: ScrubStatus = operate(client, &Operation::Scrub { begin }).await?;
    output.show(&stored, |stored| describe(stored, begin))?;
    Ok(())
}

fn describe(stored: &ScrubStatus, begin: bool) -> String {
    let node = stored.node;
    let mut text = match (stored.looked_at_bytes.zip(stored.of_bytes), stored.ended_ms) {
        (Some((at, of)), _) => {
            format!(
                "node {node} looks through what it has stored: {} of {}\n",
                bytes(at),
                bytes(of)
            )
        }
        (None, _) if begin => format!(
            "node {node} looks through what it has stored\nsee how far it is with 'postroad node scrub --status'\n"
        ),
        (None, Some(ended_ms)) => {
            format!(
                "node {node} looked through what it has stored until {}\n",
                human_time(ended_ms)
            )
        }
        (None, None) => {
            format!("node {node} has not looked through what it has stored since it was started\n")
        }
    };
    for what in &stored.damaged {
        text.push_str(&format!("damaged: {what}\n"));
    }
    if stored.damaged.is_empty() && !begin {
        text.push_str("nothing is known to be damaged\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_reported_with_its_place() {
        let stored = ScrubStatus {
            node: 2,
            looked_at_bytes: None,
            of_bytes: None,
            ended_ms: Some(0),
            damaged: vec!["shard-1/00000003.seg is damaged at 700: a batch".to_owned()],
        };
        let expected = "\
node 2 looked through what it has stored until 1970-01-01T00:00:00.000Z
damaged: shard-1/00000003.seg is damaged at 700: a batch
";
        assert_eq!(describe(&stored, false), expected);
        let under_way = ScrubStatus {
            looked_at_bytes: Some(1 << 20),
            of_bytes: Some(3 << 20),
            damaged: vec![],
            ..stored
        };
        let expected = "node 2 looks through what it has stored: 1.0 MiB of 3.0 MiB\n";
        assert_eq!(describe(&under_way, true), expected);
    }
}
