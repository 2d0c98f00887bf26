//! The console's files, as browsers request them.

use std::io::Read;

use axum::http::Method;

use crate::harness::{ask, connect, get, open_node, request, safe_node};

const FILES: [&str; 4] = ["/", "/console/app.js", "/console/app.css", "/console/icon.svg"];

#[tokio::test]
async fn files_are_public_and_revalidated_by_etag() {
    let (server, _broker, _users) = safe_node().await;
    for path in FILES {
        let whole = server.get(path).await;
        assert_eq!((whole.status.as_u16(), whole.header("cache-control")), (200, "no-cache"));
        assert!(!whole.headers.contains_key("content-encoding"));
        let tag = whole.header("etag").to_owned();
        let policy = whole.header("content-security-policy");
        assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
        for known in [tag.clone(), format!("\"x\", W/{tag}"), "*".to_owned()] {
            let same = get(server.address, path, &[("if-none-match", &known)]).await;
            assert_eq!((same.status.as_u16(), same.body.len()), (304, 0), "{path}");
            assert_eq!(same.header("etag"), tag);
            assert_eq!(same.header("cache-control"), "no-cache");
        }
        let other = get(server.address, path, &[("if-none-match", "\"x\"")]).await;
        assert_eq!(other.status, 200, "{path}");
        let packed = get(server.address, path, &[("accept-encoding", "br, gzip")]).await;
        if packed.headers.contains_key("content-encoding") {
            let mut text = Vec::new();
            let read = flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut text);
            assert!(read.is_ok() && text == whole.body, "{path}");
            assert!(packed.body.len() < whole.body.len(), "{path}");
        }
    }
}

#[tokio::test]
async fn only_existing_console_files_are_served_and_only_by_get() {
    let (server, _broker) = open_node().await;
    for path in ["/console/", "/console/../Cargo.toml", "/console/%2e%2e/x", "/console/app.js/"] {
        server.get(path).await.is_problem(404, "no-such-path");
    }
    let asked = request(Method::POST, "/", &[], "");
    ask(&mut connect(server.address).await, asked).await.is_problem(405, "method-not-allowed");
}

/// The browser's own dialog would cover the page's form.
#[tokio::test]
async fn console_requests_get_no_browser_log_in_prompt() {
    let (server, _broker, _users) = safe_node().await;
    let asked = get(server.address, "/v1/topics", &[("postroad-console", "1")]).await;
    asked.is_problem(401, "not-logged-in");
    assert!(!asked.headers.contains_key("www-authenticate"));
    assert!(server.get("/v1/topics").await.headers.contains_key("www-authenticate"));
}
