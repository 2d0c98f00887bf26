use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, Received, Receiver, Settle};
use futures_util::future::try_join_all;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::marker::{self, Key, Marker};
use super::tracker::Tracked;
use super::writer::{MarkerWriter, written};
use super::{Quiet, Topics};
use crate::kafka::client::{receive_some, refused};

pub(super) struct KmqReceiver {
    client: Option<Arc<StreamConsumer<Quiet>>>,
    topics: Vec<Topics>,
    markers: MarkerWriter,
    lease_ms: i64,
    /// By delivery: index of its topics, and the message.
    open: HashMap<u64, (usize, Key)>,
    deliveries: u64,
    /// Keeps the tracker running as long as there is a receiver.
    tracked: Tracked,
}

/// A polled message.
struct Polled {
    topics: usize,
    key: Key,
    body: Bytes,
    redelivered: bool,
}

impl fmt::Debug for KmqReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KmqReceiver").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl KmqReceiver {
    pub(super) fn new(
        consumer: &ClientConfig,
        markers: MarkerWriter,
        topics: Vec<Topics>,
        lease_ms: i64,
        tracked: Tracked,
    ) -> Result<Self, Failure> {
        let client: StreamConsumer<Quiet> = consumer.create_with_context(Quiet).map_err(refused)?;
        let names: Vec<&str> = topics.iter().map(|topics| topics.queue.as_str()).collect();
        client.subscribe(&names).map_err(refused)?;
        Ok(Self {
            client: Some(Arc::new(client)),
            topics,
            markers,
            lease_ms,
            open: HashMap::new(),
            deliveries: 0,
            tracked,
        })
    }

    fn client(&self) -> Result<&Arc<StreamConsumer<Quiet>>, Failure> {
        self.client.as_ref().ok_or_else(|| Failure::refused("the receiver is closed"))
    }

    fn polled(&self, message: &BorrowedMessage<'_>) -> Option<Polled> {
        let topics = self.topics.iter().position(|topics| topics.queue == message.topic())?;
        let key = Key { partition: message.partition(), offset: message.offset() };
        let redelivered = redeliveries(message) > 0;
        // The client lends the body only while the message is held.
        let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        Some(Polled { topics, key, body, redelivered })
    }

    async fn poll(&self, max: usize) -> Result<Vec<Polled>, Failure> {
        receive_some(self.client()?, max, |message| self.polled(message)).await
    }

    async fn start(&self, polled: &[Polled]) -> Result<(), Failure> {
        let start = Marker::Start { redeliver_after_ms: self.lease_ms };
        let begun: Vec<_> = polled
            .iter()
            .map(|polled| {
                let topic = &self.topics[polled.topics].markers;
                self.markers.begin(topic, polled.key, start)
            })
            .collect::<Result<_, _>>()?;
        try_join_all(begun.into_iter().map(written)).await?;
        Ok(())
    }

    async fn commit(&self, polled: &[Polled]) -> Result<(), Failure> {
        let mut next: HashMap<(usize, i32), i64> = HashMap::new();
        for Polled { topics, key, .. } in polled {
            let next = next.entry((*topics, key.partition)).or_default();
            *next = (*next).max(key.offset + 1);
        }
        let mut list = TopicPartitionList::new();
        for ((topics, partition), offset) in next {
            let topic = &self.topics[topics].queue;
            list.add_partition_offset(topic, partition, Offset::Offset(offset)).map_err(refused)?;
        }
        let client = Arc::clone(self.client()?);
        let committed = tokio::task::spawn_blocking(move || client.commit(&list, CommitMode::Sync));
        committed.await.map_err(Failure::unknown)?.map_err(refused)
    }
}

pub(super) fn redeliveries(message: &impl Message) -> i32 {
    let Some(headers) = message.headers() else { return 0 };
    let header = headers.iter().find(|header| header.key == marker::REDELIVERIES);
    header.and_then(|header| marker::decode_count(header.value?)).unwrap_or(0)
}

#[async_trait]
impl Receiver for KmqReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        self.markers.check().await?;
        let polled = self.poll(max).await?;
        if polled.is_empty() {
            return Ok(Vec::new());
        }
        self.start(&polled).await?;
        self.commit(&polled).await?;
        let mut received = Vec::with_capacity(polled.len());
        for Polled { topics, key, body, redelivered } in polled {
            self.deliveries += 1;
            self.open.insert(self.deliveries, (topics, key));
            let redelivered = Some(redelivered);
            received.push(Received { id: DeliveryId(self.deliveries), body, redelivered });
        }
        Ok(received)
    }

    /// There is no release: a message without an end marker is redelivered after its lease.
    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        self.markers.check().await?;
        for &(DeliveryId(delivery), settle) in settles {
            let Some((topics, key)) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            if settle == Settle::Accept {
                self.markers.end(&self.topics[topics].markers, key).await?;
            }
        }
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { client, markers, tracked, .. } = *self;
        let closed = markers.close().await;
        // Leaving the group waits for the coordinator.
        tokio::task::spawn_blocking(move || drop(client)).await.map_err(Failure::unknown)?;
        tracked.end().await;
        closed
    }
}
