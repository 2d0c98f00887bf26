//! Fills a topic at full speed: requests with a batch for each partition, several in flight.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use client::blocking::{Connection, SentBatches};
use client::records::NewRecord;
use client::requests::ProduceOutcome;

use super::PATIENCE;
use crate::failure::{Context, Failure, Outcome};
use crate::records::batch_of;

const IN_FLIGHT: usize = 16;

#[derive(Debug)]
pub(crate) struct Load {
    connection: Connection,
    topic: String,
    partitions: u32,
    in_flight: VecDeque<SentBatches>,
    /// Bytes of batches that were sent.
    pub(super) bytes: u64,
}

impl Load {
    pub(crate) fn new(address: SocketAddr, topic: &str, partitions: u32) -> Outcome<Load> {
        let connection = Connection::open(address, PATIENCE);
        Ok(Load {
            connection: connection.context(|| "cannot connect to postroad")?,
            topic: topic.to_owned(),
            partitions,
            in_flight: VecDeque::new(),
            bytes: 0,
        })
    }

    /// Sends this number of records in batches of this size, to each partition in turn. Returns when all are
    /// confirmed.
    pub(crate) fn fill(
        &mut self,
        records: u64,
        batch: usize,
        mut next: impl FnMut() -> NewRecord,
    ) -> Outcome {
        let mut sent = 0;
        let mut told = Instant::now();
        while sent < records {
            let mut batches = Vec::with_capacity(self.partitions as usize);
            for partition in 0..self.partitions {
                let count = (records - sent).min(batch.max(1) as u64);
                if count == 0 {
                    break;
                }
                let encoded = batch_of((0..count).map(|_| next()));
                self.bytes += encoded.len() as u64;
                batches.push((partition as i32, encoded));
                sent += count;
            }
            let sent_batches = self.connection.produce_each(&self.topic, batches);
            self.in_flight.push_back(sent_batches.context(|| "postroad does not take the load")?);
            self.await_replies(IN_FLIGHT)?;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("  {sent} of {records} records sent");
            }
        }
        self.await_replies(0)
    }

    /// Receives replies until at most `under_way` requests are in flight.
    fn await_replies(&mut self, under_way: usize) -> Outcome {
        while self.in_flight.len() > under_way {
            let Some(sent) = self.in_flight.pop_front() else { break };
            let answers = self.connection.answers(sent);
            let answers = answers.context(|| "postroad does not answer the load")?;
            if let Some(refused) =
                answers.iter().find(|it| matches!(it, ProduceOutcome::Refused { .. }))
            {
                return Err(Failure::new(format!("{}: a batch is {refused:?}", self.topic)));
            }
        }
        Ok(())
    }
}
