use std::time::Duration;

use super::*;
use topology::QueueKind;

#[tokio::test]
async fn declared_queue_is_a_topic_with_a_lease_group() {
    let node = open().await;
    let queue = node.queue("orders").await;
    assert_eq!((queue.kind, &*queue.topic_name), (QueueKind::Classic, "orders"));
    let config = node.topic_config("orders");
    assert_eq!(config["retention.settled"], "true");
    assert_eq!(config["retention.ms"], "-1");
    assert_eq!(node.lease_config(&queue)["lease.ms"], "0");
    assert_eq!(node.reached("", "orders"), ["orders"]);
}

#[tokio::test]
async fn arguments_become_topic_and_lease_group_configuration() {
    let node = open().await;
    let arguments = [
        ("x-message-ttl", 60_000.into()),
        ("x-max-length", 10.into()),
        ("x-max-length-bytes", 1_000.into()),
        ("x-overflow", "reject-publish-dlx".into()),
        ("x-max-priority", 5.into()),
        ("x-single-active-consumer", true.into()),
        ("x-postroad-ordering", "key".into()),
        ("x-dead-letter-exchange", "dlx".into()),
        ("x-dead-letter-routing-key", "dead".into()),
    ];
    let queue = node.queue_with("q", &arguments).await.expect("it is declared");
    let topic = node.topic_config("q");
    for (name, value) in [
        ("limit.records", "10"),
        ("limit.bytes", "1000"),
        ("limit.overflow", "reject-dead-letter"),
        ("priorities.max", "5"),
    ] {
        assert_eq!(topic[name], value, "{name}");
    }
    let lease = node.lease_config(&queue);
    assert_eq!(lease["record.ttl.ms"], "60000");
    assert_eq!(lease["consumers"], "single-active");
    assert_eq!(lease["ordering"], "key");
    assert_eq!(
        lease["dead.letter.route"],
        r#"amqp:{"vhost":"/","queue":"q","exchange":"dlx","routing-key":"dead"}"#
    );
    assert!(!lease.contains_key("attempts.max"));
}

#[tokio::test]
async fn quorum_queue_has_a_delivery_limit_by_default() {
    let node = open().await;
    for (name, limit, expected) in
        [("a", None, Some("21")), ("b", Some(3), Some("4")), ("c", Some(-1), None)]
    {
        let mut arguments = vec![("x-queue-type", "quorum".into())];
        arguments.extend(limit.map(|limit: i32| ("x-delivery-limit", limit.into())));
        let queue = node.queue_with(name, &arguments).await.expect("it is declared");
        let lease = node.lease_config(&queue);
        assert_eq!(lease.get("attempts.max").map(String::as_str), expected, "{name}");
    }
}

#[tokio::test]
async fn stream_has_no_lease_group_and_retains_read_records() {
    let node = open().await;
    let arguments = [
        ("x-queue-type", "stream".into()),
        ("x-max-age", "7D".into()),
        ("x-max-length-bytes", 5_000_000_000_i64.into()),
    ];
    let stream = node.queue_with("s", &arguments).await.expect("it is declared");
    assert!(stream.is_stream() && stream.group().is_none());
    let config = node.topic_config("s");
    assert_eq!(config["retention.ms"], "604800000");
    assert_eq!(config["retention.bytes"], "5000000000");
    assert!(!config.contains_key("retention.settled"));
    let again = queues::find(&node.vhost, node.client, "s").await.expect("it is there");
    assert!(again.group().is_none());
}

#[tokio::test]
async fn second_declaration_must_equal_the_first() {
    let node = open().await;
    let first = node.queue_with("q", &[("x-max-length", 10.into())]).await.expect("new");
    // The width of a number does not matter.
    let again = node.queue_with("q", &[("x-max-length", 10_i64.into())]).await.expect("same");
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(
        text(node.queue_with("q", &[("x-max-length", 11.into())]).await),
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': \
         received '11' but current is '10'"
    );
    assert_eq!(
        text(node.queue_with("q", &[]).await),
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': \
         received none but current is the value '10' of type 'signedint'"
    );
    let arguments = [("x-max-length", 10.into()), ("x-queue-type", "quorum".into())];
    assert_eq!(
        text(node.queue_with("q", &arguments).await),
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': \
         received 'quorum' but current is 'classic'"
    );
    let arguments = &table(&[("x-max-length", 10.into())]);
    let mut declaration = QueueDeclaration {
        name: "q",
        durable: false,
        exclusive: false,
        auto_delete: false,
        arguments,
    };
    assert_eq!(
        text(queues::declare(&node.vhost, node.client, declaration, None).await),
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received \
         'false' but current is 'true'"
    );
    declaration.exclusive = true;
    assert_eq!(
        text(queues::declare(&node.vhost, node.client, declaration, None).await)[..60],
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue"[..60]
    );
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_the_texts_of_rabbitmq() {
    let node = open().await;
    assert_eq!(
        text(node.queue_with("amq.mine", &[]).await),
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    );
    assert_eq!(
        text(node.queue_with("", &[("x-queue-type", "quorum".into())]).await),
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    );
    assert_eq!(
        text(node.queue_with("q", &[("x-dead-letter-exchange", 1.into())]).await),
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue \
         'q' in vhost '/'"
    );
    let arguments = &table(&[("x-queue-type", "quorum".into())]);
    for (durable, exclusive, auto_delete, property) in [
        (true, false, true, "auto-delete"),
        (false, true, false, "exclusive-owner"),
        (false, false, false, "non-durable"),
    ] {
        let declaration =
            QueueDeclaration { name: "q", durable, exclusive, auto_delete, arguments };
        let expected = format!(
            "PRECONDITION_FAILED - invalid property '{property}' for queue 'q' in vhost '/'"
        );
        assert_eq!(
            text(queues::declare(&node.vhost, node.client, declaration, None).await),
            expected
        );
    }
    assert_eq!(
        text(queues::find(&node.vhost, node.client, "q").await),
        "NOT_FOUND - no queue 'q' in vhost '/'"
    );
    assert!(node.topic_names().is_empty() && node.documents("amqp.queues").is_empty());
}

#[tokio::test]
async fn generated_queue_names_are_distinct() {
    let node = open().await;
    let (one, other) = (node.queue("").await, node.queue("").await);
    assert!(one.name.starts_with("amq.gen-") && one.name.len() == 30, "{}", one.name);
    assert_ne!(one.name, other.name);
    assert_eq!(node.reached("", &one.name), [one.name.to_string()]);
}

#[tokio::test]
async fn queues_may_have_names_that_topics_may_not() {
    let node = open().await;
    let long = "ü".repeat(127);
    for name in ["a b", "ünï/code", "..", long.as_str()] {
        let queue = node.queue(name).await;
        assert_eq!(&*queue.name, name);
        assert_eq!(node.reached("", name), [name]);
    }
    // Kafka forbids the second name beside the first.
    node.queue("a.b").await;
    let second = node.queue("a_b").await;
    assert_eq!(&*second.topic_name, "amqp.-2F.a-5Fb");
    let node = node.restart().await;
    for name in ["a b", "ünï/code", "..", "a.b", "a_b", long.as_str()] {
        assert_eq!(node.reached("", name), [name]);
    }
}

#[tokio::test]
async fn exclusive_queue_is_locked_to_its_connection_and_deleted_with_it() {
    let node = open().await;
    let queue = node.transient_queue("mine", true, false).await;
    let stranger = OwnerId(2);
    node.topology.open_owner(stranger);
    let expected = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in \
                    vhost '/'. It could be originally declared on another connection or the \
                    exclusive property value does not match that of the original declaration.";
    assert_eq!(text(queues::find(&node.vhost, stranger, "mine").await), expected);
    assert_eq!(text(queues::delete(&node.vhost, stranger, "mine", false, false).await), expected);
    node.topology.close_owner(stranger).await.expect("it closes");
    assert!(!queue.is_deleted());
    node.topology.close_owner(node.client).await.expect("it closes");
    assert!(queue.is_deleted());
    assert!(node.topic_names().is_empty() && node.documents("amqp.queues").is_empty());
    // A late declaration of a closed connection leaves no queue.
    let late = node.transient_queue("late", true, false).await;
    assert!(late.is_deleted() && node.topic_names().is_empty());
}

#[tokio::test]
async fn auto_delete_queue_is_deleted_with_its_last_consumer() {
    let node = open().await;
    let queue = node.transient_queue("q", false, true).await;
    queue.consumer_came();
    queue.consumer_came();
    assert_eq!(node.vhost.consumer_count(&queue).await, 2);
    assert_eq!(
        text(queues::delete(&node.vhost, node.client, "q", true, false).await),
        "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"
    );
    node.vhost.consumer_left(&queue).await.expect("it leaves");
    assert!(!queue.is_deleted());
    node.vhost.consumer_left(&queue).await.expect("it leaves");
    assert!(queue.is_deleted() && node.topic_names().is_empty());
}

#[tokio::test]
async fn unused_queue_expires() {
    let node = open().await;
    let expires = [("x-expires", 150.into())];
    let used = node.queue_with("used", &expires).await.expect("it is declared");
    let consumed = node.queue_with("consumed", &expires).await.expect("it is declared");
    let idle = node.queue_with("idle", &expires).await.expect("it is declared");
    consumed.consumer_came();
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.vhost.use_queue(&used).await.expect("it is there");
    }
    assert!(idle.is_deleted() && !used.is_deleted() && !consumed.is_deleted());
    node.vhost.consumer_left(&consumed).await.expect("it leaves");
    while !(used.is_deleted() && consumed.is_deleted()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while !node.topic_names().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn topic_of_another_protocol_is_usable_as_a_queue() {
    let node = open().await;
    node.topic("clicks", 12).await;
    assert_eq!(node.reached("", "clicks"), ["clicks"]);
    let queue = queues::find(&node.vhost, node.client, "clicks").await.expect("it is there");
    assert_eq!(queue.partition_count(), 12);
    assert_eq!(queue.group(), None, "a look makes no queue of a topic");
    // A declaration with the same properties returns it.
    let declared = node.queue("clicks").await;
    assert!(Arc::ptr_eq(&queue, &declared));
    node.vhost.make_ready(&queue).await.expect("its group is made");
    assert_eq!(node.lease_config(&queue)["lease.ms"], "0");
    assert_eq!(
        text(node.queue_with("clicks", &[("x-max-length", 5.into())]).await),
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'clicks' in vhost '/': \
         received the value '5' of type 'signedint' but current is none"
    );
    node.bind("amq.topic", &queue_named("clicks"), "web.#").await;
    let node = node.restart().await;
    assert_eq!(node.reached("amq.topic", "web.start"), ["clicks"]);
    // Only vhost `/` shares the names of topics.
    let other = node.topology.create_vhost("other").await.expect("it is made");
    assert!(other.find_queue("clicks").is_none());
}

#[tokio::test]
async fn queue_is_gone_when_another_protocol_deletes_its_topic() {
    let node = open().await;
    let queue = node.queue("q").await;
    node.bind("amq.fanout", &queue_named("q"), "").await;
    let deleted = node.broker.delete_topic(queue.topic).await;
    deleted.expect("the topic is deleted");
    let missing = "NOT_FOUND - no queue 'q' in vhost '/'";
    assert_eq!(text(queues::find(&node.vhost, node.client, "q").await), missing);
    assert!(queue.is_deleted());
    assert!(node.reached("amq.fanout", "").is_empty());
    assert!(node.documents("amqp.bindings").is_empty());
    let again = node.queue("q").await;
    assert_ne!(again.topic, queue.topic);
}

#[tokio::test]
async fn concurrent_declarations_create_one_queue() {
    let node = open().await;
    let made = (0..20).map(|_| node.queue("q"));
    let made = futures_util::future::join_all(made).await;
    assert!(made.iter().all(|queue| Arc::ptr_eq(queue, &made[0])));
    assert_eq!(node.topic_names(), ["q"]);
}
