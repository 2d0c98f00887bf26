//! `/v1`: concurrent changes of a topic, dry runs, growth and deletion.

use std::pin::pin;
use std::time::Duration;

use axum::http::Method;
use gateway_http::LoginOptions;
use serde_json::{Value, json};
use test_cluster::TestNode;
use tokio::time::timeout;

use crate::harness::{ReceivedResponse, SOON, Server, ask, connect, open_node, request};
use crate::records::{make, post, produce};

async fn patch(
    server: &Server,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> ReceivedResponse {
    let asked = request(Method::PATCH, path, headers, body.to_string());
    ask(&mut connect(server.address).await, asked).await
}

#[tokio::test]
async fn topic_change_is_atomic() {
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
    // An invalid value also prevents the new partitions.
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
async fn outdated_etag_is_rejected_and_changes_nothing() {
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
    // The current tag, a list with it, or any.
    let several = format!("\"x\", {}", changed.header("etag"));
    for said in [several.as_str(), "*"] {
        let body = json!({"config": {"retention.ms": "1000"}});
        let answer = patch(&server, "/v1/topics/t/config", &[("if-match", said)], body).await;
        assert_eq!(answer.status, 200, "{said}: {answer:?}");
    }
    // A new topic with the same name has another tag.
    let asked = request(Method::DELETE, "/v1/topics/t", &[], "");
    assert_eq!(ask(&mut connect(server.address).await, asked).await.status, 204);
    make(&server, "t", 1, json!({})).await;
    let answer = patch(&server, "/v1/topics/t", &seen, json!({"partitions": 2})).await;
    answer.is_problem(412, "changed");
}

#[tokio::test]
async fn concurrent_topic_changes_are_all_applied() {
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
async fn dry_run_reports_its_effect_and_changes_nothing() {
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

/// Three nodes behind gates, each with a server, and the place of one that does not lead the catalog.
async fn three_servers() -> (Vec<TestNode>, Vec<Server>, usize) {
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
    (nodes, servers, here)
}

#[tokio::test]
async fn configuration_changed_at_another_node_is_visible_at_once() {
    let (nodes, servers, here) = three_servers().await;
    let (server, other) = (&servers[here], &servers[(here + 1) % 3]);
    make(other, "t", 1, json!({})).await;
    server.get("/v1/topics/t/config").await.json();
    let gate = nodes[here].gate();
    gate.close();
    let wanted = json!({"config": {"retention.bytes": "5000"}});
    let changed = patch(other, "/v1/topics/t/config", &[], wanted).await;
    let mut shown = pin!(server.get("/v1/topics/t/config"));
    let early = timeout(Duration::from_millis(200), shown.as_mut()).await;
    assert!(early.is_err(), "its copy is old: {early:?}");
    gate.open();
    let shown = timeout(SOON, shown).await.expect("soon");
    assert_eq!(shown.json(), changed.json());
}

#[tokio::test]
async fn records_for_a_topic_just_created_at_another_node_are_accepted() {
    let (nodes, servers, here) = three_servers().await;
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
