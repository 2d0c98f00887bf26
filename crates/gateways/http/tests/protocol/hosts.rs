//! Accepted host names: a page whose name resolves to this machine must not pass for the node's own.

use gateway_http::LoginOptions;

use crate::harness::{Server, get, open_node, safe_node};

#[tokio::test]
async fn without_log_in_only_names_of_the_node_are_accepted() {
    let (server, _broker) = open_node().await;
    for ours in ["127.0.0.1", "localhost:15672", "[::1]:15672", "x.localhost", "10.1.2.3"] {
        let answer = get(server.address, "/metrics", &[("host", ours)]).await;
        assert_eq!(answer.status, 200, "{ours}");
    }
    for other in ["evil.example", "localhost.evil.example:80", "broker.internal"] {
        for path in ["/metrics", "/health/ready", "/nothing"] {
            let answer = get(server.address, path, &[("host", other)]).await;
            answer.is_problem(421, "wrong-host");
        }
    }
}

#[tokio::test]
async fn configured_host_names_are_accepted() {
    let named = |options: &mut gateway_http::GatewayOptions| {
        options.hosts = vec!["broker.internal".to_owned()];
    };
    let server = Server::start(named).await;
    let _node = server.open(LoginOptions::default()).await;
    let answer = get(server.address, "/metrics", &[("host", "BROKER.internal:80")]).await;
    assert_eq!(answer.status, 200);
    let answer = get(server.address, "/metrics", &[("host", "other.internal")]).await;
    answer.is_problem(421, "wrong-host");
}

#[tokio::test]
async fn before_the_node_is_open_only_its_names_are_accepted() {
    let server = Server::start(|_| {}).await;
    let answer = get(server.address, "/health/live", &[("host", "evil.example")]).await;
    answer.is_problem(421, "wrong-host");
}

#[tokio::test]
async fn with_log_in_any_host_name_is_accepted() {
    let (server, _broker, _users) = safe_node().await;
    let answer = get(server.address, "/health/ready", &[("host", "postroad.ns.svc")]).await;
    assert_eq!(answer.status, 200);
    let answer = get(server.address, "/metrics", &[("host", "postroad.ns.svc")]).await;
    answer.is_problem(401, "not-logged-in");
}

#[tokio::test]
async fn metrics_port_accepts_any_host_name() {
    let (server, _broker) = open_node().await;
    let answer = get(server.metrics, "/metrics", &[("host", "postroad-0.postroad:15692")]).await;
    assert_eq!(answer.status, 200);
}
