//! The load of a soak: producers with several batches in flight, a consumer at the tail, and the reading of a whole
//! log. A thread normally ends when its server is killed.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::{Connection, SentBatches};
use client::records::records_of;
use client::requests::ProduceOutcome;

use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use crate::records::batch;
use histories::log::{Acknowledged, Ledger, Mark, Reader, Violation};

/// A server without a reply for this long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Unacknowledged produce requests of a producer.
const IN_FLIGHT: usize = 5;
/// Records in a batch, at most.
const BATCH_RECORDS: u64 = 60;

/// The topic that a soak writes.
#[derive(Clone, Debug)]
pub(crate) struct SoakTarget {
    pub(crate) address: SocketAddr,
    pub(crate) topic: String,
    pub(crate) partitions: usize,
    pub(crate) producers: usize,
    pub(crate) record_bytes: usize,
}

/// A producer that never sends a record twice, so that each is in the log once or not at all.
#[derive(Debug)]
pub(crate) struct Producer {
    id: u32,
    random: Random,
    next_sequences: Vec<u64>,
    pub(crate) acknowledged: Vec<Acknowledged>,
    pub(crate) refused: u64,
}

impl Producer {
    pub(crate) fn new(id: u32, partitions: usize, seed: u64) -> Producer {
        Producer {
            id,
            random: Random::new(seed),
            next_sequences: vec![0; partitions],
            acknowledged: Vec::new(),
            refused: 0,
        }
    }

    /// Produces until `stop` is set, then waits for requests in flight; or until the connection breaks.
    pub(crate) fn run(&mut self, target: &SoakTarget, stop: &AtomicBool) -> io::Result<()> {
        let mut connection = Connection::open(target.address, PATIENCE)?;
        let mut in_flight = VecDeque::with_capacity(IN_FLIGHT);
        loop {
            while in_flight.len() < IN_FLIGHT && !stop.load(Ordering::Relaxed) {
                in_flight.push_back(self.send(&mut connection, target)?);
            }
            let Some((sent, batch)) = in_flight.pop_front() else { return Ok(()) };
            match connection.answer(sent)? {
                ProduceOutcome::Acknowledged { base_offset } => {
                    self.acknowledged.push(Acknowledged { base_offset, ..batch });
                }
                ProduceOutcome::Refused { .. } => self.refused += 1,
            }
        }
    }

    fn send(
        &mut self,
        connection: &mut Connection,
        target: &SoakTarget,
    ) -> io::Result<(SentBatches, Acknowledged)> {
        let partition = self.random.between(0, target.partitions as u64 - 1) as usize;
        let records = self.random.between(1, BATCH_RECORDS);
        let first = Mark { producer: self.id, sequence: self.next_sequences[partition] };
        self.next_sequences[partition] += records;
        let marks = (0..records).map(|i| Mark { sequence: first.sequence + i, ..first });
        let values = marks.map(|mark| mark.to_value(target.record_bytes));
        let sent = connection.produce(&target.topic, partition as i32, batch(values))?;
        let records = records as u32;
        Ok((sent, Acknowledged { partition, base_offset: -1, first, records }))
    }
}

/// The consumer's records in the order of reading.
#[derive(Debug, Default)]
pub(crate) struct ConsumedRecords {
    pub(crate) records: Vec<(usize, i64, Mark)>,
    pub(crate) violation: Option<Violation>,
}

/// Follows the tail of all partitions until the connection breaks or `stop` is set.
pub(crate) fn follow(
    target: &SoakTarget,
    readers: &mut [Reader],
    stop: &AtomicBool,
) -> ConsumedRecords {
    let mut shown = ConsumedRecords::default();
    let Ok(mut connection) = Connection::open(target.address, PATIENCE) else { return shown };
    while !stop.load(Ordering::Relaxed) {
        let wait = Duration::from_millis(100);
        let Ok(batches) = fetch(&mut connection, target, readers, wait) else { break };
        for (partition, records) in batches {
            for (offset, value) in records {
                match readers[partition].read(offset, &value) {
                    Ok(mark) => shown.records.push((partition, offset, mark)),
                    Err(violation) => {
                        shown.violation = Some(violation);
                        return shown;
                    }
                }
            }
        }
    }
    shown
}

/// Reads every partition from its reader to the end and checks it against the ledger. Returns the number of
/// records.
pub(crate) fn verify(
    target: &SoakTarget,
    ledger: &mut Ledger,
    readers: &mut [Reader],
) -> Outcome<u64> {
    let mut connection = Connection::open(target.address, PATIENCE)
        .context(|| "cannot connect after the restart")?;
    let ends = connection
        .end_offsets(&target.topic, target.partitions as i32)
        .context(|| "cannot list the end offsets after the restart")?;
    let mut read = 0;
    let mut progress = Instant::now();
    while readers.iter().any(|reader| reader.next_offset < ends[reader.partition]) {
        let batches = fetch(&mut connection, target, readers, Duration::ZERO)
            .context(|| "cannot fetch after the restart")?;
        for (partition, records) in batches {
            for (offset, value) in records {
                ledger.check(&mut readers[partition], offset, &value).map_err(violated)?;
                read += 1;
                progress = Instant::now();
            }
        }
        if progress.elapsed() > PATIENCE {
            return Err(Failure::new(format!(
                "fetches give nothing below the end offsets {ends:?} for {PATIENCE:?}"
            )));
        }
    }
    for reader in readers.iter() {
        ledger.check_end(reader).map_err(violated)?;
    }
    Ok(read)
}

pub(crate) fn violated(violation: Violation) -> Failure {
    Failure::new(format!("VIOLATION: {violation}"))
}

type Records = Vec<(i64, Bytes)>;

/// One fetch of all partitions, from the positions of their readers.
fn fetch(
    connection: &mut Connection,
    target: &SoakTarget,
    readers: &[Reader],
    wait: Duration,
) -> io::Result<Vec<(usize, Records)>> {
    let offsets: Vec<(i32, i64)> =
        readers.iter().map(|reader| (reader.partition as i32, reader.next_offset)).collect();
    let mut batches = Vec::new();
    for fetched in connection.fetch(&target.topic, &offsets, wait)? {
        if fetched.error_code != 0 {
            let (partition, code) = (fetched.partition, fetched.error_code);
            return Err(io::Error::other(format!("partition {partition}: error code {code}")));
        }
        let records = records_of(fetched.records)?.into_iter();
        let records = records.map(|record| (record.offset, record.value.unwrap_or_default()));
        batches.push((fetched.partition as usize, records.collect()));
    }
    Ok(batches)
}
