//! The load of a cluster: each producer writes one partition at its current leader, one batch at a time. It never
//! sends a batch twice: one without a reply may be in the log, or not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::blocking::Connection;
use client::records::records_of;
use client::requests::ProduceOutcome;

use super::super::load::{PATIENCE, violated};
use crate::cluster::{self, NODES};
use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use crate::records::batch;
use histories::log::{Acknowledged, Ledger, Mark, Reader};

/// Delay before a producer requests the leader again.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
const BATCH_RECORDS: u64 = 30;
/// NOT_LEADER_OR_FOLLOWER.
const NOT_LEADER: i16 = 6;

/// Topic, nodes and timeout of all producers.
#[derive(Clone, Debug)]
pub(crate) struct ProducerTarget {
    pub(crate) nodes: Vec<SocketAddr>,
    pub(crate) topic: String,
    pub(crate) partitions: usize,
    pub(crate) record_bytes: usize,
    /// Timeout of a reply, after which a producer continues at another node.
    pub(crate) answered_within: Duration,
}

/// The producer of one partition.
#[derive(Debug)]
pub(crate) struct Producer {
    partition: usize,
    random: Random,
    next_sequence: u64,
    /// Each batch with the times of its sending and its acknowledgement.
    pub(crate) acknowledged: Vec<(Acknowledged, Instant, Instant)>,
    /// Batches that a node rejected: they are not in the log.
    pub(crate) refused: u64,
    /// Batches without a reply.
    pub(crate) unanswered: u64,
}

impl Producer {
    pub(crate) fn new(partition: usize, seed: u64) -> Producer {
        let random = Random::new(seed);
        let (acknowledged, refused, unanswered) = (Vec::new(), 0, 0);
        Producer { partition, random, next_sequence: 0, acknowledged, refused, unanswered }
    }

    /// Produces until `stop` is set.
    pub(crate) fn run(&mut self, target: &ProducerTarget, stop: &AtomicBool) {
        let mut asked = self.partition % NODES;
        while !stop.load(Ordering::Relaxed) {
            let leader = Connection::open(target.nodes[asked], target.answered_within)
                .map_err(std::io::Error::from)
                .and_then(|mut node| cluster::leaders(&mut node, &target.topic, target.partitions));
            match leader.map(|leaders| leaders[self.partition]) {
                Ok(Some(place)) => {
                    let _ = self.run_at(target, place, stop);
                }
                // This node may be the one that is cut off.
                Ok(None) | Err(_) => asked = (asked + 1) % NODES,
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    /// Produces at one node until it rejects a batch or the connection fails.
    fn run_at(
        &mut self,
        target: &ProducerTarget,
        place: usize,
        stop: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut connection = Connection::open(target.nodes[place], target.answered_within)?;
        while !stop.load(Ordering::Relaxed) {
            let records = self.random.between(1, BATCH_RECORDS);
            let first = Mark { producer: 0, sequence: self.next_sequence };
            self.next_sequence += records;
            let marks = (0..records).map(|i| Mark { sequence: first.sequence + i, ..first });
            let values = marks.map(|mark| mark.to_value(target.record_bytes));
            let (partition, sent_at) = (self.partition as i32, Instant::now());
            let answer = connection
                .produce(&target.topic, partition, batch(values))
                .and_then(|sent| connection.answer(sent));
            match answer {
                Ok(ProduceOutcome::Acknowledged { base_offset }) => {
                    let (partition, records) = (self.partition, records as u32);
                    let batch = Acknowledged { partition, base_offset, first, records };
                    self.acknowledged.push((batch, sent_at, Instant::now()));
                }
                Ok(ProduceOutcome::Refused { .. }) => {
                    self.refused += 1;
                    return Ok(());
                }
                Err(error) => {
                    self.unanswered += 1;
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

/// Reads every partition at its leader from its reader to the end, and checks it against the ledger. Returns the
/// number of records.
pub(crate) fn verify(
    target: &ProducerTarget,
    ledger: &mut Ledger,
    readers: &mut [Reader],
) -> Outcome<u64> {
    let mut read = 0;
    for reader in readers {
        let partition = reader.partition;
        let deadline = Instant::now() + PATIENCE;
        // Leaders move back to their preferred nodes, and a node may not know yet.
        while !verify_partition(target, ledger, reader, &mut read)
            .map_err(|error| Failure::new(format!("partition {partition}: {error}")))?
        {
            if Instant::now() > deadline {
                let what = format!("nobody answers as the leader of partition {partition}");
                return Err(Failure::new(what));
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }
    Ok(read)
}

/// Whether the end was reached; `false` if the node is not the leader of the partition.
fn verify_partition(
    target: &ProducerTarget,
    ledger: &mut Ledger,
    reader: &mut Reader,
    read: &mut u64,
) -> Outcome<bool> {
    let leaders = cluster::leaders_by_any(&target.nodes, &target.topic, target.partitions)?;
    let Some(place) = leaders[reader.partition] else { return Ok(false) };
    let mut connection = Connection::open(target.nodes[place], PATIENCE)
        .context(|| "cannot connect to its leader")?;
    loop {
        let offsets = [(reader.partition as i32, reader.next_offset)];
        let fetched = connection
            .fetch(&target.topic, &offsets, Duration::ZERO)
            .context(|| "cannot fetch from its leader")?;
        let before = reader.next_offset;
        for fetched in fetched {
            if fetched.error_code == NOT_LEADER {
                return Ok(false);
            }
            if fetched.error_code != 0 {
                let code = client::requests::code_name(fetched.error_code);
                return Err(Failure::new(format!("a fetch is answered with {code}")));
            }
            for record in records_of(fetched.records).context(|| "records cannot be read")? {
                let value = record.value.unwrap_or_default();
                ledger.check(reader, record.offset, &value).map_err(violated)?;
                *read += 1;
            }
        }
        if reader.next_offset == before {
            ledger.check_end(reader).map_err(violated)?;
            return Ok(true);
        }
    }
}
