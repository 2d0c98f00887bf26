//! `postroad consume`: records to a pipe.
//!
//! A task for each leader fetches, and sends whole responses to one thread, which writes them out. Few responses wait
//! between them. With `--group` it is a proper member of that group, by the classic protocol: several such members and
//! other clients share the partitions. Offsets are committed for written records, every second and at the end:
//! at-least-once delivery.

mod alone;
mod member;
mod printer;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use client::fetcher::{Delivery, Span, read};
use client::{Client, ClientError, TopicPartition};
use operations::position::Position;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::produce::separator;
use super::record_line::LineFormat;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::OutputFormat;
use crate::progress::Progress;

use printer::{PrintProgress, Printer};
const DELIVERIES_WAITING: usize = 4;

/// Print the records of topics, one a line
#[derive(Args, Debug)]
pub struct ConsumeArguments {
    #[command(flatten)]
    client: ClientOptions,
    /// Topics to read
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Wait for new records instead of ending at the last one
    #[arg(short, long)]
    follow: bool,
    /// Where to begin: earliest, latest, an offset, -100 (the last 100 of each partition), or a
    /// time such as '15m ago'; with --group only where the group has committed nothing
    /// [default: earliest]
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    from: Option<Position>,
    /// End after so many records
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Only this partition; may be repeated
    #[arg(short, long, value_name = "N", conflicts_with = "group",
          value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Be a member of this group: share partitions with its other members, go on where it was, and
    /// commit what was printed
    #[arg(short, long)]
    group: Option<String>,
    /// Form of the lines
    #[arg(long, value_enum, default_value = "lines")]
    format: PrintFormat,
    /// Print the key too, and this between key and value
    #[arg(short = 's', long, value_name = "TEXT", value_parser = separator)]
    key_separator: Option<String>,
    /// Print the headers too, as NAME=VALUE,... and a tab
    #[arg(short = 'H', long)]
    headers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PrintFormat {
    /// A value a line.
    Lines,
    /// A JSON object a line, which holds everything; the same as --output json.
    Json,
}

impl ConsumeArguments {
    fn line_format(&self) -> Result<LineFormat, CommandError> {
        let json = self.format == PrintFormat::Json || self.client.output() == OutputFormat::Json;
        if json && (self.key_separator.is_some() || self.headers) {
            let hint = "--key-separator and --headers are for plain lines: JSON has both anyway";
            return Err(CommandError::user(hint));
        }
        Ok(match json {
            true => LineFormat::Json,
            false => LineFormat::Plain {
                key_separator: self.key_separator.clone(),
                headers: self.headers,
            },
        })
    }
}

pub(crate) async fn run(arguments: ConsumeArguments) -> Result<(), CommandError> {
    let format = arguments.line_format()?;
    let client = Arc::new(arguments.client.connect().await?);
    let (deliveries, to_print) = mpsc::channel(DELIVERIES_WAITING);
    let printed = Arc::new(PrintProgress::default());
    let (ended, end) = oneshot::channel();
    let is_terminal = io::stdout().is_terminal();
    let printer = Printer::new(format, is_terminal, arguments.count, printed.clone());
    std::thread::spawn(move || ended.send(printer.run(to_print)));

    let mut consumption = Consumption {
        client,
        arguments,
        deliveries: Some(deliveries),
        printed,
        readers: JoinSet::new(),
        end,
        ended: None,
        signals: Signals::new()?,
        progress: Progress::new(is_terminal),
    };
    let outcome = match consumption.arguments.group.clone() {
        None => consumption.alone().await,
        Some(group) => consumption.in_group(&group).await,
    };
    let totals = &consumption.printed;
    let (records, bytes) =
        (totals.records.load(Ordering::Relaxed), totals.bytes.load(Ordering::Relaxed));
    consumption.progress.finish("consumed", records, bytes);
    outcome
}

/// Ctrl-C and SIGTERM, both of which end it in order.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, CommandError> {
        let listen = |kind| {
            signal(kind).map_err(|e| CommandError::server(format!("cannot wait for signals: {e}")))
        };
        let (interrupt, terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Reason why reading stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopReason {
    /// Everything requested is read.
    Read,
    /// Enough is printed, or the output is closed.
    Printed,
    Interrupted,
    /// The group rebalances.
    Rebalancing,
}

struct Consumption {
    client: Arc<Client>,
    arguments: ConsumeArguments,
    /// `None` once the printer's input is closed.
    deliveries: Option<mpsc::Sender<Delivery>>,
    printed: Arc<PrintProgress>,
    readers: JoinSet<Result<(), ClientError>>,
    end: oneshot::Receiver<Result<(), CommandError>>,
    /// The printer's result.
    ended: Option<Result<(), CommandError>>,
    signals: Signals,
    progress: Progress,
}

impl Consumption {
    /// Starts reading. Without `--follow`, each partition is read up to its current end.
    async fn start(&mut self, from: Vec<(TopicPartition, u64)>) -> Result<(), CommandError> {
        let mut topics: Vec<&str> = from.iter().map(|(partition, _)| &*partition.topic).collect();
        topics.dedup();
        let metadata = self.client.metadata(Some(&topics)).await?;
        let partitions: Vec<_> = from.iter().map(|(partition, _)| partition.clone()).collect();
        let ends = match self.arguments.follow {
            true => BTreeMap::new(),
            false => self.client.bounds(&metadata, &partitions).await?,
        };
        let spans = from.into_iter().map(|(partition, from)| {
            let until = ends.get(&partition).map(|bounds| bounds.end);
            (partition, Span { from, until })
        });
        let Some(deliveries) = &self.deliveries else { return Ok(()) };
        for (_, spans) in self.client.by_leader(&metadata, spans).await? {
            self.readers.spawn(read(self.client.clone(), spans, deliveries.clone()));
        }
        Ok(())
    }

    fn show_progress(&mut self) {
        let records = self.printed.records.load(Ordering::Relaxed);
        self.progress.show(records, self.printed.bytes.load(Ordering::Relaxed), None);
    }

    /// Waits until everything read is written out. A second signal ends the wait.
    async fn finish_printing(&mut self) -> Result<(), CommandError> {
        self.deliveries = None;
        if let Some(ended) = self.ended.take() {
            return ended;
        }
        tokio::select! {
            ended = &mut self.end => ended.unwrap_or(Ok(())),
            () = self.signals.received() => Ok(()),
        }
    }
}

async fn reading_ends(
    readers: &mut JoinSet<Result<(), ClientError>>,
) -> Result<StopReason, ClientError> {
    while let Some(reader) = readers.join_next().await {
        reader.expect("a reader does not panic")?;
    }
    Ok(StopReason::Read)
}
