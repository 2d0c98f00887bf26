//! The topic under test, ready for records.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::CallError;
use client::blocking::{Connection, SentBatches};
use client::requests::Answer;

use crate::failure::{Context, Failure, Outcome};
use crate::records::batch;
use crate::server::Server;

pub(super) const TOPIC: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(120);
const RECORD_BYTES: usize = 1024;

/// Creates the topic, waits until every partition has a leader, and writes one record to each:
/// Kafka makes a partition's files at its first record, which is not what is measured here.
pub(super) fn create(server: &Server, partitions: i32) -> Outcome {
    let mut connection =
        Connection::open(server.address, PATIENCE).context(|| "cannot connect to the server")?;
    connection.create_topic(TOPIC, partitions, &[]).context(|| "cannot create the topic")?;
    let begun = Instant::now();
    loop {
        let led = connection.partitions_led(TOPIC).context(|| "cannot ask for metadata")?;
        if led == partitions as usize {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{led} of {partitions} partitions have a leader")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    touch(&mut connection, (0..partitions).collect()).context(|| "cannot write the first records")
}

/// One record to each of these partitions. Kafka names a leader some time before that one takes
/// records, so a refused partition is asked again.
fn touch(connection: &mut Connection, mut partitions: Vec<i32>) -> io::Result<()> {
    const IN_FLIGHT: usize = 5;
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let one = batch(std::iter::once(value));
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut refused = Vec::new();
        for some in partitions.chunks(IN_FLIGHT) {
            let sent: Result<Vec<SentBatches>, CallError> = some
                .iter()
                .map(|&partition| connection.produce(TOPIC, partition, one.clone()))
                .collect();
            for (&partition, sent) in some.iter().zip(sent?) {
                if let Answer::Refused { .. } = connection.answer(sent)? {
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
    Err(io::Error::other(format!("{} partitions refuse records", partitions.len())))
}
