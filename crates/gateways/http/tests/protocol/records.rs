//! `/v1`: producing, reading and following records by plain HTTP.

use std::time::Duration;

use axum::http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::harness::{
    ReceivedResponse, SOON, Server, ask, connect, get, open_node, request, safe_node,
};

pub(crate) async fn post(server: &Server, path: &str, body: &Value) -> ReceivedResponse {
    let headers = [("content-type", "application/json")];
    let request = request(Method::POST, path, &headers, body.to_string());
    ask(&mut connect(server.address).await, request).await
}

pub(crate) async fn make(server: &Server, name: &str, partitions: u32, config: Value) {
    let body = json!({"name": name, "partitions": partitions, "config": config});
    let made = post(server, "/v1/topics", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
}

pub(crate) async fn produce(server: &Server, topic: &str, values: &[&str]) -> Value {
    let records: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
    let body = json!({"records": records});
    let answer = post(server, &format!("/v1/topics/{topic}/records"), &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn read(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/v1/topics/t/partitions/0/records{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn values(read: &Value) -> Vec<&str> {
    let records = read["records"].as_array().expect("records");
    records.iter().map(|record| record["value"].as_str().expect("text")).collect()
}

#[tokio::test]
async fn produced_records_are_read_unchanged() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let body = json!({"records": [
        {"key": "k", "value": "text", "headers": [{"name": "h", "value": "1"}, {"name": "n"}], "timestamp_ms": 7},
        {"value": {"base64": "/wA="}},
        {"value_json": {"a": [1, null]}},
        {"key": "gone"},
        {"value": "x", "deliver_at_ms": 9, "expires_at_ms": 10, "priority": 3, "id": "i"},
    ]});
    let placed = post(&server, "/v1/topics/t/records", &body).await;
    assert_eq!(placed.status, 200, "{placed:?}");
    assert_eq!(placed.json()["items"][4], json!({"partition": 0, "offset": 4, "duplicate": false}));
    let read = read(&server, "").await;
    assert_eq!((&read["next"], &read["start"], &read["end"]), (&json!(5), &json!(0), &json!(5)));
    let records = read["records"].as_array().expect("records");
    assert_eq!(
        records[0],
        json!({
            "partition": 0, "offset": 0, "timestamp_ms": 7, "key": "k", "value": "text",
            "headers": [{"name": "h", "value": "1"}, {"name": "n", "value": null}],
        })
    );
    assert_eq!(records[1]["value"], json!({"base64": "/wA="}));
    assert_eq!(records[2]["value"], r#"{"a":[1,null]}"#);
    assert_eq!((&records[3]["key"], &records[3]["value"]), (&json!("gone"), &Value::Null));
    let names: Vec<_> = records[4]["headers"].as_array().expect("headers").iter().collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[tokio::test]
async fn json_lines_and_raw_values_are_accepted_as_bodies() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let mut client = connect(server.address).await;
    let path = "/v1/topics/t/records";
    let lines = "{\"value\":\"a\"}\n{\"value\":\"b\"}\n";
    let said = [("content-type", "application/x-ndjson")];
    let answer = ask(&mut client, request(Method::POST, path, &said, lines)).await;
    assert_eq!(answer.json()["items"].as_array().map(Vec::len), Some(2));
    let said = [
        ("content-type", "text/plain"),
        ("postroad-key", "k"),
        ("postroad-header-colour", "red"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "rojo=1"),
        ("tracestate", "congo=2"),
    ];
    let answer = ask(&mut client, request(Method::POST, path, &said, "as it is")).await;
    assert_eq!(answer.json()["items"][0]["offset"], 2, "{answer:?}");
    let read = read(&server, "?from=2").await;
    let record = &read["records"][0];
    assert_eq!((&record["key"], &record["value"]), (&json!("k"), &json!("as it is")));
    let headers = record["headers"].as_array().expect("headers");
    assert!(headers.contains(&json!({"name": "colour", "value": "red"})), "{headers:?}");
    assert!(headers.iter().any(|header| header["name"] == "traceparent"), "{headers:?}");
    let state = json!({"name": "tracestate", "value": "rojo=1,congo=2"});
    assert!(headers.contains(&state), "{headers:?}");
}

#[tokio::test]
async fn partition_is_chosen_by_key_or_round_robin() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 4, json!({})).await;
    let keys: Vec<Value> = (0..8).map(|_| json!({"key": "same", "value": "v"})).collect();
    let answer = post(&server, "/v1/topics/t/records", &json!({"records": keys})).await.json();
    let partitions: Vec<&Value> =
        answer["items"].as_array().expect("items").iter().map(|item| &item["partition"]).collect();
    assert!(partitions.iter().all(|partition| *partition == partitions[0]), "{partitions:?}");
    // The same choice as Kafka's clients.
    assert_eq!(*partitions[0], json!(record::partition_of_key(b"same", 4)));
    let answer = produce(&server, "t", &["1", "2", "3", "4"]).await;
    let mut partitions: Vec<u64> = answer["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| item["partition"].as_u64().expect("a number"))
        .collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [0, 1, 2, 3]);
    let two = json!({"records": [{"value": "a", "partition": 3}, {"value": "b", "partition": 4}]});
    let answer = post(&server, "/v1/topics/t/records", &two).await.json();
    assert_eq!(answer["items"][0]["partition"], 3);
    assert_eq!(answer["items"][1]["problem"]["type"], "/problems/no-such-partition");
    let one = json!({"records": [{"value": "b", "partition": 4}]});
    post(&server, "/v1/topics/t/records", &one).await.is_problem(404, "no-such-partition");
}

#[tokio::test]
async fn unknown_members_and_parameters_are_rejected_by_name() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let path = "/v1/topics/t/records";
    for (body, word) in [
        (json!({"records": [{"valeu": "x"}]}), "valeu"),
        (json!({"record": []}), "record"),
        (json!({"records": []}), "1 to 10000"),
        (json!({"records": [{"value": "x", "value_json": 1}]}), "value_json"),
        (json!({"records": [{"headers": [{"name": "postroad.id", "value": "x"}]}]}), "postroad."),
        (json!({"records": [{"priority": 256}]}), "256"),
    ] {
        let document = post(&server, path, &body).await.is_problem(400, "bad-request");
        let detail = document["detail"].as_str().expect("text");
        assert!(detail.contains(word), "{detail}");
    }
    for (query, word) in [
        ("?form=1", "form"),
        ("?from=soon", "soon"),
        ("?max_records=0", "max_records"),
        ("?max_records=10001", "10000"),
        ("?wait_ms=60001", "60000"),
        ("?max_bytes=x", "invalid"),
    ] {
        let answer = server.get(&format!("/v1/topics/t/partitions/0/records{query}")).await;
        let document = answer.is_problem(400, "bad-request");
        let detail = document["detail"].as_str().expect("text");
        assert!(detail.contains(word), "{detail}");
    }
    server.get("/v1/topics/t/partitions/x/records").await.is_problem(400, "bad-request");
    server.get("/v1/topics/t/partitions/1/records").await.is_problem(404, "no-such-partition");
    server.get("/v1/topics/none/partitions/0/records").await.is_problem(404, "no-such-topic");
    server.get("/v1/topics/%ff/partitions/0/records").await.is_problem(400, "bad-request");
    let none = json!({"records": [{"value": "x"}]});
    post(&server, "/v1/topics/none/records", &none).await.is_problem(404, "no-such-topic");
}

#[tokio::test]
async fn position_is_an_offset_a_count_a_time_or_an_end() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let records: Vec<Value> =
        (1..=5).map(|n| json!({"value": n.to_string(), "timestamp_ms": n * 1_000})).collect();
    post(&server, "/v1/topics/t/records", &json!({"records": records})).await;
    for (query, expected) in [
        ("?from=earliest&max_records=2", &["1", "2"][..]),
        ("?from=3", &["4", "5"]),
        ("?from=-1", &["5"]),
        ("?from=-100", &["1", "2", "3", "4", "5"]),
        ("?from=1970-01-01T00:00:03Z", &["3", "4", "5"]),
        ("?from=1s%20ago", &[]),
        ("?from=latest", &[]),
        ("?from=5", &[]),
        // The first record is returned whatever its size.
        ("?max_bytes=1", &["1"]),
    ] {
        let read = read(&server, query).await;
        assert_eq!(values(&read), expected, "{query}");
    }
    let answer = server.get("/v1/topics/t/partitions/0/records?from=6").await;
    answer.is_problem(416, "not-there");
}

#[tokio::test]
async fn long_poll_ends_with_data_on_timeout_or_at_shutdown() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let begun = Instant::now();
    let empty = read(&server, "?wait_ms=300").await;
    assert!(values(&empty).is_empty() && begun.elapsed() >= Duration::from_millis(300));
    let path = "/v1/topics/t/partitions/0/records?from=latest&wait_ms=60000";
    let waiting = tokio::spawn({
        let address = server.address;
        async move { get(address, path, &[]).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    produce(&server, "t", &["now"]).await;
    let came = timeout(SOON, waiting).await.expect("in time").expect("ends").json();
    assert_eq!(values(&came), ["now"]);
    let waiting = tokio::spawn({
        let address = server.address;
        async move { get(address, path, &[]).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.front.drain();
    let came = timeout(SOON, waiting).await.expect("in time").expect("ends");
    assert_eq!(came.status, 200);
}

#[tokio::test]
async fn repeated_idempotency_key_appends_nothing() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    make(&server, "known", 1, json!({"dedup.window.ms": "600000"})).await;
    make(&server, "wide", 8, json!({"dedup.window.ms": "600000"})).await;
    let body = json!({"records": [{"value": "a"}, {"value": "b"}]}).to_string();
    let send = |topic: &'static str, key: &'static str| {
        let (address, body) = (server.address, body.clone());
        async move {
            let headers = [("content-type", "application/json"), ("idempotency-key", key)];
            let path = format!("/v1/topics/{topic}/records");
            ask(&mut connect(address).await, request(Method::POST, &path, &headers, body)).await
        }
    };
    let refused = send("t", "k").await;
    let document = refused.is_problem(422, "no-dedup-window");
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("dedup.window.ms")));
    let item = |answer: &ReceivedResponse, at: usize| {
        let item = answer.json()["items"][at].clone();
        (item["offset"].as_u64(), item["duplicate"].as_bool())
    };
    let first = send("known", "k").await;
    assert_eq!(
        (item(&first, 0), item(&first, 1)),
        ((Some(0), Some(false)), (Some(1), Some(false)))
    );
    let again = send("known", "k").await;
    assert_eq!((item(&again, 0), item(&again, 1)), ((Some(0), Some(true)), (Some(1), Some(true))));
    assert_eq!(item(&send("known", "other").await, 0), (Some(2), Some(false)));
    // With several partitions, the place is that of the first attempt.
    let place = |answer: ReceivedResponse| {
        let item = answer.json()["items"][1].clone();
        (item["partition"].clone(), item["offset"].clone())
    };
    let (first, again) = (send("wide", "k").await, send("wide", "k").await);
    assert_eq!(item(&again, 1).1, Some(true));
    assert_eq!(place(first), place(again));
}

#[tokio::test]
async fn rejected_record_does_not_affect_the_others() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({"max.message.bytes": "2000"})).await;
    let long = "x".repeat(3_000);
    let body = json!({"records": [{"value": "a"}, {"value": long}, {"value": "b"}]});
    let answer = post(&server, "/v1/topics/t/records", &body).await.json();
    assert_eq!(answer["items"][0]["offset"], 0);
    assert_eq!(answer["items"][1]["problem"]["status"], 413);
    assert_eq!(answer["items"][2]["offset"], 1);
    let timed = json!({"message.timestamp.after.max.ms": "1000"});
    make(&server, "timed", 1, timed).await;
    for wrong in [-1, i64::MAX] {
        let body = json!({"records": [{"value": "a", "timestamp_ms": wrong}]});
        post(&server, "/v1/topics/timed/records", &body).await.is_problem(422, "invalid");
    }
    make(&server, "own-time", 1, json!({"message.timestamp.type": "LogAppendTime"})).await;
    let body = json!({"records": [{"value": "a", "timestamp_ms": 7}]});
    post(&server, "/v1/topics/own-time/records", &body).await.json();
    let stored = server.get("/v1/topics/own-time/partitions/0/records").await.json();
    assert!(stored["records"][0]["timestamp_ms"].as_i64() > Some(1_000_000), "{stored}");
    make(&server, "compacted", 1, json!({"cleanup.policy": "compact"})).await;
    let keyless = json!({"records": [{"value": "a"}]});
    let path = "/v1/topics/compacted/records";
    post(&server, path, &keyless).await.is_problem(422, "invalid");
}

#[tokio::test]
async fn topics_are_created_listed_described_and_deleted() {
    let (server, _broker) = open_node().await;
    for name in ["b", "a", "c"] {
        make(&server, name, 2, json!({"retention.ms": "1000"})).await;
    }
    let described = server.get("/v1/topics/a").await.json();
    assert_eq!(described["partitions"][1], json!({"partition": 1, "start": 0, "end": 0}));
    assert_eq!(described["config"], json!({"retention.ms": "1000"}));
    let again = post(&server, "/v1/topics", &json!({"name": "a"})).await;
    again.is_problem(409, "exists");
    for (body, word) in [
        (json!({"name": "a/b"}), "a/b"),
        (json!({"name": "d", "partitions": 0}), "0"),
        (json!({"name": "d", "config": {"no.such": "1"}}), "no.such"),
    ] {
        let document = post(&server, "/v1/topics", &body).await.is_problem(422, "invalid");
        assert!(document["detail"].as_str().is_some_and(|it| it.contains(word)), "{document}");
    }
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|item| item["name"].as_str().expect("text").to_owned()).collect()
    };
    let first = server.get("/v1/topics?limit=2").await.json();
    assert_eq!((names(&first), &first["next"]), (vec!["a".into(), "b".into()], &json!("b")));
    let second = server.get("/v1/topics?limit=2&cursor=b").await.json();
    assert_eq!((names(&second), &second["next"]), (vec!["c".into()], &Value::Null));
    let mut client = connect(server.address).await;
    let gone = ask(&mut client, request(Method::DELETE, "/v1/topics/b", &[], "")).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    let again = ask(&mut client, request(Method::DELETE, "/v1/topics/b", &[], "")).await;
    again.is_problem(404, "no-such-topic");
}

/// Server-sent events of a response.
struct Events {
    body: hyper::body::Incoming,
    text: String,
}

impl Events {
    async fn open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut client = connect(server.address).await;
        let asked = client.send_request(request(Method::GET, path, headers, ""));
        let response = timeout(SOON, asked).await.expect("in time").expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        // The connection lives as long as its sender.
        std::mem::forget(client);
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event's id and record; `None`: the stream has ended.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().trim().to_owned()
                };
                if event.starts_with(':') {
                    continue;
                }
                return Some((field("id:"), serde_json::from_str(&field("data:")).expect("JSON")));
            }
            let frame = timeout(SOON, self.body.frame()).await.expect("in time")?;
            let data = frame.expect("whole").into_data().expect("data");
            self.text += std::str::from_utf8(&data).expect("text");
        }
    }
}

#[tokio::test]
async fn stream_resumes_after_the_last_event_id() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 2, json!({})).await;
    produce(&server, "t", &["before", "before"]).await;
    let mut events = Events::open(&server, "/v1/topics/t/stream", &[]).await;
    let sent: Vec<Value> =
        (0..4).map(|n| json!({"value": n.to_string(), "partition": n % 2})).collect();
    post(&server, "/v1/topics/t/records", &json!({"records": sent})).await;
    let mut seen = Vec::new();
    let mut last = String::new();
    for _ in 0..4 {
        let (id, record) = events.next().await.expect("an event");
        seen.push(record["value"].as_str().expect("text").to_owned());
        last = id;
    }
    seen.sort();
    assert_eq!(seen, ["0", "1", "2", "3"]);
    produce(&server, "t", &["later"]).await;
    let (id, record) = events.next().await.expect("an event");
    assert_eq!(record["value"], "later");
    assert_ne!(id, last);
    drop(events);
    let mut again = Events::open(&server, "/v1/topics/t/stream", &[("last-event-id", &last)]).await;
    assert_eq!(again.next().await.expect("an event").1["value"], "later");
    let mut all = Events::open(&server, "/v1/topics/t/stream?from=earliest", &[]).await;
    for _ in 0..7 {
        all.next().await.expect("an event");
    }
    // The stream ends with the node, and with the topic.
    let mut client = connect(server.address).await;
    ask(&mut client, request(Method::DELETE, "/v1/topics/t", &[], "")).await;
    assert!(all.next().await.is_none());
    make(&server, "other", 1, json!({})).await;
    let mut other = Events::open(&server, "/v1/topics/other/stream", &[]).await;
    server.front.drain();
    assert!(other.next().await.is_none());
}

#[tokio::test]
async fn invalid_stream_request_is_rejected() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    make(&server, "wide", 101, json!({})).await;
    server.get("/v1/topics/t/stream?from=7").await.is_problem(400, "bad-request");
    server.get("/v1/topics/t/stream?since=7").await.is_problem(400, "bad-request");
    server.get("/v1/topics/wide/stream").await.is_problem(422, "invalid");
    let answer = get(server.address, "/v1/topics/t/stream", &[("last-event-id", "1.2")]).await;
    answer.is_problem(400, "bad-request");
}

#[tokio::test]
async fn stream_ends_when_the_right_to_read_is_revoked() {
    use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
    let (server, _broker, users) = safe_node().await;
    let hash = passwords::hash_password("secret").expect("a hash");
    users.add("app", hash).await.expect("is made");
    let rule = |verdict| Rule {
        resource: Resource::Topic,
        pattern: Pattern::Literal,
        name: "t".into(),
        principal: "User:app".into(),
        host: "*".into(),
        action: Action::Any,
        verdict,
    };
    users.add_rules(vec![rule(Verdict::Allow)]).await.expect("is added");
    let app = crate::harness::basic("app", "secret");
    let headers = [("authorization", &*app), ("content-type", "application/json")];
    let mut client = connect(server.address).await;
    let body = json!({"name": "t"}).to_string();
    let made = ask(&mut client, request(Method::POST, "/v1/topics", &headers, body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let mut events = Events::open(&server, "/v1/topics/t/stream", &headers).await;
    users.add_rules(vec![rule(Verdict::Deny)]).await.expect("is added");
    let root = crate::harness::basic("root", "toor");
    let headers = [("authorization", &*root), ("content-type", "text/plain")];
    let asked = request(Method::POST, "/v1/topics/t/records", &headers, "unseen");
    assert_eq!(ask(&mut client, asked).await.status, 200);
    assert!(events.next().await.is_none(), "it may read no more");
}
