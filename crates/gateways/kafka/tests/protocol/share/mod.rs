//! Share groups over a socket: membership, and refusals. Records, sessions and the lifetime of a group have a
//! file of their own each.

mod lifetime;
pub(crate) mod member;
mod records;
mod sessions;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;
use uuid::Uuid;

use self::member::Member;
use crate::harness::*;

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

pub(crate) async fn configure(client: &mut Client, group: &str, values: &[(&str, &str)]) -> i16 {
    let configs = values.iter().map(|(key, value)| {
        AlterableConfig::default().with_name(text(key)).with_value(Some(text(value)))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(group))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(1, &request).await.responses[0].error_code
}

/// A topic of two partitions, and a share group `g` that starts at its beginning.
async fn started(node: &Node) -> (Client, Uuid) {
    let mut client = node.client().await;
    let topic = client.create("t", 2, &[]).await;
    assert_eq!(configure(&mut client, "g", &[("share.auto.offset.reset", "earliest")]).await, 0);
    (client, topic)
}

#[tokio::test]
async fn share_members_receive_assignments_and_invalid_heartbeats_are_refused() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let mut a = Member::join(&node, "a", &["t"]).await;
    let joined = a.beat(Some(&["t"])).await;
    assert_eq!((joined.member_epoch, joined.heartbeat_interval_ms), (1, 5000));
    let assigned = &joined.assignment.expect("is told").topic_partitions;
    assert_eq!((assigned[0].topic_id, &assigned[0].partitions), (topic, &vec![0, 1]));
    let mut b = Member::join(&node, "b", &["t"]).await;
    assert!(a.beat(None).await.assignment.is_some(), "it has less now");
    b.member_epoch = 7;
    assert_eq!(b.beat(None).await.error_code, FencedMemberEpoch.code());
    b.member_epoch = -1;
    assert_eq!(b.beat(None).await.error_code, 0);
    assert_eq!(b.beat(None).await.error_code, UnknownMemberId.code());
    b.member_epoch = -2;
    assert_eq!(b.beat(None).await.error_code, InvalidRequest.code());
    b.member_epoch = 0;
    assert_eq!(b.beat(None).await.error_code, InvalidRequest.code(), "wants nothing");
    assert_eq!(b.beat(Some(&[])).await.error_code, InvalidRequest.code(), "wants nothing");

    let describe = ShareGroupDescribeRequest::default()
        .with_group_ids(vec![group("g"), group("none")])
        .with_include_authorized_operations(true);
    let described = client.ask(1, &describe).await.groups;
    assert_eq!((&*described[0].group_state, described[0].members.len()), ("Stable", 1));
    assert_eq!(&*described[0].assignor_name, "simple");
    assert!(described[0].authorized_operations > 0);
    assert_eq!(described[1].error_code, GroupIdNotFound.code());
}

#[tokio::test]
async fn group_name_belongs_to_one_kind_of_group_at_a_time() {
    let node = Node::start().await;
    let (mut client, _) = started(&node).await;
    let _member = Member::join(&node, "a", &["t"]).await;
    let modern = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(1000)
        .with_subscribed_topic_names(Some(vec![name("t")]))
        .with_topic_partitions(Some(vec![]));
    let refused = client.ask(1, &modern).await;
    assert_eq!(refused.error_code, GroupIdNotFound.code());
    let other = client.ask(1, &modern.clone().with_group_id(group("other"))).await;
    assert_eq!(other.error_code, 0);
    let mut lost = Member {
        client: node.client().await,
        id: "a",
        group: "other",
        member_epoch: 0,
        session_epoch: 0,
    };
    assert_eq!(lost.beat(Some(&["t"])).await.error_code, GroupIdNotFound.code());
    let list = |kind: &str| ListGroupsRequest::default().with_types_filter(vec![text(kind)]);
    let shared = client.ask(5, &list("share")).await.groups;
    assert_eq!((shared.len(), &*shared[0].group_id.0, &*shared[0].group_type), (1, "g", "share"));
    assert_eq!(&*client.ask(5, &list("consumer")).await.groups[0].group_id.0, "other");
}

#[tokio::test]
async fn coordinators_are_found_by_share_partition() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let find = |key: &str| {
        FindCoordinatorRequest::default().with_key_type(2).with_coordinator_keys(vec![text(key)])
    };
    let found = client.ask(6, &find("g:AAAAAAAAAAAAAAAAAAAAAA:0")).await;
    assert_eq!((found.coordinators[0].error_code, found.coordinators[0].node_id.0), (0, 1));
    for bad in ["g", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x", ":AAAAAAAAAAAAAAAAAAAAAA:0"] {
        let refused = client.ask(6, &find(bad)).await;
        assert_eq!(refused.coordinators[0].error_code, InvalidRequest.code(), "{bad}");
    }
    let old = client.ask(5, &find("g:AAAAAAAAAAAAAAAAAAAAAA:0")).await;
    assert_eq!(old.coordinators[0].error_code, InvalidRequest.code());
}

#[tokio::test]
async fn share_state_requests_of_brokers_are_refused_to_clients() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let partition = read_share_group_state_request::PartitionData::default();
    let topic = read_share_group_state_request::ReadStateData::default()
        .with_partitions(vec![partition.clone(), partition.with_partition(1)]);
    let read =
        ReadShareGroupStateRequest::default().with_group_id(text("g")).with_topics(vec![topic]);
    let refused = client.ask(0, &read).await;
    let codes: Vec<_> = refused.results[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [ClusterAuthorizationFailed.code(); 2]);
}
