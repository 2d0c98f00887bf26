//! `postroad dead-letter`: dead letters of queues, and their redrive.

use clap::{ArgGroup, Args, Subcommand};
use client::Client;
use operations::document::{
    DeadLetter, DeadLetterCount, DeadLetterFilter, DeadLetterPage, DeadLetterTopics, Operation,
};
use operations::time::human_time;
use serde::Serialize;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, count, counted};
use crate::progress::Progress;
use crate::records::{self, RecordAddress, preview};

#[derive(Args, Debug)]
pub struct DeadLetterArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: DeadLetterCommand,
}

#[derive(Subcommand, Debug)]
enum DeadLetterCommand {
    /// Count dead letters, by the topic that they came from and the reason
    List(List),
    /// Show dead letters: why, how often they were tried, and what they hold
    Show(Show),
    /// Send dead letters back to the topics that they came from, or elsewhere
    Redrive(Redrive),
    /// Delete dead letters for good
    Delete(Delete),
}

/// Which dead letters of a topic are meant.
#[derive(Args, Debug)]
struct Filter {
    /// Only those that came from this topic
    #[arg(long, value_name = "TOPIC")]
    source: Option<String>,
    /// Only those that died of this: rejected, attempts, expired or overflow
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Only this one, as 'show' names it; may be repeated
    #[arg(short, long, value_name = "PARTITION:OFFSET")]
    record: Vec<RecordAddress>,
}

impl Filter {
    /// Message for a topic without dead letters that the filter selects.
    fn empty_message(&self, topic: &str) -> String {
        let is_set = self.source.is_some() || self.reason.is_some() || !self.record.is_empty();
        let which = if is_set { "no such dead letters" } else { "no dead letters" };
        format!("topic {topic} has {which}\n")
    }

    fn document(&self) -> DeadLetterFilter {
        DeadLetterFilter {
            source: self.source.clone(),
            reason: self.reason.clone(),
            records: (!self.record.is_empty()).then(|| records::places(&self.record)),
        }
    }
}

pub(crate) async fn run(arguments: DeadLetterArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        DeadLetterCommand::List(list) => list.run(&client, output).await,
        DeadLetterCommand::Show(show) => show.run(&client, output).await,
        DeadLetterCommand::Redrive(redrive) => redrive.run(&client, output).await,
        DeadLetterCommand::Delete(delete) => delete.run(&client, output).await,
    }
}

// ----------------------------------------------------------------------------------------- list

#[derive(Args, Debug)]
struct List {
    /// Only these topics [default: all that queues send dead letters to]
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
}

#[derive(Serialize)]
struct ListedTopic {
    topic: String,
    records: u64,
    counts: Vec<DeadLetterCount>,
}

impl List {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let topics = match self.topics.is_empty() {
            false => self.topics.clone(),
            true => {
                let operation = Operation::ListDeadLetterTopics {};
                client.operate::<DeadLetterTopics>(&operation).await?.topics
            }
        };
        let mut listed = Vec::new();
        let mut progress = Progress::new(false);
        let mut before = 0;
        for topic in topics {
            let counts = client.dead_letter_counts(&topic, |counted| {
                progress.show(before + counted, 0, None);
            });
            let counts = counts.await?;
            let records = counts.iter().map(|count| count.records).sum();
            before += records;
            listed.push(ListedTopic { topic, records, counts });
        }
        progress.clear();
        output.show(&listed, |listed| list_table(listed))?;
        Ok(())
    }
}

fn list_table(listed: &[ListedTopic]) -> String {
    if listed.is_empty() {
        return "no queue has a dead-letter topic; give it one with 'postroad queue declare NAME \
                --dead-letter TOPIC'\n"
            .into();
    }
    let mut table =
        Table::new(&["TOPIC", "CAME FROM", "GROUP", "REASON", ">RECORDS", "FIRST", "LAST"]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let time = |ms: Option<i64>| human_time(ms.unwrap_or(-1));
    for ListedTopic { topic, counts, .. } in listed {
        if counts.is_empty() {
            let dash = || "-".to_owned();
            table.row([topic.clone(), dash(), dash(), dash(), count(0), dash(), dash()]);
        }
        for it in counts {
            table.row([
                topic.clone(),
                or_dash(&it.source),
                or_dash(&it.group),
                or_dash(&it.reason),
                count(it.records),
                time(it.first_ms),
                time(it.last_ms),
            ]);
        }
    }
    table.render()
}

// ----------------------------------------------------------------------------------------- show

#[derive(Args, Debug)]
struct Show {
    /// The topic that holds them
    topic: String,
    #[command(flatten)]
    filter: Filter,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

impl Show {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut shown: Vec<DeadLetter> = Vec::new();
        let mut from = None;
        loop {
            let operation = Operation::ShowDeadLetters {
                topic: self.topic.clone(),
                only: self.filter.document(),
                from,
                records_max: self.count - shown.len() as u32,
            };
            let page: DeadLetterPage = client.operate(&operation).await?;
            shown.extend(page.records);
            if page.next.is_none() || shown.len() >= self.count as usize {
                break;
            }
            from = page.next;
        }
        output.show(&shown, |shown| match shown.is_empty() {
            true => self.filter.empty_message(&self.topic),
            false => show_table(shown),
        })?;
        Ok(())
    }
}

fn show_table(shown: &[DeadLetter]) -> String {
    let mut table = Table::new(&[
        "RECORD",
        "CAME FROM",
        "GROUP",
        "REASON",
        ">ATTEMPTS",
        "DIED",
        "KEY",
        "VALUE",
    ]);
    for DeadLetter { death, record } in shown {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let source = match (&death.topic, death.partition, death.offset) {
            (Some(topic), Some(partition), Some(offset)) => format!("{topic} {partition}:{offset}"),
            (topic, ..) => or_dash(topic),
        };
        table.row([
            format!("{}:{}", record.partition, record.offset),
            source,
            or_dash(&death.group),
            or_dash(&death.reason),
            death.attempts.map_or("-".into(), count),
            human_time(death.time_ms.unwrap_or(-1)),
            preview(record.key.as_ref(), 20),
            preview(record.value.as_ref(), 40),
        ]);
    }
    table.render()
}

// ---------------------------------------------------------------------------- redrive and delete

#[derive(Args, Debug)]
struct Redrive {
    /// The topic that holds them
    topic: String,
    #[command(flatten)]
    filter: Filter,
    /// Send all of them here [default: where each came from]
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
}

#[derive(Serialize)]
struct RedriveOutput<'a> {
    topic: &'a str,
    /// `null`: the topic that each came from.
    to: Option<&'a str>,
    records: u64,
    /// Records that stay: leased by a consumer, gone, no dead letters, or their topic no longer exists.
    left: u64,
}

impl Redrive {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut progress = Progress::new(false);
        let operation = |span| Operation::RedriveDeadLetters {
            topic: self.topic.clone(),
            only: self.filter.document(),
            to: self.to.clone(),
            span,
        };
        let show = |moved| progress.show(moved, 0, None);
        let (records, left) = client.move_dead_letters(self.max, operation, show).await?;
        progress.clear();
        let redriven = RedriveOutput { topic: &self.topic, to: self.to.as_deref(), records, left };
        output.show(&redriven, |redriven| match redriven.records + redriven.left {
            0 => self.filter.empty_message(&self.topic),
            _ => redriven_text(redriven),
        })?;
        Ok(())
    }
}

fn redriven_text(done: &RedriveOutput<'_>) -> String {
    let to = done.to.map_or("where they came from".into(), |to| format!("topic {to}"));
    let mut text =
        format!("sent {} from topic {} to {to}\n", counted(done.records, "record"), done.topic);
    if done.left > 0 {
        text += &format!(
            "{} stayed: leased by a consumer, gone already, no dead letter, or from a topic that \
             no longer exists (--to names another topic)\n",
            counted(done.left, "record")
        );
    }
    text
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).multiple(true)
    .args(["source", "reason", "record", "all"])))]
struct Delete {
    /// The topic that holds them
    topic: String,
    #[command(flatten)]
    filter: Filter,
    /// All of them
    #[arg(long, conflicts_with_all = ["source", "reason", "record"])]
    all: bool,
    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
}

#[derive(Serialize)]
struct DeletedDeadLetters<'a> {
    topic: &'a str,
    records: u64,
    /// Records that stay: leased by a consumer, gone, or no dead letters.
    left: u64,
}

impl Delete {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut progress = Progress::new(false);
        let operation = |span| Operation::DeleteDeadLetters {
            topic: self.topic.clone(),
            only: self.filter.document(),
            span,
        };
        let show = |deleted| progress.show(deleted, 0, None);
        let (records, left) = client.move_dead_letters(self.max, operation, show).await?;
        progress.clear();
        let deleted = DeletedDeadLetters { topic: &self.topic, records, left };
        output.show(&deleted, |deleted| {
            if deleted.records + deleted.left == 0 {
                return self.filter.empty_message(&self.topic);
            }
            let mut text = format!(
                "deleted {} of topic {}\n",
                counted(deleted.records, "dead letter"),
                deleted.topic
            );
            if deleted.left > 0 {
                let left = counted(deleted.left, "record");
                text += &format!(
                    "{left} stayed: leased by a consumer, gone already, or no dead letter\n"
                );
            }
            text
        })?;
        Ok(())
    }
}
