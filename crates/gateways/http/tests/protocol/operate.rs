//! `/v1`: queries and changes of operators.

use axum::http::Method;
use serde_json::{Value, json};

use crate::harness::{
    ReceivedResponse, Server, ask, basic, connect, open_node, request, safe_node,
};
use crate::records::{make, post, produce};

async fn send(server: &Server, method: Method, path: &str, body: Value) -> ReceivedResponse {
    let root = basic("root", "toor");
    let asked = request(method, path, &[("authorization", &root)], body.to_string());
    ask(&mut connect(server.address).await, asked).await
}

#[tokio::test]
async fn overview_has_counts_and_alarms() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 3, json!({})).await;
    produce(&server, "t", &["a", "b"]).await;
    let overview = server.get("/v1/overview").await.json();
    assert_eq!((&overview["topics"], &overview["partitions"]), (&json!(1), &json!(3)));
    assert_eq!((&overview["alarms"], &overview["open_to_everybody"]), (&json!([]), &json!(true)));
    let http = overview["protocols"].as_array().expect("protocols").iter();
    let http = http.clone().find(|it| it["protocol"] == "http").expect("this one");
    assert_eq!(http["records_received"], 2, "{overview}");
    assert!(overview["journal"]["syncs"].as_u64() > Some(0), "{overview}");
    server.front.drain();
    let alarms = server.get("/v1/overview").await.json()["alarms"].clone();
    assert_eq!(alarms[0]["alarm"], "draining", "{alarms}");
}

#[tokio::test]
async fn topics_are_filtered_and_counted() {
    let (server, _broker) = open_node().await;
    for name in ["orders", "orders.eu", "payments"] {
        make(&server, name, 2, json!({})).await;
    }
    produce(&server, "orders.eu", &["a", "b", "c"]).await;
    let page = server.get("/v1/topics?filter=ORD&counts=true").await.json();
    let expected = json!({"items": [
        {"name": "orders", "partitions": 2, "groups": 0, "records": 0, "appended": 0},
        {"name": "orders.eu", "partitions": 2, "groups": 0, "records": 3, "appended": 3},
    ], "next": null});
    assert_eq!(page, expected);
    let page = server.get("/v1/topics?filter=ord&limit=1").await.json();
    let row = json!({"name": "orders", "partitions": 2, "groups": 0});
    assert_eq!(page, json!({"items": [row], "next": "orders"}));
    server.get("/v1/topics?sort=name").await.is_problem(400, "bad-request");
}

#[tokio::test]
async fn lease_groups_of_all_topics_are_listed_and_filtered() {
    let (server, _broker) = open_node().await;
    for (topic, group) in [("a", "x"), ("a", "y"), ("b", "x")] {
        let path = format!("/v1/topics/{topic}");
        if server.get(&path).await.status != 200 {
            make(&server, topic, 1, json!({})).await;
        }
        send(&server, Method::PUT, &format!("{path}/groups/{group}"), json!({})).await;
    }
    let names = async |query: &str| {
        let page = server.get(&format!("/v1/lease-groups{query}")).await.json();
        let items = page["items"].as_array().expect("items").clone();
        let name = |it: &Value| format!("{}{}", it["topic"], it["group"]).replace('"', "");
        (items.iter().map(name).collect::<Vec<_>>(), page["next"].clone())
    };
    assert_eq!(names("").await, (vec!["ax".into(), "ay".into(), "bx".into()], Value::Null));
    assert_eq!(names("?limit=2").await, (vec!["ax".into(), "ay".into()], json!("a/y")));
    assert_eq!(names("?limit=2&cursor=a/y").await, (vec!["bx".into()], Value::Null));
    assert_eq!(names("?filter=X").await.0, ["ax", "bx"]);
    assert_eq!(names("?filter=x&limit=1").await, (vec!["ax".into()], json!("a/x")));
    server.get("/v1/lease-groups?cursor=a").await.is_problem(400, "bad-request");
}

#[tokio::test]
async fn waiting_records_are_listed_removed_and_cancelled() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    let group = "/v1/topics/t/groups/g";
    send(&server, Method::PUT, group, json!({})).await;
    let later = json!({"records": [{"value": "a"}, {"value": "b", "deliver_at_ms": 99_999_999_999_999_i64}]});
    assert_eq!(post(&server, "/v1/topics/t/records", &later).await.status, 200);
    let waiting = server.get(&format!("{group}/records")).await.json();
    assert_eq!(
        (&waiting["items"][0]["state"], &waiting["items"][1]["state"]),
        (&json!("ready"), &json!("delayed"))
    );
    let page = server.get(&format!("{group}/records?limit=1")).await.json();
    assert_eq!(page["next"], "0.1", "{page}");
    let due = server.get(&format!("{group}/scheduled")).await.json();
    assert_eq!(due["items"][0]["offset"], 1, "{due}");
    let cancel = json!({"records": [{"partition": 0, "offset": 1}]});
    let cancelled = post(&server, &format!("{group}/scheduled/cancel"), &cancel).await.json();
    assert_eq!(cancelled["removed"], 1, "{cancelled}");
    let remove = json!({"records": [{"partition": 0, "offset": 0}]});
    let removed = post(&server, &format!("{group}/remove"), &remove).await.json();
    assert_eq!(removed["removed"], 1, "{removed}");
    assert_eq!(server.get(&format!("{group}/records")).await.json()["items"], json!([]));
    let none = json!({"records": []});
    post(&server, &format!("{group}/remove"), &none).await.is_problem(400, "bad-request");
}

#[tokio::test]
async fn dead_letters_are_counted_listed_redriven_and_deleted() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({})).await;
    make(&server, "dead", 1, json!({})).await;
    let config = json!({"config": {"dead.letter.topic": "dead", "attempts.max": "1"}});
    send(&server, Method::PUT, "/v1/topics/t/groups/g", config).await;
    produce(&server, "t", &["a", "b"]).await;
    let take = json!({"max_records": 2, "lease_ms": 60000});
    let leases = post(&server, "/v1/topics/t/groups/g/leases", &take).await.json();
    let settles: Vec<Value> = leases["leases"]
        .as_array()
        .expect("leases")
        .iter()
        .map(|it| json!({"token": it["token"], "action": "reject"}))
        .collect();
    post(&server, "/v1/topics/t/groups/g/settle", &json!({"settles": settles})).await.json();
    assert_eq!(server.get("/v1/dead-letters").await.json(), json!({"topics": ["dead"]}));
    let counts = server.get("/v1/topics/dead/dead-letters").await.json();
    assert_eq!(
        (&counts["items"][0]["source"], &counts["items"][0]["records"]),
        (&json!("t"), &json!(2))
    );
    let shown = server.get("/v1/topics/dead/dead-letters/records?source=t").await.json();
    assert_eq!(shown["items"][0]["death"]["group"], "g", "{shown}");
    let one = json!({"records": [{"partition": 0, "offset": 0}]});
    for (what, body, records) in
        [("redrive", &one, 1), ("delete", &one, 1), ("delete", &json!({"source": "t"}), 2)]
    {
        let path = format!("/v1/topics/dead/dead-letters/{what}?dry_run=true");
        let tried = post(&server, &path, body).await.json();
        assert_eq!(tried["records"], records, "{tried}");
    }
    let moved = post(&server, "/v1/topics/dead/dead-letters/redrive", &one).await.json();
    assert_eq!(moved["records"], 1, "{moved}");
    let gone =
        post(&server, "/v1/topics/dead/dead-letters/delete", &json!({"source": "t"})).await.json();
    assert_eq!(gone["records"], 1, "{gone}");
    assert_eq!(server.get("/v1/topics/t").await.json()["partitions"][0]["end"], 3);
}

#[tokio::test]
async fn topic_configuration_shows_its_sources_and_can_be_changed() {
    let (server, _broker) = open_node().await;
    make(&server, "t", 1, json!({"retention.ms": "1000"})).await;
    let of = |document: &Value, name: &str| {
        let items = document["items"].as_array().expect("items").clone();
        items.into_iter().find(|it| it["name"] == name).expect("is there")
    };
    let shown = server.get("/v1/topics/t/config").await.json();
    let retention = of(&shown, "retention.ms");
    assert_eq!((&retention["value"], &retention["source"]), (&json!("1000"), &json!("topic")));
    assert_eq!(of(&shown, "cleanup.policy")["source"], "default");
    let change = json!({"config": {"retention.ms": null, "cleanup.policy": "compact"}});
    let changed = send(&server, Method::PATCH, "/v1/topics/t/config", change).await.json();
    assert_eq!(of(&changed, "retention.ms")["source"], "default");
    assert_eq!(of(&changed, "cleanup.policy")["value"], "compact");
    for wrong in [json!({"config": {"no.such": "1"}}), json!({"config": {"retention.ms": "x"}})] {
        let refused = send(&server, Method::PATCH, "/v1/topics/t/config", wrong).await;
        refused.is_problem(422, "invalid");
    }
}

#[tokio::test]
async fn connections_are_listed_and_closed() {
    let (server, _broker) = open_node().await;
    let mut client = connect(server.address).await;
    let list = ask(&mut client, request(Method::GET, "/v1/connections", &[], "")).await.json();
    // This test's node lists connections of other protocols elsewhere.
    assert!(list["items"].is_array() && list["next"].is_null(), "{list}");
    let none = send(&server, Method::DELETE, "/v1/connections/999", json!({})).await;
    none.is_problem(404, "not-found");
    let wrong = send(&server, Method::DELETE, "/v1/connections/x", json!({})).await;
    wrong.is_problem(400, "bad-request");
}

#[tokio::test]
async fn single_node_has_shards_and_no_cluster_status() {
    let (server, _broker) = open_node().await;
    let cluster = server.get("/v1/cluster").await.json();
    assert_eq!((&cluster["clustered"], &cluster["status"]), (&json!(false), &Value::Null));
    let shards = server.get("/v1/shards").await.json();
    assert_eq!(shards["shards"][0]["holds"], "catalog", "{shards}");
    let drained = json!({"standing": "drained"});
    assert!(send(&server, Method::PATCH, "/v1/nodes/1", drained).await.status.is_client_error());
    let wrong = send(&server, Method::PATCH, "/v1/nodes/1", json!({"standing": "asleep"})).await;
    wrong.is_problem(400, "bad-request");
}

#[tokio::test]
async fn users_and_rules_are_managed_without_revealing_secrets() {
    let (server, _broker, _users) = safe_node().await;
    let server = &server;
    let root =
        |method, path: &'static str, body| async move { send(server, method, path, body).await };
    let app = json!({"name": "app", "password": "secret"});
    assert_eq!(root(Method::POST, "/v1/users", app.clone()).await.status, 201);
    root(Method::POST, "/v1/users", app).await.is_problem(409, "exists");
    let list = root(Method::GET, "/v1/users", json!({})).await;
    assert!(list.text().contains("\"app\"") && list.text().contains("SCRAM-SHA-256"), "{list:?}");
    assert!(!list.text().contains("argon2") && !list.text().contains("toor"), "{list:?}");
    assert_eq!(server.get_as("/v1/whoami", "app", "secret").await.status, 200);
    let other = json!({"password": "other"});
    assert_eq!(root(Method::PUT, "/v1/users/app/password", other).await.status, 204);
    server.get_as("/v1/whoami", "app", "secret").await.is_problem(401, "not-logged-in");
    let explain = "/v1/access?user=app&action=read&resource=topic&name=t";
    assert_eq!(root(Method::GET, explain, json!({})).await.json()["allowed"], false);
    let rule = json!({"principal": "User:app", "host": "*", "verdict": "allow", "action": "read",
        "resource": "topic", "name": "t", "pattern": "literal"});
    assert_eq!(root(Method::POST, "/v1/acls", rule.clone()).await.status, 204);
    assert_eq!(root(Method::GET, "/v1/acls", json!({})).await.json()["items"], json!([rule]));
    let explained = root(Method::GET, explain, json!({})).await.json();
    assert_eq!(explained["allowed"], true, "{explained}");
    assert_eq!(root(Method::POST, "/v1/acls/delete", rule.clone()).await.status, 204);
    root(Method::POST, "/v1/acls/delete", rule).await.is_problem(404, "not-found");
    let wrong = json!({"principal": "app", "host": "*", "verdict": "allow", "action": "read",
        "resource": "topic", "name": "t", "pattern": "literal"});
    root(Method::POST, "/v1/acls", wrong).await.is_problem(422, "invalid");
    assert_eq!(root(Method::DELETE, "/v1/users/app", json!({})).await.status, 204);
    root(Method::DELETE, "/v1/users/app", json!({})).await.is_problem(404, "not-found");
    root(Method::DELETE, "/v1/users/root", json!({})).await.is_problem(422, "invalid");
    root(Method::GET, explain, json!({})).await.is_problem(404, "not-found");
}
