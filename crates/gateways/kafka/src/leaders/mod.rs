//! Leaders of partitions as clients see them, and the leaders that clients of another node are referred to
//! (KIP-951).
//!
//! `fields`: their encoding in responses. Depends on the gateway's state only.

pub(crate) mod fields;

use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{Leader, Leaders, ShardLeaders};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;
use nodes::{Endpoint, LiveNode};
use tokio::time::{Instant, timeout_at};

use crate::errors::Fault;
use crate::state::Gateway;

/// Time in which another node must respond to count as alive; one that is only slow counts too.
const PROBE_TIMEOUT: Duration = Duration::from_millis(50);
/// How long a response waits for a shard to have a leader: most elections after a process ended take less.
/// Later requests of the same connection wait as well.
const LED_WITHIN: Duration = Duration::from_millis(300);
/// A dead node stays listed for so long.
const BROKER_LISTED_FOR: Duration = Duration::from_secs(10);
/// Broker id of no node.
pub(crate) const NO_NODE: BrokerId = BrokerId(-1);

/// A node that clients may be referred to, with its endpoint of the same kind (TLS or not) as the client's
/// connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReachableNode {
    pub(crate) id: u32,
    pub(crate) at: Endpoint,
    /// The node's rack, if configured.
    pub(crate) rack: Option<String>,
    pub(crate) is_unwell: bool,
}

/// Live nodes that offer such a port, ascending by id. A client with TLS sees only ports with TLS, and vice
/// versa.
pub(crate) fn reached(gateway: &Gateway, encrypted: bool) -> Vec<ReachableNode> {
    offering(gateway.options.nodes.live(), encrypted)
}

/// Those of the nodes that offer such a port.
fn offering(nodes: Vec<LiveNode>, encrypted: bool) -> Vec<ReachableNode> {
    nodes.into_iter().filter_map(|node| ReachableNode::of(node, encrypted)).collect()
}

impl ReachableNode {
    fn of(LiveNode { id, endpoints, is_unwell }: LiveNode, encrypted: bool) -> Option<Self> {
        let at = endpoints.kafka_at(encrypted)?.clone();
        Some(Self { id, at, rack: endpoints.rack, is_unwell })
    }
}

/// The live node with this id, if it offers such a port.
pub(crate) fn reached_node(gateway: &Gateway, id: u32, encrypted: bool) -> Option<ReachableNode> {
    ReachableNode::of(gateway.options.nodes.get(id)?, encrypted)
}

/// Leaders and live nodes, as one response reports them.
#[derive(Debug)]
pub(crate) struct KnownLeaders {
    shards: ShardLeaders,
    /// Ascending by id.
    live: Vec<ReachableNode>,
    /// Live nodes, and others that have just left.
    listed: Vec<ReachableNode>,
}

impl KnownLeaders {
    /// `encrypted`: the client's connection uses TLS.
    pub(crate) fn now(gateway: &Gateway, encrypted: bool) -> Self {
        let listed = gateway.options.nodes.live_lately(BROKER_LISTED_FOR);
        Self {
            shards: gateway.broker.shard_leaders(),
            live: reached(gateway, encrypted),
            listed: offering(listed, encrypted),
        }
    }

    /// For a response that directs clients to leaders. A client that is directed to a process which has just
    /// ended, or that receives no leader, retries after its back-off, which is longer than most elections. So
    /// this probes the other nodes first, and waits for shards without a leader.
    pub(crate) async fn once_led(gateway: &Gateway, encrypted: bool) -> Self {
        if gateway.broker.is_alone() {
            return Self::now(gateway, encrypted);
        }
        gateway.options.nodes.probe(PROBE_TIMEOUT).await;
        let deadline = Instant::now() + LED_WITHIN;
        let mut changes = gateway.leader_changes();
        loop {
            let known = Self::now(gateway, encrypted);
            if known.all_are_led() || timeout_at(deadline, changes.next()).await.is_err() {
                return known;
            }
        }
    }

    fn all_are_led(&self) -> bool {
        let led = |leader: Leader| leader.node.is_some_and(|node| lives(&self.live, node));
        self.shards.each().all(|(leader, _)| led(leader))
    }

    /// Nodes listed to clients, including those that have just died, as Kafka lists a broker until its
    /// session has expired (`broker.session.timeout.ms`). librdkafka withdraws the partitions of a broker
    /// that is no longer listed, including those that have just moved to the next leader, and looks again
    /// after a second.
    pub(crate) fn listed(&self) -> &[ReachableNode] {
        &self.listed
    }

    pub(crate) fn topic_leaders(&self, gateway: &Gateway, topic: TopicId) -> Leaders {
        gateway.broker.leaders_among(&self.shards, topic)
    }

    /// State of each shard, by [`Leaders::place_of`], and finally that of an unknown shard.
    pub(crate) fn states(&self) -> Vec<PartitionState> {
        let nobody = (Leader { node: None, epoch: -1 }, &[][..]);
        let all = self.shards.each().chain([nobody]);
        all.map(|(leader, replicas)| PartitionState::of(leader, replicas, &self.live)).collect()
    }

    /// The broker to which clients send changes.
    pub(crate) fn controller(&self, gateway: &Gateway) -> BrokerId {
        controller(&self.live, gateway.broker.catalog_leader(), gateway.broker.node())
    }
}

/// The node that leads the catalog; if no live one does, this node, which finds the next leader by itself. Kafka
/// with KRaft also names a broker in any case: a client that receives none may not look again.
fn controller(live: &[ReachableNode], leader: Option<u32>, here: u32) -> BrokerId {
    let leader = leader.filter(|leader| lives(live, *leader));
    let told = leader.or_else(|| Some(here).filter(|here| lives(live, *here)));
    told.map_or(NO_NODE, broker_id)
}

fn lives(live: &[ReachableNode], id: u32) -> bool {
    live.iter().any(|node| node.id == id)
}

pub(crate) fn broker_id(node: u32) -> BrokerId {
    BrokerId(node as i32)
}

pub(crate) fn host_of(node: &ReachableNode) -> StrBytes {
    StrBytes::from_string(node.at.host.clone())
}

pub(crate) fn port_of(node: &ReachableNode) -> i32 {
    i32::from(node.at.port)
}

pub(crate) fn rack_of(node: &ReachableNode) -> Option<StrBytes> {
    node.rack.clone().map(StrBytes::from_string)
}

/// Whether a client names exactly these nodes, each once, in any order: the shard decides the preferred one.
pub(crate) fn names_all(named: &[BrokerId], replicas: &[u32]) -> bool {
    let mut named = named.to_vec();
    named.sort_unstable();
    let mut replicas: Vec<BrokerId> = replicas.iter().copied().map(broker_id).collect();
    replicas.sort_unstable();
    named == replicas
}

/// State of a shard's partitions in metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartitionState {
    pub(crate) error: i16,
    pub(crate) leader: BrokerId,
    pub(crate) epoch: i32,
    pub(crate) replicas: Vec<BrokerId>,
    pub(crate) in_sync: Vec<BrokerId>,
    pub(crate) offline: Vec<BrokerId>,
}

impl PartitionState {
    /// A leader that is not listed to clients counts as none. A majority has all committed records even if
    /// some replica lags, so every live replica counts as in sync.
    pub(crate) fn of(leader: Leader, replicas: &[u32], live: &[ReachableNode]) -> Self {
        let led = leader.node.filter(|node| lives(live, *node));
        let error = led.map_or(ResponseError::LeaderNotAvailable.code(), |_| 0);
        let (in_sync, offline): (Vec<u32>, Vec<u32>) =
            replicas.iter().partition(|replica| lives(live, **replica));
        let ids = |nodes: &[u32]| nodes.iter().copied().map(broker_id).collect();
        Self {
            error,
            leader: led.map_or(NO_NODE, broker_id),
            epoch: leader.epoch,
            replicas: ids(replicas),
            in_sync: ids(&in_sync),
            offline: ids(&offline),
        }
    }
}

// ------------------------------------------------------------------------------------- referrals

/// The leader of a partition, as reported to a client that queried another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CurrentLeader {
    pub(crate) node: i32,
    pub(crate) epoch: i32,
}

/// Whether the error makes a client look for the leader.
pub(crate) fn is_about_leader(error: i16) -> bool {
    error == ResponseError::NotLeaderOrFollower.code()
        || error == ResponseError::FencedLeaderEpoch.code()
}

pub(crate) fn not_leader() -> Fault {
    Fault::plain(ResponseError::NotLeaderOrFollower)
}

/// Collects the leader hints of a response. A client that receives a leader without its endpoint cannot
/// connect, so every named leader has its endpoint here.
#[derive(Debug)]
pub(crate) struct Referrals {
    encrypted: bool,
    known: Option<KnownLeaders>,
    /// Endpoints of the named leaders, each once.
    named: Vec<ReachableNode>,
}

impl Referrals {
    /// `encrypted`: the client's connection uses TLS.
    pub(crate) fn new(encrypted: bool) -> Self {
        Self { encrypted, known: None, named: Vec::new() }
    }

    /// Returns the partition's leader, if it is known and reachable. It is this node if the client knows an
    /// older term of it.
    pub(crate) fn refer(
        &mut self,
        gateway: &Gateway,
        partition: PartitionId,
    ) -> Option<CurrentLeader> {
        if gateway.broker.is_alone() {
            return None;
        }
        let known = self.known.get_or_insert_with(|| KnownLeaders::now(gateway, self.encrypted));
        let leader = known.topic_leaders(gateway, partition.topic).of(partition.index);
        let node = leader.node?;
        let reached = known.live.iter().find(|live| live.id == node)?;
        if !lives(&self.named, node) {
            self.named.push(reached.clone());
        }
        Some(CurrentLeader { node: node as i32, epoch: leader.epoch })
    }

    pub(crate) fn into_endpoints(self) -> Vec<ReachableNode> {
        self.named
    }
}

#[cfg(test)]
pub(crate) fn live_node(id: u32) -> ReachableNode {
    let at = Endpoint { host: format!("node-{id}"), port: 9000 + id as u16 };
    ReachableNode { id, at, rack: Some(format!("rack-{id}")), is_unwell: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE_AVAILABLE: i16 = 5;

    fn state(node: Option<u32>, live: &[u32]) -> PartitionState {
        let live: Vec<_> = live.iter().copied().map(live_node).collect();
        PartitionState::of(Leader { node, epoch: 7 }, &[1, 2, 3], &live)
    }

    fn ids(ids: &[i32]) -> Vec<BrokerId> {
        ids.iter().copied().map(BrokerId).collect()
    }

    #[test]
    fn replicas_on_dead_nodes_are_offline() {
        let all = state(Some(2), &[1, 2, 3]);
        assert_eq!((all.error, all.leader, all.epoch), (0, BrokerId(2), 7));
        assert_eq!((&all.in_sync, &all.offline), (&ids(&[1, 2, 3]), &ids(&[])));
        let two = state(Some(2), &[2, 3, 4]);
        assert_eq!((two.error, two.leader), (0, BrokerId(2)));
        assert_eq!((two.in_sync, two.offline), (ids(&[2, 3]), ids(&[1])));
        assert_eq!(two.replicas, ids(&[1, 2, 3]));
    }

    #[test]
    fn node_names_itself_controller_while_none_is_known_or_alive() {
        let live = [1, 2].map(live_node);
        assert_eq!(controller(&live, Some(2), 1), BrokerId(2));
        assert_eq!(controller(&live, Some(3), 1), BrokerId(1));
        assert_eq!(controller(&live, None, 1), BrokerId(1));
        assert_eq!(controller(&live, None, 4), NO_NODE);
    }

    #[test]
    fn unknown_or_unreachable_leader_is_reported_as_not_available() {
        for (leader, live) in [(None, [1, 2, 3]), (Some(3), [1, 2, 4])] {
            let state = state(leader, &live);
            assert_eq!((state.error, state.leader), (NONE_AVAILABLE, NO_NODE));
        }
    }
}
