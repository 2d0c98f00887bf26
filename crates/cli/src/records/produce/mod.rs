//! `postroad produce`: records from a pipe.
//!
//! Three stages, each on its own thread or tasks: reading blocks of input, parsing them into batches, sending. A batch
//! is closed when it is full or has waited a moment, so that a slow pipe is sent at once and a fast one in large
//! batches.

mod batcher;
mod input;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use clap::{Args, ValueEnum};
use client::producer::{self, Identity, ProducerCounters, send};
use record::Compression;
use serde::Serialize;
use tokio::sync::mpsc;
use world::Instant;

use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::OutputFormat;
use crate::printable;
use crate::progress::{self, Progress};
use crate::topics::name_value;

use batcher::Batcher;
use input::{InputError, input_bytes, read_blocks};

const BLOCKS_QUEUED: usize = 8;
const BATCHES_QUEUED: usize = 16;
/// Retries that last this long are reported, and again at intervals.
const SAYS_WHY_AFTER: Duration = Duration::from_secs(1);
const SAYS_WHY_EVERY: Duration = Duration::from_secs(10);

/// Append records to a topic, one for each line of standard input
#[derive(Args, Debug)]
pub struct ProduceArguments {
    #[command(flatten)]
    client: ClientOptions,
    /// Topic to append to
    topic: String,
    /// Form of the lines
    #[arg(short, long, value_enum, default_value = "lines")]
    format: InputFormat,
    /// Separator of key and value in plain lines; without it a line is a value
    #[arg(short = 's', long, value_name = "TEXT", value_parser = separator)]
    key_separator: Option<String>,
    /// Key of every record that has none of its own
    #[arg(short, long)]
    key: Option<String>,
    /// Header of every record; may be repeated
    #[arg(short = 'H', long, value_name = "NAME=VALUE", value_parser = name_value)]
    header: Vec<(String, String)>,
    /// Partition of every record [default: by key, else in turns]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Put each record into the partition that its JSON line names
    #[arg(long, conflicts_with = "partition")]
    keep_partitions: bool,
    /// How batches are compressed: none, gzip, snappy, lz4, zstd
    #[arg(short = 'z', long, value_name = "CODEC", default_value = "none")]
    compression: Compression,
    /// Replicas that must have a record before it counts as sent
    #[arg(long, value_enum, default_value = "all")]
    acks: Acks,
}

/// Acknowledgement that counts a record as sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Acks {
    /// None: the broker does not reply.
    #[value(name = "0")]
    None,
    /// The leader.
    #[value(name = "1")]
    Leader,
    /// All replicas in sync.
    All,
}

impl From<Acks> for producer::Acks {
    fn from(acks: Acks) -> Self {
        match acks {
            Acks::None => producer::Acks::None,
            Acks::Leader => producer::Acks::Leader,
            Acks::All => producer::Acks::All,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum InputFormat {
    /// A line is a value, or with --key-separator a key and a value.
    Lines,
    /// A line is a JSON object: key, value, headers, timestamp_ms.
    Json,
}

pub(crate) fn separator(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it must not be empty".into()),
        "\\t" => Ok("\t".into()),
        text => Ok(text.into()),
    }
}

#[derive(Serialize)]
struct ProduceSummary<'a> {
    topic: &'a str,
    records: u64,
    /// Size of the sent batches, after compression.
    bytes: u64,
    seconds: f64,
}

pub(crate) async fn run(arguments: ProduceArguments) -> Result<(), CommandError> {
    if arguments.format == InputFormat::Json && arguments.key_separator.is_some() {
        return Err(CommandError::user("--key-separator is for plain lines: JSON names its key"));
    }
    if arguments.format == InputFormat::Lines && arguments.keep_partitions {
        return Err(CommandError::user("--keep-partitions is for --format json"));
    }
    let client = Arc::new(arguments.client.connect().await?);
    let metadata = client.topic(&arguments.topic).await?;
    let partitions = metadata.partitions(&arguments.topic).len() as i32;
    if let Some(partition) = arguments.partition.filter(|partition| *partition >= partitions) {
        let topic = arguments.topic.clone();
        let partitions = partitions as usize;
        let error = client::ClientError::NoSuchPartition { topic, partition, partitions };
        return Err(error.into());
    }
    // With a producer id the broker deduplicates retried batches.
    let identity = match arguments.acks {
        Acks::All => client.producer_identity().await?,
        _ => Identity::NONE,
    };
    let (batches, to_send) = mpsc::channel(BATCHES_QUEUED);
    let (blocks, to_parse) = blocking::sync_channel(BLOCKS_QUEUED);
    let total = input_bytes();
    let read = Arc::new(AtomicU64::new(0));
    let counted = read.clone();
    std::thread::spawn(move || read_blocks(&blocks, &counted));
    let topic: Arc<str> = arguments.topic.as_str().into();
    let (acks, output) = (arguments.acks, arguments.client.output());
    let batcher = Batcher::new(arguments, partitions, identity, batches);
    let (parsed, parsing) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || parsed.send(batcher.run(&to_parse)));

    let sent = Arc::new(ProducerCounters::default());
    let mut progress = Progress::new(false);
    let sending = send(client, topic.clone(), acks.into(), to_send, sent.clone());
    let outcome = {
        let mut sending = std::pin::pin!(sending);
        let mut tick = tokio::time::interval(progress::EVERY);
        let mut said: Option<Instant> = None;
        loop {
            tokio::select! {
                outcome = &mut sending => break outcome,
                _ = tick.tick() => {
                    let done = read.load(Ordering::Relaxed) as f64;
                    let share = total.map(|total| (done / total as f64).min(1.0));
                    let (records, bytes) = totals(&sent);
                    progress.show(records, bytes, share);
                    let is_due = said.is_none_or(|at| at.elapsed() >= SAYS_WHY_EVERY);
                    if let Some(why) = sent.waits_for(SAYS_WHY_AFTER).filter(|_| is_due) {
                        progress.clear();
                        eprintln!("postroad: waiting to send again: {}", printable::text(&why));
                        said = Some(Instant::now());
                    }
                }
            }
        }
    };
    let (records, bytes) = totals(&sent);
    progress.finish("produced", records, bytes);
    outcome?;
    match parsing.await {
        Ok(Err(error @ InputError::Unreadable(_))) => return Err(CommandError::server(error)),
        Ok(Err(error)) => return Err(CommandError::user(error)),
        // Without a result, sending failed first and was reported above.
        Ok(Ok(())) | Err(_) => {}
    }
    if output == OutputFormat::Json {
        let seconds = progress.elapsed().as_secs_f64();
        output
            .show(&ProduceSummary { topic: &topic, records, bytes, seconds }, |_| String::new())?;
    }
    Ok(())
}

fn totals(sent: &ProducerCounters) -> (u64, u64) {
    (sent.records.load(Ordering::Relaxed), sent.bytes.load(Ordering::Relaxed))
}
