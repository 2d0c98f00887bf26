//! Reads messages of the queue's topic again and writes them to its end, or after the last
//! redelivery to the topic of undelivered messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::Failure;
use futures_util::future::join_all;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::marker::{self, Key, Marker};
use super::receiver::redeliveries;
use super::writer::{MarkerWriter, written};
use super::{Quiet, Topics};
use crate::kafka::client::{is_passing, refused};

/// Messages with a larger gap between their offsets are not read in one pass.
const GAP_MAX: i64 = 1_000;
const READ_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Redeliverer {
    reader: Arc<BaseConsumer<Quiet>>,
    producer: FutureProducer,
    markers: MarkerWriter,
    redeliveries_max: i32,
}

/// A message that was read again.
struct Again {
    key: Option<Vec<u8>>,
    body: Option<Vec<u8>>,
    redeliveries: i32,
}

impl Redeliverer {
    pub(super) fn new(
        reader: &ClientConfig,
        producer: &ClientConfig,
        redeliveries_max: i32,
    ) -> Result<Self, Failure> {
        Ok(Self {
            reader: Arc::new(reader.create_with_context(Quiet).map_err(refused)?),
            producer: producer.create().map_err(refused)?,
            markers: MarkerWriter::new(producer.clone())?,
            redeliveries_max,
        })
    }

    /// Redelivers messages of one partition. Returns the redelivered ones, and the first failure of
    /// the others.
    pub(super) async fn redeliver(
        &self,
        topics: &Topics,
        mut keys: Vec<Key>,
    ) -> (Vec<Key>, Option<Failure>) {
        keys.sort_unstable();
        let (reader, topic) = (Arc::clone(&self.reader), topics.queue.clone());
        let reading = tokio::task::spawn_blocking(move || read(&reader, &topic, keys));
        let (read, mut failure) = match reading.await {
            Ok(read) => read,
            Err(panicked) => return (Vec::new(), Some(Failure::unknown(panicked))),
        };
        let sending = read.into_iter().map(|(key, again)| async move {
            // A message that retention removed is lost; its marker is ended nevertheless.
            if let Some(again) = again {
                written(self.send(topics, key.partition, &again)?).await?;
            }
            Ok::<Key, Failure>(key)
        });
        let mut done = Vec::new();
        for sent in join_all(sending).await {
            match sent {
                Ok(key) => done.push(key),
                Err(failed) => {
                    failure.get_or_insert(failed);
                }
            }
        }
        let ending = done.iter().map(|key| async move {
            written(self.markers.begin(&topics.markers, *key, Marker::End)?).await
        });
        for ended in join_all(ending).await {
            // A tracker that reads the markers from the beginning redelivers it again.
            if let Err(failed) = ended {
                tracing::warn!("a message was redelivered and is not marked so: {failed}");
            }
        }
        (done, failure)
    }

    fn send(
        &self,
        topics: &Topics,
        partition: i32,
        again: &Again,
    ) -> Result<DeliveryFuture, Failure> {
        let Again { key, body, redeliveries } = again;
        let count = marker::encode_count(redeliveries + 1);
        let mut record = if *redeliveries < self.redeliveries_max {
            let header = Header { key: marker::REDELIVERIES, value: Some(&count) };
            let headers = OwnedHeaders::new().insert(header);
            FutureRecord::to(&topics.queue).partition(partition).headers(headers)
        } else {
            tracing::warn!("a message of {} was redelivered {redeliveries} times", topics.queue);
            FutureRecord::to(&topics.undelivered)
        };
        (record.key, record.payload) = (key.as_ref(), body.as_ref());
        self.producer.send_result(record).map_err(|(error, _)| refused(error))
    }

    /// Dropping it joins threads.
    pub(super) async fn close(self) {
        if let Err(failure) = tokio::task::spawn_blocking(move || drop(self)).await {
            tracing::debug!("the redeliverer ended badly: {failure}");
        }
    }
}

/// Reads the messages that are readable; `None` for those that no longer exist.
fn read(
    reader: &BaseConsumer<Quiet>,
    topic: &str,
    keys: Vec<Key>,
) -> (Vec<(Key, Option<Again>)>, Option<Failure>) {
    let mut read = Vec::with_capacity(keys.len());
    let mut left: VecDeque<Key> = keys.into();
    let deadline = Instant::now() + READ_PATIENCE;
    let mut at: Option<i64> = None;
    let failure = loop {
        let Some(&key) = left.front() else { break None };
        if at.is_none_or(|at| key.offset - at > GAP_MAX) {
            if let Err(failure) = read_from(reader, topic, key) {
                break Some(failure);
            }
            at = Some(key.offset);
        }
        match reader.poll(Duration::from_millis(100)) {
            None if Instant::now() > deadline => {
                let why = format!("message {} of {topic} could not be read", key.offset);
                break Some(Failure::Unknown(why));
            }
            None => {}
            Some(Ok(message)) => {
                at = Some(message.offset());
                while let Some(key) = left.pop_front_if(|key| key.offset < message.offset()) {
                    read.push((key, None));
                }
                if let Some(key) = left.pop_front_if(|key| key.offset == message.offset()) {
                    let again = Again {
                        key: message.key().map(<[u8]>::to_vec),
                        body: message.payload().map(<[u8]>::to_vec),
                        redeliveries: redeliveries(&message),
                    };
                    read.push((key, Some(again)));
                }
            }
            Some(Err(error)) if is_passing(&error) => tracing::debug!("reading again: {error}"),
            Some(Err(error)) => break Some(refused(error)),
        }
    };
    if let Err(error) = reader.unassign() {
        tracing::debug!("reading again: {error}");
    }
    (read, failure)
}

fn read_from(reader: &BaseConsumer<Quiet>, topic: &str, key: Key) -> Result<(), Failure> {
    let mut list = TopicPartitionList::new();
    let offset = Offset::Offset(key.offset);
    list.add_partition_offset(topic, key.partition, offset).map_err(refused)?;
    reader.assign(&list).map_err(refused)
}
