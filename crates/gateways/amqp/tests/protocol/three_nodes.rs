//! Three nodes: clients of one whose copy of the catalog is old, and what a channel sees of its own work.

use std::time::Duration;

use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::Properties;
use test_cluster::TestNode;
use tokio::time::{sleep, timeout};

use crate::harness::{Client, Node, SOON};

struct Cluster {
    nodes: Vec<Node>,
    members: Vec<TestNode>,
}

impl Cluster {
    async fn start() -> Self {
        let members = test_cluster::start_three().await;
        let mut nodes = Vec::new();
        for member in &members {
            member.broker.ready().await.expect("each shard has a leader");
            nodes.push(Node::serve(member.broker.clone(), Vec::new(), |_| {}).await);
        }
        Self { nodes, members }
    }

    /// A node that leads neither the catalog nor the shard of the queue, and another one.
    fn follower_of(&self, queue: &str) -> (usize, usize) {
        let follows = |at: &usize| {
            let broker = &self.nodes[*at].broker;
            let id = broker.catalog().topic_named(queue).expect("it is known").partition(0);
            !broker.leads_catalog() && !broker.leads(id.expect("it has one"))
        };
        let follower = (0..3).find(follows).expect("one of three");
        (follower, (follower + 1) % 3)
    }

    /// No change of the catalog reaches the node until it is to.
    fn hold_back(&self, at: usize, holds: bool) {
        self.members[at].place().disk().hang_syncs(holds);
    }

    async fn knows(&self, at: usize, queue: &str) -> bool {
        self.nodes[at].broker.catalog().topic_named(queue).is_some()
    }

    /// A queue that was deleted at another node, which the first node of the answer does not know; with a client there,
    /// and one at the other node.
    async fn deleted(&self, queue: &str) -> (usize, Client, Client) {
        let mut maker = self.nodes[0].client().await;
        maker.declare(queue).await;
        for node in &self.nodes {
            node.broker.catalog_is_current().await.expect("its leader can be asked");
        }
        let (stale, other) = self.follower_of(queue);
        let (here, mut there) =
            (self.nodes[stale].client().await, self.nodes[other].client().await);
        self.hold_back(stale, true);
        let delete = QueueDelete { queue, ..QueueDelete::default() };
        let came = there.ask(1, delete).await;
        assert!(matches!(came.method(), Method::QueueDeleteOk(_)), "{:?}", came.method());
        assert!(self.knows(stale, queue).await, "its copy is old");
        (stale, here, there)
    }
}

#[tokio::test]
async fn a_queue_that_another_node_deleted_is_declared_anew_at_a_node_with_an_old_copy() {
    let cluster = Cluster::start().await;
    let (stale, mut here, mut there) = cluster.deleted("q").await;
    let declare = QueueDeclare { queue: "q", durable: true, ..QueueDeclare::default() };
    here.send(1, declare).await;
    here.is_silent().await;
    cluster.hold_back(stale, false);
    let came = timeout(SOON, here.method(1)).await.expect("soon");
    assert!(matches!(came.method(), Method::QueueDeclareOk(_)), "{:?}", came.method());
    here.select_confirms(1).await;
    here.publish(1, "", "q", b"a").await;
    here.confirmed_up_to(1, 1).await;
    assert_eq!(there.look_at("q").await.messages, 1);
}

#[tokio::test]
async fn a_passive_declaration_at_a_node_with_an_old_copy_finds_no_queue() {
    let cluster = Cluster::start().await;
    let (stale, mut here, _) = cluster.deleted("q").await;
    let declare = QueueDeclare { queue: "q", passive: true, ..QueueDeclare::default() };
    here.send(1, declare).await;
    here.is_silent().await;
    cluster.hold_back(stale, false);
    timeout(SOON, here.channel_closes(1, "NOT_FOUND - no queue 'q' in vhost '/'"))
        .await
        .expect("soon");
}

#[tokio::test]
async fn a_message_for_a_queue_that_is_gone_is_returned_before_it_is_confirmed() {
    let cluster = Cluster::start().await;
    let (stale, mut here, _) = cluster.deleted("q").await;
    here.select_confirms(1).await;
    let publish = BasicPublish { routing_key: "q", mandatory: true, ..BasicPublish::default() };
    here.publish_with(1, publish, &Properties::default(), b"a").await;
    here.is_silent().await;
    cluster.hold_back(stale, false);
    let came = timeout(SOON, here.method(1)).await.expect("soon");
    let Method::BasicReturn(returned) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!((returned.reply_code, returned.routing_key), (312, "q"));
    assert_eq!(here.message(came).await.text(), "a");
    here.confirmed_up_to(1, 1).await;
}

#[tokio::test]
async fn a_message_for_a_queue_that_was_declared_anew_elsewhere_is_in_the_new_one() {
    let cluster = Cluster::start().await;
    let (stale, mut here, mut there) = cluster.deleted("q").await;
    there.declare("q").await;
    here.select_confirms(1).await;
    let publish = BasicPublish { routing_key: "q", mandatory: true, ..BasicPublish::default() };
    here.publish_with(1, publish, &Properties::default(), b"a").await;
    sleep(Duration::from_millis(100)).await;
    cluster.hold_back(stale, false);
    timeout(SOON, here.confirmed_up_to(1, 1)).await.expect("soon");
    assert_eq!(there.look_at("q").await.messages, 1);
    let (_, body) = there.get(1, "q").await.expect("it is there");
    assert_eq!(body, b"a");
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
