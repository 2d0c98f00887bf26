//! `postroad shard move` and `shard balance`: placement of shards on the nodes of a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use client::Client;
use operations::cluster::{Operation, Placement, Placements};
use tokio::time::sleep;

use super::operate;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};

/// Poll interval of the node's progress.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// Polls between two progress lines.
const SAID_EVERY: u32 = 4;

#[derive(Args, Debug)]
pub(crate) struct Move {
    /// `postroad cluster status` says which there are
    shard: u32,
    /// The three nodes that are to have it, such as 1,4,5; or auto, for those that the cluster chooses
    #[arg(long, value_name = "NODES", value_parser = to)]
    to: To,
    /// Do not wait until it is done: it goes on by itself
    #[arg(long)]
    no_wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Balance {
    /// Say what would move, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until it is done: it goes on by itself
    #[arg(long)]
    no_wait: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum To {
    Nodes(BTreeSet<u64>),
    Auto,
}

fn to(text: &str) -> Result<To, String> {
    if text == "auto" {
        return Ok(To::Auto);
    }
    let nodes: Result<BTreeSet<u64>, _> = text.split(',').map(|node| node.trim().parse()).collect();
    nodes.map(To::Nodes).map_err(|_| format!("write nodes as 1,4,5, or auto, and not {text:?}"))
}

impl Move {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let nodes = match &self.to {
            To::Nodes(nodes) => nodes.iter().copied().collect(),
            To::Auto => Vec::new(),
        };
        let placed = operate(client, &Operation::PlaceShard { shard: self.shard, nodes }).await?;
        let own = |it: &&Placement| it.shard == self.shard;
        wait(client, output, placed, own, self.no_wait).await
    }
}

impl Balance {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let dry_run = self.dry_run;
        let placed = operate(client, &Operation::Balance { dry_run }).await?;
        wait(client, output, placed, |_| true, dry_run || self.no_wait).await
    }
}

fn is_there(placement: &Placement) -> bool {
    placement.nodes == placement.wanted
}

/// Waits until these shards are on their wanted nodes, and prints the progress.
async fn wait(
    client: &Client,
    output: OutputFormat,
    mut placed: Placements,
    own: impl Fn(&&Placement) -> bool,
    no_wait: bool,
) -> Result<(), CommandError> {
    let mut asked = 0;
    loop {
        let moving = placed.shards.iter().filter(&own).filter(|it| !is_there(it)).count();
        if moving == 0 || no_wait {
            break;
        }
        if asked % SAID_EVERY == 0 && output == OutputFormat::Table {
            eprintln!("shards that are on their way: {moving}");
        }
        asked += 1;
        sleep(ASKED_EVERY).await;
        let looked: Placements = operate(client, &Operation::Placements {}).await?;
        placed = looked;
    }
    output.show(&placed, describe)?;
    Ok(())
}

fn describe(placed: &Placements) -> String {
    let named = |nodes: &[u64]| {
        let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
        if nodes.is_empty() { "-".to_owned() } else { nodes.join(" ") }
    };
    let mut shards = Table::new(&[">SHARD", "NODES", "TO BE", "PLACED BY"]);
    for it in &placed.shards {
        let wanted = if is_there(it) { "-".to_owned() } else { named(&it.wanted) };
        let by = if it.by_hand { "hand" } else { "cluster" };
        shards.row([it.shard.to_string(), named(&it.nodes), wanted, by.to_owned()]);
    }
    let mut nodes = Table::new(&[">NODE", ">SHARDS", ">TO BE"]);
    for it in &placed.nodes {
        let wanted = if it.wanted == it.shards { "-".to_owned() } else { it.wanted.to_string() };
        nodes.row([it.node.to_string(), it.shards.to_string(), wanted]);
    }
    format!("{}\n{}", shards.render(), nodes.render())
}

#[cfg(test)]
mod tests {
    use operations::cluster::Load;

    use super::*;

    #[test]
    fn target_is_a_list_of_nodes_or_auto() {
        assert_eq!(to("5,1, 4"), Ok(To::Nodes(BTreeSet::from([1, 4, 5]))));
        assert_eq!(to("auto"), Ok(To::Auto));
        for wrong in ["", "a", "1,", "1-3"] {
            assert!(to(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tables_have_current_and_wanted_placements() {
        let shard = |shard, nodes: [u64; 3], wanted: [u64; 3], by_hand| Placement {
            shard,
            nodes: nodes.to_vec(),
            wanted: wanted.to_vec(),
            by_hand,
        };
        let shards =
            vec![shard(1, [1, 2, 3], [1, 2, 3], false), shard(2, [1, 2, 3], [1, 3, 4], true)];
        let load = |node, shards, wanted| Load { node, shards, wanted };
        let nodes = vec![load(1, 2, 2), load(2, 2, 1), load(3, 2, 2), load(4, 0, 1)];
        let expected = "\
SHARD  NODES  TO BE  PLACED BY
    1  1 2 3  -      cluster
    2  1 2 3  1 3 4  hand

NODE  SHARDS  TO BE
   1       2      -
   2       2      1
   3       2      -
   4       0      1
";
        assert_eq!(describe(&Placements { shards, nodes }), expected);
    }
}
