//! Share sessions: their epochs, their end, and their limit.

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;
use world::Instant;

use super::member::*;
use super::started;
use crate::harness::*;

#[tokio::test]
async fn share_session_epochs_are_checked() {
    let node = Node::start().await;
    let (_, topic) = started(&node).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.session_epoch = 1;
    let request = member.fetch_request(topic, &[0], 0);
    assert_eq!(member.send(request).await.error_code, ShareSessionNotFound.code());
    let unknown = member.acknowledge(topic, &[]).await;
    assert_eq!(unknown.error_code, ShareSessionNotFound.code());
    member.session_epoch = 0;
    let early = member.acknowledge(topic, &[]).await;
    assert_eq!(early.error_code, InvalidShareSessionEpoch.code(), "it begins with a fetch");
    let request = member.fetch_request(topic, &[0], 0);
    assert_eq!(member.send(request.clone()).await.error_code, 0);
    assert_eq!(member.session_epoch, 1);
    member.session_epoch = 5;
    let skipped = member.fetch_request(topic, &[0], 0);
    assert_eq!(member.send(skipped).await.error_code, InvalidShareSessionEpoch.code());
    // A new session may begin at any time.
    assert_eq!(member.send(request).await.error_code, 0);
    member.session_epoch = -1;
    let close = member.fetch_request(topic, &[], 0);
    assert_eq!(member.send(close.clone()).await.error_code, 0);
    member.session_epoch = -1;
    assert_eq!(member.send(close).await.error_code, ShareSessionNotFound.code());
}

#[tokio::test]
async fn share_fetch_without_a_valid_group_or_member_is_refused() {
    let node = Node::start().await;
    let (_, topic) = started(&node).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let request = member.fetch_request(topic, &[0], 0);
    for bad in [
        request.clone().with_group_id(None),
        request.clone().with_member_id(None),
        request.clone().with_member_id(Some(text(""))),
        request.with_member_id(Some(text(&"x".repeat(37)))),
    ] {
        assert_eq!(member.send(bad).await.error_code, InvalidRequest.code());
    }
}

#[tokio::test]
async fn leased_records_are_available_again_when_the_session_ends() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b"]).await;
    let mut first = Member::join(&node, "a", &["t"]).await;
    let mut second = Member::join(&node, "b", &["t"]).await;
    first.take(topic, 0).await;
    // The member closes its session, and settles some records with that request.
    first.session_epoch = -1;
    first.settle(topic, &[(0, 0, ACCEPT)]).await;
    assert_eq!(second.take(topic, 0).await.acquired, [(1, 1, 2)]);
    // It opens a new session.
    second.session_epoch = 0;
    let begins = second.fetch_request(topic, &[0], 5000);
    assert_eq!(taken(&second.send(begins).await).acquired, [(1, 1, 3)]);
    // Its connection is closed.
    drop(second.client);
    first.session_epoch = 0;
    assert_eq!(first.take(topic, 0).await.acquired, [(1, 1, 4)]);
}

#[tokio::test]
async fn share_sessions_over_the_limit_are_refused() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let config = AlterableConfig::default()
        .with_name(text("group.share.max.share.sessions"))
        .with_value(Some(text("1")));
    let resource = AlterConfigsResource::default().with_resource_type(4).with_configs(vec![config]);
    let alter = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.ask(1, &alter).await.responses[0].error_code, 0);
    let mut first = Member::join(&node, "a", &["t"]).await;
    let mut second = Member::join(&node, "b", &["t"]).await;
    let request = first.fetch_request(topic, &[0], 0);
    assert_eq!(first.send(request).await.error_code, 0);
    let request = second.fetch_request(topic, &[0], 0);
    assert_eq!(second.send(request).await.error_code, ShareSessionLimitReached.code());
    drop(first.client);
    node.is_well().await;
    let request = second.fetch_request(topic, &[0], 0);
    assert_eq!(second.send(request).await.error_code, 0);
}

#[tokio::test]
async fn deleted_topic_is_reported_once_and_then_the_fetch_waits() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let request = member.fetch_request(topic, &[0], 0);
    member.send(request).await;
    let gone = delete_topics_request::DeleteTopicState::default().with_name(Some(name("t")));
    let delete = DeleteTopicsRequest::default().with_topics(vec![gone]).with_timeout_ms(5000);
    assert_eq!(client.ask(6, &delete).await.responses[0].error_code, 0);
    let request = member.fetch_request(topic, &[0], 5000);
    let response = member.send(request).await;
    assert_eq!(partition_of(&response).map(|p| p.error_code), Some(UnknownTopicId.code()));
    let begun = Instant::now();
    let request = member.fetch_request(topic, &[0], 200);
    assert!(member.send(request).await.responses.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(200), "no busy loop");
}
