//! `postroad node`: what is to become of the nodes of a cluster.

use clap::{Args, Subcommand};
use operations::cluster::{Decided, Operation};

use super::cluster::operate;
use super::{ClientOptions, CommandError};

#[derive(Args, Debug)]
pub(crate) struct NodeArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Subcommand, Debug)]
enum NodeCommand {
    /// Have a node lead nothing, as before it is stopped for a while or removed; it keeps what it has
    Drain(Which),
    /// Have a node lead again; one that is about to leave stays
    Resume(Which),
    /// Have a node that is drained or dead give up what it has, and be none of the cluster's then
    Remove(Which),
    /// The same once another node, which has joined, has all of it; it need not be drained
    Replace {
        #[command(flatten)]
        node: Which,
        /// The number of the node that takes its place
        #[arg(long, value_name = "M")]
        with: u64,
    },
}

#[derive(Args, Clone, Copy, Debug)]
struct Which {
    /// The node's number, from 'postroad cluster status'
    #[arg(value_name = "N")]
    node: u64,
}

pub(crate) async fn run(arguments: NodeArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    let (operation, so, follows) = match arguments.command {
        NodeCommand::Drain(Which { node }) => {
            (Operation::DrainNode { node }, "is drained", "it hands over what it leads")
        }
        NodeCommand::Resume(Which { node }) => {
            (Operation::ResumeNode { node }, "is active", "shards that are its own go back to it")
        }
        NodeCommand::Remove(Which { node }) => (
            Operation::RemoveNode { node },
            "leaves",
            "it gives up one shard after the other; stop its process once it says that it was removed",
        ),
        NodeCommand::Replace { node: Which { node }, with } => (
            Operation::ReplaceNode { node, with },
            "leaves",
            "it gives up each shard once the other one votes there",
        ),
    };
    let decided: Decided = operate(&client, &operation).await?;
    output.show(&decided, |Decided { node, changed }| match changed {
        true => format!(
            "node {node} {so}: {follows}\nlook at it with 'postroad cluster status --watch'\n"
        ),
        false => format!("node {node} {so} already\n"),
    })?;
    Ok(())
}
