//! History of a record, and its state in each group.

use std::time::Duration;

use axum::http::Method;
use base::MAIN_LEASE_GROUP;
use broker::Broker;
use client_amqp::{Channel, Mode};
use gateway_http::LoginOptions;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::harness::{SOON, Server, ask, connect, open_node, request};
use crate::records::{make, post, produce};

const PLACE: &str = "/v1/topics/t/partitions/0/records";

pub(crate) async fn group(server: &Server, name: &str, config: Value) {
    let path = format!("/v1/topics/t/groups/{name}");
    let body = json!({"config": config}).to_string();
    let asked = request(Method::PUT, &path, &[], body);
    let made = ask(&mut connect(server.address).await, asked).await;
    assert_eq!(made.status, 201, "{made:?}");
}

async fn history_of(server: &Server, offset: u64) -> Value {
    let answer = server.get(&format!("{PLACE}/{offset}/history")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn until_settled(server: &Server, offset: u64) -> Value {
    let begun = Instant::now();
    loop {
        // There is no response while the shard has no leader.
        let history = server.get(&format!("{PLACE}/{offset}/history")).await.json();
        if history["groups"][0]["state"] == "settled" {
            return history;
        }
        assert!(begun.elapsed() < SOON, "{history}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Events in the first group.
fn events(history: &Value) -> Vec<(&str, Option<u64>)> {
    let events = history["groups"][0]["events"].as_array().expect("events");
    events.iter().map(|it| (it["what"].as_str().expect("a word"), it["attempt"].as_u64())).collect()
}

pub(crate) async fn take(server: &Server, records_max: u32) -> Vec<Value> {
    let body = json!({"max_records": records_max, "wait_ms": 10_000, "lease_ms": 60_000});
    let leases = post(server, "/v1/topics/t/groups/main/leases", &body).await.json();
    leases["leases"].as_array().expect("leases").clone()
}

pub(crate) async fn settle(server: &Server, lease: &Value, action: &str) {
    let body = json!({"settles": [{"token": lease["token"], "action": action}]});
    let settled = post(server, "/v1/topics/t/groups/main/settle", &body).await.json();
    assert_eq!(settled["outcomes"][0], json!({"settled": true}));
}

#[tokio::test]
async fn record_history_spans_protocols_until_it_is_settled() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    group(&server, "main", json!({})).await;
    produce(&server, "t", &["a", "b"]).await;
    let before = history_of(&server, 1).await;
    assert_eq!((&before["presence"], &before["record"]["value"]), (&json!("there"), &json!("b")));
    assert_eq!((&before["groups"][0]["state"], events(&before)), (&json!("ready"), vec![]));
    assert_eq!(before["remembered_since_ms"], Value::Null, "nothing is forgotten");

    let leases = take(&server, 2).await;
    settle(&server, &leases[0], "accept").await;
    let leased = history_of(&server, 1).await;
    let (group, events_of) = (&leased["groups"][0], events(&leased));
    assert_eq!((&group["state"], events_of), (&json!("leased"), vec![("delivered", Some(1))]));
    assert_eq!(group["session"]["protocol"], "http");
    assert!(group["until_ms"].is_i64(), "{group}");
    settle(&server, &leases[1], "release").await;

    let (address, _serving) = server.serve_amqp().await;
    let stream = TcpStream::connect(address).await.expect("connects");
    let consumer = Channel::over(stream, SOON, Mode::Confirms, ["root", "toor"]);
    let mut consumer = consumer.await.expect("opens");
    consumer.consume("t", 10).await.expect("consumes");
    let delivery = consumer.delivery(SOON).await.expect("a delivery").expect("in time");
    let leased = history_of(&server, 1).await;
    let session = &leased["groups"][0]["session"];
    let who = (&session["protocol"], &session["user"]);
    assert_eq!(who, (&json!("amqp"), &json!("root")), "{leased}");
    assert!(session["connection"].is_u64() && session["peer"].is_string(), "{session}");
    assert_eq!(leased["groups"][0]["attempts"], 1);
    consumer.ack(delivery.tag);
    consumer.close().await.expect("closes");

    // An AMQP client is not notified when its acknowledgement is in the log.
    let settled = until_settled(&server, 1).await;
    let expected = [
        ("delivered", Some(1)),
        ("released", Some(1)),
        ("delivered", Some(2)),
        ("accepted", Some(2)),
    ];
    assert_eq!(events(&settled), expected);
    let last = &settled["groups"][0]["events"][3];
    assert_eq!((&last["session"]["protocol"], &last["session"]["user"]), who, "it is remembered");
    assert!(last["at_ms"].is_i64(), "{last}");
    // The other record was in the same delivery.
    assert_eq!(
        events(&history_of(&server, 0).await),
        [("delivered", Some(1)), ("accepted", Some(1))]
    );
    let to_come = history_of(&server, 9).await;
    assert_eq!((&to_come["presence"], &to_come["groups"]), (&json!("to-come"), &json!([])));
}

#[tokio::test]
async fn record_is_blocked_by_an_earlier_one_of_its_key() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    group(&server, "main", json!({"ordering": "key"})).await;
    let records = json!({"records": [{"key": "k", "value": "a"}, {"key": "k", "value": "b"}]});
    post(&server, "/v1/topics/t/records", &records).await.json();
    assert_eq!(take(&server, 2).await.len(), 1, "one of a key at a time");
    let blocked = history_of(&server, 1).await;
    let group = &blocked["groups"][0];
    assert_eq!((&group["state"], &group["behind"]), (&json!("blocked"), &json!(0)));
    assert_eq!(blocked["record"]["key"], "k");
}

#[tokio::test]
async fn purged_record_is_reported_as_removed() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    group(&server, "main", json!({})).await;
    produce(&server, "t", &["a", "b"]).await;
    let lease = take(&server, 1).await.remove(0);
    settle(&server, &lease, "accept").await;
    post(&server, "/v1/topics/t/groups/main/purge", &json!({})).await.json();
    assert_eq!(events(&history_of(&server, 1).await), [("removed", None)]);
    assert_eq!(
        events(&history_of(&server, 0).await),
        [("delivered", Some(1)), ("accepted", Some(1))]
    );
}

/// Every node can be queried, and events of the previous leader are not lost.
#[tokio::test]
async fn every_node_of_a_cluster_knows_the_history_of_a_record() {
    let nodes = test_cluster::start_three().await;
    for node in &nodes {
        node.broker.ready().await.expect("ready");
    }
    let mut servers = Vec::new();
    for node in &nodes {
        let server = Server::start(|_| {}).await;
        server.open_with(node.broker.clone(), LoginOptions::default()).await;
        servers.push(server);
    }
    make(&servers[0], "t", 1, json!({})).await;
    group(&servers[0], MAIN_LEASE_GROUP, json!({})).await;
    produce(&servers[1], "t", &["a", "b"]).await;
    let brokers: Vec<&Broker> = nodes.iter().map(|node| &node.broker).collect();
    let leader = leader(&brokers).await;
    let other = &servers[(leader + 1) % 3];
    let lease = take(other, 1).await.remove(0);
    for server in &servers {
        let history = history_of(server, 0).await;
        assert_eq!(history["groups"][0]["state"], "leased", "{history}");
        assert_eq!(events(&history), [("delivered", Some(1))]);
        assert_eq!(history["groups"][0]["session"]["protocol"], "http", "its node is asked");
        assert_eq!(history["silent_nodes"], json!([]));
    }
    settle(other, &lease, "accept").await;
    // The new leader has none of the events itself.
    brokers[leader].hand_over().await;
    let begun = Instant::now();
    while self::leader(&brokers).await == leader {
        assert!(begun.elapsed() < SOON, "nobody else leads");
        sleep(Duration::from_millis(10)).await;
    }
    let expected = vec![("delivered", Some(1)), ("accepted", Some(1))];
    for server in &servers {
        let history = until_settled(server, 0).await;
        assert_eq!(events(&history), expected);
    }
}

/// Index of the broker that leads the topic's shard.
async fn leader(brokers: &[&Broker]) -> usize {
    let begun = Instant::now();
    loop {
        let leads = |broker: &&Broker| {
            let catalog = broker.catalog();
            let topic = catalog.topic_named("t");
            let partition = topic.and_then(|topic| topic.partition(0));
            drop(catalog);
            partition.is_some_and(|partition| broker.leads_each(&[partition])[0])
        };
        let all_know = brokers.iter().all(|broker| {
            let catalog = broker.catalog();
            let topic = catalog.topic_id("t");
            topic.is_some_and(|it| catalog.lease_group_named(it, MAIN_LEASE_GROUP).is_some())
        });
        if let Some(leader) = brokers.iter().position(leads).filter(|_| all_know) {
            return leader;
        }
        assert!(begun.elapsed() < SOON, "nobody leads");
        sleep(Duration::from_millis(10)).await;
    }
}
