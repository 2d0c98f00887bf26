//! One topic, several protocols: records written by another protocol, and that protocol's view of messages.

use std::collections::BTreeMap;

use base::topics::AUDIT;
use base::{PartitionId, TopicId};
use broker::{AppendBatch, NewTopic};
use bytes::BytesMut;
use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;
use gateway_amqp::codec::table::FieldValue;
use record::{Batch, BatchBuilder, BatchHeader, BatchOptions, Header};
use world::{Entropy, OsEntropy};

use crate::harness::{Node, table};

/// Creates a topic as Kafka's clients do.
pub(crate) async fn topic(node: &Node, name: &str, partitions: u32) -> TopicId {
    let uuid = OsEntropy.uuid();
    // The test's records are years old.
    let config = BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]);
    let name = name.to_owned();
    let topic = NewTopic { name, uuid, partitions, config };
    node.broker.create_topic(topic).await.expect("is made")
}

async fn produce(node: &Node, partition: PartitionId, key: Option<&[u8]>, value: &[u8]) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let headers = [Header { key: b"trace", value: Some(b"t1") }];
    builder.push(1_700_000_000_123, key, Some(value), &headers).expect("fits");
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let batch = AppendBatch::new(partition, header, bytes);
    node.broker.append(vec![batch]).await.remove(0).expect("is appended");
}

#[tokio::test]
async fn kafka_topic_is_consumed_as_a_queue() {
    let node = Node::start().await;
    let topic = topic(&node, "orders", 3).await;
    for (index, value) in ["a", "b", "c"].iter().enumerate() {
        let partition = PartitionId::new(topic, index as u32);
        produce(&node, partition, Some(b"k"), value.as_bytes()).await;
    }
    let mut client = node.client().await;
    assert_eq!(client.queue_counts("orders").await.messages, 3);
    client.consume(1, "orders", "tag").await;
    let mut texts = Vec::new();
    for _ in 0..3 {
        let message = client.next(1).await;
        let deliver = message.deliver();
        assert_eq!((deliver.exchange, deliver.routing_key), ("", "orders"));
        assert_eq!(message.header("trace").as_ref().and_then(FieldValue::as_str), Some("t1"));
        assert_eq!(message.header("postroad.key").as_ref().and_then(FieldValue::as_str), Some("k"));
        assert_eq!(message.properties().timestamp, Some(1_700_000_000));
        texts.push(message.text());
    }
    texts.sort();
    assert_eq!(texts, ["a", "b", "c"]);
    client.ack(1, 3, true).await;
    assert_eq!(client.queue_counts("orders").await.messages, 0);
}

#[tokio::test]
async fn published_message_is_a_readable_record() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("orders").await;
    client.select_confirms(1).await;
    let headers =
        table(&[("tenant", "acme".into()), ("n", 7.into()), ("postroad.key", "k1".into())]);
    let properties = Properties {
        content_type: Some(b"text/plain"),
        headers: Some(EncodedTable(&headers)),
        delivery_mode: Some(2),
        ..Properties::default()
    };
    let publish = BasicPublish { routing_key: "orders", ..BasicPublish::default() };
    client.publish_with(1, publish, &properties, b"body").await;
    client.confirmed_up_to(1, 1).await;

    let topic = node.broker.catalog().topic_id("orders");
    let partition = PartitionId::new(topic.expect("the queue is the topic"), 0);
    let read = node.broker.read_raw_batches(partition, 0, 1 << 20).await.expect("reads");
    let batch = Batch::decode(&read.records[0].bytes).expect("a batch");
    let record = batch.records().next().expect("one").expect("sound");
    assert_eq!((record.key, record.value), (Some(&b"k1"[..]), Some(&b"body"[..])));
    for (name, value) in [
        ("amqp.routing-key", "orders"),
        ("amqp.content-type", "text/plain"),
        ("amqp.delivery-mode", "2"),
        ("tenant", "acme"),
        ("n", "7"),
    ] {
        let found = record.headers.last(name.as_bytes()).flatten();
        assert_eq!(found, Some(value.as_bytes()), "{name}");
    }
}

/// The W3C's Trace Context of a Kafka record and of a message, each read by the other protocol.
#[tokio::test]
async fn trace_context_crosses_protocols() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
    let node = Node::start().await;
    let topic = topic(&node, "orders", 1).await;
    let partition = PartitionId::new(topic, 0);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let header = |key, value: &'static str| Header { key, value: Some(value.as_bytes()) };
    let headers = [header(b"traceparent", PARENT), header(b"tracestate", STATE)];
    builder.push(1_700_000_000_123, None, Some(b"of Kafka"), &headers).expect("fits");
    let bytes = BytesMut::from(&builder.finish()[..]);
    let batch = AppendBatch::new(partition, BatchHeader::parse(&bytes).expect("a batch"), bytes);
    node.broker.append(vec![batch]).await.remove(0).expect("is appended");

    let mut client = node.client().await;
    client.select_confirms(1).await;
    let headers = table(&[("traceparent", PARENT.into()), ("tracestate", STATE.into())]);
    let properties = Properties { headers: Some(EncodedTable(&headers)), ..Properties::default() };
    let publish = BasicPublish { routing_key: "orders", ..BasicPublish::default() };
    client.publish_with(1, publish, &properties, b"of AMQP").await;
    client.confirmed_up_to(1, 1).await;
    client.consume(1, "orders", "tag").await;
    for text in ["of Kafka", "of AMQP"] {
        let message = client.next(1).await;
        assert_eq!(message.text(), text);
        for (name, value) in [("traceparent", PARENT), ("tracestate", STATE)] {
            assert_eq!(message.header(name).as_ref().and_then(FieldValue::as_str), Some(value));
        }
    }
    let read = node.broker.read_raw_batches(partition, 1, 1 << 20).await.expect("reads");
    let batch = Batch::decode(&read.records[0].bytes).expect("a batch");
    let record = batch.records().next().expect("one").expect("sound");
    for (name, value) in [("traceparent", PARENT), ("tracestate", STATE)] {
        assert_eq!(record.headers.last(name.as_bytes()).flatten(), Some(value.as_bytes()));
    }
}

#[tokio::test]
async fn key_header_selects_the_partition() {
    let node = Node::start().await;
    let topic = topic(&node, "many", 4).await;
    let mut client = node.client().await;
    client.select_confirms(1).await;
    let headers = table(&[("postroad.key", "foobar".into())]);
    let properties = Properties { headers: Some(EncodedTable(&headers)), ..Properties::default() };
    for tag in 1..=3 {
        let publish = BasicPublish { routing_key: "many", ..BasicPublish::default() };
        client.publish_with(1, publish, &properties, b"x").await;
        client.confirmed_up_to(1, tag).await;
    }
    let ends: Vec<u64> = (0..4)
        .map(|index| node.broker.bounds(PartitionId::new(topic, index)).expect("is there").end)
        .collect();
    let expected = record::partition_of_key(b"foobar", 4) as usize;
    assert_eq!(ends[expected], 3, "{ends:?}");
}

#[tokio::test]
async fn dead_letters_never_go_to_internal_topics() {
    let node = Node::start().await;
    let audit = node.broker.internal_topic_partition(AUDIT, -1, -1).await.expect("is created");
    let mut client = node.client().await;
    client.declare("graves").await;
    for (queue, target) in [("forger", AUDIT), ("other", "graves")] {
        let dead =
            [("x-dead-letter-exchange", "".into()), ("x-dead-letter-routing-key", target.into())];
        client.declare_with(queue, &dead).await;
        client.fill(queue, &["dead"]).await;
        client.consume(1, queue, queue).await;
        let tag = client.next(1).await.deliver().delivery_tag;
        client.nack(1, tag, false).await;
    }
    // The letter that was rejected later has arrived.
    client.consume(1, "graves", "graves").await;
    assert_eq!(client.next(1).await.text(), "dead");
    let bounds = node.broker.bounds_of(audit).await.expect("is known");
    assert_eq!(bounds.map_or(0, |bounds| bounds.end), 0);
}
