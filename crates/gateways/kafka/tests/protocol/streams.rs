//! The Streams group protocol on the wire. The message crate lacks it, so the frames are written and read by
//! hand, field by field.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::{
    ApiVersionsRequest, GroupId, ListGroupsRequest, MetadataRequest, OffsetCommitRequest,
};

use crate::harness::*;

const HEARTBEAT: i16 = 88;
const DESCRIBE: i16 = 89;

fn request(key: i16, version: i16, body: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(7);
    frame.put_i16(4);
    frame.put_slice(b"test");
    frame.put_u8(0);
    frame.put_slice(body);
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// Lengths below 127 only.
fn put(body: &mut BytesMut, text: &str) {
    body.put_u8(text.len() as u8 + 1);
    body.put_slice(text.as_bytes());
}

fn put_topic(body: &mut BytesMut, topic: &str) {
    put(body, topic);
    body.put_i32(0);
    body.put_i16(0);
    body.put_u8(1);
    body.put_u8(0);
}

const NULL: u8 = 0;
const NONE: u8 = 1;

/// A heartbeat of a joining member: it reads `in`, and counts with state.
fn joins(group: &str, member: &str) -> BytesMut {
    let mut body = BytesMut::new();
    put(&mut body, group);
    put(&mut body, member);
    body.put_i32(0); // member epoch
    body.put_i32(0); // endpoint epoch
    body.put_u8(NULL); // instance
    body.put_u8(NULL); // rack
    body.put_i32(60_000);
    body.put_i8(1); // the topology
    body.put_i32(0);
    body.put_u8(2); // one subtopology
    put(&mut body, "0");
    body.put_u8(2);
    put(&mut body, "in");
    body.put_u8(NONE); // patterns
    body.put_u8(2);
    put_topic(&mut body, "app-changelog");
    body.put_u8(NONE); // sinks
    body.put_u8(NONE); // repartition sources
    body.put_u8(NONE); // copartition groups
    body.put_u8(0);
    body.put_u8(0);
    body.put_bytes(NONE, 3); // tasks
    put(&mut body, "process");
    body.put_i8(-1); // endpoint
    body.put_u8(NONE); // tags
    body.put_bytes(NULL, 2); // offsets
    body.put_u8(0); // shutdown
    body.put_u8(0);
    body
}

/// A heartbeat without changes.
fn stays(group: &str, member: &str, epoch: i32) -> BytesMut {
    let mut body = BytesMut::new();
    put(&mut body, group);
    put(&mut body, member);
    body.put_i32(epoch);
    body.put_i32(0);
    body.put_bytes(NULL, 2);
    body.put_i32(-1);
    body.put_i8(-1);
    body.put_bytes(NULL, 3);
    body.put_u8(NULL); // process
    body.put_i8(-1);
    body.put_u8(NULL);
    body.put_bytes(NULL, 2);
    body.put_u8(0);
    body.put_u8(0);
    body
}

struct HeartbeatReply {
    code: i16,
    message: String,
    epoch: i32,
    statuses: Vec<(i8, String)>,
    /// `None` if the member knows them already.
    active: Option<Vec<(String, Vec<i32>)>>,
}

fn text_of(bytes: &mut Bytes) -> String {
    let length = usize::from(bytes.get_u8()).saturating_sub(1);
    String::from_utf8(bytes.split_to(length).to_vec()).expect("text")
}

fn answer(mut bytes: Bytes) -> HeartbeatReply {
    assert_eq!((bytes.get_i32(), bytes.get_u8(), bytes.get_i32()), (7, 0, 0));
    let code = bytes.get_i16();
    let message = text_of(&mut bytes);
    text_of(&mut bytes);
    let epoch = bytes.get_i32();
    bytes.advance(12);
    let statuses = (1..bytes.get_u8())
        .map(|_| {
            let status = (bytes.get_i8(), text_of(&mut bytes));
            bytes.advance(1);
            status
        })
        .collect();
    let rows = bytes.get_u8();
    let active = (rows > 0).then(|| {
        (1..rows)
            .map(|_| {
                let subtopology = text_of(&mut bytes);
                let partitions = (1..bytes.get_u8()).map(|_| bytes.get_i32()).collect();
                bytes.advance(1);
                (subtopology, partitions)
            })
            .collect()
    });
    HeartbeatReply { code, message, epoch, statuses, active }
}

impl Client {
    async fn raw(&mut self, key: i16, version: i16, body: &[u8]) -> Option<Bytes> {
        let frame = request(key, version, body);
        self.send_bytes(&frame).await;
        self.receive_frame().await
    }

    async fn beats(&mut self, body: &[u8]) -> HeartbeatReply {
        answer(self.raw(HEARTBEAT, 0, body).await.expect("is answered"))
    }
}

async fn node() -> (Node, Client) {
    let node = Node::start().await;
    let set = [("group.streams.initial.rebalance.delay.ms".to_owned(), "0".to_owned())];
    node.broker.set_node_config(set.into()).await.expect("is configured");
    let client = node.client().await;
    (node, client)
}

#[tokio::test]
async fn member_receives_its_tasks_and_internal_topics_are_created() {
    let (_node, mut client) = node().await;
    let versions = client
        .ask(
            3,
            &ApiVersionsRequest::default()
                .with_client_software_name(text("a"))
                .with_client_software_version(text("1")),
        )
        .await;
    for key in [HEARTBEAT, DESCRIBE] {
        assert!(versions.api_keys.iter().any(|known| known.api_key == key));
    }
    let features = &versions.finalized_features;
    assert!(features.iter().any(|feature| feature.name.as_str() == "streams.version"));

    let missing = client.beats(&joins("app", "m")).await;
    assert_eq!(missing.code, 0, "{}", missing.message);
    assert_eq!(missing.statuses, [(1, "Source topics in are missing.".to_owned())]);
    client.create("in", 2, &[]).await;
    let ready = client.beats(&stays("app", "m", missing.epoch)).await;
    assert_eq!((ready.code, ready.statuses), (0, vec![]));
    assert_eq!(ready.active, Some(vec![("0".to_owned(), vec![0, 1])]));
    let changelog = client.ask(12, &MetadataRequest::default().with_topics(None)).await;
    let changelog = changelog
        .topics
        .iter()
        .find(|topic| topic.name.as_ref().is_some_and(|name| name.as_str() == "app-changelog"));
    assert_eq!(changelog.expect("is made").partitions.len(), 2);
    let known = client.beats(&stays("app", "m", ready.epoch)).await;
    assert_eq!((known.code, known.active), (0, None));

    let listed = ListGroupsRequest::default().with_types_filter(vec![text("streams")]);
    let listed = client.ask(5, &listed).await;
    let group = &listed.groups[0];
    assert_eq!((group.group_id.as_str(), group.group_state.as_str()), ("app", "Stable"));

    let stale = OffsetCommitRequest::default()
        .with_group_id(GroupId(text("app")))
        .with_member_id(text("m"))
        .with_generation_id_or_member_epoch(ready.epoch + 1)
        .with_topics(vec![
            kafka_protocol::messages::offset_commit_request::OffsetCommitRequestTopic::default()
                .with_name(name("in"))
                .with_partitions(vec![Default::default()]),
        ]);
    let committed = client.ask(9, &stale).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, StaleMemberEpoch.code());

    let left = client.beats(&stays("app", "m", -1)).await;
    assert_eq!((left.code, left.epoch), (0, -1));
    let gone = client.beats(&stays("app", "m", ready.epoch)).await;
    assert_eq!(gone.code, UnknownMemberId.code());
}

#[tokio::test]
async fn groups_are_described_once_each() {
    let (_node, mut client) = node().await;
    client.create("in", 1, &[]).await;
    client.beats(&joins("app", "m")).await;
    let mut body = BytesMut::new();
    body.put_u8(4);
    for group in ["app", "none", "app"] {
        put(&mut body, group);
    }
    body.put_u8(0);
    body.put_u8(0);
    let mut described = client.raw(DESCRIBE, 0, &body).await.expect("is answered");
    described.advance(9);
    assert_eq!(described.get_u8(), 3, "two groups");
    assert_eq!((described.get_i16(), text_of(&mut described)), (0, String::new()));
    assert_eq!((text_of(&mut described), text_of(&mut described)), ("app".into(), "Stable".into()));
    let rest = described.to_vec();
    let absent = b"Group none not found.";
    assert!(rest.windows(absent.len()).any(|part| part == absent));
}

#[tokio::test]
async fn unsupported_streams_requests_are_refused_with_a_reason() {
    let (_node, mut client) = node().await;
    client.create("in", 1, &[]).await;
    let mut fixed = joins("app", "m");
    let place = fixed.windows(13).position(|part| part == b"app-changelog").expect("is there") + 16;
    fixed[place] = 3;
    let refused = client.beats(&fixed).await;
    assert_eq!(refused.code, StreamsInvalidTopology.code(), "{}", refused.message);
    let unknown = client.beats(&stays("app", "m", 5)).await;
    assert_eq!(unknown.code, UnknownMemberId.code(), "which clients answer by joining");
    let nameless = client.beats(&joins("app", "")).await;
    assert_eq!(
        (nameless.code, &*nameless.message),
        (InvalidRequest.code(), "MemberId can't be empty.")
    );
    let huge = [joins("app", "m").to_vec(), vec![0; 1 << 20]].concat();
    assert_eq!(client.beats(&huge).await.code, InvalidRequest.code());
    // After the refusals a valid heartbeat still joins.
    assert_eq!(client.beats(&joins("app", "m")).await.code, 0);
}

#[tokio::test]
async fn malformed_streams_requests_close_only_their_connection() {
    let (node, _) = node().await;
    let whole = joins("app", "m");
    for cut in 0..whole.len() {
        let mut client = node.client().await;
        assert_eq!(client.raw(HEARTBEAT, 0, &whole[..cut]).await, None, "cut at {cut}");
    }
    for (key, version) in [(HEARTBEAT, 1), (DESCRIBE, 1), (DESCRIBE, -1)] {
        let mut client = node.client().await;
        assert_eq!(client.raw(key, version, &whole).await, None);
    }
    node.is_well().await;
}
