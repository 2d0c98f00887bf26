//! Clients of a node: they send, settle and commit, and report their replies to the checkers.
//!
//! Each is a task that runs until the node is permanently unavailable. A client's next request depends only on its
//! own numbers from the seed and on its replies.

pub mod amqp;
pub mod groups;
pub mod jobs;
pub mod kafka;
pub mod keys;
pub mod log;
pub mod offsets;
pub mod pulse;
pub mod settings;
pub mod share;
pub mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendBatch, Broker, ExecuteError, NewTopic, Unavailable};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions, Header};
use world::RuntimeClock;

use crate::checkers::Observations;
use crate::random::Random;
use crate::trace::Trace;
use crate::verdict::{Invariant, Verdict};

/// A client's view of a run.
#[derive(Clone, Debug)]
pub struct Client {
    pub broker: Broker,
    pub clock: Arc<RuntimeClock>,
    pub knowledge: Observations,
    pub verdict: Verdict,
    pub trace: Trace,
    pub random: Random,
}

/// The node does not reply any more in this life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LifeEnded;

impl Client {
    pub fn fork(&mut self) -> Self {
        Self { random: self.random.fork(), ..self.clone() }
    }

    /// Pauses for a random time.
    pub async fn think(&mut self, ms_max: u64) {
        let ms = self.random.between(0, ms_max);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Announces a fault that may last this long.
    pub fn disturb(&self, for_ms: u64) {
        self.knowledge.lock().calm.disturb(self.trace.now_ms() + for_ms);
    }

    /// Waits for a reply that is due within a bound without faults.
    pub async fn due<T>(&self, what: &'static str, answer: impl Future<Output = T>) -> T {
        let wait = self.knowledge.lock().calm.begin(what, self.trace.now_ms());
        let _not_waited_for = WaitGuard { knowledge: &self.knowledge, wait };
        let answer = answer.await;
        self.knowledge.lock().calm.end(wait, self.trace.now_ms(), &self.verdict);
        answer
    }

    /// Handles an unavailable reply: waits before a retry, or ends.
    pub async fn after(&mut self, error: &Unavailable) -> Result<(), LifeEnded> {
        match error {
            Unavailable::NotLeader | Unavailable::Unanswered => {
                self.think(200).await;
                Ok(())
            }
            Unavailable::Stopping | Unavailable::Failed(_) => Err(LifeEnded),
        }
    }

    /// Handles the reply to a change.
    pub async fn changed<T>(
        &mut self,
        answer: Result<T, ExecuteError>,
    ) -> Result<Result<T, ExecuteError>, LifeEnded> {
        if let Err(ExecuteError::Unavailable(error)) = &answer {
            self.after(error).await?;
        }
        Ok(answer)
    }

    /// Reports that the node rejected a valid request.
    pub fn refused(&self, what: &str, why: &impl std::fmt::Debug) {
        self.verdict.violated(Invariant::Alive, format!("{what} was refused: {why:?}"));
    }

    /// The topic, which is created if absent.
    pub async fn topic(
        &mut self,
        name: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> Result<TopicId, LifeEnded> {
        loop {
            let found = self.broker.catalog().topic_id(name);
            if let Some(id) = found {
                return Ok(id);
            }
            let config = [("retention.ms", "-1")].iter().chain(config);
            let topic = NewTopic {
                name: name.into(),
                uuid: self.broker.entropy().uuid(),
                partitions,
                config: overrides(config),
            };
            let made = self.broker.create_topic(topic).await;
            self.changed(made).await?.ok();
        }
    }
}

/// Cancels the wait when it is dropped.
struct WaitGuard<'a> {
    knowledge: &'a Observations,
    wait: u64,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.knowledge.lock().calm.cancel(self.wait);
    }
}

fn overrides<'a>(config: impl Iterator<Item = &'a (&'a str, &'a str)>) -> BTreeMap<String, String> {
    config.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// A record to be sent.
#[derive(Clone, Debug)]
pub struct RecordToSend {
    pub key: Option<u8>,
    pub value: Vec<u8>,
    pub headers: Vec<(&'static str, String)>,
}

pub fn batch(
    partition: PartitionId,
    options: BatchOptions,
    now_ms: i64,
    records: &[RecordToSend],
) -> AppendBatch {
    let mut builder = BatchBuilder::new(options);
    for RecordToSend { key, value, headers } in records {
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(name, value)| Header { key: name.as_bytes(), value: Some(value.as_bytes()) })
            .collect();
        let key = key.as_ref().map(std::slice::from_ref);
        builder.push(now_ms, key, Some(value), &headers).expect("a small record fits");
    }
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

/// A value with a number in front, padded so that torn or mixed bytes are detected.
pub fn value(number: u32, padding: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(4 + padding, number as u8);
    value
}

/// The number of a value; `None` if it was never sent, or was changed.
pub fn number(value: &[u8]) -> Option<u32> {
    let (number, padding) = value.split_first_chunk()?;
    let number = u32::from_be_bytes(*number);
    padding.iter().all(|byte| *byte == number as u8).then_some(number)
}
