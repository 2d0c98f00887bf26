//! Housekeeping: the records that retention deletes and compaction keeps, and the times when they run.

use base::PartitionId;
use record::BatchOptions;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_deleted_after_their_retention_time() {
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
async fn clock_step_does_not_age_records() {
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
    // Both are checked in one round.
    wait_for(|| node.broker.bounds(looked).expect("there").log_start == 1).await;
    assert_eq!(node.broker.bounds(kept).expect("there").log_start, 0);
    node.clock.advance_ms(30 * 60 * 1000);
    wait_for(|| node.broker.bounds(kept).expect("there").log_start == 1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_with_an_old_timestamp_stays_for_one_check_interval() {
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
async fn compaction_keeps_the_last_batch_even_if_empty() {
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
    // The first pass keeps the tombstones and records their deletion time, the second drops them.
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
