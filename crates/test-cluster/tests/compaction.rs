//! Key compaction of a shard with several members: each member compacts its own disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendBatch, AppendError, Broker, NewTopic, batches_in};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions};
use test_cluster::{SHARDS, TestNode, start_three};
use tokio::time::{sleep, timeout};
use world::{Entropy, Instant, OsEntropy};

const SOON: Duration = Duration::from_secs(60);
const KEYS: u32 = 10;
const ROUNDS: u32 = 40;
const VALUE_BYTES: usize = 2_000;
/// Size of a compacted partition: a record for each key, and a batch for each.
const COMPACTED_BYTES: u64 = KEYS as u64 * (VALUE_BYTES as u64 + 200);

async fn topic(broker: &Broker) -> TopicId {
    // With a ratio above zero one extra record would not be compacted.
    let config =
        [("cleanup.policy", "compact"), ("segment.ms", "1"), ("min.cleanable.dirty.ratio", "0")];
    let made = NewTopic {
        name: "states".to_owned(),
        uuid: OsEntropy.uuid(),
        partitions: SHARDS,
        config: config.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    };
    broker.create_topic(made).await.expect("the topic is new")
}

fn batch(broker: &Broker, partition: PartitionId, key: u32, round: u32) -> AppendBatch {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    let (key, value) = (key.to_string(), format!("{round:0VALUE_BYTES$}"));
    let now_ms = broker.clock().now_ms();
    let pushed = batch.push(now_ms, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    pushed.expect("it has room");
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    AppendBatch::new(partition, header, bytes)
}

/// Writes a record for each key of each partition.
async fn write(broker: &Broker, topic: TopicId, round: u32) {
    for (key, index) in (0..KEYS).flat_map(|key| (0..SHARDS).map(move |index| (key, index))) {
        let partition = PartitionId::new(topic, index);
        loop {
            let append = broker.append_at_leaders(vec![batch(broker, partition, key, round)]);
            match append.await.remove(0) {
                Ok(_) => break,
                // There is no leader for a moment.
                Err(AppendError::Unavailable(_)) => sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Waits until every disk holds little more than the newest record of each key.
async fn are_compacted(nodes: &[TestNode], topic: TopicId) {
    let deadline = Instant::now() + SOON;
    loop {
        let partitions: Vec<_> = (0..SHARDS).map(|index| PartitionId::new(topic, index)).collect();
        let mut bytes = BTreeMap::new();
        for node in nodes {
            let found = node.broker.shards().live_bytes(&partitions).await.expect("known");
            bytes.extend((0..).zip(found).map(|(index, it)| ((node.broker.node(), index), it)));
        }
        if bytes.values().all(|bytes| (1..=COMPACTED_BYTES).contains(bytes)) {
            return;
        }
        assert!(Instant::now() < deadline, "by node and partition: {bytes:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Keys and values of a partition; `None` if the node does not lead it.
async fn records(broker: &Broker, partition: PartitionId) -> Option<Vec<(String, String)>> {
    let text =
        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let (mut records, mut offset) = (Vec::new(), 0);
    loop {
        let read = broker.read_raw_batches(partition, offset, 8 << 20).await.ok()?;
        for found in batches_in(&read.records) {
            let (header, bytes) = found.expect("a batch");
            offset = header.base_offset + header.last_offset_delta as u64 + 1;
            let batch = record::SharedBatch::decode(&bytes).expect("records");
            for record in batch.records().map(|it| it.expect("a record")) {
                records.push((text(record.key), text(record.value)));
            }
        }
        if read.records.is_empty() {
            return Some(records);
        }
    }
}

/// Keys and values of a partition, read from its leader.
async fn read(nodes: &[TestNode], partition: PartitionId) -> Vec<(String, String)> {
    let deadline = Instant::now() + SOON;
    loop {
        for node in nodes {
            if let Some(records) = records(&node.broker, partition).await {
                return records;
            }
        }
        assert!(Instant::now() < deadline, "nobody leads {partition}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_compacts_its_own_disk_and_the_next_leader_has_each_key_once() {
    let nodes = timeout(SOON, start_three()).await.expect("they start");
    for node in &nodes {
        timeout(SOON, node.broker.ready()).await.expect("soon").expect("each shard has a leader");
    }
    let topic = topic(&nodes[0].broker).await;
    for round in 0..ROUNDS {
        write(&nodes[0].broker, topic, round).await;
    }
    are_compacted(&nodes, topic).await;
    // Another node leads, and must continue from its own compaction.
    nodes[0].broker.hand_over().await;
    for round in ROUNDS..2 * ROUNDS {
        write(&nodes[1].broker, topic, round).await;
    }
    are_compacted(&nodes, topic).await;
    for _ in &nodes {
        for index in 0..SHARDS {
            let records = read(&nodes, PartitionId::new(topic, index)).await;
            let keys: BTreeSet<&String> = records.iter().map(|(key, _)| key).collect();
            assert_eq!((keys.len(), records.len()), (KEYS as usize, KEYS as usize));
            let newest = format!("{:0VALUE_BYTES$}", 2 * ROUNDS - 1);
            assert!(records.iter().all(|(_, value)| *value == newest));
        }
        for node in &nodes {
            node.broker.hand_over().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_pauses_while_a_member_is_down_and_resumes_when_it_is_back() {
    let mut nodes = timeout(SOON, start_three()).await.expect("they start");
    for node in &nodes {
        timeout(SOON, node.broker.ready()).await.expect("soon").expect("each shard has a leader");
    }
    let topic = topic(&nodes[0].broker).await;
    write(&nodes[0].broker, topic, 0).await;
    let place = nodes.pop().expect("the third").end().await;
    for round in 1..ROUNDS {
        write(&nodes[0].broker, topic, round).await;
    }
    let frames = |nodes: &[TestNode]| -> u64 {
        nodes.iter().flat_map(|node| node.broker.journal_stats()).map(|stats| stats.frames).sum()
    };
    sleep(Duration::from_secs(2)).await;
    let before = frames(&nodes);
    sleep(Duration::from_secs(8)).await;
    assert_eq!(frames(&nodes), before, "entries that do nothing are written again and again");
    nodes.push(timeout(SOON, test_cluster::start(place)).await.expect("it starts again"));
    are_compacted(&nodes, topic).await;
}
