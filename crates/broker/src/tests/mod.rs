//! Nodes with several shards, one of which sends to another: each test reads the logs of both.

mod committed_reads;
mod copies;
mod crashes;
mod dead_letters;
mod elections;
mod formats;
mod full_outboxes;
mod moves;
mod record_ids;
mod rewrites;
mod transactions;
mod transfers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use bytes::BytesMut;
use machine::NewTopic;
use record::{BatchBuilder, BatchHeader, BatchOptions};
use shard::LocalShard;
use shard::append::AppendBatch;
use shard::delivery::event::Delivery;
use shard::delivery::options::{Settle, TakeOptions};
use shard::journal_batches::batches_in;
use world::{Entropy, OsEntropy, SimulatedDisk, World};

use crate::delivery::{LeaseSession, Settlement};
use crate::error::OpenError;
use crate::{Broker, BrokerOptions};

const SHARDS: u32 = 3;

fn options() -> BrokerOptions {
    BrokerOptions {
        journal: journal::Options {
            segment_bytes: 1 << 20,
            disk_reserve_bytes: 0,
            ..journal::Options::default()
        },
        housekeeping_interval: Duration::from_millis(10),
        shards: Some(SHARDS),
        ..BrokerOptions::default()
    }
}

async fn try_open(disk: &SimulatedDisk) -> Result<Broker, OpenError> {
    let world = World::on(Arc::new(disk.clone()));
    Broker::open(world, Path::new("/data"), options()).await
}

async fn open(disk: &SimulatedDisk) -> Broker {
    try_open(disk).await.expect("opens")
}

fn values_of(config: &[(&str, &str)]) -> BTreeMap<String, String> {
    config.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

async fn topic(broker: &Broker, name: &str, partitions: u32, config: &[(&str, &str)]) -> TopicId {
    let (name, uuid) = (name.to_owned(), OsEntropy.uuid());
    let new = NewTopic { name, uuid, partitions, config: values_of(config) };
    broker.create_topic(new).await.expect("the topic is new")
}

/// Creates a topic whose first partition is in this shard.
async fn topic_in(broker: &Broker, shard: u32, name: &str, config: &[(&str, &str)]) -> PartitionId {
    for number in 0.. {
        let id = topic(broker, "candidate", 1, &[]).await;
        broker.delete_topic(id).await.expect("it is there");
        // The next topic goes to the shard after it.
        if (id.0 + 1) % SHARDS + 1 == shard {
            break;
        }
        assert!(number < SHARDS);
    }
    let partition = PartitionId::new(topic(broker, name, 1, config).await, 0);
    assert_eq!(broker.shard_of(partition).id(), ShardId(shard));
    partition
}

async fn group(broker: &Broker, topic: TopicId, config: &[(&str, &str)]) -> LeaseGroupId {
    let made = broker.create_lease_group(topic, "main".into(), Vec::new(), values_of(config));
    made.await.expect("the group is new")
}

fn batch(partitions: &[PartitionId], values: &[String]) -> AppendBatch {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    for value in values {
        batch.push(1, None, Some(value.as_bytes()), &[]).expect("has room");
    }
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let also = partitions[1..].to_vec();
    AppendBatch { also, ..AppendBatch::new(partitions[0], header, bytes) }
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

async fn append(broker: &Broker, partition: PartitionId, values: &[String]) {
    for answer in broker.append(vec![batch(&[partition], values)]).await {
        answer.expect("taken");
    }
}

async fn values(broker: &Broker, partition: PartitionId) -> Vec<String> {
    let (mut values, mut offset) = (Vec::new(), 0);
    loop {
        let read = broker.read_raw_batches(partition, offset, 8 << 20).await.expect("there");
        for found in batches_in(&read.records) {
            let (header, bytes) = found.expect("a batch");
            offset = header.base_offset + header.last_offset_delta as u64 + 1;
            let batch = record::SharedBatch::decode(&bytes).expect("records");
            for record in batch.records().map(|it| it.expect("a record")) {
                let value = record.value.expect("a value");
                values.push(String::from_utf8(value.to_vec()).expect("text"));
            }
        }
        if offset >= read.high_watermark {
            return values;
        }
    }
}

/// Number of records in a partition without deletions.
fn values_count(broker: &Broker, partition: PartitionId) -> u64 {
    broker.bounds(partition).map_or(0, |bounds| bounds.end)
}

async fn take(session: &LeaseSession, group: LeaseGroupId, records_max: u32) -> Vec<Delivery> {
    let wait = Duration::ZERO;
    let options = TakeOptions { records_max, wait, ..TakeOptions::default() };
    session.take(group, options).await.expect("may take")
}

fn settles(deliveries: &[Delivery], settlement: Settlement) -> Vec<Settle> {
    let settle =
        |delivery: &Delivery| Settle { group: delivery.group, what: delivery.lease(), settlement };
    deliveries.iter().map(settle).collect()
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.value().expect("a value").to_vec()).expect("text")
}

/// Rejects one record after the other: each is a message of its own.
async fn reject_each(session: &LeaseSession, taken: &[Delivery]) {
    for delivery in taken {
        let settles = settles(std::slice::from_ref(delivery), Settlement::Reject);
        for answer in session.settle(settles).await {
            answer.expect("settled");
        }
    }
}

/// Number of unacknowledged messages, over all shards.
fn unacknowledged(broker: &Broker) -> usize {
    let of_shard = |shard: &Arc<LocalShard>| -> usize {
        let rows = shard.shard.rows();
        rows.channels().outboxes().map(|(_, outbox)| outbox.len()).sum()
    };
    broker.shards_with_rows().iter().map(of_shard).sum()
}

/// Number of messages ever sent, over all shards.
fn channel_ends(broker: &Broker) -> u64 {
    let of_shard = |shard: &Arc<LocalShard>| -> u64 {
        let rows = shard.shard.rows();
        rows.channels().outboxes().map(|(_, outbox)| outbox.end()).sum()
    };
    broker.shards_with_rows().iter().map(of_shard).sum()
}

/// Bytes of channels in the journals.
fn channel_bytes(broker: &Broker) -> u64 {
    let shards = broker.shards_with_rows();
    let channels = (1..=SHARDS).map(|to| PartitionId::channel_to(ShardId(to)).stream());
    let of_shard = |stream| shards.iter().map(move |it| it.journal().stream_bytes(stream));
    channels.flat_map(of_shard).sum()
}

async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..2_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} did not come about in 10 seconds");
}

/// Waits until all messages are acknowledged, and their bytes are freed.
async fn wait_for_quiet(broker: &Broker) {
    wait_for("an end of all messages", async || {
        unacknowledged(broker) == 0 && channel_bytes(broker) == 0
    })
    .await;
}
