//! `cargo xtask measure scale`: one, three and five nodes times one, two and four shards a node, on this machine.
//! Measures the cost of an idle node, the processor time of a record on all nodes, its latency, and the cost of a
//! client's connection to a node without the leader.
//!
//! Nodes on one machine share its processors and its disk: rates do not grow with them here, and have no target.
//!
//! * [`nodes`]: one node or a cluster; [`log`]: Kafka records at the leaders; [`hop`]: AMQP messages at the leader
//!   and at another node
//! * [`rows`]: very many partitions and queues, which is a command of its own

mod hop;
mod log;
mod nodes;
mod rows;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::TOPIC;
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output, median};
use crate::paths;
use crate::server;
use hop::Hop;
use nodes::Nodes;
pub(super) use rows::{RowsOptions, run as rows};

#[derive(Debug, Args)]
pub(crate) struct ScaleOptions {
    /// Numbers of nodes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 3, 5])]
    nodes: Vec<usize>,
    /// Numbers of shards for each node
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    shards: Vec<usize>,
    /// How long a load is measured, and nodes of which nothing is asked
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
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

const FOLDER: &str = "measure-scale";
const PARTITIONS_A_SHARD: usize = 2;
/// Rest after the start: leaders are elected and the cluster is founded.
const RESTS: Duration = Duration::from_secs(5);
const TRIES: u32 = 3;
/// Pairs of measurements, at the leader and at another node.
const HOP_PAIRS: usize = 3;
/// Processor time that the hop to the leader may add, relative to a message at the leader.
const HOP_PROCESSOR_MAX: f64 = 0.4;

pub(super) fn run(options: &ScaleOptions) -> Outcome {
    let time = Duration::try_from_secs_f64(options.seconds).context(|| "--seconds")?;
    let binary = server::binary(options.bin.as_deref())?;
    let mut figures = Figures::new("measure scale");
    for &count in &options.nodes {
        for &shards in &options.shards {
            let size = format!("{count} nodes x {shards} shards");
            eprintln!("  {size}");
            let sized = (count, shards);
            match measure_again(&size, &binary, sized, &options.serve, time) {
                Ok(found) => figures.append(found),
                Err(failure) => {
                    // Earlier figures took minutes to measure, so they are printed.
                    let _ = figures.publish(options.output);
                    return Err(failure);
                }
            }
        }
    }
    paths::fresh(FOLDER)?;
    figures.publish(options.output)
}

/// Repeats a failed measurement: leaders move during a load after the machine has stalled.
fn measure_again(
    size: &str,
    binary: &Path,
    sized: (usize, usize),
    serve: &[String],
    time: Duration,
) -> Outcome<Figures> {
    let mut tries = 1;
    loop {
        let folder = paths::fresh(FOLDER)?;
        let mut found = Figures::new(size);
        match measure(&mut found, size, binary, &folder, sized, serve, time) {
            Ok(()) => return Ok(found),
            Err(failure) if tries < TRIES => eprintln!("  {size}: {failure}; once more"),
            Err(failure) => {
                let remedy = format!("data and logs are kept in {}", folder.display());
                return Err(Failure::new(format!("{size}: {failure}")).remedy(remedy));
            }
        }
        tries += 1;
    }
}

fn measure(
    figures: &mut Figures,
    size: &str,
    binary: &Path,
    folder: &Path,
    (count, shards): (usize, usize),
    serve: &[String],
    time: Duration,
) -> Outcome {
    let nodes = Nodes::start(binary, folder, count, count * shards, serve)?;
    thread::sleep(RESTS);
    let (used, begun) = (nodes.cpu_seconds()?, Instant::now());
    thread::sleep(time);
    let idle = (nodes.cpu_seconds()? - used) / begun.elapsed().as_secs_f64() / count as f64;
    let memory = nodes.memory_bytes()? / count as f64;
    figures.add(format!("{size}: idle, of one core, a node"), 100.0 * idle, "%");
    figures.add(format!("{size}: idle, memory, a node"), memory / 1e6, "MB");

    let partitions = count * shards * PARTITIONS_A_SHARD;
    nodes.create_topic(TOPIC, partitions)?;
    let leaders = nodes.leaders(TOPIC, partitions)?;
    let produced = log::produce(&nodes, &leaders, time)?;
    figures.add(format!("{size}: log, rate"), produced.rate, "records/s");
    let processor = format!("{size}: log, processor of all nodes");
    figures.add(processor, produced.processor, "s a million");
    let latency = log::latency(&nodes, leaders[0])?;
    figures.add(format!("{size}: log, acknowledged p50"), latency.p50_us, "us");
    figures.add(format!("{size}: log, acknowledged p99"), latency.p99_us, "us");

    let queue = hop::declare(&nodes)?;
    let leader = nodes.leaders(&queue, 1)?[0];
    let (mut here, mut there) = (Vec::new(), Vec::new());
    // Measured in turns, since other work on the machine lasts longer than one measurement.
    for _ in 0..HOP_PAIRS {
        here.push(hop::measure(&nodes, &queue, leader, time)?);
        if count > 1 {
            there.push(hop::measure(&nodes, &queue, (leader + 1) % count, time)?);
        }
    }
    add_hop_figures(figures, size, "at the leader", &here);
    if count > 1 {
        add_hop_figures(figures, size, "at another node", &there);
        let more = median_more(&here, &there, |hop| hop.processor);
        figures.judge(
            format!("{size}: queue, another node, processor more"),
            more,
            "s a million",
            format!("at most {HOP_PROCESSOR_MAX}"),
            more <= HOP_PROCESSOR_MAX,
        );
        let more = median_more(&here, &there, |hop| hop.p50_us);
        figures.add(format!("{size}: queue, another node, p50 more"), more, "us");
    }
    nodes.stop()
}

/// Median difference within the pairs.
fn median_more(here: &[Hop], there: &[Hop], of: impl Fn(&Hop) -> f64) -> f64 {
    let more: Vec<f64> = here.iter().zip(there).map(|(here, there)| of(there) - of(here)).collect();
    median(&more)
}

fn add_hop_figures(figures: &mut Figures, size: &str, place: &str, hops: &[Hop]) {
    let p50_us: Vec<f64> = hops.iter().map(|hop| hop.p50_us).collect();
    figures.add(format!("{size}: queue, {place}, confirmed p50"), median(&p50_us), "us");
    let processor: Vec<f64> = hops.iter().map(|hop| hop.processor).collect();
    let name = format!("{size}: queue, {place}, processor of all nodes");
    figures.add(name, median(&processor), "s a million");
}
