//! Common headers of all responses, and requests that are rejected for every client.

use axum::http::Method;

use crate::harness::{ask, connect, get, open_node, request, safe_node};

/// Responses of all kinds: from a route, without a route, rejected by a layer, and an error.
const PATHS: [&str; 6] =
    ["/health/live", "/health/ready", "/metrics", "/nothing/here", "/problems/starting", "/v1"];

#[tokio::test]
async fn every_response_has_security_headers() {
    let (open, _broker) = open_node().await;
    let (safe, _other, _users) = safe_node().await;
    for (address, metrics) in [(open.address, open.metrics), (safe.address, safe.metrics)] {
        for (path, at) in PATHS.iter().flat_map(|path| [(path, address), (path, metrics)]) {
            for method in [Method::GET, Method::HEAD, Method::POST, Method::DELETE] {
                let asked = request(method.clone(), path, &[], "");
                let answer = ask(&mut connect(at).await, asked).await;
                let policy = answer.header("content-security-policy");
                assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
                assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
                for (name, value) in [
                    ("x-content-type-options", "nosniff"),
                    ("referrer-policy", "no-referrer"),
                    ("cross-origin-opener-policy", "same-origin"),
                    ("cross-origin-resource-policy", "same-origin"),
                    ("cache-control", "no-store"),
                ] {
                    assert_eq!(answer.header(name), value, "{method} {path}");
                }
                assert!(!answer.headers.contains_key("strict-transport-security"));
                assert!(!answer.headers.contains_key("access-control-allow-origin"));
                if method == Method::HEAD {
                    assert!(answer.body.is_empty(), "{path}");
                }
            }
        }
    }
}

#[tokio::test]
async fn request_id_is_new_or_the_clients() {
    let (server, _broker) = open_node().await;
    let first = server.get("/health/live").await.header("x-request-id").to_owned();
    let second = server.get("/health/live").await.header("x-request-id").to_owned();
    assert_ne!(first, second);
    let named = get(server.address, "/nothing", &[("x-request-id", "mine-1")]).await;
    assert_eq!(named.is_problem(404, "no-such-path")["instance"], "mine-1");
    let wrong = get(server.address, "/nothing", &[("x-request-id", "<b>")]).await;
    assert_ne!(wrong.is_problem(404, "no-such-path")["instance"], "<b>");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let (server, _broker) = open_node().await;
    for path in
        ["/index.html", "/console", "/metric", "/metrics/", "/HEALTH/live", "/health", "/v0"]
    {
        server.get(path).await.is_problem(404, "no-such-path");
    }
    let mut client = connect(server.address).await;
    let refused = ask(&mut client, request(Method::POST, "/health/live", &[], "")).await;
    refused.is_problem(405, "method-not-allowed");
    assert_eq!(refused.header("allow"), "GET,HEAD");
    // Each kind of problem has a page with advice.
    let page = server.get("/problems/wrong-host").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("421") && page.text().contains("http-host"), "{page:?}");
    server.get("/problems/none-such").await.is_problem(404, "no-such-path");
}

#[tokio::test]
async fn cross_site_requests_cannot_change_anything() {
    let (server, _broker) = open_node().await;
    let post = |headers: &'static [(&'static str, &'static str)]| {
        let address = server.address;
        async move {
            ask(&mut connect(address).await, request(Method::POST, "/health/live", headers, ""))
                .await
        }
    };
    for refused in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        // Another port of this machine is another site.
        &[("host", "127.0.0.1:15672"), ("origin", "http://127.0.0.1:8080")],
    ] {
        post(refused).await.is_problem(403, "cross-site");
    }
    // These come from the node's own pages or from other clients, and reach the route, which has no POST.
    for passed in [
        &[("sec-fetch-site", "same-origin")][..],
        &[("sec-fetch-site", "none")],
        &[("host", "127.0.0.1:15672"), ("origin", "http://127.0.0.1:15672")],
        &[],
    ] {
        post(passed).await.is_problem(405, "method-not-allowed");
    }
    // Reads are allowed.
    let looked = get(server.address, "/health/live", &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(looked.status, 200);
}
