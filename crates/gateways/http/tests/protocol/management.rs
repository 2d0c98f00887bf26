//! RabbitMQ's management API.

use access::Tags;
use axum::http::Method;
use passwords::hash_password;
use serde_json::{Value, json};

use crate::harness::{
    ReceivedResponse, Server, ask, basic, connect, open_node, request, safe_node,
};

async fn send(server: &Server, method: Method, path: &str, body: &str) -> ReceivedResponse {
    let mut sender = connect(server.address).await;
    ask(&mut sender, request(method, path, &[], body.to_owned())).await
}

async fn send_as(
    server: &Server,
    user: &str,
    method: Method,
    path: &str,
    body: &str,
) -> ReceivedResponse {
    let said = basic(user, "secret");
    let mut sender = connect(server.address).await;
    ask(&mut sender, request(method, path, &[("authorization", &said)], body.to_owned())).await
}

async fn put(server: &Server, path: &str, body: &str) -> u16 {
    send(server, Method::PUT, path, body).await.status.as_u16()
}

#[track_caller]
fn is_refused(answer: &ReceivedResponse, status: u16, error: &str) -> String {
    assert_eq!(answer.status, status, "{answer:?}");
    let document = answer.json();
    assert_eq!(document["error"], error, "{document}");
    document["reason"].as_str().expect("a reason").to_owned()
}

#[tokio::test]
async fn overview_describes_the_node() {
    let (server, _broker) = open_node().await;
    let overview = server.get("/api/overview").await.json();
    assert_eq!(overview["rabbitmq_version"], "4.2.0");
    assert_eq!(overview["product_name"], "Postroad");
    assert_eq!(overview["object_totals"]["exchanges"], 7);
    assert_eq!(overview["message_stats"], json!({}));
    assert_eq!(server.get("/api/version").await.json(), "4.2.0");
    let who = server.get("/api/whoami/").await.json();
    assert_eq!((&who["name"], &who["tags"]), (&json!("anonymous"), &json!(["administrator"])));
    let nodes = server.get("/api/nodes").await.json();
    let name = nodes[0]["name"].as_str().expect("a name").to_owned();
    assert_eq!(server.get(&format!("/api/nodes/{name}")).await.status, 200);
    is_refused(&server.get("/api/nodes/other").await, 404, "Object Not Found");
    // Uncounted values have RabbitMQ's placeholders.
    let memory = server.get(&format!("/api/nodes/{name}/memory")).await.json();
    assert_eq!(memory, json!({"memory": "not_available"}));
    assert_eq!(server.get(&format!("/api/auth/attempts/{name}")).await.json(), json!([]));
    is_refused(&server.get("/api/auth/attempts/other").await, 404, "Object Not Found");
    let protection = "/api/vhosts/%2F/deletion/protection";
    for method in [Method::DELETE, Method::POST, Method::DELETE] {
        assert_eq!(send(&server, method, protection, "").await.status, 204);
    }
    for path in ["alarms", "ready-to-serve-clients", "virtual-hosts", "protocol-listener/amqp"] {
        assert_eq!(server.get(&format!("/api/health/checks/{path}")).await.status, 200, "{path}");
    }
    let missing = server.get("/api/health/checks/port-listener/1").await;
    assert_eq!((missing.status.as_u16(), &missing.json()["status"]), (503, &json!("failed")));
    is_refused(&server.get("/api/nothing").await, 404, "Object Not Found");
    is_refused(&send(&server, Method::POST, "/api/overview", "").await, 405, "method_not_allowed");
}

#[tokio::test]
async fn queues_are_created_paged_and_deleted() {
    let (server, _broker) = open_node().await;
    assert_eq!(put(&server, "/api/queues/%2F/a%2Fb", "").await, 201);
    assert_eq!(put(&server, "/api/queues/%2f/a%2fb/", "{}").await, 204);
    let other = send(&server, Method::PUT, "/api/queues/%2F/a%2Fb", r#"{"durable":false}"#).await;
    assert!(is_refused(&other, 400, "bad_request").contains("inequivalent arg 'durable'"));
    let wrong = r#"{"arguments":{"x-max-priority":256}}"#;
    let other = send(&server, Method::PUT, "/api/queues/%2F/c", wrong).await;
    assert!(is_refused(&other, 400, "bad_request").contains("max_value_exceeded"));
    let quorum = r#"{"arguments":{"x-queue-type":"quorum","x-delivery-limit":3}}"#;
    assert_eq!(put(&server, "/api/queues/%2F/c", quorum).await, 201);
    let one = server.get("/api/queues/%2F/c").await.json();
    assert_eq!((&one["type"], &one["delivery_limit"]), (&json!("quorum"), &json!(3)));
    assert_eq!(one["message_stats"], json!({}));
    assert_eq!(server.get("/api/queues//").await.json().as_array().map(Vec::len), Some(2));
    let page = server
        .get("/api/queues/%2F?page=1&use_regex=true&pagination=false&name=^A&page_size=1")
        .await;
    let page = page.json();
    assert_eq!(
        (&page["total_count"], &page["filtered_count"], &page["page_count"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(page["items"][0]["name"], "a/b");
    let columns = server
        .get("/api/queues?columns=name,arguments.x-queue-type&sort=name&sort_reverse=true")
        .await;
    let expected = json!([
        {"name": "c", "arguments": {"x-queue-type": "quorum"}},
        {"name": "a/b", "arguments": {"x-queue-type": "classic"}},
    ]);
    assert_eq!(columns.json(), expected);
    for page in ["2", "18446744073709551615"] {
        let answer = server.get(&format!("/api/queues?page={page}")).await;
        is_refused(&answer, 400, "page_out_of_range");
        let sorted = server.get(&format!("/api/queues?page={page}&sort=name")).await;
        is_refused(&sorted, 400, "page_out_of_range");
    }
    is_refused(&server.get("/api/queues/nothing").await, 404, "Object Not Found");
    let body = r#"{"exclusive":true}"#;
    is_refused(&send(&server, Method::PUT, "/api/queues/%2F/d", body).await, 400, "bad_request");
    is_refused(&send(&server, Method::PUT, "/api/queues/%2F/d", "[").await, 400, "not_json");
    assert_eq!(
        send(&server, Method::DELETE, "/api/queues/%2F/c?if-empty=true", "").await.status,
        204
    );
    is_refused(&send(&server, Method::DELETE, "/api/queues/%2F/c", "").await, 404, "not_found");
}

#[tokio::test]
async fn messages_are_published_through_an_exchange_and_fetched() {
    let (server, _broker) = open_node().await;
    assert_eq!(put(&server, "/api/exchanges/%2F/x", r#"{"type":"topic"}"#).await, 201);
    assert_eq!(put(&server, "/api/queues/%2F/q", "").await, 201);
    let bind = r#"{"routing_key":"a.#","arguments":{"n":1}}"#;
    let bound = send(&server, Method::POST, "/api/bindings/%2F/e/x/q/q", bind).await;
    assert_eq!(bound.status, 201);
    let location = bound.header("location").to_owned();
    // Relative, and escaped once more than the key itself.
    let path = format!("/api/bindings/%2F/e/x/q/{location}");
    let key = server.get(&path).await.json()["properties_key"].as_str().map(str::to_owned);
    let key = key.expect("a key");
    assert!(location.starts_with("q/") && key.starts_with("a.%23~"), "{location} {key}");
    assert_eq!(location, format!("q/{}", key.replace('%', "%25").replace('~', "%7E")));
    assert_eq!(server.get(&path).await.json()["routing_key"], "a.#");
    let message = |key: &str| {
        json!({
            "routing_key": key, "payload": "aGk=", "payload_encoding": "base64",
            "properties": {"content_type": "text/plain", "headers": {"n": 7}, "priority": 1},
        })
        .to_string()
    };
    let publish = "/api/exchanges/%2F/x/publish";
    let sent = send(&server, Method::POST, publish, &message("a.b")).await;
    assert_eq!(sent.json(), json!({"routed": true}));
    let lost = send(&server, Method::POST, publish, &message("b")).await;
    assert_eq!(lost.json(), json!({"routed": false}));
    for _ in 0..2 {
        let look = r#"{"count":5,"ackmode":"ack_requeue_true","encoding":"auto"}"#;
        let got = send(&server, Method::POST, "/api/queues/%2F/q/get", look).await.json();
        let row = &got[0];
        assert_eq!((&row["payload"], &row["payload_encoding"]), (&json!("hi"), &json!("string")));
        assert_eq!((&row["redelivered"], &row["message_count"]), (&json!(false), &json!(0)));
        assert_eq!((&row["exchange"], &row["routing_key"]), (&json!("x"), &json!("a.b")));
        assert_eq!(row["properties"]["headers"], json!({"n": 7}));
    }
    let back = r#"{"count":5,"ackmode":"reject_requeue_true","encoding":"base64","truncate":1}"#;
    let got = send(&server, Method::POST, "/api/queues/%2F/q/get", back).await.json();
    assert_eq!((&got[0]["payload"], &got[0]["payload_bytes"]), (&json!("aA=="), &json!(2)));
    let take = r#"{"count":5,"ackmode":"ack_requeue_false","encoding":"auto"}"#;
    let got = send(&server, Method::POST, "/api/queues/%2F/q/get", take).await.json();
    assert_eq!(got[0]["redelivered"], json!(true));
    let queue = server.get("/api/queues/%2F/q").await.json();
    assert_eq!((&queue["messages"], &queue["message_stats"]["publish"]), (&json!(0), &json!(1)));
    for wrong in [
        r#"{"count":0,"ackmode":"ack_requeue_true","encoding":"auto"}"#,
        r#"{"count":1,"ackmode":"perhaps","encoding":"auto"}"#,
        r#"{"count":1,"ackmode":"ack_requeue_true"}"#,
    ] {
        let answer = send(&server, Method::POST, "/api/queues/%2F/q/get", wrong).await;
        is_refused(&answer, 400, "bad_request");
    }
    let unknown = r#"{"routing_key":"q","payload":"","payload_encoding":"string","properties":{"colour":"red"}}"#;
    let answer =
        send(&server, Method::POST, "/api/exchanges/%2F/amq.default/publish", unknown).await;
    assert!(is_refused(&answer, 400, "bad_request").contains("colour"));
    let plain = r#"{"routing_key":"q","payload":"1","payload_encoding":"string","properties":{}}"#;
    let sent = send(&server, Method::POST, "/api/exchanges/%2F/amq.default/publish", plain).await;
    assert_eq!(sent.json(), json!({"routed": true}));
    assert_eq!(send(&server, Method::DELETE, "/api/queues/%2F/q/contents", "").await.status, 204);
    assert_eq!(server.get("/api/queues/%2F/q").await.json()["messages"], 0);
    assert_eq!(send(&server, Method::DELETE, &path, "").await.status, 204);
    is_refused(&server.get(&path).await, 404, "Object Not Found");
    assert_eq!(
        send(&server, Method::DELETE, "/api/exchanges/%2F/x?if-unused=true", "").await.status,
        204
    );
}

#[tokio::test]
async fn user_needs_a_tag_and_then_has_its_permissions() {
    let (server, _broker, users) = safe_node().await;
    let root = |method: Method, path: &'static str, body: &'static str| {
        let server = &server;
        async move {
            let said = basic("root", "toor");
            let mut sender = connect(server.address).await;
            ask(&mut sender, request(method, path, &[("authorization", &said)], body)).await
        }
    };
    let made = root(Method::PUT, "/api/users/app", r#"{"password":"secret","tags":""}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    let refused = send_as(&server, "app", Method::GET, "/api/whoami", "").await;
    assert_eq!(is_refused(&refused, 401, "not_authorised"), "Not management user");
    let unknown = server.get("/api/whoami").await;
    is_refused(&unknown, 401, "not_authorised");
    assert!(unknown.header("www-authenticate").starts_with("Basic realm="));
    let set = root(Method::PUT, "/api/users/app", r#"{"password":"secret","tags":["management"]}"#);
    assert_eq!(set.await.status, 204);
    let who = send_as(&server, "app", Method::GET, "/api/whoami", "").await.json();
    assert_eq!(who["tags"], json!(["management"]));
    let queue = "/api/queues/%2F/mine";
    is_refused(&send_as(&server, "app", Method::PUT, queue, "").await, 401, "not_authorised");
    let allowed = r#"{"configure":"^mine","write":"","read":"^mine"}"#;
    assert_eq!(root(Method::PUT, "/api/permissions/%2F/app", allowed).await.status, 201);
    assert_eq!(send_as(&server, "app", Method::PUT, queue, "").await.status, 201);
    let other = send_as(&server, "app", Method::PUT, "/api/queues/%2F/other", "").await;
    assert!(is_refused(&other, 401, "not_authorised").contains("configure access"));
    assert_eq!(root(Method::PUT, "/api/queues/%2F/other", "").await.status, 201);
    let seen = send_as(&server, "app", Method::GET, "/api/queues", "").await.json();
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "{seen}");
    is_refused(
        &send_as(&server, "app", Method::GET, "/api/users", "").await,
        401,
        "not_authorised",
    );
    let listed = root(Method::GET, "/api/users/app", "").await.json();
    assert_eq!((&listed["password_hash"], &listed["tags"]), (&json!(""), &json!(["management"])));
    assert_eq!(root(Method::DELETE, "/api/permissions/%2F/app", "").await.status, 204);
    let deleted =
        root(Method::POST, "/api/users/bulk-delete", r#"{"users":["app","nobody"]}"#).await;
    assert_eq!(deleted.status, 204);
    assert!(!users.exists("app"));
    is_refused(&root(Method::DELETE, "/api/users/root", "").await, 400, "bad_request");
}

/// Every endpoint that requires more than a tag rejects a user with nothing else.
#[tokio::test]
async fn user_with_a_tag_alone_is_rejected_by_all_other_endpoints() {
    let (server, _broker, users) = safe_node().await;
    let hash = passwords::hash_password("secret").expect("a hash");
    users.add("nobody", hash).await.expect("is made");
    let paths = gateway_http::management_endpoints();
    assert!(paths.len() > 80);
    for tag in [None, Some("management")] {
        let tags = tag.map(str::to_owned).into_iter().collect();
        users.set_tags("nobody", access::Tags::new(tags).expect("tags")).await.expect("are set");
        for (method, path, for_any_tag) in &paths {
            let path = path.replace("{vhost}", "%2F").replace(['{', '}'], "");
            let method: Method = method.parse().expect("a method");
            let answer =
                send_as(&server, "nobody", method.clone(), &format!("/api{path}"), "{}").await;
            match tag.is_some() && *for_any_tag {
                true => assert_ne!(answer.status, 401, "{method} {path}"),
                false => drop(is_refused(&answer, 401, "not_authorised")),
            }
        }
    }
}

#[tokio::test]
async fn virtual_hosts_policies_and_limits_are_set() {
    let (server, _broker) = open_node().await;
    assert_eq!(put(&server, "/api/vhosts/prod", "").await, 201);
    let said = r#"{"default_queue_type":"quorum","description":"of the shop","tags":"a, b"}"#;
    assert_eq!(put(&server, "/api/vhosts/prod", said).await, 204);
    let prod = server.get("/api/vhosts/prod").await.json();
    assert_eq!(
        (&prod["description"], &prod["metadata"]["tags"], &prod["default_queue_type"]),
        (&json!("of the shop"), &json!(["a", "b"]), &json!("quorum"))
    );
    assert_eq!(put(&server, "/api/queues/prod/default", "").await, 201);
    assert_eq!(put(&server, "/api/queues/prod/passing", r#"{"auto_delete":true}"#).await, 201);
    for (queue, kind) in [("default", "quorum"), ("passing", "classic")] {
        let queue = server.get(&format!("/api/queues/prod/{queue}")).await.json();
        assert_eq!(queue["type"], kind, "{queue}");
    }
    // Absent metadata are cleared, except for the queue type.
    assert_eq!(put(&server, "/api/vhosts/prod", "").await, 204);
    let prod = server.get("/api/vhosts/prod").await.json();
    assert_eq!((&prod["description"], &prod["default_queue_type"]), (&json!(""), &json!("quorum")));
    for wrong in [r#"{"default_queue_type":"mirrored"}"#, r#"{"tags":[""]}"#] {
        let answer = send(&server, Method::PUT, "/api/vhosts/prod", wrong).await;
        is_refused(&answer, 400, "bad_request");
    }
    let protection = "/api/vhosts/prod/deletion/protection";
    assert_eq!(send(&server, Method::POST, protection, "").await.status, 204);
    let kept = send(&server, Method::DELETE, "/api/vhosts/prod", "").await;
    assert!(is_refused(&kept, 412, "precondition_failed").contains("protected"));
    let back = server.get("/api/definitions").await.json();
    assert_eq!(back["vhosts"][1]["metadata"]["protected_from_deletion"], true, "{back}");
    assert_eq!(send(&server, Method::DELETE, protection, "").await.status, 204);
    let classic = r#"{"default_queue_type":"classic"}"#;
    assert_eq!(put(&server, "/api/vhosts/prod", classic).await, 204);
    let traced = send(&server, Method::PUT, "/api/vhosts/x", r#"{"tracing":true}"#).await;
    assert!(is_refused(&traced, 400, "bad_request").contains("tracing"));
    let policy =
        r#"{"pattern":"^q","definition":{"max-length":5},"apply-to":"queues","priority":1}"#;
    assert_eq!(put(&server, "/api/policies/prod/short", policy).await, 201);
    assert_eq!(put(&server, "/api/policies/prod/short", policy).await, 204);
    assert_eq!(put(&server, "/api/queues/prod/q", "").await, 201);
    let queue = server.get("/api/queues/prod/q").await.json();
    assert_eq!(
        (&queue["policy"], &queue["effective_policy_definition"]),
        (&json!("short"), &json!({"max-length": 5}))
    );
    let listed = server.get("/api/policies/prod").await.json();
    assert_eq!(listed[0]["apply-to"], "queues");
    let wrong = r#"{"pattern":"^q","definition":{"colour":1}}"#;
    is_refused(
        &send(&server, Method::PUT, "/api/policies/prod/x", wrong).await,
        400,
        "bad_request",
    );
    assert_eq!(put(&server, "/api/vhost-limits/prod/max-queues", r#"{"value":1}"#).await, 204);
    let limits = json!([{"vhost": "prod", "value": {"max-queues": 1}}]);
    assert_eq!(server.get("/api/vhost-limits").await.json(), limits);
    assert_eq!(server.get("/api/vhost-limits/prod").await.json(), limits);
    assert_eq!(server.get("/api/vhost-limits/%2F").await.json(), json!([]));
    let full = send(&server, Method::PUT, "/api/queues/prod/another", "").await;
    assert!(is_refused(&full, 400, "bad_request").contains("queue limit in vhost 'prod' (1)"));
    let user = "root";
    let of_user = |limit: &str| format!("/api/user-limits/{user}/{limit}");
    for (path, body) in [
        ("/api/vhost-limits/prod/max-channels", r#"{"value":1}"#),
        ("/api/vhost-limits/prod/max-queues", r#"{}"#),
        ("/api/vhost-limits/prod/max-queues", r#"{"value":-2}"#),
        (&of_user("max-queues"), r#"{"value":1}"#),
    ] {
        is_refused(&send(&server, Method::PUT, path, body).await, 400, "bad_request");
    }
    let nobody = send(&server, Method::PUT, "/api/user-limits/no/max-channels", "{}").await;
    is_refused(&nobody, 404, "Object Not Found");
    assert_eq!(put(&server, &of_user("max-channels"), r#"{"value":9}"#).await, 204);
    let user = server.get("/api/users/root").await.json();
    assert_eq!(user["limits"], json!({"max-channels": 9}));
    let path = of_user("max-channels");
    let cleared = || send(&server, Method::DELETE, &path, "");
    for _ in 0..2 {
        assert_eq!(cleared().await.status, 204, "a limit that is not set is no error");
    }
    assert_eq!(server.get("/api/user-limits").await.json(), json!([]));
    assert_eq!(send(&server, Method::DELETE, "/api/policies/prod/short", "").await.status, 204);
    assert_eq!(send(&server, Method::DELETE, "/api/vhosts/prod", "").await.status, 204);
    is_refused(&server.get("/api/queues/prod").await, 404, "Object Not Found");
    assert_eq!(server.get("/api/vhost-limits").await.json(), json!([]));
    is_refused(&send(&server, Method::DELETE, "/api/vhosts/%2F", "").await, 400, "bad_request");
}

fn definitions() -> Value {
    json!({
        "rabbit_version": "4.2.0",
        "users": [{
            "name": "app", "tags": ["management"], "limits": {},
            // "Credentials and Passwords" of RabbitMQ's documentation: test12.
            "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
        }],
        "vhosts": [{"name": "/"}, {"name": "prod", "metadata": {"description": "", "tags": []}}],
        "permissions": [{"user": "app", "vhost": "prod", "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [], "parameters": [],
        "global_parameters": [{"name": "cluster_name", "value": "rabbit@x"}],
        "policies": [{
            "vhost": "prod", "name": "p", "pattern": "^q", "apply-to": "queues",
            "definition": {"max-length": 5}, "priority": 0,
        }],
        "queues": [{
            "name": "q", "vhost": "prod", "durable": true, "auto_delete": false,
            "arguments": {"x-queue-type": "quorum"},
        }],
        "exchanges": [{
            "name": "x", "vhost": "prod", "type": "headers", "durable": true, "auto_delete": false,
            "internal": false, "arguments": {},
        }],
        "bindings": [{
            "source": "x", "vhost": "prod", "destination": "q", "destination_type": "queue",
            "routing_key": "k", "arguments": {"x-match": "any", "n": 1},
        }],
    })
}

#[tokio::test]
async fn definitions_round_trip_through_import_and_export() {
    let (server, _broker) = open_node().await;
    let file = definitions();
    let dry = send(&server, Method::POST, "/api/definitions?dry_run=true", &file.to_string()).await;
    assert_eq!(dry.status, 204, "{dry:?}");
    is_refused(&server.get("/api/vhosts/prod").await, 404, "Object Not Found");
    for _ in 0..2 {
        let done = send(&server, Method::POST, "/api/definitions", &file.to_string()).await;
        assert_eq!(done.status, 204, "{done:?}");
        let out = server.get("/api/definitions").await.json();
        for section in ["queues", "exchanges", "bindings", "policies"] {
            assert_eq!(out[section], file[section], "{section}");
        }
        let user =
            out["users"].as_array().and_then(|all| all.iter().find(|it| it["name"] == "app"));
        assert_eq!(user, Some(&file["users"][0]));
        assert!(
            out["permissions"].as_array().is_some_and(|all| all.contains(&file["permissions"][0]))
        );
    }
    let as_app = server.get_as("/api/whoami", "app", "test12").await;
    assert_eq!(as_app.json()["name"], "app");
    let of_one = server.get("/api/definitions/prod").await.json();
    assert_eq!((&of_one["queues"][0]["name"], of_one.get("users")), (&json!("q"), None));
    let mut wrong = file.clone();
    wrong["parameters"] = json!([{"component": "shovel", "vhost": "/", "name": "s", "value": {}}]);
    wrong["vhosts"] = json!([{"name": "never"}]);
    let refused = send(&server, Method::POST, "/api/definitions", &wrong.to_string()).await;
    assert!(is_refused(&refused, 400, "bad_request").contains("shovel"));
    is_refused(&server.get("/api/vhosts/never").await, 404, "Object Not Found");
}

#[tokio::test]
async fn first_import_declares_queues_in_the_virtual_hosts_that_it_creates() {
    let (server, _broker, users) = safe_node().await;
    users.add("admin", hash_password("secret").expect("a hash")).await.expect("is made");
    users.set_tags("admin", Tags::administrator()).await.expect("are set");
    let file = definitions().to_string();
    let done = send_as(&server, "admin", Method::POST, "/api/definitions", &file).await;
    assert_eq!(done.status, 204, "{done:?}");
    // The import needs no permissions in the virtual host, other requests do.
    users.deny("admin", "prod").await.expect("is removed");
    let again = send_as(&server, "admin", Method::POST, "/api/definitions", &file).await;
    assert_eq!(again.status, 204, "{again:?}");
    let refused = send_as(&server, "admin", Method::PUT, "/api/queues/prod/more", "").await;
    is_refused(&refused, 401, "not_authorised");
}

#[tokio::test]
async fn nodes_features_and_health_follow_rabbitmq() {
    let (server, _broker) = open_node().await;
    let node = &server.get("/api/nodes").await.json()[0];
    assert!(node["processors"].as_u64() >= Some(1), "{node}");
    assert!(
        node["enabled_plugins"].as_array().expect("a list").contains(&json!("rabbitmq_management"))
    );
    let name = node["name"].as_str().expect("a name");
    for path in ["/api/healthchecks/node".to_owned(), format!("/api/healthchecks/node/{name}")] {
        assert_eq!(server.get(&path).await.json(), json!({"status": "ok"}), "{path}");
    }
    is_refused(&server.get("/api/healthchecks/node/other").await, 404, "Object Not Found");
    let memory = server.get(&format!("/api/nodes/{name}/memory/relative")).await.json();
    assert_eq!(memory, json!({"memory": "not_available"}));
    let features = server.get("/api/deprecated-features").await.json();
    assert!(features.as_array().expect("a list").iter().any(|it| it["name"] == "ram_node_type"));
    let used = "/api/deprecated-features/used";
    assert_eq!(server.get(used).await.json(), json!([]));
    assert_eq!(put(&server, "/api/queues/%2F/t", r#"{"durable":false}"#).await, 201);
    let in_use = &server.get(used).await.json()[0];
    assert_eq!(
        (&in_use["name"], &in_use["deprecation_phase"]),
        (&json!("transient_nonexcl_queues"), &json!("permitted_by_default"))
    );
    let globals = server.get("/api/global-parameters").await.json();
    assert_eq!(globals[0]["name"], "cluster_name");
    let one = server.get("/api/global-parameters/cluster_name").await.json();
    assert_eq!(one["value"], server.get("/api/cluster-name").await.json()["name"]);
    is_refused(&server.get("/api/global-parameters/x").await, 404, "Object Not Found");
    for flag in server.get("/api/feature-flags").await.json().as_array().expect("a list") {
        let path = format!("/api/feature-flags/{}/enable", flag["name"].as_str().expect("a name"));
        assert_eq!(put(&server, &path, "").await, 204, "{flag}");
    }
    // An unknown queue or exchange has no bindings.
    for path in ["queues/%2F/no/bindings", "exchanges/%2F/no/bindings/source"] {
        assert_eq!(server.get(&format!("/api/{path}")).await.json(), json!([]), "{path}");
    }
    let lengths = "/api/queues/%2F/t?lengths_age=60&lengths_incr=5";
    let lengths = server.get(lengths).await.json()["messages_details"].clone();
    assert_eq!((&lengths["rate"], &lengths["samples"][0]["sample"]), (&json!(0.0), &json!(0)));
}

#[tokio::test]
async fn connections_are_listed_and_closed() {
    let (server, _broker) = open_node().await;
    // The client's own connection is not listed.
    assert_eq!(server.get("/api/connections").await.json(), json!([]));
    is_refused(
        &send(&server, Method::DELETE, "/api/connections/nobody", "").await,
        404,
        "Object Not Found",
    );
}
