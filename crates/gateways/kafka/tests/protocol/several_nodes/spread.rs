//! Four nodes with three replicas of each partition: responses of the node without a replica.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::*;
use tokio::time::timeout;
use uuid::Uuid;

use super::answers::{fetch_by_id, leaders};
use super::groups::{all_offsets, commit_code, coordinator, listed};
use super::{Cluster, all_metadata};
use crate::harness::*;

/// A topic with a partition in each shard, and the node without a replica of each partition.
async fn with_topic(cluster: &Cluster) -> (Uuid, Vec<i32>) {
    let mut client = cluster.client(4).await;
    let topic = client.create("t", 3, &[]).await;
    let metadata = all_metadata(&mut client).await;
    let mut partitions = metadata.topics[0].partitions.clone();
    partitions.sort_by_key(|partition| partition.partition_index);
    let outsiders = partitions.iter().map(|partition| {
        let replicas: Vec<i32> = partition.replica_nodes.iter().map(|id| id.0).collect();
        assert_eq!((replicas.len(), partition.error_code), (3, 0));
        assert_eq!(partition.isr_nodes, partition.replica_nodes);
        assert!(replicas.contains(&partition.leader_id.0), "{replicas:?}");
        (1..=4).find(|id| !replicas.contains(id)).expect("one of four")
    });
    (topic, outsiders.collect())
}

async fn list(client: &mut Client, partition: i32, timestamp: i64) -> (i16, i64) {
    let sought = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_timestamp(timestamp)
        .with_current_leader_epoch(-1);
    let wanted = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![sought]);
    let request = ListOffsetsRequest::default().with_topics(vec![wanted]);
    let listed = client.ask(7, &request).await.topics[0].partitions[0].clone();
    (listed.error_code, listed.offset)
}

#[tokio::test]
async fn node_without_a_replica_refers_clients_to_the_leader_and_lists_offsets() {
    let cluster = Cluster::start_four().await;
    let (topic, outsiders) = with_topic(&cluster).await;
    let refused = NotLeaderOrFollower.code();
    for (index, outsider) in (0..).zip(outsiders) {
        let mut wrong = cluster.client(outsider).await;
        let (leader, epoch) = leaders(&mut wrong, "t").await[index as usize];
        let produced = wrong.ask(10, &produce("t", index, -1, batch(&["a"]).into())).await;
        let endpoints = &produced.node_endpoints;
        assert_eq!((endpoints[0].node_id.0, endpoints[0].port), (leader, cluster.port(leader)));
        let partition = only_partition(produced);
        let told = &partition.current_leader;
        assert_eq!(partition.error_code, refused);
        assert_eq!((told.leader_id.0, told.leader_epoch), (leader, epoch));
        let fetched = wrong.ask(16, &fetch_by_id(topic, index, 20_000)).await;
        assert_eq!(fetched.node_endpoints[0].node_id.0, leader);
        assert_eq!(fetched.responses[0].partitions[0].error_code, refused);

        let mut right = cluster.client(leader).await;
        for records in 1..20 {
            assert_eq!(right.put("t", index, &["a"]).await, records - 1);
            // The end, the beginning, the first record of any time, the newest.
            for (timestamp, expected) in [(-1, records), (-2, 0), (0, 0)] {
                assert_eq!(list(&mut wrong, index, timestamp).await, (0, expected), "{timestamp}");
            }
            let (code, newest) = list(&mut wrong, index, -3).await;
            assert!(code == 0 && (0..records).contains(&newest), "{code} {newest}");
        }
        let fetched = right.ask(16, &fetch_by_id(topic, index, 20_000)).await;
        assert_eq!(values(&fetched).len(), 19);
    }
}

#[tokio::test]
async fn every_node_returns_group_offsets_and_one_lists_each_group() {
    let cluster = Cluster::start_four().await;
    with_topic(&cluster).await;
    let names: Vec<String> = (0..9).map(|number| format!("group-{number}")).collect();
    for name in &names {
        let (right, port) = coordinator(&mut cluster.client(1).await, name).await;
        assert_eq!(port, cluster.port(right));
        for id in 1..=4 {
            let mut client = cluster.client(id).await;
            assert_eq!(coordinator(&mut client, name).await.0, right);
            let code = if id == right { 0 } else { NotCoordinator.code() };
            assert_eq!(commit_code(&mut client, name).await, code);
        }
        for id in 1..=4 {
            let mut client = cluster.client(id).await;
            let fetched = client.ask(9, &all_offsets(name)).await.groups[0].clone();
            assert_eq!((fetched.error_code, fetched.topics.len()), (0, 1), "{id}");
            assert_eq!(fetched.topics[0].partitions[0].committed_offset, 7);
        }
    }
    let mut all = Vec::new();
    for id in 1..=4 {
        all.extend(listed(&mut cluster.client(id).await).await);
    }
    all.sort_unstable();
    assert_eq!(all, names, "each is listed by the node that coordinates it");
}

#[tokio::test]
async fn log_dirs_list_only_the_nodes_own_replicas() {
    let cluster = Cluster::start_four().await;
    let (_, outsiders) = with_topic(&cluster).await;
    for id in 1..=4 {
        let mut client = cluster.client(id).await;
        let described = client.ask(4, &DescribeLogDirsRequest::default().with_topics(None)).await;
        let topics = &described.results[0].topics;
        let of_topic = topics.iter().filter(|topic| topic.name.as_str() == "t");
        let mut named: Vec<i32> =
            of_topic.flat_map(|it| it.partitions.iter().map(|it| it.partition_index)).collect();
        named.sort_unstable();
        let has = |index: &i32| outsiders[*index as usize] != id;
        assert_eq!(named, (0..3).filter(has).collect::<Vec<_>>(), "node {id}");
    }
}

#[tokio::test]
async fn metadata_of_a_node_without_a_replica_names_the_next_leader() {
    let cluster = Cluster::start_four().await;
    let (_, outsiders) = with_topic(&cluster).await;
    let mut client = cluster.client(outsiders[0]).await;
    let (leader, _) = leaders(&mut client, "t").await[0];
    cluster.end(leader).await;
    let found = async {
        loop {
            let (next, _) = leaders(&mut client, "t").await[0];
            if next > 0 && next != leader {
                return next;
            }
        }
    };
    let next = timeout(SOON, found).await.expect("another node leads");
    assert_eq!(cluster.client(next).await.put("t", 0, &["a"]).await, 0);
    assert_eq!(list(&mut client, 0, -1).await, (0, 1));
}
