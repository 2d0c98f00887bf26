//! `cargo xtask measure space`: reclaiming of disk space. A queue is settled out of order, partly requeued, and
//! settled to its end at random, while a thousand idle queues each hold a message somewhere in the journal. Each
//! time disk usage must fall to twice the live bytes plus two segments within a minute.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::records::NewRecord;
use client_amqp::Mode;
use client_amqp::blocking::Connection;

use super::load::Load;
use super::{PATIENCE, postroad};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::{Figures, Output};
use crate::paths;
use crate::random::Random;
use crate::server::{self, Postroad};

#[derive(Debug, Args)]
pub(crate) struct SpaceOptions {
    /// Records in the queue that is settled; AMQP gives a consumer 250000 at most
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(2..=250_000))]
    records: u64,
    /// Size of a record's value
    #[arg(long, default_value_t = 1_000)]
    record_bytes: usize,
    /// Records in a batch
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Idle queues, with a message each
    #[arg(long, default_value_t = 1_000)]
    idle_queues: usize,
    /// Size of a journal segment in MiB
    #[arg(long, default_value_t = 16)]
    segment_mib: u64,
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

const FOLDER: &str = "measure-space";
const QUEUE: &str = "space";
/// Parts of the load, between which the idle queues get messages, so that these lie all over the journal.
const PARTS: usize = 50;
const WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);
/// Settles per flush.
const SETTLES: usize = 1_000;

pub(super) fn run(options: &SpaceOptions) -> Outcome {
    let folder = paths::fresh(FOLDER)?;
    let amqp_port = server::free_port()?;
    let mut arguments = vec!["--amqp".to_owned(), format!("127.0.0.1:{amqp_port}")];
    arguments.extend(["--segment-bytes".to_owned(), format!("{}MiB", options.segment_mib)]);
    arguments.extend_from_slice(&options.serve);
    let postroad = postroad(options.bin.as_deref(), &folder, &arguments)?;
    let amqp = ([127, 0, 0, 1], amqp_port).into();
    let figures = measure(options, &postroad, amqp).map_err(|failure| {
        failure.remedy(format!("data and log are kept in {}", folder.display()))
    })?;
    figures.publish(options.output)?;
    paths::fresh(FOLDER).map(drop)
}

fn measure(options: &SpaceOptions, postroad: &Postroad, amqp: SocketAddr) -> Outcome<Figures> {
    let (server, _) = postroad.start(PATIENCE)?;
    let empty = disk_bytes(&postroad.data)?;
    let sent = fill(options, postroad, server.address, amqp)?;
    let mut figures = Figures::new(format!(
        "measure space: {} records of {} bytes, {} idle queues, segments of {} MiB",
        options.records, options.record_bytes, options.idle_queues, options.segment_mib
    ));
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    figures.add("on disk when empty", megabytes(empty), "MB");
    figures.add("on disk when filled", megabytes(disk_bytes(&postroad.data)?), "MB");
    figures.add("live when filled", megabytes(sent.queue + sent.idle), "MB");

    let half = settle_every_other(postroad, amqp, options.records)?;
    let live = sent.queue * half / options.records + sent.idle;
    wait_for_disk_usage(
        options,
        postroad,
        "every other settled, rest requeued",
        live,
        &mut figures,
    )?;

    settle_at_random(postroad, amqp, half)?;
    wait_for_disk_usage(options, postroad, "rest settled at random", sent.idle, &mut figures)?;

    server.kill()?;
    let (server, ready) = postroad.start(PATIENCE)?;
    figures.add("restart to ready", ready.as_secs_f64() * 1e3, "ms");
    let kept = depths(postroad)?;
    let idle = kept.iter().filter(|(name, depth)| name.starts_with("idle-") && *depth == 1).count();
    let (wanted, met) = (options.idle_queues, idle == options.idle_queues);
    figures.judge("idle queues with their message", idle as f64, "", wanted.to_string(), met);
    server.stop(PATIENCE)?;
    Ok(figures)
}

/// Bytes of sent records, as they are stored.
struct SentBytes {
    queue: u64,
    idle: u64,
}

fn fill(
    options: &SpaceOptions,
    postroad: &Postroad,
    kafka: SocketAddr,
    amqp: SocketAddr,
) -> Outcome<SentBytes> {
    postroad.run_command(&["queue", "declare", QUEUE, "--partitions", "1"])?;
    let connection = Connection::open(amqp, PATIENCE, Mode::Confirms);
    let mut connection = connection.context(|| "cannot connect by AMQP")?;
    let names: Vec<String> =
        (0..options.idle_queues).map(|number| format!("idle-{number}")).collect();
    for names in names.chunks(100) {
        connection.declare(names, "classic").context(|| "cannot declare the idle queues")?;
    }
    let value = Bytes::from(vec![b'x'; options.record_bytes]);
    let mut load = Load::new(kafka, QUEUE, 1)?;
    let mut parts = names.chunks(names.len().div_ceil(PARTS).max(1));
    for part in 1..=PARTS as u64 {
        let records = |parts: u64| options.records * parts / PARTS as u64;
        load.fill(records(part) - records(part - 1), options.batch, || NewRecord {
            value: value.clone(),
            ..NewRecord::default()
        })?;
        let names = parts.next().unwrap_or_default();
        connection.publish_to_each(names, &value).context(|| "cannot publish")?;
    }
    connection.close().context(|| "cannot close the publisher")?;
    let each = load.bytes / options.records;
    Ok(SentBytes { queue: load.bytes, idle: each * options.idle_queues as u64 })
}

/// Takes all records, settles every other one and requeues the rest. Returns the number of requeued records.
fn settle_every_other(postroad: &Postroad, amqp: SocketAddr, records: u64) -> Outcome<u64> {
    let (mut connection, tags) = take(amqp, records)?;
    for tags in tags.chunks(SETTLES) {
        tags.iter().step_by(2).for_each(|&tag| connection.ack(tag));
        connection.flush().context(|| "cannot settle")?;
    }
    // Unsettled messages are requeued when the connection closes.
    connection.close().context(|| "cannot close the consumer")?;
    let left = tags.chunks(SETTLES).map(|tags| tags.len() as u64 / 2).sum();
    wait_for_depth(postroad, left).map(|()| left)
}

fn settle_at_random(postroad: &Postroad, amqp: SocketAddr, records: u64) -> Outcome {
    let (mut connection, mut tags) = take(amqp, records)?;
    let mut random = Random::new(1);
    for index in (1..tags.len()).rev() {
        tags.swap(index, random.between(0, index as u64) as usize);
    }
    for tags in tags.chunks(SETTLES) {
        tags.iter().for_each(|&tag| connection.ack(tag));
        connection.flush().context(|| "cannot settle")?;
    }
    connection.close().context(|| "cannot close the consumer")?;
    wait_for_depth(postroad, 0)
}

/// A consumer that holds this number of records, and their delivery tags.
fn take(amqp: SocketAddr, records: u64) -> Outcome<(Connection, Vec<u64>)> {
    let connection = Connection::open(amqp, PATIENCE, Mode::Confirms);
    let mut connection = connection.context(|| "cannot connect by AMQP")?;
    connection.consume(QUEUE, 0).context(|| "cannot consume")?;
    let mut tags = Vec::with_capacity(records as usize);
    while (tags.len() as u64) < records {
        match connection.delivery(Duration::from_secs(30)).context(|| "cannot take records")? {
            Some(delivery) => tags.push(delivery.tag),
            None => {
                return Err(Failure::new(format!(
                    "{QUEUE} gave {} of {records} records, and for 30 s none",
                    tags.len()
                )));
            }
        }
    }
    Ok((connection, tags))
}

fn wait_for_depth(postroad: &Postroad, wanted: u64) -> Outcome {
    let begun = Instant::now();
    loop {
        let depths = depths(postroad)?;
        let depth = depths.iter().find(|(name, _)| name == QUEUE).map(|(_, depth)| *depth);
        if depth == Some(wanted) {
            return Ok(());
        }
        if begun.elapsed() > WITHIN {
            return Err(Failure::new(format!("{QUEUE} has depth {depth:?}, not {wanted}")));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn depths(postroad: &Postroad) -> Outcome<Vec<(String, u64)>> {
    let list = postroad.run_json_command(&["queue", "list"])?;
    let queues = list.as_array().ok_or_else(|| Failure::new("queue list is no list"))?;
    let depth = |queue: &serde_json::Value| {
        Some((queue.get("topic")?.as_str()?.to_owned(), queue.get("depth")?.as_u64()?))
    };
    Ok(queues.iter().filter_map(depth).collect())
}

/// Waits until disk usage is within its limit, and adds the figures.
fn wait_for_disk_usage(
    options: &SpaceOptions,
    postroad: &Postroad,
    what: &str,
    live: u64,
    figures: &mut Figures,
) -> Outcome {
    let bound = 2 * live + 2 * (options.segment_mib << 20);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    eprintln!("  {what}: {:.1} MB live, bound {:.1} MB", megabytes(live), megabytes(bound));
    let begun = Instant::now();
    let first = disk_bytes(&postroad.data)?;
    let mut told = u64::MAX;
    let (now, took) = loop {
        let now = disk_bytes(&postroad.data)?;
        if now != told {
            told = now;
            eprintln!("    {:>4.0?}  {:.1} MB on disk", begun.elapsed(), megabytes(now));
        }
        if now <= bound || begun.elapsed() > WITHIN {
            break (now, begun.elapsed());
        }
        thread::sleep(LOOK);
    };
    figures.add(format!("{what}: live"), megabytes(live), "MB");
    figures.add("  on disk at first", megabytes(first), "MB");
    let target = format!("<= {:.0} MB", megabytes(bound));
    figures.judge(format!("{what}: on disk"), megabytes(now), "MB", target, now <= bound);
    figures.add("  after", took.as_secs_f64(), "s");
    Ok(())
}

/// Allocated bytes of a folder; holes in its files do not count.
fn disk_bytes(folder: &Path) -> Outcome<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for entry in fs::read_dir(folder).context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        // A segment may be deleted between listing and reading its metadata.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += match metadata.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => metadata.blocks() * BLOCK_BYTES,
        };
    }
    Ok(bytes)
}
