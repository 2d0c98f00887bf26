//! Bounds of describing responses: a name takes a few bytes of a request, and its description thousands.
//! Items beyond the bound are refused, and the others are described.

use bytes::Bytes;
use gateway_kafka::limits::DESCRIBED_BYTES_MAX;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeGroupsRequest, GroupId, JoinGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use crate::harness::*;

fn name(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

const NAMED: usize = 200_000;

/// The first items are described, and later ones are refused; small ones after a refusal may still fit.
fn check(bytes: usize, codes: &[i16], told: i16) {
    assert!(bytes < DESCRIBED_BYTES_MAX + NAMED * 32, "{bytes} bytes");
    assert_eq!(codes.len(), NAMED);
    let refused = ResponseError::PolicyViolation.code();
    let first = codes.iter().position(|code| *code != told).expect("not all of them fit");
    assert!((1_000..NAMED / 2).contains(&first), "{first} are told");
    assert!(codes[first..].iter().all(|code| *code == refused), "from {first} on");
}

#[tokio::test]
async fn topic_named_repeatedly_is_described_until_the_response_is_full() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let topic = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(name("t"))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![topic; NAMED]);
    let (bytes, response) = client.ask_counted(4, &request).await;
    let codes: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
    check(bytes, &codes, 0);
    let refused = response.results.iter().find(|result| result.error_code != 0);
    let why = refused.and_then(|result| result.error_message.as_ref()).expect("a reason");
    assert!(why.contains("ask for fewer"), "{why}");
    let (first, last) = (&response.results[0], &response.results[NAMED - 1]);
    assert!(first.configs.len() > 20 && last.configs.is_empty());
}

#[tokio::test]
async fn group_named_repeatedly_is_described_until_the_response_is_full() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let id = GroupId(name("workers"));
    // Its metadata is what makes the description large.
    let metadata = Bytes::from(vec![7; 10_000]);
    let protocol =
        JoinGroupRequestProtocol::default().with_name(name("range")).with_metadata(metadata);
    let join = JoinGroupRequest::default()
        .with_group_id(id.clone())
        .with_protocol_type(name("consumer"))
        .with_session_timeout_ms(60_000)
        .with_rebalance_timeout_ms(60_000)
        .with_protocols(vec![protocol]);
    let member = client.ask(3, &join).await;
    assert_eq!(member.error_code, 0);
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(member.member_id.clone())
        .with_assignment(Bytes::from(vec![8; 10_000]));
    let sync = SyncGroupRequest::default()
        .with_group_id(id.clone())
        .with_generation_id(member.generation_id)
        .with_member_id(member.member_id)
        .with_assignments(vec![assignment]);
    assert_eq!(client.ask(3, &sync).await.error_code, 0);

    let request = DescribeGroupsRequest::default().with_groups(vec![id; NAMED]);
    let (bytes, response) = client.ask_counted(6, &request).await;
    let codes: Vec<i16> = response.groups.iter().map(|group| group.error_code).collect();
    check(bytes, &codes, 0);
    assert_eq!(response.groups[0].members.len(), 1);
}
