//! The classic protocol: members join, sync and leave.

use bytes::Bytes;
use kafka_protocol::error::ResponseError::{self, *};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;

use super::group;
use crate::harness::*;

/// A consumer's metadata with one topic.
pub(super) fn subscription(topic: &str) -> Bytes {
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, topic.len() as u8];
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&[0xff; 4]);
    Bytes::from(bytes)
}

pub(crate) fn join(member: &str) -> JoinGroupRequest {
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

pub(crate) fn sync(member: &str, generation: i32) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(text(member))
        .with_assignment(Bytes::from_static(b"mine"));
    SyncGroupRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_generation_id(generation)
        .with_assignments(vec![assignment])
}

/// A stable group of one; returns its member.
pub(crate) async fn stable(client: &mut Client) -> String {
    let sent_back = client.ask(9, &join("")).await;
    assert_eq!(sent_back.error_code, MemberIdRequired.code());
    let member = sent_back.member_id.to_string();
    let joined = client.ask(9, &join(&member)).await;
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    let synced = client.ask(5, &sync(&member, 1)).await;
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"mine"[..]));
    member
}

#[tokio::test]
async fn members_join_and_leave_in_every_version_of_the_classic_protocol() {
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
    // The first member learns of it by a heartbeat, over its own connection, which is not held back.
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
async fn invalid_group_requests_are_refused() {
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
