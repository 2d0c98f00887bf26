//! A disk that hangs, fails or is full: which appends are acknowledged, and which are refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::PartitionId;
use broker::{AppendError, CommitOffset};
use record::BatchOptions;
use world::disk::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_replicated_durability_acknowledges_before_the_sync() {
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
    // Not durable, so not visible to consumers either.
    assert_eq!(node.broker.bounds(written).expect("there").end, 0);
    disk.hang_syncs(false);
    assert_eq!(late.await[0].as_ref().expect("taken").base_offset, 0);
    wait_for(|| node.broker.bounds(written).expect("there").end == 1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_sync_stops_the_node_and_loses_nothing_acknowledged() {
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
async fn full_disk_refuses_records_until_there_is_room() {
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
    // Reading, committing and deleting still work.
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
