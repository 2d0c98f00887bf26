//! Unused partitions and queues, in addition to the load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use client::blocking::Connection;
use client_amqp::Mode;
use client_amqp::blocking as amqp;
use host::process::{self, Memory};

use super::super::leases::workers::PATIENCE;
use crate::cluster::Cluster;
use crate::failure::{Context, Failure, Outcome};
use crate::figures::Figures;

/// Partitions of one topic.
const PARTITIONS_EACH: usize = 1_000;
/// Number of connections that declare queues.
const CONNECTIONS: usize = 64;
/// Time limit for the creation of all objects of one kind.
const MADE_WITHIN: Duration = Duration::from_secs(10);

/// Idle objects, with the time and memory of their creation.
#[derive(Debug)]
pub(super) struct Idle {
    partitions: CreationCost,
    queues: CreationCost,
}

#[derive(Debug)]
pub(super) struct CreationCost {
    pub(super) count: usize,
    pub(super) within: Duration,
    /// Growth of the resident memory of all nodes together.
    bytes: u64,
}

impl CreationCost {
    pub(super) fn bytes_each(&self) -> f64 {
        self.bytes as f64 / self.count as f64
    }
}

impl Idle {
    pub(super) fn make(cluster: &Cluster, partitions: usize, queues: usize) -> Outcome<Idle> {
        let topics = partitions.div_ceil(PARTITIONS_EACH);
        let mut connection =
            Connection::open(cluster.address(0), PATIENCE).context(|| "cannot connect")?;
        let mut left = partitions;
        let partitions = measure_creation(cluster, partitions, || {
            for number in 0..topics {
                let some = left.min(PARTITIONS_EACH);
                left -= some;
                let made = connection.create_topic(&format!("idle-{number}"), some as i32, &[]);
                made.context(|| "cannot create idle topics")?;
            }
            Ok(())
        })?;
        let queues = measure_creation(cluster, queues, || declare(&cluster.amqp, queues))?;
        Ok(Idle { partitions, queues })
    }

    pub(super) fn report(&self, figures: &mut Figures) {
        for (what, made) in [("partitions", &self.partitions), ("queues", &self.queues)] {
            if made.count == 0 {
                continue;
            }
            figures.judge(
                format!("{} idle {what} were made in", made.count),
                made.within.as_secs_f64(),
                "s",
                format!("at most {} s", MADE_WITHIN.as_secs()),
                made.within <= MADE_WITHIN,
            );
            let bytes = made.bytes_each();
            figures.add(format!("memory for each of those {what}, all nodes"), bytes, "bytes");
        }
    }
}

/// Creates this number of objects, and measures time and memory.
pub(super) fn measure_creation(
    cluster: &Cluster,
    count: usize,
    make: impl FnOnce() -> Outcome,
) -> Outcome<CreationCost> {
    let before = resident(cluster)?;
    let begun = Instant::now();
    make()?;
    let within = begun.elapsed();
    Ok(CreationCost { count, within, bytes: resident(cluster)?.saturating_sub(before) })
}

fn resident(cluster: &Cluster) -> Outcome<u64> {
    let of = |pid| process::memory_bytes(pid, Memory::Resident).context(|| "cannot read memory");
    cluster.pids().map(of).sum()
}

/// Declares durable queues on several connections, spread over the nodes. No topic has such a name.
fn declare(nodes: &[SocketAddr], queues: usize) -> Outcome {
    let names: Vec<String> = (0..queues).map(|number| format!("idle-queue-{number}")).collect();
    let some = queues.div_ceil(CONNECTIONS).max(1);
    std::thread::scope(|scope| {
        let declaring = names.chunks(some).enumerate().map(|(number, names)| {
            let node = nodes[number % nodes.len()];
            scope.spawn(move || {
                amqp::Connection::open(node, PATIENCE, Mode::Confirms)
                    .and_then(|mut connection| connection.declare(names, "quorum"))
                    .context(|| "cannot declare idle queues")
            })
        });
        let declaring: Vec<_> = declaring.collect();
        declaring.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("declaring queues panicked")))
        })
    })
}
