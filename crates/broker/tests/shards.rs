//! Gateways' queries to the catalog and to shards: results are in the order of the request, and deleted items
//! are reported as missing.

use std::path::Path;
use std::sync::Arc;

use base::{PartitionId, TopicId};
use broker::{
    Bounds, Broker, BrokerOptions, CommitOffset, EpochEnd, ExecuteError, NewTopic, Refusal,
};
use world::{SimulatedDisk, World};

async fn open() -> Broker {
    let world = World::on(Arc::new(SimulatedDisk::new()));
    Broker::open(world, Path::new("/data"), BrokerOptions::default()).await.expect("opens")
}

async fn topic(broker: &Broker, name: &str, partitions: u32) -> TopicId {
    let uuid = broker.entropy().uuid();
    let new = NewTopic { name: name.to_owned(), uuid, partitions, config: Default::default() };
    broker.create_topic(new).await.expect("it is new")
}

fn commit(partition: PartitionId, offset: u64) -> CommitOffset {
    let metadata = format!("at {offset}");
    CommitOffset { partition, offset, leader_epoch: -1, metadata, expire_ms: None }
}

const EMPTY: Option<Bounds> = Some(Bounds { log_start: 0, stable: 0, end: 0 });

#[tokio::test]
async fn results_are_in_the_order_of_the_request() {
    let broker = open().await;
    let topic = topic(&broker, "t", 2).await;
    let asked = [1, 7, 0].map(|index| PartitionId::new(topic, index));
    let shards = broker.shards();
    assert_eq!(shards.bounds(&asked).await, Ok(vec![EMPTY, None, EMPTY]));
    let current = broker.leader_epoch(asked[0]);
    let epochs = [(asked[0], current), (asked[1], current), (asked[2], current + 1)];
    let end = EpochEnd { epoch: current, end: 0 };
    let expected = vec![Some(Some(end)), None, Some(None)];
    assert_eq!(shards.epoch_ends(&epochs).await, Ok(expected), "no epoch is above the current one");
    broker.shutdown().await;
}

#[tokio::test]
async fn state_of_a_deleted_topic_is_gone() {
    let broker = open().await;
    let topic = topic(&broker, "t", 1).await;
    let partition = PartitionId::new(topic, 0);
    let made = broker.create_lease_group(topic, "main".into(), Vec::new(), Default::default());
    let group = made.await.expect("it is new");
    let shards = broker.shards();
    assert_eq!(shards.commit_offsets("g", vec![commit(partition, 0)]).await, Ok(Vec::new()));
    assert_eq!(shards.lease_floors(&[(group, 0), (group, 1)]).await, Ok(vec![Some(0), None]));
    broker.delete_topic(topic).await.expect("it is there");

    let of_one = [partition];
    assert_eq!(shards.bounds(&of_one).await, Ok(vec![None]));
    assert_eq!(shards.epochs_at(&[(partition, 0)]).await, Ok(vec![None]));
    assert_eq!(shards.epoch_ends(&[(partition, 0)]).await, Ok(vec![None]));
    assert_eq!(shards.producers(&of_one).await, Ok(vec![None]));
    assert_eq!(shards.last_appends_ms(&of_one).await, Ok(vec![None]));
    assert_eq!(shards.live_bytes(&of_one).await, Ok(vec![0]));
    assert_eq!(shards.lease_progress(group, &[0]).await, Ok(vec![None]));
    assert_eq!(shards.lease_floors(&[(group, 0)]).await, Ok(vec![None]));
    assert_eq!(shards.offsets("g", &of_one).await, Ok(vec![None]));
    assert_eq!(shards.have_offsets(&["g", "other"]).await, Ok(vec![false, false]));

    let unknown = Refusal::UnknownPartition { partition };
    let advanced = shards.advance_starts(vec![(partition, 0)]).await;
    assert_eq!(advanced, Ok(vec![Err(unknown.clone())]));
    let committed = shards.commit_offsets("g", vec![commit(partition, 0)]).await;
    assert_eq!(committed, Ok(vec![(partition, unknown)]));
    let sought = shards.seek_lease_group(group, vec![(0, 0)]).await;
    assert_eq!(sought, Err(ExecuteError::Refused(Refusal::UnknownLeaseGroup { group })));
    broker.shutdown().await;
}

#[tokio::test]
async fn offsets_and_their_groups_are_listed_page_by_page() {
    let broker = open().await;
    let topic = topic(&broker, "t", 5).await;
    let shards = broker.shards();
    for group in ["a", "b", "c"] {
        let all = (0..5).map(|index| commit(PartitionId::new(topic, index), index.into()));
        assert_eq!(shards.commit_offsets(group, all.collect()).await, Ok(Vec::new()));
    }
    assert_eq!(shards.offset_group_count().await, Ok(3));
    assert_eq!(shards.offset_groups_after("", 2).await, Ok(vec!["a".into(), "b".into()]));
    assert_eq!(shards.offset_groups_after("b", 2).await, Ok(vec!["c".into()]));
    let (mut last, mut seen) = (None, Vec::new());
    loop {
        let page = shards.offsets_after("a", last, 2).await.expect("answers");
        let Some((partition, _)) = page.last() else { break };
        last = Some(*partition);
        seen.extend(page.into_iter().map(|(id, it)| (id.index, it.offset, it.metadata)));
    }
    let expected = (0..5).map(|index| (index, u64::from(index), format!("at {index}")));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    broker.shutdown().await;
}

#[tokio::test]
async fn partition_numbers_from_clients_are_range_checked() {
    let broker = open().await;
    let topic = topic(&broker, "t", 2).await;
    let catalog = broker.catalog();
    let found = catalog.topic_named("t").expect("it is there");
    assert_eq!(found.partition(1i32), Some(PartitionId::new(topic, 1)));
    assert_eq!(found.partition(2i32), None);
    assert_eq!(found.partition(-1i32), None);
    assert_eq!(found.partition(1i64 << 32), None);
}
