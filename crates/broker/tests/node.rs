//! One node, on a real disk: what a gateway may rely on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{
    AppendBatch, AppendError, Broker, BrokerOptions, CommitOffset, FetchError, NewTopic, Stored,
    batches_in,
};
use bytes::BytesMut;
use record::{Batch, BatchBuilder, BatchHeader, BatchOptions};
use world::disk::{RealDisk, SimulatedDisk};
use world::{Disk, Entropy, ManualClock, OsEntropy, World};

const START_MS: i64 = 1_700_000_000_000;

struct Node {
    broker: Broker,
    clock: Arc<ManualClock>,
}

async fn open(dir: &Path) -> Node {
    open_on(Arc::new(RealDisk), dir).await
}

async fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Node {
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
    async fn topic(&self, name: &str, partitions: u32, config: &[(&str, &str)]) -> TopicId {
        let topic = NewTopic {
            name: name.into(),
            uuid: OsEntropy.uuid(),
            partitions,
            config: config.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        };
        self.broker.create_topic(topic).await.expect("the topic is new")
    }

    async fn configure(&self, values: &[(&str, &str)]) {
        let config = values.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        self.broker.set_node_config(config).await.expect("configured");
    }

    async fn reads_to_the_end(&self, partition: PartitionId, end: u64) {
        for offset in 0..end {
            let read = self.broker.read_batches(partition, offset, 1 << 20).await.expect("reads");
            let last = read.records.last().expect("a batch that reaches the end");
            assert_eq!(next_offset(last), end, "read from {offset}");
        }
    }

    /// Returns when retention has looked at all that was there before the call: it deletes by size
    /// what is appended here.
    async fn wait_for_retention(&self) {
        let name = format!("looked-at-{}", OsEntropy.uuid());
        let config = [("retention.bytes", "1"), ("retention.ms", "-1")];
        let partition = PartitionId::new(self.topic(&name, 1, &config).await, 0);
        self.append(partition, &["first"]).await;
        self.append(partition, &["second"]).await;
        wait_for(|| self.broker.bounds(partition).expect("there").log_start > 0).await;
    }

    async fn append(&self, partition: PartitionId, values: &[&str]) -> u64 {
        let batch = batch(partition, BatchOptions::default(), values);
        let mut answers = self.broker.append(vec![batch]).await;
        answers.remove(0).expect("the batch is taken").base_offset
    }

    async fn values(&self, partition: PartitionId, from: u64) -> Vec<(u64, String)> {
        let mut values = Vec::new();
        let mut offset = from;
        loop {
            let batches =
                self.broker.read_batches(partition, offset, 1 << 20).await.expect("reads");
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

fn batch(partition: PartitionId, options: BatchOptions, values: &[&str]) -> AppendBatch {
    keyed(partition, options, &values.iter().map(|value| (None, Some(*value))).collect::<Vec<_>>())
}

fn keyed(
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

fn records(read: &Stored) -> Vec<(u64, String)> {
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

fn next_offset(read: &Stored) -> u64 {
    let last = batches_in(std::slice::from_ref(read)).last().expect("a batch").expect("whole");
    last.0.last_offset() + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_get_dense_offsets_and_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let topic = node.topic("orders", 2, &[]).await;
    let (first, second) = (PartitionId::new(topic, 0), PartitionId::new(topic, 1));
    assert_eq!(node.append(first, &["a", "b"]).await, 0);
    assert_eq!(node.append(second, &["x"]).await, 0);
    assert_eq!(node.append(first, &["c"]).await, 2);
    let expected = vec![(0, "a".into()), (1, "b".into()), (2, "c".to_string())];
    assert_eq!(node.values(first, 0).await, expected);
    node.broker.shutdown().await;
    drop(node);

    let node = open(dir.path()).await;
    assert_eq!(node.values(first, 0).await, expected);
    assert_eq!(node.values(second, 0).await, vec![(0, "x".to_string())]);
    assert_eq!(node.append(first, &["d"]).await, 3);
    assert_eq!(node.values(first, 2).await, vec![(2, "c".into()), (3, "d".to_string())]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_producers_at_once_leave_no_gap_and_lose_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let topic = node.topic("busy", 3, &[]).await;
    let mut producers = Vec::new();
    for producer in 0..16_u32 {
        let broker = node.broker.clone();
        producers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            for n in 0..50 {
                let partition = PartitionId::new(topic, (producer + n) % 3);
                let value = format!("{producer}-{n}");
                let batch = batch(partition, BatchOptions::default(), &[&value]);
                let offset = broker.append(vec![batch]).await.remove(0).expect("taken").base_offset;
                taken.push((partition, offset, value));
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for producer in producers {
        taken.extend(producer.await.expect("no panic"));
    }
    let mut total = 0;
    for index in 0..3 {
        let partition = PartitionId::new(topic, index);
        let values = node.values(partition, 0).await;
        assert!(values.iter().enumerate().all(|(at, (offset, _))| at as u64 == *offset));
        for (_, offset, value) in taken.iter().filter(|taken| taken.0 == partition) {
            assert_eq!(&values[*offset as usize].1, value);
        }
        total += values.len();
    }
    assert_eq!(total, 16 * 50);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retried_batch_is_answered_with_its_first_offset() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let partition = PartitionId::new(node.topic("once", 1, &[]).await, 0);
    let numbered = |base_sequence| BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence,
        ..BatchOptions::default()
    };
    // Both are under way together: the second stands on what is not applied yet.
    let first = node.broker.append(vec![batch(partition, numbered(0), &["a", "b"])]);
    let second = node.broker.append(vec![batch(partition, numbered(2), &["c"])]);
    let retry = node.broker.append(vec![batch(partition, numbered(0), &["a", "b"])]);
    let gap = node.broker.append(vec![batch(partition, numbered(9), &["z"])]);
    assert_eq!(first.await[0].as_ref().expect("taken").base_offset, 0);
    assert_eq!(second.await[0].as_ref().expect("taken").base_offset, 2);
    let retried = *retry.await[0].as_ref().expect("recognised");
    assert_eq!((retried.base_offset, retried.duplicate), (0, true));
    assert!(matches!(gap.await[0], Err(AppendError::Sequence(_))));
    let late = node.broker.append(vec![batch(partition, numbered(2), &["c"])]).await;
    assert_eq!(late[0].as_ref().expect("recognised").base_offset, 2);
    assert_eq!(node.values(partition, 0).await.len(), 3);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_the_end_is_woken_by_the_next_record() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let partition = PartitionId::new(node.topic("tail", 1, &[]).await, 0);
    let broker = node.broker.clone();
    let waiting = tokio::spawn(async move {
        let watch = broker.watch();
        watch.add(partition);
        watch.ready().await;
        (watch.take_ready(), broker.read_batches(partition, 0, 1 << 20).await)
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    node.append(partition, &["now"]).await;
    let (woken, batches) = waiting.await.expect("no panic");
    let batches = batches.expect("records");
    assert_eq!((woken, batches.high_watermark), (vec![partition], 1));
    assert_eq!(records(&batches.records[0]), vec![(0, "now".to_string())]);

    let nothing = node.broker.read_batches(partition, 1, 1 << 20).await;
    assert!(nothing.expect("an empty answer").records.is_empty());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_said_so() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let partition = PartitionId::new(node.topic("small", 1, &[]).await, 0);
    let nowhere = PartitionId::new(TopicId(999), 0);
    let answers = node.broker.append(vec![
        batch(nowhere, BatchOptions::default(), &["x"]),
        batch(partition, BatchOptions::default(), &["y"]),
    ]);
    let answers = answers.await;
    assert_eq!(answers[0], Err(AppendError::UnknownPartition(nowhere)));
    assert_eq!(answers[1].as_ref().expect("its neighbour is taken").base_offset, 0);
    let missing = node.broker.read_batches(nowhere, 0, 1).await;
    assert!(matches!(missing, Err(FetchError::UnknownPartition(_))));
    let beyond = node.broker.read_batches(partition, 2, 1).await;
    assert!(matches!(beyond, Err(FetchError::OffsetOutOfRange { end: 1, .. })));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_records_go_when_their_time_is_up() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    node.configure(&[("log.retention.check.interval.ms", "1")]).await;
    let partition = PartitionId::new(node.topic("old", 1, &[("retention.ms", "1000")]).await, 0);
    node.append(partition, &["a", "b"]).await;
    node.wait_for_retention().await;
    assert_eq!(node.broker.bounds(partition).expect("there").log_start, 0);
    node.clock.advance_ms(2000);
    wait_for(|| node.broker.bounds(partition).expect("there").log_start == 2).await;
    assert_eq!(node.append(partition, &["c"]).await, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_do_not_grow_old_by_a_step_of_the_clock() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    node.configure(&[("log.retention.check.interval.ms", "1")]).await;
    let kept = [("retention.ms", "1800000")];
    let kept = PartitionId::new(node.topic("kept", 1, &kept).await, 0);
    let looked = PartitionId::new(node.topic("looked", 1, &[("retention.ms", "1000")]).await, 0);
    node.append(kept, &["a"]).await;
    node.append(looked, &["b"]).await;
    node.clock.step_ms(60 * 60 * 1000);
    node.clock.advance_ms(2_000);
    // Both are looked at in one round.
    wait_for(|| node.broker.bounds(looked).expect("there").log_start == 1).await;
    assert_eq!(node.broker.bounds(kept).expect("there").log_start, 0);
    node.clock.advance_ms(30 * 60 * 1000);
    wait_for(|| node.broker.bounds(kept).expect("there").log_start == 1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_last_year_is_there_for_the_check_interval() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let config = [("retention.ms", "1000")];
    let partition = PartitionId::new(node.topic("backfill", 1, &config).await, 0);
    node.clock.advance_ms(365 * 24 * 60 * 60 * 1000);
    node.append(partition, &["then"]).await;

    node.wait_for_retention().await;
    node.wait_for_retention().await;
    assert_eq!(node.values(partition, 0).await, [(0, "then".to_owned())]);

    node.configure(&[("log.retention.check.interval.ms", "1")]).await;
    wait_for(|| node.broker.bounds(partition).expect("there").log_start == 1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_leaves_a_batch_that_reaches_the_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "10"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "10"),
    ];
    let partition = PartitionId::new(node.topic("emptied", 1, &config).await, 0);
    let put = |key, value| keyed(partition, BatchOptions::default(), &[(Some(key), value)]);
    for batch in [put("a", Some("1")), put("b", Some("1")), put("a", None), put("b", None)] {
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    // The first pass keeps the tombstones and says until when, the second drops them.
    node.clock.advance_ms(100);
    wait_for_values(&node, partition, &[(2, String::new()), (3, String::new())]).await;
    node.clock.advance_ms(100);
    wait_for_values(&node, partition, &[]).await;

    node.reads_to_the_end(partition, 4).await;
    node.broker.shutdown().await;
    drop(node);

    let node = open(dir.path()).await;
    node.reads_to_the_end(partition, 4).await;
    assert_eq!(node.append(partition, &["next"]).await, 4);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_keeps_the_last_record_of_a_key_and_drops_tombstones_later() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "10"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "5000"),
    ];
    let partition = PartitionId::new(node.topic("latest", 1, &config).await, 0);
    for round in 0..5 {
        let value = format!("v{round}");
        let batch = keyed(
            partition,
            BatchOptions::default(),
            &[(Some("a"), Some(&value)), (Some("b"), Some(&value))],
        );
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let gone = keyed(partition, BatchOptions::default(), &[(Some("b"), None)]);
    node.broker.append(vec![gone]).await.remove(0).expect("taken");
    node.clock.advance_ms(100);

    let after_first: Vec<(u64, String)> = vec![(8, "v4".into()), (10, String::new())];
    wait_for_values(&node, partition, &after_first).await;
    node.clock.advance_ms(6000);
    wait_for_values(&node, partition, &after_first[..1]).await;
    assert_eq!(node.append(partition, &["next"]).await, 11);
    node.broker.shutdown().await;
    drop(node);

    let node = open(dir.path()).await;
    assert_eq!(node.values(partition, 0).await[0], after_first[0]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_topic_that_says_so_is_acknowledged_before_the_sync() {
    let disk = SimulatedDisk::new();
    let node = open_on(Arc::new(disk.clone()), Path::new("/data")).await;
    let synced = PartitionId::new(node.topic("synced", 1, &[]).await, 0);
    let written =
        PartitionId::new(node.topic("written", 1, &[("durability", "replicated")]).await, 0);
    disk.hang_syncs(true);
    let append =
        |partition| node.broker.append(vec![batch(partition, BatchOptions::default(), &["x"])]);
    let early = tokio::time::timeout(Duration::from_secs(10), append(written)).await;
    assert_eq!(
        early.expect("answered without the sync")[0].as_ref().expect("taken").base_offset,
        0
    );
    let late = append(synced);
    tokio::pin!(late);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut late).await.is_err());
    // Not durable, so not shown to consumers either.
    assert_eq!(node.broker.bounds(written).expect("there").end, 0);
    disk.hang_syncs(false);
    assert_eq!(late.await[0].as_ref().expect("taken").base_offset, 0);
    wait_for(|| node.broker.bounds(written).expect("there").end == 1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_stops_the_node_and_loses_nothing_acknowledged() {
    let disk = SimulatedDisk::new();
    let node = open_on(Arc::new(disk.clone()), Path::new("/data")).await;
    let partition = PartitionId::new(node.topic("safe", 1, &[]).await, 0);
    node.append(partition, &["kept"]).await;
    disk.fail_sync("00000001.seg", 0);
    let answers = node.broker.append(vec![batch(partition, BatchOptions::default(), &["?"])]).await;
    assert!(matches!(answers[0], Err(AppendError::Unavailable(_))), "{answers:?}");
    let reason = tokio::time::timeout(Duration::from_secs(10), node.broker.failed()).await;
    assert!(reason.expect("the node asks to be stopped").contains("sync"));
    let after = node.broker.append(vec![batch(partition, BatchOptions::default(), &["!"])]).await;
    assert!(after[0].is_err(), "nothing is acknowledged after a failed sync");
    node.broker.shutdown().await;

    let node = open_on(Arc::new(disk.power_loss(1)), Path::new("/data")).await;
    assert_eq!(node.values(partition, 0).await[0], (0, "kept".to_string()));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_records_and_takes_them_again_when_there_is_room() {
    let disk = SimulatedDisk::new();
    let node = open_on(Arc::new(disk.clone()), Path::new("/data")).await;
    let partition = PartitionId::new(node.topic("big", 1, &[]).await, 0);
    node.append(partition, &["first"]).await;
    disk.set_capacity(Some(0));
    let mut refused = None;
    for _ in 0..500 {
        let batch = batch(partition, BatchOptions::default(), &["more"]);
        match node.broker.append(vec![batch]).await.remove(0) {
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(AppendError::StorageFull { .. })), "{refused:?}");
    // Reading, committing and deleting go on.
    assert_eq!(node.values(partition, 0).await[0].1, "first");
    let end = node.broker.bounds(partition).expect("there").end;
    let commit = CommitOffset {
        partition,
        offset: end,
        leader_epoch: -1,
        metadata: String::new(),
        expire_ms: None,
    };
    let shards = node.broker.shards();
    shards.commit_offsets("g", vec![commit]).await.expect("offsets are committed");
    shards.advance_starts(vec![(partition, 1)]).await.expect("records are deleted");
    disk.set_capacity(None);
    for _ in 0..500 {
        let batch = batch(partition, BatchOptions::default(), &["again"]);
        if node.broker.append(vec![batch]).await.remove(0).is_ok() {
            node.broker.shutdown().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("records are still refused though there is room");
}

async fn wait_for_values(node: &Node, partition: PartitionId, expected: &[(u64, String)]) {
    for _ in 0..500 {
        if node.values(partition, 0).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(node.values(partition, 0).await, expected);
}

async fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not come about in 10 seconds");
}
