//! Records found by key, id, trace and header.

use axum::http::Method;
use client_amqp::{Channel, Mode};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::harness::{
    ReceivedResponse, SOON, Server, ask, basic, connect, open_node, request, safe_node,
};
use crate::history::{group, settle, take};
use crate::records::{make, post};

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn trace(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/v1/trace?{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Topic and offset of each record.
fn places(trace: &Value) -> Vec<(&str, u64)> {
    let records = trace["records"].as_array().expect("records");
    let place = |it: &'_ Value| it["offset"].as_u64().expect("an offset");
    records.iter().map(|it| (it["topic"].as_str().expect("a topic"), place(it))).collect()
}

async fn two_topics(server: &Server) {
    for topic in ["a", "t"] {
        make(server, topic, 1, json!({})).await;
        let records = json!({"records": [
            {"key": "other", "value": "x"},
            {"key": "k", "value": "y", "id": format!("id-{topic}"), "headers": [
                {"name": "colour", "value": "red"}, {"name": "traceparent", "value": PARENT},
            ]},
        ]});
        let path = format!("/v1/topics/{topic}/records");
        assert_eq!(post(server, &path, &records).await.status, 200);
    }
}

#[tokio::test]
async fn records_are_traced_by_key_id_header_and_trace_id() {
    let (server, _broker) = open_node().await;
    two_topics(&server).await;
    let both = vec![("a", 1), ("t", 1)];
    let whole = format!("trace_id={PARENT}");
    let upper = format!("trace_id={}", TRACE_ID.to_uppercase());
    for query in ["key=k", "header=colour&value=red", &whole, &upper] {
        let found = trace(&server, query).await;
        assert_eq!(places(&found), both, "{query}");
        assert_eq!((&found["looked_at"], &found["next"]), (&json!(4), &Value::Null));
        assert_eq!(found["records"][0]["record"]["value"], "y");
    }
    assert_eq!(places(&trace(&server, "id=id-t").await), [("t", 1)]);
    assert_eq!(places(&trace(&server, "key=k&topic=t").await), [("t", 1)]);
    assert_eq!(places(&trace(&server, "key=k&from=1h%20ago").await), both);
    assert!(places(&trace(&server, "key=none").await).is_empty());
    // The second page begins where the first ended.
    let first = trace(&server, "key=k&limit=1").await;
    assert_eq!(places(&first), [("a", 1)]);
    let next = first["next"].as_str().expect("there is more");
    let second = trace(&server, &format!("key=k&limit=1&cursor={next}")).await;
    assert_eq!((places(&second), &second["next"]), (vec![("t", 1)], &Value::Null));
}

#[tokio::test]
async fn invalid_trace_query_is_rejected() {
    let (server, _broker) = open_node().await;
    for query in [
        "",
        "key=a&id=b",
        "header=h",
        "value=v",
        "key=a&limit=0",
        "key=a&limit=51",
        "key=a&cursor=x",
        "key=a&from=7",
        "colour=red",
    ] {
        let answer = server.get(&format!("/v1/trace?{query}")).await;
        answer.is_problem(400, "bad-request");
    }
    server.get("/v1/trace?trace_id=123").await.is_problem(422, "invalid");
    server.get("/v1/trace?key=a&topic=none").await.is_problem(404, "no-such-topic");
}

#[tokio::test]
async fn trace_searches_only_topics_that_the_user_may_read() {
    let (server, _broker, users) = safe_node().await;
    let root = basic("root", "toor");
    let send = async |method: Method, path: &str, body: Value| -> ReceivedResponse {
        let headers = [("authorization", &*root), ("content-type", "application/json")];
        let asked = request(method, path, &headers, body.to_string());
        ask(&mut connect(server.address).await, asked).await
    };
    for topic in ["a", "t"] {
        send(Method::POST, "/v1/topics", json!({"name": topic, "partitions": 1})).await;
        let records = json!({"records": [{"key": "k", "value": "v"}]});
        let path = format!("/v1/topics/{topic}/records");
        assert_eq!(send(Method::POST, &path, records).await.status, 200);
    }
    users.add("ada", passwords::hash_password("secret").expect("a hash")).await.expect("is made");
    for (resource, name, action) in [("topic", "t", "read"), ("group", "main", "describe")] {
        let rule = json!({
            "resource": resource, "pattern": "literal", "name": name, "principal": "User:ada", "host": "*",
            "action": action, "verdict": "allow",
        });
        let made = send(Method::POST, "/v1/acls", rule).await;
        assert!(made.status.is_success(), "{made:?}");
    }
    let found = server.get_as("/v1/trace?key=k", "ada", "secret").await.json();
    assert_eq!(places(&found), [("t", 0)]);
    let refused = server.get_as("/v1/trace?key=k&topic=a", "ada", "secret").await;
    refused.is_problem(403, "not-allowed");
    let path = "/v1/topics/a/partitions/0/records/0/history";
    server.get_as(path, "ada", "secret").await.is_problem(403, "not-allowed");

    // Without the right to describe the cluster, a user sees only number and protocol of another user's session.
    let made = send(Method::PUT, "/v1/topics/t/groups/main", json!({"config": {}})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (address, _serving) = server.serve_amqp().await;
    let stream = TcpStream::connect(address).await.expect("connects");
    let consumer = Channel::over(stream, SOON, Mode::Confirms, ["root", "toor"]);
    let mut consumer = consumer.await.expect("opens");
    consumer.consume("t", 10).await.expect("consumes");
    consumer.delivery(SOON).await.expect("a delivery").expect("in time");
    let path = "/v1/topics/t/partitions/0/records/0/history";
    let by_root = server.get_as(path, "root", "toor").await.json();
    let by_ada = server.get_as(path, "ada", "secret").await.json();
    let sessions = [by_root, by_ada].map(|it| it["groups"][0]["session"].clone());
    let [of_root, of_ada] = &sessions;
    assert_eq!((&of_root["user"], of_root["peer"].is_string()), (&json!("root"), true));
    assert_eq!((&of_ada["session"], &of_ada["protocol"]), (&of_root["session"], &json!("amqp")));
    for hidden in ["user", "client", "peer", "connection"] {
        assert_eq!(of_ada[hidden], Value::Null, "{hidden}");
    }
}

/// The record, its dead letter, and the copy that is made when that is redriven.
#[tokio::test]
async fn trace_finds_dead_letters_and_redriven_records() {
    let (server, _broker) = open_node().await;
    for topic in ["t", "dead"] {
        make(&server, topic, 1, json!({})).await;
    }
    group(&server, "main", json!({"dead.letter.topic": "dead"})).await;
    let headers = json!([{"name": "traceparent", "value": PARENT}]);
    let records = json!({"records": [{"value": "poison", "headers": headers}]});
    post(&server, "/v1/topics/t/records", &records).await.json();
    let lease = take(&server, 1).await.remove(0);
    settle(&server, &lease, "reject").await;
    let query = format!("trace_id={TRACE_ID}");
    let found = trace(&server, &query).await;
    assert_eq!(places(&found), [("dead", 0), ("t", 0)]);
    let [letter, original] = [&found["records"][0], &found["records"][1]];
    let death = &letter["death"];
    assert_eq!((&death["topic"], &death["offset"]), (&json!("t"), &json!(0)), "{letter}");
    let group = &original["groups"][0];
    assert_eq!((&group["state"], &group["dead_letter_topic"]), (&json!("settled"), &json!("dead")));
    let words: Vec<_> = group["events"].as_array().expect("events").iter().collect();
    let words: Vec<_> = words.iter().map(|it| it["what"].as_str().expect("a word")).collect();
    assert_eq!(words, ["delivered", "rejected", "died", "settled"]);
    assert_eq!(group["events"][2]["reason"], "rejected");

    let redriven = post(&server, "/v1/topics/dead/dead-letters/redrive", &json!({})).await;
    assert_eq!(redriven.status, 200, "{redriven:?}");
    let found = trace(&server, &query).await;
    assert!(places(&found).contains(&("t", 1)), "{found}");
    assert_eq!(
        found["records"].as_array().and_then(|all| all.last()).map(|it| &it["death"]),
        Some(&Value::Null)
    );
}

#[tokio::test]
async fn amqp_message_is_traced_by_message_id_and_trace_id() {
    let (server, _broker) = open_node().await;
    let queue = request(Method::PUT, "/api/queues/%2F/q", &[], r#"{"durable": true}"#);
    assert_eq!(ask(&mut connect(server.address).await, queue).await.status, 201);
    let message = json!({
        "routing_key": "q", "payload": "m", "payload_encoding": "string",
        "properties": {"message_id": "m-7", "headers": {"traceparent": PARENT}},
    });
    let sent = post(&server, "/api/exchanges/%2F/amq.default/publish", &message).await;
    assert_eq!(sent.json(), json!({"routed": true}));
    for query in ["message_id=m-7", &format!("trace_id={TRACE_ID}")] {
        let found = trace(&server, query).await;
        assert_eq!(places(&found), [("q", 0)], "{query}");
        assert_eq!(found["records"][0]["groups"][0]["state"], "ready");
    }
}
