//! `postroad queue declare`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use client::Client;
use client::admin::ConfigChange;
use kafka_protocol::ResponseError;
use operations::document::{DeclaredQueue, Operation, QueueName, Start};
use operations::time::parse_duration;
use serde::Serialize;

use super::{MAIN, NamedQueue, label};
use crate::command_error::CommandError;
use crate::output::OutputFormat;
use crate::size::size_in_bytes;

#[derive(Args, Debug)]
pub(super) struct Declare {
    #[command(flatten)]
    named: NamedQueue,
    /// Partitions of a new topic [default: the broker's]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Where a new queue begins in a topic that is there
    #[arg(long, value_enum, default_value = "earliest")]
    from: ConsumeFrom,
    /// Records that may be in flight at a time: any record, one of each key, or one of each partition
    #[arg(long, value_enum)]
    ordering: Option<Ordering>,
    /// How long a record is a consumer's before it is delivered again; 0s is as long as it is
    /// connected
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    lease: Option<i64>,
    /// Deliveries of a record before it is a dead letter; 0 is any number
    #[arg(long, value_name = "N")]
    attempts: Option<u16>,
    /// How long a record that came back waits; doubles with each delivery
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    backoff: Option<i64>,
    /// The longest that it waits
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    backoff_max: Option<i64>,
    /// Topic for records that are rejected, expired or delivered too often; made where it is
    /// missing
    #[arg(long, value_name = "TOPIC")]
    dead_letter: Option<String>,
    /// How long a record may wait before it is a dead letter; 'none' is for ever
    #[arg(long, value_name = "DURATION", value_parser = milliseconds_or_none)]
    ttl: Option<i64>,
    /// Serve one consumer until it leaves, and then the next; =false: all of them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    single_active: Option<bool>,
    /// Highest priority that records may have, up to 255; 0 is none
    #[arg(long, value_name = "N")]
    priorities: Option<u8>,
    /// How many records may wait in the topic; what is leased does not count
    #[arg(long, value_name = "N")]
    limit_records: Option<u64>,
    /// How many bytes of records may wait in it, such as 1GiB
    #[arg(long, value_name = "SIZE", value_parser = size_in_bytes)]
    limit_bytes: Option<u64>,
    /// Behaviour beyond a limit
    #[arg(long, value_enum)]
    overflow: Option<Overflow>,
    /// Take a record whose postroad.id was there within this time only once; 0s is off
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    deduplicate: Option<i64>,
    /// Keep records that every queue of the topic has settled, as long as its retention says
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConsumeFrom {
    /// With what is there
    Earliest,
    /// With what comes
    Latest,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Ordering {
    Free,
    Key,
    Partition,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overflow {
    /// New records are refused
    Reject,
    /// The oldest ones go
    DropOldest,
    /// New records are refused and kept as dead letters
    RejectDeadLetter,
}

fn milliseconds(text: &str) -> Result<i64, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    i64::try_from(duration.as_millis()).map_err(|_| "that is too long".into())
}

fn milliseconds_or_none(text: &str) -> Result<i64, String> {
    if text == "none" { Ok(-1) } else { milliseconds(text) }
}

fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

#[derive(Serialize)]
struct DeclareOutput<'a> {
    topic: &'a str,
    group: &'a str,
    /// False if the queue existed.
    created: bool,
    /// Whether the queue or its topic changed.
    changed: bool,
    topic_created: bool,
    dead_letter_topic_created: bool,
}

impl Declare {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let configs = self.topic_configs();
        let (topic_created, topic_changed) = self.topic(client, &queue.topic, configs).await?;
        let dead_letter_topic_created = match &self.dead_letter {
            Some(topic) => self.dead_letter_topic(client, topic, &queue.topic).await?,
            None => false,
        };
        let from = match self.from {
            ConsumeFrom::Earliest => Start::Earliest,
            ConsumeFrom::Latest => Start::Latest,
        };
        let config = self.group_configs();
        let operation = Operation::DeclareQueue { queue: queue.clone(), from, config };
        let made: DeclaredQueue = client.operate(&operation).await?;
        let declared = DeclareOutput {
            topic: &queue.topic,
            group: &queue.group,
            created: made.created,
            changed: made.changed || topic_changed,
            topic_created,
            dead_letter_topic_created,
        };
        output.show(&declared, |declared| {
            let mut lines = String::new();
            if declared.topic_created {
                lines += &format!("created topic {}\n", declared.topic);
            }
            if let Some(topic) = self.dead_letter.as_ref().filter(|_| dead_letter_topic_created) {
                lines += &format!("created queue {topic} for its dead letters\n");
            }
            let verb = match (declared.created, declared.changed) {
                (true, _) => "created",
                (false, true) => "changed",
                (false, false) => "found",
            };
            lines + &format!("{verb} queue {}\n", label(&queue))
        })?;
        Ok(())
    }

    /// Creates the topic, or sets the given options of an existing one. Returns whether it was created, and whether it
    /// changed.
    async fn topic(
        &self,
        client: &Client,
        topic: &str,
        configs: Vec<(String, String)>,
    ) -> Result<(bool, bool), CommandError> {
        let keep = ("retention.settled".to_owned(), (!self.keep).to_string());
        let mut of_new = vec![keep.clone()];
        if !self.keep {
            // A queue keeps records until they are settled, however long that takes.
            of_new.push(("retention.ms".to_owned(), "-1".to_owned()));
        }
        of_new.extend(configs.clone());
        match client.create_topic(topic, self.partitions, -1, &of_new).await {
            Ok(_) => return Ok((true, false)),
            Err(error) if error.code() == Some(ResponseError::TopicAlreadyExists) => {}
            Err(error) => return Err(error.into()),
        }
        let mut wanted = configs;
        wanted.extend(Some(keep).filter(|_| self.keep));
        let known = client.topic_configs(&[topic]).await?;
        let known = known.get(topic).map_or(&[][..], Vec::as_slice);
        wanted.retain(|(name, value)| {
            known.iter().all(|known| known.name != *name || known.value.as_ref() != Some(value))
        });
        let changes: Vec<ConfigChange> =
            wanted.into_iter().map(|(name, value)| ConfigChange::Set { name, value }).collect();
        if changes.is_empty() {
            return Ok((false, false));
        }
        client.alter_topic_configs(topic, &changes).await?;
        Ok((false, true))
    }

    /// Creates the dead-letter topic; without it dead letters would be dropped. It has as many partitions as the
    /// queue's topic, so that they keep their order.
    async fn dead_letter_topic(
        &self,
        client: &Client,
        name: &str,
        of: &str,
    ) -> Result<bool, CommandError> {
        let partitions = client.topic(of).await?.partitions(of).len() as i32;
        let configs = [("retention.settled", "true"), ("retention.ms", "-1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        match client.create_topic(name, Some(partitions), -1, &configs).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(ResponseError::TopicAlreadyExists) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        let queue = QueueName { topic: name.to_owned(), group: MAIN.to_owned() };
        let (from, config) = (Start::Earliest, BTreeMap::new());
        let operation = Operation::DeclareQueue { queue, from, config };
        client.operate::<DeclaredQueue>(&operation).await?;
        Ok(true)
    }

    fn group_configs(&self) -> BTreeMap<String, String> {
        let consumers = |single: bool| if single { "single-active" } else { "shared" }.to_owned();
        let values = [
            ("ordering", self.ordering.map(word)),
            ("consumers", self.single_active.map(consumers)),
            ("lease.ms", self.lease.map(|ms| ms.to_string())),
            ("attempts.max", self.attempts.map(|attempts| attempts.to_string())),
            ("retry.backoff.ms", self.backoff.map(|ms| ms.to_string())),
            ("retry.backoff.max.ms", self.backoff_max.map(|ms| ms.to_string())),
            ("dead.letter.topic", self.dead_letter.clone()),
            ("record.ttl.ms", self.ttl.map(|ms| ms.to_string())),
        ];
        named(values).collect()
    }

    fn topic_configs(&self) -> Vec<(String, String)> {
        let values = [
            ("priorities.max", self.priorities.map(|most| most.to_string())),
            ("limit.records", self.limit_records.map(|most| most.to_string())),
            ("limit.bytes", self.limit_bytes.map(|most| most.to_string())),
            ("limit.overflow", self.overflow.map(word)),
            ("dedup.window.ms", self.deduplicate.map(|ms| ms.to_string())),
        ];
        named(values).collect()
    }
}

fn named<const N: usize>(
    values: [(&str, Option<String>); N],
) -> impl Iterator<Item = (String, String)> {
    values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn durations_become_milliseconds_and_none_is_for_ever() {
        assert_eq!(milliseconds("30s"), Ok(30_000));
        assert_eq!(milliseconds_or_none("none"), Ok(-1));
        assert!(milliseconds("none").is_err());
    }
}
