//! `cargo xtask measure produce`: the server's throughput for a client that costs next to nothing.
//!
//! The load tools of the comparison run in a JVM beside the server and, on a small machine, are the bottleneck.
//! This load sends prebuilt batches and leaves nearly all of the machine to the server, so it measures the server's
//! own limit.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::{Connection, SentBatches};
use client::requests::ProduceOutcome;

use super::{PATIENCE, TOPIC, postroad};
use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::records::batch;
use host::probe;
use host::process;

#[derive(Debug, Args)]
pub(crate) struct ProduceOptions {
    /// Partitions, written to in turns
    #[arg(long, default_value_t = 16)]
    partitions: i32,
    /// Records of 1 KB in each request, all for one partition
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Requests under way at once, over one connection
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// How long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const RECORD_BYTES: usize = 1024;
/// Not measured: caches fill and segments are created.
const WARM_UP: Duration = Duration::from_secs(2);

pub(super) fn run(options: &ProduceOptions) -> Outcome {
    let folder = paths::fresh("measure-produce")?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let (server, _) = postroad.start(PATIENCE)?;
    let mut load = Load::new(
        Connection::open(server.address, PATIENCE).context(|| "cannot connect to postroad")?,
        options,
    )?;
    load.run(WARM_UP)?;
    load.latencies.clear();
    let used = process::cpu_seconds(server.pid())?;
    let begun = Instant::now();
    load.run(Duration::try_from_secs_f64(options.seconds).context(|| "--seconds")?)?;
    let elapsed = begun.elapsed().as_secs_f64();
    let used = process::cpu_seconds(server.pid())? - used;
    server.stop(PATIENCE)?;
    paths::fresh("measure-produce")?;

    let records = (load.latencies.len() * options.batch) as f64;
    let latencies = &mut load.latencies;
    latencies.sort_unstable();
    let rate = records / elapsed;
    println!(
        "  {} partitions, {} records a request, {} requests in flight",
        options.partitions, options.batch, options.in_flight
    );
    println!(
        "  {rate:.0} records/s, {:.0} MB/s; acknowledged after p50 {:.0} us, p99 {:.0} us",
        rate * RECORD_BYTES as f64 / 1e6,
        probe::quantile_us(latencies, 0.5),
        probe::quantile_us(latencies, 0.99)
    );
    println!(
        "  server: {:.2} CPU s per million records, {:.2} of a core",
        used / records * 1e6,
        used / elapsed
    );
    Ok(())
}

/// Requests of one batch each, with a fixed number of them in flight.
struct Load {
    connection: Connection,
    batch: Bytes,
    partitions: i32,
    in_flight: usize,
    sent: u64,
    under_way: VecDeque<(SentBatches, Instant)>,
    latencies: Vec<Duration>,
}

impl Load {
    fn new(mut connection: Connection, options: &ProduceOptions) -> Outcome<Self> {
        connection
            .create_topic(TOPIC, options.partitions, &[])
            .context(|| "cannot create the topic")?;
        let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
        Ok(Self {
            connection,
            batch: batch(std::iter::repeat_n(value, options.batch.max(1))),
            partitions: options.partitions,
            in_flight: options.in_flight.max(1),
            sent: 0,
            under_way: VecDeque::new(),
            latencies: Vec::new(),
        })
    }

    fn run(&mut self, time: Duration) -> Outcome {
        let begun = Instant::now();
        while begun.elapsed() < time {
            while self.under_way.len() < self.in_flight {
                let partition = (self.sent % self.partitions as u64) as i32;
                let sent = self
                    .connection
                    .produce(TOPIC, partition, self.batch.clone())
                    .context(|| "postroad does not take the load")?;
                self.under_way.push_back((sent, Instant::now()));
                self.sent += 1;
            }
            self.await_replies()?;
        }
        while !self.under_way.is_empty() {
            self.await_replies()?;
        }
        Ok(())
    }

    fn await_replies(&mut self) -> Outcome {
        let Some((sent, at)) = self.under_way.pop_front() else { return Ok(()) };
        match self.connection.answer(sent).context(|| "postroad does not answer the load")? {
            ProduceOutcome::Acknowledged { .. } => self.latencies.push(at.elapsed()),
            ProduceOutcome::Refused { code } => {
                return Err(Failure::new(format!("a batch was refused with error code {code}")));
            }
        }
        Ok(())
    }
}
