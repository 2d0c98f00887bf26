//! A node with several shards behaves as one with one.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::{Offset, PartitionId, TopicId};
use bytes::BytesMut;
use machine::{CommitOffset, NewTopic, Refusal};
use record::{BatchBuilder, BatchHeader, BatchOptions};
use shard::append::{AppendBatch, AppendedBatch};
use world::{Entropy, OsEntropy, SimulatedDisk, World};

use crate::{Broker, BrokerOptions, OpenError};

const SHARDS: u32 = 3;

async fn open(disk: &SimulatedDisk) -> Broker {
    open_with(disk, Some(SHARDS)).await.expect("opens")
}

async fn open_with(disk: &SimulatedDisk, shards: Option<u32>) -> Result<Broker, OpenError> {
    let world = World::on(Arc::new(disk.clone()));
    let options = BrokerOptions { shards, ..BrokerOptions::default() };
    Broker::open(world, Path::new("/data"), options).await
}

async fn topic(broker: &Broker, name: &str, partitions: u32) -> TopicId {
    let uuid = OsEntropy.uuid();
    let config = Default::default();
    let new = NewTopic { name: name.to_owned(), uuid, partitions, config };
    broker.create_topic(new).await.expect("the topic is new")
}

fn batch(partitions: &[PartitionId], value: &str) -> AppendBatch {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.push(1, None, Some(value.as_bytes()), &[]).expect("has room");
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let also = partitions[1..].to_vec();
    AppendBatch { also, ..AppendBatch::new(partitions[0], header, bytes) }
}

async fn append(broker: &Broker, batches: Vec<AppendBatch>) -> Vec<Offset> {
    let answers = broker.append(batches).await.into_iter();
    answers.map(|it: Result<AppendedBatch, _>| it.expect("taken").base_offset).collect()
}

async fn values(broker: &Broker, partition: PartitionId) -> Vec<String> {
    let read = broker.read_batches(partition, 0, 1 << 20).await.expect("there");
    let mut values = Vec::new();
    for found in read.iter() {
        let (_, bytes) = found.expect("a batch");
        let batch = record::SharedBatch::decode(&bytes).expect("records");
        for record in batch.records().map(|it| it.expect("a record")) {
            let value = record.value.expect("a value");
            values.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    values
}

fn partitions(topic: TopicId, count: u32) -> Vec<PartitionId> {
    (0..count).map(|index| PartitionId::new(topic, index)).collect()
}

#[tokio::test]
async fn every_partition_keeps_its_records_over_a_restart() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let (one, many) = (topic(&broker, "one", 1).await, topic(&broker, "many", 7).await);
    let mut all = partitions(one, 1);
    all.extend(partitions(many, 7));
    let homes: Vec<_> = all.iter().map(|id| broker.shard_of(*id).id()).collect();
    assert!((1..=SHARDS).all(|shard| homes.iter().any(|home| home.0 == shard)), "{homes:?}");
    // One batch for each partition, between two that go to all of them.
    let mut request = vec![batch(&all, "first")];
    request.extend(all.iter().map(|id| batch(&[*id], &id.to_string())));
    request.push(batch(&all, "last"));
    let offsets = append(&broker, request).await;
    let expected: Vec<Offset> =
        [vec![0; all.len()], vec![1; all.len()], vec![2; all.len()]].concat();
    assert_eq!(offsets, expected);
    broker.shutdown().await;
    let broker = open(&disk).await;
    for &id in &all {
        assert_eq!(values(&broker, id).await, ["first", &id.to_string(), "last"]);
    }
    let bounds = broker.shards().bounds(&all).await.expect("answered");
    assert!(bounds.iter().all(|it| it.is_some_and(|it| it.end == 3)), "{bounds:?}");
    broker.shutdown().await;
}

#[tokio::test]
async fn topics_created_after_adding_shards_use_all_of_them() {
    let disk = SimulatedDisk::new();
    let broker = open_with(&disk, None).await.expect("opens");
    let old = partitions(topic(&broker, "old", 4).await, 4);
    append(&broker, vec![batch(&old, "first")]).await;
    broker.shutdown().await;

    let broker = open(&disk).await;
    let new = partitions(topic(&broker, "new", 4).await, 4);
    append(&broker, vec![batch(&old, "second"), batch(&new, "first")]).await;
    let homes = |ids: &[PartitionId]| {
        let homes: BTreeSet<_> = ids.iter().map(|id| broker.shard_of(*id).id()).collect();
        homes.len()
    };
    assert_eq!((homes(&old), homes(&new)), (1, SHARDS as usize));
    let statuses = broker.shard_statuses();
    let rows: Vec<_> = statuses.iter().map(|it| (it.shard.0, it.topics, it.partitions)).collect();
    let all: u64 = statuses.iter().map(|it| it.partitions).sum();
    assert_eq!((rows.len(), rows[0], all), (SHARDS as usize + 1, (0, 0, 0), 8), "{rows:?}");
    broker.shutdown().await;

    let refused = open_with(&disk, Some(SHARDS - 1)).await.map(|_| ()).expect_err("too few");
    assert!(matches!(refused, OpenError::FewerShards { there: SHARDS, wanted: 2 }), "{refused}");
    let broker = open_with(&disk, None).await.expect("opens with those that there are");
    for id in old {
        assert_eq!(values(&broker, id).await, ["first", "second"]);
    }
    for id in new {
        assert_eq!(values(&broker, id).await, ["first"]);
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn growth_and_deletion_of_a_topic_reach_all_shards() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let topic = topic(&broker, "t", 1).await;
    broker.create_partitions(topic, 6).await.expect("grown");
    let all = partitions(topic, 6);
    append(&broker, vec![batch(&all, "x")]).await;
    let starts = all.iter().map(|id| (*id, 1)).collect();
    let moved = broker.shards().advance_starts(starts).await.expect("answered");
    assert!(moved.iter().all(|start| *start == Ok(1)), "{moved:?}");
    broker.delete_topic(topic).await.expect("deleted");
    let bounds = broker.shards().bounds(&all).await.expect("answered");
    assert!(bounds.iter().all(Option::is_none), "{bounds:?}");
    for shard in broker.shards_with_rows() {
        assert_eq!(shard.read(|view| view.rows.topics().count()), 0);
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn offsets_of_a_group_are_in_its_home_shard() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let topic = topic(&broker, "t", 4).await;
    let groups: Vec<String> = (0..20).map(|number| format!("group {number}")).collect();
    let commit = |index| CommitOffset {
        partition: PartitionId::new(topic, index),
        offset: 7,
        leader_epoch: -1,
        metadata: String::new(),
        expire_ms: None,
    };
    for group in &groups {
        let refused = broker.shards().commit_offsets(group, vec![commit(0), commit(9)]).await;
        let partition = PartitionId::new(topic, 9);
        let unknown = (partition, Refusal::UnknownPartition { partition });
        assert_eq!(refused.expect("answered"), [unknown]);
    }
    let homes: Vec<_> = groups.iter().map(|group| broker.home_of(group).id()).collect();
    assert!((1..=SHARDS).all(|shard| homes.iter().any(|home| home.0 == shard)), "{homes:?}");
    assert_eq!(broker.shards().offset_group_count().await, Ok(20));
    let first = broker.shards().offset_groups_after("", 3).await.expect("answered");
    assert_eq!(first, ["group 0", "group 1", "group 10"]);
    let has = broker.shards().have_offsets(&groups).await.expect("answered");
    assert!(has.iter().all(|has| *has));
    broker.delete_topic(topic).await.expect("deleted");
    assert_eq!(broker.shards().offset_group_count().await, Ok(0));
    broker.shutdown().await;
}
