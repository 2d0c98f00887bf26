//! A node under test, with helpers to append and read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendBatch, Broker, BrokerOptions, NewTopic, StoredBatches, batches_in};
use bytes::BytesMut;
use record::{Batch, BatchBuilder, BatchHeader, BatchOptions};
use world::disk::RealDisk;
use world::{Disk, Entropy, ManualClock, OsEntropy, World};

const START_MS: i64 = 1_700_000_000_000;

pub(crate) struct Node {
    pub(crate) broker: Broker,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) async fn open(dir: &Path) -> Node {
    open_on(Arc::new(RealDisk), dir).await
}

pub(crate) async fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Node {
    let clock = Arc::new(ManualClock::new(START_MS));
    let options = BrokerOptions {
        journal: journal::Options { segment_bytes: 4 << 20, ..journal::Options::default() },
        housekeeping_interval: Duration::from_millis(20),
        ..BrokerOptions::default()
    };
    let broker = Broker::open(World::on(disk).with_clock(Arc::clone(&clock) as _), dir, options)
        .await
        .expect("opens");
    Node { broker, clock }
}

impl Node {
    pub(crate) async fn topic(
        &self,
        name: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> TopicId {
        let topic = NewTopic {
            name: name.into(),
            uuid: OsEntropy.uuid(),
            partitions,
            config: config.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        };
        self.broker.create_topic(topic).await.expect("the topic is new")
    }

    pub(crate) async fn configure(&self, values: &[(&str, &str)]) {
        let config = values.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        self.broker.set_node_config(config).await.expect("configured");
    }

    pub(crate) async fn reads_to_the_end(&self, partition: PartitionId, end: u64) {
        for offset in 0..end {
            let read =
                self.broker.read_raw_batches(partition, offset, 1 << 20).await.expect("reads");
            let last = read.records.last().expect("a batch that reaches the end");
            assert_eq!(next_offset(last), end, "read from {offset}");
        }
    }

    /// Returns when retention has checked everything that existed before the call: it deletes by size a batch
    /// that is appended here.
    pub(crate) async fn wait_for_retention(&self) {
        let name = format!("looked-at-{}", OsEntropy.uuid());
        let config = [("retention.bytes", "1"), ("retention.ms", "-1")];
        let partition = PartitionId::new(self.topic(&name, 1, &config).await, 0);
        self.append(partition, &["first"]).await;
        self.append(partition, &["second"]).await;
        wait_for(|| self.broker.bounds(partition).expect("there").log_start > 0).await;
    }

    pub(crate) async fn append(&self, partition: PartitionId, values: &[&str]) -> u64 {
        let batch = batch(partition, BatchOptions::default(), values);
        let mut answers = self.broker.append(vec![batch]).await;
        answers.remove(0).expect("the batch is taken").base_offset
    }

    pub(crate) async fn values(&self, partition: PartitionId, from: u64) -> Vec<(u64, String)> {
        let mut values = Vec::new();
        let mut offset = from;
        loop {
            let batches =
                self.broker.read_raw_batches(partition, offset, 1 << 20).await.expect("reads");
            if batches.records.is_empty() {
                return values;
            }
            for record in batches.records.iter().flat_map(records) {
                if record.0 >= offset {
                    offset = record.0 + 1;
                    values.push(record);
                }
            }
            offset = offset.max(next_offset(batches.records.last().expect("not empty")));
        }
    }
}

pub(crate) fn batch(partition: PartitionId, options: BatchOptions, values: &[&str]) -> AppendBatch {
    keyed(partition, options, &values.iter().map(|value| (None, Some(*value))).collect::<Vec<_>>())
}

pub(crate) fn keyed(
    partition: PartitionId,
    options: BatchOptions,
    records: &[(Option<&str>, Option<&str>)],
) -> AppendBatch {
    let mut builder = BatchBuilder::new(options);
    for (key, value) in records {
        builder
            .push(START_MS, key.map(str::as_bytes), value.map(str::as_bytes), &[])
            .expect("a small record fits");
    }
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

pub(crate) fn records(read: &StoredBatches) -> Vec<(u64, String)> {
    let bytes = read.clone().into_bytes();
    let mut found = Vec::new();
    for part in record::split(&bytes) {
        let (_, range) = part.expect("batches follow each other");
        let batch = Batch::decode(&bytes[range]).expect("a batch");
        for record in batch.records() {
            let record = record.expect("a record");
            let value = record
                .value
                .map_or(String::new(), |value| String::from_utf8(value.to_vec()).expect("text"));
            found.push((record.offset, value));
        }
    }
    found
}

pub(crate) fn next_offset(read: &StoredBatches) -> u64 {
    let last = batches_in(std::slice::from_ref(read)).last().expect("a batch").expect("whole");
    last.0.last_offset() + 1
}

pub(crate) async fn wait_for_values(
    node: &Node,
    partition: PartitionId,
    expected: &[(u64, String)],
) {
    for _ in 0..500 {
        if node.values(partition, 0).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(node.values(partition, 0).await, expected);
}

pub(crate) async fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not come about in 10 seconds");
}
