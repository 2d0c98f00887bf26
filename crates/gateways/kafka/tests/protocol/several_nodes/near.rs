//! Follower fetching: consumers that read from a node of their own rack (KIP-392).

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::*;
use operations::cluster::Operation;
use tokio::time::{Instant, sleep};

use super::answers::leaders;
use super::{Cluster, other_than, rack};
use crate::harness::*;

/// A fetch by a consumer in the rack of node `id`.
fn from_rack(id: i32, offset: i64, wait_ms: i32) -> FetchRequest {
    let mut request = fetch("t", 0, offset, wait_ms);
    request.rack_id = text(&rack(id));
    request
}

/// The error, the preferred replica, and the values.
fn outcome(response: &FetchResponse) -> (i16, i32, Vec<String>) {
    let partition = &response.responses[0].partitions[0];
    (partition.error_code, partition.preferred_read_replica.0, values(response))
}

fn plain(values: &[&str]) -> (i16, i32, Vec<String>) {
    (0, -1, values.iter().map(|value| value.to_string()).collect())
}

fn refused(error: kafka_protocol::error::ResponseError) -> (i16, i32, Vec<String>) {
    (error.code(), -1, Vec::new())
}

/// A topic with one partition: its leader, the leader's epoch, and another node.
async fn with_topic(cluster: &Cluster) -> (i32, i32, i32) {
    let mut client = cluster.client(1).await;
    client.create("t", 1, &[]).await;
    let (leader, epoch) = leaders(&mut client, "t").await[0];
    (leader, epoch, other_than(leader))
}

/// Waits until the node has so many records of the partition.
async fn has(cluster: &Cluster, id: i32, end: u64) {
    let broker = &cluster.node(id).broker;
    let partition = broker.catalog().topic_named("t").and_then(|it| it.partition(0));
    let partition = partition.expect("it is there");
    while broker.bounds(partition).is_none_or(|bounds| bounds.end < end) {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn leader_refers_consumers_to_the_replica_in_their_rack() {
    let cluster = Cluster::start().await;
    let (leader, _, near) = with_topic(&cluster).await;
    let mut client = cluster.client(leader).await;
    client.put("t", 0, &["a"]).await;
    has(&cluster, near, 1).await;
    let sent = (0, near, Vec::new());
    assert_eq!(outcome(&client.ask(12, &from_rack(near, 0, 0)).await), sent);
    // Also a fetch that would wait at the end, and without a delay.
    let begun = Instant::now();
    assert_eq!(outcome(&client.ask(12, &from_rack(near, 1, 15_000)).await), sent);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for request in [fetch("t", 0, 0, 0), from_rack(leader, 0, 0), from_rack(9, 0, 0)] {
        assert_eq!(outcome(&client.ask(12, &request).await), plain(&["a"]));
    }
    // The leader reports out-of-range offsets.
    let beyond = client.ask(12, &from_rack(near, 2, 0)).await;
    assert_eq!(outcome(&beyond), refused(OffsetOutOfRange));

    // A session returns it each time.
    let mut request = from_rack(near, 0, 0);
    request.session_epoch = 0;
    let first = client.ask(12, &request).await;
    assert_eq!(outcome(&first), sent);
    request.session_id = first.session_id;
    request.session_epoch = 1;
    request.topics.clear();
    assert_eq!(outcome(&client.ask(12, &request).await), sent);
}

#[tokio::test]
async fn copy_is_served_to_its_own_rack_up_to_the_end_known_to_the_node() {
    let cluster = Cluster::start().await;
    let (leader, epoch, near) = with_topic(&cluster).await;
    let mut writer = cluster.client(leader).await;
    writer.put("t", 0, &["a", "b"]).await;
    has(&cluster, near, 2).await;
    let mut client = cluster.client(near).await;
    assert_eq!(outcome(&client.ask(12, &from_rack(near, 0, 0)).await), plain(&["a", "b"]));
    let there = client.ask(12, &from_rack(near, 2, 0)).await;
    let partition = &there.responses[0].partitions[0];
    assert_eq!((partition.error_code, partition.high_watermark), (0, 2));
    for request in [fetch("t", 0, 0, 0), from_rack(leader, 0, 0)] {
        assert_eq!(outcome(&client.ask(12, &request).await), refused(NotLeaderOrFollower));
    }
    let mut unknown = from_rack(near, 0, 0);
    unknown.topics[0].partitions[0].partition = 7;
    assert_eq!(outcome(&client.ask(12, &unknown).await).0, UnknownTopicOrPartition.code());

    // An offset beyond the copy's end is never out of range: the leader may have it.
    let beyond = client.ask(12, &from_rack(near, 3, 100)).await;
    assert_eq!(outcome(&beyond), refused(OffsetNotAvailable));
    let before = client.ask(12, &from_rack(near, -1, 0)).await;
    assert_eq!(outcome(&before), refused(OffsetOutOfRange));

    for (known, expected) in [
        (epoch, plain(&["a", "b"])),
        (epoch - 1, refused(FencedLeaderEpoch)),
        (epoch + 1, refused(UnknownLeaderEpoch)),
    ] {
        let mut request = from_rack(near, 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = known;
        assert_eq!(outcome(&client.ask(12, &request).await), expected, "{known}");
    }
}

#[tokio::test]
async fn fetch_waiting_at_a_copy_wakes_when_records_are_applied() {
    let cluster = Cluster::start().await;
    let (leader, _, near) = with_topic(&cluster).await;
    let mut writer = cluster.client(leader).await;
    let mut clients = [cluster.client(near).await, cluster.client(near).await];
    // One waits at the end, one beyond it, one in a session.
    let at_end = clients[0].send(12, &from_rack(near, 0, 15_000)).await;
    let beyond = clients[1].send(12, &from_rack(near, 1, 15_000)).await;
    let mut in_session = cluster.client(near).await;
    let mut request = from_rack(near, 0, 15_000);
    request.session_epoch = 0;
    let session = in_session.send(12, &request).await;
    sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    writer.put("t", 0, &["a"]).await;
    writer.put("t", 0, &["b"]).await;
    let values = outcome(&clients[0].receive(at_end).await).2;
    assert_eq!(values[0], "a");
    assert_eq!(outcome(&clients[1].receive(beyond).await), plain(&["b"]));
    let first = in_session.receive(session).await;
    assert_eq!(outcome(&first).2[0], "a");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn drained_node_gets_no_readers_and_refers_them_to_the_leader() {
    let cluster = Cluster::start().await;
    let (leader, _, near) = with_topic(&cluster).await;
    let mut at_leader = cluster.client(leader).await;
    at_leader.put("t", 0, &["a"]).await;
    has(&cluster, near, 1).await;
    let mut at_copy = cluster.client(near).await;
    assert_eq!(outcome(&at_copy.ask(12, &from_rack(near, 0, 0)).await), plain(&["a"]));
    let node = near as u64;
    cluster.operate(leader, Operation::DrainNode { node }).await;
    let asked = from_rack(near, 0, 0);
    while outcome(&at_leader.ask(12, &asked).await) != plain(&["a"]) {
        sleep(Duration::from_millis(10)).await;
    }
    let back = loop {
        let answer = at_copy.ask(16, &by_id(&cluster, asked.clone())).await;
        if outcome(&answer) != plain(&["a"]) {
            break answer;
        }
        sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(outcome(&back), refused(NotLeaderOrFollower));
    let partition = &back.responses[0].partitions[0];
    assert_eq!(partition.current_leader.leader_id.0, leader);
    assert_eq!(back.node_endpoints[0].port, cluster.port(leader));
}

fn by_id(cluster: &Cluster, mut request: FetchRequest) -> FetchRequest {
    let broker = &cluster.node(1).broker;
    let id = broker.catalog().topic_named("t").map(|topic| topic.uuid());
    request.topics[0].topic = Default::default();
    request.topics[0].topic_id = id.expect("it is there");
    request
}

#[tokio::test]
async fn no_reader_is_referred_to_a_dead_node() {
    let cluster = Cluster::start().await;
    let (leader, _, near) = with_topic(&cluster).await;
    let mut client = cluster.client(leader).await;
    client.put("t", 0, &["a"]).await;
    has(&cluster, near, 1).await;
    assert_eq!(outcome(&client.ask(12, &from_rack(near, 0, 0)).await).1, near);
    cluster.end(near).await;
    while outcome(&client.ask(12, &from_rack(near, 0, 0)).await) != plain(&["a"]) {
        sleep(Duration::from_millis(10)).await;
    }
}
