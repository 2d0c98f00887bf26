//! Three nodes: what a channel sees of its own work, whichever node leads.

use std::sync::Arc;

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

    /// The place of a node that does not lead the catalog.
    fn follower_of_the_catalog(&self) -> usize {
        let leads = |member: &TestNode| member.broker.leads_catalog();
        self.members.iter().position(|member| !leads(member)).expect("one leads")
    }

    /// Whether the node of this place leads the queue.
    fn leads(&self, place: usize, queue: &str) -> bool {
        let broker = &self.members[place].broker;
        let topic = broker.catalog().topic_id(queue).expect("it is declared");
        broker.leaders(topic).of(0).node == Some(place as u32 + 1)
    }
}

#[tokio::test]
async fn a_channel_finds_the_dead_letters_of_its_rejects_in_the_next_get_and_count() {
    let cluster = Cluster::start().await;
    // Queues and their dead letters are in all shards.
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
            let came = client.ask(1, get).await;
            let Method::BasicGetOk(got) = came.method() else { panic!("{:?}", came.method()) };
            let tag = got.delivery_tag;
            assert_eq!(client.message(came).await.text(), text);
            client.nack(1, tag, false).await;
            assert_eq!(client.look_at(&graves).await.messages, 1, "{queue}");
            let (_, body) = client.get(1, &graves).await.expect("its dead letter is there");
            assert_eq!(body, text.as_bytes(), "{queue}");
        }
        client.close().await;
    }
}

#[tokio::test]
async fn a_channel_finds_what_it_published_at_a_node_that_does_not_lead() {
    let cluster = Cluster::start().await;
    for number in 0..30 {
        let queue = format!("queue {number}");
        let (here, other) = (&cluster.nodes[number % 3], &cluster.nodes[(number + 1) % 3]);
        let mut client = here.client().await;
        client.declare(&queue).await;
        // Nothing is confirmed on the channel.
        client.publish(1, "", &queue, b"a").await;
        let (_, body) = client.get(1, &queue).await.expect("it is there");
        assert_eq!(body, b"a", "{queue}");
        client.select_confirms(1).await;
        client.publish(1, "", &queue, b"b").await;
        client.confirmed_up_to(1, 1).await;
        let mut observer = other.client().await;
        assert_eq!(observer.look_at(&queue).await.messages, 1, "{queue}");
        client.close().await;
        observer.close().await;
    }
}

/// A queue that changed at another node, behind the back of the node of `client`.
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
        // A node that leads the queue itself lets a consumer in, and cancels it afterwards.
        if !is_led_here {
            break queue;
        }
        number += 1;
    };
    client.select_confirms(1).await;
    let gate = cluster.members[here].gate();
    gate.close();
    other.ask(1, QueueDelete { queue: &queue, ..QueueDelete::default() }).await;
    ChangedElsewhere { _cluster: cluster, gate, client, other, queue }
}

/// A message for a queue of that name, to be returned where there is none.
async fn publish_mandatory(client: &mut Client, queue: &str) {
    let publish = BasicPublish { routing_key: queue, mandatory: true, ..BasicPublish::default() };
    client.publish_with(1, publish, &Properties::default(), b"a").await;
}

#[tokio::test]
async fn a_queue_that_another_node_deleted_is_declared_again_and_its_message_is_kept() {
    let mut changed = queue_deleted_elsewhere().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut changed;
    client.send(1, QueueDeclare { queue, durable: true, ..QueueDeclare::default() }).await;
    publish_mandatory(client, queue).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::QueueDeclareOk(_)), "{:?}", came.method());
    client.confirmed_up_to(1, 1).await;
    assert_eq!(other.look_at(queue).await.messages, 1);
}

#[tokio::test]
async fn a_message_to_a_queue_that_another_node_deleted_is_returned() {
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

/// It was deleted and declared again, with one message in it.
async fn queue_declared_again_elsewhere() -> ChangedElsewhere {
    let mut changed = queue_deleted_elsewhere().await;
    let ChangedElsewhere { other, queue, .. } = &mut changed;
    other.declare(queue).await;
    other.select_confirms(1).await;
    other.publish(1, "", queue, b"new").await;
    other.confirmed_up_to(1, 1).await;
    changed
}

#[tokio::test]
async fn a_queue_that_another_node_declared_again_is_consumed() {
    let mut changed = queue_declared_again_elsewhere().await;
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
async fn a_message_is_got_from_a_queue_that_another_node_declared_again() {
    let mut changed = queue_declared_again_elsewhere().await;
    let ChangedElsewhere { gate, client, queue, .. } = &mut changed;
    client.send(1, BasicGet { queue, ..BasicGet::default() }).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicGetOk(_)), "{:?}", came.method());
    assert_eq!(client.message(came).await.text(), "new");
}

#[tokio::test]
async fn a_queue_that_another_node_declared_again_is_purged() {
    let mut changed = queue_declared_again_elsewhere().await;
    let ChangedElsewhere { gate, client, other, queue, .. } = &mut changed;
    client.send(1, QueuePurge { queue, ..QueuePurge::default() }).await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    let Method::QueuePurgeOk(purged) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!(purged.message_count, 1);
    assert_eq!(other.look_at(queue).await.messages, 0);
}
