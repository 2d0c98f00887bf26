//! Producers of a simulated cluster. Half of them look up the leader of a partition and append there, or at any
//! node, which rejects appends to partitions that it does not lead. The others append at any node, which forwards
//! to the leader. Some retry unanswered appends, with sequence numbers; the others give them up.

use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendError, AppendedBatch, Broker, NewTopic, ProducerIdentity, Unavailable};
use record::BatchOptions;
use tokio::time::{sleep, timeout};

use crate::cluster::{PRODUCERS, Shared};
use crate::history::sent_value;
use crate::random::Random;
use crate::verdict::Invariant;
use crate::workload::log::OpenBatchAppend;
use crate::workload::{RecordToSend, batch};

pub(crate) const TOPIC: &str = "log";
pub(crate) const PARTITIONS: u32 = 6;
/// Without a reply in this time a client retries at another node: the node may be gone, with all its requests.
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub(crate) struct Producer {
    id: u32,
    shared: Shared,
    random: Random,
    next: u32,
    /// The identity of an idempotent producer, with the next sequence number of each partition.
    identity: Option<(i64, [i32; PARTITIONS as usize])>,
}

impl Producer {
    pub(crate) fn new(id: u32, shared: Shared, random: Random) -> Self {
        Self { id, shared, random, next: 0, identity: None }
    }

    /// Appends until everything is healed, and then until pending appends are answered.
    pub(crate) async fn run(mut self) {
        let topic = topic(&self.shared, &mut self.random).await;
        if self.id.is_multiple_of(2) {
            self.identify().await;
        }
        while !self.shared.lock().is_healed {
            let records = 1 + self.random.below(4) as u32;
            let open = OpenBatchAppend {
                partition: self.random.below(PARTITIONS.into()) as u32,
                first: self.next,
                records,
                padding: self.random.below(3_000) as usize,
            };
            self.next += records;
            for sent in open.sent(self.id) {
                self.shared.lock().history.send(sent, open.partition);
            }
            while !self.append(topic, open).await {}
            let pause = self.random.between(0, 40);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn identify(&mut self) {
        loop {
            if let Some(broker) = self.shared.any_broker(&mut self.random) {
                let allocated = timeout(ANSWERED_WITHIN, broker.allocate_producer_id()).await;
                if let Ok(Ok(ProducerIdentity { id, .. })) = allocated {
                    self.identity = Some((id, [0; PARTITIONS as usize]));
                    return;
                }
            }
            self.pause().await;
        }
    }

    async fn pause(&mut self) {
        let ms = self.random.between(5, 100);
        sleep(Duration::from_millis(ms)).await;
    }

    /// Returns whether the append is done: acknowledged, or given up.
    async fn append(&mut self, topic: TopicId, open: OpenBatchAppend) -> bool {
        let partition = PartitionId::new(topic, open.partition);
        let is_brought = self.id >= PRODUCERS / 2;
        let broker = match is_brought || self.random.once_in(3) {
            true => self.shared.any_broker(&mut self.random),
            false => leader(&self.shared, &mut self.random, partition),
        };
        let Some(broker) = broker else {
            self.pause().await;
            return false;
        };
        let values: Vec<RecordToSend> = open
            .sent(self.id)
            .map(|sent| RecordToSend {
                key: None,
                value: sent_value(sent, open.padding),
                headers: Vec::new(),
            })
            .collect();
        let options = match &self.identity {
            Some((id, sequences)) => BatchOptions {
                producer_id: *id,
                producer_epoch: 0,
                base_sequence: sequences[open.partition as usize],
                ..BatchOptions::default()
            },
            None => BatchOptions::default(),
        };
        let batch = batch(partition, options, broker.clock().now_ms(), &values);
        let (node, batches) = (broker.node(), vec![batch]);
        let appended = match is_brought {
            true => broker.append_at_leaders(batches),
            false => broker.append(batches),
        };
        // The handle would keep a killed node in memory.
        drop(broker);
        let answer = timeout(ANSWERED_WITHIN, appended).await.map(|mut answers| answers.remove(0));
        let OpenBatchAppend { first, .. } = open;
        let trace = self.shared.lock().trace.clone();
        trace.note(format_args!("producer {} sent {first} to node {node}: {answer:?}", self.id));
        match answer {
            Ok(Ok(AppendedBatch { base_offset, .. })) => {
                for (sent, offset) in open.sent(self.id).zip(base_offset..) {
                    self.shared.lock().history.acknowledge(sent, offset);
                }
                if let Some((_, sequences)) = &mut self.identity {
                    sequences[open.partition as usize] += open.records as i32;
                }
                true
            }
            // Nothing was appended anywhere: every producer retries.
            Ok(Err(AppendError::Unavailable(Unavailable::NotLeader) | AppendError::Moving(_))) => {
                self.pause().await;
                false
            }
            Ok(Err(AppendError::Unavailable(_))) | Err(_) => {
                if self.identity.is_none() {
                    let mut state = self.shared.lock();
                    open.sent(self.id).for_each(|sent| state.history.abandon(sent));
                }
                self.pause().await;
                self.identity.is_none()
            }
            // The node does not know the topic yet, its disk is full, or the reply to an earlier refusal was lost.
            Ok(Err(
                AppendError::UnknownPartition(_)
                | AppendError::StorageFull { .. }
                | AppendError::RefusedBefore,
            )) => {
                self.pause().await;
                false
            }
            Ok(Err(other)) => {
                let what = format!("producer {} is refused: {other}", self.id);
                self.shared.lock().verdict.violated(Invariant::Alive, what);
                true
            }
        }
    }
}

/// The broker that leads the partition, if a node knows it and it runs.
pub(crate) fn leader(
    shared: &Shared,
    random: &mut Random,
    partition: PartitionId,
) -> Option<Broker> {
    let asked = shared.any_broker(random)?;
    let node = asked.leaders(partition.topic).of(partition.index).node?;
    shared.broker_of(node)
}

/// The topic, which is created if absent.
pub(crate) async fn topic(shared: &Shared, random: &mut Random) -> TopicId {
    topic_named(TOPIC, PARTITIONS, shared, random).await
}

pub(crate) async fn topic_named(
    name: &str,
    partitions: u32,
    shared: &Shared,
    random: &mut Random,
) -> TopicId {
    topic_with(name, partitions, &[("retention.ms", "-1")], shared, random).await
}

/// A topic with this configuration, which is created if absent.
pub(crate) async fn topic_with(
    name: &str,
    partitions: u32,
    config: &[(&str, &str)],
    shared: &Shared,
    random: &mut Random,
) -> TopicId {
    loop {
        if let Some(broker) = shared.any_broker(random) {
            let found = broker.catalog().topic_id(name);
            if let Some(topic) = found {
                return topic;
            }
            let topic = NewTopic {
                name: name.to_owned(),
                uuid: broker.entropy().uuid(),
                partitions,
                config: config
                    .iter()
                    .map(|(name, value)| ((*name).into(), (*value).into()))
                    .collect(),
            };
            let _ = timeout(ANSWERED_WITHIN, broker.create_topic(topic)).await;
        }
        let ms = random.between(5, 200);
        sleep(Duration::from_millis(ms)).await;
    }
}
