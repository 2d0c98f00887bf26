//! Rounds carried out by hand, and the partitions that each examines.

use std::path::Path;
use std::sync::Arc;

use base::TopicId;
use broker::{Broker, BrokerOptions};
use bytes::BytesMut;
use machine::command::NewTopic;
use machine::{Catalog, KnownId, RecordIdsChange, TopicIdsChange};
use record::{BatchBuilder, BatchHeader, BatchOptions};
use shard::View;
use shard::append::AppendBatch;
use world::{Entropy, ManualClock, OsEntropy, SimulatedDisk, World};

use super::*;
use crate::housekeeping::record_ids::expired;

const START_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 60 * 60 * 1000;
const WEEK: (&str, &str) = ("retention.ms", "604800000");

struct Node {
    broker: Broker,
    clock: Arc<ManualClock>,
    housekeeping: Housekeeping,
}

impl Node {
    /// The broker's own housekeeping has done its first round, and does no other for a year.
    async fn open(disk: &SimulatedDisk) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let options = BrokerOptions {
            housekeeping_interval: Duration::from_secs(365 * 24 * 60 * 60),
            ..BrokerOptions::default()
        };
        let disk = Arc::new(disk.clone());
        let broker = Broker::open(
            World::on(disk).with_clock(Arc::clone(&clock) as _),
            Path::new("/data"),
            options,
        )
        .await
        .expect("opens");
        while broker.shards_with_rows()[0].shard.changes.all() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Self { broker, clock, housekeeping: Housekeeping::default() }
    }

    /// Returns the only shard with rows.
    fn shard(&self) -> &Arc<LocalShard> {
        &self.broker.shards_with_rows()[0]
    }

    async fn topic(&self, name: &str, partitions: u32, config: &[(&str, &str)]) -> TopicId {
        let config = config.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let uuid = OsEntropy.uuid();
        let new = NewTopic { name: name.into(), uuid, partitions, config };
        self.broker.create_topic(new).await.expect("the topic is new")
    }

    async fn append(&self, topic: TopicId, partitions: std::ops::Range<u32>, stamp_ms: i64) {
        let batches = partitions.map(|index| {
            let mut batch = BatchBuilder::new(BatchOptions::default());
            batch.push(stamp_ms, Some(b"key"), Some(b"value"), &[]).expect("has room");
            let bytes = BytesMut::from(&batch.finish()[..]);
            let header = BatchHeader::parse(&bytes).expect("a batch");
            AppendBatch::new(PartitionId::new(topic, index), header, bytes)
        });
        for answer in self.broker.append(batches.collect()).await {
            answer.expect("taken");
        }
    }

    async fn configure(&self, topic: TopicId, config: &[(&str, &str)]) {
        let config = config.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        self.broker.set_topic_config(topic, config).await.expect("configured");
    }

    /// Returns the numbers of partitions that retention and compaction examined.
    async fn round(&mut self) -> (usize, usize) {
        let ExaminedCounts { retention, compaction, .. } =
            self.housekeeping.round(&Arc::clone(self.shard())).await;
        (retention, compaction)
    }

    fn start(&self, topic: TopicId, index: u32) -> u64 {
        let partition = PartitionId::new(topic, index);
        self.shard().read(|state| state.rows.partition(partition).expect("there").log_start())
    }
}

#[tokio::test]
async fn unchanged_partitions_are_not_examined() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let topic = node.topic("kept", 1_000, &[WEEK]).await;
    node.append(topic, 0..100, START_MS).await;
    assert_eq!(node.round().await, (100, 0));
    assert_eq!(node.round().await, (0, 0));
    node.append(topic, 5..8, START_MS).await;
    assert_eq!(node.round().await, (3, 0));
    assert_eq!(node.round().await, (0, 0));
}

#[tokio::test]
async fn partition_is_examined_when_its_oldest_batch_expires() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let topic = node.topic("hour", 3, &[("retention.ms", "3600000")]).await;
    node.append(topic, 0..1, START_MS).await;
    node.append(topic, 1..2, START_MS + 1).await;
    node.append(topic, 2..3, START_MS + HOUR_MS).await;
    node.round().await;
    node.clock.advance_ms(HOUR_MS);
    assert_eq!(node.round().await, (0, 0), "as old as may be");
    node.clock.advance_ms(1);
    assert_eq!(node.round().await, (1, 0));
    node.clock.advance_ms(1);
    assert_eq!(node.round().await, (1, 0));
    assert_eq!(node.round().await, (0, 0), "found, and waiting for the check interval");
}

#[tokio::test]
async fn step_of_the_clock_neither_expires_nor_loses_a_date() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let topic = node.topic("hour", 1, &[("retention.ms", "3600000")]).await;
    node.append(topic, 0..1, START_MS).await;
    node.round().await;
    for step in [100 * HOUR_MS, -200 * HOUR_MS, 100 * HOUR_MS] {
        node.clock.step_ms(step);
        assert_eq!(node.round().await, (0, 0));
    }
    // The clock was 100 hours behind for a while; records stamped then do not expire earlier.
    node.clock.advance_ms(101 * HOUR_MS + 1);
    assert_eq!(node.round().await, (1, 0));
}

#[tokio::test]
async fn retention_and_reclaiming_continue_while_another_shard_compacts() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let compacted = node.topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let small = node.topic("small", 1, &[("retention.bytes", "1")]).await;
    node.append(compacted, 0..1, START_MS).await;
    for _ in 0..2 {
        node.append(small, 0..1, START_MS).await;
    }
    let work = HeavyWork::default();
    node.housekeeping.heavy = QueuedWork::in_line(&work);
    let another = QueuedWork::in_line(&work).take().expect("no shard compacts yet");
    let looks = node.housekeeping.round(&Arc::clone(node.shard())).await;
    assert_eq!(looks, ExaminedCounts { retention: 1, compaction: 0, space: true });
    assert_eq!(node.start(small, 0), 1);
    drop(another);
    assert_eq!(node.round().await.1, 1, "it was not forgotten");
}

#[tokio::test]
async fn changed_configuration_has_its_topic_examined() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let altered = node.topic("altered", 2, &[WEEK]).await;
    let other = node.topic("other", 2, &[WEEK]).await;
    for topic in [altered, other] {
        node.append(topic, 0..2, START_MS).await;
        node.append(topic, 0..2, START_MS).await;
    }
    assert_eq!(node.round().await, (4, 0));
    node.configure(altered, &[WEEK, ("retention.bytes", "1")]).await;
    assert_eq!(node.round().await, (2, 0));
    assert_eq!((node.start(altered, 0), node.start(other, 0)), (1, 0));
    node.round().await;
    node.configure(other, &[("cleanup.policy", "compact")]).await;
    assert_eq!(node.round().await, (0, 2), "retention has no say in it any more");
    node.broker.set_node_config(Default::default()).await.expect("configured");
    assert_eq!(node.round().await, (2, 2), "the node's concerns all");
}

#[tokio::test]
async fn restart_examines_each_partition_with_records_once() {
    let disk = SimulatedDisk::new();
    let node = Node::open(&disk).await;
    let kept = node.topic("kept", 300, &[WEEK]).await;
    node.append(kept, 0..200, START_MS).await;
    let compacted = node.topic("compacted", 20, &[("cleanup.policy", "compact")]).await;
    node.append(compacted, 0..10, START_MS).await;
    node.broker.shutdown().await;
    drop(node);

    let mut node = Node::open(&disk).await;
    node.housekeeping.survey.add_all();
    assert_eq!(node.round().await, (200, 10));
    assert_eq!(node.round().await, (0, 0));
}

#[tokio::test]
async fn examination_after_a_start_is_spread_over_rounds() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let partitions = 25_000;
    let topic = node.topic("many", partitions, &[WEEK]).await;
    for first in (0..partitions).step_by(1_000) {
        node.append(topic, first..first + 1_000, START_MS).await;
    }
    node.shard().shard.changes.take();
    node.housekeeping.survey.add_all();
    let mut looks = Vec::new();
    for _ in 0..4 {
        looks.push(node.round().await.0);
    }
    assert_eq!(looks, [10_000, 10_000, 5_000, 0]);
}

#[tokio::test]
async fn a_deleted_topic_leaves_nothing_behind() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let policy = ("cleanup.policy", "compact,delete");
    let topic = node.topic("gone", 5, &[policy, ("retention.ms", "1000")]).await;
    // Too old when appended, so that there are findings.
    node.append(topic, 0..5, START_MS - HOUR_MS).await;
    node.append(topic, 0..5, START_MS).await;
    node.round().await;
    assert!(node.housekeeping.retention.remembered() >= 10);
    assert!(node.housekeeping.compaction.remembered() >= 5);
    node.broker.delete_topic(topic).await.expect("deleted");
    node.round().await;
    assert_eq!(node.housekeeping.retention.remembered(), 0);
    assert_eq!(node.housekeeping.compaction.remembered(), 0);
}

#[tokio::test]
async fn dirty_partition_is_listed_per_eighth_of_growth_not_per_append() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let topic = node.topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let mut looks = 0;
    for _ in 0..400 {
        node.append(topic, 0..1, START_MS).await;
        looks += node.round().await.1;
    }
    assert!((10..60).contains(&looks), "{looks} of 400");
}

#[tokio::test]
async fn partition_is_compacted_once_when_its_segment_would_have_closed() {
    let mut node = Node::open(&SimulatedDisk::new()).await;
    let config = [("cleanup.policy", "compact"), ("segment.ms", "3600000")];
    let topic = node.topic("compacted", 1, &config).await;
    for _ in 0..5 {
        node.append(topic, 0..1, START_MS).await;
    }
    node.round().await;
    node.clock.advance_ms(HOUR_MS);
    assert_eq!(node.round().await, (0, 0));
    node.clock.advance_ms(1);
    let partition = PartitionId::new(topic, 0);
    let compacted_to = |node: &Node| {
        node.shard().read(|it| it.rows.partition(partition).map(|row| row.compacted_to()))
    };
    for _ in 0..100 {
        node.round().await;
        if compacted_to(&node) == Some(5) {
            break;
        }
    }
    assert_eq!(compacted_to(&node), Some(5));
    node.round().await;
    assert_eq!(node.round().await, (0, 0));
}

/// A new leader's copy of the catalog may be behind the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_a_topic_newer_than_the_catalog_are_kept() {
    let node = Node::open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 1, &[("dedup.window.ms", "60000")]).await;
    let shard = node.shard();
    let known = KnownId { hash: 1, at_ms: START_MS, partition: 0, offset: 0 };
    let inherited = vec![known];
    let change = TopicIdsChange { inherited, ..TopicIdsChange::new(topic, 0, 10) };
    let change = RecordIdsChange { topics: vec![change], complete: true };
    shard.execute(Command::RecordIds(change)).await.expect("stored");
    let before = Catalog::default();
    shard.read(|view| {
        assert_eq!(view.rows.record_ids().len(), 1);
        assert!(expired(view, START_MS).is_empty());
        let behind = View { catalog: &before, rows: view.rows, last_ms: 0, shard: view.shard };
        assert!(expired(&behind, START_MS).is_empty() && expired(&behind, i64::MAX).is_empty());
        assert_eq!(expired(view, START_MS + 10 * HOUR_MS).len(), 1);
    });
    node.broker.shutdown().await;
}
