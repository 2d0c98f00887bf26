//! Four nodes with three replicas of each queue. Clients are connected to the node without a replica.

use gateway_amqp::codec::methods::*;
use test_cluster::TestNode;

use crate::harness::{Client, Node};

struct Cluster {
    nodes: Vec<Node>,
    _members: Vec<TestNode>,
}

impl Cluster {
    async fn start() -> Self {
        let members = test_cluster::start_four().await;
        let mut nodes = Vec::new();
        for member in &members {
            member.broker.ready().await.expect("each shard has a leader");
            nodes.push(Node::serve(member.broker.clone(), Vec::new(), |_| {}).await);
        }
        Self { nodes, _members: members }
    }

    /// Returns the node without a replica of the queue's topic, once all nodes know the topic.
    async fn outsider(&self, queue: &str) -> &Node {
        let lacks = |node: &&Node| {
            let catalog = node.broker.catalog();
            let topic = catalog.topic_named(queue).expect("it is known");
            let id = topic.partition(0).expect("it has one");
            drop(catalog);
            !node.broker.is_member(node.broker.shard_with(id))
        };
        for node in &self.nodes {
            node.broker.catalog_is_current().await.expect("its leader can be asked");
        }
        self.nodes.iter().find(lacks).expect("one of four")
    }

    /// Declares three queues, each in another shard. Returns each with a client at the node without its replica.
    async fn queues(
        &self,
        arguments: &[(&str, gateway_amqp::codec::table::FieldValue)],
    ) -> Vec<(String, Client)> {
        let mut maker = self.nodes[0].client().await;
        let mut queues = Vec::new();
        for name in ["one", "two", "three"] {
            maker.declare_with(name, arguments).await;
            let client = self.outsider(name).await.client().await;
            queues.push((name.to_owned(), client));
        }
        queues
    }
}

#[tokio::test]
async fn queue_without_a_local_replica_is_filled_counted_and_emptied() {
    let cluster = Cluster::start().await;
    for (queue, mut client) in cluster.queues(&[]).await {
        client.fill(&queue, &["a", "b", "c", "d"]).await;
        assert_eq!(client.queue_counts(&queue).await.messages, 4, "{queue}");
        let (_, body) = client.get(1, &queue).await.expect("it is there");
        assert_eq!(body, b"a");
        client.consume(1, &queue, "tag").await;
        assert_eq!(client.texts(1, 3).await, ["b", "c", "d"]);
        client.ack(1, 0, true).await;
        client.close().await;
    }
}

#[tokio::test]
async fn transaction_on_a_queue_without_a_local_replica_takes_effect() {
    let cluster = Cluster::start().await;
    for (queue, mut client) in cluster.queues(&[]).await {
        client.open_channel(2).await;
        client.call(2, TxSelect::default()).await;
        client.publish(2, "", &queue, b"a").await;
        client.publish(2, "", &queue, b"b").await;
        assert_eq!(client.queue_counts(&queue).await.messages, 0);
        let came = client.call(2, TxCommit::default()).await;
        assert!(matches!(came.method(), Method::TxCommitOk(_)), "{:?}", came.method());
        assert_eq!(client.queue_counts(&queue).await.messages, 2, "{queue}");
        client.consume(2, &queue, "tag").await;
        assert_eq!(client.texts(2, 2).await, ["a", "b"]);
        client.ack(2, 2, true).await;
        let came = client.call(2, TxCommit::default()).await;
        assert!(matches!(came.method(), Method::TxCommitOk(_)), "{:?}", came.method());
        client.close().await;
    }
}

#[tokio::test]
async fn stream_without_a_local_replica_delivers_old_and_new_records() {
    let cluster = Cluster::start().await;
    for (queue, mut client) in cluster.queues(&[("x-queue-type", "stream".into())]).await {
        client.fill(&queue, &["a", "b"]).await;
        let mut there = vec!["a", "b"];
        for texts in [["c", "d"], ["e", "f"]] {
            let mut reader = cluster.outsider(&queue).await.client().await;
            reader.prefetch(1, 10, false).await;
            let consume =
                BasicConsume { queue: &queue, consumer_tag: "tag", ..BasicConsume::default() };
            reader.consume_with(1, consume, &[("x-stream-offset", "first".into())]).await;
            for text in &there {
                assert_eq!(reader.next(1).await.text(), *text, "{queue}");
            }
            for text in texts {
                client.publish(1, "", &queue, text.as_bytes()).await;
                assert_eq!(reader.next(1).await.text(), text, "{queue}");
            }
            there.extend(texts);
            reader.close().await;
        }
        client.close().await;
    }
}
