//! `cargo xtask measure waiting`: memory of a record that waits in a queue. It is measured in steps, which
//! separates growth with the backlog from caches that fill once.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::records::NewRecord;

use super::load::Load;
use super::{PATIENCE, postroad};
use crate::failure::{Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::server::{Postroad, Server};
use host::process::{self, Memory};

#[derive(Debug, Args)]
pub(crate) struct WaitingOptions {
    /// Records
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Size of a record's value
    #[arg(long, default_value_t = 100)]
    record_bytes: usize,
    /// Records in a batch
    #[arg(long, default_value_t = 10)]
    batch: usize,
    /// Partitions of the topic
    #[arg(long, default_value_t = 8)]
    partitions: u32,
    /// Memory is looked at so often while they are stored
    #[arg(long, default_value_t = 4)]
    steps: u64,
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

const FOLDER: &str = "measure-waiting";
const QUEUE: &str = "waiting";
/// Memory limit of a record: a node of 24 GB holds 100 million records, with room to spare.
const BYTES_EACH_MAX: f64 = 120.0;

pub(super) fn run(options: &WaitingOptions) -> Outcome {
    let folder = paths::fresh(FOLDER)?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let figures = measure(options, &postroad).map_err(|failure| {
        failure.remedy(format!("data and log are kept in {}", folder.display()))
    })?;
    figures.publish(options.output)?;
    paths::fresh(FOLDER).map(drop)
}

fn measure(options: &WaitingOptions, postroad: &Postroad) -> Outcome<Figures> {
    let (server, _) = postroad.start(PATIENCE)?;
    let partitions = options.partitions.to_string();
    postroad.run_command(&["queue", "declare", QUEUE, "--partitions", &partitions])?;
    let idle = resident(&server)?;
    let mut load = Load::new(server.address, QUEUE, options.partitions)?;
    let value = Bytes::from(vec![b'x'; options.record_bytes]);
    let steps = options.steps.max(1);
    // Number of stored records, with the memory at that point.
    let mut course = vec![(0, idle)];
    for step in 1..=steps {
        let stored = course.last().map_or(0, |&(records, _)| records);
        let wanted = options.records * step / steps;
        load.fill(wanted - stored, options.batch, || NewRecord {
            value: value.clone(),
            ..NewRecord::default()
        })?;
        let resident = resident(&server)?;
        eprintln!("  {wanted} records wait, {:.1} MB resident", resident as f64 / 1e6);
        course.push((wanted, resident));
    }
    let waits = depth(postroad)?;
    server.kill()?;
    let begun = Instant::now();
    let (server, _) = postroad.start(PATIENCE)?;
    let ready = begun.elapsed();
    let restarted = resident(&server)?;
    let still_waits = depth(postroad)?;
    server.stop(PATIENCE)?;
    for (when, waits) in [("", waits), (" after a restart", still_waits)] {
        if waits != options.records {
            return Err(Failure::new(format!(
                "{} records were stored, and {waits} wait{when}",
                options.records
            )));
        }
    }
    let mut figures = Figures::new(format!(
        "measure waiting: {} records of {} bytes, {} in a batch, nobody consumes",
        options.records, options.record_bytes, options.batch
    ));
    for (records, resident) in &course {
        figures.add(format!("resident with {records} records"), *resident as f64 / 1e6, "MB");
    }
    let each = growth(&course);
    let met = each <= BYTES_EACH_MAX;
    figures.judge("per record, over the second half", each, "bytes", "<= 120", met);
    figures.add("so of 100,000,000 records", each * 1e8 / 1e6, "MB");
    figures.add("restart to ready", ready.as_secs_f64() * 1e3, "ms");
    figures.add("resident after the restart", restarted as f64 / 1e6, "MB");
    Ok(figures)
}

/// Bytes per record, between the middle and the end of the course: caches are full by then.
fn growth(course: &[(u64, u64)]) -> f64 {
    let (Some(&(records, resident)), Some(&(half, resident_half))) =
        (course.last(), course.get(course.len() / 2))
    else {
        return f64::NAN;
    };
    (resident as f64 - resident_half as f64) / records.saturating_sub(half).max(1) as f64
}

/// Resident memory of the server after a moment without load.
fn resident(server: &Server) -> Outcome<u64> {
    thread::sleep(Duration::from_secs(2));
    Ok(process::memory_bytes(server.pid(), Memory::Resident)?)
}

fn depth(postroad: &Postroad) -> Outcome<u64> {
    let list = postroad.run_json_command(&["queue", "list", QUEUE])?;
    let depth = list.get(0).and_then(|queue| queue.get("depth")?.as_u64());
    depth.ok_or_else(|| Failure::new(format!("queue list has no depth: {list}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_measured_over_the_second_half() {
        let course = [(0, 10), (50, 1_000), (100, 1_200), (150, 1_300), (200, 1_400)];
        assert_eq!(growth(&course), 2.0);
    }
}
