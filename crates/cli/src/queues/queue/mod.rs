//! `postroad queue`: topics as queues. A queue is a lease group of a topic: its settled records, its leases and its
//! delivery settings. A file for each command.

mod declare;
mod delete;
mod describe;
mod list;
mod pause;
mod peek;
mod purge;
mod seek;
mod table;

use clap::{Args, Subcommand};
use operations::document::QueueName;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;

use declare::Declare;
use delete::Delete;
use describe::Describe;
use list::List;
use pause::pause;
use peek::Peek;
use purge::Purge;
use seek::Seek;

const MAIN: &str = base::MAIN_LEASE_GROUP;

#[derive(Args, Debug)]
pub struct QueueArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand, Debug)]
enum QueueCommand {
    /// Make a queue, with its topic where that is missing, or change what is named of one
    Declare(Box<Declare>),
    /// List queues: what waits in them, and for how long
    List(List),
    /// Show a queue: progress, what its consumers hold, configuration
    Describe(Describe),
    /// Show records of a queue without taking them
    Peek(Peek),
    /// Settle all records that are not leased, or single records
    Purge(Purge),
    /// Deliver nothing until 'resume'
    Pause(NamedQueue),
    /// Deliver again
    Resume(NamedQueue),
    /// Set where a queue goes on, forwards or back; its leases are void
    Seek(Seek),
    /// Delete queues; the records of their topics stay
    Delete(Delete),
}

/// A queue as it is named on the command line.
#[derive(Args, Clone, Debug)]
pub(super) struct NamedQueue {
    /// The queue's topic
    topic: String,
    #[command(flatten)]
    group: GroupOption,
}

#[derive(Args, Clone, Debug)]
pub(super) struct GroupOption {
    /// Consumers of the queue: those of AMQP, or a share group by its name
    #[arg(short, long, value_name = "GROUP", default_value = MAIN)]
    pub(super) group: String,
}

impl NamedQueue {
    pub(super) fn queue(&self) -> QueueName {
        self.group.of(&self.topic)
    }
}

impl GroupOption {
    pub(super) fn of(&self, topic: &str) -> QueueName {
        QueueName { topic: topic.to_owned(), group: self.group.clone() }
    }
}

/// `orders`, or `orders (group audit)` for a group other than the main one.
pub(super) fn label(queue: &QueueName) -> String {
    match &*queue.group {
        MAIN => queue.topic.clone(),
        group => format!("{} (group {group})", queue.topic),
    }
}

pub(crate) async fn run(arguments: QueueArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        QueueCommand::Declare(declare) => declare.run(&client, output).await,
        QueueCommand::List(list) => list.run(&client, output).await,
        QueueCommand::Describe(describe) => describe.run(&client, output).await,
        QueueCommand::Peek(peek) => peek.run(&client, output).await,
        QueueCommand::Purge(purge) => purge.run(&client, output).await,
        QueueCommand::Pause(named) => pause(&client, output, &named, true).await,
        QueueCommand::Resume(named) => pause(&client, output, &named, false).await,
        QueueCommand::Seek(seek) => seek.run(&client, output).await,
        QueueCommand::Delete(delete) => delete.run(&client, output).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn label_omits_the_main_group() {
        let queue = |group: &str| QueueName { topic: "orders".into(), group: group.into() };
        assert_eq!(label(&queue("main")), "orders");
        assert_eq!(label(&queue("audit")), "orders (group audit)");
    }
}
