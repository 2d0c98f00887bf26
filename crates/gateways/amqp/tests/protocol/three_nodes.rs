//! Three nodes: a channel reads its own writes, whichever node leads the shard.

use std::sync::Arc;
use std::time::Duration;

use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;
use test_cluster::{Gate, TestNode};

use crate::harness::{Client, Node};

struct Cluster {
    nodes: Vec<Node>,
    members: Vec<TestNode>,
}

impl Cluster {
    async fn start() -> Self {
        Self::of(test_cluster::start_three().await).await
    }

    async fn of(members: Vec<TestNode>) -> Self {
        let mut nodes = Vec::new();
        for member in &members {
            member.broker.ready().await.expect("each shard has a leader");
            nodes.push(Node::serve(member.broker.clone(), Vec::new(), |_| {}).await);
        }
        Self { nodes, members }
    }

    /// Index of a node that does not lead the catalog.
    fn follower_of_the_catalog(&self) -> usize {
        let leads = |member: &TestNode| member.broker.leads_catalog();
        self.members.iter().position(|member| !leads(member)).expect("one leads")
    }

    /// Returns whether the node at this index leads the queue's shard.
    fn leads(&self, place: usize, queue: &str) -> bool {
        let broker = &self.members[place].broker;
        let topic = broker.catalog().topic_id(queue).expect("it is declared");
        broker.leaders(topic).of(0).node == Some(place as u32 + 1)
    }
}

#[tokio::test]
async fn get_and_count_find_the_dead_letters_of_earlier_rejects_of_the_channel() {
    let cluster = Cluster::start().await;
    // The queues and their dead letters are spread over all shards.
    for (number, node) in (0..9).zip(cluster.nodes.iter().cycle()) {
        let (queue, graves) = (format!("queue {number}"), format!("graves {number}"));
        let mut client = node.client().await;
        client.declare(&graves).await;
        let arguments = [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", &*graves)];
        let arguments = arguments.map(|(name, value)| (name, value.into()));
        client.declare_with(&queue, &arguments).await;
        client.fill(&queue, &["a", "b"]).await;
        for text in ["a", "b"] {
            let get = BasicGet { queue: &queue, ..BasicGet::default() };
            let came = client.call(1, get).await;
            let Method::BasicGetOk(got) = came.method() else { panic!("{:?}", came.method()) };
            let tag = got.delivery_tag;
            assert_eq!(client.message(came).await.text(), text);
            client.nack(1, tag, false).await;
            assert_eq!(client.queue_counts(&graves).await.messages, 1, "{queue}");
            let (_, body) = client.get(1, &graves).await.expect("its dead letter is there");
            assert_eq!(body, text.as_bytes(), "{queue}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn channel_reads_its_own_publishes_at_a_follower() {
    let cluster = Cluster::start().await;
    for number in 0..30 {
        let queue = format!("queue {number}");
        let (here, other) = (&cluster.nodes[number % 3], &cluster.nodes[(number + 1) % 3]);
        let mut client = here.client().await;
        client.declare(&queue).await;
        // The channel has no confirms.
        client.publish(1, "", &queue, b"a").await;
        let (_, body) = client.get(1, &queue).await.expect("it is there");
        assert_eq!(body, b"a", "{queue}");
        client.select_confirms(1).await;
        client.publish(1, "", &queue, b"b").await;
        client.confirmed_up_to(1, 1).await;
        let mut observer = other.client().await;
        assert_eq!(observer.queue_counts(&queue).await.messages, 1, "{queue}");
        client.close().await;
        observer.close().await;
    }
}

/// A queue that is to be bound at another node, while the node of `client` is cut off. Bindings of the exchange
/// `fan` at the node of `client` are known: none.
async fn queue_without_binding() -> ChangedElsewhere {
    let cluster = Cluster::of(test_cluster::start_three_behind_gates().await).await;
    let here = cluster.follower_of_the_catalog();
    let mut client = cluster.nodes[here].client().await;
    let mut other = cluster.nodes[(here + 1) % 3].client().await;
    let fan = ExchangeDeclare { exchange: "fan", kind: "fanout", ..ExchangeDeclare::default() };
    client.call(1, fan).await;
    let queue = "queue".to_owned();
    other.declare(&queue).await;
    client.declare("known").await;
    client.bind("known", "fan", "").await;
    client.select_confirms(1).await;
    let gate = cluster.members[here].gate();
    gate.close();
    ChangedElsewhere { _cluster: cluster, gate, client, other, queue }
}

#[tokio::test]
async fn bind_is_confirmed_once_the_connected_nodes_route_by_it() {
    let mut cut_off = queue_without_binding().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut cut_off;
    other.send(1, QueueBind { queue, exchange: "fan", ..QueueBind::default() }).await;
    other.is_silent().await;
    gate.open();
    let came = other.method(1).await;
    assert!(matches!(came.method(), Method::QueueBindOk(_)), "{:?}", came.method());
    client.publish(1, "fan", "", b"a").await;
    client.confirmed_up_to(1, 1).await;
    assert_eq!(other.queue_counts(queue).await.messages, 1);
}

#[tokio::test]
async fn unbound_queue_gets_no_message_published_later_at_another_node() {
    let cluster = Cluster::start().await;
    let mut clients = Vec::new();
    for node in &cluster.nodes {
        let mut client = node.client().await;
        client.select_confirms(1).await;
        clients.push(client);
    }
    let fan = ExchangeDeclare { exchange: "fan", kind: "fanout", ..ExchangeDeclare::default() };
    clients[0].call(1, fan).await;
    for (place, client) in clients.iter_mut().enumerate() {
        client.declare(&format!("queue {place}")).await;
    }
    let mut published = [0; 3];
    for round in 0..30 {
        let place = round % 3;
        let queue = format!("queue {place}");
        clients[place].bind(&queue, "fan", "").await;
        publish_to_fan(&mut clients, &mut published, (place + 1) % 3).await;
        let unbind = QueueUnbind { queue: &queue, exchange: "fan", ..QueueUnbind::default() };
        clients[place].call(1, unbind).await;
        publish_to_fan(&mut clients, &mut published, (place + 2) % 3).await;
        let received = clients[place].queue_counts(&queue).await.messages;
        assert_eq!(received as usize, round / 3 + 1, "only the first message of round {round}");
    }
}

/// Publishes a message with one of the clients.
async fn publish_to_fan(clients: &mut [Client], published: &mut [u64; 3], place: usize) {
    clients[place].publish(1, "fan", "", b"a").await;
    published[place] += 1;
    clients[place].confirmed_up_to(1, published[place]).await;
}

/// A queue that was changed at another node, while the node of `client` is cut off from the change.
struct ChangedElsewhere {
    _cluster: Cluster,
    /// Keeps the change from the node of `client`.
    gate: Arc<Gate>,
    /// Its channel has confirms.
    client: Client,
    other: Client,
    queue: String,
}

async fn queue_deleted_elsewhere() -> ChangedElsewhere {
    let cluster = Cluster::of(test_cluster::start_three_behind_gates().await).await;
    let here = cluster.follower_of_the_catalog();
    let mut client = cluster.nodes[here].client().await;
    let mut other = cluster.nodes[(here + 1) % 3].client().await;
    let mut number = 0;
    let queue = loop {
        let queue = format!("queue.{number}");
        client.declare(&queue).await;
        let is_led_here = cluster.leads(here, &queue);
        // A node that leads the queue itself would accept the consumer and cancel it later.
        if !is_led_here {
            break queue;
        }
        number += 1;
    };
    client.select_confirms(1).await;
    let gate = cluster.members[here].gate();
    gate.close();
    other.call(1, QueueDelete { queue: &queue, ..QueueDelete::default() }).await;
    ChangedElsewhere { _cluster: cluster, gate, client, other, queue }
}

/// Publishes a mandatory message to the queue of this name.
async fn publish_mandatory(client: &mut Client, queue: &str) {
    let publish = BasicPublish { routing_key: queue, mandatory: true, ..BasicPublish::default() };
    client.publish_with(1, publish, &Properties::default(), b"a").await;
}

#[tokio::test]
async fn queue_deleted_elsewhere_is_declared_again_and_keeps_its_message() {
    let mut changed = queue_deleted_elsewhere().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut changed;
    client.send(1, QueueDeclare { queue, durable: true, ..QueueDeclare::default() }).await;
    publish_mandatory(client, queue).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::QueueDeclareOk(_)), "{:?}", came.method());
    client.confirmed_up_to(1, 1).await;
    assert_eq!(other.queue_counts(queue).await.messages, 1);
}

#[tokio::test]
async fn message_to_a_queue_deleted_elsewhere_is_returned() {
    let mut changed = queue_deleted_elsewhere().await;
    let ChangedElsewhere { gate, client, queue, .. } = &mut changed;
    publish_mandatory(client, queue).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicReturn(_)), "{:?}", came.method());
    client.message(came).await;
    client.confirmed_up_to(1, 1).await;
}

/// The queue was deleted and declared again, and holds one message.
async fn queue_redeclared_elsewhere() -> ChangedElsewhere {
    let mut changed = queue_deleted_elsewhere().await;
    let ChangedElsewhere { other, queue, .. } = &mut changed;
    other.declare(queue).await;
    other.select_confirms(1).await;
    other.publish(1, "", queue, b"new").await;
    other.confirmed_up_to(1, 1).await;
    changed
}

#[tokio::test]
async fn consume_finds_a_queue_redeclared_elsewhere() {
    let mut changed = queue_redeclared_elsewhere().await;
    let ChangedElsewhere { gate, client, queue, .. } = &mut changed;
    client.send(1, BasicConsume { queue, ..BasicConsume::default() }).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicConsumeOk(_)), "{:?}", came.method());
    let came = client.method(1).await;
    assert_eq!(client.message(came).await.text(), "new");
}

#[tokio::test]
async fn get_finds_a_queue_redeclared_elsewhere() {
    let mut changed = queue_redeclared_elsewhere().await;
    let ChangedElsewhere { gate, client, queue, .. } = &mut changed;
    client.send(1, BasicGet { queue, ..BasicGet::default() }).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicGetOk(_)), "{:?}", came.method());
    assert_eq!(client.message(came).await.text(), "new");
}

#[tokio::test]
async fn purge_finds_a_queue_redeclared_elsewhere() {
    let mut changed = queue_redeclared_elsewhere().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut changed;
    client.send(1, QueuePurge { queue, ..QueuePurge::default() }).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    let Method::QueuePurgeOk(purged) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!(purged.message_count, 1);
    assert_eq!(other.queue_counts(queue).await.messages, 0);
}

/// A queue that was declared at another node, while the node of `client` is cut off from the declaration.
async fn queue_declared_elsewhere() -> ChangedElsewhere {
    let cluster = Cluster::of(test_cluster::start_three_behind_gates().await).await;
    let here = cluster.follower_of_the_catalog();
    let mut client = cluster.nodes[here].client().await;
    let mut other = cluster.nodes[(here + 1) % 3].client().await;
    client.declare("known").await;
    let gate = cluster.members[here].gate();
    gate.close();
    let queue = "queue".to_owned();
    other.declare(&queue).await;
    ChangedElsewhere { _cluster: cluster, gate, client, other, queue }
}

#[tokio::test]
async fn message_is_nacked_while_its_queue_may_have_been_declared_elsewhere() {
    let mut declared = queue_declared_elsewhere().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut declared;
    client.select_confirms(1).await;
    publish_mandatory(client, queue).await;
    let came = client.method(1).await;
    let Method::BasicNack(nack) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!((nack.delivery_tag, nack.multiple), (1, false));
    gate.open();
    // Messages are rejected until the node hears from the catalog's leader.
    loop {
        publish_mandatory(client, queue).await;
        let came = client.method(1).await;
        match came.method() {
            Method::BasicNack(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Method::BasicAck(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(other.queue_counts(queue).await.messages, 1);
}

#[tokio::test]
async fn transaction_fails_while_a_queue_may_have_been_declared_elsewhere() {
    let mut declared = queue_declared_elsewhere().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut declared;
    client.call(1, TxSelect::default()).await;
    client.publish(1, "", queue, b"a").await;
    let came = client.method(1).await;
    let Method::ChannelClose(close) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!(close.reply_code, 406, "{}", close.reply_text);
    gate.open();
    assert_eq!(other.queue_counts(queue).await.messages, 0);
}
