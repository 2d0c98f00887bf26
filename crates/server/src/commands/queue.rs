//! `postroad queue`: topics as queues. A queue is a lease group of a topic: what its consumers have
//! settled, what they hold, and how records are delivered to them.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use kafka_protocol::ResponseError;
use operations::document::{
    Counted, DeclaredQueue, Done, Operation, QueueName, QueueRates, QueueReport, QueueSummary,
    QueuedRecord, RecordPage, RecordState, Removed, Start,
};
use serde::Serialize;

use super::records::{self, Place, preview, until};
use super::{ClientOptions, CommandError};
use crate::output::{OutputFormat, Table, bytes, count, counted};
use crate::position::{Position, locate};
use crate::settings::size_in_bytes;
use crate::time::{human_duration, human_time, now_ms, parse_duration};
use client::admin::ConfigChange;
use client::{Client, TopicPartition};

mod table;

const MAIN: &str = base::MAIN_LEASE_GROUP;

#[derive(Args, Debug)]
pub(crate) struct QueueArguments {
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
    /// Settle what nobody has leased, or single records
    Purge(Purge),
    /// Deliver nothing until 'resume'
    Pause(Named),
    /// Deliver again
    Resume(Named),
    /// Set where a queue goes on, forwards or back; its leases are void
    Seek(Seek),
    /// Delete queues; the records of their topics stay
    Delete(Delete),
}

/// A queue as it is named on the command line.
#[derive(Args, Clone, Debug)]
pub(super) struct Named {
    /// The queue's topic
    topic: String,
    #[command(flatten)]
    group: GroupOption,
}

#[derive(Args, Clone, Debug)]
pub(super) struct GroupOption {
    /// Whose queue it is: of AMQP's consumers, or of a share group by its name
    #[arg(short, long, value_name = "GROUP", default_value = MAIN)]
    pub(super) group: String,
}

impl Named {
    pub(super) fn queue(&self) -> QueueName {
        self.group.of(&self.topic)
    }
}

impl GroupOption {
    pub(super) fn of(&self, topic: &str) -> QueueName {
        QueueName { topic: topic.to_owned(), group: self.group.clone() }
    }
}

/// `orders`, and `orders (group audit)` where it is not the main one.
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

// --------------------------------------------------------------------------------------- declare

#[derive(Args, Debug)]
struct Declare {
    #[command(flatten)]
    named: Named,
    /// Partitions of a new topic [default: the broker's]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Where a new queue begins in a topic that is there
    #[arg(long, value_enum, default_value = "earliest")]
    from: From,
    /// What may be delivered at a time: any record, one of each key, or one of each partition
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
    /// What happens beyond a limit
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
enum From {
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
struct Declared<'a> {
    topic: &'a str,
    group: &'a str,
    /// False when the queue was there already.
    created: bool,
    /// Whether something of it, or of its topic, changed.
    changed: bool,
    topic_created: bool,
    dead_letter_topic_created: bool,
}

impl Declare {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let configs = self.topic_configs();
        let (topic_created, topic_changed) = self.topic(client, &queue.topic, configs).await?;
        let dead_letter_topic_created = match &self.dead_letter {
            Some(topic) => self.dead_letter_topic(client, topic, &queue.topic).await?,
            None => false,
        };
        let from = match self.from {
            From::Earliest => Start::Earliest,
            From::Latest => Start::Latest,
        };
        let config = self.group_configs();
        let operation = Operation::DeclareQueue { queue: queue.clone(), from, config };
        let made: DeclaredQueue = client.operate(&operation).await?;
        let declared = Declared {
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

    /// Makes the topic, or sets what is named of one. Answers whether it was made, and changed.
    async fn topic(
        &self,
        client: &Client,
        topic: &str,
        configs: Vec<(String, String)>,
    ) -> Result<(bool, bool), CommandError> {
        let keep = ("retention.settled".to_owned(), (!self.keep).to_string());
        let mut of_new = vec![keep.clone()];
        if !self.keep {
            // A queue holds records until they are settled, however long that takes.
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

    /// Without it dead letters would be dropped. It has the partitions of the queue's topic, so that
    /// they keep their order.
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

// ------------------------------------------------------------------------------- list and describe

#[derive(Args, Debug)]
struct List {
    /// Only queues of these topics
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// Also records a second, over the last ten seconds or counted from now on for so long
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
          value_parser = parse_duration)]
    rates: Option<Option<Duration>>,
}

#[derive(Args, Debug)]
struct Describe {
    #[command(flatten)]
    named: Named,
    /// Count records a second from now on for so long, not over the last ten seconds
    #[arg(long, value_name = "DURATION", require_equals = true, value_parser = parse_duration)]
    rates: Option<Duration>,
}

fn rates_between(before: &QueueSummary, after: &QueueSummary) -> QueueRates {
    let seconds = (after.at_ms - before.at_ms).max(1) as f64 / 1000.0;
    let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
    QueueRates {
        published: rate(before.published, after.published),
        delivered: rate(before.delivered, after.delivered),
        settled: rate(before.settled, after.settled),
    }
}

impl List {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut before = BTreeMap::new();
        if let Some(Some(interval)) = self.rates {
            for queue in client.queues().await? {
                before.insert((queue.topic.clone(), queue.group.clone()), queue);
            }
            tokio::time::sleep(interval).await;
        }
        let mut queues = client.queues().await?;
        queues.retain(|queue| self.topics.is_empty() || self.topics.contains(&queue.topic));
        if let Some(missing) =
            self.topics.iter().find(|topic| queues.iter().all(|queue| queue.topic != **topic))
        {
            return Err(CommandError::user(format!(
                "there is no queue {missing}; 'postroad queue list' names those there are"
            )));
        }
        for queue in &mut queues {
            if let Some(before) = before.get(&(queue.topic.clone(), queue.group.clone())) {
                queue.rates = rates_between(before, queue);
            }
        }
        output.show(&queues, |queues| table::list(queues, self.rates.is_some()))?;
        Ok(())
    }
}

#[derive(Serialize)]
pub(super) struct DescribedQueue {
    #[serde(flatten)]
    pub(super) report: QueueReport,
    pub(super) topic_config: BTreeMap<String, String>,
}

/// What of a topic's configuration makes it a queue of a kind.
const TOPIC_CONFIGS: [&str; 8] = [
    "retention.settled",
    "retention.ms",
    "priorities.max",
    "priorities.order",
    "limit.records",
    "limit.bytes",
    "limit.overflow",
    "dedup.window.ms",
];

impl Describe {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let report = || async {
            let operation = Operation::DescribeQueue { queue: queue.clone() };
            client.operate::<QueueReport>(&operation).await
        };
        let mut latest = report().await?;
        if let Some(interval) = self.rates {
            tokio::time::sleep(interval).await;
            let before = std::mem::replace(&mut latest, report().await?);
            latest.summary.rates = rates_between(&before.summary, &latest.summary);
        }
        let topic = &*queue.topic;
        let configs = client.topic_configs(&[topic]).await?.remove(topic).unwrap_or_default();
        let wanted = configs.into_iter().filter(|config| TOPIC_CONFIGS.contains(&&*config.name));
        let topic_config =
            wanted.map(|config| (config.name, config.value.unwrap_or_default())).collect();
        let described = DescribedQueue { report: latest, topic_config };
        output.show(&described, table::description)?;
        Ok(())
    }
}

// ------------------------------------------------------------------------------------------ peek

#[derive(Args, Debug)]
struct Peek {
    #[command(flatten)]
    named: Named,
    /// At most so many records
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Only this partition
    #[arg(short, long, value_name = "N")]
    partition: Option<u32>,
    /// From this offset on, in the first partition that is shown
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
}

impl Peek {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let mut records: Vec<QueuedRecord> = Vec::new();
        let partition = self.partition.unwrap_or(0);
        let mut from = self.from.map(|offset| Place { partition, offset }.into());
        loop {
            let records_max = self.count - records.len() as u32;
            let operation = Operation::PeekQueue {
                queue: queue.clone(),
                partition: self.partition,
                from,
                records_max,
            };
            let page: RecordPage = client.operate(&operation).await?;
            records.extend(page.records);
            if page.next.is_none() || records.len() >= self.count as usize {
                break;
            }
            from = page.next;
        }
        output.show(&records, |records| {
            if records.is_empty() {
                return format!("queue {} has no records waiting\n", label(&queue));
            }
            peek_table(records)
        })?;
        Ok(())
    }
}

fn peek_table(records: &[QueuedRecord]) -> String {
    let now = now_ms();
    let mut table =
        Table::new(&[">PARTITION", ">OFFSET", "STATE", ">ATTEMPTS", "TIME", "KEY", "VALUE"]);
    for QueuedRecord { state, until_ms, attempts, record } in records {
        let state = match (state, until_ms) {
            (RecordState::Ready, _) => "ready".to_owned(),
            (RecordState::Blocked, _) => "blocked".to_owned(),
            (RecordState::Leased, None) => "leased".to_owned(),
            (RecordState::Leased, Some(at)) => format!("leased for {}", until(*at, now)),
            (RecordState::Delayed, None) => "delayed".to_owned(),
            (RecordState::Delayed, Some(at)) => format!("delayed for {}", until(*at, now)),
            (RecordState::DeadLettering, _) => "dead-lettering".to_owned(),
        };
        table.row([
            record.partition.to_string(),
            record.offset.to_string(),
            state,
            attempts.to_string(),
            human_time(record.timestamp_ms),
            preview(record.key.as_ref(), 20),
            preview(record.value.as_ref(), 60),
        ]);
    }
    table.render()
}

// --------------------------------------------------------------------------------------- changing

#[derive(Args, Debug)]
struct Purge {
    #[command(flatten)]
    named: Named,
    /// Only this record; may be repeated
    #[arg(short, long, value_name = "PARTITION:OFFSET")]
    record: Vec<Place>,
}

#[derive(Serialize)]
struct Purged<'a> {
    topic: &'a str,
    group: &'a str,
    records: u64,
}

impl Purge {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let queue = self.named.queue();
        let mut outcome = Ok(());
        let records = if self.record.is_empty() {
            let operation = Operation::PurgeQueue { queue: queue.clone() };
            client.operate::<Counted>(&operation).await?.records
        } else {
            let records = records::places(&self.record);
            let operation = Operation::RemoveRecords { queue: queue.clone(), records };
            let removed: Removed = client.operate(&operation).await?;
            outcome = records::all_removed(&removed);
            removed.removed
        };
        let purged = Purged { topic: &queue.topic, group: &queue.group, records };
        output.show(&purged, |purged| {
            format!("purged {} from queue {}\n", counted(purged.records, "record"), label(&queue))
        })?;
        outcome
    }
}

#[derive(Serialize)]
struct Paused<'a> {
    topic: &'a str,
    group: &'a str,
    paused: bool,
}

async fn pause(
    client: &Client,
    output: OutputFormat,
    named: &Named,
    paused: bool,
) -> Result<(), CommandError> {
    let queue = named.queue();
    client.operate::<Done>(&Operation::PauseQueue { queue: queue.clone(), paused }).await?;
    let said = Paused { topic: &queue.topic, group: &queue.group, paused };
    output.show(&said, |said| {
        let verb = if said.paused { "paused" } else { "resumed" };
        format!("{verb} queue {}\n", label(&queue))
    })?;
    Ok(())
}

#[derive(Args, Debug)]
struct Seek {
    #[command(flatten)]
    named: Named,
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
struct Sought<'a> {
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
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
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
                .map(|it| Place { partition: it.partition, offset: it.to }.into())
                .collect();
            client.operate::<Done>(&Operation::SeekQueue { queue: queue.clone(), to }).await?;
        }
        let (topic, group) = (&*queue.topic, &*queue.group);
        let sought = Sought { topic, group, dry_run: self.dry_run, partitions };
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

#[derive(Args, Debug)]
struct Delete {
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
struct Deleted {
    topic: String,
    group: String,
    with_topic: bool,
}

impl Delete {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut deleted = Vec::new();
        let mut outcome = Ok(());
        for topic in &self.topics {
            if let Err(error) = self.delete(client, topic).await {
                outcome = Err(error);
                break;
            }
            let (topic, group) = (topic.clone(), self.group.group.clone());
            deleted.push(Deleted { topic, group, with_topic: self.with_topic });
        }
        output.show(&deleted, |deleted| {
            let line = |gone: &Deleted| {
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
        client.operate::<Done>(&Operation::DeleteQueue { queue, force }).await?;
        if self.with_topic {
            client.delete_topic(topic).await?;
        }
        Ok(())
    }
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

    #[test]
    fn the_main_group_goes_without_saying() {
        let queue = |group: &str| QueueName { topic: "orders".into(), group: group.into() };
        assert_eq!(label(&queue("main")), "orders");
        assert_eq!(label(&queue("audit")), "orders (group audit)");
    }
}
