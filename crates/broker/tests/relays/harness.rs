//! Nodes of a cluster in one process, usually three. Each has its own runtime, so that one can be killed like a
//! process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::delivery::{Events, SettleError};
use broker::{
    AppendBatch, Broker, BrokerOptions, ConsumeOptions, Credit, Delivery, Event, LeaseSession,
    NewTopic, Settle, Settlement, TakeOptions,
};
use bytes::BytesMut;
use cluster::{Node as Member, NodeOptions};
use futures_util::future::join_all;
use gateway::Connections;
use links::Security;
use record::{BatchBuilder, BatchHeader, BatchOptions};
use tasks::Failure;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use world::{Disk, Entropy, OsEntropy, SimulatedDisk, World};

pub(crate) const SOON: Duration = Duration::from_secs(20);
/// One per node, so that each leads one.
const SHARDS: u32 = 3;

struct Node {
    broker: Broker,
    disk: Arc<SimulatedDisk>,
    runtime: Option<Runtime>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Node {
    /// Kills the process: the operating system closes its connections.
    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Nodes 1 to 3, or more, in order.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    /// The topics, each with a group.
    pub(crate) topic: TopicId,
    pub(crate) group: LeaseGroupId,
}

/// All of 127/8 is this machine, so no other process has the address.
fn peer_address() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), LAST.fetch_add(1, Ordering::SeqCst));
    format!("127.{}.{}.{}:7702", 190 + process / 250 % 30, 1 + process % 250, 1 + number % 250)
}

fn overrides(config: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    config.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

impl Cluster {
    /// A cluster with a topic of `partitions` and a lease group of it.
    pub(crate) async fn start(partitions: u32, config: &[(&str, &str)]) -> Self {
        Self::start_of(3, partitions, config).await
    }

    /// The same with `count` nodes: with more than three each shard has three replicas, and the nodes gossip
    /// leaders.
    pub(crate) async fn start_of(count: usize, partitions: u32, config: &[(&str, &str)]) -> Self {
        let seeds: Vec<String> = (0..count).map(|_| peer_address()).collect();
        let nodes = join_all(seeds.iter().map(|address| start(address, &seeds)));
        let mut nodes = timeout(SOON, nodes).await.expect("they start");
        nodes.sort_by_key(|node| node.broker.node());
        if count > 3 {
            gossip_leaders(&nodes);
        }
        for node in &nodes {
            let ready = timeout(SOON, node.broker.ready()).await.expect("soon");
            ready.expect("each shard has a leader");
        }
        let made = NewTopic {
            name: "work".to_owned(),
            uuid: OsEntropy.uuid(),
            partitions,
            config: overrides(&[]),
        };
        let broker = &nodes[0].broker;
        let topic = broker.create_topic(made).await.expect("the topic is new");
        let group = broker.create_lease_group(topic, "main".into(), Vec::new(), overrides(config));
        let group = group.await.expect("the group is new");
        let cluster = Self { nodes, topic, group };
        for node in 1..=count as u32 {
            let known = async || cluster.broker(node).counters(group).await.is_some();
            wait_for(known, || format!("node {node} knows the group")).await;
        }
        cluster
    }

    pub(crate) fn broker(&self, node: u32) -> &Broker {
        &self.nodes[node as usize - 1].broker
    }

    fn is_up(&self, node: u32) -> bool {
        self.nodes[node as usize - 1].runtime.is_some()
    }

    pub(crate) fn kill(&mut self, node: u32) {
        self.nodes[node as usize - 1].kill();
    }

    /// Stops the node's only thread for this time, as a paused process. Its connections stay open.
    pub(crate) fn pause(&self, node: u32, time: Duration) {
        let runtime = self.nodes[node as usize - 1].runtime.as_ref().expect("it lives");
        runtime.spawn(async move { std::thread::sleep(time) });
    }

    /// Makes syncs of the node's disk hang, or return again.
    pub(crate) fn hang_disk(&self, node: u32, hangs: bool) {
        self.nodes[node as usize - 1].disk.hang_syncs(hangs);
    }

    /// Fills the node's disk, or frees it.
    pub(crate) fn fill_disk(&self, node: u32, full: bool) {
        let disk = &self.nodes[node as usize - 1].disk;
        let space = disk.space(Path::new("/data")).expect("it is known");
        disk.set_capacity(full.then_some(space.total_bytes - space.free_bytes));
    }

    /// The leader of the shard of a partition.
    pub(crate) async fn leader(&self, partition: u32) -> u32 {
        let id = PartitionId::new(self.topic, partition);
        let leads = |node: &u32| self.is_up(*node) && self.broker(*node).leads_each(&[id])[0];
        let mut found = None;
        let found_one = async || {
            found = (1..=self.nodes.len() as u32).find(leads);
            found.is_some()
        };
        wait_for(found_one, || "a leader".to_owned()).await;
        found.expect("there is one")
    }

    /// A node that does not lead the shard of the first partition.
    pub(crate) async fn follower(&self) -> u32 {
        self.leader(0).await % 3 + 1
    }

    /// Appends at the current leader.
    pub(crate) async fn append(&self, partition: u32, values: &[String]) {
        loop {
            let leader = self.leader(partition).await;
            let batch = batch(PartitionId::new(self.topic, partition), values);
            match self.broker(leader).append(vec![batch]).await.remove(0) {
                Ok(_) => return,
                // It may have been appended or not: these tests check values, not their number.
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    pub(crate) async fn consume(&self, node: u32, options: ConsumeOptions) -> Consumer {
        let session = self.broker(node).lease_session();
        let events = session.events().expect("the first to ask");
        let consuming = session.consume(self.group, options);
        let id = timeout(SOON, consuming).await.expect("soon").expect("may consume");
        Consumer { session, events, id }
    }
}

/// Like the nodes' gossip, for as long as each node lives.
fn gossip_leaders(nodes: &[Node]) {
    for node in nodes {
        let broker = node.broker.clone();
        let others: Vec<Broker> = nodes.iter().map(|node| node.broker.clone()).collect();
        let telling = async move {
            let mut told = Vec::new();
            loop {
                let led = broker.led_groups();
                if told != led {
                    told.clone_from(&led);
                    for other in others.iter().filter(|other| other.node() != broker.node()) {
                        other.receive_led_groups(broker.node().into(), led.clone());
                    }
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        node.runtime.as_ref().expect("it lives").spawn(telling);
    }
}

async fn start(address: &str, seeds: &[String]) -> Node {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (listen, address): (SocketAddr, _) =
        (address.parse().expect("an address"), address.to_owned());
    let (seeds, disk) = (seeds.to_vec(), Arc::new(SimulatedDisk::new()));
    let own = Arc::clone(&disk);
    let started = runtime.spawn(async move {
        let (world, dir) = (World::on(own), Path::new("/data"));
        let failure = Failure::new();
        let security = Security::Plain { beyond_loopback: false };
        let options = NodeOptions {
            listen,
            address,
            seeds,
            join: Vec::new(),
            security,
            levels: base::Levels::OURS,
        };
        let member = Member::start(&world, dir, options, Connections::default(), &failure).await;
        let member = Arc::new(member.expect("it starts"));
        let options = BrokerOptions {
            node: member.identity().at.node.0 as u32,
            shards: Some(SHARDS),
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            cluster: Some(Arc::clone(&member)),
            failure: Some(failure),
            ..BrokerOptions::default()
        };
        Broker::open(world, dir, options).await.expect("it opens")
    });
    let broker = started.await.expect("it does not panic");
    Node { broker, disk, runtime: Some(runtime) }
}

pub(crate) fn batch(partition: PartitionId, values: &[String]) -> AppendBatch {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in values {
        builder.push(1_700_000_000_000, None, Some(value.as_bytes()), &[]).expect("it fits");
    }
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

pub(crate) fn values(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("v{number}")).collect()
}

/// Waits until the condition holds.
pub(crate) async fn wait_for(mut condition: impl AsyncFnMut() -> bool, what: impl Fn() -> String) {
    for _ in 0..2_000 {
        if condition().await {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{} did not come about in 20 seconds", what());
}

pub(crate) struct Consumer {
    pub(crate) session: LeaseSession,
    pub(crate) events: Events,
    pub(crate) id: u64,
}

impl Consumer {
    /// The deliveries of the next event; empty for another event or a timeout.
    pub(crate) async fn some(&mut self, within: Duration) -> Vec<Delivery> {
        match timeout(within, self.events.recv()).await {
            Ok(Some(Event::Deliveries(deliveries))) => deliveries,
            Ok(Some(Event::Active { .. })) | Err(_) => Vec::new(),
            Ok(other) => panic!("unexpected {other:?}"),
        }
    }

    /// The next `count` deliveries.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<Delivery> {
        let mut all = Vec::new();
        while all.len() < count {
            match timeout(SOON, self.events.recv()).await {
                Ok(Some(Event::Deliveries(deliveries))) => all.extend(deliveries),
                Ok(Some(Event::Active { .. })) => {}
                other => panic!("{} of {count} came, then {other:?}", all.len()),
            }
        }
        assert_eq!(all.len(), count, "more came");
        all
    }

    pub(crate) async fn settle(
        &self,
        deliveries: &[Delivery],
        settlement: Settlement,
    ) -> Vec<Result<(), SettleError>> {
        let settled = self.session.settle(settles(deliveries, settlement));
        timeout(SOON, settled).await.expect("it is answered")
    }

    pub(crate) async fn accept(&self, deliveries: &[Delivery]) {
        for result in self.settle(deliveries, Settlement::Accept).await {
            result.expect("settled");
        }
    }
}

pub(crate) async fn take(
    session: &LeaseSession,
    group: LeaseGroupId,
    records_max: u32,
    wait: Duration,
) -> Vec<Delivery> {
    let options = TakeOptions { records_max, wait, ..TakeOptions::default() };
    let taken = timeout(SOON, session.take(group, options)).await.expect("it is answered");
    taken.expect("may take")
}

pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.value().expect("a value").to_vec()).expect("text")
}

/// Options of a consumer that gets up to this number of records at a time.
pub(crate) fn window(records: u32) -> ConsumeOptions {
    ConsumeOptions { credit: Credit::records(records), ..ConsumeOptions::default() }
}

/// The same settle for each delivery.
pub(crate) fn settles(deliveries: &[Delivery], settlement: Settlement) -> Vec<Settle> {
    let settle =
        |delivery: &Delivery| Settle { group: delivery.group, what: delivery.lease(), settlement };
    deliveries.iter().map(settle).collect()
}

pub(crate) fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}
