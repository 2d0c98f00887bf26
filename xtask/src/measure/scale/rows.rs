//! `cargo xtask measure rows`: a cluster with very many partitions and queues, compared with a small one. Measures
//! the creation time, a node's memory per row, and the time until the shards of a dead node have a new leader.

use std::iter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::requests::ProduceOutcome;
use client_amqp::Mode;

use super::RESTS;
use super::nodes::Nodes;
use crate::cluster::{Cluster, NodeFault, leaders_by_any};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output, median};
use crate::measure::PATIENCE;
use crate::records::batch;
use crate::{paths, server};

#[derive(Debug, Args)]
pub(crate) struct RowsOptions {
    /// Partitions of one topic
    #[arg(long, default_value_t = 100_000)]
    partitions: usize,
    /// Queues of AMQP
    #[arg(long, default_value_t = 10_000)]
    queues: usize,
    /// Shards of each of the three nodes
    #[arg(long, default_value_t = 12)]
    shards: usize,
    /// How often a node is killed
    #[arg(long, default_value_t = 15)]
    kills: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const FOLDER: &str = "measure-rows";
const NODES: usize = 3;
const FEW: usize = 10;
/// Time limit for the creation of all rows.
const MADE_MAX: Duration = Duration::from_secs(10);
/// Each connection has one declaration in flight.
const CONNECTIONS: usize = 16;
const PROBE: &str = "probe";
/// Interval between two requests for the leaders.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn run(options: &RowsOptions) -> Outcome {
    let binary = server::binary(options.bin.as_deref())?;
    let mut figures = Figures::new("measure rows");
    let few = measure(&mut figures, options, &binary, (FEW, FEW))?;
    let many = measure(&mut figures, options, &binary, (options.partitions, options.queues))?;
    let (few, many) = (median(&few), median(&many));
    let target = format!("at most {few:.0} ms and a half of it, as with {FEW}");
    figures.judge("another node leads, beside few", many, "ms", target, many <= 1.5 * few);
    figures.publish(options.output)
}

/// Returns the milliseconds from each kill until all shards of the killed leader take records again.
fn measure(
    figures: &mut Figures,
    options: &RowsOptions,
    binary: &Path,
    (partitions, queues): (usize, usize),
) -> Outcome<Vec<f64>> {
    let size = format!("{partitions} partitions and {queues} queues");
    eprintln!("  {size}");
    let folder = paths::fresh(FOLDER)?;
    let nodes = Nodes::start(binary, &folder, NODES, options.shards, &options.serve)?;
    // A first topic and a first queue pay for allocations of first use.
    nodes.create_topic(PROBE, options.shards)?;
    declare(&nodes, &["first".to_owned()])?;
    thread::sleep(RESTS);
    let before = nodes.memory_bytes()?;
    let begun = Instant::now();
    nodes.create_topic("many", partitions)?;
    let topic = begun.elapsed();
    let names: Vec<String> = (0..queues).map(|number| format!("queue-{number}")).collect();
    declare(&nodes, &names)?;
    let made = begun.elapsed();
    let (seconds, most) = (made.as_secs_f64(), MADE_MAX.as_secs_f64());
    figures.add(format!("{size}: partitions created in"), topic.as_secs_f64(), "s");
    let met = made <= MADE_MAX;
    figures.judge(format!("{size}: all made in"), seconds, "s", format!("at most {most:.0}"), met);
    thread::sleep(RESTS);
    let more = (nodes.memory_bytes()? - before) / NODES as f64;
    figures.add(format!("{size}: memory more, a node"), more / 1e6, "MB");
    let each = more / (partitions + queues) as f64;
    figures.add(format!("{size}: memory, a row"), each, "bytes");

    let Nodes::Several(mut cluster) = nodes else { return Err(Failure::new("it is a cluster")) };
    let mut waits = Vec::new();
    for kill in 0..options.kills {
        cluster.wait_until_whole(PROBE, options.shards, PATIENCE)?;
        thread::sleep(RESTS);
        let waited = fail_over(&mut cluster, kill % NODES, options.shards)?;
        waits.push(waited.as_secs_f64() * 1e3);
        cluster.bring_back(kill % NODES, NodeFault::Kill, PATIENCE)?;
    }
    let worst = waits.iter().copied().fold(0.0, f64::max);
    figures.add(format!("{size}: another node leads, median"), median(&waits), "ms");
    figures.add(format!("{size}: another node leads, worst"), worst, "ms");
    cluster.stop(PATIENCE)?;
    paths::fresh(FOLDER)?;
    Ok(waits)
}

/// Declares queues on several connections, spread over the nodes.
fn declare(nodes: &Nodes, names: &[String]) -> Outcome {
    let share = names.len().div_ceil(CONNECTIONS);
    thread::scope(|scope| {
        let declaring =
            |(at, names)| scope.spawn(move || declare_by_one(nodes.amqp(at % NODES), names));
        let all: Vec<_> = names.chunks(share).enumerate().map(declaring).collect();
        all.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
    })
}

fn declare_by_one(node: SocketAddr, names: &[String]) -> Outcome {
    let connection = client_amqp::blocking::Connection::open(node, PATIENCE, Mode::Confirms);
    let mut connection = connection.context(|| "cannot connect by AMQP")?;
    connection.declare(names, "classic").context(|| "cannot declare the queues")?;
    connection.close().context(|| "cannot close")
}

/// Kills a node. Returns the time until each shard that it led takes a record.
fn fail_over(cluster: &mut Cluster, place: usize, shards: usize) -> Outcome<Duration> {
    let mut others = cluster.addresses();
    let before = leaders_by_any(&others, PROBE, shards)?;
    others.remove(place);
    let led = |partition: &usize| before[*partition] == Some(place);
    let mut waiting: Vec<usize> = (0..shards).filter(led).collect();
    cluster.take_away(place, NodeFault::Kill)?;
    let begun = Instant::now();
    while !waiting.is_empty() {
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!("nobody leads partitions {waiting:?}")));
        }
        thread::sleep(PAUSE);
        let now = leaders_by_any(&others, PROBE, shards)?;
        waiting.retain(|&partition| match now[partition].filter(|&leader| leader != place) {
            Some(leader) => !accepts_record(cluster.address(leader), partition),
            None => true,
        });
    }
    Ok(begun.elapsed())
}

fn accepts_record(leader: SocketAddr, partition: usize) -> bool {
    let taken = || {
        let mut connection = Connection::open(leader, PATIENCE).ok()?;
        let one = batch(iter::once(Bytes::from_static(b"x")));
        let sent = connection.produce(PROBE, partition as i32, one).ok()?;
        connection.answer(sent).ok()
    };
    matches!(taken(), Some(ProduceOutcome::Acknowledged { .. }))
}
