//! Sends one record of each key, then records of random keys at a rate.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::{Connection, SentBatches};
use client::records::NewRecord;
use client::requests::ProduceOutcome;

use super::lanes::KeySequence;
use super::value::value;
use super::{KeysOptions, QUEUE, Stage};
use crate::failure::{Context, Failure, Outcome};
use crate::measure::PATIENCE;
use crate::random::Random;
use crate::records::batch_of;

/// Interval between two sends while latencies are measured.
const STEP: Duration = Duration::from_millis(5);
/// Not measured: the first records find cold caches.
const WARM_UP: Duration = Duration::from_secs(2);

pub(super) struct Producer<'a> {
    stage: &'a Stage,
    options: &'a KeysOptions,
    connection: Connection,
    random: Random,
    /// Next sequence number, by key.
    next: Vec<u32>,
    in_flight: VecDeque<SentBatches>,
    pub(super) sent: u64,
}

impl<'a> Producer<'a> {
    pub(super) fn new(stage: &'a Stage, options: &'a KeysOptions) -> Outcome<Producer<'a>> {
        let connection = Connection::open(stage.address, PATIENCE);
        Ok(Producer {
            stage,
            options,
            connection: connection.context(|| "cannot connect to postroad")?,
            random: Random::new(1),
            next: vec![0; options.keys as usize + 1],
            in_flight: VecDeque::new(),
            sent: 0,
        })
    }

    /// Sends one record of each key, before consumers start.
    pub(super) fn send_backlog(&mut self) -> Outcome {
        const STEP_KEYS: usize = 1_000;
        let keys: Vec<u32> = (0..self.options.keys).collect();
        for keys in keys.chunks(STEP_KEYS) {
            self.send(keys, None)?;
        }
        self.await_replies(0)
    }

    /// Sends records of random keys at the wanted rate, two of a key at a time so that the second waits for the
    /// first. Records of the failing key are spread among them.
    pub(super) fn send_paced(&mut self) -> Outcome {
        let time = Duration::from_secs(u64::from(self.options.seconds));
        let steps = (time.as_micros() / STEP.as_micros()) as u32;
        let begun = Instant::now();
        let (mut wanted, mut poison) = (0.0, 0);
        for step in 0..steps {
            let due = STEP * step;
            thread::sleep(due.saturating_sub(begun.elapsed()));
            wanted += f64::from(self.options.rate) * STEP.as_secs_f64();
            let mut keys = Vec::new();
            while wanted >= 1.0 {
                let key = self.random.between(0, u64::from(self.options.keys) - 1) as u32;
                keys.extend([key, key]);
                wanted -= 2.0;
            }
            let poison_due =
                (u64::from(step + 1) * u64::from(self.options.poison) / u64::from(steps)) as u32;
            while poison < poison_due {
                keys.push(self.options.keys);
                poison += 1;
            }
            let timed = due >= WARM_UP;
            let sent = timed.then(|| self.stage.origin.elapsed());
            self.send(&keys, sent)?;
        }
        self.await_replies(0)
    }

    fn send(&mut self, keys: &[u32], sent: Option<Duration>) -> Outcome {
        let sent_ns = sent.map_or(0, |sent| sent.as_nanos() as u64);
        let mut records = vec![Vec::new(); self.options.partitions as usize];
        for &key in keys {
            let next = &mut self.next[key as usize];
            let value = value(KeySequence { key, sequence: *next }, sent_ns);
            *next += 1;
            let key_bytes = Some(Bytes::from(key.to_string()));
            records[(key % self.options.partitions) as usize].push(NewRecord {
                key: key_bytes,
                value,
                headers: Vec::new(),
            });
        }
        self.sent += keys.len() as u64;
        let batches = records.into_iter().enumerate().filter(|(_, records)| !records.is_empty());
        let batches = batches
            .map(|(partition, records)| (partition as i32, batch_of(records.into_iter())))
            .collect();
        let sent = self.connection.produce_each(QUEUE, batches);
        self.in_flight.push_back(sent.context(|| "postroad does not take the load")?);
        self.await_replies(16)
    }

    /// Receives replies until at most `under_way` requests are in flight.
    fn await_replies(&mut self, under_way: usize) -> Outcome {
        while self.in_flight.len() > under_way {
            let Some(sent) = self.in_flight.pop_front() else { break };
            let answers = self.connection.answers(sent).context(|| "no answer came")?;
            if let Some(refused) =
                answers.iter().find(|it| matches!(it, ProduceOutcome::Refused { .. }))
            {
                return Err(Failure::new(format!("a batch was refused: {refused:?}")));
            }
        }
        Ok(())
    }
}
