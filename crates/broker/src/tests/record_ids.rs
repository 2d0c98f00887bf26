//! Ids of records in the state of a shard.

use shard::dedup::Dedup;

use super::*;

fn with_id(partition: PartitionId, id: &str) -> AppendBatch {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    let header = record::Header { key: base::headers::ID.as_bytes(), value: Some(id.as_bytes()) };
    batch.push(1, None, Some(id.as_bytes()), &[header]).expect("has room");
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    AppendBatch::new(partition, header, bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_reads_the_log_for_ids_only_until_the_state_has_them() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[("dedup.window.ms", "600000")]).await;
    let shard = broker.shard_of(partition);
    let begun = async || {
        let mut dedup = Dedup::default();
        dedup.begin(&shard.shard, 0).await;
        dedup
    };
    assert!(begun().await.learns());
    // The first append to a topic with a window records that the state has all ids.
    append(&broker, partition, &["without an id".to_owned()]).await;
    assert!(!begun().await.learns());
    broker.append(vec![with_id(partition, "a")]).await.remove(0).expect("taken");
    assert!(!begun().await.learns());
    assert_eq!(shard.read(|view| view.rows.record_ids().len()), 1);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_with_too_many_ids_is_refused() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[("dedup.window.ms", "600000")]).await;
    let ids = shard::limits::DEDUP_IDS_PER_BATCH_MAX + 1;
    let ids = shard::record_ids::RecordIds((0..ids as u64).map(|at| (at, at.into())).collect());
    let too_many = AppendBatch { ids: Some(ids), ..with_id(partition, "a") };
    let refused = broker.append(vec![too_many]).await.remove(0).expect_err("it is too large");
    assert!(refused.to_string().contains("send smaller batches"), "{refused}");
    broker.append(vec![with_id(partition, "a")]).await.remove(0).expect("taken");
    broker.shutdown().await;
}
