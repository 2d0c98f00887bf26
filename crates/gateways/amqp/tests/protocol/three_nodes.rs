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

/// The queue `q` was deleted at another node. The gate keeps the deletion from the node of the first client, whose channel
/// has confirms.
async fn queue_deleted_elsewhere() -> (Cluster, Arc<Gate>, Client, Client) {
    let cluster = Cluster::of(test_cluster::start_three_behind_gates().await).await;
    let here = cluster.follower_of_the_catalog();
    let mut client = cluster.nodes[here].client().await;
    let mut other = cluster.nodes[(here + 1) % 3].client().await;
    client.declare("q").await;
    client.select_confirms(1).await;
    let gate = cluster.members[here].gate();
    gate.close();
    other.ask(1, QueueDelete { queue: "q", ..QueueDelete::default() }).await;
    (cluster, gate, client, other)
}

/// A message for a queue of that name, to be returned where there is none.
async fn publish_mandatory(client: &mut Client, queue: &str) {
    let publish = BasicPublish { routing_key: queue, mandatory: true, ..BasicPublish::default() };
    client.publish_with(1, publish, &Properties::default(), b"a").await;
}

#[tokio::test]
async fn a_queue_that_another_node_deleted_is_declared_again_and_its_message_is_kept() {
    let (_cluster, gate, mut client, mut other) = queue_deleted_elsewhere().await;
    client.send(1, QueueDeclare { queue: "q", durable: true, ..QueueDeclare::default() }).await;
    publish_mandatory(&mut client, "q").await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::QueueDeclareOk(_)), "{:?}", came.method());
    client.confirmed_up_to(1, 1).await;
    assert_eq!(other.look_at("q").await.messages, 1);
}

#[tokio::test]
async fn a_message_to_a_queue_that_another_node_deleted_is_returned() {
    let (_cluster, gate, mut client, _other) = queue_deleted_elsewhere().await;
    publish_mandatory(&mut client, "q").await;
    client.is_silent().await;
    gate.open();
    let came = client.method(1).await;
    assert!(matches!(came.method(), Method::BasicReturn(_)), "{:?}", came.method());
    client.message(came).await;
    client.confirmed_up_to(1, 1).await;
}
