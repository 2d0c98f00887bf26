//! Connections: pipelining, order, slow readers, the end.

use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use world::Instant;

use crate::harness::*;

#[tokio::test]
async fn pipelined_produce_requests_are_appended_and_answered_in_their_order() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;

    let mut bytes = Vec::new();
    for n in 0..200 {
        let value = format!("{n}");
        bytes.extend(frame(1000 + n, 9, &produce("orders", 0, -1, batch(&[&value]).into())));
    }
    // By a task of its own: no response is read until all requests are sent.
    let (mut reader, mut writer) = client.into_stream().into_split();
    let sending = tokio::spawn(async move {
        writer.write_all(&bytes).await.unwrap();
        writer
    });
    for n in 0..200 {
        use kafka_protocol::protocol::Decodable;
        use tokio::io::AsyncReadExt;
        let length = reader.read_i32().await.unwrap();
        let mut frame = vec![0; length as usize];
        reader.read_exact(&mut frame).await.unwrap();
        assert_eq!(i32::from_be_bytes(frame[..4].try_into().unwrap()), 1000 + n);
        let mut body = bytes::Bytes::from(frame).slice(5..);
        let response = kafka_protocol::messages::ProduceResponse::decode(&mut body, 9).unwrap();
        assert_eq!(only_partition(response).base_offset, i64::from(n));
    }
    drop(sending.await.unwrap());
    let expected: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    assert_eq!(node.client().await.get("orders", 0, 0).await, expected);
}

#[tokio::test]
async fn responses_keep_the_order_of_requests_even_when_a_fetch_waits() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;

    let waiting = client.send(11, &fetch("orders", 0, 0, 300)).await;
    let asking = client.send(12, &MetadataRequest::default()).await;
    let started = Instant::now();
    client.receive(waiting).await;
    assert!(started.elapsed() >= Duration::from_millis(250));
    client.receive(asking).await;
}

#[tokio::test]
async fn a_produce_behind_a_waiting_fetch_of_its_own_connection_ends_the_wait() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;

    let fetch = client.send(11, &fetch("orders", 0, 0, 60_000)).await;
    let produced = client.send(9, &produce("orders", 0, -1, batch(&["a"]).into())).await;
    let fetched = client.receive(fetch).await;
    assert_eq!(values(&fetched), ["a"]);
    assert_eq!(only_partition(client.receive(produced).await).base_offset, 0);
}

#[tokio::test]
async fn client_that_stops_reading_is_disconnected_without_effect_on_others() {
    let node = Node::with(|options| {
        options.response_taken_within = Duration::from_millis(300);
    })
    .await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let value = "x".repeat(500_000);
    for _ in 0..20 {
        client.put("orders", 0, &[&value]).await;
    }
    let mut deaf = node.client_with_small_window().await;
    for _ in 0..20 {
        // Each response has up to 10 MB, far more than any socket buffers.
        let mut wanted = fetch("orders", 0, 0, 0);
        wanted.topics[0].partitions[0].partition_max_bytes = 50 << 20;
        deaf.send_bytes(&frame(1, 11, &wanted)).await;
    }
    // Other clients are served meanwhile.
    assert_eq!(client.get("orders", 0, 0).await.len(), 2);
    node.is_well().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Pending responses are lost, and then the connection ends.
    let mut frames = 0;
    while deaf.receive_frame().await.is_some() {
        frames += 1;
    }
    assert!(frames < 20);
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let node = Node::with(|options| options.sessions_max = 2).await;
    let mut one = node.client().await;
    let mut two = node.client().await;
    one.ask(3, &versions_request()).await;
    two.ask(3, &versions_request()).await;
    let mut three = node.client().await;
    three.is_cut_off().await;

    drop(one);
    tokio::time::sleep(Duration::from_millis(500)).await;
    node.client().await.ask(3, &versions_request()).await;
    two.ask(3, &versions_request()).await;
}

#[tokio::test]
async fn idle_connection_is_closed() {
    let node = Node::with(|options| options.session_idle_max = Duration::from_secs(1)).await;
    let mut client = node.client().await;
    client.ask(3, &versions_request()).await;
    client.is_cut_off().await;
}

#[tokio::test]
async fn client_that_never_pauses_does_not_delay_a_shutdown() {
    let node = Node::start().await;
    let client = node.client().await;
    let (mut reads, mut writes) = client.into_stream().into_split();
    let requests = frame(1, 3, &versions_request()).repeat(1_000);
    let sends = tokio::spawn(async move { while writes.write_all(&requests).await.is_ok() {} });
    let answers = tokio::spawn(async move {
        let mut answers = vec![0; 1 << 20];
        while reads.read(&mut answers).await.is_ok_and(|read| read > 0) {}
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.stop.send_replace(true);
    timeout(Duration::from_secs(4), node.serving).await.expect("drains at once").unwrap();
    answers.await.unwrap();
    sends.await.unwrap();
}

#[tokio::test]
async fn shutdown_answers_started_requests() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let mut idle = node.client().await;
    idle.ask(3, &versions_request()).await;

    let fetched = client.send(11, &fetch("orders", 0, 0, 60_000)).await;
    let produced = client.send(9, &produce("orders", 0, -1, batch(&["late"]).into())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.receive(fetched).await;
    client.receive(produced).await;

    // A fetch that would wait for a minute.
    let sent = client.send(11, &fetch("orders", 0, 1, 60_000)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    node.stop.send_replace(true);
    let fetched = client.receive(sent).await;
    assert!(values(&fetched).is_empty());
    client.is_cut_off().await;
    idle.is_cut_off().await;
    timeout(Duration::from_secs(4), node.serving).await.expect("drains at once").unwrap();
}

pub(crate) fn versions_request() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(text("test"))
        .with_client_software_version(text("1.0"))
}
