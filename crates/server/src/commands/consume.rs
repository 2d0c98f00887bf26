//! `postroad consume`: records to a pipe.
//!
//! A task for each leader fetches and hands whole answers to one thread, which writes them out; at
//! most a few answers wait between them. With `--group` it is a proper member of that group, by the
//! classic protocol: several of them, or other clients, share the partitions. Offsets are committed
//! for what was written out, every second and at the end: at least once.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use record::Batch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::interval;

use super::produce::separator;
use super::{ClientOptions, CommandError};
use crate::output::OutputFormat;
use crate::position::{Position, locate};
use crate::progress::{self, Progress};
use crate::record_line::LineFormat;
use client::cluster::Metadata;
use client::fetcher::{Delivery, Gone, Span, Stretch, read};
use client::member::{HEARTBEAT_EVERY, Membership, Standing};
use client::{Client, ClientError, TopicPartition};

const DELIVERIES_WAITING: usize = 4;
const OUTPUT_BYTES: usize = 256 << 10;
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// Print the records of topics, one a line
#[derive(Args, Debug)]
pub(crate) struct ConsumeArguments {
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
    let printed = Arc::new(Printed::default());
    let (ended, end) = oneshot::channel();
    let printer = Printer::new(format, arguments.count, printed.clone());
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
        progress: Progress::new(io::stdout().is_terminal()),
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

/// Ctrl-C and SIGTERM, either of which ends it in order.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
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

/// Why reading stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// Everything that was asked for has been read.
    Read,
    /// Enough was printed, or nobody reads it any more.
    Printed,
    Interrupted,
    /// The group deals its partitions out anew.
    Rebalancing,
}

struct Consumption {
    client: Arc<Client>,
    arguments: ConsumeArguments,
    /// `None` once the printer was told that no more comes.
    deliveries: Option<mpsc::Sender<Delivery>>,
    printed: Arc<Printed>,
    readers: JoinSet<Result<(), ClientError>>,
    end: oneshot::Receiver<Result<(), CommandError>>,
    /// What the printer said when it ended.
    ended: Option<Result<(), CommandError>>,
    signals: Signals,
    progress: Progress,
}

impl Consumption {
    // ------------------------------------------------------------------------------ no group

    async fn alone(&mut self) -> Result<(), CommandError> {
        let mut partitions = Vec::new();
        for topic in self.arguments.topics.clone() {
            let metadata = self.client.topic(&topic).await?;
            let wanted = self.wanted(&metadata, &topic)?;
            let from = self.arguments.from.unwrap_or(Position::Earliest);
            let from = locate(&self.client, &metadata, &wanted, from).await?;
            partitions.extend(from);
        }
        self.start(partitions).await?;
        let mut ticks = interval(progress::EVERY);
        let ending = loop {
            tokio::select! {
                ending = reading_ends(&mut self.readers) => break ending,
                ended = &mut self.end, if self.ended.is_none() => {
                    self.ended = Some(ended.unwrap_or(Ok(())));
                    break Ok(Ending::Printed);
                }
                () = self.signals.received() => break Ok(Ending::Interrupted),
                _ = ticks.tick() => self.show_progress(),
            }
        };
        self.readers.shutdown().await;
        let printed = self.finish_printing().await;
        ending?;
        printed
    }

    fn wanted(&self, metadata: &Metadata, topic: &str) -> Result<Vec<TopicPartition>, ClientError> {
        let all = metadata.partitions(topic);
        if self.arguments.partition.is_empty() {
            return Ok(all);
        }
        let mut wanted = Vec::new();
        for &partition in &self.arguments.partition {
            let found = all.get(partition as usize).cloned();
            wanted.push(found.ok_or_else(|| ClientError::NoSuchPartition {
                topic: topic.to_owned(),
                partition,
                partitions: all.len(),
            })?);
        }
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted)
    }

    /// Starts reading. Unless it follows, each partition is read to where it ends now.
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

    /// Waits until everything that was read is written out; a second signal waits no longer.
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

    // --------------------------------------------------------------------------- in a group

    async fn in_group(&mut self, group: &str) -> Result<(), CommandError> {
        for topic in &self.arguments.topics {
            self.client.topic(topic).await?;
        }
        let topics = self.arguments.topics.clone();
        let mut membership = Membership::new(self.client.clone(), group, &topics);
        let outcome = self.as_member(group, &mut membership).await;
        // Whatever happened: what was printed is committed, and the others need not wait for us.
        let printed = self.finish_printing().await;
        let committed = membership.commit(&self.printed.positions()).await;
        let left = membership.leave().await;
        outcome?;
        printed?;
        if committed? == Standing::Rebalancing {
            eprintln!(
                "postroad: the last offsets could not be committed; the group will read some \
                 records again"
            );
        }
        // Without a good-bye the session times out: that is only slower.
        let _ = left;
        Ok(())
    }

    /// Ends when everything was read, when enough was printed, or by a signal.
    async fn as_member(
        &mut self,
        group: &str,
        membership: &mut Membership,
    ) -> Result<(), CommandError> {
        loop {
            let partitions = tokio::select! {
                joined = membership.join() => joined?,
                () = self.signals.received() => return Ok(()),
            };
            let from = self.positions_of_group(group, partitions).await?;
            // Committed as it stands, even where there is nothing to read: otherwise what comes
            // later would be behind nobody.
            self.printed.begin(&from);
            self.start(from).await?;
            let ending = self.until_group_or_reading_ends(membership).await;
            self.readers.shutdown().await;
            if ending? != Ending::Rebalancing {
                return Ok(());
            }
            // What was read is this member's until it joins again: print it, commit it, forget it.
            self.barrier().await;
            membership.commit(&self.printed.positions()).await?;
            self.printed.forget();
        }
    }

    /// Where the group has committed, else where it was told to begin.
    async fn positions_of_group(
        &self,
        group: &str,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, u64)>, CommandError> {
        let committed = self.client.committed(group).await?;
        let (known, unknown): (Vec<_>, Vec<_>) =
            partitions.into_iter().partition(|partition| committed.contains_key(partition));
        let mut from: Vec<_> = known
            .into_iter()
            .map(|partition| {
                let offset = committed[&partition];
                (partition, offset)
            })
            .collect();
        if !unknown.is_empty() {
            let mut topics: Vec<&str> = unknown.iter().map(|partition| &*partition.topic).collect();
            topics.dedup();
            let metadata = self.client.metadata(Some(&topics)).await?;
            let start = self.arguments.from.unwrap_or(Position::Earliest);
            from.extend(locate(&self.client, &metadata, &unknown, start).await?);
        }
        from.sort_unstable();
        Ok(from)
    }

    async fn until_group_or_reading_ends(
        &mut self,
        membership: &Membership,
    ) -> Result<Ending, CommandError> {
        let mut heartbeats = interval(HEARTBEAT_EVERY);
        let mut commits = interval(COMMIT_EVERY);
        let mut ticks = interval(progress::EVERY);
        let mut committed = BTreeMap::new();
        loop {
            tokio::select! {
                // A member without partitions has nothing to read, and waits for some.
                ending = reading_ends(&mut self.readers),
                    if !self.readers.is_empty() || !self.arguments.follow => return Ok(ending?),
                ended = &mut self.end, if self.ended.is_none() => {
                    self.ended = Some(ended.unwrap_or(Ok(())));
                    return Ok(Ending::Printed);
                }
                () = self.signals.received() => return Ok(Ending::Interrupted),
                _ = heartbeats.tick() => {
                    if membership.heartbeat().await? == Standing::Rebalancing {
                        return Ok(Ending::Rebalancing);
                    }
                }
                _ = commits.tick() => {
                    let positions = self.printed.positions();
                    if positions != committed {
                        if membership.commit(&positions).await? == Standing::Rebalancing {
                            return Ok(Ending::Rebalancing);
                        }
                        committed = positions;
                    }
                }
                _ = ticks.tick() => self.show_progress(),
            }
        }
    }

    /// Waits until everything that was read so far is written out.
    async fn barrier(&mut self) {
        let (passed, pass) = oneshot::channel();
        if let Some(deliveries) = &self.deliveries
            && deliveries.send(Delivery::Barrier(passed)).await.is_ok()
        {
            // Without an answer the printer has ended: nothing is left to wait for.
            let _ = pass.await;
        }
    }
}

async fn reading_ends(
    readers: &mut JoinSet<Result<(), ClientError>>,
) -> Result<Ending, ClientError> {
    while let Some(reader) = readers.join_next().await {
        reader.expect("a reader does not panic")?;
    }
    Ok(Ending::Read)
}

// ------------------------------------------------------------------------------------- printing

/// How far printing has come.
#[derive(Debug, Default)]
struct Printed {
    records: AtomicU64,
    bytes: AtomicU64,
    /// The offset after the last record of each partition that was written out.
    positions: Mutex<BTreeMap<TopicPartition, u64>>,
}

impl Printed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, u64>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn positions(&self) -> BTreeMap<TopicPartition, u64> {
        self.lock().clone()
    }

    fn begin(&self, from: &[(TopicPartition, u64)]) {
        self.lock().extend(from.iter().cloned());
    }

    fn forget(&self) {
        self.lock().clear();
    }
}

/// Writes records to standard output.
struct Printer {
    format: LineFormat,
    left: Option<u64>,
    printed: Arc<Printed>,
    out: Vec<u8>,
    /// Written to `out` but not out yet.
    pending: BTreeMap<TopicPartition, u64>,
}

impl Printer {
    fn new(format: LineFormat, left: Option<u64>, printed: Arc<Printed>) -> Self {
        let out = Vec::with_capacity(OUTPUT_BYTES + (64 << 10));
        Self { format, left, printed, out, pending: BTreeMap::new() }
    }

    /// Ends when no more deliveries come, or when enough was printed.
    fn run(mut self, mut deliveries: mpsc::Receiver<Delivery>) -> Result<(), CommandError> {
        loop {
            let delivery = match deliveries.try_recv() {
                Ok(delivery) => delivery,
                Err(_) => {
                    // Nothing waits: what there is goes out before the next is waited for.
                    self.flush()?;
                    match deliveries.blocking_recv() {
                        Some(delivery) => delivery,
                        None => return Ok(()),
                    }
                }
            };
            match delivery {
                Delivery::Stretch(stretch) => self.print(&stretch)?,
                Delivery::Gone(Gone { partition, from, until }) => eprintln!(
                    "postroad: records {from} to {} of {partition} are gone (retention); going on \
                     at {until}",
                    until - 1
                ),
                Delivery::Barrier(passed) => {
                    self.flush()?;
                    // Who waited may have been interrupted.
                    let _ = passed.send(());
                }
            }
            if self.left == Some(0) {
                return self.flush();
            }
        }
    }

    fn print(&mut self, stretch: &Stretch) -> Result<(), CommandError> {
        let place = &stretch.partition;
        let corrupt = |offset: u64, error: record::BatchError| {
            CommandError::server(format!("the batch of {place} at offset {offset}: {error}"))
        };
        let mut next = stretch.offset;
        for (header, range) in record::split(&stretch.records).map_while(Result::ok) {
            let batch = &stretch.records[range];
            record::verify_checksum(batch).map_err(|e| corrupt(header.base_offset, e))?;
            // Marks of transactions are no records.
            if !header.attributes.is_control() {
                let batch = Batch::decode(batch).map_err(|e| corrupt(header.base_offset, e))?;
                for record in batch.records() {
                    let record = record.map_err(|e| corrupt(header.base_offset, e))?;
                    if record.offset < stretch.offset {
                        continue;
                    }
                    if stretch.until.is_some_and(|until| record.offset >= until)
                        || self.left == Some(0)
                    {
                        self.pending.insert(place.clone(), next);
                        return Ok(());
                    }
                    self.format.write(&mut self.out, &place.topic, place.partition, &record);
                    next = record.offset + 1;
                    self.left = self.left.map(|left| left - 1);
                    self.printed.records.fetch_add(1, Ordering::Relaxed);
                    if self.out.len() >= OUTPUT_BYTES {
                        self.write_out()?;
                    }
                }
            }
            if self.left != Some(0) {
                next = next.max(header.base_offset + header.last_offset_delta as u64 + 1);
            }
        }
        self.pending.insert(place.clone(), next);
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        io::stdout().lock().write_all(&self.out)?;
        self.printed.bytes.fetch_add(self.out.len() as u64, Ordering::Relaxed);
        self.out.clear();
        Ok(())
    }

    /// After this all that was printed has left the process, and may be committed.
    fn flush(&mut self) -> Result<(), CommandError> {
        self.write_out()?;
        io::stdout().lock().flush()?;
        self.printed.lock().append(&mut self.pending);
        Ok(())
    }
}
