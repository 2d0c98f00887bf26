//! Metrics, and that their size does not depend on the stored data.

use std::collections::BTreeSet;

use axum::http::Method;
use broker::{AppendBatch, Broker, CommitOffset, NewTopic};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions};

use crate::harness::{ask, connect, get, open_node, request, safe_node};

/// Limit of series in a scrape of a node, whatever it stores.
const SERIES_MAX: usize = 2_000;

async fn make_topics(broker: &Broker, names: impl Iterator<Item = String>, partitions: u32) {
    let topics: Vec<NewTopic> = names
        .map(|name| {
            let (uuid, config) = (broker.entropy().uuid(), Default::default());
            NewTopic { name, uuid, partitions, config }
        })
        .collect();
    for made in broker.create_topics(topics).await.expect("are made") {
        made.expect("is made");
    }
}

fn series(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

const OPEN_METRICS: (&str, &str) =
    ("accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1");

/// OpenMetrics requires that each family is named once, each series has one value, and the end is marked.
#[track_caller]
fn is_open_metrics(text: &str) {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut names = BTreeSet::new();
    let mut known = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().expect("a name");
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.starts_with("postroad_"), "{name}");
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(known.insert(name), "{name} is there twice");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn scrape_is_open_metrics_with_the_state_of_the_node() {
    let (server, broker) = open_node().await;
    make_topics(&broker, ["orders".to_owned()].into_iter(), 3).await;
    let answer = get(server.address, "/metrics", &[OPEN_METRICS]).await;
    let content = answer.header("content-type").to_owned();
    assert_eq!(content, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = answer.text();
    is_open_metrics(text);
    for line in [
        "postroad_build_info{version=\"0.0.0-test\"} 1",
        "postroad_topics 1",
        "postroad_partitions 3",
        "postroad_shard_leader{shard=\"0\"} 1",
        "postroad_shard_leader{shard=\"1\"} 1",
        "postroad_alarm{alarm=\"disk\"} 0",
        "postroad_connections{protocol=\"http\"} 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
    }
    // The next scrape counts this one.
    let again = server.get("/metrics").await;
    let counted = "postroad_http_requests_total{route=\"/metrics\",status=\"200\"} 1\n";
    assert!(again.text().contains(counted), "{}", again.text());
    let alone = get(server.metrics, "/metrics", &[OPEN_METRICS]).await;
    is_open_metrics(alone.text());
}

#[tokio::test]
async fn scrape_is_prometheus_text_unless_open_metrics_is_accepted() {
    let (server, _broker) = open_node().await;
    for path in ["/metrics", "/metrics/detailed?family=topic"] {
        for accept in ["text/plain;version=0.0.4", "application/json", "*/*"] {
            let answer = get(server.address, path, &[("accept", accept)]).await;
            assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
            let text = answer.text();
            assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
            let mut families = BTreeSet::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    let (name, kind) = rest.split_once(' ').expect("a name and a type");
                    assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                    families.insert(name);
                }
            }
            let suffixes = ["", "_bucket", "_sum", "_count"];
            for series in series(text) {
                let name = series.split(['{', ' ']).next().expect("a name");
                let is_of = |suffix: &&str| {
                    name.strip_suffix(*suffix).is_some_and(|name| families.contains(name))
                };
                assert!(suffixes.iter().any(is_of), "{series}");
            }
        }
    }
}

#[tokio::test]
async fn journal_activity_is_counted() {
    let (server, broker) = open_node().await;
    make_topics(&broker, ["orders".to_owned()].into_iter(), 1).await;
    let value = |text: &str, name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("a number")
    };
    let before = server.get("/metrics").await;
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(0, None, Some(b"value"), &[]).expect("it fits");
    let batch = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&batch).expect("a batch");
    let partition = {
        let catalog = broker.catalog();
        catalog.topic_named("orders").and_then(|topic| topic.partition(0)).expect("is there")
    };
    for appended in broker.append(vec![AppendBatch::new(partition, header, batch)]).await {
        appended.expect("is appended");
    }
    let after = server.get("/metrics").await;
    for name in [
        "postroad_journal_frames_total",
        "postroad_journal_entries_total",
        "postroad_journal_appended_bytes_total",
        "postroad_journal_sync_seconds_count",
        "postroad_journal_sync_seconds_sum",
        "postroad_journal_disk_bytes{state=\"live\"}",
    ] {
        let (before, after) = (value(before.text(), name), value(after.text(), name));
        assert!(after > before || name.ends_with("_sum"), "{name}: {before} {after}");
    }
}

#[tokio::test]
async fn detailed_metrics_show_selected_topics_and_groups() {
    let (server, broker) = open_node().await;
    make_topics(&broker, ["orders", "payments"].map(str::to_owned).into_iter(), 2).await;
    crate::records::produce(&server, "orders", &["a", "b", "c", "d"]).await;
    let partition = {
        let catalog = broker.catalog();
        catalog.topic_named("orders").and_then(|topic| topic.partition(0)).expect("is there")
    };
    let commit = CommitOffset {
        partition,
        offset: 1,
        leader_epoch: -1,
        metadata: String::new(),
        expire_ms: None,
    };
    broker.shards().commit_offsets("readers", vec![commit]).await.expect("is committed");
    let group = request(Method::PUT, "/v1/topics/orders/groups/main", &[], "{}");
    assert_eq!(ask(&mut connect(server.address).await, group).await.status, 201);
    let all = "family=topic,partition,lease_group,group";
    let detailed = format!("/metrics/detailed?{all}&topic=ord.*");
    let answer = get(server.address, &detailed, &[OPEN_METRICS]).await;
    let text = answer.text();
    is_open_metrics(text);
    for line in [
        "postroad_topic_records{topic=\"orders\"} 4",
        "postroad_topic_appended_records_total{topic=\"orders\"} 4",
        "postroad_partition_end_offset{topic=\"orders\",partition=\"1\"} 2",
        "postroad_lease_group_depth{topic=\"orders\",group=\"main\"} 4",
        "postroad_lease_group_consumers{topic=\"orders\",group=\"main\"} 0",
        "postroad_group_lag_records{topic=\"orders\",group=\"readers\"} 1",
        "postroad_metrics_truncated{family=\"topic\"} 0",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
    }
    assert!(!text.contains("payments"), "{text}");
    let none = server.get("/metrics/detailed?family=lease_group&group=other").await;
    assert!(!none.text().contains("orders"), "{}", none.text());
    // The limit is respected, and truncation is reported.
    let cut = "/metrics/detailed?family=topic&limit=4";
    let cut = get(server.address, cut, &[OPEN_METRICS]).await;
    is_open_metrics(cut.text());
    assert!(cut.text().contains("postroad_metrics_truncated{family=\"topic\"} 1\n"));
    assert!(!cut.text().contains("payments"), "{}", cut.text());
    for wrong in ["", "?family=x", "?family=topic&topic=(", "?family=topic&limit=0"] {
        let refused = server.get(&format!("/metrics/detailed{wrong}")).await;
        refused.is_problem(400, "bad-request");
    }
    // The metrics port, which has no authentication, shows no names.
    assert_eq!(get(server.metrics, "/metrics/detailed?family=topic", &[]).await.status, 404);
}

#[tokio::test]
async fn detailed_metrics_hide_topics_that_the_user_may_not_see() {
    let (server, broker, users) = safe_node().await;
    make_topics(&broker, ["orders".to_owned()].into_iter(), 1).await;
    users.add("app", passwords::hash_password("secret").expect("a hash")).await.expect("is made");
    let path = "/metrics/detailed?family=topic,partition,lease_group,group";
    let answer = server.get_as(path, "app", "secret").await;
    assert!(answer.status == 200 && !answer.text().contains("orders"), "{answer:?}");
    server.get(path).await.is_problem(401, "not-logged-in");
}

#[tokio::test]
async fn number_of_series_does_not_grow_with_partitions() {
    let (server, broker) = open_node().await;
    let before = server.get("/metrics").await;
    make_topics(&broker, (0..200).map(|i| format!("quoted-{i}")), 100).await;
    let answer = server.get("/metrics").await;
    assert!(answer.text().contains("postroad_partitions 20000\n"), "{}", answer.text());
    // The previous scrape added its own route.
    let (few, many) = (series(before.text()).len(), series(answer.text()).len());
    assert!(many <= few + 1 && many < SERIES_MAX / 10, "{few} {many}");
    assert!(!answer.text().contains("quoted"), "no names of topics");
}
