//! Browsers log in, and are identified by a cookie from then on.

use axum::http::Method;
use passwords::hash_password;
use serde_json::{Value, json};

use crate::harness::{ReceivedResponse, Server, ask, connect, get, open_node, request, safe_node};

async fn send(
    server: &Server,
    method: Method,
    path: &str,
    cookie: &str,
    body: Value,
) -> ReceivedResponse {
    let asked = request(method, path, &[("cookie", cookie)], body.to_string());
    ask(&mut connect(server.address).await, asked).await
}

async fn log_in(server: &Server, user: &str, password: &str) -> ReceivedResponse {
    let body = json!({"user": user, "password": password});
    send(server, Method::POST, "/v1/session", "", body).await
}

/// The cookie that a browser sends back.
fn cookie(answer: &ReceivedResponse) -> String {
    let set = answer.header("set-cookie");
    assert!(set.contains("; HttpOnly; SameSite=Strict") && set.contains("; Path=/"), "{set}");
    set.split(';').next().expect("a cookie").to_owned()
}

async fn user(server: &Server, cookie: &str) -> Value {
    let session = get(server.address, "/v1/session", &[("cookie", cookie)]).await;
    assert_eq!(session.status, 200, "{session:?}");
    session.json()["user"].clone()
}

#[tokio::test]
async fn session_cookie_identifies_the_user_until_log_out() {
    let (server, _broker, _users) = safe_node().await;
    let nobody = server.get("/v1/session").await.json();
    let expected = json!({"user": null, "everything": false, "required": true, "ends_ms": null});
    assert_eq!(nobody, expected);
    log_in(&server, "root", "wrong").await.is_problem(401, "not-logged-in");
    let answer = log_in(&server, "root", "toor").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["user"]), (200, &json!("root")));
    assert!(answer.json()["ends_ms"].is_i64() && !answer.text().contains("toor"));
    let first = cookie(&answer);
    let whoami = get(server.address, "/v1/whoami", &[("cookie", &first)]).await;
    assert_eq!(whoami.json(), json!({"user": "root", "everything": true}));
    // Another browser has its own session, and each ends separately.
    let second = cookie(&log_in(&server, "root", "toor").await);
    assert_ne!(first, second);
    let out = send(&server, Method::DELETE, "/v1/session", &first, json!({})).await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{out:?}");
    assert_eq!(user(&server, &first).await, Value::Null);
    let refused = get(server.address, "/v1/whoami", &[("cookie", &first)]).await;
    refused.is_problem(401, "not-logged-in");
    assert_eq!(user(&server, &second).await, "root");
    let third = cookie(&log_in(&server, "root", "toor").await);
    let path = "/v1/session?everywhere=true";
    assert_eq!(send(&server, Method::DELETE, path, &third, json!({})).await.status, 204);
    assert_eq!(user(&server, &second).await, Value::Null);
}

#[tokio::test]
async fn session_ends_when_the_password_changes_or_the_user_is_deleted() {
    let (server, _broker, users) = safe_node().await;
    users.add("app", hash_password("secret").expect("a hash")).await.expect("is made");
    let before = cookie(&log_in(&server, "app", "secret").await);
    assert_eq!(user(&server, &before).await, "app");
    users.set_password("app", hash_password("secret").expect("a hash")).await.expect("is set");
    assert_eq!(user(&server, &before).await, Value::Null, "the same password, set again");
    let after = cookie(&log_in(&server, "app", "secret").await);
    users.delete("app").await.expect("is deleted");
    assert_eq!(user(&server, &after).await, Value::Null);
    users.add("app", hash_password("secret").expect("a hash")).await.expect("is made");
    assert_eq!(user(&server, &after).await, Value::Null, "another user of that name");
    // The operators' token can log in as well.
    let operator = cookie(&log_in(&server, "_operator", "token of operators").await);
    assert_eq!(user(&server, &operator).await, "_operator");
}

#[tokio::test]
async fn cross_site_requests_cannot_use_the_session_cookie() {
    let (server, _broker, _users) = safe_node().await;
    let cookie = cookie(&log_in(&server, "root", "toor").await);
    for (method, path) in [
        (Method::POST, "/v1/session"),
        (Method::DELETE, "/v1/session"),
        (Method::POST, "/v1/topics"),
    ] {
        let headers = [("cookie", &*cookie), ("sec-fetch-site", "cross-site")];
        let asked = request(method, path, &headers, r#"{"name": "t"}"#);
        let answer = ask(&mut connect(server.address).await, asked).await;
        answer.is_problem(403, "cross-site");
    }
    assert_eq!(user(&server, &cookie).await, "root");
}

#[tokio::test]
async fn invalid_session_cookie_identifies_no_user() {
    let (server, _broker, _users) = safe_node().await;
    let cookie = cookie(&log_in(&server, "root", "toor").await);
    let other = format!("postroad={}", "0".repeat(64));
    let encrypted = cookie.replace("postroad=", "__Host-postroad=");
    for wrong in [&cookie[..cookie.len() - 1], &other, &encrypted, "postroad=", "", "postroad"] {
        assert_eq!(user(&server, wrong).await, Value::Null, "{wrong}");
    }
    // A password in the request takes precedence over the cookie.
    let wrong = crate::harness::basic("root", "wrong");
    let headers = [("cookie", &*cookie), ("authorization", &*wrong)];
    get(server.address, "/v1/whoami", &headers).await.is_problem(401, "not-logged-in");
    for body in [json!({}), json!({"user": "root"}), json!({"user": 1, "password": 2})] {
        let asked = send(&server, Method::POST, "/v1/session", "", body).await;
        asked.is_problem(400, "bad-request");
    }
}

#[tokio::test]
async fn optional_log_in_identifies_the_user() {
    let (server, _broker) = open_node().await;
    let nobody = server.get("/v1/session").await.json();
    let expected = json!({"user": null, "everything": true, "required": false, "ends_ms": null});
    assert_eq!(nobody, expected);
    let cookie = cookie(&log_in(&server, "root", "toor").await);
    assert_eq!(user(&server, &cookie).await, "root");
}

#[tokio::test]
async fn sessions_of_a_user_are_limited_and_the_least_recently_used_ends() {
    let (server, _broker, _users) = safe_node().await;
    let first = cookie(&log_in(&server, "root", "toor").await);
    let second = cookie(&log_in(&server, "root", "toor").await);
    // The first session is used, so the second is the least recently used.
    assert_eq!(user(&server, &first).await, "root");
    for _ in 0..gateway_http::limits::HTTP_SESSIONS_OF_A_USER_MAX - 1 {
        log_in(&server, "root", "toor").await.json();
    }
    assert_eq!(user(&server, &second).await, Value::Null);
    assert_eq!(user(&server, &first).await, "root");
}
