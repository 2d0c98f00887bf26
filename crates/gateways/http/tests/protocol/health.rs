//! Health checks, from the start of a node to its end.

use std::time::Duration;

use gateway_http::LoginOptions;
use tokio::time::{Instant, sleep};

use crate::harness::{ReceivedResponse, SOON, Server, get, open_node};

#[track_caller]
/// Reason why the node is not ready, if it is not.
fn why(answer: &ReceivedResponse) -> Option<String> {
    (answer.status == 503).then(|| answer.json()["why"].as_str().unwrap_or_default().to_owned())
}

fn is_unwell(answer: &ReceivedResponse, words: &str) {
    let why = why(answer).unwrap_or_else(|| panic!("{answer:?}"));
    assert!(why.contains(words), "{why}");
}

#[tokio::test]
async fn recovering_node_is_live_and_not_ready() {
    let server = Server::start(|_| {}).await;
    for at in [server.address, server.metrics] {
        assert_eq!(get(at, "/health/live", &[]).await.status, 200);
        is_unwell(&get(at, "/health/startup", &[]).await, "recovered");
        is_unwell(&get(at, "/health/ready", &[]).await, "recovered");
        let metrics = get(at, "/metrics", &[]).await;
        metrics.is_problem(503, "starting");
        assert_eq!(metrics.header("retry-after"), "1");
    }
    let _node = server.open(LoginOptions::default()).await;
    for path in ["/health/live", "/health/startup", "/health/ready", "/metrics"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn draining_node_is_live_and_not_ready() {
    let (server, _broker) = open_node().await;
    server.front.drain();
    is_unwell(&server.get("/health/ready").await, "shuts down");
    assert_eq!(server.get("/health/live").await.status, 200);
    assert_eq!(server.get("/health/startup").await.status, 200);
    server.shutdown().await;
}

#[tokio::test]
async fn node_with_a_failed_part_is_not_ready() {
    let (server, _broker) = open_node().await;
    // In a server the process would end a moment later.
    server.failure.report("a sync failed: secret/path");
    let answer = server.get("/health/ready").await;
    is_unwell(&answer, "failed");
    assert!(!answer.text().contains("secret"), "no names here: {answer:?}");
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn node_with_a_hung_disk_is_not_ready_until_it_returns() {
    let (server, broker) = open_node().await;
    server.disk.hang_syncs(true);
    let waiting = tokio::spawn({
        let broker = broker.clone();
        async move { broker.set_node_config(Default::default()).await }
    });
    let begun = Instant::now();
    while server.get("/health/ready").await.status == 200 {
        assert!(begun.elapsed() < SOON, "nobody noticed");
        sleep(Duration::from_millis(100)).await;
    }
    is_unwell(&server.get("/health/ready").await, "has not returned");
    assert_eq!(server.get("/health/live").await.status, 200);
    let text = server.get("/metrics").await;
    assert!(text.text().contains("postroad_alarm{alarm=\"sync_hung\"} 1"), "{}", text.text());
    server.disk.hang_syncs(false);
    let _ = waiting.await;
    while server.get("/health/ready").await.status != 200 {
        assert!(begun.elapsed() < SOON, "it has returned");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn full_disk_raises_an_alarm_and_keeps_the_node_ready() {
    let (server, _broker) = open_node().await;
    let ready = server.get("/health/ready").await;
    assert!(ready.json()["alarms"].is_null(), "{ready:?}");
    let alarm = |text: &str| text.contains("postroad_alarm{alarm=\"disk\"} 1");
    assert!(!alarm(server.get("/metrics").await.text()));
    server.disk.set_capacity(Some(0));
    let begun = Instant::now();
    while !alarm(server.get("/metrics").await.text()) {
        assert!(begun.elapsed() < SOON, "no alarm");
        sleep(Duration::from_millis(100)).await;
    }
    let ready = server.get("/health/ready").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["alarms"][0], "the disk is full: this node takes no records");
}

#[tokio::test]
async fn node_without_a_catalog_leader_is_not_ready() {
    let mut nodes = test_cluster::start_three().await;
    for node in &nodes {
        node.broker.ready().await.expect("ready");
    }
    let server = Server::start(|_| {}).await;
    let left = nodes.remove(0);
    let member = std::sync::Arc::clone(&left.member);
    server.front.explain(move || member.waits_for());
    let _users = server.open_with(left.broker.clone(), LoginOptions::default()).await;
    let ready = async || server.get("/health/ready").await;
    let begun = Instant::now();
    // On a slow machine leaders may change once more.
    while ready().await.status != 200 {
        assert!(begun.elapsed() < SOON * 3, "{:?}", ready().await);
        sleep(Duration::from_millis(100)).await;
    }
    for node in nodes {
        node.end().await;
    }
    let begun = Instant::now();
    while why(&ready().await).is_none_or(|why| !why.contains("leads the catalog")) {
        assert!(begun.elapsed() < SOON * 3, "it leads with no majority");
        sleep(Duration::from_millis(100)).await;
    }
    let waits = "the node waits for a majority of nodes 1, 2, 3; heard from: 1.";
    while why(&ready().await).is_none_or(|why| !why.contains(waits)) {
        assert!(begun.elapsed() < SOON * 3, "{:?}", ready().await);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.get("/health/live").await.status, 200);
    let text = server.get("/metrics").await;
    assert!(text.text().contains("postroad_alarm{alarm=\"no_leader\"} 1"), "{}", text.text());
}
