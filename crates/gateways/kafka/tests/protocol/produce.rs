//! Produce: every version, and every refusal.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError::{self, *};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{InitProducerIdRequest, MetadataRequest};
use record::{BatchOptions, Compression};
use tokio::time::Instant;
use world::SimulatedDisk;

use crate::harness::*;

fn is_refused(answer: &PartitionProduceResponse, error: ResponseError) {
    assert_eq!(answer.error_code, error.code(), "{:?}", answer.error_message);
    assert_eq!(answer.base_offset, -1);
    assert!(answer.error_message.as_ref().is_some_and(|message| !message.is_empty()));
}

#[tokio::test]
async fn every_version_appends() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let id = client.create("orders", 2, &[]).await;
    for version in 3..=13 {
        let mut request = produce("orders", 1, -1, batch(&["a", "b"]).into());
        if version >= 13 {
            request.topic_data[0].name = Default::default();
            request.topic_data[0].topic_id = id;
        }
        let answer = only_partition(client.ask(version, &request).await);
        assert_eq!(answer.error_code, 0);
        assert_eq!(answer.base_offset, i64::from(version - 3) * 2, "version {version}");
        assert_eq!(answer.log_append_time_ms, -1);
    }
    assert_eq!(client.get("orders", 1, 0).await.len(), 22);
    assert!(client.get("orders", 0, 0).await.is_empty());
}

#[tokio::test]
async fn many_partitions_of_many_topics_are_answered_in_the_order_of_the_request() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("a", 3, &[]).await;
    client.create("b", 3, &[]).await;
    let mut request = produce("b", 2, -1, batch(&["x"]).into());
    let template = request.topic_data[0].partition_data[0].clone();
    request.topic_data[0].partition_data.push(template.clone().with_index(7));
    request.topic_data[0].partition_data.push(template.clone().with_index(0));
    request.topic_data.push(produce("nowhere", 0, -1, batch(&["x"]).into()).topic_data.remove(0));
    request.topic_data.push(produce("a", 1, -1, batch(&["x"]).into()).topic_data.remove(0));
    let response = client.ask(9, &request).await;
    let codes: Vec<_> = response
        .responses
        .iter()
        .map(|topic| {
            let codes = topic.partition_responses.iter().map(|p| (p.index, p.error_code));
            (topic.name.to_string(), codes.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(
        codes,
        [
            ("b".to_owned(), vec![(2, 0), (7, 3), (0, 0)]),
            ("nowhere".to_owned(), vec![(0, 3)]),
            ("a".to_owned(), vec![(1, 0)]),
        ]
    );
}

#[tokio::test]
async fn without_acks_there_is_no_response_and_the_records_are_there() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    for n in 0..10 {
        client.tell(9, &produce("orders", 0, 0, batch(&[&n.to_string()]).into())).await;
    }
    let response = client.ask(12, &MetadataRequest::default()).await;
    assert_eq!(response.brokers.len(), 1);
    assert_eq!(client.get("orders", 0, 0).await.len(), 10);
}

#[tokio::test]
async fn without_acks_a_refusal_closes_the_connection() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.tell(9, &produce("nowhere", 0, 0, batch(&["a"]).into())).await;
    client.is_cut_off().await;
}

#[tokio::test]
async fn produce_to_an_unknown_partition_is_refused() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    for (topic, partition) in [("orders", 1), ("orders", -1), ("nowhere", 0)] {
        let answer = client.produce(topic, partition, batch(&["a"])).await;
        is_refused(&answer, UnknownTopicOrPartition);
    }
    let mut by_id = produce("", 0, -1, batch(&["a"]).into());
    by_id.topic_data[0].topic_id = uuid::Uuid::from_u128(7);
    is_refused(&only_partition(client.ask(13, &by_id).await), UnknownTopicId);
}

#[tokio::test]
async fn acks_other_than_all_one_and_none_are_refused() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    for acks in [2, -2, i16::MAX] {
        let request = produce("orders", 0, acks, batch(&["a"]).into());
        is_refused(&only_partition(client.ask(9, &request).await), InvalidRequiredAcks);
    }
}

#[tokio::test]
async fn invalid_batches_are_refused_with_a_reason() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;

    let good = batch(&["a", "b"]);
    let mut corrupt = good.clone();
    *corrupt.last_mut().unwrap() ^= 1;
    is_refused(&client.produce("orders", 0, corrupt).await, CorruptMessage);

    let twice = [good.clone(), good.clone()].concat();
    is_refused(&client.produce("orders", 0, twice).await, InvalidRecord);
    is_refused(&client.produce("orders", 0, Bytes::new()).await, InvalidRecord);

    let cut = good[..good.len() - 1].to_vec();
    is_refused(&client.produce("orders", 0, cut).await, CorruptMessage);

    let mut legacy = good.clone();
    legacy[16] = 1;
    is_refused(&client.produce("orders", 0, legacy).await, UnsupportedForMessageFormat);

    let mut null = produce("orders", 0, -1, Bytes::new());
    null.topic_data[0].partition_data[0].records = None;
    is_refused(&only_partition(client.ask(9, &null).await), InvalidRecord);

    assert_eq!(client.put("orders", 0, &["good"]).await, 0, "nothing of it was appended");
}

/// Indexes of the records that a response names as invalid.
fn named_in(answer: &PartitionProduceResponse) -> Vec<i32> {
    answer.record_errors.iter().map(|record| record.batch_index).collect()
}

#[tokio::test]
async fn batches_against_the_topics_configuration_are_refused() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("small", 1, &[("max.message.bytes", "200")]).await;
    let large = "x".repeat(300);
    is_refused(&client.produce("small", 0, batch(&[&large])).await, MessageTooLarge);
    assert_eq!(client.put("small", 0, &["fits"]).await, 0);

    client.create("keyed", 1, &[("cleanup.policy", "compact")]).await;
    let records: Vec<_> = (0..100).map(|at| ((at % 10 != 3).then_some("k"), "v")).collect();
    for compression in [Compression::None, Compression::Zstd] {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        let answer = client.produce("keyed", 0, batch_of(options, &records)).await;
        is_refused(&answer, InvalidRecord);
        assert_eq!(named_in(&answer), (0..10).map(|ten| 10 * ten + 3).collect::<Vec<_>>());
        let message = answer.record_errors[1].batch_index_error_message.as_deref();
        assert_eq!(message, Some("record 13 has no key, and its topic is compacted by key"));
    }

    client.create("replicated", 1, &[("min.insync.replicas", "2")]).await;
    is_refused(&client.produce("replicated", 0, batch(&["a"])).await, NotEnoughReplicas);
    let one = client.ask(9, &produce("replicated", 0, 1, batch(&["a"]).into())).await;
    assert_eq!(only_partition(one).error_code, 0);

    client.create("punctual", 1, &[("message.timestamp.before.max.ms", "1000")]).await;
    let answer = client.produce("punctual", 0, batch(&["old"])).await;
    is_refused(&answer, InvalidTimestamp);
    assert_eq!(named_in(&answer), [0]);

    let strict = [("cleanup.policy", "compact"), ("message.timestamp.before.max.ms", "1000")];
    client.create("strict", 1, &strict).await;
    let answer = client.produce("strict", 0, batch_of(BatchOptions::default(), &records)).await;
    is_refused(&answer, InvalidTimestamp);
    assert_eq!(named_in(&answer), (0..100).collect::<Vec<_>>(), "by either rule");
}

#[tokio::test]
async fn log_append_time_and_compression_are_the_topics_choice() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let config = [("message.timestamp.type", "LogAppendTime"), ("compression.type", "lz4")];
    client.create("stamped", 1, &config).await;
    let before = node.broker.clock().now_ms();
    for compression in Compression::ALL {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        let answer =
            client.produce("stamped", 0, batch_of(options, &[(None, "a"), (None, "b")])).await;
        assert_eq!(answer.error_code, 0);
        assert!(answer.log_append_time_ms >= before);
    }
    let response = client.ask(11, &fetch("stamped", 0, 0, 0)).await;
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    let mut batches = 0;
    for split in record::split(&records) {
        let (header, place) = split.unwrap();
        record::verify_checksum(&records[place]).unwrap();
        assert_eq!(header.attributes.compression(), Compression::Lz4);
        assert!(header.max_timestamp >= before);
        batches += 1;
    }
    assert_eq!(batches, 5);
    assert_eq!(values(&response).len(), 10);
}

#[tokio::test]
async fn zstd_is_refused_before_produce_version_7() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
    let bytes: Bytes = batch_of(options, &[(None, "a")]).into();
    let old = client.ask(6, &produce("orders", 0, -1, bytes.clone())).await;
    assert_eq!(only_partition(old).error_code, UnsupportedCompressionType.code());
    let new = client.ask(7, &produce("orders", 0, -1, bytes)).await;
    assert_eq!(only_partition(new).error_code, 0);
}

#[tokio::test]
async fn produce_is_answered_at_its_timeout_and_a_retry_is_recognised() {
    let disk = Arc::new(SimulatedDisk::new());
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let id = client.ask(4, &InitProducerIdRequest::default().with_transactional_id(None)).await;
    let options = BatchOptions {
        producer_id: id.producer_id.0,
        producer_epoch: id.producer_epoch,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    let bytes: Bytes = batch_of(options, &[(None, "a"), (None, "b")]).into();
    let patient = produce("orders", 0, -1, bytes.clone());
    let hasty = patient.clone().with_timeout_ms(1_200);

    disk.hang_syncs(true);
    let begun = Instant::now();
    is_refused(&only_partition(client.ask(9, &hasty).await), RequestTimedOut);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1_200) && took < Duration::from_secs(5), "{took:?}");
    // A request that timed out does not delay the next one of its connection.
    client.tell(9, &produce("orders", 0, 0, batch(&["c"]).into()).with_timeout_ms(1_000)).await;
    let begun = Instant::now();
    client.ask(12, &MetadataRequest::default()).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());

    disk.hang_syncs(false);
    let retried = only_partition(client.ask(9, &patient).await);
    assert_eq!((retried.error_code, retried.base_offset), (0, 0));
    assert_eq!(client.get("orders", 0, 0).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn an_idempotent_producers_retries_are_recognised() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let id = client.ask(4, &InitProducerIdRequest::default().with_transactional_id(None)).await;
    assert_eq!(id.error_code, 0);
    let numbered = |sequence: i32, epoch: i16| {
        let options = BatchOptions {
            producer_id: id.producer_id.0,
            producer_epoch: epoch,
            base_sequence: sequence,
            ..BatchOptions::default()
        };
        batch_of(options, &[(None, "a"), (None, "b")])
    };
    let epoch = id.producer_epoch;
    assert_eq!(client.produce("orders", 0, numbered(0, epoch)).await.base_offset, 0);
    assert_eq!(client.produce("orders", 0, numbered(2, epoch)).await.base_offset, 2);
    let retried = client.produce("orders", 0, numbered(0, epoch)).await;
    assert_eq!((retried.error_code, retried.base_offset), (0, 0));
    let gap = client.produce("orders", 0, numbered(8, epoch)).await;
    is_refused(&gap, OutOfOrderSequenceNumber);
    assert_eq!(client.get("orders", 0, 0).await.len(), 4);
}

#[tokio::test]
async fn a_large_request_goes_through() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 16, &[]).await;
    let value = "x".repeat(900_000);
    let mut request = produce("orders", 0, -1, batch(&[&value]).into());
    let template = request.topic_data[0].partition_data[0].clone();
    for index in 1..16 {
        request.topic_data[0].partition_data.push(template.clone().with_index(index));
    }
    let response = tokio::time::timeout(Duration::from_secs(10), client.ask(9, &request));
    let response = response.await.unwrap();
    let partitions = &response.responses[0].partition_responses;
    assert!(partitions.iter().all(|partition| partition.error_code == 0));
    let again = client.ask(9, &request).await;
    assert!(again.responses[0].partition_responses.iter().all(|p| p.base_offset == 1));
}
