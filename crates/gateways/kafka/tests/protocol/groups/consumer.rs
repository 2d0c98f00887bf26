//! The consumer group protocol of KIP-848: heartbeats, and epochs that fence.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::classic::{join, stable};
use super::offsets::{commit, commit_codes};
use super::{group, list};
use crate::harness::*;

fn modern(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    let request = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None);
    if epoch == 0 {
        request
            .with_rebalance_timeout_ms(60_000)
            .with_subscribed_topic_names(Some(vec![name("t")]))
            .with_topic_partitions(Some(vec![]))
    } else {
        request
    }
}

/// Joins a group of the new protocol; returns its next heartbeat.
pub(crate) async fn heartbeat_of(
    client: &mut Client,
    named: &str,
) -> ConsumerGroupHeartbeatRequest {
    let joined = client.ask(1, &modern("m", 0).with_group_id(group(named))).await;
    assert_eq!(joined.error_code, 0, "{:?}", joined.error_message);
    modern("m", joined.member_epoch).with_group_id(group(named))
}

fn owned(topic: uuid::Uuid, partitions: &[i32]) -> Option<Vec<TopicPartitions>> {
    let topic =
        TopicPartitions::default().with_topic_id(topic).with_partitions(partitions.to_vec());
    Some(vec![topic])
}

fn assigned(response: &ConsumerGroupHeartbeatResponse) -> Option<Vec<i32>> {
    let assignment = response.assignment.as_ref()?;
    Some(assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect())
}

#[tokio::test]
async fn second_member_waits_until_the_first_revokes_its_partition() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let topic = client.create("t", 2, &[]).await;
    // Before KIP-1082 the group assigns member ids.
    let first = client.ask(0, &modern("", 0)).await;
    assert_eq!((first.error_code, first.member_epoch, first.heartbeat_interval_ms), (0, 1, 5000));
    let a = first.member_id.clone().expect("is named").to_string();
    assert_eq!(assigned(&first), Some(vec![0, 1]));
    let second = client.ask(1, &modern("b", 0)).await;
    assert_eq!((second.member_epoch, assigned(&second)), (2, Some(vec![])));
    let asked = client.ask(1, &modern(&a, 1).with_topic_partitions(owned(topic, &[0, 1]))).await;
    let kept = assigned(&asked).expect("is news");
    assert_eq!((asked.member_epoch, kept.len()), (1, 1));
    let done = client.ask(1, &modern(&a, 1).with_topic_partitions(owned(topic, &kept))).await;
    assert_eq!((done.member_epoch, assigned(&done)), (2, None));
    let second = client.ask(1, &modern("b", 2)).await;
    assert_eq!(assigned(&second), Some(vec![1 - kept[0]]));
    // The catalog changes, and the next heartbeat reports it.
    let grow = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(name("t"))
        .with_count(4)
        .with_assignments(None);
    let grow = CreatePartitionsRequest::default().with_topics(vec![grow]).with_timeout_ms(5000);
    assert_eq!(client.ask(3, &grow).await.results[0].error_code, 0);
    let second = client.ask(1, &modern("b", 2)).await;
    assert_eq!((second.member_epoch, assigned(&second).map(|all| all.len())), (3, Some(2)));

    let describe = ConsumerGroupDescribeRequest::default()
        .with_group_ids(vec![group("g"), group("none")])
        .with_include_authorized_operations(true);
    for version in 0..=1 {
        let described = client.ask(version, &describe).await.groups;
        assert_eq!(described[1].error_code, GroupIdNotFound.code());
        assert_eq!(described[1].error_message.as_deref(), Some("Group none not found."));
        let one = &described[0];
        assert_eq!((one.group_state.as_str(), one.group_epoch), ("Reconciling", 3));
        assert_eq!((one.assignor_name.as_str(), one.members.len()), ("uniform", 2));
        let b = one.members.iter().find(|member| member.member_id.as_str() == "b").unwrap();
        assert_eq!(b.assignment.topic_partitions[0].topic_name, name("t"));
        assert_eq!(b.member_type, if version >= 1 { 1 } else { -1 });
    }
}

#[tokio::test]
async fn epochs_fence_heartbeats_commits_and_fetches() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    assert_eq!(client.ask(1, &modern("a", 0)).await.error_code, 0);
    assert_eq!(client.ask(1, &modern("a", 5)).await.error_code, FencedMemberEpoch.code());
    assert_eq!(client.ask(1, &modern("b", 1)).await.error_code, UnknownMemberId.code());
    let codes = commit_codes(&client.ask(9, &commit("a", 1, &[("t", 0, 3)])).await);
    assert_eq!(codes, [0]);
    let codes = commit_codes(&client.ask(9, &commit("a", 0, &[("t", 0, 4)])).await);
    assert_eq!(codes, [StaleMemberEpoch.code()]);
    let codes = commit_codes(&client.ask(8, &commit("a", 1, &[("t", 0, 4)])).await);
    assert_eq!(codes, [UnsupportedVersion.code()]);
    let fetch = |epoch| {
        let wanted = OffsetFetchRequestGroup::default()
            .with_group_id(group("g"))
            .with_member_id(Some(text("a")))
            .with_member_epoch(epoch)
            .with_topics(None);
        OffsetFetchRequest::default().with_groups(vec![wanted])
    };
    let stale = client.ask(9, &fetch(7)).await;
    assert_eq!(stale.groups[0].error_code, StaleMemberEpoch.code());
    let fresh = client.ask(9, &fetch(1)).await;
    assert_eq!(fresh.groups[0].topics[0].partitions[0].committed_offset, 3);
}

#[tokio::test]
async fn requests_that_no_client_should_send_are_refused() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let mut code = async |request: ConsumerGroupHeartbeatRequest| {
        let response = client.ask(1, &request).await;
        assert!(response.error_message.is_some());
        response.error_code
    };
    let invalid = InvalidRequest.code();
    assert_eq!(code(modern("", 0)).await, invalid);
    assert_eq!(code(modern("a", -3)).await, invalid);
    assert_eq!(code(modern("a", -2)).await, invalid);
    assert_eq!(code(modern("a", 0).with_rebalance_timeout_ms(-1)).await, invalid);
    assert_eq!(code(modern("a", 0).with_topic_partitions(None)).await, invalid);
    assert_eq!(code(modern("a", 0).with_subscribed_topic_names(None)).await, invalid);
    assert_eq!(code(modern("a", 0).with_instance_id(Some(StrBytes::new()))).await, invalid);
    let unknown = modern("a", 0).with_server_assignor(Some(text("best")));
    assert_eq!(code(unknown).await, UnsupportedAssignor.code());
    let pattern = modern("a", 0).with_subscribed_topic_regex(Some(text("(")));
    assert_eq!(code(pattern).await, InvalidRegularExpression.code());
    assert_eq!(code(modern("a", 3)).await, UnknownMemberId.code());
    assert_eq!(code(modern("a", -1)).await, UnknownMemberId.code());
    let groups = client.ask(5, &list(&[], &[])).await.groups;
    assert!(groups.is_empty(), "none of them left a group behind");
}

#[tokio::test]
async fn a_group_speaks_one_protocol_until_it_is_empty() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    assert_eq!(client.ask(1, &modern("a", 0)).await.error_code, GroupIdNotFound.code());
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("g"))
        .with_members(vec![MemberIdentity::default().with_member_id(text(&member))]);
    assert_eq!(client.ask(5, &leave).await.error_code, 0);
    assert_eq!(client.ask(1, &modern("a", 0)).await.error_code, 0);
    let refused = client.ask(9, &join("")).await;
    assert_eq!(refused.error_code, InconsistentGroupProtocol.code());
    assert_eq!(client.ask(1, &modern("a", -1)).await.member_epoch, -1);
    stable(&mut client).await;
}
