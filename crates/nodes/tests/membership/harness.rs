//! Nodes of a cluster with membership, a load on them, and operator requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::{PartitionId, ShardId, TopicId};
use broker::{AppendBatch, Broker, FetchError, NewTopic, batches_in};
use bytes::BytesMut;
use cluster::NodeStartError;
use futures_util::future::join_all;
use nodes::{Administration, Endpoint, Endpoints, Nodes};
use operations::cluster::{NodeDecision, Operation, Status};
use operations::family::{OperationError, OperationFamily};
use parking_lot::Mutex;
use record::{BatchBuilder, BatchHeader, BatchOptions};
use serde::de::DeserializeOwned;
use test_cluster::{
    JournalOptions, NodeSetup, TestNode, start_all_with_levels, start_three, start_three_with,
    start_three_with_levels, try_start,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use world::{Entropy, OsEntropy};

pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Each in a shard of its own.
pub(crate) const PARTITIONS: u32 = 3;

pub(crate) struct Member {
    pub(crate) node: TestNode,
    pub(crate) nodes: Nodes,
}

pub(crate) struct Cluster {
    pub(crate) members: BTreeMap<u64, Member>,
    pub(crate) topic: TopicId,
    /// Racks that nodes are started with.
    pub(crate) racks: BTreeMap<u64, String>,
}

pub(crate) fn operator_token(node: u64) -> String {
    format!("operator token of node {node}")
}

fn follow(node: TestNode, rack: Option<String>) -> Member {
    let kafka = Endpoint { host: "localhost".to_owned(), port: node.broker.node() as u16 };
    let endpoints = Endpoints { kafka, amqp: None, kafka_tls: None, rack };
    let token = operator_token(node.broker.node().into());
    let nodes = Nodes::join(&node.broker, &node.member, endpoints, Some(&token));
    Member { node, nodes }
}

impl Cluster {
    /// Three nodes and a topic with a partition in each shard.
    pub(crate) async fn start() -> Self {
        Self::of(timeout(SOON, start_three()).await.expect("they start")).await
    }

    /// The same, with these journal options for all shards.
    pub(crate) async fn start_with(journal: JournalOptions) -> Self {
        Self::of(timeout(SOON, start_three_with(journal)).await.expect("they start")).await
    }

    /// The same, with programs that support feature levels up to these.
    pub(crate) async fn start_that_can(levels: [u16; 3]) -> Self {
        Self::of(timeout(SOON, start_three_with_levels(levels)).await.expect("they start")).await
    }

    /// As many founding nodes as there are levels.
    pub(crate) async fn start_all_with_levels(levels: &[u16]) -> Self {
        Self::of(timeout(SOON, start_all_with_levels(levels)).await.expect("they start")).await
    }

    async fn of(started: Vec<TestNode>) -> Self {
        let members = started.into_iter().map(|node| follow(node, None));
        let members = members.map(|it| (u64::from(it.node.broker.node()), it)).collect();
        let cluster = Self { members, topic: TopicId(0), racks: BTreeMap::new() };
        cluster.are_ready().await;
        let made = NewTopic {
            name: "work".to_owned(),
            uuid: OsEntropy.uuid(),
            partitions: PARTITIONS,
            config: BTreeMap::new(),
        };
        let topic = cluster.broker(1).create_topic(made).await.expect("the topic is new");
        // By then removed and lost nodes are recorded.
        for member in cluster.members.values() {
            let broker = &member.node.broker;
            wait_for(async || broker.topic_is_there(topic), || "the topic".to_owned()).await;
        }
        Self { topic, ..cluster }
    }

    pub(crate) fn broker(&self, node: u64) -> &Broker {
        &self.members[&node].node.broker
    }

    pub(crate) async fn are_ready(&self) {
        for member in self.members.values() {
            let ready = timeout(SOON, member.node.broker.ready()).await.expect("soon");
            ready.expect("each shard has a leader");
        }
    }

    pub(crate) fn nodes(&self) -> Vec<&TestNode> {
        self.members.values().map(|member| &member.node).collect()
    }

    /// A node with an empty disk at an address of its own.
    pub(crate) async fn join(&mut self) -> u64 {
        let place = NodeSetup::joining(&self.nodes());
        self.join_from(place).await.expect("it is let in")
    }

    /// A node with an empty disk at the address of a stopped one.
    pub(crate) async fn join_in_place_of(&mut self, place: &NodeSetup) -> u64 {
        let place = place.wiped(&self.nodes());
        self.join_from(place).await.expect("it is let in")
    }

    pub(crate) async fn join_from(&mut self, place: NodeSetup) -> Result<u64, NodeStartError> {
        let starting = Box::pin(try_start(place));
        let node = timeout(SOON, starting).await.expect("it starts or does not")?;
        let number = u64::from(node.broker.node());
        self.members.insert(number, follow(node, self.racks.get(&number).cloned()));
        Ok(number)
    }

    /// Stops the node without a leadership transfer, as if killed.
    pub(crate) async fn end(&mut self, node: u64) -> NodeSetup {
        let Member { node, nodes } = self.members.remove(&node).expect("it runs");
        drop(nodes);
        node.end().await
    }

    pub(crate) async fn end_all(mut self) {
        let ending = std::mem::take(&mut self.members).into_values().map(async |member| {
            let Member { node, nodes } = member;
            drop(nodes);
            node.end().await
        });
        timeout(SOON, join_all(ending)).await.expect("they end");
    }

    pub(crate) async fn start_again(&mut self, place: NodeSetup) -> u64 {
        self.join_from(place).await.expect("it starts again")
    }

    /// Starts nodes concurrently, as after a power loss of all: none may be ready without the others.
    pub(crate) async fn start_all_again(&mut self, places: Vec<NodeSetup>) {
        let starting = places.into_iter().map(|place| Box::pin(try_start(place)));
        for node in timeout(SOON, join_all(starting)).await.expect("they start") {
            let node = node.expect("it starts again");
            let number = u64::from(node.broker.node());
            self.members.insert(number, follow(node, self.racks.get(&number).cloned()));
        }
    }

    pub(crate) fn administration(&self, node: u64) -> Administration {
        let member = &self.members[&node];
        member.nodes.administration(&member.node.broker)
    }

    /// Sends an operation to a node, and retries while the catalog has no leader.
    pub(crate) async fn ask(&self, node: u64, asked: Operation) -> Result<NodeDecision, String> {
        operate(&self.administration(node), asked).await
    }

    pub(crate) async fn status(&self, node: u64) -> Status {
        let asked = serde_json::to_vec(&Operation::Status {}).expect("written");
        let said = self.administration(node).carry_out(asked).await.expect("it says how it is");
        serde_json::from_slice(&said).expect("a status")
    }

    pub(crate) fn any(&self) -> u64 {
        *self.members.keys().next().expect("one runs")
    }

    /// Whether these nodes are the voters of every group, as seen by each of them.
    pub(crate) fn voters_are(&self, wanted: &BTreeSet<u64>) -> bool {
        wanted.iter().all(|node| {
            let Some(member) = self.members.get(node) else { return true };
            member.node.broker.groups().iter().all(|group| {
                let voters: BTreeSet<u64> = group.voters.keys().copied().collect();
                voters == *wanted && group.learners.is_empty() && !group.is_changing
            })
        })
    }

    /// Waits until these nodes vote in each group, even if some of them are down.
    pub(crate) async fn becomes_voters(&self, wanted: &[u64]) {
        let wanted: BTreeSet<u64> = wanted.iter().copied().collect();
        wait_for(async || self.voters_are(&wanted), || format!("{wanted:?} as voters")).await;
    }

    /// Waits until these nodes vote in each group, and the catalog has no other nodes.
    pub(crate) async fn becomes(&self, wanted: &[u64]) {
        let wanted: BTreeSet<u64> = wanted.iter().copied().collect();
        let is_so = async || {
            let status =
                self.status(*wanted.iter().find(|it| self.members.contains_key(it)).unwrap_or(&1));
            let status = status.await;
            let nodes: BTreeSet<u64> = status.nodes.iter().map(|node| node.node).collect();
            nodes == wanted && self.voters_are(&wanted)
        };
        let groups = || {
            let seen = self.members.iter().map(|(id, it)| (*id, it.node.broker.groups()));
            format!("{wanted:?} as voters of {:?}", seen.collect::<Vec<_>>())
        };
        wait_for(is_so, groups).await;
    }

    /// The node that reports itself as the leader of a shard.
    pub(crate) async fn leader(&self, shard: ShardId) -> u64 {
        let mut found = None;
        let leads = async || {
            found = self.members.iter().find_map(|(id, member)| {
                let groups = member.node.broker.groups();
                let leader = groups.iter().find(|group| group.shard == shard)?.leader?;
                (u64::from(leader) == *id).then_some(*id)
            });
            found.is_some()
        };
        wait_for(leads, || format!("a leader of {shard}")).await;
        found.expect("there is one")
    }

    /// Appends a record at the leader of the partition.
    pub(crate) async fn append_at_leader(&self, partition: PartitionId, value: &str) {
        let appends = async || {
            let broker = self.broker(self.any());
            let answers = broker.append_at_leaders(vec![batch(partition, value)]).await;
            answers.iter().all(Result::is_ok)
        };
        wait_for(appends, || format!("a record in {partition}")).await;
    }

    /// All values on a node that leads every shard.
    pub(crate) async fn values_at(&self, node: u64) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for partition in 0..PARTITIONS {
            let id = PartitionId::new(self.topic, partition);
            all.extend(values(self.broker(node), id).await);
        }
        all
    }
}

trait TopicPresence {
    fn topic_is_there(&self, topic: TopicId) -> bool;
}

impl TopicPresence for Broker {
    fn topic_is_there(&self, topic: TopicId) -> bool {
        self.catalog().topic(topic).is_some()
    }
}

pub(crate) async fn values(broker: &Broker, partition: PartitionId) -> Vec<String> {
    let (mut values, mut offset) = (Vec::new(), 0);
    loop {
        let read = match broker.read_raw_batches(partition, offset, 8 << 20).await {
            Ok(read) => read,
            // The node was just elected, or the data is damaged and under repair.
            Err(FetchError::Unavailable(_) | FetchError::Storage(_)) => {
                sleep(Duration::from_millis(10)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for found in batches_in(&read.records) {
            let (header, bytes) = found.expect("a batch");
            offset = header.base_offset + header.last_offset_delta as u64 + 1;
            let batch = record::SharedBatch::decode(&bytes).expect("records");
            for record in batch.records().map(|it| it.expect("a record")) {
                let value = record.value.expect("a value");
                values.push(String::from_utf8(value.to_vec()).expect("text"));
            }
        }
        if offset >= read.high_watermark {
            return values;
        }
    }
}

/// Retries an operation while the catalog has no leader. A rejection is final.
pub(crate) async fn operate<A: DeserializeOwned>(
    administration: &Administration,
    asked: Operation,
) -> Result<A, String> {
    let mut tries = 0;
    loop {
        let document = serde_json::to_vec(&asked).expect("written");
        match administration.carry_out(document).await {
            Ok(answer) => return Ok(serde_json::from_slice(&answer).expect("an answer")),
            Err(OperationError::Failed(_)) if tries < 100 => tries += 1,
            Err(error) => return Err(error.to_string()),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Appends continuously at the leaders, and records the acknowledged values.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    brokers: Arc<Mutex<Vec<Broker>>>,
    task: JoinHandle<BTreeSet<String>>,
}

impl Load {
    pub(crate) fn on(cluster: &Cluster) -> Self {
        Self::with_values(cluster, 0)
    }

    /// Its values have at least this many bytes.
    pub(crate) fn with_values(cluster: &Cluster, bytes: usize) -> Self {
        let brokers = cluster.members.values().map(|member| member.node.broker.clone()).collect();
        let brokers: Arc<Mutex<Vec<Broker>>> = Arc::new(Mutex::new(brokers));
        let (stop, topic) = (Arc::<AtomicBool>::default(), cluster.topic);
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let (stopped, at) = (Arc::clone(&stop), Arc::clone(&brokers));
        let task = tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            for number in 0_u64.. {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let partition = PartitionId::new(topic, (number % u64::from(PARTITIONS)) as u32);
                let leads = |broker: &&Broker| broker.leads_each(&[partition])[0];
                let leader = at.lock().iter().find(leads).cloned();
                let value = format!("v{number:<bytes$}");
                if let Some(leader) = leader {
                    let batch = batch(partition, &value);
                    let answers = timeout(SOON, leader.append(vec![batch])).await;
                    if answers.is_ok_and(|answers| answers.iter().all(Result::is_ok)) {
                        acknowledged.insert(value);
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                }
                sleep(Duration::from_millis(2)).await;
            }
            acknowledged
        });
        Self { stop, acknowledged: count, brokers, task }
    }

    /// Number of acknowledged appends so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Releases the node's broker, which must be unused when the node stops.
    pub(crate) fn leave(&self, node: u64) {
        self.brokers.lock().retain(|broker| u64::from(broker.node()) != node);
    }

    pub(crate) fn enter(&self, cluster: &Cluster, node: u64) {
        self.brokers.lock().push(cluster.broker(node).clone());
    }

    /// Stops the load and returns the acknowledged values.
    pub(crate) async fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("it does not panic")
    }
}

pub(crate) fn batch(partition: PartitionId, value: &str) -> AppendBatch {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(1_700_000_000_000, None, Some(value.as_bytes()), &[]).expect("it fits");
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

/// Waits until the condition holds.
pub(crate) async fn wait_for(mut condition: impl AsyncFnMut() -> bool, what: impl Fn() -> String) {
    for _ in 0..SOON.as_millis() / 20 {
        if condition().await {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("{} did not come about in {} seconds", what(), SOON.as_secs());
}
