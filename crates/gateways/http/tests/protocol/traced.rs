//! Topics with `trace`: the steps of their records are recorded, and known after a restart.

use std::path::Path;
use std::sync::Arc;

use base::Levels;
use broker::{Broker, BrokerOptions};
use gateway_http::LoginOptions;
use serde_json::{Value, json};
use world::World;

use crate::harness::{SOON, Server, open_node};
use crate::history::{group, settle, take};
use crate::records::{make, post, produce};

const TRACE: &str = "_postroad.trace";

/// All recorded steps, without times and sessions.
async fn written(server: &Server, broker: &Broker) -> Vec<Value> {
    assert!(broker.flush_traces(SOON).await, "nobody writes");
    let path = format!("/v1/topics/{TRACE}/partitions/0/records?from=earliest&max_records=10000");
    let read = server.get(&path).await;
    if read.status == 404 {
        return Vec::new();
    }
    let read = read.json();
    let records = read["records"].as_array().expect("records").iter();
    let value = |record: &Value| -> Value {
        let text = record["value"].as_str().expect("text");
        let mut value: Value = serde_json::from_str(text).expect("JSON");
        let fields = value.as_object_mut().expect("an object");
        assert!(fields.remove("time_ms").is_some_and(|time| time.is_i64()));
        fields.remove("session");
        assert_eq!(record["key"], format!("{}/{}", fields["topic_id"], fields["partition"]));
        value
    };
    records.map(value).collect()
}

async fn history(server: &Server, offset: u64) -> Value {
    let path = format!("/v1/topics/t/partitions/0/records/{offset}/history");
    let answer = server.get(&path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn events(history: &Value) -> Vec<&str> {
    let events = history["groups"][0]["events"].as_array().expect("events");
    events.iter().map(|event| event["what"].as_str().expect("a word")).collect()
}

/// Leases two records, accepts one and releases the other.
async fn take_two(server: &Server) {
    produce(server, "t", &["a", "b"]).await;
    let leases = take(server, 2).await;
    settle(server, &leases[0], "accept").await;
    settle(server, &leases[1], "release").await;
}

#[tokio::test]
async fn traced_steps_are_recorded_and_known_after_a_restart() {
    let (server, broker) = open_node().await;
    make(&server, "t", 1, json!({"trace": "on"})).await;
    group(&server, "main", json!({})).await;
    take_two(&server).await;
    let (topic, group) = {
        let catalog = broker.catalog();
        let topic = catalog.topic_named("t").expect("is there").id();
        (topic, catalog.lease_group_named(topic, "main").expect("is there").id())
    };
    let step = |offset: u64, count: u64, what: &str| {
        json!({
            "node": 1, "topic": "t", "topic_id": topic.0, "partition": 0, "offset": offset, "count": count,
            "group": "main", "group_id": group.0, "what": what, "attempt": 1, "protocol": "http",
        })
    };
    let expected = [step(0, 2, "delivered"), step(0, 1, "accepted"), step(1, 1, "released")];
    assert_eq!(written(&server, &broker).await, expected);
    let before = history(&server, 1).await;
    assert_eq!(before["traced"], json!({"cut_short": false}));
    assert_eq!(events(&before), ["delivered", "released"], "nothing is told twice");
    assert_eq!(broker.traces_counted(), (3, 0));

    broker.expect_ends();
    broker.shutdown().await;
    let again = Server::start(|_| {}).await;
    let world = World::on(Arc::clone(&server.disk) as _);
    let broker = Broker::open(world, Path::new("/data"), BrokerOptions::default()).await;
    again.open_with(broker.expect("opens"), LoginOptions::default()).await;
    let after = history(&again, 1).await;
    assert_eq!(events(&after), ["delivered", "released"]);
    let session = &after["groups"][0]["events"][0]["session"];
    assert_eq!(session["protocol"], "http", "{after}");
    assert_eq!(events(&history(&again, 0).await), ["delivered", "accepted"]);
    // Recording continues.
    let leases = take(&again, 1).await;
    settle(&again, &leases[0], "accept").await;
    let last = history(&again, 1).await;
    assert_eq!(events(&last), ["delivered", "released", "delivered", "accepted"]);
}

#[tokio::test]
async fn topics_without_trace_record_nothing() {
    let (server, broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    group(&server, "main", json!({})).await;
    take_two(&server).await;
    assert_eq!(written(&server, &broker).await, [] as [Value; 0]);
    assert_eq!(history(&server, 0).await["traced"], Value::Null);
    // It can be turned on and off while the group is in use.
    let set = async |value: &str| {
        let asked = crate::harness::request(
            axum::http::Method::PATCH,
            "/v1/topics/t/config",
            &[],
            json!({"config": {"trace": value}}).to_string(),
        );
        let answer =
            crate::harness::ask(&mut crate::harness::connect(server.address).await, asked).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    set("on").await;
    let leases = take(&server, 1).await;
    let first = written(&server, &broker).await;
    assert_eq!(
        (first.len(), &first[0]["what"], &first[0]["attempt"]),
        (1, &json!("delivered"), &json!(2))
    );
    set("off").await;
    settle(&server, &leases[0], "accept").await;
    assert_eq!(written(&server, &broker).await.len(), 1);
}

#[tokio::test]
async fn sampled_trace_records_all_steps_of_a_record_or_none() {
    let (server, broker) = open_node().await;
    make(&server, "t", 1, json!({"trace": "20%"})).await;
    group(&server, "main", json!({})).await;
    for _ in 0..5 {
        produce(&server, "t", &["x"; 100]).await;
    }
    let mut left = 500;
    while left > 0 {
        let leases = take(&server, 500).await;
        left -= leases.len();
        let accept = |lease: &Value| json!({"token": lease["token"], "action": "accept"});
        let settles: Vec<Value> = leases.iter().map(accept).collect();
        post(&server, "/v1/topics/t/groups/main/settle", &json!({"settles": settles})).await;
    }
    let mut of_record = vec![Vec::new(); 500];
    for step in written(&server, &broker).await {
        let first = step["offset"].as_u64().expect("a number") as usize;
        let count = step["count"].as_u64().expect("a number") as usize;
        for steps in &mut of_record[first..first + count] {
            steps.push(step["what"].as_str().expect("a word").to_owned());
        }
    }
    let is_whole = |steps: &&Vec<String>| **steps == ["delivered", "accepted"];
    let kept = of_record.iter().filter(is_whole).count();
    assert!((60..=140).contains(&kept), "{kept}");
    assert!(of_record.iter().all(|steps| steps.is_empty() || is_whole(&steps)), "{of_record:?}");
    let at = of_record.iter().position(|steps| !steps.is_empty()).expect("one") as u64;
    assert_eq!(history(&server, at).await["traced"], json!({"cut_short": false}));
    let at = of_record.iter().position(Vec::is_empty).expect("one") as u64;
    assert_eq!(history(&server, at).await["traced"], Value::Null);
}

#[tokio::test]
async fn trace_topic_is_bounded_and_not_traced_itself() {
    let (server, broker) = open_node().await;
    make(&server, "t", 1, json!({"trace": "on"})).await;
    group(&server, "main", json!({})).await;
    take_two(&server).await;
    let count = written(&server, &broker).await.len();
    let config = server.get(&format!("/v1/topics/{TRACE}/config")).await.json();
    let value = |name: &str| {
        let all = config["items"].as_array().or(config.as_array()).expect("configurations");
        all.iter().find(|it| it["name"] == name).map(|it| it["value"].clone())
    };
    assert_eq!(value("retention.ms"), Some(json!("604800000")), "{config}");
    assert_eq!(value("retention.bytes"), Some(json!("1073741824")));
    // Not even where its configuration enables it.
    let asked = crate::harness::request(
        axum::http::Method::PATCH,
        &format!("/v1/topics/{TRACE}/config"),
        &[],
        json!({"config": {"trace": "on"}}).to_string(),
    );
    let set = crate::harness::ask(&mut crate::harness::connect(server.address).await, asked).await;
    assert_eq!(set.status, 200, "{set:?}");
    let path = format!("/v1/topics/{TRACE}/groups/reader");
    let asked = crate::harness::request(
        axum::http::Method::PUT,
        &path,
        &[],
        json!({"from": "earliest"}).to_string(),
    );
    let made = crate::harness::ask(&mut crate::harness::connect(server.address).await, asked).await;
    assert_eq!(made.status, 201, "{made:?}");
    let body = json!({"max_records": 10, "wait_ms": 10_000, "lease_ms": 60_000});
    let leases = post(&server, &format!("{path}/leases"), &body).await.json();
    assert_eq!(leases["leases"].as_array().map(Vec::len), Some(count));
    assert_eq!(written(&server, &broker).await.len(), count);
}

#[tokio::test]
async fn invalid_trace_setting_or_too_low_level_is_rejected() {
    let (server, _broker) = open_node().await;
    for wrong in ["true", "0%", "100%", "1", ""] {
        let body = json!({"name": "wrong", "partitions": 1, "config": {"trace": wrong}});
        let answer = post(&server, "/v1/topics", &body).await;
        assert_eq!(answer.status.as_u16() / 100, 4, "{answer:?}");
        assert!(answer.text().contains("such as 0.5%"), "{answer:?}");
    }
    make(&server, "t", 1, json!({"trace": "0.5%"})).await;

    let server = Server::start(|_| {}).await;
    let levels = Levels { max: base::Level(3), ..Levels::OURS };
    let options = BrokerOptions { levels, ..BrokerOptions::default() };
    let world = World::on(Arc::clone(&server.disk) as _);
    let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
    server.open_with(broker, LoginOptions::default()).await;
    let body = json!({"name": "t", "partitions": 1, "config": {"trace": "on"}});
    let refused = post(&server, "/v1/topics", &body).await;
    assert_eq!(refused.status.as_u16() / 100, 4, "{refused:?}");
    assert!(refused.text().contains("level 4"), "{refused:?}");
    make(&server, "t", 1, json!({})).await;
    let config = json!({"config": {"trace": "on"}}).to_string();
    for path in ["/v1/topics/t/config", "/v1/topics/t", "/v1/topics/t?dry_run=true"] {
        let asked = crate::harness::request(axum::http::Method::PATCH, path, &[], config.clone());
        let mut client = crate::harness::connect(server.address).await;
        let refused = crate::harness::ask(&mut client, asked).await;
        assert_eq!(refused.status.as_u16() / 100, 4, "{refused:?}");
        assert!(refused.text().contains("level 4"), "{refused:?}");
    }
}
