use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, Received, Receiver, Settle, Topology};
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer,
};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::client::{receive_some, refused};
use crate::positions::{Partition, Positions};

/// Shared with the client, which reports partitions that are reassigned.
#[derive(Clone, Debug)]
struct Ground {
    positions: Arc<Mutex<Positions>>,
    /// Destinations by topic name.
    destinations: Arc<HashMap<String, u32>>,
    /// Topic names by destination.
    topics: Arc<HashMap<u32, String>>,
}

impl Ground {
    /// Positions to commit, if any.
    fn moved(&self) -> Option<TopicPartitionList> {
        let moved = self.positions.lock().moved();
        let mut list = TopicPartitionList::new();
        for ((destination, partition), position) in moved {
            let topic = self.topics.get(&destination)?;
            list.add_partition_offset(topic, partition, Offset::Offset(position)).ok()?;
        }
        (list.count() > 0).then_some(list)
    }

    fn partition_of(&self, topic: &str, partition: i32) -> Option<Partition> {
        self.destinations.get(topic).map(|destination| (*destination, partition))
    }
}

impl ClientContext for Ground {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!("librdkafka {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("librdkafka: {error}: {reason}");
    }
}

impl ConsumerContext for Ground {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(lost) = rebalance else { return };
        if let Some(list) = self.moved()
            && let Err(error) = consumer.commit(&list, CommitMode::Sync)
        {
            // The messages are redelivered to the new owner of the partitions.
            tracing::debug!("committing what is given up: {error}");
        }
        let elements = lost.elements();
        let lost: HashSet<Partition> = elements
            .iter()
            .filter_map(|lost| self.partition_of(lost.topic(), lost.partition()))
            .collect();
        self.positions.lock().forget(&lost);
    }
}

pub(super) struct KafkaReceiver {
    client: Option<StreamConsumer<Ground>>,
    ground: Ground,
    commit_every: Duration,
    committed_at: Instant,
}

impl fmt::Debug for KafkaReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaReceiver").field("ground", &self.ground).finish_non_exhaustive()
    }
}

impl KafkaReceiver {
    pub(super) fn new(
        config: &ClientConfig,
        topology: &Topology,
        destinations: &[u32],
        commit_every: Duration,
    ) -> Result<Self, Failure> {
        let name = |&destination: &u32| (destination, topology.destination(destination));
        let topics: HashMap<u32, String> = destinations.iter().map(name).collect();
        let back = topics.iter().map(|(destination, topic)| (topic.clone(), *destination));
        let ground = Ground {
            positions: Arc::default(),
            destinations: Arc::new(back.collect()),
            topics: Arc::new(topics),
        };
        let client: StreamConsumer<Ground> =
            config.create_with_context(ground.clone()).map_err(refused)?;
        let topics: Vec<&str> = ground.topics.values().map(String::as_str).collect();
        client.subscribe(&topics).map_err(refused)?;
        Ok(Self { client: Some(client), ground, commit_every, committed_at: Instant::now() })
    }

    fn client(&self) -> Result<&StreamConsumer<Ground>, Failure> {
        self.client.as_ref().ok_or_else(|| Failure::refused("the receiver is closed"))
    }

    fn taken(&self, message: &BorrowedMessage<'_>) -> Option<Received> {
        let partition = self.ground.partition_of(message.topic(), message.partition())?;
        let id = self.ground.positions.lock().came(partition, message.offset())?;
        // The client lends the body only while the message is held.
        let body = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        Some(Received { id: DeliveryId(id), body, redelivered: None })
    }

    fn commit(&mut self, mode: CommitMode) -> Result<(), Failure> {
        self.committed_at = Instant::now();
        match self.ground.moved() {
            None => Ok(()),
            Some(list) => self.client()?.commit(&list, mode).map_err(refused),
        }
    }

    fn commit_if_due(&mut self) -> Result<(), Failure> {
        if self.committed_at.elapsed() < self.commit_every {
            return Ok(());
        }
        self.commit(CommitMode::Async)
    }
}

#[async_trait]
impl Receiver for KafkaReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        self.commit_if_due()?;
        let client = self.client()?;
        receive_some(client, max, |message| self.taken(message)).await
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let mut back: HashMap<Partition, i64> = HashMap::new();
        {
            let mut positions = self.ground.positions.lock();
            for &(DeliveryId(id), settle) in settles {
                match settle {
                    Settle::Accept => positions.accept(id),
                    Settle::Release => {
                        if let Some((partition, offset)) = positions.release(id) {
                            let first = back.entry(partition).or_insert(offset);
                            *first = offset.min(*first);
                        }
                    }
                }
            }
        }
        for ((destination, partition), offset) in back {
            let Some(topic) = self.ground.topics.get(&destination) else { continue };
            let offset = Offset::Offset(offset);
            self.client()?.seek(topic, partition, offset, Duration::ZERO).map_err(refused)?;
        }
        self.commit_if_due()
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let committed = self.commit(CommitMode::Sync);
        let client = self.client.take();
        // Leaving the group waits for the coordinator.
        tokio::task::spawn_blocking(move || drop(client)).await.map_err(Failure::unknown)?;
        committed
    }
}
