//! Isolation of tenants: a user with all rights in vhost `/` requests every path of `/v1`, of RabbitMQ's API and of
//! the metrics about a queue of vhost `shop`. The queue must not be visible, changed or counted.

use access::{Tags, Users};
use access_rules::Permissions;
use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use axum::http::Method;
use passwords::hash_password;
use serde_json::{Value, json};

use crate::harness::{ReceivedResponse, Server, ask, basic, connect, request, safe_node};
use crate::rights::{KNOWN, Takes, body};

/// Topic of queue `secretq` of vhost `shop`.
const FOREIGN: &str = "amqp.shop.secretq";

async fn send(
    server: &Server,
    user: &str,
    method: Method,
    path: &str,
    body: Value,
) -> ReceivedResponse {
    let said = match user {
        "root" => basic("root", "toor"),
        user => basic(user, "secret"),
    };
    let headers = [("authorization", &*said), ("content-type", "application/json")];
    let mut sender = connect(server.address).await;
    ask(&mut sender, request(method, path, &headers, body.to_string())).await
}

async fn as_root(server: &Server, method: Method, path: &str, body: Value) -> Value {
    let answer = send(server, "root", method, path, body).await;
    assert!(answer.status.is_success(), "{path} {answer:?}");
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

/// A node with the queue, which has three messages and a group, and with the tenant `slash`.
async fn with_queue() -> (Server, Users) {
    let (server, _broker, users) = safe_node().await;
    as_root(&server, Method::PUT, "/api/vhosts/shop", json!({})).await;
    as_root(&server, Method::PUT, "/api/queues/shop/secretq", json!({})).await;
    for number in 0..3 {
        let message = json!({"properties": {}, "routing_key": "secretq",
            "payload": format!("SECRET {number}"), "payload_encoding": "string"});
        let path = "/api/exchanges/shop/amq.default/publish";
        as_root(&server, Method::POST, path, message).await;
    }
    as_root(&server, Method::PUT, &format!("/v1/topics/{FOREIGN}/groups/sg"), json!({})).await;
    users.add("slash", hash_password("secret").expect("a hash")).await.expect("is made");
    users.allow("slash", "/", Permissions::everything()).await.expect("is allowed");
    (server, users)
}

/// State of the queue, for comparison.
async fn state(server: &Server) -> String {
    let topic = as_root(server, Method::GET, &format!("/v1/topics/{FOREIGN}"), json!({})).await;
    let path = format!("/v1/topics/{FOREIGN}/groups");
    let groups = as_root(server, Method::GET, &path, json!({})).await;
    // The other fields change over time.
    let fields = ["group", "depth", "ready", "leased", "published", "settled", "paused"];
    let groups = groups["items"].as_array().expect("groups").iter();
    let groups: Vec<_> = groups.map(|group| fields.map(|field| group[field].clone())).collect();
    let path = format!("/v1/topics/{FOREIGN}/partitions/0/records?from=earliest");
    let records = as_root(server, Method::GET, &path, json!({})).await;
    let queue = as_root(server, Method::GET, "/api/queues/shop/secretq", json!({})).await;
    let queue = ["messages", "messages_ready", "messages_unacknowledged", "arguments"]
        .map(|field| queue[field].clone());
    format!("{topic} {groups:?} {records} {queue:?}")
}

/// Requests every path of `/v1`.
async fn walk_v1(server: &Server) {
    for (route, takes) in KNOWN.iter().filter(|(_, takes)| *takes != Takes::Nothing) {
        let (method, path) = route.split_once(' ').expect("two words");
        let is_of_topic = path.contains("{topic}");
        let path = path.replace("{topic}", FOREIGN).replace("{group}", "sg").replace("{user}", "u");
        let numbers = ["{partition}", "{offset}", "{node}", "{connection}"];
        let path = numbers.iter().fold(path, |path, name| path.replace(name, "0"));
        let path = if path == "/v1/trace" { path + "?header=none&value=x" } else { path };
        let method: Method = method.to_uppercase().parse().expect("a method");
        let body = match *route {
            "post /v1/topics" => json!({"name": "amqp.shop.another"}),
            "post /v1/groups/{group}/seek" => {
                json!({"offsets": [{"topic": FOREIGN, "partition": 0, "offset": 0}]})
            }
            "post /v1/transactions" => {
                json!({"appends": [{"topic": FOREIGN, "records": [{"value": "x"}]}]})
            }
            route => body(route),
        };
        let answer = send(server, "slash", method, &path, body).await;
        let shown = String::from_utf8_lossy(&answer.body);
        assert!(!shown.contains("SECRET"), "{route} {shown}");
        let is_of_shop = is_of_topic || *route == "post /v1/topics";
        match takes {
            Takes::Right if is_of_shop => drop(answer.is_problem(403, "not-allowed")),
            Takes::Right => {
                let status = answer.status.as_u16();
                assert!([403, 404].contains(&status), "{route} {answer:?}");
            }
            _ => {
                assert_eq!(answer.status, 200, "{route}");
                assert!(!shown.contains("secretq") && !shown.contains("\"sg\""), "{route} {shown}");
            }
        }
    }
    let detailed = "/metrics/detailed?family=topic,partition,lease_group,group";
    for (path, status) in [("/metrics", 403), (detailed, 200)] {
        let answer = send(server, "slash", Method::GET, path, json!({})).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("secretq"), "{path}");
    }
}

/// Requests every endpoint of RabbitMQ's API.
async fn walk_api(server: &Server) {
    for (method, path, _) in gateway_http::management_endpoints() {
        let method: Method = method.parse().expect("a method");
        let is_of_vhost = path.contains("{vhost}");
        let of = async |vhost: &str, name: &str| {
            let path = path.replace("{vhost}", vhost).replace("{name}", name);
            let path = format!("/api{}", path.replace(['{', '}'], ""));
            let answer = send(server, "slash", method.clone(), &path, json!({})).await;
            (answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned())
        };
        if is_of_vhost {
            // The responses do not reveal whether there is such a virtual host.
            let answer = of("shop", "secretq").await;
            assert_eq!(answer.0, 401, "{method} {path} {answer:?}");
            assert_eq!(of("none", "secretq").await, answer, "{method} {path}");
        } else {
            let (_, shown) = of("", "x").await;
            assert!(!shown.contains("secretq") && !shown.contains("shop"), "{path} {shown}");
        }
    }
    for path in [
        "/api/queues",
        "/api/exchanges",
        "/api/bindings",
        "/api/vhosts",
        "/api/connections",
        "/api/channels",
        "/api/consumers",
        "/api/overview",
    ] {
        let answer = send(server, "slash", Method::GET, path, json!({})).await;
        assert_eq!(answer.status, 200, "{path}");
        let shown = String::from_utf8_lossy(&answer.body);
        assert!(!shown.contains("secretq") && !shown.contains("shop"), "{path} {shown}");
    }
    let overview = send(server, "slash", Method::GET, "/api/overview", json!({})).await.json();
    assert_eq!(overview["object_totals"]["queues"], 0);
    assert_eq!(overview["object_totals"]["exchanges"], 7);
    assert_eq!(overview["queue_totals"]["messages"], 0);
}

#[tokio::test]
async fn tenant_of_the_default_vhost_cannot_reach_another_vhost() {
    let (server, users) = with_queue().await;
    users
        .set_tags("slash", Tags::new(vec!["management".to_owned()]).expect("tags"))
        .await
        .expect("is tagged");
    let before = state(&server).await;
    walk_v1(&server).await;
    walk_api(&server).await;
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn rule_for_all_topics_does_not_reach_another_vhost() {
    let (server, users) = with_queue().await;
    users.deny("slash", "/").await.expect("is denied");
    for resource in [Resource::Topic, Resource::Group] {
        let rule = Rule {
            resource,
            pattern: Pattern::Literal,
            name: "*".into(),
            principal: "User:slash".into(),
            host: "*".into(),
            action: Action::Any,
            verdict: Verdict::Allow,
        };
        users.add_rules(vec![rule]).await.expect("is added");
    }
    let before = state(&server).await;
    walk_v1(&server).await;
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn tenant_of_the_vhost_reaches_its_own_queue() {
    let (server, users) = with_queue().await;
    users.deny("slash", "/").await.expect("is denied");
    users.allow("slash", "shop", Permissions::everything()).await.expect("is allowed");
    let path = format!("/v1/topics/{FOREIGN}/partitions/0/records?from=earliest");
    let answer = send(&server, "slash", Method::GET, &path, json!({})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("SECRET 2"));
    let topics = send(&server, "slash", Method::GET, "/v1/topics", json!({})).await.json();
    assert_eq!(topics["items"].as_array().map(Vec::len), Some(1), "{topics}");
    let path = format!("/v1/topics/{FOREIGN}/groups/main/seek");
    let seek = json!({"to": "latest"});
    assert_eq!(send(&server, "slash", Method::POST, &path, seek).await.status, 200);
}
