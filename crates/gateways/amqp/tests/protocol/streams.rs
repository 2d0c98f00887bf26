//! Consumers by offset: every consumer reads all records from its start offset.

use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;
use gateway_amqp::codec::table::FieldValue;

use crate::harness::{Client, Node, table};

async fn stream(node: &Node, texts: &[&str]) -> Client {
    let mut client = node.client().await;
    client.declare_with("s", &[("x-queue-type", "stream".into())]).await;
    client.select_confirms(1).await;
    for (number, text) in texts.iter().enumerate() {
        client.publish(1, "", "s", text.as_bytes()).await;
        client.confirmed_up_to(1, number as u64 + 1).await;
    }
    client
}

async fn read_from(node: &Node, from: Option<FieldValue>) -> Client {
    let mut client = node.client().await;
    client.prefetch(1, 10, false).await;
    let consume = BasicConsume { queue: "s", consumer_tag: "tag", ..BasicConsume::default() };
    let arguments: Vec<_> = from.map(|from| ("x-stream-offset", from)).into_iter().collect();
    client.consume_with(1, consume, &arguments).await;
    client
}

#[tokio::test]
async fn stream_is_read_from_the_requested_offset() {
    let node = Node::start().await;
    let mut publisher = stream(&node, &["a", "b", "c"]).await;
    for (from, expected) in [
        (Some("first".into()), &["a", "b", "c", "d"][..]),
        (Some(FieldValue::I64(1)), &["b", "c", "d"]),
        (Some("last".into()), &["c", "d"]),
        (Some(FieldValue::Timestamp(0)), &["a", "b", "c", "d"]),
        (Some("next".into()), &["d"]),
        (None, &["d"]),
    ] {
        let mut reader = read_from(&node, from.clone()).await;
        let sent = if expected.last() == Some(&"d") { 1 } else { 0 };
        let before = expected.len() - sent;
        let mut offsets = Vec::new();
        for text in &expected[..before] {
            let message = reader.next(1).await;
            assert_eq!(message.text(), *text, "{from:?}");
            offsets.push(message.header("x-stream-offset").and_then(|at| at.as_integer()));
        }
        let begins = 3 - before as i64;
        let wanted: Vec<_> = (begins..3).map(Some).collect();
        assert_eq!(offsets, wanted, "{from:?}");
        reader.is_silent().await;
        reader.close().await;
    }
    // New records reach every reader.
    let (mut one, mut two) =
        (read_from(&node, None).await, read_from(&node, Some("next".into())).await);
    publisher.publish(1, "", "s", b"d").await;
    assert_eq!(one.texts(1, 1).await, ["d"]);
    assert_eq!(two.texts(1, 1).await, ["d"]);
}

#[tokio::test]
async fn acknowledgement_returns_credit_for_another_record() {
    let node = Node::start().await;
    stream(&node, &["a", "b", "c"]).await;
    let mut reader = node.client().await;
    reader.prefetch(1, 2, false).await;
    let consume = BasicConsume { queue: "s", consumer_tag: "tag", ..BasicConsume::default() };
    reader.consume_with(1, consume, &[("x-stream-offset", "first".into())]).await;
    assert_eq!(reader.texts(1, 2).await, ["a", "b"]);
    reader.is_silent().await;
    reader.ack(1, 1, false).await;
    assert_eq!(reader.texts(1, 1).await, ["c"]);
}

#[tokio::test]
async fn unsupported_stream_operations_are_rejected() {
    let node = Node::start().await;
    let mut client = stream(&node, &["a"]).await;
    client.open_channel(2).await;
    client.send(2, BasicConsume { queue: "s", ..BasicConsume::default() }).await;
    let text = "PRECONDITION_FAILED - consumer prefetch count is not set for stream queue 's' in vhost '/'";
    client.channel_closes(2, text).await;
    client.open_channel(3).await;
    client.send(3, BasicConsume { queue: "s", no_ack: true, ..BasicConsume::default() }).await;
    client.channel_closes(3, text).await;
    let text = "NOT_IMPLEMENTED - basic.get not supported by stream queues queue 's' in vhost '/'";
    client.send(1, BasicGet { queue: "s", ..BasicGet::default() }).await;
    client.connection_closes(540, text).await;
    let mut client = node.client().await;
    client.send(1, QueuePurge { queue: "s", ..QueuePurge::default() }).await;
    let text =
        "NOT_IMPLEMENTED - queue.purge not supported by stream queues queue 's' in vhost '/'";
    client.connection_closes(540, text).await;
}

#[tokio::test]
async fn stream_consumer_is_cancelled_when_its_stream_is_deleted() {
    let node = Node::start().await;
    let mut publisher = stream(&node, &[]).await;
    let mut reader = read_from(&node, None).await;
    publisher.call(1, QueueDelete { queue: "s", ..QueueDelete::default() }).await;
    let came = reader.method(1).await;
    assert!(matches!(came.method(), Method::BasicCancel(cancel) if cancel.consumer_tag == "tag"));
}

#[tokio::test]
async fn queue_with_consumers_can_be_read_by_offset() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("s").await;
    client.fill("s", &["a", "b"]).await;
    client.consume(1, "s", "consumer").await;
    client.texts(1, 2).await;
    let mut reader = read_from(&node, Some("first".into())).await;
    assert_eq!(reader.texts(1, 2).await, ["a", "b"]);
}

#[tokio::test]
async fn stream_filter_selects_records() {
    let node = Node::start().await;
    let mut client = stream(&node, &["none"]).await;
    for (tag, (value, text)) in [("x", "a"), ("y", "b"), ("x", "c")].iter().enumerate() {
        let headers = table(&[("x-stream-filter-value", (*value).into())]);
        let properties =
            Properties { headers: Some(EncodedTable(&headers)), ..Properties::default() };
        let publish = BasicPublish { routing_key: "s", ..BasicPublish::default() };
        client.publish_with(1, publish, &properties, text.as_bytes()).await;
        client.confirmed_up_to(1, tag as u64 + 2).await;
    }
    client.prefetch(1, 10, false).await;
    let consume = BasicConsume { queue: "s", consumer_tag: "tag", ..BasicConsume::default() };
    let first = ("x-stream-offset", "first".into());
    client.consume_with(1, consume, &[first, ("x-stream-filter", "x".into())]).await;
    assert_eq!(client.texts(1, 2).await, ["a", "c"]);
    client.is_silent().await;
}
