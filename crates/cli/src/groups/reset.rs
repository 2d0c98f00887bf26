//! `postroad group reset`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use client::cluster::Metadata;
use client::groups::Committer;
use client::{Client, ClientError, TopicPartition};
use operations::position::Position;
use serde::Serialize;

use super::lag::metadata_of;
use super::refuse_share_group;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, count, counted};
use crate::position::locate;

#[derive(Args, Debug)]
pub(super) struct Reset {
    group: String,
    /// Where to go on: earliest, latest, an offset, -100 (the last 100 of each partition), or a
    /// time such as '15m ago'
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    to: Position,
    /// Only this topic, or TOPIC:PARTITION; may be repeated [default: where it has committed]
    #[arg(short, long, value_name = "TOPIC[:N]", value_parser = place)]
    topic: Vec<ResetTarget>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// A topic, or one partition of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ResetTarget {
    topic: String,
    partition: Option<i32>,
}

fn place(text: &str) -> Result<ResetTarget, String> {
    let (topic, partition) = match text.split_once(':') {
        None => (text, None),
        Some((topic, partition)) => match partition.parse() {
            Ok(partition) if partition >= 0 => (topic, Some(partition)),
            _ => return Err("write TOPIC or TOPIC:PARTITION".into()),
        },
    };
    if topic.is_empty() {
        return Err("write TOPIC or TOPIC:PARTITION".into());
    }
    Ok(ResetTarget { topic: topic.to_owned(), partition })
}

#[derive(Serialize)]
struct ResetReport {
    group: String,
    /// False for a dry run.
    done: bool,
    partitions: Vec<ResetPartition>,
}

#[derive(Serialize)]
struct ResetPartition {
    topic: String,
    partition: i32,
    from: Option<u64>,
    to: u64,
    /// The group's lag afterwards.
    lag_records: u64,
}

impl Reset {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let group = client.group(&self.group).await?;
        if group.is_none() {
            refuse_share_group(client, &self.group).await?;
        }
        if let Some(live) = group.filter(|group| !group.is_empty()) {
            let members = counted(live.members.len() as u64, "member");
            return Err(CommandError::user(format!(
                "group {} has {members}, which would not notice; stop its consumers first",
                self.group
            )));
        }
        let committed = client.committed(&self.group).await?;
        let (metadata, places) = self.places(client, &committed).await?;
        let to = locate(client, &metadata, &places, self.to).await?;
        if !self.dry_run {
            client.commit(&self.group, &Committer::OUTSIDER, &to).await?;
        }
        let bounds = client.bounds(&metadata, &places).await?;
        let partitions = to.iter().map(|(place, to)| ResetPartition {
            topic: place.topic.to_string(),
            partition: place.partition,
            from: committed.get(place).copied(),
            to: *to,
            lag_records: bounds.get(place).map_or(0, |bounds| bounds.end.saturating_sub(*to)),
        });
        let report = ResetReport {
            group: self.group.clone(),
            done: !self.dry_run,
            partitions: partitions.collect(),
        };
        output.show(&report, reset_text)?;
        Ok(())
    }

    /// The partitions to reset: the named ones, or those with a committed offset.
    async fn places(
        &self,
        client: &Client,
        committed: &BTreeMap<TopicPartition, u64>,
    ) -> Result<(Metadata, Vec<TopicPartition>), CommandError> {
        if self.topic.is_empty() {
            if committed.is_empty() {
                return Err(CommandError::user(format!(
                    "group {} has committed nothing; say with --topic what to reset",
                    self.group
                )));
            }
            let metadata = metadata_of(client, committed.keys()).await?;
            let known = |place: &&TopicPartition| metadata.topics.contains_key(&*place.topic);
            let places = committed.keys().filter(known).cloned().collect();
            return Ok((metadata, places));
        }
        let mut places = BTreeSet::new();
        for ResetTarget { topic, partition } in &self.topic {
            let metadata = client.topic(topic).await?;
            let all = metadata.partitions(topic);
            match partition {
                None => places.extend(all),
                Some(partition) => {
                    let found = all.get(*partition as usize).cloned();
                    let missing = || ClientError::NoSuchPartition {
                        topic: topic.clone(),
                        partition: *partition,
                        partitions: all.len(),
                    };
                    places.insert(found.ok_or_else(missing)?);
                }
            }
        }
        let metadata = metadata_of(client, places.iter()).await?;
        Ok((metadata, places.into_iter().collect()))
    }
}

fn reset_text(report: &ResetReport) -> String {
    let mut table = Table::new(&["TOPIC", ">PARTITION", ">FROM", ">TO", ">LAG"]);
    for partition in &report.partitions {
        table.row([
            partition.topic.clone(),
            partition.partition.to_string(),
            partition.from.map_or("-".into(), count),
            count(partition.to),
            count(partition.lag_records),
        ]);
    }
    let end = match report.done {
        true => format!("group {} goes on there\n", report.group),
        false => "nothing was changed (--dry-run)\n".to_owned(),
    };
    format!("{}\n{end}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_place_is_a_topic_or_one_of_its_partitions() {
        let place = |text| place(text).map(|place| (place.topic, place.partition));
        assert_eq!(place("t"), Ok(("t".into(), None)));
        assert_eq!(place("t:3"), Ok(("t".into(), Some(3))));
        for wrong in ["", "t:", "t:x", "t:-1", ":1"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
