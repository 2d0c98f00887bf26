//! `cargo xtask measure latency`: end-to-end latency of one record at a time, with a client that costs next to
//! nothing.
//!
//! Does the same as Kafka's end-to-end latency tool (send, wait for the acknowledgement, wait until a consumer has
//! it) without a JVM, so that the tool's share of its figures is known.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use client::blocking::Connection;
use client::requests::ProduceOutcome;

use super::{PATIENCE, TOPIC, postroad};
use crate::cluster::{Cluster, NodeFault, leaders_by_any};
use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::records::batch;
use crate::server;
use host::probe;

#[derive(Debug, Args)]
pub(crate) struct LatencyOptions {
    /// Records to time, after a tenth as many that are not
    #[arg(long, default_value_t = 20_000)]
    records: usize,
    /// Then a cluster of three nodes on this machine, too; the client is connected to the leader
    #[arg(long)]
    cluster: bool,
    /// An empty or new folder for the nodes' data, on another disk, or in memory [default: in the target folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const RECORD_BYTES: usize = 1024;
/// Extra latency that a cluster may add to the hop to its followers.
const BESIDE_THE_HOP_US: f64 = 50.0;

pub(super) fn run(options: &LatencyOptions) -> Outcome {
    let folder = match &options.folder {
        Some(folder) => empty(folder)?,
        None => paths::fresh("measure-latency")?,
    };
    let machine = probe::machine(&folder, Duration::from_secs(2))?;
    let (sync, hop) = (machine.disk[0].p50_us, machine.loopback_hop_us);

    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let (server, _) = postroad.start(PATIENCE)?;
    create(server.address)?;
    let one = time(server.address, options.records)?;
    server.stop(PATIENCE)?;
    one.print("");
    let bound = 2.0 * hop + sync;
    println!("  two loopback hops of {hop:.0} us and one 4 KB sync of {sync:.0} us: {bound:.0} us");

    if options.cluster {
        let binary = server::binary(options.bin.as_deref())?;
        let cluster = folder.join("cluster");
        std::fs::create_dir(&cluster).context(|| format!("cannot create {}", cluster.display()))?;
        let serve = &options.serve;
        let mut cluster =
            Cluster::found(&binary, &cluster, serve, NodeFault::Kill, false, PATIENCE)?;
        create(cluster.address(0))?;
        cluster.wait_until_whole(TOPIC, 1, PATIENCE)?;
        let leaders = leaders_by_any(&cluster.addresses(), TOPIC, 1)?;
        let leader = leaders[0].ok_or_else(|| Failure::new("the partition has no leader"))?;
        let three = time(cluster.address(leader), options.records)?;
        cluster.stop(PATIENCE)?;
        three.print(", of three nodes");
        let (more, most) = (three.p50() - one.p50(), hop + BESIDE_THE_HOP_US);
        println!(
            "  {more:.0} us more than one node; a hop and {BESIDE_THE_HOP_US:.0} us: {most:.0} us"
        );
    }
    match &options.folder {
        Some(folder) => std::fs::remove_dir_all(folder)
            .context(|| format!("cannot remove {}", folder.display())),
        None => paths::fresh("measure-latency").map(drop),
    }
}

fn empty(folder: &Path) -> Outcome<PathBuf> {
    let cannot = || format!("cannot use {}", folder.display());
    std::fs::create_dir_all(folder).context(cannot)?;
    if std::fs::read_dir(folder).context(cannot)?.next().is_some() {
        return Err(Failure::new(format!("{} is not empty", folder.display()))
            .remedy("name a folder that does not exist yet: it is removed when all is done"));
    }
    Ok(folder.to_owned())
}

fn create(address: SocketAddr) -> Outcome {
    let mut connection = Connection::open(address, PATIENCE).context(|| "cannot connect")?;
    connection.create_topic(TOPIC, 1, &[]).context(|| "cannot create the topic")
}

/// Latencies since the sending of each record.
struct Times {
    acknowledged: Vec<Duration>,
    consumed: Vec<Duration>,
}

impl Times {
    fn print(&self, of: &str) {
        for (what, times) in [("acknowledged", &self.acknowledged), ("consumed", &self.consumed)] {
            let (p50, p99) = (probe::quantile_us(times, 0.5), probe::quantile_us(times, 0.99));
            println!("  {what:<12} p50 {p50:.0} us, p99 {p99:.0} us{of}");
        }
    }

    fn p50(&self) -> f64 {
        probe::quantile_us(&self.acknowledged, 0.5)
    }
}

/// Measures one record at a time, after a warm-up.
fn time(address: SocketAddr, records: usize) -> Outcome<Times> {
    let connect = || Connection::open(address, PATIENCE).context(|| "cannot connect");
    let mut producer = connect()?;
    let warm_up = records / 10;
    let total = warm_up + records;
    let read = consume(connect()?, total as i64);

    let batch = batch(std::iter::once(Bytes::from(vec![b'x'; RECORD_BYTES])));
    let (mut acknowledged, mut consumed) = (Vec::with_capacity(total), Vec::with_capacity(total));
    for _ in 0..total {
        let sent = Instant::now();
        let produced = producer.produce(TOPIC, 0, batch.clone()).context(|| "cannot send")?;
        match producer.answer(produced).context(|| "no acknowledgement came")? {
            ProduceOutcome::Acknowledged { .. } => acknowledged.push(sent.elapsed()),
            ProduceOutcome::Refused { code } => {
                return Err(Failure::new(format!("a record was refused with error code {code}")));
            }
        }
        let arrived = read.recv_timeout(PATIENCE).context(|| "the consumer got nothing")??;
        consumed.push(arrived.duration_since(sent));
    }
    let timed = |times: Vec<Duration>| {
        let mut times = times[warm_up..].to_vec();
        times.sort_unstable();
        times
    };
    Ok(Times { acknowledged: timed(acknowledged), consumed: timed(consumed) })
}

/// Reads the topic's only partition with a fetch always waiting, and sends the time at which each record arrived.
fn consume(mut connection: Connection, records: i64) -> Receiver<Outcome<Instant>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut next = 0;
        while next < records {
            let fetched = connection.fetch(TOPIC, &[(0, next)], Duration::from_millis(500));
            let arrived = Instant::now();
            let fetched = fetched.context(|| "cannot fetch");
            // One record at a time is in flight, so any result is that record.
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
