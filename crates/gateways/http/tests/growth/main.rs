//! Memory and time that large documents cost: bytes received against bytes held, and the latency of probes meanwhile.
//! A process of its own, whose memory is measured.

#![expect(clippy::disallowed_types, reason = "clients of a node in the kernel's network")]

#[allow(dead_code, reason = "it is for the other tests, too")]
#[path = "../protocol/harness.rs"]
mod harness;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use tokio::time::Instant;

use crate::harness::{ask, connect, get, open_node, request};

/// A name, the path, a header, the body and the expected status.
type Case = (&'static str, &'static str, (&'static str, &'static str), String, u16);

/// Memory limit of one document, without the bytes of its body.
const HELD_BYTES_MAX: usize = 256 << 20;
/// For an unoptimised build, with other tests running. A release build takes 50 ms.
const PROBE_MAX: Duration = Duration::from_secs(1);

fn status_bytes(name: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// `count` copies, separated by commas.
fn list(of: &str, count: usize) -> String {
    let mut text = format!("{of},").repeat(count);
    text.pop();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_documents_take_bounded_memory_and_delay_no_probe() {
    let (server, _broker) = open_node().await;
    let topic = request(Method::POST, "/v1/topics", &[], r#"{"name":"t"}"#);
    assert_eq!(ask(&mut connect(server.address).await, topic).await.status, 201);
    let (records, json) = ("/v1/topics/t/records", ("content-type", "application/json"));
    let lines = ("content-type", "application/x-ndjson");
    let cases: Vec<Case> = vec![
        ("records", records, json, format!("{{\"records\":[{}]}}", list("{}", 13_000_000)), 400),
        ("lines", records, lines, "{}\n".repeat(13_000_000), 400),
        (
            "any JSON as a value",
            records,
            json,
            format!("{{\"records\":[{{\"value_json\":[{}]}}]}}", list("{}", 6_000_000)),
            413,
        ),
        (
            "a list in place of bytes",
            records,
            json,
            format!("{{\"records\":[{{\"value\":[{}]}}]}}", list("0", 15_000_000)),
            400,
        ),
        (
            "headers",
            records,
            json,
            format!("{{\"records\":[{{\"headers\":[{}]}}]}}", list("{\"name\":\"\"}", 3_000_000)),
            400,
        ),
        (
            "headers of many records",
            records,
            lines,
            (format!("{{\"headers\":[{}]}}", list("{\"name\":\"\"}", 9_000)) + "\n").repeat(300),
            413,
        ),
        (
            "a list in place of an object",
            "/v1/topics",
            json,
            format!("[{}]", list("[]", 300_000)),
            413,
        ),
        (
            "settles",
            "/v1/topics/t/groups/main/settle",
            json,
            format!("{{\"settles\":[{}]}}", list("{}", 300_000)),
            413,
        ),
        (
            "definitions",
            "/api/definitions",
            json,
            format!("{{\"queues\":[{}]}}", list("{}", 20_000_000)),
            400,
        ),
        (
            "a message with many properties",
            "/api/exchanges/%2F/amq.default/publish",
            json,
            format!("{{\"properties\":{{\"headers\":{{\"a\":[{}]}}}}}}", list("0", 10_000_000)),
            400,
        ),
    ];
    let ends = Arc::new(AtomicBool::new(false));
    let probing = {
        let (ends, address) = (Arc::clone(&ends), server.address);
        tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                assert_eq!(get(address, "/health/live", &[]).await.status, 200);
                slowest = slowest.max(begun.elapsed());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            slowest
        })
    };
    for (name, path, content, body, status) in cases {
        let body = Bytes::from(body);
        // Reset the peak of resident memory.
        let counted = fs::write("/proc/self/clear_refs", "5").is_ok();
        let before = status_bytes("VmRSS").unwrap_or(0);
        let sent = request(Method::POST, path, &[content], body.clone());
        let answer = ask(&mut connect(server.address).await, sent).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        let held = status_bytes("VmHWM").unwrap_or(0).saturating_sub(before);
        println!("{name}: {} bytes in, {held} bytes held", body.len());
        assert!(!counted || held < HELD_BYTES_MAX, "{name}: {held} bytes are held");
    }
    ends.store(true, Ordering::Relaxed);
    let slowest = probing.await.expect("probes are answered");
    println!("slowest probe: {slowest:?}");
    assert!(slowest < PROBE_MAX, "a probe took {slowest:?}");
}
