//! Publishing: routing, preservation of message contents, and confirms.

use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;
use gateway_amqp::codec::table::{FieldTable, FieldValue};

use crate::harness::{Node, table};

fn to<'a>(exchange: &'a str, routing_key: &'a str) -> BasicPublish<'a> {
    BasicPublish { exchange, routing_key, ..BasicPublish::default() }
}

#[tokio::test]
async fn message_keeps_its_body_and_properties() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let queue = client.declare_exclusive().await;
    let headers = table(&[
        ("text", "x".into()),
        ("number", 7.into()),
        ("yes", true.into()),
        ("list", vec![FieldValue::from(1), "a".into()].into()),
        ("table", FieldTable(vec![("deep".into(), FieldValue::Void)]).into()),
    ]);
    let properties = Properties {
        content_type: Some(b"application/json"),
        content_encoding: Some(b"utf-8"),
        headers: Some(EncodedTable(&headers)),
        delivery_mode: Some(2),
        priority: Some(4),
        correlation_id: Some(&[0xff, 0x00]),
        reply_to: Some(b"there"),
        expiration: Some(b"60000"),
        message_id: Some(b"id"),
        timestamp: Some(1_700_000_000),
        kind: Some(b"order"),
        user_id: Some(b"guest"),
        app_id: Some(b"app"),
        cluster_id: Some(b"c"),
    };
    client.publish_with(1, to("", &queue), &properties, b"body").await;
    let (message, body) = client.get(1, &queue).await.expect("it is there");
    assert_eq!(body, b"body");
    assert_eq!(message.properties(), properties);
    let Method::BasicGetOk(ok) = message.method.method() else { panic!() };
    assert_eq!((ok.exchange, ok.routing_key, ok.redelivered), ("", &queue[..], false));
    // An empty body and empty properties are preserved too.
    client.publish(1, "", &queue, b"").await;
    let (message, body) = client.get(1, &queue).await.expect("it is there");
    assert!(body.is_empty());
    assert_eq!(message.properties(), Properties::default());
}

#[tokio::test]
async fn bodies_of_all_sizes_come_through() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let queue = client.declare_exclusive().await;
    for bytes in [1, 4087, 4088, 4089, 131_064, 131_065, 300_000, 3 << 20] {
        let body: Vec<u8> = (0..bytes).map(|n: u32| (n % 251) as u8).collect();
        client.publish(1, "", &queue, &body).await;
        let (_, got) = client.get(1, &queue).await.expect("it is there");
        assert!(got == body, "{bytes}");
    }
}

#[tokio::test]
async fn messages_are_confirmed_once_and_in_order() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    client.open_channel(2).await;
    client.select_confirms(2).await;
    // Sent in one write: they are one append with few confirms.
    let mut out = bytes::BytesMut::new();
    for n in 0..1000 {
        let body = format!("message {n}");
        let properties = Properties::default();
        out.extend(client.content(2, to("", "q"), &properties, body.as_bytes()));
    }
    client.send_bytes(&out).await;
    client.confirmed_up_to(2, 1000).await;
    assert_eq!(client.queue_counts("q").await.messages, 1000);
    let consume = BasicConsume { queue: "q", no_ack: true, ..BasicConsume::default() };
    client.consume_with(1, consume, &[]).await;
    let texts = client.texts(1, 1000).await;
    assert!(texts.iter().enumerate().all(|(n, text)| *text == format!("message {n}")));
}

#[tokio::test]
async fn unroutable_mandatory_message_is_returned_before_its_confirm() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.select_confirms(1).await;
    let properties = Properties { message_id: Some(b"m"), ..Properties::default() };
    let mandatory = BasicPublish { mandatory: true, ..to("amq.direct", "nowhere") };
    client.publish_with(1, mandatory, &properties, b"lost").await;
    let returned = client.next(1).await;
    let Method::BasicReturn(back) = returned.method.method() else { panic!() };
    assert_eq!((back.reply_code, back.reply_text), (312, "NO_ROUTE"));
    assert_eq!((back.exchange, back.routing_key), ("amq.direct", "nowhere"));
    assert_eq!((returned.text().as_str(), returned.properties()), ("lost", properties));
    client.confirmed_up_to(1, 1).await;
    // Without `mandatory` the message is not returned.
    client.publish(1, "amq.direct", "nowhere", b"lost").await;
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicAck(ack) if ack.delivery_tag == 2));
}

#[tokio::test]
async fn invalid_publish_closes_the_channel() {
    let node = Node::with(|options| options.message_bytes_max = 1000).await;
    let mut client = node.client().await;
    let queue = client.declare_exclusive().await;
    client.publish(1, "nope", "", b"").await;
    client.channel_closes(1, "NOT_FOUND - no exchange 'nope' in vhost '/'").await;
    client.open_channel(1).await;
    for (properties, text) in [
        (
            Properties { expiration: Some(b"soon"), ..Properties::default() },
            "PRECONDITION_FAILED - invalid expiration 'soon': no_integer",
        ),
        (
            Properties { expiration: Some(b"-1"), ..Properties::default() },
            "PRECONDITION_FAILED - invalid expiration '-1': {value_negative,-1}",
        ),
        (
            Properties { user_id: Some(b"root"), ..Properties::default() },
            "PRECONDITION_FAILED - user_id property set to 'root' but authenticated user was \
             'guest'",
        ),
        (
            Properties { reply_to: Some(b"amq.rabbitmq.reply-to"), ..Properties::default() },
            "PRECONDITION_FAILED - fast reply consumer does not exist",
        ),
    ] {
        client.publish_with(1, to("", &queue), &properties, b"x").await;
        client.channel_closes(1, text).await;
        client.open_channel(1).await;
    }
    client.publish(1, "", &queue, &[0; 1001]).await;
    let text = "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000";
    client.channel_closes(1, text).await;
    client.open_channel(1).await;
    let immediate = BasicPublish { immediate: true, ..to("", &queue) };
    client.publish_with(1, immediate, &Properties::default(), b"").await;
    client.connection_closes(540, "NOT_IMPLEMENTED - immediate=true").await;
}

#[tokio::test]
async fn cc_and_bcc_route_copies_and_bcc_is_removed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for queue in ["a", "b", "c"] {
        client.declare(queue).await;
    }
    let headers = table(&[
        ("CC", vec![FieldValue::from("b")].into()),
        ("BCC", vec![FieldValue::from("c"), "a".into()].into()),
    ]);
    let properties = Properties { headers: Some(EncodedTable(&headers)), ..Properties::default() };
    client.publish_with(1, to("", "a"), &properties, b"x").await;
    for queue in ["a", "b", "c"] {
        let (message, _) = client.get(1, queue).await.expect("it is there");
        assert!(message.header("CC").is_some() && message.header("BCC").is_none());
        assert_eq!(client.get(1, queue).await.map(|(_, body)| body), None, "{queue}");
    }
}

#[tokio::test]
async fn message_is_routed_to_every_bound_queue() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.select_confirms(1).await;
    for queue in ["one", "two", "three"] {
        client.declare(queue).await;
        client.bind(queue, "amq.fanout", "").await;
    }
    client.publish(1, "amq.fanout", "k", b"news").await;
    client.confirmed_up_to(1, 1).await;
    for queue in ["one", "two", "three"] {
        let (message, body) = client.get(1, queue).await.expect("it is there");
        let Method::BasicGetOk(ok) = message.method.method() else { panic!() };
        assert_eq!((&body[..], ok.exchange, ok.routing_key), (&b"news"[..], "amq.fanout", "k"));
    }
}

/// Messages of one write to the socket, some to all queues and some to one of them. The third queue rejects when it
/// is full, so that its messages are in separate batches.
#[tokio::test]
async fn each_queue_keeps_the_publish_order_when_others_get_a_subset() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.select_confirms(1).await;
    let limited = [("x-max-length", 1_000.into()), ("x-overflow", "reject-publish".into())];
    let queues = [("one", &[][..]), ("two", &[]), ("three", &limited)];
    for (queue, arguments) in queues {
        client.declare_with(queue, arguments).await;
        client.bind(queue, "amq.fanout", "").await;
    }
    let mut out = Vec::new();
    let mut expected = queues.map(|(queue, _)| (queue, Vec::new()));
    for number in 0..60_usize {
        let body = number.to_string();
        // Runs of messages to all queues, and single ones between them.
        let only = (number % 5 == 3).then_some(number / 5 % 3);
        let target = match only {
            Some(queue) => to("", queues[queue].0),
            None => to("amq.fanout", ""),
        };
        out.extend_from_slice(&client.content(1, target, &Properties::default(), body.as_bytes()));
        for (place, (_, messages)) in expected.iter_mut().enumerate() {
            if only.is_none_or(|queue| queue == place) {
                messages.push(body.clone());
            }
        }
    }
    client.send_bytes(&out).await;
    client.confirmed_up_to(1, 60).await;
    for (queue, messages) in expected {
        for message in messages {
            let (_, body) = client.get(1, queue).await.expect("it is there");
            assert_eq!(body, message.as_bytes(), "{queue}");
        }
        assert!(client.get(1, queue).await.is_none());
    }
}

#[tokio::test]
async fn publish_to_a_full_rejecting_queue_is_nacked() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let arguments = [("x-max-length", 2.into()), ("x-overflow", "reject-publish".into())];
    client.declare_with("small", &arguments).await;
    client.select_confirms(1).await;
    for tag in 1..=2 {
        client.publish(1, "", "small", b"x").await;
        client.confirmed_up_to(1, tag).await;
    }
    client.publish(1, "", "small", b"x").await;
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicNack(nack) if nack.delivery_tag == 3));
    client.get(1, "small").await.expect("it is there");
    client.publish(1, "", "small", b"x").await;
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicAck(ack) if ack.delivery_tag == 4));
}

#[tokio::test]
async fn direct_reply_reaches_the_requester() {
    let node = Node::start().await;
    let (mut asking, mut answering) = (node.client().await, node.client().await);
    answering.declare("rpc").await;
    answering.consume(1, "rpc", "server").await;
    let reply_to = "amq.rabbitmq.reply-to";
    let consume = BasicConsume { queue: reply_to, no_ack: true, ..BasicConsume::default() };
    asking.consume_with(1, consume, &[]).await;
    let properties = Properties {
        reply_to: Some(reply_to.as_bytes()),
        correlation_id: Some(b"7"),
        ..Properties::default()
    };
    asking.publish_with(1, to("", "rpc"), &properties, b"2+2").await;

    let asked = answering.next(1).await;
    let name =
        String::from_utf8(asked.properties().reply_to.expect("a name").to_vec()).expect("text");
    assert!(name.starts_with("amq.rabbitmq.reply-to."), "{name}");
    assert_eq!(answering.queue_counts(&name).await.consumers, 1);
    let properties = Properties { correlation_id: Some(b"7"), ..Properties::default() };
    answering.publish_with(1, to("", &name), &properties, b"4").await;
    let answer = asking.next(1).await;
    assert_eq!((answer.text().as_str(), answer.properties()), ("4", properties));

    let consume = BasicConsume { queue: reply_to, ..BasicConsume::default() };
    let text = "PRECONDITION_FAILED - reply consumer cannot acknowledge";
    asking.refuses(1, consume, text).await;
    // The channel is closed, and its name is invalid with it.
    let mandatory = BasicPublish { mandatory: true, ..to("", &name) };
    answering.publish_with(1, mandatory, &Properties::default(), b"late").await;
    let returned = answering.next(1).await;
    assert!(matches!(returned.method.method(), Method::BasicReturn(_)));
}

#[tokio::test]
async fn delayed_message_is_delivered_after_its_delay() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    let arguments = table(&[("x-delayed-type", "direct".into())]);
    let declare = ExchangeDeclare {
        exchange: "later",
        kind: "x-delayed-message",
        durable: true,
        arguments: EncodedTable(&arguments),
        ..ExchangeDeclare::default()
    };
    client.call(1, declare).await;
    client.bind("q", "later", "k").await;
    client.consume(1, "q", "c").await;
    let headers = table(&[("x-delay", 400.into())]);
    let properties = Properties { headers: Some(EncodedTable(&headers)), ..Properties::default() };
    let begun = world::Instant::now();
    client.publish_with(1, to("later", "k"), &properties, b"late").await;
    client.publish(1, "later", "k", b"now").await;
    assert_eq!(client.next(1).await.text(), "now");
    let late = client.next(1).await;
    assert_eq!(late.text(), "late");
    assert!(begun.elapsed().as_millis() >= 400);
    assert_eq!(late.header("x-delay"), Some(FieldValue::I64(-400)));
}

#[tokio::test]
async fn full_disk_blocks_publishers_until_space_is_free() {
    let disk = std::sync::Arc::new(world::SimulatedDisk::new());
    let node = Node::on(std::sync::Arc::clone(&disk), |_| {}).await;
    let mut client = node.client().await;
    client.declare("q").await;
    client.select_confirms(1).await;
    disk.set_capacity(Some(1));
    // The journal's knowledge of the disk may be a moment old.
    loop {
        client.publish(1, "", "q", b"x").await;
        let came = client.frame().await.expect("the connection is open");
        match came.method() {
            Method::BasicAck(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Method::BasicNack(_) => {}
            Method::ConnectionBlocked(why) => {
                assert_eq!(why.reason, "low on disk");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    disk.set_capacity(None);
    loop {
        let came = client.frame().await.expect("the connection is open");
        if matches!(came.method(), Method::ConnectionUnblocked(_)) {
            break;
        }
    }
    node.serves_other_clients().await;
}

#[tokio::test]
async fn full_queue_nacks_only_the_messages_of_a_write_that_exceed_its_limit() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let arguments = [("x-max-length", 5.into()), ("x-overflow", "reject-publish".into())];
    client.declare_with("small", &arguments).await;
    client.declare("large").await;
    for queue in ["small", "large"] {
        client.bind(queue, "amq.topic", &format!("to.{queue}")).await;
    }
    client.select_confirms(1).await;
    let mut out = bytes::BytesMut::new();
    for number in 0..40 {
        let key = if number % 2 == 0 { "to.small" } else { "to.large" };
        out.extend(client.content(1, to("amq.topic", key), &Properties::default(), b"x"));
    }
    client.send_bytes(&out).await;
    let mut refused = Vec::new();
    let mut answered = 0;
    while answered < 40 {
        match client.method(1).await.method() {
            Method::BasicNack(nack) => refused.push(nack.delivery_tag),
            Method::BasicAck(ack) => answered = ack.delivery_tag,
            other => panic!("{other:?}"),
        }
    }
    // The first five of every other one were accepted.
    assert_eq!(refused, (11..=39).step_by(2).collect::<Vec<_>>());
    assert_eq!(client.queue_counts("small").await.messages, 5);
    assert_eq!(client.queue_counts("large").await.messages, 20);
}

#[tokio::test]
async fn message_with_zero_ttl_reaches_waiting_consumers_only() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let queue = client.declare_exclusive().await;
    let at_once = Properties { expiration: Some(b"0"), ..Properties::default() };
    client.publish_with(1, to("", &queue), &at_once, b"nobody").await;
    assert_eq!(client.get(1, &queue).await.map(|(_, body)| body), None);
    client.consume(1, &queue, "c").await;
    for body in ["one", "two", "three"] {
        client.publish_with(1, to("", &queue), &at_once, body.as_bytes()).await;
    }
    assert_eq!(client.texts(1, 3).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn confirmed_message_in_a_transient_queue_is_visible_to_all_clients() {
    let node = Node::start().await;
    let (mut publisher, mut other) = (node.client().await, node.client().await);
    publisher.declared(1, QueueDeclare { queue: "q", ..QueueDeclare::default() }).await;
    publisher.select_confirms(1).await;
    for round in 0..60 {
        publisher.publish(1, "", "q", b"a").await;
        publisher.confirmed_up_to(1, 2 * round + 1).await;
        assert_eq!(other.queue_counts("q").await.messages, 1, "round {round}");
        publisher.publish(1, "", "q", b"b").await;
        publisher.confirmed_up_to(1, 2 * round + 2).await;
        assert!(other.get(1, "q").await.is_some(), "round {round}");
        let came = other.call(1, QueuePurge { queue: "q", ..QueuePurge::default() }).await;
        let Method::QueuePurgeOk(ok) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(ok.message_count, 1, "round {round}");
    }
}

#[tokio::test]
async fn byte_limit_of_a_queue_counts_bodies_only() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.select_confirms(1).await;
    client.declare_with("drops", &[("x-max-length-bytes", 10.into())]).await;
    for (number, text) in ["aaaa", "bbbb", "cccc"].into_iter().enumerate() {
        client.publish(1, "", "drops", text.as_bytes()).await;
        client.confirmed_up_to(1, number as u64 + 1).await;
    }
    while client.queue_counts("drops").await.messages != 2 {
        tokio::task::yield_now().await;
    }
    let (_, first) = client.get(1, "drops").await.expect("two are left");
    assert_eq!(first, b"bbbb");

    let refuses = ("x-overflow", "reject-publish".into());
    client.declare_with("refuses", &[("x-max-length-bytes", 10.into()), refuses]).await;
    for (number, text) in ["aaaa", "bbbb", "cc"].into_iter().enumerate() {
        client.publish(1, "", "refuses", text.as_bytes()).await;
        client.confirmed_up_to(1, number as u64 + 4).await;
    }
    client.publish(1, "", "refuses", b"d").await;
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicNack(nack) if nack.delivery_tag == 7));
    assert_eq!(client.queue_counts("refuses").await.messages, 3);
}
