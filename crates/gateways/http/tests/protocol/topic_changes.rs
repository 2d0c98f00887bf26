//! `/v1`: a topic that is changed by two at a time, tried, grown, and deleted.

use std::pin::pin;
use std::time::Duration;

use axum::http::Method;
use gateway_http::LoginOptions;
use serde_json::{Value, json};
use test_cluster::TestNode;
use tokio::time::timeout;

use crate::harness::{Answer, SOON, Server, ask, connect, open_node, request};
use crate::records::{make, post, produce};

async fn patch(server: &Server, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    let asked = request(Method::PATCH, path, headers, body.to_string());
    ask(&mut connect(server.address).await, asked).await
}

#[tokio::test]
async fn a_topic_is_changed_whole_or_not_at_all() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({"retention.ms": "1000"})).await;
    let wanted =
        json!({"partitions": 3, "config": {"retention.ms": null, "max.message.bytes": "5000"}});
    let changed = patch(&server, "/v1/topics/t", &[], wanted).await;
    let config = json!({"max.message.bytes": "5000"});
    let expected = json!({"name": "t", "partitions": 3, "config": config, "dry_run": false});
    assert_eq!(changed.json(), expected);
    let described = server.get("/v1/topics/t").await;
    assert_eq!(described.header("etag"), changed.header("etag"));
    assert_eq!(described.json()["partitions"].as_array().map(Vec::len), Some(3));
    // A value that is wrong keeps the partitions from being made.
    for wrong in [
        json!({"partitions": 5, "config": {"retention.ms": "x"}}),
        json!({"partitions": 2, "config": {"retention.ms": "5"}}),
    ] {
        patch(&server, "/v1/topics/t", &[], wrong).await.is_problem(422, "invalid");
    }
    let now = server.get("/v1/topics/t").await.json();
    assert_eq!((now["partitions"].as_array().map(Vec::len), &now["config"]), (Some(3), &config));
    let wrong = patch(&server, "/v1/topics/t", &[], json!({"partition": 5})).await;
    wrong.is_problem(400, "bad-request");
    let none = patch(&server, "/v1/topics/none", &[], json!({"partitions": 5})).await;
    none.is_problem(404, "no-such-topic");
}

#[tokio::test]
async fn whoever_is_second_is_told_and_changes_nothing() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let tag = server.get("/v1/topics/t").await.header("etag").to_owned();
    assert_eq!(server.get("/v1/topics/t/config").await.header("etag"), tag);
    let seen = [("if-match", &*tag)];
    let first = json!({"config": {"retention.ms": "1000"}});
    let changed = patch(&server, "/v1/topics/t", &seen, first).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    for path in ["/v1/topics/t", "/v1/topics/t/config"] {
        let second = json!({"config": {"retention.ms": "2000"}});
        patch(&server, path, &seen, second).await.is_problem(412, "changed");
    }
    assert_eq!(server.get("/v1/topics/t").await.json()["config"]["retention.ms"], "1000");
    // What it is by now, one of several, or whatever it is.
    let several = format!("\"x\", {}", changed.header("etag"));
    for said in [several.as_str(), "*"] {
        let body = json!({"config": {"retention.ms": "1000"}});
        let answer = patch(&server, "/v1/topics/t/config", &[("if-match", said)], body).await;
        assert_eq!(answer.status, 200, "{said}: {answer:?}");
    }
    // A topic of the same name is not the same.
    let asked = request(Method::DELETE, "/v1/topics/t", &[], "");
    assert_eq!(ask(&mut connect(server.address).await, asked).await.status, 204);
    make(&server, "t", 1, json!({})).await;
    let answer = patch(&server, "/v1/topics/t", &seen, json!({"partitions": 2})).await;
    answer.is_problem(412, "changed");
}

#[tokio::test]
async fn changes_of_several_at_a_time_are_all_made() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let names =
        ["retention.ms", "max.message.bytes", "segment.ms", "dedup.window.ms", "retention.bytes"];
    let server = &server;
    let change = |name: &'static str| async move {
        let body = json!({"config": {name: "3600000"}});
        patch(server, "/v1/topics/t", &[], body).await.status.as_u16()
    };
    let statuses = futures_util::future::join_all(names.map(change)).await;
    assert_eq!(statuses, [200; 5]);
    let config = server.get("/v1/topics/t").await.json()["config"].clone();
    assert_eq!(config.as_object().map(serde_json::Map::len), Some(5), "{config}");
}

#[tokio::test]
async fn a_trial_changes_and_deletes_nothing_and_says_what_would_be() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 2, json!({})).await;
    produce(&server, "t", &["a", "b", "c"]).await;
    let group = request(Method::PUT, "/v1/topics/t/groups/g", &[], "{}");
    assert_eq!(ask(&mut connect(server.address).await, group).await.status, 201);
    let tag = server.get("/v1/topics/t").await.header("etag").to_owned();
    let wanted = json!({"partitions": 9, "config": {"retention.ms": "5"}});
    let tried = patch(&server, "/v1/topics/t?dry_run=true", &[], wanted).await;
    let expected =
        json!({"name": "t", "partitions": 9, "config": {"retention.ms": "5"}, "dry_run": true});
    assert_eq!((tried.json(), tried.header("etag")), (expected, &*tag));
    let wrong = patch(&server, "/v1/topics/t?dry_run=true", &[], json!({"partitions": 2})).await;
    assert_eq!(wrong.status, 200, "as many as before are no change: {wrong:?}");
    let wrong = patch(&server, "/v1/topics/t?dry_run=true", &[], json!({"partitions": 1})).await;
    wrong.is_problem(422, "invalid");
    let delete = request(Method::DELETE, "/v1/topics/t?dry_run=true", &[], "");
    let tried = ask(&mut connect(server.address).await, delete).await;
    assert_eq!(tried.json(), json!({"records": 3, "partitions": 2, "groups": ["g"]}));
    let now = server.get("/v1/topics/t").await;
    assert_eq!(now.header("etag"), tag);
    let dead = json!({"source": "t"});
    for what in ["redrive", "delete"] {
        let path = format!("/v1/topics/t/dead-letters/{what}?dry_run=true");
        let tried = post(&server, &path, &dead).await.json();
        assert_eq!(tried["records"], 0, "{tried}");
    }
}

#[tokio::test]
async fn records_for_a_topic_that_another_node_has_just_created_are_kept() {
    let nodes = test_cluster::start_three_behind_gates().await;
    let mut servers = Vec::new();
    for node in &nodes {
        node.broker.ready().await.expect("ready");
        let server = Server::start(|_| {}).await;
        server.open_with(node.broker.clone(), LoginOptions::default()).await;
        servers.push(server);
    }
    let follows = |node: &TestNode| !node.broker.leads_catalog();
    let here = nodes.iter().position(follows).expect("one leads");
    let (server, other) = (&servers[here], &servers[(here + 1) % 3]);
    let gate = nodes[here].gate();
    gate.close();
    make(other, "t", 1, json!({})).await;
    assert!(nodes[here].broker.catalog().topic_named("t").is_none(), "its copy is old");
    let mut produced = pin!(produce(server, "t", &["a"]));
    let early = timeout(Duration::from_millis(200), produced.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    gate.open();
    timeout(SOON, produced).await.expect("soon");
    let read = other.get("/v1/topics/t/partitions/0/records").await.json();
    assert_eq!(read["records"][0]["value"], "a", "{read}");
}
