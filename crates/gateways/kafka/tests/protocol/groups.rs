//! Groups over a socket: both protocols, and committed offsets.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError::{self, *};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use world::SimulatedDisk;

use crate::harness::*;

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

/// A consumer's metadata that names one topic.
fn subscription(topic: &str) -> Bytes {
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, topic.len() as u8];
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&[0xff; 4]);
    Bytes::from(bytes)
}

fn join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(subscription("t"));
    JoinGroupRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn sync(member: &str, generation: i32) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(text(member))
        .with_assignment(Bytes::from_static(b"mine"));
    SyncGroupRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_generation_id(generation)
        .with_assignments(vec![assignment])
}

fn commit(member: &str, generation: i32, offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let topics = offsets.iter().map(|&(topic, partition, offset)| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("note")));
        OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition])
    });
    OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(generation)
        .with_topics(topics.collect())
}

fn commit_codes(response: &OffsetCommitResponse) -> Vec<i16> {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

/// A stable group of one; returns its member.
async fn stable(client: &mut Client) -> String {
    let sent_back = client.ask(9, &join("")).await;
    assert_eq!(sent_back.error_code, MemberIdRequired.code());
    let member = sent_back.member_id.to_string();
    let joined = client.ask(9, &join(&member)).await;
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let synced = client.ask(5, &sync(&member, 1)).await;
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
    member
}

async fn fetch_one(client: &mut Client, topic: &str, partition: i32) -> i64 {
    let wanted = OffsetFetchRequestTopics::default()
        .with_name(name(topic))
        .with_partition_indexes(vec![partition]);
    let wanted = OffsetFetchRequestGroup::default()
        .with_group_id(group("g"))
        .with_member_epoch(-1)
        .with_topics(Some(vec![wanted]));
    let request = OffsetFetchRequest::default().with_groups(vec![wanted]);
    let response = client.ask(9, &request).await;
    assert_eq!(response.groups[0].error_code, 0);
    response.groups[0].topics[0].partitions[0].committed_offset
}

// ------------------------------------------------------------------------------------ coordinator

#[tokio::test]
async fn this_node_coordinates_all_groups_and_no_transactions() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for version in 0..=6 {
        let mut request = FindCoordinatorRequest::default();
        if version >= 4 {
            request.coordinator_keys = vec![text("a"), text("b")];
        } else {
            request.key = text("a");
        }
        let found = client.ask(version, &request).await;
        let port = i32::from(node.address.port());
        if version >= 4 {
            let keys: Vec<_> = found.coordinators.iter().map(|one| one.key.as_str()).collect();
            assert_eq!(keys, ["a", "b"]);
            assert!(found.coordinators.iter().all(|one| one.port == port && one.error_code == 0));
        } else {
            assert_eq!((found.port, found.error_code, found.node_id.0), (port, 0, 1));
        }
    }
    let transactional =
        FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text("x")]);
    let refused = client.ask(6, &transactional).await;
    let refused = &refused.coordinators[0];
    assert_eq!(refused.error_code, UnsupportedVersion.code(), "final, and no matter of access");
    let message = refused.error_message.as_deref().unwrap_or_default();
    assert!(message.starts_with("transactions are not offered by this broker"), "{message}");
}

// --------------------------------------------------------------------------------------- classic

#[tokio::test]
async fn members_meet_in_every_version_of_the_classic_protocol() {
    let node = Node::start().await;
    for version in 0..=9 {
        let mut client = node.client().await;
        let named = GroupId(text(&format!("g{version}")));
        let mut request = join("").with_group_id(named.clone());
        if version == 0 {
            request.rebalance_timeout_ms = -1;
        }
        let mut joined = client.ask(version, &request).await;
        if version >= 4 {
            assert_eq!(joined.error_code, MemberIdRequired.code());
            request.member_id = joined.member_id;
            joined = client.ask(version, &request).await;
        }
        assert_eq!((joined.error_code, joined.generation_id), (0, 1), "version {version}");
        assert_eq!((&joined.leader, joined.members.len()), (&joined.member_id, 1));
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        let member = joined.member_id.to_string();
        let mut request = sync(&member, 1).with_group_id(named.clone());
        if version >= 7 {
            request.protocol_type = Some(text("consumer"));
            request.protocol_name = Some(text("range"));
        }
        let synced = client.ask(version.min(5), &request).await;
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
        let heartbeat = HeartbeatRequest::default()
            .with_group_id(named.clone())
            .with_member_id(text(&member))
            .with_generation_id(1);
        assert_eq!(client.ask(version.min(4), &heartbeat).await.error_code, 0);
        let mut leave = LeaveGroupRequest::default().with_group_id(named);
        if version >= 3 {
            leave.members = vec![MemberIdentity::default().with_member_id(text(&member))];
        } else {
            leave.member_id = text(&member);
        }
        let left = client.ask(version.min(5), &leave).await;
        assert_eq!(left.error_code, 0);
        assert_eq!(left.members.len(), usize::from(version >= 3));
        let gone = client.ask(version.min(4), &heartbeat).await;
        assert_eq!(gone.error_code, UnknownMemberId.code());
    }
}

#[tokio::test]
async fn a_join_waits_for_the_others_and_holds_back_only_its_own_connection() {
    let node = Node::start().await;
    let (mut first, mut second) = (node.client().await, node.client().await);
    let leader = stable(&mut first).await;
    let sent_back = second.ask(9, &join("")).await;
    let joining = second.send(9, &join(&sent_back.member_id)).await;
    // The first learns of it by its heartbeat, on a connection that nobody holds back.
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(&leader))
        .with_generation_id(1);
    while first.ask(4, &heartbeat).await.error_code != RebalanceInProgress.code() {}
    let rejoined = first.ask(9, &join(&leader)).await;
    let joined = second.receive(joining).await;
    assert_eq!((rejoined.generation_id, joined.generation_id), (2, 2));
    assert_eq!((rejoined.members.len(), joined.members.len()), (2, 0));
}

#[tokio::test]
async fn a_session_timeout_removes_a_member_whose_connection_is_gone() {
    let node = Node::start().await;
    let config = [("group.min.session.timeout.ms", "1")];
    let config = config.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    node.broker.set_node_config(config).await.expect("is set");
    let mut client = node.client().await;
    let mut request = join("").with_session_timeout_ms(100);
    request.member_id = client.ask(9, &request).await.member_id;
    let joined = client.ask(9, &request).await;
    drop(client);
    let mut other = node.client().await;
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(joined.member_id)
        .with_generation_id(7);
    // Wrong on purpose: it must not count as a sign of life.
    loop {
        let code = other.ask(4, &heartbeat).await.error_code;
        if code == UnknownMemberId.code() {
            break;
        }
        assert_eq!(code, IllegalGeneration.code());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_no_group_takes_is_refused() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let code = |error: ResponseError| error.code();
    let nameless = client.ask(9, &join("").with_group_id(group(""))).await;
    assert_eq!(nameless.error_code, code(InvalidGroupId));
    let hasty = client.ask(9, &join("").with_session_timeout_ms(10)).await;
    assert_eq!(hasty.error_code, code(InvalidSessionTimeout));
    let forgotten = client.ask(9, &join("from before")).await;
    assert_eq!(forgotten.error_code, code(UnknownMemberId));
    let bulky = JoinGroupRequestProtocol::default().with_metadata(vec![0; 2 << 20].into());
    let bulky = client.ask(9, &join("").with_protocols(vec![bulky])).await;
    assert_eq!(bulky.error_code, code(MessageTooLarge));
    let unknown = client.ask(5, &sync("nobody", 1)).await;
    assert_eq!(unknown.error_code, code(UnknownMemberId));
    node.is_well().await;
}

#[tokio::test]
async fn a_join_that_waits_is_answered_when_the_node_drains() {
    let node = Node::start().await;
    let (mut first, mut second) = (node.client().await, node.client().await);
    stable(&mut first).await;
    let sent_back = second.ask(9, &join("")).await;
    let joining = second.send(9, &join(&sent_back.member_id)).await;
    node.is_well().await;
    node.stop.send_replace(true);
    let answer = second.receive(joining).await;
    assert_eq!(answer.error_code, CoordinatorNotAvailable.code());
}

// --------------------------------------------------------------------------------------- offsets

#[tokio::test]
async fn committed_offsets_are_fetched_in_every_version() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 2, &[]).await;
    client.create("u", 1, &[]).await;
    for version in 2..=9 {
        let offset = i64::from(version);
        let request = commit("", -1, &[("t", 0, offset), ("u", 0, 7), ("t", 2, 1), ("x", 0, 1)]);
        let committed = client.ask(version, &request).await;
        let unknown = UnknownTopicOrPartition.code();
        assert_eq!(commit_codes(&committed), [0, 0, unknown, unknown]);
        let single = OffsetFetchRequestTopic::default()
            .with_name(name("t"))
            .with_partition_indexes(vec![0, 1]);
        let single =
            OffsetFetchRequest::default().with_group_id(group("g")).with_topics(Some(vec![single]));
        for fetch_version in 1..=7 {
            let fetched = client.ask(fetch_version, &single).await;
            let partitions = &fetched.topics[0].partitions;
            assert_eq!(partitions[0].committed_offset, offset);
            assert_eq!(partitions[0].metadata.as_deref(), Some("note"));
            assert_eq!(partitions[1].committed_offset, -1);
        }
        let all = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(None);
        let all = client.ask(7, &all).await;
        let topics: Vec<_> = all.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(topics, ["t", "u"]);
    }
    let of = |name: &str| {
        OffsetFetchRequestGroup::default()
            .with_group_id(group(name))
            .with_member_epoch(-1)
            .with_topics(None)
    };
    let request = OffsetFetchRequest::default().with_groups(vec![of("g"), of("none")]);
    for version in 8..=9 {
        let fetched = client.ask(version, &request).await;
        let topics: Vec<_> = fetched.groups.iter().map(|group| group.topics.len()).collect();
        assert_eq!(topics, [2, 0]);
    }
}

#[tokio::test]
async fn offsets_are_taken_from_members_of_the_generation_and_from_nobody_else() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    let refused = |response: OffsetCommitResponse| commit_codes(&response)[0];
    let offsets = [("t", 0, 5)];
    assert_eq!(refused(client.ask(9, &commit(&member, 1, &offsets)).await), 0);
    let old = client.ask(9, &commit(&member, 0, &offsets)).await;
    assert_eq!(refused(old), IllegalGeneration.code());
    let stranger = client.ask(9, &commit("x", 1, &offsets)).await;
    assert_eq!(refused(stranger), UnknownMemberId.code());
    let by_hand = client.ask(9, &commit("", -1, &offsets)).await;
    assert_eq!(refused(by_hand), UnknownMemberId.code());
    let mut wordy = commit(&member, 1, &offsets);
    wordy.topics[0].partitions[0].committed_metadata = Some(text(&"x".repeat(5000)));
    assert_eq!(refused(client.ask(9, &wordy).await), OffsetMetadataTooLarge.code());
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
}

#[tokio::test]
async fn a_negative_offset_is_none() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 2, &[]).await;
    for before in [None, Some(5)] {
        if let Some(offset) = before {
            client.ask(9, &commit("", -1, &[("t", 0, offset)])).await;
        }
        // As kafkajs does to begin at the earliest record.
        let committed = client.ask(9, &commit("", -1, &[("t", 0, -2), ("t", 1, 3)])).await;
        assert_eq!(commit_codes(&committed), [0, 0]);
        assert_eq!(fetch_one(&mut client, "t", 0).await, -1);
        assert_eq!(fetch_one(&mut client, "t", 1).await, 3);
    }
}

#[tokio::test]
async fn a_deleted_topics_offsets_are_gone() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    client.ask(9, &commit("", -1, &[("t", 0, 5)])).await;
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![name("t")]);
    assert_eq!(client.ask(5, &delete).await.responses[0].error_code, 0);
    client.create("t", 1, &[]).await;
    assert_eq!(fetch_one(&mut client, "t", 0).await, -1);
}

fn delete_offset(topic: &str) -> OffsetDeleteRequest {
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(name(topic))
        .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
    OffsetDeleteRequest::default().with_group_id(group("g")).with_topics(vec![topic])
}

#[tokio::test]
async fn offsets_of_topics_that_are_consumed_cannot_be_deleted() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let missing = client.ask(0, &delete_offset("t")).await;
    assert_eq!(missing.error_code, GroupIdNotFound.code());
    client.create("t", 1, &[]).await;
    client.create("u", 1, &[]).await;
    client.ask(9, &commit("", -1, &[("t", 0, 5), ("u", 0, 6)])).await;
    stable(&mut client).await;
    let subscribed = client.ask(0, &delete_offset("t")).await;
    let code = |response: &OffsetDeleteResponse| response.topics[0].partitions[0].error_code;
    assert_eq!(code(&subscribed), GroupSubscribedToTopic.code());
    assert_eq!(code(&client.ask(0, &delete_offset("u")).await), 0);
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
    assert_eq!(fetch_one(&mut client, "u", 0).await, -1);
}

// ----------------------------------------------------------------------------------------- admin

fn list(states: &[&str], types: &[&str]) -> ListGroupsRequest {
    let words = |words: &[&str]| words.iter().map(|word| text(word)).collect();
    ListGroupsRequest::default().with_states_filter(words(states)).with_types_filter(words(types))
}

fn listed(response: &ListGroupsResponse) -> Vec<(&str, &str, &str, &str)> {
    let groups = response.groups.iter();
    groups
        .map(|group| {
            let (name, kind) = (group.group_id.as_str(), group.group_type.as_str());
            (name, group.protocol_type.as_str(), group.group_state.as_str(), kind)
        })
        .collect()
}

#[tokio::test]
async fn groups_are_listed_described_and_deleted_once_they_are_empty() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    let by_hand = commit("", -1, &[("t", 0, 1)]).with_group_id(group("by hand"));
    client.ask(9, &by_hand).await;
    client.ask(1, &heartbeat_of(&mut node.client().await, "modern").await).await;
    let all = client.ask(5, &list(&[], &[])).await;
    let expected = [
        ("by hand", "", "Empty", "classic"),
        ("g", "consumer", "Stable", "classic"),
        ("modern", "consumer", "Stable", "consumer"),
    ];
    assert_eq!(listed(&all), expected);
    let stable_classic = client.ask(5, &list(&["stable"], &["Classic"])).await;
    assert_eq!(listed(&stable_classic), expected[1..2]);
    for version in 0..=4 {
        let all = client.ask(version, &ListGroupsRequest::default()).await;
        assert_eq!(all.groups.len(), 3);
    }

    let describe = DescribeGroupsRequest::default()
        .with_groups(["g", "by hand", "modern", "none"].map(group).to_vec());
    for version in 0..=6 {
        let described = client.ask(version, &describe).await.groups;
        let states: Vec<_> = described.iter().map(|group| group.group_state.as_str()).collect();
        assert_eq!(states, ["Stable", "Empty", "Dead", "Dead"]);
        let one = &described[0].members[0];
        assert_eq!((one.member_id.as_str(), &one.member_assignment[..]), (&*member, &b"mine"[..]));
        assert_eq!(one.member_metadata, subscription("t"));
        assert_eq!((one.client_id.as_str(), one.client_host.as_str()), ("test", "/127.0.0.1"));
        let code = if version >= 6 { GroupIdNotFound.code() } else { 0 };
        assert_eq!((described[2].error_code, described[3].error_code), (code, code));
        if version >= 6 {
            let messages = [2, 3].map(|at| described[at].error_message.as_deref().unwrap_or(""));
            assert_eq!(messages, ["Group modern is not a classic group.", "Group none not found."]);
        }
    }

    let delete = DeleteGroupsRequest::default()
        .with_groups_names(["g", "by hand", "modern", "none"].map(group).to_vec());
    let deleted = client.ask(2, &delete).await;
    let codes: Vec<_> = deleted.results.iter().map(|result| result.error_code).collect();
    let (busy, unknown) = (NonEmptyGroup.code(), GroupIdNotFound.code());
    assert_eq!(codes, [busy, 0, busy, unknown]);
    let left = client.ask(5, &list(&[], &[])).await;
    assert_eq!(left.groups.len(), 2);
}

// ---------------------------------------------------------------------------------------- KIP-848

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
async fn heartbeat_of(client: &mut Client, named: &str) -> ConsumerGroupHeartbeatRequest {
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
async fn the_group_divides_and_a_second_member_waits_for_the_first_to_let_go() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let topic = client.create("t", 2, &[]).await;
    // Before KIP-1082 the group names its members.
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
    // The catalog changes, and the next heartbeat knows.
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

// ---------------------------------------------------------------------------------------- restart

#[tokio::test]
async fn a_restart_forgets_members_and_keeps_offsets() {
    let disk = Arc::new(SimulatedDisk::new());
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    let codes = commit_codes(&client.ask(9, &commit(&member, 1, &[("t", 0, 5)])).await);
    assert_eq!(codes, [0]);
    let modern_heartbeat = heartbeat_of(&mut client, "modern").await;
    drop(client);
    node.shutdown().await;

    let node = Node::on(disk, |_| {}).await;
    let mut client = node.client().await;
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
    // These codes make clients join again; "no such group" would make them give up.
    let unknown = UnknownMemberId.code();
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(&member))
        .with_generation_id(1);
    assert_eq!(client.ask(4, &heartbeat).await.error_code, unknown);
    let codes = commit_codes(&client.ask(9, &commit(&member, 1, &[("t", 0, 6)])).await);
    assert_eq!(codes, [unknown]);
    assert_eq!(client.ask(9, &join(&member)).await.error_code, unknown);
    assert_eq!(client.ask(1, &modern_heartbeat).await.error_code, unknown);
    stable(&mut client).await;
    heartbeat_of(&mut client, "modern").await;
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
}
