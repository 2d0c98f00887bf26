//! Three or four nodes: their metadata, and requests to a node that is not the leader or coordinator.

mod answers;
mod currency;
mod elections;
mod groups;
mod near;
mod share;
mod spread;
mod transactions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admin::Admin;
use broker::Broker;
use consumer_groups::Groups;
use futures_util::future::join_all;
use gateway::Connections;
use gateway_kafka::GatewayOptions;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use nodes::{Endpoint, Endpoints, Nodes};
use operations::cluster::Operation;
use operations::family::OperationFamily;
use test_cluster::TestNode;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use world::Net;

use crate::harness::{Client, SOON};

struct Node {
    broker: Broker,
    address: SocketAddr,
    nodes: Nodes,
    member: Arc<cluster::Node>,
    /// Serves the node as long as it lives.
    _serving: (watch::Sender<bool>, JoinHandle<()>),
}

/// Nodes 1 to 3, or 4, in their order.
struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    async fn start() -> Self {
        Self::of(timeout(SOON, test_cluster::start_three()).await.expect("they start")).await
    }

    /// A cluster of four nodes; each partition has three replicas.
    async fn start_four() -> Self {
        Self::start_newest(4).await
    }

    /// At the newest feature level.
    async fn start_newest(nodes: usize) -> Self {
        let levels = vec![base::Levels::OURS.max.0; nodes];
        let starting = test_cluster::start_all_with_levels(&levels);
        Self::of(timeout(SOON, starting).await.expect("they start")).await
    }

    async fn of(started: Vec<TestNode>) -> Self {
        let nodes = join_all(started.into_iter().map(serve)).await;
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            node.broker.ready().await.expect("each shard has a leader");
        }
        cluster.all_know_each_other().await;
        cluster
    }

    /// Until then a leader may be known without its endpoint.
    async fn all_know_each_other(&self) {
        let count = self.nodes.len();
        for id in 1..=count as i32 {
            let mut client = self.client(id).await;
            while all_metadata(&mut client).await.brokers.len() < count {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    fn node(&self, id: i32) -> &Node {
        &self.nodes[id as usize - 1]
    }

    async fn client(&self, id: i32) -> Client {
        Client::new(TcpStream::connect(self.node(id).address).await.expect("connects"))
    }

    /// Executes an operator's operation at a node.
    async fn operate(&self, id: i32, operation: Operation) {
        let node = self.node(id);
        let administration = node.nodes.administration(&node.broker);
        let asked = serde_json::to_vec(&operation).expect("written");
        administration.carry_out(asked).await.expect("it is done");
    }

    /// Stops the node without handing its leadership over.
    async fn end(&self, id: i32) {
        let node = self.node(id);
        node.broker.shutdown().await;
        node.member.close().await;
    }

    fn port(&self, id: i32) -> i32 {
        i32::from(self.node(id).address.port())
    }
}

async fn serve(node: TestNode) -> Node {
    let TestNode { broker, member, .. } = node;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Net::Kernel.listen(any_port).await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    let kafka = Endpoint { host: "127.0.0.1".to_owned(), port: address.port() };
    let rack = Some(rack(broker.node() as i32));
    let endpoints = Endpoints { kafka, amqp: None, kafka_tls: None, rack };
    let nodes = Nodes::join(&broker, &member, endpoints, None);
    let (stop, stopping) = watch::channel(false);
    let (groups, connections) = (Groups::start(&broker), Connections::default());
    let admin = Admin::new(broker.clone(), groups.clone(), connections, Vec::new());
    let options = GatewayOptions::new(nodes.clone(), groups, admin);
    let serving = gateway_kafka::serve(listener.into(), broker.clone(), options, stopping);
    Node { broker, address, nodes, member, _serving: (stop, tokio::spawn(serving)) }
}

async fn all_metadata(client: &mut Client) -> MetadataResponse {
    client.ask(12, &MetadataRequest::default().with_topics(None)).await
}

/// Each node has a rack of its own.
fn rack(id: i32) -> String {
    format!("rack-{id}")
}

/// Another node than this one.
fn other_than(id: i32) -> i32 {
    id % 3 + 1
}
