//! `postroad recover`: lets a node of a cluster continue without the lost majority.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use ::journal::Options as JournalOptions;
use ::world::World;
use broker::BrokerOptions;
use clap::Args;
use cli::output::{Table, count};
use cli::{CommandError, OutputOption};
use nodes::recovery::{Outcome, Report, Shard, inspect, recover};
use operations::time::human_time;

/// Have a node go on alone where the majority of its cluster is lost for good
///
/// The node must not run. What the lost nodes had acknowledged and this one does not have is gone: where several
/// nodes have survived, look at each with --dry-run, and recover the one that goes farthest. It is a new cluster
/// afterwards, which no node of the former one can come back to; other nodes join it with empty directories.
#[derive(Args, Debug)]
pub(crate) struct RecoverArguments {
    /// Directory that 'postroad serve --data' names on the node that goes on
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Numbers of the nodes that are lost, such as 2,3
    #[arg(long, value_name = "N,N", value_delimiter = ',', required = true)]
    lost: Vec<u64>,
    /// Only say how far the node's copy of each shard goes, and whether it could go on
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputOption,
}

pub(crate) async fn run(arguments: RecoverArguments) -> Result<(), CommandError> {
    let RecoverArguments { data, lost, dry_run, output } = arguments;
    let (world, lost) = (World::real(), lost.into_iter().collect::<BTreeSet<u64>>());
    let options = BrokerOptions { journal: JournalOptions::default(), ..BrokerOptions::default() };
    let done = match dry_run {
        true => inspect(&world, &data, options, &lost).await,
        false => recover(&world, &data, options, &lost).await,
    };
    let report = done.map_err(CommandError::user)?;
    output.output.show(&report, |report| describe(report, &data.display().to_string(), &lost))?;
    Ok(())
}

fn describe(report: &Report, data: &str, lost: &BTreeSet<u64>) -> String {
    let mut table = Table::new(&["SHARD", ">VOTERS", ">TERM", ">LAST ENTRY", "WRITTEN"]);
    for Shard { shard, voters, last_term, last_index, last_ms } in &report.shards {
        let name = if *shard == 0 { "catalog".to_owned() } else { shard.to_string() };
        let voters = voters.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        // After a snapshot the log may have no entry with a time.
        let written = last_ms.map_or_else(|| "-".to_owned(), human_time);
        table.row(vec![name, voters, last_term.to_string(), last_index.to_string(), written]);
    }
    let mut text = format!("node {}: {data}\n{}", report.node, table.render());
    for other in &report.others {
        let _ = writeln!(
            text,
            "node {other} is not lost either: compare what it has (--dry-run there). Whichever goes on, the other's \
             directory is of no use afterwards"
        );
    }
    match &report.recovered {
        None => {
            let lost = lost.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let _ = writeln!(
                text,
                "what was acknowledged after that is lost with nodes {lost} if this node goes on. Nothing was \
                 changed; to go on, type\n  postroad recover --data {data} --lost {lost}"
            );
        }
        Some(outcome) => text.push_str(&after(report.node, outcome)),
    }
    text
}

fn after(node: u64, outcome: &Outcome) -> String {
    let Outcome { cluster, topics_dropped, offsets_set_back, gaps } = outcome;
    let mut text = format!("node {node} is alone in cluster {cluster} now\n");
    if *topics_dropped > 0 {
        let topics = count(*topics_dropped as u64);
        let _ = writeln!(
            text,
            "topics that were made just before the loss are gone, with what was here of them: {topics}"
        );
    }
    if *offsets_set_back > 0 {
        let offsets = count(*offsets_set_back as u64);
        let _ = writeln!(
            text,
            "offsets that groups had committed of records that are lost, and that are set back: {offsets}"
        );
    }
    for gap in gaps {
        let records = count(gap.records);
        let _ = writeln!(
            text,
            "at most {records} records that shard {} had sent to shard {} (dead letters and the like) are lost",
            gap.from, gap.to
        );
    }
    text.push_str(
        "start it as before; --seeds is not needed any more. Then let others join, each with an empty directory:\n  \
         postroad serve --data NEW --peer HOST:PORT --join PEER-ADDRESS-OF-THIS-NODE\n\
         what of the former cluster's nodes is left, must not be started again: it would be refused\n",
    );
    text
}
