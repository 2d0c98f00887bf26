//! `/v1`: records leased one by one and settled by token, at any node.

use std::time::Duration;

use axum::http::Method;
use base::MAIN_LEASE_GROUP;
use broker::Broker;
use gateway_http::LoginOptions;
use serde_json::{Value, json};
use test_cluster::TestNode;
use tokio::time::{Instant, sleep};

use crate::harness::{SOON, Server, ask, connect, open_node, request};
use crate::records::{make, post, produce};

async fn group(broker: &Broker, topic: &str, name: &str, config: &[(&str, &str)]) {
    let topic = broker.catalog().topic_id(topic).expect("it is there");
    let config = config.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    broker.create_lease_group(topic, name.to_owned(), Vec::new(), config).await.expect("is made");
}

async fn lease(server: &Server, what: &str, body: Value) -> Value {
    let answer = post(server, &format!("/v1/topics/t/groups/main/{what}"), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn take(server: &Server, body: Value) -> Vec<Value> {
    lease(server, "leases", body).await["leases"].as_array().expect("leases").clone()
}

async fn settle(server: &Server, token: &Value, action: &str) -> Value {
    let body = json!({"settles": [{"token": token, "action": action}]});
    lease(server, "settle", body).await["outcomes"][0].clone()
}

fn value(lease: &Value) -> &str {
    lease["record"]["value"].as_str().expect("text")
}

async fn queue() -> (Server, Broker) {
    let (server, broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    group(&broker, "t", MAIN_LEASE_GROUP, &[]).await;
    (server, broker)
}

#[tokio::test]
async fn leased_record_is_not_delivered_to_others_until_settled() {
    let (server, _broker) = queue().await;
    produce(&server, "t", &["a", "b"]).await;
    let first = take(&server, json!({})).await;
    assert_eq!((first.len(), value(&first[0]), &first[0]["attempt"]), (1, "a", &json!(1)));
    let rest = take(&server, json!({"max_records": 10})).await;
    assert_eq!((rest.len(), value(&rest[0])), (1, "b"));
    assert_eq!(settle(&server, &first[0]["token"], "accept").await, json!({"settled": true}));
    // It is delivered again, and the attempt is counted.
    assert_eq!(settle(&server, &rest[0]["token"], "release").await, json!({"settled": true}));
    let again = take(&server, json!({"wait_ms": 5000})).await;
    assert_eq!((value(&again[0]), &again[0]["attempt"]), ("b", &json!(2)));
    for token in [&first[0]["token"], &rest[0]["token"], &json!("nonsense")] {
        let outcome = settle(&server, token, "accept").await;
        assert_eq!(outcome["problem"]["type"], "/problems/no-such-lease", "{outcome}");
    }
    assert_eq!(settle(&server, &again[0]["token"], "reject").await, json!({"settled": true}));
    assert!(take(&server, json!({})).await.is_empty());
}

#[tokio::test]
async fn lease_expires_and_can_be_extended() {
    let (server, _broker) = queue().await;
    produce(&server, "t", &["a", "b"]).await;
    let leases = take(&server, json!({"max_records": 2, "lease_ms": 1000})).await;
    let body = json!({"tokens": [leases[0]["token"]], "lease_ms": 60000});
    let extended = lease(&server, "extend", body).await;
    assert_eq!(extended["outcomes"][0], json!({"settled": true}));
    let begun = Instant::now();
    let back = take(&server, json!({"max_records": 2, "wait_ms": 20000})).await;
    assert_eq!((back.len(), value(&back[0])), (1, "b"), "{:?}", begun.elapsed());
    assert_eq!(settle(&server, &leases[0]["token"], "accept").await, json!({"settled": true}));
    let late = settle(&server, &leases[1]["token"], "accept").await;
    assert_eq!(late["problem"]["status"], 409);
}

#[tokio::test]
async fn waiting_lease_request_gets_a_record_when_it_arrives() {
    let (server, _broker) = queue().await;
    let address = server.address;
    let waiting = tokio::spawn(async move {
        let path = "/v1/topics/t/groups/main/leases";
        let body = json!({"wait_ms": 60000}).to_string();
        ask(&mut connect(address).await, request(Method::POST, path, &[], body)).await
    });
    sleep(Duration::from_millis(100)).await;
    produce(&server, "t", &["now"]).await;
    let came = tokio::time::timeout(SOON, waiting).await.expect("in time").expect("ends").json();
    assert_eq!(value(&came["leases"][0]), "now");
}

#[tokio::test]
async fn invalid_lease_request_is_rejected() {
    let (server, broker) = queue().await;
    make(&server, "other", 1, json!({})).await;
    group(&broker, "other", MAIN_LEASE_GROUP, &[]).await;
    produce(&server, "t", &["a"]).await;
    let lease = take(&server, json!({})).await.remove(0);
    for (what, body, word) in [
        ("leases", json!({"max_record": 1}), "max_record"),
        ("leases", json!({"max_records": 1001}), "1000"),
        ("leases", json!({"lease_ms": 999}), "1000"),
        ("leases", json!({"wait_ms": 60001}), "60000"),
        ("settle", json!({"settles": []}), "1 to 1000"),
        ("settle", json!({"settles": [{"token": "x", "action": "drop"}]}), "drop"),
        (
            "settle",
            json!({"settles": [{"token": "x", "action": "accept", "delay_ms": 1}]}),
            "delay_ms",
        ),
        ("extend", json!({"tokens": ["x"]}), "lease_ms"),
    ] {
        let answer = post(&server, &format!("/v1/topics/t/groups/main/{what}"), &body).await;
        let document = answer.is_problem(400, "bad-request");
        let detail = document["detail"].as_str().expect("text");
        assert!(detail.contains(word), "{detail}");
    }
    post(&server, "/v1/topics/t/groups/none/leases", &json!({}))
        .await
        .is_problem(404, "no-such-group");
    post(&server, "/v1/topics/none/groups/main/leases", &json!({}))
        .await
        .is_problem(404, "no-such-topic");
    // A token is valid for its group only.
    let body = json!({"settles": [{"token": lease["token"], "action": "accept"}]});
    let answer = post(&server, "/v1/topics/other/groups/main/settle", &body).await.json();
    assert_eq!(answer["outcomes"][0]["problem"]["type"], "/problems/no-such-lease");
    assert_eq!(settle(&server, &lease["token"], "accept").await, json!({"settled": true}));
}

/// Like a simple load balancer in front of a cluster: each request goes to another node.
#[tokio::test]
async fn lease_is_settled_at_any_node_of_three() {
    settles_at_any_node(test_cluster::start_three().await).await;
}

/// Each partition has replicas on three of the four nodes.
#[tokio::test]
async fn lease_is_settled_at_any_node_of_four() {
    settles_at_any_node(test_cluster::start_four().await).await;
}

async fn settles_at_any_node(nodes: Vec<TestNode>) {
    for node in &nodes {
        node.broker.ready().await.expect("ready");
    }
    let mut servers = Vec::new();
    for node in &nodes {
        let server = Server::start(|_| {}).await;
        server.open_with(node.broker.clone(), LoginOptions::default()).await;
        servers.push(server);
    }
    make(&servers[0], "t", 6, json!({})).await;
    group(&nodes[1].broker, "t", MAIN_LEASE_GROUP, &[]).await;
    let begun = Instant::now();
    while nodes.iter().any(|node| {
        let catalog = node.broker.catalog();
        let topic = catalog.topic_id("t");
        topic.is_none_or(|topic| catalog.lease_group_named(topic, MAIN_LEASE_GROUP).is_none())
    }) {
        assert!(begun.elapsed() < SOON, "a node does not hear of it");
        sleep(Duration::from_millis(10)).await;
    }
    let all = 6 * nodes.len();
    for (place, server) in servers.iter().enumerate() {
        let records: Vec<Value> = (0..6)
            .map(|partition| json!({"value": format!("{place}-{partition}"), "partition": partition}))
            .collect();
        let answer = post(server, "/v1/topics/t/records", &json!({"records": records})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.text().contains("problem"), "{answer:?}");
    }
    for server in &servers {
        let mut read = 0;
        for partition in 0..6 {
            let path = format!("/v1/topics/t/partitions/{partition}/records");
            read += server.get(&path).await.json()["records"].as_array().expect("records").len();
        }
        assert_eq!(read, all, "what was acknowledged is read at any node");
    }
    let mut settled = 0;
    let mut turn = 0;
    while settled < all {
        assert!(begun.elapsed() < SOON * 3, "{settled} are settled");
        let taken =
            take(&servers[turn % nodes.len()], json!({"max_records": 5, "wait_ms": 1000})).await;
        for lease in &taken {
            turn += 1;
            let outcome = settle(&servers[turn % nodes.len()], &lease["token"], "accept").await;
            assert_eq!(outcome, json!({"settled": true}));
            settled += 1;
        }
        turn += 1;
    }
    assert!(take(&servers[0], json!({"wait_ms": 300})).await.is_empty());
}
