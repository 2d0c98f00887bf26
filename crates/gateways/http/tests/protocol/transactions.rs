//! `/v1/transactions`: settles and appends that take effect together, over shards.

use axum::http::Method;
use broker::Broker;
use serde_json::{Value, json};

use crate::harness::{
    ReceivedResponse, Server, ask, basic, connect, open_node_of_three_shards, request, safe_node,
};
use crate::records::{make, post};

const PARTITIONS: u32 = 3;

/// A node with a queue `jobs` whose partitions are in three shards, topics `done` and `audit`, and a job in each
/// partition.
async fn with_jobs() -> (Server, Broker) {
    let (server, broker) = open_node_of_three_shards().await;
    for topic in ["jobs", "done", "audit"] {
        make(&server, topic, PARTITIONS, json!({})).await;
    }
    make(&server, "failed", 1, json!({})).await;
    let config = json!({"config": {"dead.letter.topic": "failed"}});
    let path = "/v1/topics/jobs/groups/workers";
    let content = [("content-type", "application/json")];
    let put = request(Method::PUT, path, &content, config.to_string());
    let made = ask(&mut connect(server.address).await, put).await;
    assert!(made.status.is_success(), "{made:?}");
    let jobs: Vec<Value> =
        (0..PARTITIONS).map(|at| json!({"value": format!("job {at}"), "partition": at})).collect();
    let produced = post(&server, "/v1/topics/jobs/records", &json!({"records": jobs})).await;
    assert_eq!(produced.status, 200, "{produced:?}");
    (server, broker)
}

async fn take(server: &Server, count: u32) -> Vec<Value> {
    let mut leases = Vec::new();
    while leases.len() < count as usize {
        let body = json!({"max_records": count, "wait_ms": 20_000});
        let taken = post(server, "/v1/topics/jobs/groups/workers/leases", &body).await;
        assert_eq!(taken.status, 200, "{taken:?}");
        leases.extend(taken.json()["leases"].as_array().expect("leases").iter().cloned());
    }
    leases
}

async fn transact(server: &Server, body: Value) -> ReceivedResponse {
    post(server, "/v1/transactions", &body).await
}

/// Values of all records of a topic, sorted.
async fn values(server: &Server, topic: &str) -> Vec<String> {
    let mut values = Vec::new();
    let partitions = if topic == "failed" { 1 } else { PARTITIONS };
    for partition in 0..partitions {
        let path = format!("/v1/topics/{topic}/partitions/{partition}/records");
        let read = server.get(&path).await.json();
        for record in read["records"].as_array().expect("records") {
            values.push(record["value"].as_str().expect("text").to_owned());
        }
    }
    values.sort();
    values
}

async fn depth(server: &Server) -> Value {
    server.get("/v1/topics/jobs/groups").await.json()["items"][0]["depth"].clone()
}

fn settles(leases: &[Value], action: &str) -> Vec<Value> {
    leases.iter().map(|it| json!({"token": it["token"], "action": action})).collect()
}

#[tokio::test]
async fn leases_of_three_shards_and_records_of_two_topics_are_one_transaction() {
    let (server, _broker) = with_jobs().await;
    let leases = take(&server, PARTITIONS).await;
    let body = json!({
        "settles": settles(&leases, "accept"),
        "appends": [
            {"topic": "done", "records": [
                {"value": "a", "partition": 0}, {"value": "b", "partition": 1}, {"value": "c", "partition": 2},
            ]},
            {"topic": "audit", "partition": 2, "records": [{"value": "x"}, {"value": "y"}]},
        ],
    });
    let done = transact(&server, body.clone()).await;
    assert_eq!(done.status, 200, "{done:?}");
    let placed = |partition: u32, offset: u64| json!({"partition": partition, "offset": offset, "duplicate": false});
    let expected = json!({"appends": [
        {"topic": "done", "items": [placed(0, 0), placed(1, 0), placed(2, 0)]},
        {"topic": "audit", "items": [placed(2, 0), placed(2, 1)]},
    ]});
    assert_eq!(done.json(), expected);
    assert_eq!(depth(&server).await, 0);
    // A second try tells by its leases that the first one took effect.
    let again = transact(&server, body).await;
    let problem = again.is_problem(409, "no-such-lease");
    assert!(problem["detail"].as_str().expect("text").starts_with("settles["), "{problem}");
    assert_eq!(values(&server, "done").await, ["a", "b", "c"]);
    assert_eq!(values(&server, "audit").await, ["x", "y"]);
}

#[tokio::test]
async fn transaction_with_one_refused_part_does_nothing() {
    let (server, _broker) = with_jobs().await;
    let leases = take(&server, PARTITIONS).await;
    // The lease of one shard is over.
    let released = json!({"settles": [{"token": leases[1]["token"], "action": "release", "delay_ms": 600_000}]});
    let answer = post(&server, "/v1/topics/jobs/groups/workers/settle", &released).await;
    assert_eq!(answer.json()["outcomes"][0], json!({"settled": true}));
    let append = json!({"topic": "done", "records": [{"value": "a", "partition": 0}]});
    let all = json!({"settles": settles(&leases, "accept"), "appends": [append]});
    transact(&server, all).await.is_problem(409, "no-such-lease");
    // The others can still be settled, as one transaction with an expected offset that is wrong, then right.
    let held = [leases[0].clone(), leases[2].clone()];
    let expecting = |offset: u64| {
        json!({
            "settles": settles(&held, "accept"),
            "appends": [
                append,
                {"topic": "audit", "partition": 1, "expect_offset": offset, "records": [{"value": "x"}]},
            ],
        })
    };
    transact(&server, expecting(1)).await.is_problem(409, "not-at-expected");
    assert_eq!(values(&server, "done").await, Vec::<String>::new());
    assert_eq!(depth(&server).await, PARTITIONS);
    // The refused transaction had ended the leases of other shards: their records are delivered again.
    let body = json!({"max_records": 2, "wait_ms": 1000});
    let back = post(&server, "/v1/topics/jobs/groups/workers/leases", &body).await.json();
    let again = back["leases"].as_array().expect("leases");
    let held: Vec<&Value> = held.iter().chain(again).collect();
    let mut settled = 0;
    for lease in held {
        let body = json!({
            "settles": settles(std::slice::from_ref(lease), "accept"),
            "appends": [{"topic": "audit", "partition": 1, "records": [{"value": "x"}]}],
        });
        settled += u32::from(transact(&server, body).await.status == 200);
    }
    assert_eq!(settled, 2);
    assert_eq!(depth(&server).await, 1);
}

#[tokio::test]
async fn rejected_record_is_a_dead_letter_of_the_transaction() {
    let (server, _broker) = with_jobs().await;
    let leases = take(&server, PARTITIONS).await;
    let body = json!({
        "settles": settles(&leases, "reject"),
        "appends": [{"topic": "done", "records": [{"value": "a", "partition": 0}]}],
    });
    let done = transact(&server, body).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(values(&server, "failed").await, ["job 0", "job 1", "job 2"]);
    assert_eq!(values(&server, "done").await, ["a"]);
    assert_eq!(depth(&server).await, 0);
}

#[tokio::test]
async fn records_are_appended_only_at_the_expected_offset() {
    let (server, _broker) = open_node_of_three_shards().await;
    make(&server, "stream", 2, json!({})).await;
    let produce = async |query: &str, records: Value| {
        let body = json!({"records": records});
        post(&server, &format!("/v1/topics/stream/records{query}"), &body).await
    };
    let two = json!([{"value": "a", "partition": 1}, {"value": "b", "partition": 1}]);
    assert_eq!(produce("?expect_offset=0", two.clone()).await.status, 200);
    let refused = produce("?expect_offset=0", two.clone()).await;
    let problem = refused.is_problem(409, "not-at-expected");
    assert!(problem["detail"].as_str().expect("text").contains("offset 2"), "{problem}");
    let placed = produce("?expect_offset=2", json!([{"value": "c", "partition": 1}])).await.json();
    assert_eq!(placed["items"][0]["offset"], 2);
    // The records are of one partition, and have no ids.
    let two_partitions = json!([{"partition": 0}, {"partition": 1}]);
    produce("?expect_offset=0", two_partitions).await.is_problem(400, "bad-request");
    let with_id = json!([{"partition": 0, "id": "x"}]);
    produce("?expect_offset=0", with_id).await.is_problem(400, "bad-request");
    produce("?expect=0", two).await.is_problem(400, "bad-request");
    // A shard can check offsets of its own partitions only.
    let at = |partition: u32, offset: u32| json!({"topic": "stream", "partition": partition, "expect_offset": offset, "records": [{}]});
    let both = transact(&server, json!({"appends": [at(0, 0), at(1, 3)]})).await;
    both.is_problem(422, "invalid");
    assert_eq!(transact(&server, json!({"appends": [at(1, 3)]})).await.status, 200);
}

#[tokio::test]
async fn malformed_transaction_is_rejected_with_its_part() {
    let (server, _broker) = with_jobs().await;
    let lease = &take(&server, 1).await[0];
    let settle = json!({"token": lease["token"], "action": "accept"});
    for (body, status, kind) in [
        (json!({}), 400, "bad-request"),
        (json!({"settles": [{"token": "x", "action": "accept"}]}), 409, "no-such-lease"),
        (
            json!({"settles": [settle], "appends": [{"topic": "none", "records": [{}]}]}),
            404,
            "no-such-topic",
        ),
        (
            json!({"settles": [settle], "appends": [{"topic": "done", "partition": 9, "records": [{}]}]}),
            404,
            "no-such-partition",
        ),
        (
            json!({"settles": [settle, settle], "appends": [{"topic": "done", "records": [{}]}]}),
            409,
            "no-such-lease",
        ),
    ] {
        transact(&server, body).await.is_problem(status, kind);
    }
    let long =
        json!({"appends": [{"topic": "done", "records": [{"value": "x".repeat(16 << 20)}]}]});
    transact(&server, long).await.is_problem(413, "too-large");
    let path = "/v1/transactions";
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let body = json!({"settles": [settle]}).to_string();
    let keyed = request(Method::POST, path, &headers, body);
    ask(&mut connect(server.address).await, keyed).await.is_problem(400, "bad-request");
    assert_eq!(transact(&server, json!({"settles": [settle]})).await.status, 200);
}

#[tokio::test]
async fn transaction_requires_the_rights_of_all_its_parts() {
    let (server, broker, users) = safe_node().await;
    users.add("app", passwords::hash_password("secret").expect("a hash")).await.expect("is made");
    let send = async |user: (&str, &str), path: &str, body: Value| {
        let login = basic(user.0, user.1);
        let headers = [("authorization", &*login), ("content-type", "application/json")];
        let sent = request(Method::POST, path, &headers, body.to_string());
        ask(&mut connect(server.address).await, sent).await
    };
    let root = ("root", "toor");
    assert_eq!(send(root, "/v1/topics", json!({"name": "jobs"})).await.status, 201);
    let topic = broker.catalog().topic_id("jobs").expect("it is there");
    let made = broker.create_lease_group(topic, "workers".to_owned(), Vec::new(), [].into()).await;
    made.expect("is made");
    let record = json!({"records": [{"value": "a"}]});
    assert_eq!(send(root, "/v1/topics/jobs/records", record).await.status, 200);
    let path = "/v1/topics/jobs/groups/workers/leases";
    let taken = send(root, path, json!({"wait_ms": 20_000})).await.json();
    let token = &taken["leases"][0]["token"];
    let app = ("app", "secret");
    let settles = json!({"settles": [{"token": token, "action": "accept"}]});
    // Without the right to consume, the group is as unknown as its lease.
    let refused = send(app, "/v1/transactions", settles.clone()).await;
    refused.is_problem(409, "no-such-lease");
    let appends = json!({"appends": [{"topic": "jobs", "records": [{}]}]});
    send(app, "/v1/transactions", appends).await.is_problem(403, "not-allowed");
    assert_eq!(send(root, "/v1/transactions", settles).await.status, 200);
}
