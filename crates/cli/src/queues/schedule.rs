//! `postroad schedule`: records with a delayed delivery.

use clap::{ArgGroup, Args, Subcommand};
use client::Client;
use operations::document::{
    Cancel, Operation, QueueName, RemovedRecords, ScheduledPage, ScheduledRecord,
};
use operations::time::{human_time, now_ms};
use serde::Serialize;

use super::queue::{GroupOption, label};
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, counted};
use crate::records::{self, RecordAddress, preview, until};

#[derive(Args, Debug)]
pub struct ScheduleArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: ScheduleCommand,
}

#[derive(Subcommand, Debug)]
enum ScheduleCommand {
    /// Show records that a queue delivers later, the first ones of its log
    List(List),
    /// Cancel records before they are delivered
    Cancel(CancelArguments),
}

pub(crate) async fn run(arguments: ScheduleArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        ScheduleCommand::List(list) => list.run(&client, output).await,
        ScheduleCommand::Cancel(cancel) => cancel.run(&client, output).await,
    }
}

// ----------------------------------------------------------------------------------------- list

#[derive(Args, Debug)]
struct List {
    /// The queue's topic; several are shown together
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    #[command(flatten)]
    group: GroupOption,
    /// At most so many of each queue
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

#[derive(Serialize)]
struct Scheduled {
    topic: String,
    group: String,
    #[serde(flatten)]
    record: ScheduledRecord,
}

impl List {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut scheduled = Vec::new();
        for topic in &self.topics {
            let queue = self.group.of(topic);
            let records = self.of(client, &queue).await?;
            scheduled.extend(records.into_iter().map(|record| Scheduled {
                topic: queue.topic.clone(),
                group: queue.group.clone(),
                record,
            }));
        }
        scheduled.sort_by_key(|it| it.record.due_ms);
        output.show(&scheduled, |scheduled| match scheduled.is_empty() {
            true => "nothing is scheduled\n".into(),
            false => list_table(scheduled),
        })?;
        Ok(())
    }

    async fn of(
        &self,
        client: &Client,
        queue: &QueueName,
    ) -> Result<Vec<ScheduledRecord>, CommandError> {
        let mut records: Vec<ScheduledRecord> = Vec::new();
        let mut after = None;
        loop {
            let records_max = self.count - records.len() as u32;
            let queue = queue.clone();
            let operation = Operation::ListScheduled { queue, after, records_max };
            let page: ScheduledPage = client.operate(&operation).await?;
            records.extend(page.records);
            if page.next.is_none() || records.len() >= self.count as usize {
                return Ok(records);
            }
            after = page.next;
        }
    }
}

fn list_table(scheduled: &[Scheduled]) -> String {
    let now = now_ms();
    let mut table = Table::new(&["DUE", ">IN", "TOPIC", "RECORD", "ID", "KEY", "VALUE"]);
    for Scheduled { topic, record: ScheduledRecord { due_ms, id, record }, .. } in scheduled {
        table.row([
            human_time(*due_ms),
            until(*due_ms, now),
            topic.clone(),
            format!("{}:{}", record.partition, record.offset),
            preview(id.as_ref(), 40),
            preview(record.key.as_ref(), 20),
            preview(record.value.as_ref(), 40),
        ]);
    }
    table.render()
}

// --------------------------------------------------------------------------------------- cancel

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["record", "id"])))]
struct CancelArguments {
    /// The queue's topic
    topic: String,
    #[command(flatten)]
    group: GroupOption,
    /// This record, as 'list' names it; may be repeated
    #[arg(short, long, value_name = "PARTITION:OFFSET")]
    record: Vec<RecordAddress>,
    /// All that have this postroad.id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

#[derive(Serialize)]
struct Cancelled<'a> {
    topic: &'a str,
    group: &'a str,
    records: u64,
}

impl CancelArguments {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let queue = self.group.of(&self.topic);
        let what = match &self.id {
            Some(id) => Cancel::Id(id.clone()),
            None => Cancel::Records(records::places(&self.record)),
        };
        let operation = Operation::CancelScheduled { queue: queue.clone(), what };
        let removed: RemovedRecords = client.operate(&operation).await?;
        if let (Some(id), 0) = (&self.id, removed.removed) {
            return Err(CommandError::user(format!(
                "queue {} has no scheduled record of id {id}; 'postroad schedule list {}' names \
                 those there are",
                label(&queue),
                queue.topic
            )));
        }
        let (topic, group) = (&*queue.topic, &*queue.group);
        let cancelled = Cancelled { topic, group, records: removed.removed };
        output.show(&cancelled, |cancelled| {
            let records = counted(cancelled.records, "scheduled record");
            format!("cancelled {records} of queue {}\n", label(&queue))
        })?;
        records::all_removed(&removed)
    }
}
