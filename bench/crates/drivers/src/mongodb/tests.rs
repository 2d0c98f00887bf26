//! Tests with a server that speaks MongoDB's wire protocol: the whole conformance test, the
//! requests to the server, and replies that a healthy server does not send.

mod server;

use std::sync::Arc;

use bytes::Bytes;
use driver::{Driver, Failure, Message, Style, Target, Tier, Topology};
use mongodb::bson::{Document, doc};

use crate::conformance;
use server::Server;

fn target(server: &Server) -> Target {
    let mut target = Target::of("mongodb");
    target.endpoints.push(server.endpoint());
    target
}

fn driver(server: &Server) -> Arc<dyn Driver> {
    super::connect(&target(server)).expect("settings are fine")
}

fn topology(tier: Tier) -> Topology {
    Topology::new("mongo-test", Style::Queue, tier)
}

async fn sent(server: &Server, tier: Tier, count: usize) -> Result<(), Failure> {
    let driver = driver(server);
    let mut sender = driver.sender(&topology(tier)).await.expect("a sender");
    let message = Message { lane: 0, body: Bytes::from_static(b"x") };
    sender.send(0, &vec![message; count]).await
}

fn concern(asked: &Document) -> &Document {
    asked.get_document("writeConcern").expect("it says how safe it must be")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_conforms() {
    let server = Server::start().await;
    let found = conformance::run(&target(&server), None, |check| println!("{check}")).await;
    let found = found.expect("it is there");
    let failures: Vec<_> = found.failures().collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert_eq!((found.version.as_str(), found.tier), ("8.0.0", Tier::T0));
}

#[tokio::test]
async fn write_concern_matches_the_tier() {
    let server = Server::start().await;
    let expected = [
        (Tier::T0, doc! { "w": 1, "j": false }),
        (Tier::T3, doc! { "w": 1, "j": true }),
        (Tier::T4, doc! { "w": "majority", "j": true }),
    ];
    for (tier, expected) in expected {
        sent(&server, tier, 1).await.expect("is sent");
        let insert = server.requests("insert").pop().expect("it was asked to insert");
        assert_eq!(*concern(&insert), expected, "{tier}");
    }
}

#[tokio::test]
async fn settling_is_as_safe_as_sending_and_there_is_an_index() {
    let server = Server::start().await;
    let driver = driver(&server);
    driver.create(&topology(Tier::T3)).await.expect("creates");
    let index = server.requests("createIndexes").pop().expect("it was asked for an index");
    let indexes = index.get_array("indexes").expect("has some");
    let key = indexes[0].as_document().and_then(|index| index.get_document("key").ok());
    assert_eq!(key, Some(&doc! { "next_delivery": 1 }));
    sent(&server, Tier::T3, 1).await.expect("is sent");
    let mut receiver = driver.receiver(&topology(Tier::T3), &[0], 0).await.expect("a receiver");
    let came = receiver.receive(1).await.expect("comes");
    receiver.settle(&[(came[0].id, driver::Settle::Accept)]).await.expect("settles");
    for command in ["findAndModify", "delete"] {
        let asked = server.requests(command).pop().expect(command);
        assert_eq!(*concern(&asked), doc! { "w": 1, "j": true }, "{command}");
    }
}

#[tokio::test]
async fn majority_of_one_is_rejected() {
    let server = Server::start().await;
    let refused = driver(&server).create(&topology(Tier::T4)).await;
    assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn errors_of_an_insert_are_raised() {
    let server = Server::start().await;
    let failed = doc! { "index": 0, "code": 11000, "errmsg": "duplicate key" };
    server.answer_once("insert", doc! { "ok": 1, "n": 0, "writeErrors": [failed] });
    let refused = sent(&server, Tier::T0, 1).await;
    assert!(
        matches!(&refused, Err(Failure::Refused(why)) if why == "duplicate key"),
        "{refused:?}"
    );
    let late = doc! { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "too late" };
    server.answer_once("insert", doc! { "ok": 1, "n": 1, "writeConcernError": late });
    let unknown = sent(&server, Tier::T0, 1).await;
    assert!(matches!(&unknown, Err(Failure::Unknown(why)) if why == "too late"), "{unknown:?}");
    let full = doc! { "ok": 0, "code": 14031, "codeName": "OutOfDiskSpace", "errmsg": "full" };
    server.answer_once("insert", full);
    let refused = sent(&server, Tier::T0, 1).await;
    assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
}
