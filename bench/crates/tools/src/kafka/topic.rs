//! The topic under test, ready for records.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::CallError;
use client::blocking::{Connection, SentBatches};
use client::records::{NewRecord, batch_of};
use client::requests::ProduceOutcome;

use crate::failure::{Failure, Outcome};
use crate::stage::Server;

pub(super) const TOPIC: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(120);
const RECORD_BYTES: usize = 1024;

/// Creates the topic, waits until every partition has a leader, and writes one record to each:
/// Kafka creates a partition's files at its first record, which is not measured here.
pub(super) fn create(server: &Server, partitions: i32) -> Outcome {
    let mut connection = Connection::open(server.address, PATIENCE)
        .map_err(Failure::call("connect to the server"))?;
    connection.create_topic(TOPIC, partitions, &[]).map_err(Failure::call("create the topic"))?;
    let begun = Instant::now();
    loop {
        let led = connection.partitions_led(TOPIC).map_err(Failure::call("ask for metadata"))?;
        if led == partitions as usize {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::NoLeaders { led, wanted: partitions });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    touch(&mut connection, (0..partitions).collect())
}

/// Writes one record to each of these partitions. Kafka reports a leader some time before the
/// leader accepts records, so rejected partitions are retried.
fn touch(connection: &mut Connection, mut partitions: Vec<i32>) -> Outcome {
    const IN_FLIGHT: usize = 5;
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // With the current time: retention would delete old records.
    let one = batch_of([NewRecord::of(value)], now.as_millis() as i64);
    let failed = || Failure::call("write the first records");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut refused = Vec::new();
        for some in partitions.chunks(IN_FLIGHT) {
            let sent: Result<Vec<SentBatches>, CallError> = some
                .iter()
                .map(|&partition| connection.produce(TOPIC, partition, one.clone()))
                .collect();
            for (&partition, sent) in some.iter().zip(sent.map_err(failed())?) {
                if let ProduceOutcome::Refused { .. } = connection.answer(sent).map_err(failed())? {
                    refused.push(partition);
                }
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        partitions = refused;
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(Failure::Refused { count: partitions.len() })
}
