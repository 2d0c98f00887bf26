//! `postroad queue pause` and `resume`.

use client::Client;
use operations::document::{EmptyReply, Operation};
use serde::Serialize;

use super::{NamedQueue, label};
use crate::command_error::CommandError;
use crate::output::OutputFormat;

#[derive(Serialize)]
struct Paused<'a> {
    topic: &'a str,
    group: &'a str,
    paused: bool,
}

pub(super) async fn pause(
    client: &Client,
    output: OutputFormat,
    named: &NamedQueue,
    paused: bool,
) -> Result<(), CommandError> {
    let queue = named.queue();
    client.operate::<EmptyReply>(&Operation::PauseQueue { queue: queue.clone(), paused }).await?;
    let said = Paused { topic: &queue.topic, group: &queue.group, paused };
    output.show(&said, |said| {
        let verb = if said.paused { "paused" } else { "resumed" };
        format!("{verb} queue {}\n", label(&queue))
    })?;
    Ok(())
}
