//! A node of a simulated cluster, from its start to its end.

use broker::{Broker, BrokerOptions};
use cluster::{Node, NodeOptions, NodeStartError};
use gateway::Connections;
use links::{Refusal, Security};
use nodes::{Endpoint, Endpoints, Nodes};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tasks::Failure;
use world::{RuntimeClock, World};

use super::place::{DiskTrouble, IntendedState, NodePlace, disk_name, name};
use super::{Shared, upgrade};
use crate::checkers::Observations;
use crate::network::Gateways;
use crate::node;
use crate::profile::{Life, Limits};
use crate::verdict::Invariant;

const DIR: &str = "/data";
const PEERS: u16 = 7700;
const WALL_BEGINS_MS: i64 = 1_700_000_000_000;

/// The end of a node's process.
enum NodeEnd {
    /// It joins later: the cluster is not ready for it.
    TooEarly,
    /// It does not start.
    Refused(String),
    Failed(String),
    /// The other nodes no longer admit it.
    Removed,
    /// It joined, and was removed before it received its number.
    RemovedUnheard,
}

/// Runs until its disk fails, until it is removed from the cluster, or until it is killed from outside.
pub(super) async fn run(place: usize, seeds: usize, shared: Shared) -> turmoil::Result {
    if !shared.lock().nodes[place].may_run() {
        return Ok(());
    }
    let (world, limits, shards) = begin(place, &shared);
    let failure = Failure::new();
    let live = live(place, seeds, &shared, world, limits, shards, &failure);
    let end = tokio::select! {
        biased;
        why = failure.reported() => match shared.broker(place) {
            Some(_) => NodeEnd::Failed(why.to_string()),
            None => NodeEnd::Refused(why.to_string()),
        },
        end = live => end,
    };
    let mut state = shared.lock();
    state.nodes[place].ended();
    let leaves = state.nodes[place].standing == IntendedState::Leaving;
    match end {
        NodeEnd::Removed if leaves => {
            state.trace.note(format_args!("{} has left", name(place)));
            state.nodes[place].standing = IntendedState::Empty;
        }
        // The operator removed it by a number that this place never received, so it could not mark the place as
        // leaving.
        NodeEnd::RemovedUnheard => {
            state.trace.note(format_args!("{} was removed before it was in", name(place)));
            state.nodes[place].standing = IntendedState::Empty;
        }
        NodeEnd::Removed => {
            let what = format!("the others refuse {}, which nobody removed", name(place));
            state.verdict.violated(Invariant::Alive, what);
        }
        NodeEnd::TooEarly => {
            state.trace.note(format_args!("{} is to try again to join", name(place)));
            state.nodes[place].trouble.has_ended = true;
        }
        NodeEnd::Refused(why) => {
            state.trace.note(format_args!("{} does not start: {why}", name(place)));
            if !may_refuse(&mut state.nodes[place], &why) {
                let what = format!("{} does not start: {why}", name(place));
                state.verdict.violated(Invariant::Alive, what);
            }
        }
        NodeEnd::Failed(why) => {
            state.trace.note(format_args!("{} has ended: {why}", name(place)));
            let NodePlace { trouble, disk, .. } = &mut state.nodes[place];
            if trouble.fails || trouble.flipped || !disk.corrupted_files().is_empty() {
                trouble.has_ended = true;
            } else {
                state.verdict.violated(Invariant::Alive, format!("{} ended: {why}", name(place)));
            }
        }
    }
    Ok(())
}

/// Whether its disk is the reason why a node does not start.
fn may_refuse(NodePlace { trouble, disk, is_set_back, .. }: &mut NodePlace, why: &str) -> bool {
    if *is_set_back && why.contains("set back") {
        trouble.is_refused = true;
        return true;
    }
    if trouble.fails || trouble.was_full {
        trouble.has_ended = true;
        return true;
    }
    // The message must name the file, or at least the directory, for the operator.
    trouble.is_refused = !disk.corrupted_files().is_empty() && why.contains(DIR);
    trouble.is_refused
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
    let place_at = &mut state.nodes[place];
    let clock = Arc::new(RuntimeClock::new(wall_ms + place_at.clock_set_ms));
    place_at.clock = Some(Arc::clone(&clock));
    let DiskTrouble { is_full, is_slow, .. } = place_at.trouble;
    place_at.trouble =
        DiskTrouble { is_full, was_full: is_full, is_slow, ..DiskTrouble::default() };
    let knowledge = Observations::default();
    {
        let mut known = knowledge.lock();
        (known.is_healed, known.is_slow) = (state.is_healed, is_slow);
    }
    state.nodes[place].knowledge = knowledge.clone();
    let disk = state.nodes[place].disk.clone();
    let world =
        node::world((&disk, disk_name(place)), &clock, &life, (&trace, &knowledge), &mut random);
    (world, life.limits, state.shards)
}

async fn live(
    place: usize,
    seeds: usize,
    shared: &Shared,
    world: World,
    limits: Limits,
    shards: u32,
    failure: &Failure,
) -> NodeEnd {
    let address = |place: usize| format!("{}:{PEERS}", name(place));
    let (joins, levels) = {
        let mut state = shared.lock();
        (state.nodes[place].joins, upgrade::program(&mut state, place))
    };
    let others: Vec<usize> = shared.members().into_iter().filter(|it| *it != place).collect();
    let options = NodeOptions {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PEERS)),
        address: address(place),
        seeds: if joins { Vec::new() } else { (0..seeds).map(address).collect() },
        join: if joins { others.into_iter().map(address).collect() } else { Vec::new() },
        security: Security::Plain { beyond_loopback: true },
        levels,
    };
    let started = Node::start(&world, Path::new(DIR), options, Connections::default(), failure);
    let node = match started.await {
        Ok(node) => Arc::new(node),
        Err(NodeStartError::Foreign {
            refusal: Refusal::UnknownNode { .. } | Refusal::Removed { .. },
            ..
        }) => {
            return NodeEnd::Removed;
        }
        // The message before the groups of all shards are founded.
        Err(error @ NodeStartError::NotJoined { .. })
            if error.to_string().ends_with("try again in a minute") =>
        {
            return NodeEnd::TooEarly;
        }
        // The catalog assigned a number, the node stopped before it received it, and an operator removed the
        // number.
        Err(error @ NodeStartError::NotJoined { .. })
            if error.to_string().contains("which was removed") =>
        {
            return NodeEnd::RemovedUnheard;
        }
        Err(error) => return NodeEnd::Refused(error.to_string()),
    };
    let number = node.identity().at.node.0 as u32;
    let is_set_back = {
        let mut state = shared.lock();
        state.nodes[place].number = Some(number);
        state.nodes[place].is_set_back
    };
    let options = BrokerOptions {
        node: number,
        shards: Some(shards),
        journal: limits.journal,
        kept_log_bytes_max: limits.kept_log_bytes_max,
        housekeeping_interval: limits.housekeeping_interval,
        scrub_interval: shared.lock().scrub_interval,
        cluster: Some(Arc::clone(&node)),
        failure: Some(failure.clone()),
        ..BrokerOptions::default()
    };
    let opened = tokio::select! {
        biased;
        opened = Broker::open(world, Path::new(DIR), options) => opened,
        () = node.removed() => return NodeEnd::Removed,
        why = node.outdated(), if is_set_back => return NodeEnd::Refused(why),
    };
    let broker = match opened {
        Ok(broker) => broker,
        Err(error) => return NodeEnd::Refused(error.to_string()),
    };
    let kafka = Endpoint { host: name(place).to_owned(), port: 9092 };
    let nodes = Nodes::join(
        &broker,
        &node,
        Endpoints { kafka, amqp: None, kafka_tls: None, rack: None },
        None,
    );
    let serves_amqp = shared.lock().serves_amqp;
    let _gateways = match serves_amqp {
        true => match Gateways::start_amqp(&broker).await {
            Ok(gateways) => Some(gateways),
            Err(why) => return NodeEnd::Refused(why),
        },
        false => None,
    };
    {
        let mut state = shared.lock();
        state.trace.note(format_args!("{} is open", name(place)));
        state.nodes[place].broker = Some(broker.clone());
        state.nodes[place].nodes = Some(nodes);
    }
    tokio::select! {
        biased;
        why = broker.failed() => NodeEnd::Failed(why),
        () = node.removed() => NodeEnd::Removed,
        why = node.outdated(), if is_set_back => NodeEnd::Refused(why),
    }
}
