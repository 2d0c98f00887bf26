//! Three nodes: what clients are told of them, and what a node says that is not the right one.

mod answers;
mod groups;
mod share;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::cluster::{Node as Member, NodeOptions};
use broker::{Broker, BrokerOptions};
use futures_util::future::join_all;
use gateway::Connections;
use gateway_kafka::GatewayOptions;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use links::Security;
use nodes::{Endpoint, Endpoints, Nodes};
use tasks::Failure;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use world::{Net, SimulatedDisk, World};

use crate::harness::{Client, SOON};

/// One for each node, so that each leads one.
const SHARDS: u32 = 3;

struct Node {
    broker: Broker,
    address: SocketAddr,
    /// What it is served for as long as it lives.
    _serving: (watch::Sender<bool>, JoinHandle<()>),
}

/// Nodes 1 to 3, in their order.
struct Cluster {
    nodes: Vec<Node>,
}

/// All of loopback leads to this machine: nobody else has the address.
fn peer_address() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), LAST.fetch_add(1, Ordering::SeqCst));
    format!("127.{}.{}.{}:7701", 220 + process / 250 % 30, 1 + process % 250, 1 + number % 250)
}

impl Cluster {
    async fn start() -> Self {
        let seeds: Vec<String> = (0..3).map(|_| peer_address()).collect();
        let nodes = join_all(seeds.iter().map(|address| start(address, &seeds))).await;
        let mut nodes = timeout(SOON, async { nodes }).await.expect("they start");
        nodes.sort_by_key(|node| node.broker.node());
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            node.broker.ready().await.expect("each shard has a leader");
        }
        cluster.all_know_each_other().await;
        cluster
    }

    /// Until then a leader may be known and its endpoint not.
    async fn all_know_each_other(&self) {
        for id in 1..=3 {
            let mut client = self.client(id).await;
            while all_metadata(&mut client).await.brokers.len() < 3 {
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

    fn port(&self, id: i32) -> i32 {
        i32::from(self.node(id).address.port())
    }
}

async fn start(address: &str, seeds: &[String]) -> Node {
    let (world, dir) = (World::on(Arc::new(SimulatedDisk::new())), Path::new("/data"));
    let (connections, failure) = (Connections::default(), Failure::new());
    let options = NodeOptions {
        listen: address.parse().expect("an address"),
        address: address.to_owned(),
        seeds: seeds.to_vec(),
        security: Security::Plain { beyond_loopback: false },
    };
    let member = Member::start(&world, dir, options, connections, &failure).await;
    let member = Arc::new(member.expect("it starts"));
    let options = BrokerOptions {
        node: member.identity().at.node.0 as u32,
        shards: Some(SHARDS),
        journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
        cluster: Some(Arc::clone(&member)),
        failure: Some(failure),
        ..BrokerOptions::default()
    };
    let broker = Broker::open(world, dir, options).await.expect("it opens");
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Net::Kernel.listen(any_port).await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    let kafka = Endpoint { host: "127.0.0.1".to_owned(), port: address.port() };
    let nodes = Nodes::join(&broker, &member, Endpoints { kafka, amqp: None });
    let (stop, stopping) = watch::channel(false);
    let options = GatewayOptions::new(nodes);
    let serving = gateway_kafka::serve(listener, broker.clone(), options, stopping);
    Node { broker, address, _serving: (stop, tokio::spawn(serving)) }
}

async fn all_metadata(client: &mut Client) -> MetadataResponse {
    client.ask(12, &MetadataRequest::default().with_topics(None)).await
}

/// Another node than this one.
fn other_than(id: i32) -> i32 {
    id % 3 + 1
}
