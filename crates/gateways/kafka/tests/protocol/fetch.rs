//! Fetch: every version, waiting, limits, sessions.

use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest, FetchResponse};
use world::Instant;

use crate::harness::*;

#[tokio::test]
async fn every_version_reads() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let id = client.create("orders", 2, &[]).await;
    client.put("orders", 1, &["a", "b"]).await;
    client.put("orders", 1, &["c"]).await;
    for version in 4..=18 {
        let mut request = fetch("orders", 1, 0, 0);
        if version >= 13 {
            request.topics[0].topic = Default::default();
            request.topics[0].topic_id = id;
        }
        let response = client.ask(version, &request).await;
        assert_eq!(values(&response), ["a", "b", "c"], "version {version}");
        let partition = &response.responses[0].partitions[0];
        assert_eq!((partition.partition_index, partition.high_watermark), (1, 3));
        assert_eq!(partition.last_stable_offset, 3);
        if version >= 13 {
            assert_eq!(response.responses[0].topic_id, id);
        }
    }
}

#[tokio::test]
async fn reading_starts_with_the_batch_that_holds_the_offset() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    client.put("orders", 0, &["a", "b", "c"]).await;
    client.put("orders", 0, &["d"]).await;
    assert_eq!(client.get("orders", 0, 1).await, ["a", "b", "c", "d"]);
    assert_eq!(client.get("orders", 0, 3).await, ["d"]);
    assert!(client.get("orders", 0, 4).await.is_empty());
}

#[tokio::test]
async fn fetch_errors_are_reported_by_partition() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    client.put("orders", 0, &["a"]).await;
    let epoch = node.leader_epoch("orders");
    let wanted = |offset: i64, leader_epoch: i32| {
        let mut request = fetch("orders", 0, offset, 0);
        request.topics[0].partitions[0].current_leader_epoch = leader_epoch;
        request
    };
    for (request, error) in [
        (fetch("nowhere", 0, 0, 0), UnknownTopicOrPartition),
        (fetch("orders", 1, 0, 0), UnknownTopicOrPartition),
        (fetch("orders", -1, 0, 0), UnknownTopicOrPartition),
        (wanted(2, -1), OffsetOutOfRange),
        (wanted(-5, -1), OffsetOutOfRange),
        (wanted(0, epoch - 1), FencedLeaderEpoch),
        (wanted(0, epoch + 1), UnknownLeaderEpoch),
    ] {
        let response = client.ask(12, &request).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, error.code());
        assert_eq!(partition.high_watermark, -1);
        assert!(partition.records.as_ref().is_none_or(|records| records.is_empty()));
    }
    let fine = client.ask(12, &wanted(0, epoch)).await;
    assert_eq!(values(&fine), ["a"]);
    let mut by_id = fetch("", 0, 0, 0);
    by_id.topics[0].topic_id = uuid::Uuid::from_u128(9);
    let response = client.ask(13, &by_id).await;
    assert_eq!(response.responses[0].partitions[0].error_code, UnknownTopicId.code());
}

/// KIP-595: a reader that sends the epoch of its last record receives the end of that epoch.
#[tokio::test]
async fn reader_with_a_diverging_epoch_receives_its_end() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let id = client.create("orders", 1, &[]).await;
    client.put("orders", 0, &["a", "b"]).await;
    let epoch = node.leader_epoch("orders");
    let wanted = |offset: i64, last_epoch: i32| {
        let mut request = fetch("orders", 0, offset, 30_000);
        request.topics[0].partitions[0].last_fetched_epoch = last_epoch;
        request
    };
    for version in [12, 18] {
        let named = |mut request: FetchRequest| {
            if version >= 13 {
                request.topics[0].topic = Default::default();
                request.topics[0].topic_id = id;
            }
            request
        };
        let response = client.ask(version, &named(wanted(1, epoch))).await;
        assert_eq!(values(&response), ["a", "b"]);

        let response = client.ask(version, &named(wanted(1, epoch - 1))).await;
        let partition = &response.responses[0].partitions[0];
        assert!(values(&response).is_empty());
        assert_eq!((partition.error_code, partition.high_watermark), (0, 2));
        let told = &partition.diverging_epoch;
        assert_eq!((told.epoch, told.end_offset), (epoch - 1, 0));

        let response = client.ask(version, &named(wanted(1, epoch + 1))).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, OffsetOutOfRange.code());
    }
    // Before version 12 the request has no last epoch, and nothing is checked.
    assert_eq!(values(&client.ask(11, &fetch("orders", 0, 0, 0)).await), ["a", "b"]);
}

#[tokio::test]
async fn a_fetch_waits_for_records_and_not_longer() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;

    let started = Instant::now();
    let response = client.ask(11, &fetch("orders", 0, 0, 200)).await;
    assert!(values(&response).is_empty());
    assert!(started.elapsed() >= Duration::from_millis(190));

    let sent = client.send(11, &fetch("orders", 0, 0, 30_000)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    node.client().await.put("orders", 0, &["now"]).await;
    let response = client.receive(sent).await;
    assert_eq!(values(&response), ["now"]);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_fetch_collects_until_it_has_its_minimum() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 2, &[]).await;
    let mut request = fetch("orders", 0, 0, 30_000).with_min_bytes(300);
    let other = request.topics[0].partitions[0].clone().with_partition(1);
    request.topics[0].partitions.push(other);
    let sent = client.send(11, &request).await;
    let mut producer = node.client().await;
    for n in 0..3 {
        producer.put("orders", n % 2, &["x".repeat(60).as_str()]).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let response = client.receive(sent).await;
    assert_eq!(values(&response).len(), 3);
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    assert_eq!(record::split(&records).count(), 2, "in one partition, one after the other");
}

fn all_of(topic: &str, partitions: i32, bytes_max: i32) -> FetchRequest {
    let partitions = (0..partitions).map(|index| {
        FetchPartition::default().with_partition(index).with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(partitions.collect());
    FetchRequest::default()
        .with_max_wait_ms(1000)
        .with_min_bytes(1)
        .with_max_bytes(bytes_max)
        .with_topics(vec![topic])
}

fn sizes(response: &FetchResponse) -> Vec<usize> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|p| p.records.as_ref().map_or(0, |records| records.len())).collect()
}

#[tokio::test]
async fn the_first_partition_gives_a_batch_whatever_the_limits_are() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 2, &[]).await;
    let value = "x".repeat(10_000);
    client.put("orders", 0, &[&value]).await;
    client.put("orders", 0, &[&value]).await;
    client.put("orders", 1, &[&value]).await;
    for bytes_max in [0, 1, 5_000] {
        let response = client.ask(11, &all_of("orders", 2, bytes_max)).await;
        let sizes = sizes(&response);
        assert!(sizes[0] > 10_000 && sizes[0] < 20_000, "{sizes:?}");
        assert_eq!(sizes[1], 0);
    }
    let response = client.ask(11, &all_of("orders", 2, 25_000)).await;
    assert!(sizes(&response)[0] > 20_000);
}

/// A consumer with a session, as the Java client keeps it.
struct Consumer {
    client: Client,
    session: i32,
    epoch: i32,
}

impl Consumer {
    async fn start(node: &Node, request: FetchRequest) -> (Self, FetchResponse) {
        let mut client = node.client().await;
        let first = request.with_session_id(0).with_session_epoch(0);
        let response = client.ask(12, &first).await;
        let session = response.session_id;
        (Self { client, session, epoch: 1 }, response)
    }

    async fn fetch(&mut self, request: FetchRequest) -> FetchResponse {
        let request = request.with_session_id(self.session).with_session_epoch(self.epoch);
        self.epoch += 1;
        self.client.ask(12, &request).await
    }
}

fn quick(mut request: FetchRequest) -> FetchRequest {
    request.max_wait_ms = 50;
    request
}

fn nothing_new() -> FetchRequest {
    quick(FetchRequest::default().with_min_bytes(1).with_max_bytes(50 << 20))
}

fn from_offset(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    quick(fetch(topic, partition, offset, 50))
}

fn indexes(response: &FetchResponse) -> Vec<i32> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.partition_index).collect()
}

#[tokio::test]
async fn fetch_session_returns_only_changed_partitions() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 100, &[]).await;
    let (mut consumer, first) =
        Consumer::start(&node, quick(all_of("orders", 100, 50 << 20))).await;
    assert_ne!(consumer.session, 0);
    assert_eq!(indexes(&first).len(), 100, "a full fetch answers every partition");

    assert!(indexes(&consumer.fetch(nothing_new()).await).is_empty());

    producer.put("orders", 42, &["a"]).await;
    let response = consumer.fetch(nothing_new()).await;
    assert_eq!(indexes(&response), [42]);
    assert_eq!(values(&response), ["a"]);

    // The client did not advance its offset, so the record is sent again, as in Kafka.
    assert_eq!(values(&consumer.fetch(nothing_new()).await), ["a"]);
    let response = consumer.fetch(from_offset("orders", 42, 1)).await;
    assert!(values(&response).is_empty());
    assert!(indexes(&consumer.fetch(nothing_new()).await).is_empty());

    producer.put("orders", 7, &["b"]).await;
    producer.put("orders", 42, &["c"]).await;
    let mut found = values(&consumer.fetch(nothing_new()).await);
    if found.len() == 1 {
        found.extend(values(&consumer.fetch(nothing_new()).await));
    }
    found.sort();
    found.dedup();
    assert_eq!(found, ["b", "c"]);
}

#[tokio::test]
async fn fetch_session_wakes_only_for_its_own_partitions() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 3, &[]).await;
    let (mut consumer, _) = Consumer::start(&node, quick(all_of("orders", 2, 50 << 20))).await;

    let waiting = nothing_new().with_max_wait_ms(300);
    let started = Instant::now();
    let (response, _) = tokio::join!(consumer.fetch(waiting), producer.put("orders", 2, &["no"]));
    assert!(values(&response).is_empty());
    assert!(started.elapsed() >= Duration::from_millis(280));

    let waiting = nothing_new().with_max_wait_ms(30_000);
    let (response, _) = tokio::join!(consumer.fetch(waiting), producer.put("orders", 1, &["yes"]));
    assert_eq!(values(&response), ["yes"]);
}

#[tokio::test]
async fn fetch_session_drops_forgotten_and_adds_new_partitions() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 2, &[]).await;
    let (mut consumer, _) = Consumer::start(&node, quick(all_of("orders", 1, 50 << 20))).await;
    producer.put("orders", 0, &["a"]).await;
    producer.put("orders", 1, &["b"]).await;

    let forgotten =
        ForgottenTopic::default().with_topic(name("orders")).with_partitions(vec![0, 9]);
    let request = from_offset("orders", 1, 0).with_forgotten_topics_data(vec![forgotten]);
    assert_eq!(values(&consumer.fetch(request).await), ["b"]);
}

#[tokio::test]
async fn session_with_full_responses_reads_all_partitions_in_turn() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 8, &[]).await;
    let value = "x".repeat(5_000);
    for index in 0..8 {
        producer.put("orders", index, &[&value]).await;
    }
    let (mut consumer, first) = Consumer::start(&node, quick(all_of("orders", 8, 6_000))).await;
    let mut heard: Vec<i32> = Vec::new();
    let take = |response: &FetchResponse, heard: &mut Vec<i32>| {
        for topic in &response.responses {
            let with_records = topic
                .partitions
                .iter()
                .filter(|p| p.records.as_ref().is_some_and(|records| !records.is_empty()));
            heard.extend(with_records.map(|partition| partition.partition_index));
        }
    };
    take(&first, &mut heard);
    for _ in 0..7 {
        let request = nothing_new().with_max_bytes(6_000);
        take(&consumer.fetch(request).await, &mut heard);
    }
    heard.sort();
    assert_eq!(heard, (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn fetch_session_follows_a_deleted_and_recreated_topic() {
    let node = Node::start().await;
    let mut producer = node.client().await;
    producer.create("orders", 1, &[]).await;
    let (mut consumer, _) = Consumer::start(&node, quick(all_of("orders", 1, 50 << 20))).await;

    let gone = DeleteTopicsRequest::default().with_topic_names(vec![name("orders")]);
    assert_eq!(producer.ask(5, &gone.with_timeout_ms(1000)).await.responses[0].error_code, 0);
    let response = consumer.fetch(nothing_new()).await;
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, UnknownTopicOrPartition.code());

    producer.create("orders", 1, &[]).await;
    producer.put("orders", 0, &["new"]).await;
    assert_eq!(values(&consumer.fetch(nothing_new()).await), ["new"]);
}

#[tokio::test]
async fn invalid_session_ids_and_epochs_are_refused() {
    let node = Node::start().await;
    node.client().await.create("orders", 1, &[]).await;
    let (mut consumer, _) = Consumer::start(&node, quick(all_of("orders", 1, 50 << 20))).await;

    let session = consumer.session;
    consumer.session = session + 1000;
    assert_eq!(consumer.fetch(nothing_new()).await.error_code, FetchSessionIdNotFound.code());
    consumer.session = session;
    consumer.epoch = 7;
    assert_eq!(consumer.fetch(nothing_new()).await.error_code, InvalidFetchSessionEpoch.code());
    let by_id = nothing_new().with_session_id(session).with_session_epoch(1);
    let response = consumer.client.ask(13, &by_id).await;
    assert_eq!(response.error_code, FetchSessionTopicIdError.code());
    consumer.epoch = 1;
    assert_eq!(consumer.fetch(nothing_new()).await.error_code, 0);

    // Closed by its client.
    let last = quick(all_of("orders", 1, 1)).with_session_id(session).with_session_epoch(-1);
    assert_eq!(consumer.client.ask(12, &last).await.session_id, 0);
    assert_eq!(consumer.fetch(nothing_new()).await.error_code, FetchSessionIdNotFound.code());
}

#[tokio::test]
async fn fetch_works_without_a_session_when_the_cache_is_full() {
    let node = Node::with(|options| options.fetch_sessions_max = 1).await;
    let mut producer = node.client().await;
    producer.create("orders", 1, &[]).await;
    producer.put("orders", 0, &["a"]).await;
    let (one, _) = Consumer::start(&node, all_of("orders", 1, 50 << 20)).await;
    assert_ne!(one.session, 0);
    let (two, response) = Consumer::start(&node, all_of("orders", 1, 50 << 20)).await;
    assert_eq!(two.session, 0);
    assert_eq!(values(&response), ["a"]);

    // Closing the connection drops its sessions.
    drop(one);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (three, _) = Consumer::start(&node, all_of("orders", 1, 50 << 20)).await;
    assert_ne!(three.session, 0);
}
