//! Authentication of requests.

use std::time::Duration;

use access::Admission;
use access_rules::acl::{Action, CLUSTER, Pattern, Resource, Rule, Verdict};
use gateway_http::LoginOptions;
use passwords::hash_password;
use tokio::time::Instant;

use crate::harness::{Server, basic, get, open_node, safe_node};

#[tokio::test]
async fn basic_credentials_are_required_and_checked() {
    let (server, _broker, _users) = safe_node().await;
    let asked = server.get("/metrics").await;
    asked.is_problem(401, "not-logged-in");
    assert!(asked.header("www-authenticate").starts_with("Basic realm="), "{asked:?}");
    assert_eq!(server.get_as("/metrics", "root", "toor").await.status, 200);
    assert_eq!(server.get_as("/metrics", "_operator", "token of operators").await.status, 200);
    for (name, password) in
        [("root", "wrong"), ("root", ""), ("nobody", "toor"), ("", ""), ("_operator", "toor")]
    {
        server.get_as("/metrics", name, password).await.is_problem(401, "not-logged-in");
    }
    for wrong in ["Bearer abc", "Basic", "Basic %%%", "nonsense", "Basic dG9vcg=="] {
        let answer = get(server.address, "/metrics", &[("authorization", wrong)]).await;
        answer.is_problem(401, "not-logged-in");
    }
    // Public paths need no log-in.
    assert_eq!(server.get("/health/ready").await.status, 200);
    assert_eq!(get(server.metrics, "/metrics", &[]).await.status, 200);
}

#[tokio::test]
async fn user_with_the_right_to_describe_the_cluster_sees_its_metrics() {
    let (server, _broker, users) = safe_node().await;
    users.add("app", hash_password("secret").expect("a hash")).await.expect("is made");
    let refused = server.get_as("/metrics", "app", "secret").await;
    let document = refused.is_problem(403, "not-allowed");
    assert!(document["detail"].as_str().is_some_and(|text| text.contains("describe")));
    let rule = Rule {
        resource: Resource::Cluster,
        pattern: Pattern::Literal,
        name: CLUSTER.into(),
        principal: "User:app".into(),
        host: "*".into(),
        action: Action::Describe,
        verdict: Verdict::Allow,
    };
    users.add_rules(vec![rule]).await.expect("is added");
    assert_eq!(server.get_as("/metrics", "app", "secret").await.status, 200);
    users.delete("app").await.expect("is deleted");
    server.get_as("/metrics", "app", "secret").await.is_problem(401, "not-logged-in");
}

/// Duration of the fastest of several log-ins: the one least delayed by other load.
async fn fastest(server: &Server, count: u32, password: &str) -> Duration {
    let mut fastest = Duration::MAX;
    for number in 0..count {
        let begun = Instant::now();
        server.get_as("/metrics", &format!("app-{number}"), password).await;
        fastest = fastest.min(begun.elapsed());
    }
    fastest
}

/// A hash takes at least 20 ms of a core by design; a digest takes less than one.
#[tokio::test]
async fn right_password_is_checked_by_digest_the_second_time() {
    const USERS: u32 = 5;
    let (server, _broker, users) = safe_node().await;
    for number in 0..USERS {
        let hash = hash_password("secret").expect("a hash");
        users.add(&format!("app-{number}"), hash).await.expect("is made");
    }
    let hashed = fastest(&server, USERS, "secret").await;
    let known = fastest(&server, USERS, "secret").await;
    assert!(known < hashed / 2, "{known:?}, with a hash {hashed:?}");
    server.get_as("/metrics", "app-0", "secret").await.is_problem(403, "not-allowed");
}

#[tokio::test]
async fn wrong_password_is_rejected_even_where_log_in_is_optional() {
    let (server, _broker) = open_node().await;
    assert_eq!(server.get("/metrics").await.status, 200);
    assert_eq!(server.get_as("/metrics", "root", "toor").await.status, 200);
    server.get_as("/metrics", "root", "wrong").await.is_problem(401, "not-logged-in");
}

#[tokio::test]
async fn repeated_log_in_failures_delay_the_response() {
    let (server, _broker, users) = safe_node().await;
    let begun = Instant::now();
    for _ in 0..3 {
        server.get_as("/metrics", "root", "wrong").await.is_problem(401, "not-logged-in");
    }
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
    assert_eq!(users.failed_logins(), 3);
    let text = server.get_as("/metrics", "root", "toor").await;
    let counted = "postroad_authentications_total{outcome=\"refused\"} 3";
    assert!(text.text().contains(counted), "{}", text.text());
}

/// A non-loopback address of this machine; `None`: there is none, and the test is skipped.
fn other_address() -> Option<std::net::IpAddr> {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this finds the address that would be used.
    probe.connect("192.0.2.1:9").ok()?;
    let address = probe.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[tokio::test]
async fn remote_password_requires_tls_unless_plaintext_is_enabled() {
    let Some(ip) = other_address() else { return };
    let any = std::net::SocketAddr::new(ip, 0);
    for plaintext in [false, true] {
        let server = Server::start_at(any, |_| {}).await;
        let login =
            LoginOptions { plain: Admission::Required, tls: Admission::Required, plaintext };
        let _node = server.open(login).await;
        let said = basic("root", "toor");
        let answer = get(server.address, "/metrics", &[("authorization", &said)]).await;
        let unsaid = server.get("/metrics").await;
        match plaintext {
            true => {
                assert_eq!(answer.status, 200);
                unsaid.is_problem(401, "not-logged-in");
            }
            false => {
                answer.is_problem(403, "password-in-the-clear");
                // A browser must not prompt for a password that it must not send.
                unsaid.is_problem(403, "password-in-the-clear");
            }
        }
        assert_eq!(server.get("/health/live").await.status, 200);
    }
}
