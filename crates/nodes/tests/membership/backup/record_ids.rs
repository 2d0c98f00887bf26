//! Duplicates of records with an id: detected by the next leader and by a restored cluster, also if the first record is
//! deleted.

use base::{Levels, PartitionId, TopicId, headers};
use broker::{AppendBatch, Broker, NewTopic};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions, Header};
use test_cluster::NodeSetup;
use world::{Entropy, OsEntropy};

use super::{BackupNode, restored, started, taken};
use crate::harness::{Cluster, wait_for};

fn job(partition: PartitionId, id: &str) -> AppendBatch {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let header = Header { key: headers::ID.as_bytes(), value: Some(id.as_bytes()) };
    // Older than the window, by the producer's clock.
    builder.push(1_700_000_000_000, None, Some(id.as_bytes()), &[header]).expect("it fits");
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

/// Appends the job until it is acknowledged. Returns whether it was a duplicate.
async fn is_copy(broker: &Broker, partition: PartitionId, id: &str) -> bool {
    let mut copy = None;
    let answered = async || {
        let mut answers = broker.append_at_leaders(vec![job(partition, id)]).await;
        copy = answers.remove(0).ok().map(|appended| appended.duplicate);
        copy.is_some()
    };
    wait_for(answered, || format!("an answer to {id}")).await;
    copy.expect("it is answered")
}

/// Deletes the records before `end` at the leader of their shard.
async fn delete_all(cluster: &Cluster, partition: PartitionId, end: u64) {
    let shard = cluster.broker(cluster.any()).shard_with(partition);
    let deleted = async || {
        let leader = cluster.broker(cluster.leader(shard).await);
        leader.shards().advance_starts(vec![(partition, end)]).await.is_ok()
    };
    wait_for(deleted, || "deletion of the records".to_owned()).await;
}

async fn topic_with_window(cluster: &Cluster) -> TopicId {
    let config = [("dedup.window.ms".to_owned(), "3600000".to_owned())].into();
    let (name, uuid, partitions) = ("jobs".to_owned(), OsEntropy.uuid(), 1);
    let new = NewTopic { name, uuid, partitions, config };
    let topic = cluster.broker(1).create_topic(new).await.expect("the topic is new");
    for member in cluster.members.values() {
        let catalog = async || member.node.broker.catalog().topic(topic).is_some();
        wait_for(catalog, || "the topic".to_owned()).await;
    }
    topic
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_job_sent_again_is_recognised_by_next_leaders_and_in_a_restored_cluster() {
    let newest = Levels::OURS.max.0;
    let mut cluster = Cluster::start_all_with_levels(&[newest; 3]).await;
    let partition = PartitionId::new(topic_with_window(&cluster).await, 0);
    let shard = cluster.broker(1).shard_with(partition);
    let mut jobs: Vec<String> = Vec::new();
    for round in 0..3 {
        let asked = cluster.any();
        let id = format!("job {round}");
        assert!(!is_copy(cluster.broker(asked), partition, &id).await);
        jobs.push(id);
        delete_all(&cluster, partition, jobs.len() as u64).await;
        let leader = cluster.leader(shard).await;
        let place = cluster.end(leader).await;
        let other = cluster.any();
        for id in &jobs {
            assert!(is_copy(cluster.broker(other), partition, id).await, "{id} at the next leader");
        }
        assert_eq!(cluster.start_again(place).await, leader);
        cluster.are_ready().await;
    }
    let place = NodeSetup::elsewhere();
    taken(&BackupNode::node(&cluster, 2), &place).await.expect("it is taken");
    restored(&place).await.expect("it is restored");
    let after = started(&place, &cluster).await;
    for id in &jobs {
        assert!(is_copy(after.broker(1), partition, id).await, "{id} in the restored cluster");
    }
    assert!(!is_copy(after.broker(1), partition, "job 9").await);
    after.end_all().await;
    cluster.end_all().await;
}
