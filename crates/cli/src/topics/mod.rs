//! `postroad topic`: creates, lists, describes, changes and deletes topics.

mod topic_move;

use std::collections::BTreeMap;

use clap::{ArgGroup, Args, Subcommand};
use client::admin::{ConfigChange, ConfigSource, ConfigValue};
use client::offsets::Bounds;
use client::{Client, TopicPartition};
use kafka_protocol::ResponseError;
use operations::time::human_ms;
use serde::Serialize;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, bytes, count, counted};
use crate::printable;
use topic_move::Move;

#[derive(Args, Debug)]
pub struct TopicArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Subcommand, Debug)]
enum TopicCommand {
    /// Make topics
    Create(Create),
    /// List topics, with their records and sizes
    List(List),
    /// Show partitions and configuration of topics
    Describe(Describe),
    /// Change the configuration of a topic, or add partitions to it
    Alter(Alter),
    /// Delete topics with all their records
    Delete(Delete),
    /// Move partitions to another shard, while they are written to and read
    ///
    /// Offsets stay as they are. Producers and consumers find the partition's new leader by themselves.
    Move(Move),
}

#[derive(Args, Debug)]
struct Create {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Number of partitions [default: the broker's]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Copies of each record [default: the broker's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// Configuration, such as retention.ms=3600000; may be repeated
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = name_value)]
    config: Vec<(String, String)>,
    /// Be content when the topic is there already
    #[arg(long)]
    if_not_exists: bool,
}

#[derive(Args, Debug)]
struct List {
    /// Also topics that the broker made for itself
    #[arg(long)]
    internal: bool,
}

#[derive(Args, Debug)]
struct Describe {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Also configuration that has its default
    #[arg(long)]
    all_configs: bool,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("change").required(true).multiple(true)))]
struct Alter {
    topic: String,
    /// Number of partitions to grow to; records stay where they are
    #[arg(short, long, group = "change", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Configuration to set; may be repeated
    #[arg(short, long, group = "change", value_name = "NAME=VALUE", value_parser = name_value)]
    config: Vec<(String, String)>,
    /// Configuration to set back to what holds without it; may be repeated
    #[arg(long, group = "change", value_name = "NAME")]
    unset: Vec<String>,
}

#[derive(Args, Debug)]
struct Delete {
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Be content when there is no such topic
    #[arg(long)]
    if_exists: bool,
}

pub(crate) fn name_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".into()),
    }
}

pub(crate) async fn run(arguments: TopicArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        TopicCommand::Create(create) => create.run(&client, output).await,
        TopicCommand::List(list) => {
            list.run(&client, output, arguments.client.login.as_deref()).await
        }
        TopicCommand::Describe(describe) => describe.run(&client, output).await,
        TopicCommand::Alter(alter) => alter.run(&client, output).await,
        TopicCommand::Delete(delete) => delete.run(&client, output).await,
        TopicCommand::Move(it) => it.run(&client, output).await,
    }
}

// --------------------------------------------------------------------------------------- create

#[derive(Serialize)]
struct CreatedTopic {
    topic: String,
    partitions: Option<i32>,
    /// False if the topic existed.
    created: bool,
    /// Reason why this topic and the following ones were not created.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Create {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut created = Vec::new();
        let mut outcome = Ok(());
        for topic in &self.topics {
            match self.create(client, topic).await {
                Ok(topic) => created.push(topic),
                Err(error) => {
                    if output == OutputFormat::Json {
                        let (topic, error) = (topic.clone(), Some(error.text()));
                        created.push(CreatedTopic {
                            topic,
                            partitions: None,
                            created: false,
                            error,
                        });
                    }
                    outcome = Err(error);
                    break;
                }
            }
        }
        // Created topics are reported even if the next one failed.
        output.show(&created, |created| created.iter().map(created_line).collect())?;
        outcome
    }

    async fn create(&self, client: &Client, topic: &str) -> Result<CreatedTopic, CommandError> {
        let replication = self.replication_factor.unwrap_or(-1);
        match client.create_topic(topic, self.partitions, replication, &self.config).await {
            Ok(partitions) => {
                Ok(CreatedTopic { topic: topic.into(), partitions, created: true, error: None })
            }
            Err(error)
                if self.if_not_exists
                    && error.code() == Some(ResponseError::TopicAlreadyExists) =>
            {
                let metadata = client.metadata(Some(&[topic])).await?;
                let partitions = Some(metadata.partitions(topic).len() as i32);
                Ok(CreatedTopic { topic: topic.into(), partitions, created: false, error: None })
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn created_line(made: &CreatedTopic) -> String {
    let verb = if made.created { "created" } else { "found" };
    let partitions = made.partitions.map_or(String::new(), |partitions| {
        format!(" with {}", counted(partitions as u64, "partition"))
    });
    format!("{verb} topic {}{partitions}\n", made.topic)
}

// ----------------------------------------------------------------------------------------- list

#[derive(Serialize)]
struct ListedTopic {
    topic: String,
    partitions: usize,
    /// Offsets from start to end: compaction leaves fewer records.
    records: u64,
    bytes: u64,
}

impl List {
    async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
        login: Option<&str>,
    ) -> Result<(), CommandError> {
        let mut metadata = client.metadata(None).await?;
        metadata.topics.retain(|_, topic| self.internal || !topic.internal);
        let partitions = metadata.all_partitions();
        let bounds = client.bounds(&metadata, &partitions).await?;
        let sizes = client.partition_bytes(&metadata, &partitions).await?;
        let mut listed: BTreeMap<&str, ListedTopic> = BTreeMap::new();
        for (topic, found) in &metadata.topics {
            let partitions = found.partitions.len();
            let row = ListedTopic { topic: topic.clone(), partitions, records: 0, bytes: 0 };
            listed.insert(topic, row);
        }
        for partition in &partitions {
            if let Some(row) = listed.get_mut(&*partition.topic) {
                row.records += bounds.get(partition).map_or(0, Bounds::records);
                row.bytes += sizes.get(partition).copied().unwrap_or(0);
            }
        }
        let listed: Vec<ListedTopic> = listed.into_values().collect();
        output.show(&listed, |listed| list_table(listed, login))?;
        Ok(())
    }
}

fn list_table(listed: &[ListedTopic], login: Option<&str>) -> String {
    // The list has only topics that the user may describe.
    if let (true, Some(user)) = (listed.is_empty(), login) {
        return format!("no topics that {} may see\n", printable::text(user));
    }
    if listed.is_empty() {
        return "no topics yet; make one with 'postroad topic create NAME'\n".into();
    }
    let mut table = Table::new(&["TOPIC", ">PARTITIONS", ">RECORDS", ">SIZE"]);
    for topic in listed {
        table.row([
            topic.topic.clone(),
            count(topic.partitions as u64),
            count(topic.records),
            bytes(topic.bytes),
        ]);
    }
    table.render()
}

// ------------------------------------------------------------------------------------- describe

#[derive(Serialize)]
struct DescribedTopic {
    topic: String,
    partitions: Vec<DescribedPartition>,
    configs: Vec<DescribedConfig>,
}

#[derive(Serialize)]
struct DescribedPartition {
    partition: i32,
    leader: i32,
    replicas: usize,
    start: u64,
    end: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct DescribedConfig {
    name: String,
    value: Option<String>,
    source: &'static str,
}

impl Describe {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut described = Vec::new();
        for topic in &self.topics {
            described.push(self.describe(client, topic).await?);
        }
        output.show(&described, |described| {
            described.iter().map(described_text).collect::<Vec<_>>().join("\n")
        })?;
        Ok(())
    }

    async fn describe(&self, client: &Client, topic: &str) -> Result<DescribedTopic, CommandError> {
        let metadata = client.topic(topic).await?;
        let partitions = metadata.partitions(topic);
        let bounds = client.bounds(&metadata, &partitions).await?;
        let sizes = client.partition_bytes(&metadata, &partitions).await?;
        let mut configs = client.topic_configs(&[topic]).await?;
        let found = &metadata.topics[topic];
        let described = |partition: &TopicPartition| {
            let at = found.partitions[partition.partition as usize];
            let bounds = bounds.get(partition).copied();
            let Bounds { start, end } = bounds.unwrap_or(Bounds { start: 0, end: 0 });
            DescribedPartition {
                partition: partition.partition,
                leader: at.leader,
                replicas: at.replicas,
                start,
                end,
                bytes: sizes.get(partition).copied().unwrap_or(0),
            }
        };
        Ok(DescribedTopic {
            topic: topic.to_owned(),
            partitions: partitions.iter().map(described).collect(),
            configs: configs
                .remove(topic)
                .unwrap_or_default()
                .into_iter()
                .filter(|config| self.all_configs || config.source != ConfigSource::Default)
                .map(DescribedConfig::from)
                .collect(),
        })
    }
}

impl From<ConfigValue> for DescribedConfig {
    fn from(config: ConfigValue) -> Self {
        let source = match config.source {
            ConfigSource::Topic => "topic",
            ConfigSource::Broker => "broker",
            ConfigSource::Default => "default",
        };
        Self { name: config.name, value: config.value, source }
    }
}

fn described_text(topic: &DescribedTopic) -> String {
    let records = topic.partitions.iter().map(|p| p.end.saturating_sub(p.start)).sum();
    let size = topic.partitions.iter().map(|partition| partition.bytes).sum();
    let mut text = format!(
        "{}: {}, {}, {}\n\n",
        topic.topic,
        counted(topic.partitions.len() as u64, "partition"),
        counted(records, "record"),
        bytes(size),
    );
    let mut table =
        Table::new(&[">PARTITION", ">LEADER", ">REPLICAS", ">START", ">END", ">RECORDS", ">SIZE"]);
    for partition in &topic.partitions {
        table.row([
            partition.partition.to_string(),
            partition.leader.to_string(),
            partition.replicas.to_string(),
            count(partition.start),
            count(partition.end),
            count(partition.end.saturating_sub(partition.start)),
            bytes(partition.bytes),
        ]);
    }
    text += &table.render();
    if !topic.configs.is_empty() {
        let mut table = Table::new(&["CONFIG", "VALUE", "", "SET BY"]);
        for config in &topic.configs {
            let value = config.value.as_deref().unwrap_or("(secret)");
            let meaning = meaning(&config.name, value);
            table.row([config.name.clone(), value.into(), meaning, config.source.into()]);
        }
        text.push('\n');
        text += &table.render();
    }
    text
}

/// Number of milliseconds or bytes in words.
fn meaning(name: &str, value: &str) -> String {
    let Ok(number) = value.parse::<i64>() else { return String::new() };
    let unit = name.rsplit('.').next().unwrap_or_default();
    match (unit, u64::try_from(number)) {
        ("ms", _) => format!("({})", human_ms(number)),
        ("bytes", Ok(number)) if number >= 1024 => format!("({})", bytes(number)),
        ("bytes", Err(_)) => "(no limit)".into(),
        _ => String::new(),
    }
}

// ---------------------------------------------------------------------------------------- alter

#[derive(Serialize)]
struct AlteredTopic<'a> {
    topic: &'a str,
    partitions: Option<i32>,
    set: BTreeMap<&'a str, &'a str>,
    unset: &'a [String],
}

impl Alter {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut changes: Vec<ConfigChange> = Vec::new();
        for (name, value) in &self.config {
            changes.push(ConfigChange::Set { name: name.clone(), value: value.clone() });
        }
        for name in &self.unset {
            changes.push(ConfigChange::Unset { name: name.clone() });
        }
        if !changes.is_empty() {
            client.alter_topic_configs(&self.topic, &changes).await?;
        }
        if let Some(partitions) = self.partitions {
            client.create_partitions(&self.topic, partitions).await?;
        }
        let altered = AlteredTopic {
            topic: &self.topic,
            partitions: self.partitions,
            set: self.config.iter().map(|(name, value)| (&**name, &**value)).collect(),
            unset: &self.unset,
        };
        output.show(&altered, altered_lines)?;
        Ok(())
    }
}

fn altered_lines(altered: &AlteredTopic<'_>) -> String {
    let mut lines = String::new();
    for (name, value) in &altered.set {
        lines += &format!("{}: {name} is now {value}\n", altered.topic);
    }
    for name in altered.unset {
        lines += &format!("{}: {name} has its default again\n", altered.topic);
    }
    if let Some(partitions) = altered.partitions {
        let partitions = counted(partitions as u64, "partition");
        lines += &format!("{}: {partitions} now\n", altered.topic);
    }
    lines
}

// --------------------------------------------------------------------------------------- delete

#[derive(Serialize)]
struct DeletedTopic {
    topic: String,
    /// False if there was no such topic.
    deleted: bool,
}

impl Delete {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut deleted = Vec::new();
        let mut outcome = Ok(());
        for topic in &self.topics {
            let gone = match client.delete_topic(topic).await {
                Ok(()) => true,
                Err(error)
                    if self.if_exists
                        && error.code() == Some(ResponseError::UnknownTopicOrPartition) =>
                {
                    false
                }
                Err(error) => {
                    outcome = Err(error.into());
                    break;
                }
            };
            deleted.push(DeletedTopic { topic: topic.clone(), deleted: gone });
        }
        output.show(&deleted, |deleted| {
            let line = |gone: &DeletedTopic| match gone.deleted {
                true => format!("deleted topic {}\n", gone.topic),
                false => format!("there is no topic {}\n", gone.topic),
            };
            deleted.iter().map(line).collect()
        })?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_split_at_its_first_equals_sign() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(name_value("retention.ms=5"), pair("retention.ms", "5"));
        assert_eq!(name_value("a=b=c"), pair("a", "b=c"));
        assert_eq!(name_value("a="), pair("a", ""));
        assert!(name_value("a").is_err());
        assert!(name_value("=a").is_err());
    }

    #[test]
    fn numbers_of_a_config_are_put_into_words() {
        assert_eq!(meaning("retention.ms", "604800000"), "(7d)");
        assert_eq!(meaning("retention.ms", "-1"), "(for ever)");
        assert_eq!(meaning("retention.bytes", "-1"), "(no limit)");
        assert_eq!(meaning("max.message.bytes", "1048588"), "(1.0 MiB)");
        assert_eq!(meaning("cleanup.policy", "compact"), "");
        assert_eq!(meaning("min.insync.replicas", "1"), "");
    }
}
