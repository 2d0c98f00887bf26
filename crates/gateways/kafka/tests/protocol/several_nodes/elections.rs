//! Leader elections by request, and reassignments.

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::*;
use tokio::time::sleep;

use super::{Cluster, all_metadata, other_than};
use crate::harness::*;

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

fn named(partitions: &[i32]) -> Option<Vec<TopicPartitions>> {
    let partitions = partitions.to_vec();
    Some(vec![TopicPartitions::default().with_topic(name("t")).with_partitions(partitions)])
}

/// The partitions of the response, with their codes and messages.
async fn elect(
    client: &mut Client,
    kind: i8,
    partitions: Option<Vec<TopicPartitions>>,
) -> Vec<(i32, i16, String)> {
    let request = ElectLeadersRequest::default()
        .with_election_type(kind)
        .with_topic_partitions(partitions)
        .with_timeout_ms(10_000);
    let response = client.ask(2, &request).await;
    assert_eq!(response.error_code, 0);
    let mut results: Vec<_> = response
        .replica_election_results
        .into_iter()
        .flat_map(|topic| topic.partition_result)
        .map(|it| {
            let text = it.error_message.map(|text| text.to_string()).unwrap_or_default();
            (it.partition_id, it.error_code, text)
        })
        .collect();
    results.sort();
    results
}

fn codes(results: &[(i32, i16, String)]) -> Vec<(i32, i16)> {
    results.iter().map(|(partition, code, _)| (*partition, *code)).collect()
}

/// The leader and the replicas, in their order, of each of the topic's partitions.
async fn led(client: &mut Client) -> Vec<(i32, Vec<i32>)> {
    let metadata = all_metadata(client).await;
    let mut partitions = metadata.topics[0].partitions.clone();
    partitions.sort_by_key(|partition| partition.partition_index);
    let replicas = |it: &metadata_response::MetadataResponsePartition| {
        it.replica_nodes.iter().map(|node| node.0).collect()
    };
    partitions.iter().map(|it| (it.leader_id.0, replicas(it))).collect()
}

/// Moves all of the node's leadership away, and waits until other nodes report the new leaders.
async fn leads_nothing(cluster: &Cluster, id: i32) {
    cluster.node(id).broker.hand_over().await;
    let mut client = cluster.client(other_than(id)).await;
    while led(&mut client).await.iter().any(|(leader, _)| *leader == id || *leader < 0) {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn preferred_election_moves_the_partition_to_its_first_replica() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1).await;
    client.create("t", 3, &[]).await;
    let at_first = led(&mut client).await;
    assert!(at_first.iter().all(|(leader, replicas)| *leader == replicas[0]), "{at_first:?}");
    assert_eq!(at_first[1].1, [2, 3, 1]);
    let needless = [0, 1, 2].map(|index| (index, ElectionNotNeeded.code()));
    let all = || named(&[0, 1, 2]);
    assert_eq!(codes(&elect(&mut client, PREFERRED, all()).await), needless);
    assert_eq!(elect(&mut client, PREFERRED, None).await, []);

    // At any node: the preferred leader, the present one, or the third.
    for asked in 1..=3 {
        leads_nothing(&cluster, 2).await;
        let mut client = cluster.client(asked).await;
        let elected = elect(&mut client, PREFERRED, named(&[1, 7])).await;
        let expected = [(1, 0), (7, UnknownTopicOrPartition.code())];
        assert_eq!(codes(&elected), expected, "at {asked}: {elected:?}");
        assert_eq!(led(&mut client).await, at_first, "at {asked}");
        // They stay there: the cluster itself would move them there too.
        assert_eq!(codes(&elect(&mut client, PREFERRED, all()).await), needless);
    }
    // Without named partitions, the response has only those that were elected.
    leads_nothing(&cluster, 2).await;
    assert_eq!(codes(&elect(&mut client, PREFERRED, None).await), [(1, 0)]);

    let unclean = elect(&mut client, UNCLEAN, named(&[1])).await;
    assert_eq!(codes(&unclean), [(1, ElectionNotNeeded.code())]);
}

#[tokio::test]
async fn missing_or_lagging_replicas_are_never_elected() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1).await;
    client.create("t", 3, &[]).await;
    cluster.end(2).await;
    while led(&mut client).await.iter().any(|(leader, _)| *leader == 2 || *leader < 0) {
        sleep(Duration::from_millis(10)).await;
    }
    let elected = elect(&mut client, PREFERRED, named(&[1])).await;
    assert_eq!(codes(&elected), [(1, PreferredLeaderNotAvailable.code())]);
    assert!(elected[0].2.contains("broker 2 is to lead it"), "{elected:?}");

    cluster.end(3).await;
    let topic = cluster.node(1).broker.catalog().topic_named("t").map(|topic| topic.id());
    let topic = topic.expect("it is there");
    // Node 1 leads it until it notices that it has no majority.
    while cluster.node(1).broker.leaders(topic).of(0).node.is_some() {
        sleep(Duration::from_millis(10)).await;
    }
    let none = [(0, EligibleLeadersNotAvailable.code())];
    assert_eq!(codes(&elect(&mut client, PREFERRED, named(&[0])).await), none);
    let unclean = elect(&mut client, UNCLEAN, named(&[0])).await;
    assert_eq!(codes(&unclean), none);
    assert!(unclean[0].2.contains("postroad recover"), "{unclean:?}");
    // A partition that node 1 follows has no leader either, although it has not learned of a new one.
    while !cluster.node(1).nodes.live().iter().all(|node| node.id == 1) {
        sleep(Duration::from_millis(10)).await;
    }
    let none = [(2, EligibleLeadersNotAvailable.code())];
    assert_eq!(codes(&elect(&mut client, PREFERRED, named(&[2])).await), none);
    assert_eq!(codes(&elect(&mut client, UNCLEAN, named(&[2])).await), none);
}

#[tokio::test]
async fn reassignment_to_the_present_replicas_succeeds_and_others_are_refused() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1).await;
    client.create("t", 3, &[]).await;
    let targets: [(Option<&[i32]>, i16); 6] = [
        (Some(&[2, 3, 1]), 0),
        (Some(&[1, 2, 3]), 0),
        (Some(&[1, 2]), InvalidReplicaAssignment.code()),
        (Some(&[1, 2, 4]), InvalidReplicaAssignment.code()),
        (Some(&[1, 2, 2]), InvalidReplicaAssignment.code()),
        (None, NoReassignmentInProgress.code()),
    ];
    for (target, code) in targets {
        let target = target.map(|ids| ids.iter().copied().map(BrokerId).collect());
        let partition =
            ReassignablePartition::default().with_partition_index(1).with_replicas(target.clone());
        let topic =
            ReassignableTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
        let altered = client.ask(0, &request).await.responses[0].partitions[0].clone();
        assert_eq!(altered.error_code, code, "{target:?}");
        if code == InvalidReplicaAssignment.code() {
            let text = altered.error_message.expect("it says why");
            assert!(text.contains("postroad node replace N --with NEW"), "{text}");
            assert!(text.contains("is on brokers [2, 3, 1]"), "{text}");
        }
    }
    let listed =
        client.ask(0, &ListPartitionReassignmentsRequest::default().with_topics(None)).await;
    assert_eq!((listed.error_code, listed.topics.len()), (0, 0));
}
