//! `postroad queue delete`.

use clap::Args;
use client::Client;
use operations::document::{EmptyReply, Operation, QueueName};
use serde::Serialize;

use super::{GroupOption, label};
use crate::command_error::CommandError;
use crate::output::OutputFormat;

#[derive(Args, Debug)]
pub(super) struct Delete {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    #[command(flatten)]
    group: GroupOption,
    /// Delete the topic too, with its records and all its queues
    #[arg(long)]
    with_topic: bool,
    /// Also a queue that has consumers
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct DeletedQueue {
    topic: String,
    group: String,
    with_topic: bool,
}

impl Delete {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let mut deleted = Vec::new();
        let mut outcome = Ok(());
        for topic in &self.topics {
            if let Err(error) = self.delete(client, topic).await {
                outcome = Err(error);
                break;
            }
            let (topic, group) = (topic.clone(), self.group.group.clone());
            deleted.push(DeletedQueue { topic, group, with_topic: self.with_topic });
        }
        output.show(&deleted, |deleted| {
            let line = |gone: &DeletedQueue| {
                let queue = QueueName { topic: gone.topic.clone(), group: gone.group.clone() };
                let too = if gone.with_topic { " and its topic" } else { "" };
                format!("deleted queue {}{too}\n", label(&queue))
            };
            deleted.iter().map(line).collect()
        })?;
        outcome
    }

    async fn delete(&self, client: &Client, topic: &str) -> Result<(), CommandError> {
        let (queue, force) = (self.group.of(topic), self.force);
        client.operate::<EmptyReply>(&Operation::DeleteQueue { queue, force }).await?;
        if self.with_topic {
            client.delete_topic(topic).await?;
        }
        Ok(())
    }
}
