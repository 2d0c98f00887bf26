//! `/v1`: record search, and the state of single records.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{Server, ask, connect, open_node, request};
use crate::records::{make, post};

async fn search(server: &Server, body: Value) -> Value {
    let answer = post(server, "/v1/topics/t/search", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn values(found: &Value) -> Vec<&str> {
    let records = found["records"].as_array().expect("records");
    records.iter().map(|it| it["value"].as_str().expect("text")).collect()
}

async fn fruit(server: &Server) {
    make(server, "t", 1, json!({})).await;
    let records = json!({"records": [
        {"key": "anna", "value": "3 apples", "timestamp_ms": 1000},
        {"key": "bert", "value": "{\"pears\": {\"count\": 2}}", "timestamp_ms": 2000},
        {"key": "anton", "value": "9 plums", "headers": [{"name": "colour", "value": "blue"}], "timestamp_ms": 3000},
        {"key": null, "value": null, "timestamp_ms": 4000},
    ]});
    assert_eq!(post(server, "/v1/topics/t/records", &records).await.status, 200);
}

#[tokio::test]
async fn records_are_found_by_key_content_header_and_time() {
    let (server, _broker) = open_node().await;
    fruit(&server).await;
    for (filter, found) in [
        (json!({"key": "anna"}), &["3 apples"][..]),
        (json!({"key_prefix": "an"}), &["3 apples", "9 plums"]),
        (json!({"contains": "plum"}), &["9 plums"]),
        (json!({"header": "colour"}), &["9 plums"]),
        (json!({"header": "colour", "header_value": "red"}), &[]),
        (
            json!({"json_pointer": "/pears/count", "json_equals": "2"}),
            &["{\"pears\": {\"count\": 2}}"],
        ),
        (json!({"json_pointer": "/pears/count", "json_equals": "3"}), &[]),
        (json!({"key_prefix": "an", "contains": "apples"}), &["3 apples"]),
        (json!({"after_ms": 1000, "before_ms": 2000}), &["3 apples"]),
    ] {
        let answer = search(&server, json!({"filter": filter})).await;
        assert_eq!(values(&answer), found, "{filter}");
        assert_eq!((&answer["looked_at"], &answer["next"]), (&json!(4), &Value::Null));
    }
    for wrong in [
        json!({"filter": {"keys": "a"}}),
        json!({"filter": {"header_value": "a"}}),
        json!({"from": "3"}),
        json!({"max_matches": 0}),
        json!({"cursor": "x"}),
        json!({"filter": {"contains": "x".repeat(2000)}}),
    ] {
        let answer = post(&server, "/v1/topics/t/search", &wrong).await;
        answer.is_problem(400, "bad-request");
    }
    let far = json!({"partition": 7});
    post(&server, "/v1/topics/t/search", &far).await.is_problem(404, "no-such-partition");
}

#[tokio::test]
async fn search_continues_at_its_cursor_and_misses_nothing() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 3, json!({})).await;
    let records: Vec<Value> =
        (0..90).map(|at| json!({"key": at.to_string(), "value": format!("v{at}")})).collect();
    assert_eq!(
        post(&server, "/v1/topics/t/records", &json!({"records": records})).await.status,
        200
    );
    let (mut found, mut cursor, mut turns) = (Vec::new(), Value::Null, 0);
    loop {
        let answer = search(&server, json!({"max_matches": 7, "cursor": cursor})).await;
        found.extend(values(&answer).into_iter().map(str::to_owned));
        cursor = answer["next"].clone();
        turns += 1;
        if cursor.is_null() {
            assert_eq!(answer["left"], 0);
            break;
        }
        assert_eq!(answer["left"].as_u64(), Some(90 - found.len() as u64), "{answer}");
    }
    assert!(turns >= 12, "{turns}");
    let mut expected: Vec<String> = (0..90).map(|at| format!("v{at}")).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn record_state_is_reported_for_each_group() {
    let (server, broker) = open_node().await;
    fruit(&server).await;
    let path = "/v1/topics/t/partitions/0/records/1/where";
    let bare = server.get(path).await.json();
    assert_eq!((&bare["record"], &bare["groups"]), (&json!("there"), &json!([])));
    assert_eq!(bare["content"]["key"], "bert");
    let asked = request(Method::PUT, "/v1/topics/t/groups/g", &[], "{}");
    assert_eq!(ask(&mut connect(server.address).await, asked).await.status, 201);
    let state = async || server.get(path).await.json()["groups"][0]["state"].clone();
    assert_eq!(state().await, "ready");
    let take = json!({"max_records": 2, "lease_ms": 60000});
    let leases = post(&server, "/v1/topics/t/groups/g/leases", &take).await.json();
    let leased = server.get(path).await.json();
    assert_eq!(leased["groups"][0]["state"], "leased");
    assert!(leased["groups"][0]["session"].is_u64() && leased["groups"][0]["until_ms"].is_i64());
    let settle = json!({"settles": [{"token": leases["leases"][1]["token"], "action": "accept"}]});
    post(&server, "/v1/topics/t/groups/g/settle", &settle).await.json();
    assert_eq!(state().await, "settled");
    let partition = {
        let catalog = broker.catalog();
        catalog.topic_named("t").and_then(|topic| topic.partition(0)).expect("is there")
    };
    let commit = broker::CommitOffset {
        partition,
        offset: 1,
        leader_epoch: -1,
        metadata: String::new(),
        expire_ms: None,
    };
    broker.shards().commit_offsets("readers", vec![commit]).await.expect("is committed");
    let reader = json!([{"group": "readers", "offset": 1, "read": false}]);
    assert_eq!(server.get(path).await.json()["offset_groups"], reader);
    let to_come = server.get("/v1/topics/t/partitions/0/records/9/where").await.json();
    assert_eq!((&to_come["record"], &to_come["content"]), (&json!("to-come"), &Value::Null));
    let wrong = server.get("/v1/topics/t/partitions/0/records/x/where").await;
    wrong.is_problem(400, "bad-request");
    let far = server.get("/v1/topics/t/partitions/3/records/0/where").await;
    far.is_problem(404, "no-such-partition");
}
