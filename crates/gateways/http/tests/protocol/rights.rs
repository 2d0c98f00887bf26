//! All paths of `/v1`, and the rights that they require.

use axum::http::Method;
use serde_json::json;

use crate::harness::{ask, basic, connect, open_node, request, safe_node};

/// Requirement of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Takes {
    /// Public: paths by which a browser logs in, or learns whether it must.
    Nothing,
    /// A log-in; lists show what the user may see.
    LogIn,
    /// A right, which a new user does not have.
    Right,
}

/// Every new path must be added here.
pub(crate) const KNOWN: &[(&str, Takes)] = &[
    ("get /v1/session", Takes::Nothing),
    ("post /v1/session", Takes::Nothing),
    ("delete /v1/session", Takes::Nothing),
    ("get /v1/version", Takes::LogIn),
    ("get /v1/whoami", Takes::LogIn),
    ("get /v1/topics", Takes::LogIn),
    ("get /v1/groups", Takes::LogIn),
    ("get /v1/lease-groups", Takes::LogIn),
    ("get /v1/dead-letters", Takes::LogIn),
    ("post /v1/topics", Takes::Right),
    ("get /v1/topics/{topic}", Takes::Right),
    ("delete /v1/topics/{topic}", Takes::Right),
    ("get /v1/topics/{topic}/config", Takes::Right),
    ("patch /v1/topics/{topic}/config", Takes::Right),
    ("post /v1/topics/{topic}/records", Takes::Right),
    ("post /v1/topics/{topic}/search", Takes::Right),
    ("get /v1/topics/{topic}/partitions/{partition}/records", Takes::Right),
    ("get /v1/topics/{topic}/partitions/{partition}/records/{offset}/where", Takes::Right),
    ("get /v1/topics/{topic}/partitions/{partition}/records/{offset}/history", Takes::Right),
    ("get /v1/trace", Takes::LogIn),
    ("get /v1/topics/{topic}/stream", Takes::Right),
    ("get /v1/topics/{topic}/dead-letters", Takes::Right),
    ("get /v1/topics/{topic}/dead-letters/records", Takes::Right),
    ("post /v1/topics/{topic}/dead-letters/redrive", Takes::Right),
    ("post /v1/topics/{topic}/dead-letters/delete", Takes::Right),
    ("get /v1/topics/{topic}/groups", Takes::Right),
    ("get /v1/topics/{topic}/groups/{group}", Takes::Right),
    ("put /v1/topics/{topic}/groups/{group}", Takes::Right),
    ("patch /v1/topics/{topic}/groups/{group}", Takes::Right),
    ("delete /v1/topics/{topic}/groups/{group}", Takes::Right),
    ("get /v1/topics/{topic}/groups/{group}/records", Takes::Right),
    ("get /v1/topics/{topic}/groups/{group}/scheduled", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/scheduled/cancel", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/remove", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/seek", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/purge", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/leases", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/settle", Takes::Right),
    ("post /v1/topics/{topic}/groups/{group}/extend", Takes::Right),
    ("patch /v1/topics/{topic}", Takes::Right),
    ("post /v1/transactions", Takes::Right),
    ("get /v1/groups/{group}", Takes::Right),
    ("delete /v1/groups/{group}", Takes::Right),
    ("get /v1/groups/{group}/members", Takes::Right),
    ("get /v1/groups/{group}/offsets", Takes::Right),
    ("get /v1/groups/{group}/lag", Takes::Right),
    ("post /v1/groups/{group}/seek", Takes::Right),
    ("get /v1/overview", Takes::Right),
    ("get /v1/cluster", Takes::Right),
    ("get /v1/shards", Takes::Right),
    ("patch /v1/nodes/{node}", Takes::Right),
    ("get /v1/topics/{topic}/moves", Takes::Right),
    ("post /v1/topics/{topic}/moves", Takes::Right),
    ("get /v1/connections", Takes::Right),
    ("delete /v1/connections/{connection}", Takes::Right),
    ("get /v1/users", Takes::Right),
    ("post /v1/users", Takes::Right),
    ("put /v1/users/{user}/password", Takes::Right),
    ("delete /v1/users/{user}", Takes::Right),
    ("get /v1/acls", Takes::Right),
    ("post /v1/acls", Takes::Right),
    ("post /v1/acls/delete", Takes::Right),
    ("get /v1/quotas", Takes::Right),
    ("post /v1/quotas", Takes::Right),
    ("get /v1/access", Takes::Right),
];

/// A valid body for a route, so that only the right is missing.
pub(crate) fn body(route: &str) -> serde_json::Value {
    let place = json!({"partition": 0, "offset": 0});
    match route.rsplit('/').next() {
        Some("settle") => json!({"settles": [{"token": "x", "action": "accept"}]}),
        Some("extend") => json!({"tokens": ["x"], "lease_ms": 1000}),
        Some("seek") if route.contains("/v1/groups/") => {
            json!({"offsets": [{"topic": "t", "partition": 0, "offset": 0}]})
        }
        Some("seek") => json!({"offsets": [place]}),
        Some("cancel" | "remove") => json!({"records": [place]}),
        Some("{group}") if route.starts_with("patch") => json!({"paused": true}),
        Some("config") => json!({"config": {}}),
        Some("transactions") => json!({"appends": [{"topic": "t", "records": [{}]}]}),
        Some("records") => json!({"records": [{}]}),
        Some("topics") => json!({"name": "t"}),
        Some("{node}") => json!({"standing": "drained"}),
        Some("moves") => json!({"partitions": [0], "to_shard": 1}),
        _ => json!({}),
    }
}

#[tokio::test]
async fn every_path_is_listed_and_requires_its_right() {
    let document = open_node().await.0.get("/v1/openapi.json").await.json();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            found.push(format!("{method} {path}"));
        }
    }
    let mut listed: Vec<&str> = KNOWN.iter().map(|(route, _)| *route).collect();
    found.sort();
    listed.sort_unstable();
    assert_eq!(found, listed);
    // A user without rights is rejected where one is required, and a client without log-in everywhere.
    let (server, _broker, users) = safe_node().await;
    users.add("app", passwords::hash_password("secret").expect("a hash")).await.expect("is made");
    let app = basic("app", "secret");
    for (route, takes) in KNOWN.iter().filter(|(_, takes)| *takes != Takes::Nothing) {
        let (method, path) = route.split_once(' ').expect("two words");
        let numbers = ["{partition}", "{offset}", "{node}", "{connection}"];
        let path = path.replace("{topic}", "t").replace("{group}", "g").replace("{user}", "u");
        let path = numbers.iter().fold(path, |path, name| path.replace(name, "0"));
        let path = if path == "/v1/trace" { path + "?key=k" } else { path };
        let method: Method = method.to_uppercase().parse().expect("a method");
        let body = body(route).to_string();
        let json = ("content-type", "application/json");
        let headers = [("authorization", &*app), json];
        let asked = request(method.clone(), &path, &headers, body.clone());
        let answer = ask(&mut connect(server.address).await, asked).await;
        match takes {
            Takes::Right => drop(answer.is_problem(403, "not-allowed")),
            _ => assert_eq!(answer.status, 200, "{route}"),
        }
        let nobody = request(method, &path, &[json], body);
        let answer = ask(&mut connect(server.address).await, nobody).await;
        answer.is_problem(401, "not-logged-in");
    }
}
