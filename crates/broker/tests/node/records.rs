//! Records: they get dense offsets, survive a restart, and are found again.

use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendError, FetchError};
use record::BatchOptions;

use crate::harness::*;

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
async fn concurrent_producers_leave_no_gap_and_lose_nothing() {
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
async fn retried_batch_gets_its_first_offset() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let partition = PartitionId::new(node.topic("once", 1, &[]).await, 0);
    let numbered = |base_sequence| BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence,
        ..BatchOptions::default()
    };
    // Both are in flight together: the second depends on one that is not applied yet.
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
async fn watch_of_the_log_end_is_woken_by_the_next_record() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open(dir.path()).await;
    let partition = PartitionId::new(node.topic("tail", 1, &[]).await, 0);
    let broker = node.broker.clone();
    let waiting = tokio::spawn(async move {
        let watch = broker.watch();
        watch.add(partition);
        watch.ready().await;
        (watch.take_ready(), broker.read_raw_batches(partition, 0, 1 << 20).await)
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    node.append(partition, &["now"]).await;
    let (woken, batches) = waiting.await.expect("no panic");
    let batches = batches.expect("records");
    assert_eq!((woken, batches.high_watermark), (vec![partition], 1));
    assert_eq!(records(&batches.records[0]), vec![(0, "now".to_string())]);

    let nothing = node.broker.read_raw_batches(partition, 1, 1 << 20).await;
    assert!(nothing.expect("an empty answer").records.is_empty());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_partitions_and_offsets_beyond_the_end_are_reported() {
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
    let missing = node.broker.read_raw_batches(nowhere, 0, 1).await;
    assert!(matches!(missing, Err(FetchError::UnknownPartition(_))));
    let beyond = node.broker.read_raw_batches(partition, 2, 1).await;
    assert!(matches!(beyond, Err(FetchError::OffsetOutOfRange { end: 1, .. })));
    node.broker.shutdown().await;
}
