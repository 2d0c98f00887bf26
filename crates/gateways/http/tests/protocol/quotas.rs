//! Quotas: set and enforced by HTTP.

use std::time::Duration;

use axum::http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{ReceivedResponse, SOON, Server, ask, connect, open_node, request};
use crate::records::{make, post, produce};

/// Sets a quota of clients without log-in.
async fn limit(server: &Server, quota: &str, rate: Value) -> ReceivedResponse {
    let body = json!({"entity": {"user": "ANONYMOUS"}, "quotas": {quota: rate}});
    post(server, "/v1/quotas", &body).await
}

fn is_throttled(answer: &ReceivedResponse) {
    let problem = answer.is_problem(429, "throttled");
    let after: u64 = answer.header("retry-after").parse().expect("seconds");
    let ms = problem["retry_after_ms"].as_u64().expect("milliseconds");
    assert!(ms > 0 && after >= ms / 1000, "{after} {ms}");
}

#[tokio::test]
async fn quotas_are_set_listed_and_removed() {
    let (server, _broker) = open_node().await;
    let set = json!({
        "entity": {"user": "ada", "client-id": null},
        "quotas": {"producer_byte_rate": 1000, "controller_mutation_rate": 0.5},
    });
    assert_eq!(post(&server, "/v1/quotas?dry_run=true", &set).await.status, 204);
    assert_eq!(server.get("/v1/quotas").await.json()["items"], json!([]));
    assert_eq!(post(&server, "/v1/quotas", &set).await.status, 204);
    let listed = json!([{
        "entity": {"user": "ada", "client-id": null},
        "quotas": {"producer_byte_rate": 1000.0, "controller_mutation_rate": 0.5},
    }]);
    assert_eq!(server.get("/v1/quotas").await.json()["items"], listed);
    for wrong in [
        json!({"entity": {"user": "ada"}, "quotas": {"request_percentage": 5}}),
        json!({"entity": {"group": "ada"}, "quotas": {"producer_byte_rate": 5}}),
        json!({"entity": {}, "quotas": {"producer_byte_rate": 5}}),
        json!({"entity": {"user": "ada"}, "quotas": {"producer_byte_rate": -5}}),
    ] {
        post(&server, "/v1/quotas", &wrong).await.is_problem(422, "invalid");
    }
    let gone = json!({
        "entity": {"user": "ada", "client-id": null},
        "quotas": {"producer_byte_rate": null, "controller_mutation_rate": null},
    });
    assert_eq!(post(&server, "/v1/quotas", &gone).await.status, 204);
    assert_eq!(server.get("/v1/quotas").await.json()["items"], json!([]));
}

#[tokio::test]
async fn client_over_a_quota_gets_429_with_the_time_to_retry() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let long = "x".repeat(10_000);
    assert_eq!(limit(&server, "producer_byte_rate", json!(10)).await.status, 204);
    // A request is served whole, whatever its size; then the client is in debt.
    produce(&server, "t", &[&long]).await;
    let record = json!({"records": [{"value": "x"}]});
    is_throttled(&post(&server, "/v1/topics/t/records", &record).await);
    let publish = json!({
        "routing_key": "t", "payload": "x", "payload_encoding": "string", "properties": {},
    });
    let path = "/api/exchanges/%2F/amq.default/publish";
    let refused = post(&server, path, &publish).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(limit(&server, "producer_byte_rate", Value::Null).await.status, 204);
    produce(&server, "t", &["after"]).await;

    assert_eq!(limit(&server, "consumer_byte_rate", json!(10)).await.status, 204);
    let read = || server.get("/v1/topics/t/partitions/0/records");
    assert_eq!(read().await.status, 200);
    is_throttled(&read().await);
    is_throttled(&server.get("/v1/topics/t/stream").await);
    is_throttled(&post(&server, "/v1/topics/t/search", &json!({"from": "earliest"})).await);
    assert_eq!(limit(&server, "consumer_byte_rate", Value::Null).await.status, 204);

    assert_eq!(limit(&server, "controller_mutation_rate", json!(0.01)).await.status, 204);
    make(&server, "u", 3, json!({})).await;
    is_throttled(&post(&server, "/v1/topics", &json!({"name": "v"})).await);
    let delete = request(Method::DELETE, "/v1/topics/u", &[], "");
    is_throttled(&ask(&mut connect(server.address).await, delete).await);
    let metrics = server.get("/metrics").await;
    for line in [
        "postroad_throttled_total{protocol=\"http\",quota=\"producer_byte_rate\"} 2",
        "postroad_throttled_total{protocol=\"http\",quota=\"consumer_byte_rate\"} 3",
        "postroad_throttled_total{protocol=\"kafka\",quota=\"consumer_byte_rate\"} 0",
        "postroad_throttled_connections{protocol=\"amqp\"} 0",
    ] {
        assert!(metrics.text().contains(line), "{line}");
    }
}

#[tokio::test]
async fn stream_over_a_quota_is_delayed() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    assert_eq!(limit(&server, "consumer_byte_rate", json!(10)).await.status, 204);
    let mut sender = connect(server.address).await;
    let asked = request(Method::GET, "/v1/topics/t/stream?from=earliest", &[], "");
    let mut body = sender.send_request(asked).await.expect("is answered").into_body();
    let mut event = async || {
        let mut text = Vec::new();
        while !text.ends_with(b"\n\n") {
            let frame = timeout(SOON, body.frame()).await.expect("in time").expect("goes on");
            text.extend(frame.expect("a frame").into_data().expect("data"));
        }
        text.len()
    };
    produce(&server, "t", &[&"x".repeat(10_000)]).await;
    assert!(event().await > 10_000);
    produce(&server, "t", &["later"]).await;
    assert!(timeout(Duration::from_millis(200), event()).await.is_err());
    assert_eq!(limit(&server, "consumer_byte_rate", Value::Null).await.status, 204);
    assert!(event().await < 1_000);
}
