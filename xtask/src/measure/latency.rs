//! `cargo xtask measure latency`: one record at a time, from its sending to its reading, by a client
//! that costs next to nothing.
//!
//! Does what Kafka's end-to-end latency tool does (send, wait for the acknowledgement, wait until
//! a consumer has it) without that tool's virtual machine, so that the two can be told apart.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::requests::Answer;

use super::{PATIENCE, TOPIC, postroad};
use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::records::batch;
use host::probe;

#[derive(Debug, Args)]
pub(crate) struct LatencyOptions {
    /// Records to time, after a tenth as many that are not
    #[arg(long, default_value_t = 20_000)]
    records: usize,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const RECORD_BYTES: usize = 1024;

pub(super) fn run(options: &LatencyOptions) -> Outcome {
    let folder = paths::fresh("measure-latency")?;
    let machine = probe::machine(&folder, Duration::from_secs(2))?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let (server, _) = postroad.start(PATIENCE)?;
    let connect = || Connection::open(server.address, PATIENCE).context(|| "cannot connect");
    let mut producer = connect()?;
    producer.create_topic(TOPIC, 1, &[]).context(|| "cannot create the topic")?;
    let warm_up = options.records / 10;
    let total = warm_up + options.records;
    let read = consume(connect()?, total as i64);

    let batch = batch(std::iter::once(Bytes::from(vec![b'x'; RECORD_BYTES])));
    let (mut acknowledged, mut consumed) = (Vec::with_capacity(total), Vec::with_capacity(total));
    for _ in 0..total {
        let sent = Instant::now();
        let produced = producer.produce(TOPIC, 0, batch.clone()).context(|| "cannot send")?;
        match producer.answer(produced).context(|| "no acknowledgement came")? {
            Answer::Acknowledged { .. } => acknowledged.push(sent.elapsed()),
            Answer::Refused { code } => {
                return Err(Failure::new(format!("a record was refused with error code {code}")));
            }
        }
        let arrived = read.recv_timeout(PATIENCE).context(|| "the consumer got nothing")??;
        consumed.push(arrived.duration_since(sent));
    }
    server.stop(PATIENCE)?;
    paths::fresh("measure-latency")?;

    for (what, times) in [("acknowledged", &mut acknowledged), ("consumed", &mut consumed)] {
        let times = &mut times[warm_up..];
        times.sort_unstable();
        let (p50, p99) = (probe::quantile_us(times, 0.5), probe::quantile_us(times, 0.99));
        println!("  {what:<12} p50 {p50:.0} us, p99 {p99:.0} us");
    }
    let sync = machine.disk[0].p50_us;
    let bound = 2.0 * machine.loopback_hop_us + sync;
    let hop = machine.loopback_hop_us;
    println!("  two loopback hops of {hop:.0} us and one 4 KB sync of {sync:.0} us: {bound:.0} us");
    Ok(())
}

/// Reads the topic's only partition with a fetch always waiting, and tells when each record came.
fn consume(mut connection: Connection, records: i64) -> Receiver<Outcome<Instant>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut next = 0;
        while next < records {
            let fetched = connection.fetch(TOPIC, &[(0, next)], Duration::from_millis(500));
            let arrived = Instant::now();
            let fetched = fetched.context(|| "cannot fetch");
            // One record at a time is under way, so that whatever comes is that record.
            let came = match &fetched {
                Ok(partitions) => partitions.iter().any(|it| !it.records.is_empty()),
                Err(_) => true,
            };
            if came {
                next += 1;
                if tell.send(fetched.map(|_| arrived)).is_err() {
                    return;
                }
            }
        }
    });
    told
}
