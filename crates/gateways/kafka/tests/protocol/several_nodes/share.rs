//! Share groups: members at one node, records at others.

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::ShareFetchResponse;
use kafka_protocol::messages::share_fetch_request::AcknowledgementBatch;
use tokio::time::{Instant, sleep};

use super::answers::leaders;
use super::groups::coordinator;
use super::{Cluster, other_than};
use crate::share::configure;
use crate::share::member::{ACCEPT, Member, RELEASE, acknowledge_code, acquired};

async fn member(cluster: &Cluster, at: i32) -> Member {
    let client = cluster.client(at).await;
    Member { client, id: "a", group: "g", member_epoch: 0, session_epoch: 0 }
}

/// The error code of the only partition, its leader, and the leader's port.
fn outcome(response: &ShareFetchResponse) -> (i16, i32, i32) {
    let partition = &response.responses[0].partitions[0];
    let endpoint = response.node_endpoints.first();
    (partition.error_code, partition.current_leader.leader_id, endpoint.map_or(-1, |it| it.port))
}

#[tokio::test]
async fn share_member_is_referred_to_the_leader_of_its_records() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1).await;
    let topic = client.create("t", 3, &[]).await;
    assert_eq!(configure(&mut client, "g", &[("share.auto.offset.reset", "earliest")]).await, 0);
    let (at, _) = coordinator(&mut client, "g").await;
    let refused = member(&cluster, other_than(at)).await.beat(Some(&["t"])).await;
    assert_eq!(refused.error_code, NotCoordinator.code());
    assert_eq!(member(&cluster, at).await.beat(Some(&["t"])).await.error_code, 0);

    let (leader, _) = leaders(&mut client, "t").await[0];
    let elsewhere = (NotLeaderOrFollower.code(), leader, cluster.port(leader));
    cluster.client(leader).await.put("t", 0, &["x"]).await;
    let mut wrong = member(&cluster, other_than(leader)).await;
    let begun = Instant::now();
    let fetched = wrong.send(wrong.fetch_request(topic, &[0], 15_000)).await;
    assert_eq!(outcome(&fetched), elsewhere);
    let mut right = member(&cluster, leader).await;
    assert_eq!(right.take(topic, 0).await, acquired(&[(0, 0, 1)], &["x"]));
    let settled = wrong.acknowledge(topic, &[(0, 0, ACCEPT)]).await;
    assert_eq!(acknowledge_code(&settled), InvalidRecordState.code(), "it holds nothing");
    right.settle(topic, &[(0, 0, ACCEPT)]).await;

    let handing_over = async {
        sleep(Duration::from_millis(200)).await;
        cluster.node(leader).broker.hand_over().await;
    };
    let request = right.fetch_request(topic, &[0], 15_000);
    let (fetched, ()) = tokio::join!(right.send(request), handing_over);
    assert_eq!(outcome(&fetched).0, NotLeaderOrFollower.code());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Java's client acknowledges records at the node that delivered them, until it learns of another leader.
#[tokio::test]
async fn records_are_acknowledged_where_they_were_fetched_after_the_leader_changed() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1).await;
    let topic = client.create("t", 1, &[]).await;
    assert_eq!(configure(&mut client, "g", &[("share.auto.offset.reset", "earliest")]).await, 0);
    let (at, _) = coordinator(&mut client, "g").await;
    assert_eq!(member(&cluster, at).await.beat(Some(&["t"])).await.error_code, 0);
    let (leader, _) = leaders(&mut client, "t").await[0];
    cluster.client(leader).await.put("t", 0, &["x", "y", "z"]).await;
    let mut holder = member(&cluster, leader).await;
    assert_eq!(holder.take(topic, 0).await, acquired(&[(0, 2, 1)], &["x", "y", "z"]));

    cluster.node(leader).broker.hand_over().await;
    // At once, while there may be no leader; and then, when another node leads.
    holder.settle(topic, &[(0, 0, ACCEPT)]).await;
    let (next, _) = leaders(&mut client, "t").await[0];
    assert_ne!(next, leader);
    holder.settle(topic, &[(1, 1, RELEASE)]).await;
    for late in [(0, 0, ACCEPT), (1, 1, ACCEPT)] {
        let settled = holder.acknowledge(topic, &[late]).await;
        assert_eq!(acknowledge_code(&settled), InvalidRecordState.code(), "{late:?}");
    }
    let mut other = Member { id: "b", ..member(&cluster, next).await };
    assert_eq!(other.take(topic, 0).await, acquired(&[(1, 1, 2)], &["x", "y", "z"]));
    // Acknowledgements in a fetch have a result of their own.
    let mut request = holder.fetch_request(topic, &[0], 0);
    request.topics[0].partitions[0].acknowledgement_batches = vec![
        AcknowledgementBatch::default()
            .with_first_offset(2)
            .with_last_offset(2)
            .with_acknowledge_types(vec![ACCEPT]),
    ];
    let fetched = holder.send(request).await;
    assert_eq!(outcome(&fetched), (NotLeaderOrFollower.code(), next, cluster.port(next)));
    assert_eq!(fetched.responses[0].partitions[0].acknowledge_error_code, 0);
    other.settle(topic, &[(1, 1, ACCEPT)]).await;
}
