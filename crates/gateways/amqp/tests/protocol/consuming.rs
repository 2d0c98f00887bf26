//! Consuming: distribution of messages, prefetch, and the effect of acknowledgements.

use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;
use gateway_amqp::codec::table::FieldValue;

use gateway::Connections;

use crate::harness::{Client, Node, table};

async fn with_queue(node: &Node, queue: &str, texts: &[&str]) -> Client {
    let mut client = node.client().await;
    client.declare(queue).await;
    client.fill(queue, texts).await;
    client
}

#[tokio::test]
async fn deliveries_are_numbered_and_come_in_order() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &["a", "b", "c"]).await;
    client.consume(1, "q", "tag").await;
    for (number, text) in ["a", "b", "c"].iter().enumerate() {
        let message = client.next(1).await;
        let deliver = message.deliver();
        assert_eq!((deliver.consumer_tag, deliver.delivery_tag), ("tag", number as u64 + 1));
        assert_eq!((deliver.exchange, deliver.routing_key), ("", "q"));
        assert!(!deliver.redelivered);
        assert_eq!(message.text(), *text);
    }
    client.ack(1, 3, true).await;
    assert_eq!(client.queue_counts("q").await.messages, 0);
    client.publish(1, "", "q", b"d").await;
    assert_eq!(client.next(1).await.text(), "d");
}

#[tokio::test]
async fn bytes_delivered_to_a_client_are_counted() {
    let connections = Connections::default();
    let node = Node::with(|options| options.connections = connections.clone()).await;
    let seen = || connections.traffic_seen()[0].1.bytes_delivered;
    let text = "x".repeat(1000);
    let mut client = with_queue(&node, "q", &[&text, &text]).await;
    assert_eq!(seen(), 0);
    // The stored record is larger than its body.
    let of_one = 1000..1100;
    client.get(1, "q").await.expect("it is there");
    let got = seen();
    assert!(of_one.contains(&got), "{got}");
    client.consume(1, "q", "tag").await;
    client.next(1).await;
    assert_eq!(seen(), 2 * got);
    client.nack(1, 2, true).await;
    client.next(1).await;
    assert_eq!(seen(), 3 * got, "it came again");
    // A consumer by offset leaves the record in its place.
    client.declare_with("s", &[("x-queue-type", "stream".into())]).await;
    client.fill("s", &[&text]).await;
    let mut reader = node.client().await;
    reader.prefetch(1, 10, false).await;
    let consume = BasicConsume { queue: "s", consumer_tag: "tag", ..BasicConsume::default() };
    reader.consume_with(1, consume, &[("x-stream-offset", "first".into())]).await;
    reader.next(1).await;
    assert!(of_one.contains(&(seen() - 3 * got)), "{}", seen());
}

#[tokio::test]
async fn unacknowledged_deliveries_never_exceed_the_prefetch() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &["a", "b", "c", "d", "e"]).await;
    client.prefetch(1, 2, false).await;
    client.consume(1, "q", "tag").await;
    assert_eq!(client.texts(1, 2).await, ["a", "b"]);
    client.is_silent().await;
    client.ack(1, 1, false).await;
    assert_eq!(client.texts(1, 1).await, ["c"]);
    client.is_silent().await;
    client.ack(1, 0, true).await;
    assert_eq!(client.texts(1, 2).await, ["d", "e"]);
}

#[tokio::test]
async fn global_prefetch_limits_all_consumers_of_a_channel_together() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "p", &["a", "b", "c"]).await;
    client.declare("q").await;
    client.fill("q", &["d", "e", "f"]).await;
    client.prefetch(1, 3, true).await;
    client.consume(1, "p", "first").await;
    client.texts(1, 3).await;
    client.consume(1, "q", "second").await;
    client.is_silent().await;
    client.ack(1, 2, true).await;
    client.texts(1, 2).await;
    client.is_silent().await;
}

#[tokio::test]
async fn nacked_message_is_redelivered_and_marked_so() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &["a", "b", "c"]).await;
    client.prefetch(1, 3, false).await;
    client.consume(1, "q", "tag").await;
    client.texts(1, 3).await;
    client.nack(1, 2, true).await;
    let again = client.next(1).await;
    assert_eq!((again.text().as_str(), again.deliver().redelivered), ("b", true));
    assert_eq!(again.deliver().delivery_tag, 4);
    client.send(1, BasicReject { delivery_tag: 1, ..BasicReject::default() }).await;
    client.ack(1, 4, true).await;
    assert_eq!(client.queue_counts("q").await.messages, 0);
}

#[tokio::test]
async fn recover_redelivers_all_unacknowledged_messages() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &["a", "b"]).await;
    client.consume(1, "q", "tag").await;
    client.texts(1, 2).await;
    client.send(1, BasicRecover { requeue: true, ..BasicRecover::default() }).await;
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicRecoverOk(_)));
    for text in ["a", "b"] {
        let again = client.next(1).await;
        assert_eq!((again.text().as_str(), again.deliver().redelivered), (text, true));
    }
    // Delivery tags from before the recover are invalid.
    client.ack(1, 2, true).await;
    client.channel_closes(1, "PRECONDITION_FAILED - unknown delivery tag 2").await;
}

#[tokio::test]
async fn cancelled_consumer_gets_no_deliveries_but_may_acknowledge_earlier_ones() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &["a"]).await;
    client.consume(1, "q", "tag").await;
    client.texts(1, 1).await;
    client.call(1, BasicCancel { consumer_tag: "tag", ..BasicCancel::default() }).await;
    client.fill("q", &["b"]).await;
    client.is_silent().await;
    client.ack(1, 1, false).await;
    let counts = client.queue_counts("q").await;
    assert_eq!((counts.messages, counts.consumers), (1, 0));
    // Cancelling an unknown consumer succeeds.
    let came = client.call(1, BasicCancel { consumer_tag: "tag", ..BasicCancel::default() }).await;
    assert!(matches!(came.method(), Method::BasicCancelOk(_)));
}

#[tokio::test]
async fn consumer_is_cancelled_when_its_queue_is_deleted() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &[]).await;
    client.consume(1, "q", "tag").await;
    let mut other = node.client().await;
    other.call(1, QueueDelete { queue: "q", ..QueueDelete::default() }).await;
    let came = client.method(1).await;
    let Method::BasicCancel(cancel) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!((cancel.consumer_tag, cancel.no_wait), ("tag", true));
    client.declare("q").await;
    client.consume(1, "q", "tag").await;
}

#[tokio::test]
async fn consumer_tags_are_unique_per_channel_and_generated_when_empty() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &[]).await;
    client.consume(1, "q", "tag").await;
    client.open_channel(2).await;
    client.consume(2, "q", "tag").await;
    let came = client.call(1, BasicConsume { queue: "q", ..BasicConsume::default() }).await;
    let Method::BasicConsumeOk(ok) = came.method() else { panic!("{:?}", came.method()) };
    assert!(ok.consumer_tag.starts_with("amq.ctag-"), "{}", ok.consumer_tag);
    let again = BasicConsume { queue: "q", consumer_tag: "tag", ..BasicConsume::default() };
    client.send(1, again).await;
    client.connection_closes(530, "NOT_ALLOWED - attempt to reuse consumer tag 'tag'").await;
}

#[tokio::test]
async fn exclusive_consumer_excludes_others() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &[]).await;
    let alone = BasicConsume { queue: "q", exclusive: true, ..BasicConsume::default() };
    client.consume_with(1, alone, &[]).await;
    let mut other = node.client().await;
    let text = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use";
    other.refuses(1, BasicConsume { queue: "q", ..BasicConsume::default() }, text).await;
    client.close_channel(1).await;
    other.consume(1, "q", "tag").await;
    other.open_channel(2).await;
    other.send(2, alone).await;
    other.channel_closes(2, text).await;
}

#[tokio::test]
async fn consumer_with_the_highest_priority_is_served_first() {
    let node = Node::start().await;
    let (mut low, mut high) = (with_queue(&node, "q", &[]).await, node.client().await);
    for (client, priority) in [(&mut low, 1), (&mut high, 10)] {
        client.prefetch(1, 1, false).await;
        let consume = BasicConsume { queue: "q", consumer_tag: "c", ..BasicConsume::default() };
        client.consume_with(1, consume, &[("x-priority", priority.into())]).await;
    }
    let mut publisher = node.client().await;
    publisher.fill("q", &["a", "b", "c"]).await;
    assert_eq!(high.texts(1, 1).await, ["a"]);
    assert_eq!(low.texts(1, 1).await, ["b"]);
    high.ack(1, 1, false).await;
    assert_eq!(high.texts(1, 1).await, ["c"]);
    low.is_silent().await;
}

#[tokio::test]
async fn single_active_consumer_fails_over_to_the_next() {
    let node = Node::start().await;
    let (mut first, mut second) = (node.client().await, node.client().await);
    first.declare_with("q", &[("x-single-active-consumer", true.into())]).await;
    first.consume(1, "q", "first").await;
    second.consume(1, "q", "second").await;
    let mut publisher = node.client().await;
    publisher.fill("q", &["a", "b"]).await;
    assert_eq!(first.texts(1, 2).await, ["a", "b"]);
    second.is_silent().await;
    first.close().await;
    let again = second.next(1).await;
    assert_eq!((again.text().as_str(), again.deliver().redelivered), ("a", true));
}

#[tokio::test]
async fn messages_are_delivered_in_order_of_priority() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare_with("q", &[("x-max-priority", 10.into())]).await;
    for (priority, text) in
        [(None, "none"), (Some(1), "one"), (Some(9), "nine"), (Some(200), "most")]
    {
        let publish = BasicPublish { routing_key: "q", ..BasicPublish::default() };
        let properties = Properties { priority, ..Properties::default() };
        client.publish_with(1, publish, &properties, text.as_bytes()).await;
    }
    client.queue_counts("q").await;
    client.consume(1, "q", "tag").await;
    assert_eq!(client.texts(1, 4).await, ["most", "nine", "one", "none"]);
}

#[tokio::test]
async fn expired_message_is_dead_lettered_and_not_delivered() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("dead").await;
    let dead =
        [("x-dead-letter-exchange", "".into()), ("x-dead-letter-routing-key", "dead".into())];
    client.declare_with("q", &dead).await;
    let publish = BasicPublish { routing_key: "q", ..BasicPublish::default() };
    let properties = Properties { expiration: Some(b"100"), ..Properties::default() };
    client.publish_with(1, publish, &properties, b"short").await;
    client.consume(1, "dead", "dead").await;
    let dead = client.next(1).await;
    assert_eq!(dead.text(), "short");
    let Some(FieldValue::Array(deaths)) = dead.header("x-death") else { panic!("{dead:?}") };
    let FieldValue::Table(death) = &deaths[0] else { panic!("{deaths:?}") };
    assert_eq!(death.get("reason").and_then(FieldValue::as_str), Some("expired"));
    assert_eq!(death.get("queue").and_then(FieldValue::as_str), Some("q"));
    assert_eq!(client.get(1, "q").await.map(|(_, body)| body), None);
}

#[tokio::test]
async fn rejected_or_too_often_delivered_message_is_dead_lettered() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("dead").await;
    client.bind("dead", "amq.direct", "over").await;
    let dead = [
        ("x-dead-letter-exchange", "amq.direct".into()),
        ("x-dead-letter-routing-key", "over".into()),
        ("x-queue-type", "quorum".into()),
        ("x-delivery-limit", 2.into()),
    ];
    client.declare_with("q", &dead).await;
    client.fill("q", &["bad", "worse"]).await;
    client.prefetch(1, 1, false).await;
    client.consume(1, "q", "tag").await;
    client.next(1).await;
    client.nack(1, 1, false).await;
    // The other one is requeued until it exceeds the delivery limit.
    for attempt in 0..3i64 {
        let message = client.next(1).await;
        assert_eq!(message.text(), "worse");
        let count = message.header("x-delivery-count").and_then(|count| count.as_integer());
        assert_eq!(count, (attempt > 0).then_some(attempt));
        client.nack(1, message.deliver().delivery_tag, true).await;
    }
    client.open_channel(2).await;
    client.consume(2, "dead", "dead").await;
    for (text, reason) in [("bad", "rejected"), ("worse", "delivery_limit")] {
        let dead = client.next(2).await;
        assert_eq!(dead.text(), text);
        let reason_given = dead.header("x-first-death-reason");
        assert_eq!(reason_given.as_ref().and_then(FieldValue::as_str), Some(reason));
    }
}

#[tokio::test]
async fn dead_letter_keeps_all_its_routing_keys() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for queue in ["own", "copy", "blind"] {
        client.declare(queue).await;
        client.bind(queue, "amq.direct", queue).await;
    }
    client.declare_with("q", &[("x-dead-letter-exchange", "amq.direct".into())]).await;
    client.bind("q", "amq.topic", "own").await;
    let headers = table(&[
        ("CC", vec![FieldValue::from("copy")].into()),
        ("BCC", vec![FieldValue::from("blind")].into()),
    ]);
    let properties = Properties { headers: Some(EncodedTable(&headers)), ..Properties::default() };
    let publish =
        BasicPublish { exchange: "amq.topic", routing_key: "own", ..BasicPublish::default() };
    client.publish_with(1, publish, &properties, b"x").await;
    client.consume(1, "q", "tag").await;
    client.next(1).await;
    client.nack(1, 1, false).await;
    client.open_channel(2).await;
    for queue in ["own", "copy", "blind"] {
        client.consume(2, queue, queue).await;
        assert_eq!(client.next(2).await.text(), "x", "{queue}");
    }
}

#[tokio::test]
async fn get_takes_one_message_and_returns_the_remaining_count() {
    let node = Node::start().await;
    let mut client = with_queue(&node, "q", &["a", "b", "c"]).await;
    for left in [2, 1, 0] {
        let came = client.call(1, BasicGet { queue: "q", ..BasicGet::default() }).await;
        let Method::BasicGetOk(ok) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(ok.message_count, left);
        client.message(came).await;
    }
    let came = client.call(1, BasicGet { queue: "q", ..BasicGet::default() }).await;
    assert!(matches!(came.method(), Method::BasicGetEmpty(_)));
    client.nack(1, 2, true).await;
    let (message, body) = client.get(1, "q").await.expect("it is back");
    assert_eq!(body, b"b");
    let Method::BasicGetOk(ok) = message.method.method() else { panic!() };
    assert!(ok.redelivered);
    client.ack(1, 3, true).await;
    client.close().await;
    assert_eq!(node.client().await.queue_counts("q").await.messages, 0);
}

#[tokio::test]
async fn consumers_of_a_queue_share_its_messages() {
    let node = Node::start().await;
    let (mut first, mut second) = (with_queue(&node, "q", &[]).await, node.client().await);
    for client in [&mut first, &mut second] {
        client.prefetch(1, 10, false).await;
        client.consume(1, "q", "tag").await;
    }
    let mut publisher = node.client().await;
    let texts: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    publisher.fill("q", &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut got = first.texts(1, 10).await;
    got.extend(second.texts(1, 10).await);
    got.sort_by_key(|text| text.parse::<u32>().expect("a number"));
    assert_eq!(got, texts);
}

#[tokio::test]
async fn client_that_does_not_read_does_not_affect_others() {
    let node = Node::start().await;
    let mut publisher = node.client().await;
    publisher.declare("q").await;
    publisher.select_confirms(1).await;
    let body = vec![7; 100_000];
    for tag in 1..=200 {
        publisher.publish(1, "", "q", &body).await;
        publisher.confirmed_up_to(1, tag).await;
    }
    let mut slow = node.client_with_small_window().await;
    slow.open_channel(1).await;
    slow.prefetch(1, 150, false).await;
    slow.consume(1, "q", "slow").await;
    let mut fast = node.client().await;
    let consume = BasicConsume { queue: "q", no_ack: true, ..BasicConsume::default() };
    fast.consume_with(1, consume, &[]).await;
    fast.texts(1, 50).await;
    node.serves_other_clients().await;
    // The slow client can still continue.
    assert_eq!(slow.next(1).await.body.len(), 100_000);
}

#[tokio::test]
async fn unacknowledged_delivery_closes_its_channel_after_the_timeout() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare_with("q", &[("x-consumer-timeout", 200.into())]).await;
    client.fill("q", &["a"]).await;
    client.consume(1, "q", "tag").await;
    client.next(1).await;
    let text = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout \
                value used: 200 ms. This timeout value can be configured, see consumers doc guide \
                to learn more";
    client.channel_closes(1, text).await;
    client.open_channel(1).await;
    assert_eq!(client.queue_counts("q").await.messages, 1);
}

#[tokio::test]
async fn delete_ok_precedes_the_cancel_of_the_channels_own_consumer() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for round in 0..20 {
        let queue = format!("q{round}");
        client.declare(&queue).await;
        client.consume(1, &queue, &queue).await;
        let delete = QueueDelete { queue: &queue, ..QueueDelete::default() };
        let came = client.call(1, delete).await;
        assert!(matches!(came.method(), Method::QueueDeleteOk(_)), "{:?}", came.method());
        let came = client.method(1).await;
        let Method::BasicCancel(cancel) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(cancel.consumer_tag, queue);
    }
}

#[tokio::test]
async fn quorum_queue_rejects_a_global_prefetch() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare_with("q", &[("x-queue-type", "quorum".into())]).await;
    client.prefetch(1, 5, true).await;
    client.send(1, BasicConsume { queue: "q", ..BasicConsume::default() }).await;
    let text = "NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos";
    client.connection_closes(540, text).await;
}

#[tokio::test]
async fn quorum_queue_delivers_two_high_priority_messages_per_normal_one() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare_with("q", &[("x-queue-type", "quorum".into())]).await;
    client.select_confirms(1).await;
    for (number, priority) in [0, 4, 5, 255, 1, 9, 9].into_iter().enumerate() {
        let properties = Properties { priority: Some(priority), ..Properties::default() };
        let publish = BasicPublish { routing_key: "q", ..BasicPublish::default() };
        let text = format!("{number}: {priority}");
        client.publish_with(1, publish, &properties, text.as_bytes()).await;
        client.confirmed_up_to(1, number as u64 + 1).await;
    }
    client.consume(1, "q", "c").await;
    let expected = ["2: 5", "3: 255", "0: 0", "5: 9", "6: 9", "1: 4", "4: 1"];
    assert_eq!(client.texts(1, 7).await, expected);
}
