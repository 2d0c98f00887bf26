//! Oversized requests and too many connections are rejected, and other clients are unaffected.

use std::time::Duration;

use axum::http::Method;
use base::limits::NEW_TOPIC_PARTITIONS_MAX;
use gateway_http::limits::{
    HTTP_BODY_BYTES_MAX, HTTP_HEADER_BYTES_MAX, HTTP_HEADERS_WITHIN, HTTP_URI_BYTES_MAX,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::harness::{SOON, Server, ask, connect, get, open_node, request};

/// Sends raw bytes, and returns everything received until the end.
async fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.expect("connects");
    // The node may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut text = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut text)).await.expect("in time");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn path_over_the_limit_is_rejected() {
    let (server, _broker) = open_node().await;
    let fits = format!("/{}", "a".repeat(HTTP_URI_BYTES_MAX - 1));
    server.get(&fits).await.is_problem(404, "no-such-path");
    for long in [format!("{fits}b"), format!("/?{fits}")] {
        let document = server.get(&long).await.is_problem(414, "uri-too-long");
        assert_eq!(document["limit"], HTTP_URI_BYTES_MAX);
    }
}

#[tokio::test]
async fn headers_over_the_limits_are_rejected() {
    let (server, _broker) = open_node().await;
    let long = format!(
        "GET /health/live HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n",
        "a".repeat(HTTP_HEADER_BYTES_MAX * 4)
    );
    let value = "a".repeat(HTTP_HEADER_BYTES_MAX);
    let answer = get(server.address, "/health/live", &[("x-long", &value)]).await;
    answer.is_problem(431, "headers-too-long");
    let much_longer = raw(&server, long.as_bytes()).await;
    // Unread bytes may reset the connection before the response arrives.
    assert!(much_longer.is_empty() || much_longer.starts_with("HTTP/1.1 431 "), "{much_longer}");
    let many = format!("GET /health/live HTTP/1.1\r\n{}\r\n", "x: 1\r\n".repeat(101));
    assert!(raw(&server, many.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn announced_body_over_the_limit_is_rejected_before_it_is_sent() {
    let (server, _broker) = open_node().await;
    let head = format!(
        "POST /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        HTTP_BODY_BYTES_MAX + 1
    );
    let answer = raw(&server, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("/problems/too-large"), "{answer}");
}

#[tokio::test]
async fn topic_with_more_partitions_than_clients_can_read_is_rejected() {
    let (server, _broker) = open_node().await;
    let post = |body: String| request(Method::POST, "/v1/topics", &[], body);
    let mut client = connect(server.address).await;
    let topic =
        |partitions: u32| format!(r#"{{"name":"t{partitions}","partitions":{partitions}}}"#);
    let refused = ask(&mut client, post(topic(NEW_TOPIC_PARTITIONS_MAX + 1))).await;
    let document = refused.is_problem(422, "invalid");
    assert!(document["detail"].as_str().expect("text").contains("100000"), "{document}");
    assert_eq!(ask(&mut client, post(topic(2))).await.status, 201);
    for partitions in [NEW_TOPIC_PARTITIONS_MAX + 1, 1_000_000] {
        let body = format!(r#"{{"partitions":{partitions}}}"#);
        let patch = request(Method::PATCH, "/v1/topics/t2", &[], body);
        ask(&mut client, patch).await.is_problem(422, "invalid");
    }
}

#[tokio::test]
async fn request_for_two_hosts_is_rejected() {
    let (server, _broker) = open_node().await;
    for head in [
        "GET /health/live HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n",
        "GET http://127.0.0.2/health/live HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let answer = raw(&server, format!("{head}connection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head}: {answer}");
    }
    let same = "GET http://localhost/health/live HTTP/1.1\r\nhost: localhost\r\n";
    let answer = raw(&server, format!("{same}connection: close\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn malformed_request_is_rejected_and_does_not_affect_others() {
    let (server, _broker) = open_node().await;
    let cases: [&[u8]; 6] = [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nzz",
    ];
    for case in cases {
        let mut stream = TcpStream::connect(server.address).await.expect("connects");
        stream.write_all(case).await.expect("is sent");
        stream.shutdown().await.expect("is sent");
        let mut text = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut text)).await.expect("in time");
        let text = String::from_utf8_lossy(&text);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    // Without the header Host.
    let answer = raw(&server, b"GET /health/live HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains("Host"), "{answer}");
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let (server, _broker) = open_node().await;
    for said in [&b""[..], b"GET /health/li"] {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(server.address).await.expect("connects");
        stream.write_all(said).await.expect("is sent");
        let mut text = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut text)).await.expect("is closed");
        let took = begun.elapsed();
        assert!(took >= HTTP_HEADERS_WITHIN - Duration::from_secs(1), "{took:?}");
    }
}

#[tokio::test]
async fn connection_over_the_limit_is_closed_and_counted() {
    let server = Server::start(|options| options.sessions_max = 1).await;
    let _node = server.open(Default::default()).await;
    let mut first = connect(server.address).await;
    let live = || request(Method::GET, "/health/live", &[], "");
    assert_eq!(ask(&mut first, live()).await.status, 200);
    let mut second = TcpStream::connect(server.address).await.expect("connects");
    let read = timeout(SOON, second.read(&mut [0; 1])).await.expect("is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let text = get(server.metrics, "/metrics", &[]).await;
    for line in [
        "postroad_connections_refused_total{protocol=\"http\"} 1",
        "postroad_connections{protocol=\"http\"} 1",
        "postroad_connections{protocol=\"metrics\"} 1",
    ] {
        assert!(text.text().contains(line), "{line}: {}", text.text());
    }
    assert_eq!(ask(&mut first, live()).await.status, 200);
}

#[tokio::test]
async fn operator_can_close_a_connection() {
    let (server, _broker) = open_node().await;
    let mut client = connect(server.address).await;
    assert_eq!(ask(&mut client, request(Method::GET, "/health/live", &[], "")).await.status, 200);
    let listed = server.connections.list(None, 10);
    assert_eq!((listed.len(), listed[0].protocol()), (1, "http"));
    assert!(server.connections.close(listed[0].id()));
    let begun = Instant::now();
    while !server.connections.list(None, 10).is_empty() {
        assert!(begun.elapsed() < SOON, "it is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
