//! Channels, and declarations on them: the errors equal RabbitMQ's word for word.

use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::methods::*;

use crate::harness::{Node, table};

#[tokio::test]
async fn soft_error_closes_its_channel_only() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.open_channel(2).await;
    let passive = QueueDeclare { queue: "nope", passive: true, ..QueueDeclare::default() };
    client.send(1, passive).await;
    client.channel_closes(1, "NOT_FOUND - no queue 'nope' in vhost '/'").await;
    let declare = QueueDeclare { queue: "q", durable: true, ..QueueDeclare::default() };
    assert_eq!(client.declared(2, declare).await.name, "q");
    client.open_channel(1).await;
    client.queue_counts("q").await;
}

#[tokio::test]
async fn error_texts_equal_those_of_rabbitmq() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    let declare = QueueDeclare { queue: "q", ..QueueDeclare::default() };
    let text = "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': \
                received 'false' but current is 'true'";
    client.refuses(1, declare, text).await;
    let arguments = table(&[("x-message-ttl", "soon".into())]);
    let declare = QueueDeclare {
        queue: "ttl",
        durable: true,
        arguments: EncodedTable(&arguments),
        ..QueueDeclare::default()
    };
    let text = "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'ttl' in vhost '/': \
                \"expected integer, got longstr\"";
    client.refuses(1, declare, text).await;
    let declare = QueueDeclare { queue: "amq.mine", ..QueueDeclare::default() };
    let text = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'";
    client.refuses(1, declare, text).await;
    let bind = QueueBind { queue: "q", exchange: "nope", ..QueueBind::default() };
    client.refuses(1, bind, "NOT_FOUND - no exchange 'nope' in vhost '/'").await;
    let bind = QueueBind { queue: "nope", exchange: "amq.direct", ..QueueBind::default() };
    client.refuses(1, bind, "NOT_FOUND - no queue 'nope' in vhost '/'").await;
    let consume = BasicConsume { queue: "nope", ..BasicConsume::default() };
    client.refuses(1, consume, "NOT_FOUND - no queue 'nope' in vhost '/'").await;
    let get = BasicGet { queue: "nope", ..BasicGet::default() };
    client.refuses(1, get, "NOT_FOUND - no queue 'nope' in vhost '/'").await;
    let get = BasicGet::default();
    client.refuses(1, get, "NOT_FOUND - no previously declared queue").await;
    for (tag, text) in [
        (5, "PRECONDITION_FAILED - unknown delivery tag 5"),
        (0, "PRECONDITION_FAILED - unknown delivery tag 0"),
    ] {
        client.refuses(1, BasicAck { delivery_tag: tag, ..BasicAck::default() }, text).await;
        client.refuses(1, BasicNack { delivery_tag: tag, ..BasicNack::default() }, text).await;
        client.refuses(1, BasicReject { delivery_tag: tag, ..BasicReject::default() }, text).await;
    }
    let delete = ExchangeDelete { exchange: "amq.direct", ..ExchangeDelete::default() };
    let text = "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed";
    client.refuses(1, delete, text).await;
    client.close().await;
}

#[tokio::test]
async fn hard_errors_close_the_connection() {
    let node = Node::start().await;
    for (method, code, text) in [
        (
            Method::from(BasicRecover { requeue: false, ..BasicRecover::default() }),
            540,
            "NOT_IMPLEMENTED - requeue=false",
        ),
        (ChannelFlow::default().into(), 540, "NOT_IMPLEMENTED - active=false"),
        (
            BasicQos { prefetch_size: 1, ..BasicQos::default() }.into(),
            540,
            "NOT_IMPLEMENTED - prefetch_size!=0 (1)",
        ),
        (ChannelOpen::default().into(), 504, "CHANNEL_ERROR - second 'channel.open' seen"),
        (BasicGetEmpty::default().into(), 503, "COMMAND_INVALID - unimplemented method"),
    ] {
        let mut client = node.client().await;
        client.send(1, method).await;
        client.connection_closes(code, text).await;
    }
    let mut client = node.client().await;
    client.send(7, BasicQos::default()).await;
    client.connection_closes(504, "CHANNEL_ERROR - expected 'channel.open'").await;
    node.serves_other_clients().await;
}

#[tokio::test]
async fn unnamed_queue_gets_a_name_and_empty_name_means_the_last_declared() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let name = client.declare_exclusive().await;
    assert!(name.starts_with("amq.gen-"), "{name}");
    client.publish(1, "", &name, b"hello").await;
    let (_, body) = client.get(1, "").await.expect("it is there");
    assert_eq!(body, b"hello");
    let came = client.call(1, QueueDelete::default()).await;
    assert!(matches!(came.method(), Method::QueueDeleteOk(_)));
    let passive = QueueDeclare { queue: &name, passive: true, ..QueueDeclare::default() };
    let text = format!("NOT_FOUND - no queue '{name}' in vhost '/'");
    client.refuses(1, passive, &text).await;
}

#[tokio::test]
async fn exclusive_queue_is_locked_to_its_connection_and_deleted_with_it() {
    let node = Node::start().await;
    let (mut owner, mut other) = (node.client().await, node.client().await);
    let queue = owner.declare_exclusive().await;
    let locked = format!(
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. \
         It could be originally declared on another connection or the exclusive property value \
         does not match that of the original declaration."
    );
    let cut = &locked[..locked.len().min(255)];
    other.refuses(1, BasicGet { queue: &queue, ..BasicGet::default() }, cut).await;
    let consume = BasicConsume { queue: &queue, ..BasicConsume::default() };
    other.refuses(1, consume, cut).await;
    owner.close().await;
    let gone = format!("NOT_FOUND - no queue '{queue}' in vhost '/'");
    other.refuses(1, BasicGet { queue: &queue, ..BasicGet::default() }, &gone).await;
}

#[tokio::test]
async fn auto_delete_queue_is_deleted_with_its_last_consumer() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let declare = QueueDeclare { queue: "auto", auto_delete: true, ..QueueDeclare::default() };
    client.declared(1, declare).await;
    client.consume(1, "auto", "a").await;
    client.consume(1, "auto", "b").await;
    assert_eq!(client.queue_counts("auto").await.consumers, 2);
    for tag in ["a", "b"] {
        let cancel = BasicCancel { consumer_tag: tag, ..BasicCancel::default() };
        let came = client.call(1, cancel).await;
        let Method::BasicCancelOk(ok) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(ok.consumer_tag, tag);
    }
    let passive = QueueDeclare { queue: "auto", passive: true, ..QueueDeclare::default() };
    client.refuses(1, passive, "NOT_FOUND - no queue 'auto' in vhost '/'").await;

    client.declared(1, declare).await;
    client.consume(1, "auto", "a").await;
    client.close_channel(1).await;
    client.open_channel(1).await;
    client.refuses(1, passive, "NOT_FOUND - no queue 'auto' in vhost '/'").await;
}

#[tokio::test]
async fn purge_and_delete_return_the_message_count() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    client.fill("q", &["a", "b", "c"]).await;
    let delete = QueueDelete { queue: "q", if_empty: true, ..QueueDelete::default() };
    let text = "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty";
    client.refuses(1, delete, text).await;
    let came = client.call(1, QueuePurge { queue: "q", ..QueuePurge::default() }).await;
    let Method::QueuePurgeOk(ok) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!(ok.message_count, 3);
    client.fill("q", &["d"]).await;
    client.consume(1, "q", "c").await;
    client.next(1).await;
    let delete = QueueDelete { queue: "q", if_unused: true, ..QueueDelete::default() };
    let text = "PRECONDITION_FAILED - queue 'q' in vhost '/' in use";
    client.refuses(1, delete, text).await;
    let came = client.call(1, QueueDelete { queue: "q", ..QueueDelete::default() }).await;
    let Method::QueueDeleteOk(ok) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!(ok.message_count, 1);
}

#[tokio::test]
async fn methods_with_no_wait_get_no_reply() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let no_wait = true;
    let declare = QueueDeclare { queue: "q", durable: true, no_wait, ..QueueDeclare::default() };
    client.send(1, declare).await;
    let exchange = "x";
    let declare =
        ExchangeDeclare { exchange, kind: "fanout", no_wait, ..ExchangeDeclare::default() };
    client.send(1, declare).await;
    client.send(1, QueueBind { queue: "q", exchange, no_wait, ..QueueBind::default() }).await;
    client.send(1, ConfirmSelect { no_wait, ..ConfirmSelect::default() }).await;
    client.publish(1, "x", "", b"one").await;
    client.confirmed_up_to(1, 1).await;
    assert_eq!(client.queue_counts("q").await.messages, 1);
    client.send(1, QueuePurge { queue: "q", no_wait, ..QueuePurge::default() }).await;
    assert_eq!(client.queue_counts("q").await.messages, 0);
    client.send(1, QueueDelete { queue: "q", no_wait, ..QueueDelete::default() }).await;
    client.send(1, ExchangeDelete { exchange, no_wait, ..ExchangeDelete::default() }).await;
    client.is_silent().await;
}

#[tokio::test]
async fn only_durable_queues_and_their_messages_survive_a_restart() {
    let disk = std::sync::Arc::new(world::SimulatedDisk::new());
    let node = Node::on(std::sync::Arc::clone(&disk), |_| {}).await;
    let mut client = node.client().await;
    client.declare("kept").await;
    client.declared(1, QueueDeclare { queue: "lost", ..QueueDeclare::default() }).await;
    client.bind("kept", "amq.topic", "a.#").await;
    client.select_confirms(1).await;
    client.publish(1, "amq.topic", "a.b", b"one").await;
    client.publish(1, "", "lost", b"two").await;
    client.confirmed_up_to(1, 2).await;
    client.close().await;
    node.shutdown().await;

    let node = Node::on(disk, |_| {}).await;
    let mut client = node.client().await;
    assert_eq!(client.queue_counts("kept").await.messages, 1);
    client.publish(1, "amq.topic", "a", b"three").await;
    client.consume(1, "kept", "c").await;
    assert_eq!(client.texts(1, 2).await, ["one", "three"]);
    let passive = QueueDeclare { queue: "lost", passive: true, ..QueueDeclare::default() };
    client.refuses(1, passive, "NOT_FOUND - no queue 'lost' in vhost '/'").await;
}
