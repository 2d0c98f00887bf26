//! A node of a simulated cluster, from its start to its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use broker::{Broker, BrokerOptions};
use cluster::{Node, NodeOptions};
use gateway::Connections;
use links::Security;
use nodes::{Endpoint, Endpoints, Nodes};
use tasks::Failure;
use world::{RuntimeClock, World};

use super::{NODES, Shared};
use crate::checkers::Knowledge;
use crate::node;
use crate::profile::{Life, Limits};
use crate::verdict::Invariant;

const DIR: &str = "/data";
const PEERS: u16 = 7700;
const WALL_BEGINS_MS: i64 = 1_700_000_000_000;

pub(super) fn name(place: usize) -> &'static str {
    ["node-1", "node-2", "node-3"][place]
}

/// What changes of each node's disk are called in the trace.
const TRACED: [&str; NODES] = ["node-1's ", "node-2's ", "node-3's "];

/// Runs until its disk fails, or until it is killed from outside.
pub(super) async fn run(place: usize, shared: Shared) -> turmoil::Result {
    let (world, limits, shards) = begin(place, &shared);
    let failure = Failure::new();
    let live = live(place, &shared, world, limits, shards, &failure);
    let why = tokio::select! {
        biased;
        why = failure.reported() => why,
        why = live => why,
    };
    let mut state = shared.lock();
    state.trace.note(format_args!("{} has ended: {why}", name(place)));
    state.nodes[place].broker = None;
    state.nodes[place].has_ended = true;
    // Nothing here makes a disk fail: whatever ends a node is wrong.
    state.verdict.violated(Invariant::Alive, format!("{} ended: {why}", name(place)));
    Ok(())
}

fn begin(place: usize, shared: &Shared) -> (World, Limits, u32) {
    let mut state = shared.lock();
    state.lives += 1;
    let mut random = state.random.fork();
    let trace = state.trace.clone();
    let mut life = Life::healed(&mut random);
    life.limits = state.nodes[place].limits.clone();
    life.disk.slow_once_in = state.nodes[place].slow_once_in;
    // Clocks of nodes differ.
    let wall_ms = WALL_BEGINS_MS + trace.now_ms() as i64 + random.between(0, 2_000) as i64;
    let clock = Arc::new(RuntimeClock::new(wall_ms));
    let knowledge = Knowledge::default();
    knowledge.lock().is_healed = state.is_healed;
    state.nodes[place].knowledge = knowledge.clone();
    let disk = state.nodes[place].disk.clone();
    let world =
        node::world((&disk, TRACED[place]), &clock, &life, (&trace, &knowledge), &mut random);
    (world, life.limits, state.shards)
}

async fn live(
    place: usize,
    shared: &Shared,
    world: World,
    limits: Limits,
    shards: u32,
    failure: &Failure,
) -> String {
    let address = |place: usize| format!("{}:{PEERS}", name(place));
    let options = NodeOptions {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PEERS)),
        address: address(place),
        seeds: (0..NODES).map(address).collect(),
        join: Vec::new(),
        security: Security::Plain { beyond_loopback: true },
    };
    let started = Node::start(&world, Path::new(DIR), options, Connections::default(), failure);
    let node = match started.await {
        Ok(node) => Arc::new(node),
        Err(error) => return format!("it does not start: {error}"),
    };
    let options = BrokerOptions {
        node: node.identity().at.node.0 as u32,
        shards: Some(shards),
        journal: limits.journal,
        kept_log_bytes_max: limits.kept_log_bytes_max,
        housekeeping_interval: limits.housekeeping_interval,
        cluster: Some(Arc::clone(&node)),
        failure: Some(failure.clone()),
        ..BrokerOptions::default()
    };
    let broker = match Broker::open(world, Path::new(DIR), options).await {
        Ok(broker) => broker,
        Err(error) => return format!("it does not open: {error}"),
    };
    let kafka = Endpoint { host: name(place).to_owned(), port: 9092 };
    let _nodes = Nodes::join(&broker, &node, Endpoints { kafka, amqp: None, kafka_tls: None });
    {
        let mut state = shared.lock();
        state.trace.note(format_args!("{} is open", name(place)));
        state.nodes[place].broker = Some(broker.clone());
    }
    broker.failed().await
}
