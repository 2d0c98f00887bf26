//! Groups, each coordinated by one of the nodes.

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::*;
use tokio::time::{sleep, timeout};

use super::{Cluster, other_than};
use crate::groups::classic::{join, stable, sync};
use crate::groups::consumer::heartbeat_of;
use crate::groups::{are_kept, group};
use crate::harness::*;

pub(super) async fn coordinator(client: &mut Client, group: &str) -> (i32, i32) {
    let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(group)]);
    let found = client.ask(4, &request).await.coordinators[0].clone();
    assert_eq!(found.error_code, 0, "{:?}", found.error_message);
    (found.node_id.0, found.port)
}

pub(super) fn commit(group_id: &str) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(7);
    let topic = OffsetCommitRequestTopic::default().with_name(name("t"));
    OffsetCommitRequest::default()
        .with_group_id(group(group_id))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic.with_partitions(vec![partition])])
}

pub(super) fn all_offsets(name: &str) -> OffsetFetchRequest {
    let asked = OffsetFetchRequestGroup::default().with_group_id(group(name)).with_topics(None);
    OffsetFetchRequest::default().with_groups(vec![asked])
}

pub(super) async fn commit_code(client: &mut Client, group: &str) -> i16 {
    client.ask(8, &commit(group)).await.topics[0].partitions[0].error_code
}

pub(super) async fn listed(client: &mut Client) -> Vec<String> {
    let listed = client.ask(4, &ListGroupsRequest::default()).await;
    listed.groups.iter().map(|it| it.group_id.to_string()).collect()
}

#[tokio::test]
async fn group_is_served_by_its_coordinator_only() {
    let cluster = Cluster::start().await;
    cluster.client(1).await.create("t", 3, &[]).await;
    let names: Vec<String> = (0..12).map(|number| format!("group-{number}")).collect();
    let mut coordinators = Vec::new();
    for name in &names {
        let (right, port) = coordinator(&mut cluster.client(1).await, name).await;
        assert_eq!(port, cluster.port(right));
        for id in 2..=3 {
            assert_eq!(coordinator(&mut cluster.client(id).await, name).await.0, right);
        }
        let refused = NotCoordinator.code();
        let mut client = cluster.client(other_than(right)).await;
        assert_eq!(commit_code(&mut client, name).await, refused);
        let joined = client.ask(5, &join("").with_group_id(group(name))).await;
        assert_eq!(joined.error_code, refused);
        let described = DescribeGroupsRequest::default().with_groups(vec![group(name)]);
        assert_eq!(client.ask(5, &described).await.groups[0].error_code, refused);

        let mut right_client = cluster.client(right).await;
        assert_eq!(commit_code(&mut right_client, name).await, 0);
        // Every node knows committed offsets, but not members.
        let mut request = all_offsets(name);
        for client in [&mut client, &mut right_client] {
            let fetched = client.ask(9, &request).await.groups[0].clone();
            assert_eq!((fetched.error_code, fetched.topics.len()), (0, 1));
            assert_eq!(fetched.topics[0].partitions[0].committed_offset, 7);
        }
        request.groups[0].member_id = Some(text("m"));
        assert_eq!(client.ask(9, &request).await.groups[0].error_code, refused);
        coordinators.push(right);
    }
    assert!((1..=3).all(|id| coordinators.contains(&id)), "{coordinators:?}");
    let mut all = Vec::new();
    for id in 1..=3 {
        all.extend(listed(&mut cluster.client(id).await).await);
    }
    all.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(all, expected, "each is listed by one node");
}

/// A client of the node that coordinates the group `g` after this one.
async fn next_coordinator(cluster: &Cluster, mut client: Client, former: i32) -> Client {
    loop {
        let (next, _) = coordinator(&mut client, "g").await;
        if next != former {
            return cluster.client(next).await;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The code once the next coordinator has loaded all commits.
async fn in_time(mut asked: impl AsyncFnMut() -> i16) -> i16 {
    loop {
        let code = asked().await;
        if ![NotCoordinator.code(), CoordinatorLoadInProgress.code()].contains(&code) {
            return code;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn members_of_both_protocols_continue_at_the_next_coordinator() {
    let cluster = Cluster::start().await;
    cluster.client(1).await.create("t", 3, &[]).await;
    for modern in [false, true] {
        let (right, _) = coordinator(&mut cluster.client(1).await, "g").await;
        let mut client = cluster.client(right).await;
        let (member, heartbeat) = match modern {
            false => (stable(&mut client).await, None),
            true => ("m".to_owned(), Some(heartbeat_of(&mut client, "g").await)),
        };
        are_kept(&cluster.node(right).broker, &["g"]).await;
        cluster.node(right).broker.hand_over().await;
        let mut client = next_coordinator(&cluster, client, right).await;
        let epoch = heartbeat.as_ref().map_or(1, |heartbeat| heartbeat.member_epoch);
        let request =
            commit("g").with_member_id(text(&member)).with_generation_id_or_member_epoch(epoch);
        let committed = async || client.ask(9, &request).await.topics[0].partitions[0].error_code;
        assert_eq!(in_time(committed).await, 0);
        match heartbeat {
            Some(heartbeat) => {
                let answer = client.ask(1, &heartbeat).await;
                assert_eq!((answer.error_code, answer.member_epoch), (0, epoch));
            }
            None => {
                assert_eq!(client.ask(4, &classic_heartbeat(&member, 1)).await.error_code, 0);
                // It leaves, and no state of the group remains.
                assert_eq!(client.ask(4, &leave(&member)).await.error_code, 0);
            }
        }
    }
}

fn classic_heartbeat(member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_generation_id(generation)
}

fn leave(member: &str) -> LeaveGroupRequest {
    LeaveGroupRequest::default()
        .with_group_id(group("g"))
        .with_members(vec![MemberIdentity::default().with_member_id(text(member))])
}

#[tokio::test]
async fn the_next_coordinator_does_not_wait_for_a_member_that_has_left() {
    let cluster = Cluster::start_newest(3).await;
    cluster.client(1).await.create("t", 3, &[]).await;
    let (right, _) = coordinator(&mut cluster.client(1).await, "g").await;
    let (mut first, mut second) = (cluster.client(right).await, cluster.client(right).await);
    let leader = stable(&mut first).await;
    let follower = second.ask(9, &join("")).await.member_id.to_string();
    let joining = second.send(9, &join(&follower)).await;
    let joined = first.ask(9, &join(&leader)).await;
    assert_eq!(second.receive(joining).await.generation_id, 2);
    assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (0, 2, 2));
    assert_eq!(first.ask(5, &sync(&leader, 2)).await.error_code, 0);
    assert_eq!(second.ask(5, &sync(&follower, 2)).await.error_code, 0);

    assert_eq!(first.ask(4, &leave(&leader)).await.error_code, 0);
    cluster.node(right).broker.hand_over().await;
    let mut client = next_coordinator(&cluster, second, right).await;
    let told =
        in_time(async || client.ask(4, &classic_heartbeat(&follower, 2)).await.error_code).await;
    assert_eq!(told, RebalanceInProgress.code());
    // The session of the departed member would last for ten seconds.
    let joined = timeout(Duration::from_secs(5), client.ask(9, &join(&follower))).await;
    let joined = joined.expect("nobody else is waited for");
    assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (0, 3, 1));
}

#[tokio::test]
async fn pending_joins_end_and_are_forgotten_when_the_coordinator_changes() {
    let cluster = Cluster::start().await;
    cluster.client(1).await.create("t", 3, &[]).await;
    let (right, _) = coordinator(&mut cluster.client(1).await, "g").await;
    let mut client = cluster.client(right).await;
    assert_eq!(commit_code(&mut client, "g").await, 0);
    let sent_back = client.ask(5, &join("")).await;
    let member = sent_back.member_id.to_string();
    // The group waits some seconds for more members.
    let sent = client.send(5, &join(&member)).await;
    sleep(Duration::from_millis(200)).await;
    cluster.node(right).broker.hand_over().await;
    let told = client.receive(sent).await;
    assert_eq!(told.error_code, NotCoordinator.code());
    assert_eq!(listed(&mut client).await, Vec::<String>::new());

    // The next coordinator does not know the waiting member, and has the committed offsets.
    let mut client = next_coordinator(&cluster, client, right).await;
    let code = in_time(async || client.ask(5, &join(&member)).await.error_code).await;
    assert_eq!(code, UnknownMemberId.code());
    let fetched = client.ask(8, &all_offsets("g")).await.groups[0].clone();
    assert_eq!((fetched.error_code, fetched.topics.len()), (0, 1));
}
