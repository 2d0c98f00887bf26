//! `postroad group describe`.

use std::collections::BTreeMap;

use clap::Args;
use client::Client;
use client::groups::{DescribedGroup, GroupMember};
use serde::Serialize;

use super::lag::{PartitionLag, lags, total_records, total_seconds};
use super::refuse_share_group;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, behind, count, counted};

#[derive(Args, Debug)]
pub(super) struct Describe {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
}

fn no_such_group(group: &str) -> CommandError {
    CommandError::user(format!("there is no group {group}; 'postroad group list' names them"))
}

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
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let mut reports = Vec::new();
        for group in &self.groups {
            let Some(found) = client.group(group).await? else {
                refuse_share_group(client, group).await?;
                return Err(no_such_group(group));
            };
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
    let member = |member: &GroupMember| MemberReport {
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
