//! `postroad queue seek`.

use clap::Args;
use client::{Client, TopicPartition};
use operations::document::{EmptyReply, Operation, QueueReport};
use operations::position::Position;
use serde::Serialize;

use super::NamedQueue;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, count};
use crate::position::locate;
use crate::records::RecordAddress;

#[derive(Args, Debug)]
pub(super) struct Seek {
    #[command(flatten)]
    named: NamedQueue,
    /// Where to go on: earliest, latest, an offset, -100 (the last 100 of each partition), or a
    /// time such as '15m ago'
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    to: Position,
    /// Only this partition; may be repeated
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct SeekOutput<'a> {
    topic: &'a str,
    group: &'a str,
    dry_run: bool,
    partitions: Vec<SoughtPartition>,
}

#[derive(Serialize)]
struct SoughtPartition {
    partition: u32,
    from: u64,
    to: u64,
}

impl Seek {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let operation = Operation::DescribeQueue { queue: queue.clone() };
        let report: QueueReport = client.operate(&operation).await?;
        let metadata = client.topic(&queue.topic).await?;
        let places: Vec<TopicPartition> = match self.partition.is_empty() {
            true => metadata.partitions(&queue.topic),
            false => {
                let named = self.partition.iter();
                named.map(|index| TopicPartition::new(&*queue.topic, *index)).collect()
            }
        };
        let located = locate(client, &metadata, &places, self.to).await?;
        let sought = |(place, to): (TopicPartition, u64)| {
            let partition = place.partition as u32;
            let known = report.progress.get(partition as usize);
            SoughtPartition { partition, from: known.map_or(0, |progress| progress.floor), to }
        };
        let partitions: Vec<SoughtPartition> = located.into_iter().map(sought).collect();
        if !self.dry_run {
            let to = partitions
                .iter()
                .map(|it| RecordAddress { partition: it.partition, offset: it.to }.into())
                .collect();
            client
                .operate::<EmptyReply>(&Operation::SeekQueue { queue: queue.clone(), to })
                .await?;
        }
        let (topic, group) = (&*queue.topic, &*queue.group);
        let sought = SeekOutput { topic, group, dry_run: self.dry_run, partitions };
        output.show(&sought, |sought| {
            let mut table = Table::new(&[">PARTITION", ">FROM", ">TO"]);
            for partition in &sought.partitions {
                let SoughtPartition { partition, from, to } = partition;
                table.row([partition.to_string(), count(*from), count(*to)]);
            }
            let note = if sought.dry_run { "nothing was changed (--dry-run)\n" } else { "" };
            table.render() + note
        })?;
        Ok(())
    }
}
