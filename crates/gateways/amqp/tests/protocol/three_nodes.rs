//! Three nodes: what a channel sees of its own work, whichever node leads.

use gateway_amqp::codec::methods::*;
use test_cluster::TestNode;

use crate::harness::Node;

struct Cluster {
    nodes: Vec<Node>,
    _members: Vec<TestNode>,
}

impl Cluster {
    async fn start() -> Self {
        let members = test_cluster::start_three().await;
        let mut nodes = Vec::new();
        for member in &members {
            member.broker.ready().await.expect("each shard has a leader");
            nodes.push(Node::serve(member.broker.clone(), Vec::new(), |_| {}).await);
        }
        Self { nodes, _members: members }
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
