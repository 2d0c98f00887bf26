//! Metadata, and requests about partitions that another node leads.

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::*;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Cluster, all_metadata, other_than};
use crate::harness::*;

/// Time for which a response waits for a leader.
const LED_WITHIN: Duration = Duration::from_millis(300);

/// The leader of each of the topic's partitions, and its epoch.
pub(super) async fn leaders(client: &mut Client, topic: &str) -> Vec<(i32, i32)> {
    let metadata = all_metadata(client).await;
    let found = metadata.topics.iter().find(|it| it.name.as_deref().is_some_and(|n| &**n == topic));
    let mut partitions = found.expect("it is there").partitions.clone();
    partitions.sort_by_key(|partition| partition.partition_index);
    partitions.iter().map(|it| (it.leader_id.0, it.leader_epoch)).collect()
}

/// A fetch of version 13 and later.
pub(super) fn fetch_by_id(topic: Uuid, partition: i32, wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(0)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic_id(topic).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

#[tokio::test]
async fn every_node_lists_all_nodes_and_the_leader_of_each_partition() {
    let cluster = Cluster::start().await;
    cluster.client(2).await.create("wide", 6, &[]).await;
    let mut told = Vec::new();
    for id in 1..=3 {
        let mut client = cluster.client(id).await;
        let metadata = all_metadata(&mut client).await;
        let brokers: Vec<_> = metadata.brokers.iter().map(|it| (it.node_id.0, it.port)).collect();
        assert_eq!(brokers, [1, 2, 3].map(|id| (id, cluster.port(id))));
        let racks: Vec<_> = metadata.brokers.iter().map(|it| it.rack.as_deref()).collect();
        assert_eq!(racks, [Some("rack-1"), Some("rack-2"), Some("rack-3")]);
        let partitions = &metadata.topics[0].partitions;
        for partition in partitions {
            assert_eq!((partition.error_code, partition.offline_replicas.len()), (0, 0));
            // The preferred leader comes first, then the others in turn.
            let first = partition.leader_id.0;
            let in_turn = [first, other_than(first), other_than(other_than(first))];
            assert_eq!(partition.replica_nodes, in_turn.map(BrokerId));
            assert_eq!(partition.isr_nodes, in_turn.map(BrokerId));
        }
        let described = client.ask(1, &DescribeClusterRequest::default()).await;
        let racks: Vec<_> = described.brokers.iter().map(|it| it.rack.as_deref()).collect();
        assert_eq!(racks, [Some("rack-1"), Some("rack-2"), Some("rack-3")]);
        assert_eq!(described.controller_id, metadata.controller_id);
        told.push((metadata.controller_id.0, leaders(&mut client, "wide").await));
    }
    assert!(told.iter().all(|it| *it == told[0]), "{told:?}");
    let (controller, leaders) = &told[0];
    assert!((1..=3).contains(controller));
    for id in 1..=3 {
        assert_eq!(leaders.iter().filter(|(leader, _)| *leader == id).count(), 2, "{leaders:?}");
    }
}

#[tokio::test]
async fn replication_factor_is_a_minimum_and_reported_as_all_nodes() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(3).await;
    for (factor, code) in [(-1, 0), (3, 0), (1, 0), (2, 0), (4, 38), (0, 38)] {
        let topic = new_topic(&format!("t{factor}"), 1, &[]).with_replication_factor(factor);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5000);
        let made = &client.ask(7, &request).await.topics[0];
        assert_eq!(made.error_code, code, "{factor}: {:?}", made.error_message);
        assert_eq!(made.replication_factor, if code == 0 { 3 } else { -1 });
    }
}

#[tokio::test]
async fn client_of_the_wrong_node_is_referred_to_the_leader() {
    let cluster = Cluster::start().await;
    let topic = cluster.client(1).await.create("t", 3, &[]).await;
    let (leader, epoch) = leaders(&mut cluster.client(1).await, "t").await[0];
    let mut wrong = cluster.client(other_than(leader)).await;
    let endpoint = (leader, cluster.port(leader));
    let refused = NotLeaderOrFollower.code();

    let produced = wrong.ask(10, &produce("t", 0, -1, batch(&["a"]).into())).await;
    let endpoints = &produced.node_endpoints;
    assert_eq!((endpoints[0].node_id.0, endpoints[0].port), endpoint);
    let partition = only_partition(produced);
    let told = &partition.current_leader;
    assert_eq!(partition.error_code, refused);
    assert_eq!((told.leader_id.0, told.leader_epoch), (leader, epoch));
    let mut right = cluster.client(leader).await;
    assert_eq!(right.put("t", 0, &["a"]).await, 0);

    let fetched = wrong.ask(16, &fetch_by_id(topic, 0, 20_000)).await;
    let endpoints = &fetched.node_endpoints;
    assert_eq!((endpoints[0].node_id.0, endpoints[0].port), endpoint);
    assert_eq!(endpoints[0].rack.as_deref(), Some(&*super::rack(leader)));
    let partition = &fetched.responses[0].partitions[0];
    let told = &partition.current_leader;
    assert_eq!(partition.error_code, refused);
    assert_eq!((told.leader_id.0, told.leader_epoch), (leader, epoch));
    let fetched = right.ask(16, &fetch_by_id(topic, 0, 20_000)).await;
    assert_eq!((values(&fetched), fetched.node_endpoints.len()), (vec!["a".to_owned()], 0));
}

#[tokio::test]
async fn every_node_lists_offsets_of_acknowledged_records() {
    let cluster = Cluster::start().await;
    cluster.client(1).await.create("t", 3, &[]).await;
    let (leader, epoch) = leaders(&mut cluster.client(1).await, "t").await[0];
    let mut right = cluster.client(leader).await;
    let mut wrong = cluster.client(other_than(leader)).await;
    for records in 1..50 {
        right.put("t", 0, &["a"]).await;
        // The end, the beginning, and the first record of any time.
        for (timestamp, expected) in [(-1, records), (-2, 0), (0, 0)] {
            let sought = ListOffsetsPartition::default().with_timestamp(timestamp);
            let wanted = ListOffsetsTopic::default().with_name(name("t"));
            let wanted = wanted.with_partitions(vec![sought]);
            let request = ListOffsetsRequest::default().with_topics(vec![wanted]);
            let listed = wrong.ask(7, &request).await.topics[0].partitions[0].clone();
            assert_eq!((listed.error_code, listed.offset), (0, expected), "{timestamp}");
            assert_eq!(listed.leader_epoch, epoch);
        }
    }
}

#[tokio::test]
async fn metadata_waits_for_an_election_in_progress() {
    let cluster = Cluster::start().await;
    cluster.client(1).await.create("t", 3, &[]).await;
    let mut clients = [cluster.client(1).await, cluster.client(2).await, cluster.client(3).await];
    for id in [1, 2, 3, 1] {
        let broker = cluster.node(id).broker.clone();
        let handing_over = tokio::spawn(async move { broker.hand_over().await });
        for _ in 0..5 {
            for client in &mut clients {
                let begun = Instant::now();
                let led = leaders(client, "t").await;
                let (all_led, took) = (led.iter().all(|(leader, _)| *leader > 0), begun.elapsed());
                // On a busy machine, an election may take longer than a response may wait.
                assert!(all_led || took >= LED_WITHIN, "{led:?} after {took:?}");
            }
        }
        handing_over.await.expect("it hands over");
    }
}

#[tokio::test]
async fn waiting_fetch_ends_at_once_when_the_leader_changes() {
    let cluster = Cluster::start().await;
    let topic = cluster.client(1).await.create("t", 3, &[]).await;
    let (leader, _) = leaders(&mut cluster.client(1).await, "t").await[0];
    let mut waiting = cluster.client(leader).await;
    let begun = Instant::now();
    let sent = waiting.send(16, &fetch_by_id(topic, 0, 15_000)).await;
    sleep(Duration::from_millis(200)).await;
    cluster.node(leader).broker.hand_over().await;
    let fetched = waiting.receive(sent).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(fetched.responses[0].partitions[0].error_code, NotLeaderOrFollower.code());
    // The new leader accepts records.
    let next = loop {
        let (next, _) = leaders(&mut waiting, "t").await[0];
        if next != leader && next > 0 {
            break next;
        }
        sleep(Duration::from_millis(10)).await;
    };
    let mut client = cluster.client(next).await;
    loop {
        let produced = client.produce("t", 0, batch(&["a"])).await;
        if produced.error_code == 0 {
            break;
        }
        assert_eq!(produced.error_code, NotLeaderOrFollower.code());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn every_node_reports_the_log_ends_of_all_quorum_members() {
    let cluster = Cluster::start().await;
    cluster.client(1).await.create("t", 1, &[]).await;
    let metadata = describe_quorum_request::TopicData::default()
        .with_topic_name(name("__cluster_metadata"))
        .with_partitions(vec![describe_quorum_request::PartitionData::default()]);
    let request = DescribeQuorumRequest::default().with_topics(vec![metadata]);
    for id in 1..=3 {
        let mut client = cluster.client(id).await;
        loop {
            let response = client.ask(2, &request).await;
            let quorum = &response.topics[0].partitions[0];
            let end = quorum.high_watermark;
            let voters: Vec<_> = quorum.current_voters.iter().map(|it| it.replica_id.0).collect();
            assert_eq!(voters, [1, 2, 3]);
            // All members catch up.
            let is_there = |it: &describe_quorum_response::ReplicaState| {
                it.log_end_offset == end && it.last_caught_up_timestamp > 0
            };
            if quorum.current_voters.iter().all(is_there) {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
