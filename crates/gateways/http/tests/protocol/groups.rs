//! `/v1`: groups of both kinds, created, inspected and moved.

use axum::http::Method;
use broker::CommitOffset;
use serde_json::{Value, json};

use crate::harness::{ReceivedResponse, Server, ask, connect, open_node, request};
use crate::records::{make, post, produce};

async fn send(server: &Server, method: Method, path: &str, body: Value) -> ReceivedResponse {
    let asked = request(method, path, &[], body.to_string());
    ask(&mut connect(server.address).await, asked).await
}

async fn taken(server: &Server) -> Vec<String> {
    let body = json!({"max_records": 100, "lease_ms": 60000});
    let answer = post(server, "/v1/topics/t/groups/g/leases", &body).await;
    let leases = answer.json()["leases"].clone();
    let leases = leases.as_array().unwrap_or_else(|| panic!("{answer:?}"));
    leases.iter().map(|it| it["record"]["value"].as_str().expect("text").to_owned()).collect()
}

const GROUP: &str = "/v1/topics/t/groups/g";

#[tokio::test]
async fn group_is_created_changed_listed_and_deleted() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 2, json!({})).await;
    make(&server, "u", 1, json!({})).await;
    produce(&server, "t", &["a", "b", "c"]).await;
    let made = send(&server, Method::PUT, GROUP, json!({})).await;
    assert_eq!((made.status.as_u16(), &made.json()["created"]), (201, &json!(true)));
    let config = json!({"config": {"attempts.max": "3"}});
    let changed = send(&server, Method::PUT, GROUP, config).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["changed"]), (200, &json!(true)));
    for other in ["/v1/topics/t/groups/h", "/v1/topics/u/groups/g"] {
        assert_eq!(send(&server, Method::PUT, other, json!({"from": "latest"})).await.status, 201);
    }
    let page = server.get("/v1/topics/t/groups?limit=1").await.json();
    assert_eq!((&page["items"][0]["group"], &page["next"]), (&json!("g"), &json!("g")));
    assert_eq!(page["items"][0]["depth"], 3, "{page}");
    let rest = server.get("/v1/topics/t/groups?limit=1&cursor=g").await.json();
    assert_eq!((&rest["items"][0]["group"], &rest["next"]), (&json!("h"), &Value::Null));
    let described = server.get(GROUP).await.json();
    assert_eq!(described["summary"]["ready"], 3, "{described}");
    assert_eq!(described["progress"].as_array().map(Vec::len), Some(2));
    let tried = send(&server, Method::DELETE, &format!("{GROUP}?dry_run=true"), json!({})).await;
    assert_eq!(tried.json(), json!({"records": 3, "consumers": 0}));
    let tried = post(&server, &format!("{GROUP}/purge?dry_run=true"), &json!({})).await.json();
    assert_eq!(tried, json!({"records": 3}));
    let gone = send(&server, Method::DELETE, GROUP, json!({})).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    server.get(GROUP).await.is_problem(404, "no-such-group");
    let wrong = json!({"config": {"no.such": "1"}});
    send(&server, Method::PUT, GROUP, wrong).await.is_problem(422, "invalid");
    let wrong = json!({"form": "latest"});
    send(&server, Method::PUT, GROUP, wrong).await.is_problem(400, "bad-request");
    let none = send(&server, Method::PUT, "/v1/topics/none/groups/g", json!({})).await;
    none.is_problem(404, "no-such-group");
    let query = send(&server, Method::DELETE, &format!("{GROUP}?forse=true"), json!({})).await;
    query.is_problem(400, "bad-request");
}

#[tokio::test]
async fn paused_group_delivers_nothing_until_resumed() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    send(&server, Method::PUT, GROUP, json!({})).await;
    produce(&server, "t", &["a"]).await;
    let paused = send(&server, Method::PATCH, GROUP, json!({"paused": true})).await;
    assert_eq!(paused.status, 204, "{paused:?}");
    assert!(taken(&server).await.is_empty());
    send(&server, Method::PATCH, GROUP, json!({"paused": false})).await;
    assert_eq!(taken(&server).await, ["a"]);
    send(&server, Method::PATCH, GROUP, json!({})).await.is_problem(400, "bad-request");
}

#[tokio::test]
async fn seek_moves_a_group_to_a_position() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    send(&server, Method::PUT, GROUP, json!({})).await;
    produce(&server, "t", &["a", "b", "c"]).await;
    let server = &server;
    assert_eq!(taken(server).await, ["a", "b", "c"]);
    let seek = |body: Value| async move { post(server, &format!("{GROUP}/seek"), &body).await };
    let sought = seek(json!({"to": "-2"})).await.json();
    assert_eq!(sought["offsets"], json!([{"partition": 0, "offset": 1, "before": 0}]));
    assert_eq!(taken(server).await, ["b", "c"]);
    seek(json!({"offsets": [{"partition": 0, "offset": 2}]})).await.json();
    assert_eq!(taken(server).await, ["c"]);
    seek(json!({"to": "earliest"})).await.json();
    assert_eq!(taken(server).await, ["a", "b", "c"]);
    for wrong in [
        json!({}),
        json!({"to": "7"}),
        json!({"to": "earliest", "offsets": [{"partition": 0, "offset": 2}]}),
        json!({"to": "soon"}),
    ] {
        seek(wrong).await.is_problem(400, "bad-request");
    }
    let far = json!({"offsets": [{"partition": 7, "offset": 2}]});
    assert!(seek(far).await.status.is_client_error());
    seek(json!({"to": "latest"})).await.json();
    produce(server, "t", &["d"]).await;
    let purged = post(server, &format!("{GROUP}/purge"), &json!({})).await.json();
    assert_eq!(purged, json!({"records": 1}));
    assert!(taken(server).await.is_empty());
}

#[tokio::test]
async fn offset_groups_report_their_lag() {
    let (server, broker) = open_node().await;
    make(&server, "t", 2, json!({})).await;
    produce(&server, "t", &["1", "2", "3", "4", "5", "6"]).await;
    let partition = {
        let catalog = broker.catalog();
        catalog.topic_named("t").and_then(|topic| topic.partition(1)).expect("is there")
    };
    for group in ["readers", "others"] {
        let commit = CommitOffset {
            partition,
            offset: 1,
            leader_epoch: -1,
            metadata: String::new(),
            expire_ms: None,
        };
        let committed = broker.shards().commit_offsets(group, vec![commit]).await;
        committed.expect("is committed");
    }
    let page = server.get("/v1/groups?limit=1").await.json();
    let membership =
        json!({"kind": "classic", "state": "Empty", "assignor": null, "epoch": 0, "members": 0});
    let row = |name| json!({"name": name, "membership": membership});
    assert_eq!(page, json!({"items": [row("others")], "next": "others"}));
    let page = server.get("/v1/groups?limit=1&cursor=others").await.json();
    assert_eq!(page, json!({"items": [row("readers")], "next": null}));
    let lag = server.get("/v1/groups/readers/lag").await.json();
    let row = json!({"topic": "t", "partition": 1, "offset": 1, "end": 3, "lag": 2});
    assert_eq!(lag, json!({"lag": 2, "partitions": [row]}));
    // Deleted records do not count as lag in any of the responses.
    broker.shards().advance_starts(vec![(partition, 3)]).await.expect("records are deleted");
    let lag = server.get("/v1/groups/readers/lag").await.json();
    assert_eq!((&lag["lag"], &lag["partitions"][0]["lag"]), (&json!(0), &json!(0)));
    let offsets = server.get("/v1/groups/readers/offsets").await.json();
    assert_eq!(offsets["items"][0]["lag"], 0);
    let metrics = server.get("/metrics/detailed?family=group&group=readers").await;
    let none = "postroad_group_lag_records{topic=\"t\",group=\"readers\"} 0\n";
    assert!(metrics.text().contains(none), "{}", metrics.text());
    produce(&server, "t", &["7", "8"]).await;
    let lag = server.get("/v1/groups/readers/lag").await.json();
    assert_eq!(lag["lag"], 1);
    server.get("/v1/groups/none/lag").await.is_problem(404, "no-such-group");
}

#[tokio::test]
async fn dry_run_of_a_seek_reports_its_effect_and_moves_nothing() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    send(&server, Method::PUT, GROUP, json!({})).await;
    produce(&server, "t", &["a", "b", "c"]).await;
    post(&server, &format!("{GROUP}/purge"), &json!({})).await.json();
    let path = format!("{GROUP}/seek?dry_run=true");
    let tried = post(&server, &path, &json!({"to": "earliest"})).await.json();
    assert_eq!((&tried["again"], &tried["skipped"]), (&json!(3), &json!(0)), "{tried}");
    assert_eq!(tried["dry_run"], true);
    assert!(taken(&server).await.is_empty());
    post(&server, &format!("{GROUP}/seek"), &json!({"to": "earliest"})).await.json();
    let tried = post(&server, &path, &json!({"to": "latest"})).await.json();
    assert_eq!((&tried["again"], &tried["skipped"]), (&json!(0), &json!(3)), "{tried}");
    assert_eq!(taken(&server).await, ["a", "b", "c"]);
    let wrong = post(&server, &format!("{GROUP}/seek?dry=true"), &json!({"to": "latest"})).await;
    wrong.is_problem(400, "bad-request");
}
