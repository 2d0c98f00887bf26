//! Tests with a server that replies as Queen's source does: the whole conformance test, and replies
//! that a healthy server does not send.

mod server;

use bytes::Bytes;
use driver::{Driver, Failure, Message, Style, Target, Tier, Topology};
use serde_json::json;
use std::sync::Arc;

use crate::conformance;
use server::Server;

fn target(server: &Server) -> Target {
    let mut target = Target::of("queen");
    target.endpoints.push(server.endpoint());
    target
}

fn driver(server: &Server) -> Arc<dyn Driver> {
    super::connect(&target(server)).expect("settings are fine")
}

fn topology() -> Topology {
    Topology::new("queen-test", Style::Queue, Tier::T3)
}

async fn sent(driver: &dyn Driver) -> Result<(), Failure> {
    let mut sender = driver.sender(&topology()).await.expect("a sender");
    sender.send(0, &[Message { lane: 0, body: Bytes::from_static(b"x") }]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_conforms() {
    let server = Server::start().await;
    let found = conformance::run(&target(&server), None, |check| println!("{check}")).await;
    let found = found.expect("it is there");
    let failures: Vec<_> = found.failures().collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!(found.version, "1.0.0");
}

#[tokio::test]
async fn pushes_have_unique_transaction_ids_and_lanes_are_partitions() {
    let server = Server::start().await;
    let driver = driver(&server);
    driver.create(&topology()).await.expect("creates");
    let mut sender = driver.sender(&topology()).await.expect("a sender");
    let message = |lane| Message { lane, body: Bytes::from_static(b"\0\xff") };
    sender.send(0, &[message(3), message(4)]).await.expect("is sent");
    let pushed = server.pushed();
    assert_eq!(pushed.len(), 2);
    assert_ne!(pushed[0]["transactionId"], pushed[1]["transactionId"]);
    let lanes: Vec<_> = pushed.iter().map(|item| item["partition"].clone()).collect();
    assert_eq!(lanes, ["lane-3", "lane-4"]);
    assert_eq!(pushed[0]["payload"], "AP8=");
}

#[tokio::test]
async fn buffered_message_is_not_sent() {
    let server = Server::start().await;
    let driver = driver(&server);
    driver.create(&topology()).await.expect("creates");
    server.answer_once("/api/v1/push", 201, json!([{ "status": "buffered" }]));
    let failure = sent(&*driver).await.expect_err("is not in the database");
    assert!(matches!(failure, Failure::Unknown(_)), "{failure}");
    let failed = json!([{ "status": "failed", "error": "File buffer write failed" }]);
    server.answer_once("/api/v1/push", 500, failed);
    sent(&*driver).await.expect_err("is nowhere");
    server.answer_once("/api/v1/push", 201, json!([]));
    sent(&*driver).await.expect_err("the answer leaves it out");
}

#[tokio::test]
async fn rejected_acknowledgement_is_an_error() {
    let server = Server::start().await;
    let driver = driver(&server);
    driver.create(&topology()).await.expect("creates");
    sent(&*driver).await.expect("is sent");
    let mut receiver = driver.receiver(&topology(), &[0], 0).await.expect("a receiver");
    let came = receiver.receive(1).await.expect("comes");
    let refused = json!([{ "success": false, "error": "Invalid or expired lease" }]);
    server.answer_once("/api/v1/ack/batch", 200, refused);
    let failure = receiver.settle(&[(came[0].id, driver::Settle::Accept)]).await;
    let failure = failure.expect_err("is not taken").to_string();
    assert!(failure.contains("expired lease"), "{failure}");
}

#[tokio::test]
async fn token_is_sent_and_a_wrong_one_is_reported_as_not_allowed() {
    let server = Server::start_with_token("right").await;
    let mut target = target(&server);
    (target.user, target.password) = (Some("me".into()), Some("right".into()));
    super::connect(&target).expect("fine").version().await.expect("is let in");
    target.password = Some("wrong".into());
    let failure = super::connect(&target).expect("fine").version().await;
    assert!(matches!(failure, Err(Failure::NotAllowed { .. })), "{failure:?}");
}
