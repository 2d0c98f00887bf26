//! `cargo xtask measure idle`: the cost of an idle node with much stored. Many partitions hold records all over the
//! journal; without requests, the node's processor time, memory and snapshots are measured.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::requests::ProduceOutcome;

use super::{PATIENCE, TOPIC, postroad};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::records::batch;
use crate::server::Postroad;
use host::process::{self, Memory};

#[derive(Debug, Args)]
pub(crate) struct IdleOptions {
    /// Partitions, each with records
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    partitions: u32,
    /// Journal segments that their records fill
    #[arg(long, default_value_t = 800)]
    segments: u64,
    /// Size of a journal segment in MiB
    #[arg(long, default_value_t = 1)]
    segment_mib: u64,
    /// Size of a record's value
    #[arg(long, default_value_t = 1_000)]
    record_bytes: usize,
    /// Seconds that it is left alone before it is looked at
    #[arg(long, default_value_t = 75)]
    rest_seconds: u64,
    /// Seconds for which it is looked at
    #[arg(long, default_value_t = 60)]
    seconds: u64,
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

const FOLDER: &str = "measure-idle";
/// Partitions in one request, with a batch for each: some megabytes.
const PARTITIONS_PER_REQUEST: usize = 500;
const CPU_PERCENT_MAX: f64 = 1.0;

pub(super) fn run(options: &IdleOptions) -> Outcome {
    let folder = paths::fresh(FOLDER)?;
    let segment_bytes = format!("{}MiB", options.segment_mib);
    let mut arguments = options.serve.clone();
    arguments.extend(["--segment-bytes".into(), segment_bytes]);
    arguments.extend(["--log".into(), "info,consensus=debug".into()]);
    let postroad = postroad(options.bin.as_deref(), &folder, &arguments)?;
    let figures = measure(options, &postroad).map_err(|failure| {
        failure.remedy(format!("data and log are kept in {}", folder.display()))
    })?;
    figures.publish(options.output)?;
    paths::fresh(FOLDER).map(drop)
}

fn measure(options: &IdleOptions, postroad: &Postroad) -> Outcome<Figures> {
    let (server, _) = postroad.start(PATIENCE)?;
    let mut connection =
        Connection::open(server.address, PATIENCE).context(|| "cannot connect to postroad")?;
    let partitions = i32::try_from(options.partitions).context(|| "--partitions")?;
    connection.create_topic(TOPIC, partitions, &[]).context(|| "cannot create the topic")?;
    drop(connection);
    let wanted = fill(options, server.address)?;
    let segments = segments(&postroad.data)?;
    let mut figures = Figures::new(format!(
        "measure idle: {} partitions with {wanted} records of {} bytes in {segments} segments",
        options.partitions, options.record_bytes
    ));
    let filled = cpu_percent(server.pid(), options)?;
    figures.judge("processor, of one core", filled, "%", "< 1", filled < CPU_PERCENT_MAX);
    let resident = process::memory_bytes(server.pid(), Memory::Resident)?;
    figures.add("resident", resident as f64 / 1e6, "MB");
    server.kill()?;

    let (server, ready) = postroad.start(PATIENCE)?;
    figures.add("restart to ready", ready.as_secs_f64() * 1e3, "ms");
    let again = cpu_percent(server.pid(), options)?;
    let met = again < CPU_PERCENT_MAX;
    figures.judge("processor after the restart, of one core", again, "%", "< 1", met);
    let resident = process::memory_bytes(server.pid(), Memory::Resident)?;
    figures.add("resident after the restart", resident as f64 / 1e6, "MB");
    server.stop(PATIENCE)?;

    figures.add("newest snapshot", newest_snapshot(&postroad.data)? as f64 / 1e6, "MB");
    if let Some((fixed_ms, written_ms)) = last_snapshot(&postroad.log)? {
        figures.add("  fixed in, while nothing is applied", fixed_ms, "ms");
        figures.add("  written in", written_ms, "ms");
    }
    Ok(figures)
}

/// Fills the segments with a record for each partition in turn. Returns the number of records.
fn fill(options: &IdleOptions, address: SocketAddr) -> Outcome<u64> {
    let mut connection =
        Connection::open(address, PATIENCE).context(|| "cannot connect to postroad")?;
    let value = Bytes::from(vec![b'x'; options.record_bytes]);
    let bytes = options.segments * (options.segment_mib << 20);
    let each = batch([value.clone()].into_iter()).len() as u64;
    let rounds = (bytes / each).div_ceil(u64::from(options.partitions)).max(1);
    let begun = Instant::now();
    for round in 1..=rounds {
        for first in (0..options.partitions).step_by(PARTITIONS_PER_REQUEST) {
            let until = options.partitions.min(first + PARTITIONS_PER_REQUEST as u32);
            // A new timestamp, so that retention does not treat the records as old.
            let batches = (first..until)
                .map(|partition| (partition as i32, batch([value.clone()].into_iter())));
            let sent = connection.produce_each(TOPIC, batches.collect());
            let sent = sent.context(|| "postroad does not take the load")?;
            let answers = connection.answers(sent);
            let answers = answers.context(|| "postroad does not answer the load")?;
            if let Some(refused) =
                answers.iter().find(|it| matches!(it, ProduceOutcome::Refused { .. }))
            {
                return Err(Failure::new(format!("a batch is {refused:?}")));
            }
        }
        eprintln!("  {round} of {rounds} records in each after {:.0?}", begun.elapsed());
    }
    Ok(rounds * u64::from(options.partitions))
}

/// Processor load of the server, after a rest.
fn cpu_percent(pid: u32, options: &IdleOptions) -> Outcome<f64> {
    thread::sleep(Duration::from_secs(options.rest_seconds));
    let (begun, before) = (Instant::now(), process::cpu_seconds(pid)?);
    thread::sleep(Duration::from_secs(options.seconds.max(1)));
    let used = process::cpu_seconds(pid)? - before;
    Ok(used / begun.elapsed().as_secs_f64() * 100.0)
}

/// Files of the journal.
fn files(data: &Path) -> Outcome<Vec<PathBuf>> {
    let folder = data.join("shard-1");
    let entries = fs::read_dir(&folder).context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn segments(data: &Path) -> Outcome<usize> {
    let segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    Ok(files(data)?.iter().filter(|path| segment(path)).count())
}

fn newest_snapshot(data: &Path) -> Outcome<u64> {
    let name = |path: &PathBuf| path.file_name().map(|it| it.to_string_lossy().into_owned());
    let snapshot = |path: &PathBuf| name(path).is_some_and(|it| it.starts_with("snapshot-"));
    let newest = files(data)?.into_iter().filter(snapshot).max();
    let newest = newest.ok_or_else(|| Failure::new("there is no snapshot"))?;
    Ok(newest.metadata().context(|| format!("cannot look at {}", newest.display()))?.len())
}

/// Milliseconds for fixing and writing the last snapshot, from the log.
fn last_snapshot(log: &Path) -> Outcome<Option<(f64, f64)>> {
    let text = fs::read(log).context(|| format!("cannot read {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| line.contains("snapshot taken"));
    Ok(line.and_then(|line| Some((field(line, "fixed_ms")?, field(line, "written_ms")?))))
}

/// A number in a log line, such as `name=12`.
fn field(line: &str, name: &str) -> Option<f64> {
    let (_, rest) = line.split_once(&format!("{name}="))?;
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_parsed_from_a_log_line() {
        let line = "DEBUG snapshot taken index=7 bytes=12 fixed_ms=34 written_ms=56";
        assert_eq!(field(line, "fixed_ms"), Some(34.0));
        assert_eq!(field(line, "written_ms"), Some(56.0));
        assert_eq!(field(line, "read_ms"), None);
    }
}
