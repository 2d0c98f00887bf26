//! Idempotent producers, one per partition, which retry a batch until it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::requests::{self, ProduceOutcome};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, ProducerId};
use record::{BatchBuilder, BatchOptions};

use super::super::target::{Kafka, TIMEOUT, WorkloadContext};
use super::{Check, WorkloadResult, joined};
use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use crate::records::now_ms;
use histories::log::{Acknowledged, Ledger, Mark, Reader};

pub(super) const TOPIC: &str = "append";
pub(super) const PARTITIONS: usize = 4;
const RECORD_BYTES: usize = 100;
const BATCH_RECORDS_MAX: u64 = 20;
/// Time after the end of the run until an unacknowledged batch is abandoned.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(20);
const READ_WITHIN: Duration = Duration::from_secs(60);
const INIT_PRODUCER_ID: i16 = 4;

/// End of each partition, as acknowledgements imply it.
#[derive(Debug, Default)]
pub(in super::super) struct Progress([AtomicI64; PARTITIONS]);

impl Progress {
    pub(super) fn end(&self, partition: usize) -> i64 {
        self.0[partition].load(Ordering::SeqCst)
    }
}

pub(super) fn prepare(target: &WorkloadContext) -> Outcome {
    let mut kafka = Kafka::new(target, 0);
    let created = kafka.at(0, |connection| connection.create_topic(TOPIC, PARTITIONS as i32, &[]));
    match created {
        Err(error) if !error.to_string().contains("exists") => Err(error.into()),
        _ => Ok(()),
    }
}

#[derive(Debug, Default)]
struct ProducerLog {
    acknowledged: Vec<Acknowledged>,
    writes: Vec<u64>,
    refused: u64,
    violations: Vec<String>,
}

pub(super) fn start(target: &WorkloadContext, progress: &Arc<Progress>, seed: u64) -> Check {
    let producer = |partition: usize| {
        let (target, progress) = (target.clone(), Arc::clone(progress));
        std::thread::spawn(move || produce(&target, &progress, partition, seed))
    };
    let producers: Vec<_> = (0..PARTITIONS).map(producer).collect();
    Box::new(move |target| {
        let mut found = WorkloadResult::default();
        let mut ledger = Ledger::new(PARTITIONS);
        for producer in producers {
            let ProducerLog { acknowledged, writes, refused, violations } = joined(producer)?;
            found.violations.extend(violations);
            found.writes.push(writes);
            *found.counts.entry("produce requests refused or unanswered").or_default() += refused;
            for batch in acknowledged {
                let records = u64::from(batch.records);
                *found.counts.entry("records acknowledged").or_default() += records;
                if let Err(violation) = ledger.acknowledge(batch) {
                    found.violations.push(format!("append: {violation}"));
                }
            }
        }
        for partition in 0..PARTITIONS {
            match verify(target, &mut ledger, partition)? {
                Ok(read) => *found.counts.entry("records read").or_default() += read,
                Err(violation) => found.violations.push(format!("append: {violation}")),
            }
        }
        Ok(found)
    })
}

fn produce(
    target: &WorkloadContext,
    progress: &Progress,
    partition: usize,
    seed: u64,
) -> ProducerLog {
    let mut produced = ProducerLog::default();
    let mut random = Random::new(seed ^ partition as u64);
    let mut kafka = Kafka::new(target, partition);
    let Some(id) = producer_id(target, &mut kafka, &mut random) else { return produced };
    let mut sequence = 0;
    while !target.stops() {
        let records = random.between(1, BATCH_RECORDS_MAX);
        let first = Mark { producer: partition as u32, sequence };
        let batch = batch(id, first, records);
        let Some(base_offset) = deliver(target, &mut kafka, partition, &batch, &mut produced)
        else {
            return produced;
        };
        if let Some(base_offset) = base_offset {
            let records = records as u32;
            produced.acknowledged.push(Acknowledged { partition, base_offset, first, records });
            let end = base_offset + i64::from(records);
            progress.0[partition].fetch_max(end, Ordering::SeqCst);
        }
        produced.writes.push(target.now());
        sequence += records;
        std::thread::sleep(Duration::from_millis(random.between(1, 10)));
    }
    produced
}

/// Sends a batch until it is acknowledged. Returns its offset, if the reply has it; `None`: abandoned.
fn deliver(
    target: &WorkloadContext,
    kafka: &mut Kafka,
    partition: usize,
    batch: &Bytes,
    produced: &mut ProducerLog,
) -> Option<Option<i64>> {
    let mut given_up = None;
    loop {
        let given_up = target.stops().then(|| *given_up.get_or_insert_with(Instant::now));
        if given_up.is_some_and(|since| since.elapsed() > GIVEN_UP_AFTER) {
            return None;
        }
        let Some(leader) = kafka.leader(TOPIC, partition) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let batches = [(partition as i32, batch.clone())];
        let request = requests::produce(TOPIC, -1, batches);
        let request = request.with_timeout_ms(TIMEOUT.as_millis() as i32);
        let answer = kafka.call(leader, requests::PRODUCE, &request);
        match answer.map(|answer| requests::produced(&answer).first().copied()) {
            Ok(Some(ProduceOutcome::Acknowledged { base_offset })) => {
                return Some((base_offset >= 0).then_some(base_offset));
            }
            Ok(Some(ProduceOutcome::Refused { code })) => {
                match ResponseError::try_from_code(code) {
                    Some(ResponseError::DuplicateSequenceNumber) => return Some(None),
                    // One batch is in flight at a time, so the partition has lost the previous one.
                    Some(
                        ResponseError::OutOfOrderSequenceNumber | ResponseError::UnknownProducerId,
                    ) => {
                        produced.violations.push(format!(
                            "append: partition {partition} of an idempotent producer: {} at {} ms",
                            requests::code_name(code),
                            target.now()
                        ));
                        return None;
                    }
                    _ => produced.refused += 1,
                }
            }
            Ok(None) | Err(_) => produced.refused += 1,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn producer_id(target: &WorkloadContext, kafka: &mut Kafka, random: &mut Random) -> Option<i64> {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1);
    while !target.stops() {
        let answer = kafka.call(target.any(random), INIT_PRODUCER_ID, &request);
        if let Ok(answer) = answer
            && answer.error_code == 0
        {
            return Some(answer.producer_id.0);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

fn batch(producer_id: i64, first: Mark, records: u64) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: first.sequence as i32,
        ..BatchOptions::default()
    });
    for record in 0..records {
        let mark = Mark { sequence: first.sequence + record, ..first };
        let value = mark.to_value(RECORD_BYTES);
        builder.push(now_ms(), None, Some(&value), &[]).expect("a small batch");
    }
    builder.finish().into()
}

/// Reads a partition from its beginning at its leader, and checks it against the ledger.
fn verify(
    target: &WorkloadContext,
    ledger: &mut Ledger,
    partition: usize,
) -> Outcome<Result<u64, String>> {
    let mut kafka = Kafka::new(target, partition);
    let deadline = Instant::now() + READ_WITHIN;
    let mut reader = Reader::new(partition, PARTITIONS);
    let (mut read, mut end) = (0, None);
    loop {
        if Instant::now() > deadline {
            let at = reader.next_offset;
            return Err(Failure::new(format!(
                "partition {partition} is not readable from {at} on"
            )));
        }
        let Some(leader) = kafka.leader(TOPIC, partition) else { continue };
        if end.is_none() {
            end = kafka.at(leader, |it| it.end_offset(TOPIC, partition as i32)).ok();
        }
        let Some(end) = end else { continue };
        if reader.next_offset >= end {
            return Ok(ledger.check_end(&reader).map(|()| read).map_err(|it| it.to_string()));
        }
        let offsets = [(partition as i32, reader.next_offset)];
        let fetched = kafka.at(leader, |it| it.fetch(TOPIC, &offsets, Duration::ZERO));
        let Ok(fetched) = fetched else { continue };
        for part in fetched.into_iter().filter(|part| part.error_code == 0) {
            let records = client::records::records_of(part.records);
            for record in records.context(|| "records cannot be read")? {
                let value = record.value.unwrap_or_default();
                if let Err(violation) = ledger.check(&mut reader, record.offset, &value) {
                    return Ok(Err(violation.to_string()));
                }
                read += 1;
            }
        }
    }
}
