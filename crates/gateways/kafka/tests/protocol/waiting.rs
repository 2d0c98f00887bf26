//! Waiting requests must not block others: the producers' budget serves producers only.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{FetchRequest, MetadataRequest};
use tokio::time::timeout;
use world::Instant;

use crate::harness::*;

/// An unknown tag: it enlarges a request without increasing its cost.
const PADDING_TAG: i32 = 9_000;

fn padded_fetch(topic: &str, wait_ms: i32, padding: usize) -> FetchRequest {
    let padding = Bytes::from(vec![0; padding]);
    fetch(topic, 0, 0, wait_ms).with_unknown_tagged_fields([(PADDING_TAG, padding)].into())
}

fn padded_metadata(padding: usize) -> MetadataRequest {
    let padding = Bytes::from(vec![0; padding]);
    MetadataRequest::default()
        .with_topics(Some(Vec::new()))
        .with_unknown_tagged_fields([(PADDING_TAG, padding)].into())
}

#[tokio::test]
async fn waiting_fetches_do_not_use_the_producers_budget() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("quiet", 1, &[]).await;
    producer.create("orders", 1, &[]).await;

    // More than the producers' budget has, and more than that of other requests.
    let mut waiting = Vec::new();
    for _ in 0..140 {
        let mut client = node.client().await;
        let sent = client.send(12, &padded_fetch("quiet", 120_000, 512 << 10)).await;
        waiting.push((client, sent));
    }
    for n in 0..20 {
        let put = timeout(SOON, producer.put("orders", 0, &["a"])).await;
        assert_eq!(put.expect("producers go on"), n);
    }
    // All of them still wait, and are woken.
    producer.put("quiet", 0, &["at last"]).await;
    for (mut client, sent) in waiting {
        assert_eq!(values(&client.receive(sent).await), ["at last"]);
    }
}

#[tokio::test]
async fn announced_frame_that_is_not_sent_takes_no_room() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 1, &[]).await;

    let value = "x".repeat(900_000);
    let whole = frame(1, 9, &produce("orders", 0, -1, batch(&[&value]).into()));
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut client = node.client().await;
        client.send_bytes(&whole[..20_000]).await;
        silent.push(client);
    }
    for n in 0..20 {
        let put = timeout(SOON, producer.put("orders", 0, &["a"])).await;
        assert_eq!(put.expect("producers go on"), n);
    }
}

#[tokio::test]
async fn incomplete_frames_do_not_block_complete_ones() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 1, &[]).await;

    // More than the budget of arriving frames.
    let value = "x".repeat(1_000_000);
    let whole = frame(1, 9, &produce("orders", 0, -1, batch(&[&value]).into()));
    let mut half_sent = Vec::new();
    for _ in 0..90 {
        let client = node.client().await;
        let (read, mut write) = client.into_stream().into_split();
        let part = whole.clone().split_to(900_000);
        let sending = tokio::spawn(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut write, &part).await;
            std::future::pending::<()>().await;
        });
        half_sent.push((read, sending));
    }
    for n in 0..10 {
        let put = timeout(SOON, producer.put("orders", 0, &["small"])).await;
        assert_eq!(put.expect("small ones go on"), n);
    }
    // A large one needs room of the stalled ones, which are disconnected for it.
    let put = timeout(SOON, producer.put("orders", 0, &[&value])).await;
    assert_eq!(put.expect("a large one goes on"), 10);
    half_sent.iter().for_each(|(_, sending)| sending.abort());
}

#[tokio::test]
async fn large_requests_behind_a_waiting_one_take_no_room_from_others() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("quiet", 1, &[]).await;

    let mut waiting = Vec::new();
    for _ in 0..6 {
        let mut client = node.client().await;
        client.send(12, &fetch("quiet", 0, 0, 120_000)).await;
        let large = frame(2, 12, &padded_metadata(8 << 20));
        let (read, mut write) = client.into_stream().into_split();
        let sending = tokio::spawn(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut write, &large).await;
        });
        waiting.push((read, sending));
    }
    for _ in 0..20 {
        let asked = timeout(SOON, client.ask(12, &padded_metadata(1 << 20))).await;
        assert_eq!(asked.expect("it has room").brokers.len(), 1);
    }
    waiting.iter().for_each(|(_, sending)| sending.abort());
}

#[tokio::test]
async fn fetch_without_waiting_room_is_answered_before_its_deadline() {
    let node = Node::with(|options| options.waiting_bytes_max = 0).await;
    let (mut client, mut producer) = (node.client().await, node.client().await);
    client.create("quiet", 1, &[]).await;
    client.create("orders", 20, &[]).await;

    let mut wanted = fetch("quiet", 0, 0, 120_000);
    let rows = (0..20).map(|n| wanted.topics[0].partitions[0].clone().with_partition(n));
    let many = wanted.topics[0].clone().with_topic(name("orders")).with_partitions(rows.collect());
    wanted.topics.push(many);

    // A waiting fetch takes the little room there is.
    let mut first = node.client().await;
    let sent = first.send(12, &wanted).await;
    let begun = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..2 {
        answers.push(client.ask(12, &wanted).await);
    }
    assert!(begun.elapsed() < Duration::from_secs(100), "it does not wait as long as it may");
    assert!(answers.iter().all(|answer| values(answer).is_empty()));
    assert_eq!(answers[0].responses[1].partitions.len(), 20, "every partition is answered");
    producer.put("orders", 7, &["a"]).await;
    assert_eq!(values(&client.ask(12, &wanted).await), ["a"]);
    assert_eq!(values(&first.receive(sent).await), ["a"]);
}

/// A fetch without a session of so many partitions waits in its encoded form.
#[tokio::test]
async fn large_waiting_fetch_is_answered_once_its_minimum_is_reached() {
    const PARTITIONS: i32 = 1_000;
    let node = Node::start().await;
    let (mut client, mut producer) = (node.client().await, node.client().await);
    client.create("wide", PARTITIONS, &[]).await;
    let mut wanted = fetch("wide", 0, 0, 120_000).with_min_bytes(100);
    let row = wanted.topics[0].partitions[0].clone();
    wanted.topics[0].partitions = (0..PARTITIONS).map(|n| row.clone().with_partition(n)).collect();

    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = node.client().await;
        let sent = client.send(12, &wanted).await;
        waiting.push((client, sent));
    }
    // One record does not suffice, two do.
    producer.put("wide", 7, &["a"]).await;
    let (first, sent) = &mut waiting[0];
    let early = timeout(Duration::from_millis(300), first.receive(*sent)).await;
    assert!(early.is_err(), "less came than it waits for");
    waiting.remove(0);
    producer.put("wide", 999, &["b"]).await;
    for (mut client, sent) in waiting {
        let answer = timeout(SOON, client.receive(sent)).await.expect("is woken");
        assert_eq!(values(&answer), ["a", "b"]);
        assert_eq!(answer.responses[0].partitions.len(), PARTITIONS as usize);
    }

    // At its deadline it is answered with the data available.
    let begun = Instant::now();
    let answer = client.ask(12, &wanted.clone().with_min_bytes(1_000).with_max_wait_ms(200)).await;
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(values(&answer), ["a", "b"]);
}
