//! `postroad cluster`: status of a cluster, as seen by any of its nodes.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use client::Client;
use operations::cluster::{Node, NodeState, Operation, Shard, Status, Upgrade};
use operations::time::human_time;

use super::operate;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, bytes, count};

#[derive(Args, Debug)]
pub struct ClusterArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
enum ClusterCommand {
    /// Say of each node and shard how it stands, what is under way and what is at risk
    ///
    /// The last line says whether the cluster could lose one more node.
    Status(StatusOptions),
    /// Say at which feature level the cluster is, and which ones its nodes support
    ///
    /// Nodes of two versions write what the older one can read, until the level is raised.
    Upgrade {
        /// Raise it to the newest level that all nodes support; the versions before cannot be started again then
        #[arg(long)]
        finalize: bool,
    },
}

#[derive(Args, Debug)]
struct StatusOptions {
    /// Print it again every two seconds, until interrupted
    #[arg(long)]
    watch: bool,
}

/// `postroad status`.
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(flatten)]
    options: StatusOptions,
}

/// Pause between two outputs of `--watch`.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

pub(crate) async fn run(arguments: ClusterArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        ClusterCommand::Status(options) => print_status(&client, output, &options).await,
        ClusterCommand::Upgrade { finalize } => {
            let upgrade: Upgrade = operate(&client, &Operation::Upgrade { finalize }).await?;
            output.show(&upgrade, upgrade_in_words)?;
            Ok(())
        }
    }
}

pub(crate) async fn run_status(arguments: StatusArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    print_status(&client, arguments.client.output(), &arguments.options).await
}

async fn print_status(
    client: &Client,
    output: OutputFormat,
    options: &StatusOptions,
) -> Result<(), CommandError> {
    if !options.watch {
        return status(client, output).await;
    }
    loop {
        if output == OutputFormat::Table && io::stdout().is_terminal() {
            // Clears the screen; the next text begins at its top.
            io::stdout().write_all(b"\x1b[2J\x1b[H")?;
        }
        status(client, output).await?;
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

fn upgrade_in_words(upgrade: &Upgrade) -> String {
    let mut table = Table::new(&[">NODE", "PROGRAM", "IS", "SUPPORTS"]);
    for it in &upgrade.nodes {
        let can = match (it.level_min, it.level_max) {
            (min, max) if min == max => format!("level {max}"),
            (min, max) => format!("levels {min} to {max}"),
        };
        table.row([
            it.node.to_string(),
            it.name.clone().unwrap_or_else(|| "-".to_owned()),
            if it.live { "live" } else { "gone" }.to_owned(),
            can,
        ]);
    }
    let mut text = table.render();
    text.push('\n');
    for brought in &upgrade.brings {
        text.push_str(&format!("{brought}\n"));
    }
    for way in &upgrade.in_the_way {
        text.push_str(&format!("in the way: {way}\n"));
    }
    if !upgrade.brings.is_empty() {
        text.push('\n');
    }
    text.push_str(&level_in_words(upgrade));
    text.push('\n');
    text
}

/// The level, and the next step.
fn level_in_words(upgrade: &Upgrade) -> String {
    let Upgrade { level, possible, in_the_way, brings, raised, .. } = upgrade;
    match (raised, in_the_way.is_empty()) {
        (true, _) => format!("The cluster is raised to feature level {level}."),
        (_, true) if possible > level => format!(
            "The cluster is at feature level {level}, and every node supports level {possible}: type `postroad cluster upgrade \
             --finalize` once no node is to go back."
        ),
        (_, true) if brings.is_empty() => format!("The cluster is at feature level {level}."),
        _ => format!(
            "The cluster is at feature level {level}, and an upgrade is under way; each node may still go back."
        ),
    }
}

async fn status(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let status: Status = operate(client, &Operation::Status {}).await?;
    output.show(&status, describe)?;
    Ok(())
}

fn describe(status: &Status) -> String {
    let mut text = nodes(&status.nodes);
    text.push('\n');
    text.push_str(&shards(&status.shards));
    for (heading, words) in [("under way", &status.under_way), ("at risk", &status.at_risk)] {
        if !words.is_empty() {
            text.push('\n');
        }
        for word in words {
            text.push_str(&format!("{heading}: {word}\n"));
        }
    }
    text.push('\n');
    // Nodes of versions without levels report none.
    if status.upgrade.level > 0 {
        text.push_str(&level_in_words(&status.upgrade));
        text.push('\n');
    }
    text.push_str(&status.verdict.text);
    text.push('\n');
    text
}

fn nodes(nodes: &[Node]) -> String {
    let mut heads = vec![">NODE", "ADDRESS", "IS", "STATE", "SINCE", ">LEADS", ">HOLDS"];
    // Most clusters have none.
    let has_racks = nodes.iter().any(|it| it.rack.is_some());
    if has_racks {
        heads.insert(2, "RACK");
    }
    let mut table = Table::new(&heads);
    for it in nodes {
        let state = match (it.standing, it.replaced_by) {
            (NodeState::Active, _) => "active".to_owned(),
            (NodeState::Drained, _) => "drained".to_owned(),
            (NodeState::Leaving, None) => "leaving".to_owned(),
            (NodeState::Leaving, Some(by)) => format!("leaving for {by}"),
        };
        let mut cells = vec![
            it.node.to_string(),
            it.address.clone(),
            if it.live { "live" } else { "gone" }.to_owned(),
            state,
            it.since_ms.map_or_else(|| "-".into(), human_time),
            count(it.leads),
            count(it.holds),
        ];
        if has_racks {
            cells.insert(2, it.rack.clone().unwrap_or_else(|| "-".to_owned()));
        }
        table.row(cells);
    }
    table.render()
}

fn shards(shards: &[Shard]) -> String {
    let mut table = Table::new(&[">SHARD", "HOLDS", "LEADER", "VOTERS", "LEARNERS", "BEHIND"]);
    for it in shards {
        let lags = it.lags.iter().map(|lag| {
            let node = lag.node;
            match (lag.snapshot_bytes, lag.snapshot_of_bytes) {
                (Some(has), Some(of)) => {
                    format!("node {node}: snapshot {} of {}", bytes(has), bytes(of))
                }
                _ => format!("node {node}: {}", entries(lag.entries)),
            }
        });
        let lags: Vec<String> = lags.collect();
        table.row([
            it.shard.to_string(),
            if it.shard == 0 { "catalog" } else { "records" }.to_owned(),
            it.leader.map_or_else(|| "none".into(), |leader| leader.to_string()),
            listed(&it.voters),
            listed(&it.learners),
            if lags.is_empty() { "-".into() } else { lags.join("; ") },
        ]);
    }
    table.render()
}

fn entries(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "entry" } else { "entries" })
}

fn listed(nodes: &[u64]) -> String {
    let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
    if nodes.is_empty() { "-".to_owned() } else { nodes.join(" ") }
}

#[cfg(test)]
mod tests {
    use operations::cluster::{Lag, Program, Verdict};

    use super::*;

    #[test]
    fn last_line_has_the_verdict_on_losing_a_node() {
        let node = |node, live| Node {
            node,
            address: format!("n{node}:7700"),
            rack: None,
            standing: if live { NodeState::Active } else { NodeState::Leaving },
            replaced_by: (!live).then_some(4),
            live,
            since_ms: None,
            why: None,
            leads: 1,
            holds: 2,
        };
        let lag = Lag { node: 3, entries: 1_234, snapshot_bytes: None, snapshot_of_bytes: None };
        let sent =
            Lag { node: 4, snapshot_bytes: Some(1 << 20), snapshot_of_bytes: Some(2 << 20), ..lag };
        let shard = Shard {
            shard: 0,
            leader: Some(1),
            voters: vec![1, 2, 3],
            learners: vec![4],
            changing: false,
            lags: vec![lag, sent],
        };
        let without =
            Shard { shard: 1, leader: None, learners: vec![], lags: vec![], ..shard.clone() };
        let status = Status {
            cluster: "c".into(),
            answered_by: 1,
            nodes: vec![node(1, true), node(3, false)],
            shards: vec![shard, without],
            under_way: vec!["node 4 joins".into()],
            at_risk: vec!["node 3 is not connected".into()],
            verdict: Verdict { can_lose_a_node: false, text: "It cannot.".into() },
            stored: vec![],
            upgrade: Upgrade { level: 1, possible: 1, ..Upgrade::default() },
        };
        let expected = "\
NODE  ADDRESS  IS    STATE          SINCE  LEADS  HOLDS
   1  n1:7700  live  active         -          1      2
   3  n3:7700  gone  leaving for 4  -          1      2

SHARD  HOLDS    LEADER  VOTERS  LEARNERS  BEHIND
    0  catalog  1       1 2 3   4         node 3: 1,234 entries; node 4: snapshot 1.0 MiB of 2.0 MiB
    1  records  none    1 2 3   -         -

under way: node 4 joins

at risk: node 3 is not connected

The cluster is at feature level 1.
It cannot.
";
        assert_eq!(describe(&status), expected);
        let mut in_racks = status.nodes.clone();
        in_racks[0].rack = Some("east".into());
        let expected = "\
NODE  ADDRESS  RACK  IS    STATE          SINCE  LEADS  HOLDS
   1  n1:7700  east  live  active         -          1      2
   3  n3:7700  -     gone  leaving for 4  -          1      2
";
        assert_eq!(nodes(&in_racks), expected);
    }

    #[test]
    fn upgrade_output_names_the_next_command() {
        let program = |node, level_max| Program {
            node,
            name: (node == 1).then(|| "postroad 2".to_owned()),
            level_min: 1,
            level_max,
            live: true,
        };
        let mixed = Upgrade {
            level: 1,
            possible: 1,
            nodes: vec![program(1, 2), program(2, 1)],
            brings: vec!["level 2: more".into()],
            in_the_way: vec!["node 2 supports level 1: start it anew".into()],
            raised: false,
        };
        let expected = "\
NODE  PROGRAM     IS    SUPPORTS
   1  postroad 2  live  levels 1 to 2
   2  -           live  level 1

level 2: more
in the way: node 2 supports level 1: start it anew

The cluster is at feature level 1, and an upgrade is under way; each node may still go back.
";
        assert_eq!(upgrade_in_words(&mixed), expected);
        let able = Upgrade { possible: 2, in_the_way: vec![], ..mixed };
        assert!(level_in_words(&able).contains("`postroad cluster upgrade --finalize`"));
        let raised = Upgrade { level: 2, raised: true, brings: vec![], ..able };
        assert_eq!(level_in_words(&raised), "The cluster is raised to feature level 2.");
        let settled = Upgrade { raised: false, ..raised };
        assert_eq!(level_in_words(&settled), "The cluster is at feature level 2.");
    }
}
