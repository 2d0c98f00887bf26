//! `postroad group`: who consumes what, how far behind it is, and where it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{ClientOptions, CommandError};
use crate::output::{OutputFormat, Table, count, counted};
use crate::position::{Position, locate};
use crate::time::{human_duration, now_ms};
use client::cluster::Metadata;
use client::groups::{Committer, DescribedGroup, ListedGroup};
use client::offsets::Bounds;
use client::{Client, TopicPartition};

#[derive(Args, Debug)]
pub(crate) struct GroupArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Subcommand, Debug)]
enum GroupCommand {
    /// List groups and how far behind they are
    List,
    /// Show members, committed offsets and lag of groups
    Describe(Describe),
    /// Set the committed offsets of a group that has no members
    Reset(Reset),
    /// Delete groups with their committed offsets
    Delete(Delete),
}

#[derive(Args, Debug)]
struct Describe {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
}

#[derive(Args, Debug)]
struct Reset {
    group: String,
    /// Where to go on: earliest, latest, an offset, -100 (the last 100 of each partition), or a
    /// time such as '15m ago'
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    to: Position,
    /// Only this topic, or TOPIC:PARTITION; may be repeated [default: where it has committed]
    #[arg(short, long, value_name = "TOPIC[:N]", value_parser = place)]
    topic: Vec<Place>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Debug)]
struct Delete {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
}

/// A topic, or one partition of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    topic: String,
    partition: Option<i32>,
}

fn place(text: &str) -> Result<Place, String> {
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
    Ok(Place { topic: topic.to_owned(), partition })
}

pub(crate) async fn run(arguments: GroupArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        GroupCommand::List => list(&client, output).await,
        GroupCommand::Describe(describe) => describe.run(&client, output).await,
        GroupCommand::Reset(reset) => reset.run(&client, output).await,
        GroupCommand::Delete(delete) => delete.run(&client, output).await,
    }
}

fn no_such_group(group: &str) -> CommandError {
    CommandError::user(format!("there is no group {group}; 'postroad group list' names them"))
}

// ------------------------------------------------------------------------------------------ lag

/// How far a group is behind in one partition.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct PartitionLag {
    topic: String,
    partition: i32,
    /// `null`: nothing committed yet.
    committed: Option<u64>,
    start: u64,
    end: u64,
    lag_records: u64,
    /// Age of the oldest unread record: 0 when there is none, `null` when it has no timestamp.
    lag_seconds: Option<f64>,
    /// Who reads it.
    member: Option<String>,
}

/// The lag of a group wherever it has committed, and in `also`.
async fn lags(
    client: &Client,
    committed: &BTreeMap<TopicPartition, u64>,
    also: &BTreeMap<TopicPartition, String>,
) -> Result<Vec<PartitionLag>, CommandError> {
    let places: BTreeSet<&TopicPartition> = committed.keys().chain(also.keys()).collect();
    let metadata = metadata_of(client, places.iter().copied()).await?;
    // A topic may be gone, and what was committed in it not yet.
    let there = |place: &&TopicPartition| {
        let topic = metadata.topics.get(&*place.topic);
        topic.is_some_and(|topic| (place.partition as usize) < topic.partitions.len())
    };
    let places: Vec<TopicPartition> = places.into_iter().filter(there).cloned().collect();
    let bounds = client.bounds(&metadata, &places).await?;
    let unread = |place: &TopicPartition, bounds: &Bounds| {
        // Records below the start are gone: nobody can be behind in them.
        let from = committed.get(place).copied().unwrap_or(0).max(bounds.start);
        (from < bounds.end).then_some(from)
    };
    let oldest: BTreeMap<TopicPartition, u64> = bounds
        .iter()
        .filter_map(|(place, bounds)| Some((place.clone(), unread(place, bounds)?)))
        .collect();
    let timestamps = client.timestamps_at(&metadata, oldest.clone()).await?;
    let now = now_ms();
    let lags = bounds.into_iter().map(|(place, bounds)| {
        let lag_seconds = match (oldest.get(&place), timestamps.get(&place)) {
            (None, _) => Some(0.0),
            (Some(_), Some(&timestamp)) if timestamp >= 0 => {
                Some((now - timestamp).max(0) as f64 / 1000.0)
            }
            (Some(_), _) => None,
        };
        PartitionLag {
            topic: place.topic.to_string(),
            partition: place.partition,
            committed: committed.get(&place).copied(),
            start: bounds.start,
            end: bounds.end,
            lag_records: oldest.get(&place).map_or(0, |from| bounds.end - from),
            lag_seconds,
            member: also.get(&place).cloned(),
        }
    });
    Ok(lags.collect())
}

async fn metadata_of(
    client: &Client,
    places: impl Iterator<Item = &TopicPartition>,
) -> Result<Metadata, CommandError> {
    let topics: BTreeSet<&str> = places.map(|place| &*place.topic).collect();
    let topics: Vec<&str> = topics.into_iter().collect();
    Ok(client.metadata(Some(&topics)).await?)
}

fn total_records(lags: &[PartitionLag]) -> u64 {
    lags.iter().map(|lag| lag.lag_records).sum()
}

/// Of the oldest unread record anywhere.
fn total_seconds(lags: &[PartitionLag]) -> Option<f64> {
    lags.iter().filter_map(|lag| lag.lag_seconds).reduce(f64::max)
}

fn behind(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(0.0) => "0s".into(),
        Some(seconds) => human_duration(Duration::from_secs_f64(seconds)),
    }
}

// ----------------------------------------------------------------------------------------- list

#[derive(Serialize)]
struct GroupRow {
    group: String,
    state: String,
    kind: String,
    lag_records: u64,
    lag_seconds: Option<f64>,
}

async fn list(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    for ListedGroup { name, state, kind } in client.groups().await? {
        let committed = client.committed(&name).await?;
        let lags = lags(client, &committed, &BTreeMap::new()).await?;
        let (lag_records, lag_seconds) = (total_records(&lags), total_seconds(&lags));
        rows.push(GroupRow { group: name, state, kind, lag_records, lag_seconds });
    }
    output.show(&rows, |rows| {
        if rows.is_empty() {
            return "no groups yet; a consumer makes its own\n".into();
        }
        let mut table = Table::new(&["GROUP", "STATE", "KIND", ">LAG", ">BEHIND"]);
        for row in rows {
            let (lag, behind) = (count(row.lag_records), behind(row.lag_seconds));
            table.row([row.group.clone(), row.state.clone(), row.kind.clone(), lag, behind]);
        }
        table.render()
    })?;
    Ok(())
}

// ------------------------------------------------------------------------------------- describe

#[derive(Serialize)]
struct GroupReport {
    group: String,
    state: String,
    kind: &'static str,
    assignor: String,
    members: Vec<MemberReport>,
    lag_records: u64,
    lag_seconds: Option<f64>,
    partitions: Vec<PartitionLag>,
}

#[derive(Serialize)]
struct MemberReport {
    member: String,
    client: String,
    host: String,
    partitions: usize,
}

impl Describe {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut reports = Vec::new();
        for group in &self.groups {
            let found = client.group(group).await?.ok_or_else(|| no_such_group(group))?;
            reports.push(report(client, found).await?);
        }
        output.show(&reports, |reports| {
            reports.iter().map(report_text).collect::<Vec<_>>().join("\n")
        })?;
        Ok(())
    }
}

async fn report(client: &Client, group: DescribedGroup) -> Result<GroupReport, CommandError> {
    let committed = client.committed(&group.name).await?;
    let mut readers = BTreeMap::new();
    for member in &group.members {
        for partition in &member.partitions {
            readers.insert(partition.clone(), member.id.clone());
        }
    }
    let partitions = lags(client, &committed, &readers).await?;
    let member = |member: &client::groups::GroupMember| MemberReport {
        member: member.id.clone(),
        client: member.client.clone(),
        host: member.host.clone(),
        partitions: member.partitions.len(),
    };
    Ok(GroupReport {
        lag_records: total_records(&partitions),
        lag_seconds: total_seconds(&partitions),
        members: group.members.iter().map(member).collect(),
        group: group.name,
        state: group.state,
        kind: group.kind,
        assignor: group.assignor,
        partitions,
    })
}

fn report_text(report: &GroupReport) -> String {
    let how = match report.assignor.is_empty() {
        true => report.kind.to_owned(),
        false => format!("{}, {}", report.kind, report.assignor),
    };
    let mut text = format!(
        "{}: {} ({how}), {}, {} behind",
        report.group,
        report.state,
        counted(report.members.len() as u64, "member"),
        counted(report.lag_records, "record"),
    );
    if report.lag_records > 0 && report.lag_seconds.is_some() {
        text += &format!(" (the oldest is {} old)", behind(report.lag_seconds));
    }
    text.push('\n');
    if !report.partitions.is_empty() {
        text.push('\n');
        text += &lag_table(&report.partitions);
    }
    if !report.members.is_empty() {
        let mut table = Table::new(&["MEMBER", "CLIENT", "HOST", ">PARTITIONS"]);
        for member in &report.members {
            let partitions = count(member.partitions as u64);
            let (id, client, host) = (&member.member, &member.client, &member.host);
            table.row([id.clone(), client.clone(), host.clone(), partitions]);
        }
        text.push('\n');
        text += &table.render();
    }
    text
}

fn lag_table(partitions: &[PartitionLag]) -> String {
    let mut table =
        Table::new(&["TOPIC", ">PARTITION", ">COMMITTED", ">END", ">LAG", ">BEHIND", "MEMBER"]);
    for lag in partitions {
        table.row([
            lag.topic.clone(),
            lag.partition.to_string(),
            lag.committed.map_or("-".into(), count),
            count(lag.end),
            count(lag.lag_records),
            behind(lag.lag_seconds),
            lag.member.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

// ---------------------------------------------------------------------------------------- reset

#[derive(Serialize)]
struct ResetReport {
    group: String,
    /// False: it was only asked what would change.
    done: bool,
    partitions: Vec<ResetPartition>,
}

#[derive(Serialize)]
struct ResetPartition {
    topic: String,
    partition: i32,
    from: Option<u64>,
    to: u64,
    /// What the group has to read after it.
    lag_records: u64,
}

impl Reset {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let group = client.group(&self.group).await?;
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

    /// The partitions to reset: those named, else those in which the group has committed.
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
        for Place { topic, partition } in &self.topic {
            let metadata = client.topic(topic).await?;
            let all = metadata.partitions(topic);
            match partition {
                None => places.extend(all),
                Some(partition) => {
                    let found = all.get(*partition as usize).cloned();
                    let missing = || client::ClientError::NoSuchPartition {
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

// --------------------------------------------------------------------------------------- delete

#[derive(Serialize)]
struct DeletedGroup {
    group: String,
    deleted: bool,
}

impl Delete {
    async fn run(&self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let mut deleted = Vec::new();
        let mut outcome = Ok(());
        for group in &self.groups {
            match client.delete_group(group).await {
                Ok(()) => deleted.push(DeletedGroup { group: group.clone(), deleted: true }),
                Err(error) => {
                    outcome = Err(error.into());
                    break;
                }
            }
        }
        output.show(&deleted, |deleted| {
            deleted.iter().map(|gone| format!("deleted group {}\n", gone.group)).collect()
        })?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(records: u64, seconds: Option<f64>) -> PartitionLag {
        PartitionLag {
            topic: "t".into(),
            partition: 0,
            committed: None,
            start: 0,
            end: records,
            lag_records: records,
            lag_seconds: seconds,
            member: None,
        }
    }

    #[test]
    fn a_group_is_as_old_as_its_oldest_unread_record() {
        let lags = [lag(5, Some(2.0)), lag(0, Some(0.0)), lag(3, Some(90.0)), lag(1, None)];
        assert_eq!(total_records(&lags), 9);
        assert_eq!(total_seconds(&lags), Some(90.0));
        assert_eq!(behind(total_seconds(&lags)), "1m 30s");
        assert_eq!(behind(None), "-");
    }

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
