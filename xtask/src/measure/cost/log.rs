//! Records that are produced, and fetched concurrently.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::{Connection, SentBatches};
use client::requests::{PartitionRecords, ProduceOutcome};

use super::variants::{PARTITIONS, RunningServer, TOPIC};
use super::{Cost, WARM_UP};
use crate::failure::{Context, Failure, Outcome};
use crate::records::batch;

const RECORD_BYTES: usize = 1024;
const RECORDS_A_REQUEST: usize = 16;
const IN_FLIGHT: usize = 64;
const FETCH_WAIT: Duration = Duration::from_millis(100);

pub(super) fn run(running: &RunningServer, time: Duration) -> Outcome<Cost> {
    let (mut producer, mut consumer) = (Producer::new(running.connect()?), running.connect()?);
    let (ends, batch_bytes) = (AtomicBool::new(false), producer.batch.len());
    thread::scope(|scope| {
        let fetching = scope.spawn(|| fetch_all(&mut consumer, batch_bytes, &ends));
        let produced = produce(&mut producer, running, time);
        ends.store(true, Ordering::Relaxed);
        let fetched = fetching.join().map_err(|_| Failure::new("the consumer panicked"))?;
        let (cost, fetched) = (produced?, fetched?);
        // The fetcher must keep up with the producer, so that both measure the same records.
        if fetched < producer.records / 2 {
            let told = format!("of {} records {fetched} were fetched", producer.records);
            return Err(Failure::new(told));
        }
        Ok(cost)
    })
}

fn produce(producer: &mut Producer, running: &RunningServer, time: Duration) -> Outcome<Cost> {
    producer.run(WARM_UP)?;
    let before = producer.records;
    let (used, begun) = (running.cpu_seconds()?, Instant::now());
    producer.run(time)?;
    let elapsed = begun.elapsed().as_secs_f64();
    let used = running.cpu_seconds()? - used;
    let records = (producer.records - before) as f64;
    Ok(Cost { rate: records / elapsed, processor: used / records * 1e6 })
}

struct Producer {
    connection: Connection,
    batch: Bytes,
    requests: u64,
    under_way: VecDeque<SentBatches>,
    /// Number of acknowledged records.
    records: u64,
}

impl Producer {
    fn new(connection: Connection) -> Self {
        let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
        let batch = batch(std::iter::repeat_n(value, RECORDS_A_REQUEST));
        Self { connection, batch, requests: 0, under_way: VecDeque::new(), records: 0 }
    }

    fn run(&mut self, time: Duration) -> Outcome {
        let begun = Instant::now();
        while begun.elapsed() < time {
            while self.under_way.len() < IN_FLIGHT {
                let partition = (self.requests % PARTITIONS as u64) as i32;
                let sent = self.connection.produce(TOPIC, partition, self.batch.clone());
                self.under_way.push_back(sent.context(|| "postroad does not take the load")?);
                self.requests += 1;
            }
            self.await_replies()?;
        }
        while !self.under_way.is_empty() {
            self.await_replies()?;
        }
        Ok(())
    }

    fn await_replies(&mut self) -> Outcome {
        let Some(sent) = self.under_way.pop_front() else { return Ok(()) };
        match self.connection.answer(sent).context(|| "postroad does not answer the load")? {
            ProduceOutcome::Acknowledged { .. } => {
                self.records += RECORDS_A_REQUEST as u64;
                Ok(())
            }
            ProduceOutcome::Refused { code } => {
                Err(Failure::new(format!("a batch was refused with error code {code}")))
            }
        }
    }
}

/// Returns the number of fetched records. All batches have the length of the produced one.
fn fetch_all(connection: &mut Connection, batch_bytes: usize, ends: &AtomicBool) -> Outcome<u64> {
    let mut next: Vec<(i32, i64)> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    while !ends.load(Ordering::Relaxed) {
        let fetched = connection.fetch(TOPIC, &next, FETCH_WAIT);
        for PartitionRecords { partition, error_code, records } in
            fetched.context(|| "cannot fetch")?
        {
            if error_code != 0 {
                let told = format!("partition {partition} cannot be fetched: error {error_code}");
                return Err(Failure::new(told));
            }
            let batches = records.len() / batch_bytes;
            let known = next.iter_mut().find(|(known, _)| *known == partition);
            if let Some((_, offset)) = known {
                *offset += (batches * RECORDS_A_REQUEST) as i64;
            }
        }
        // A response has room for some partitions: the others come first in the next fetch.
        next.rotate_left(1);
    }
    Ok(next.iter().map(|(_, offset)| *offset as u64).sum())
}
