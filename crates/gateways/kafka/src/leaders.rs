//! Who leads which partition, as clients are told; and where they are sent that asked another node (KIP-951).

use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{Leader, Leaders, ShardLeaders};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;
use nodes::{Endpoint, LiveNode};
use tokio::time::{Instant, timeout_at};

use crate::errors::Fault;
use crate::gateway::Gateway;

/// Another node has to give a sign of life within so long; one that is only slow counts as there.
const LOOKS_FOR: Duration = Duration::from_millis(50);
/// So long an answer waits for a shard to have a leader: most elections after a process ended take less. What a client
/// has asked for behind it on the same connection waits, too.
const LED_WITHIN: Duration = Duration::from_millis(300);
/// A node that has died is listed for so long.
const BROKER_LISTED_FOR: Duration = Duration::from_secs(10);
/// The number that stands for no node.
pub(crate) const NO_NODE: BrokerId = BrokerId(-1);

/// A node that clients may be sent to, and where: by the kind of port that was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reached {
    pub(crate) id: u32,
    pub(crate) at: Endpoint,
    /// Where it is, if it says so.
    pub(crate) rack: Option<String>,
    pub(crate) is_unwell: bool,
}

/// The nodes that live and offer such a port, ascending by id. A client that encrypts is not told of one that does
/// not, and the other way round.
pub(crate) fn reached(gateway: &Gateway, encrypted: bool) -> Vec<Reached> {
    offering(gateway.options.nodes.live(), encrypted)
}

/// Those of the nodes that offer such a port.
fn offering(nodes: Vec<LiveNode>, encrypted: bool) -> Vec<Reached> {
    nodes.into_iter().filter_map(|node| Reached::of(node, encrypted)).collect()
}

impl Reached {
    fn of(LiveNode { id, endpoints, is_unwell }: LiveNode, encrypted: bool) -> Option<Self> {
        let at = endpoints.kafka_at(encrypted)?.clone();
        Some(Self { id, at, rack: endpoints.rack, is_unwell })
    }
}

/// One of these nodes.
pub(crate) fn reached_node(gateway: &Gateway, id: u32, encrypted: bool) -> Option<Reached> {
    Reached::of(gateway.options.nodes.get(id)?, encrypted)
}

/// Who leads, and which nodes live, as it is for one answer.
#[derive(Debug)]
pub(crate) struct KnownLeaders {
    shards: ShardLeaders,
    /// Ascending by id.
    live: Vec<Reached>,
    /// Those, and others that have just left.
    listed: Vec<Reached>,
}

impl KnownLeaders {
    /// For a client whose connection is encrypted or not.
    pub(crate) fn now(gateway: &Gateway, encrypted: bool) -> Self {
        let listed = gateway.options.nodes.live_lately(BROKER_LISTED_FOR);
        Self {
            shards: gateway.broker.shard_leaders(),
            live: reached(gateway, encrypted),
            listed: offering(listed, encrypted),
        }
    }

    /// For an answer that sends clients to leaders. A client that is sent to a process which has just ended, or is told
    /// that nobody leads, looks again after its back-off, which is longer than most elections. So the other nodes
    /// are asked for a sign of life first, and a shard without a leader is waited for.
    pub(crate) async fn once_led(gateway: &Gateway, encrypted: bool) -> Self {
        if gateway.broker.is_alone() {
            return Self::now(gateway, encrypted);
        }
        gateway.options.nodes.look(LOOKS_FOR).await;
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

    /// The nodes that clients are told of. One that has just died is among them, as Kafka lists a broker until its
    /// session has expired (`broker.session.timeout.ms`): librdkafka takes its partitions away from a broker that is
    /// no longer listed, those too that it has just given to the next leader, and looks again after a second.
    pub(crate) fn listed(&self) -> &[Reached] {
        &self.listed
    }

    pub(crate) fn of_topic(&self, gateway: &Gateway, topic: TopicId) -> Leaders {
        gateway.broker.leaders_among(&self.shards, topic)
    }

    /// Of each shard, by [`Leaders::place_of`]; then that of a shard that is not known.
    pub(crate) fn states(&self) -> Vec<PartitionState> {
        let nobody = (Leader { node: None, epoch: -1 }, &[][..]);
        let all = self.shards.each().chain([nobody]);
        all.map(|(leader, replicas)| PartitionState::of(leader, replicas, &self.live)).collect()
    }

    /// Whom clients send what they change.
    pub(crate) fn controller(&self, gateway: &Gateway) -> BrokerId {
        controller(&self.live, gateway.broker.catalog_leader(), gateway.broker.node())
    }
}

/// The node that leads the catalog; if there is none that lives, this one, which finds the next one by itself. With
/// KRaft, too, Kafka names a broker in any case: a client that is told of none may not look again.
fn controller(live: &[Reached], leader: Option<u32>, here: u32) -> BrokerId {
    let leader = leader.filter(|leader| lives(live, *leader));
    let told = leader.or_else(|| Some(here).filter(|here| lives(live, *here)));
    told.map_or(NO_NODE, broker_id)
}

fn lives(live: &[Reached], id: u32) -> bool {
    live.iter().any(|node| node.id == id)
}

pub(crate) fn broker_id(node: u32) -> BrokerId {
    BrokerId(node as i32)
}

pub(crate) fn host_of(node: &Reached) -> StrBytes {
    StrBytes::from_string(node.at.host.clone())
}

pub(crate) fn port_of(node: &Reached) -> i32 {
    i32::from(node.at.port)
}

pub(crate) fn rack_of(node: &Reached) -> Option<StrBytes> {
    node.rack.clone().map(StrBytes::from_string)
}

/// Whether a client names these nodes, each once, in any order: which of them is to lead is the shard's to say.
pub(crate) fn names_all(named: &[BrokerId], replicas: &[u32]) -> bool {
    let mut named = named.to_vec();
    named.sort_unstable();
    let mut replicas: Vec<BrokerId> = replicas.iter().copied().map(broker_id).collect();
    replicas.sort_unstable();
    named == replicas
}

/// What metadata says of the partitions of a shard.
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
    /// A leader that clients are not told of is none to them. What is committed is on a majority, whoever lags
    /// behind: a replica that lives counts as in sync.
    pub(crate) fn of(leader: Leader, replicas: &[u32], live: &[Reached]) -> Self {
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

/// The node that leads a partition, named to a client that asked another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CurrentLeader {
    pub(crate) node: i32,
    pub(crate) epoch: i32,
}

/// Whether a client that hears this looks for the leader.
pub(crate) fn is_about_leader(error: i16) -> bool {
    error == ResponseError::NotLeaderOrFollower.code()
        || error == ResponseError::FencedLeaderEpoch.code()
}

pub(crate) fn not_leader() -> Fault {
    Fault::plain(ResponseError::NotLeaderOrFollower)
}

/// Collects what an answer tells about other leaders. A client goes astray that is told of a leader and not where it
/// is, so every leader that is named has its endpoint here.
#[derive(Debug)]
pub(crate) struct Referrals {
    encrypted: bool,
    known: Option<KnownLeaders>,
    /// Of the leaders that were named, each once.
    named: Vec<Reached>,
}

impl Referrals {
    /// For a client whose connection is encrypted or not.
    pub(crate) fn new(encrypted: bool) -> Self {
        Self { encrypted, known: None, named: Vec::new() }
    }

    /// The leader of the partition, if it is known and can be reached. It is this node where the client knows of an
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
        let leader = known.of_topic(gateway, partition.topic).of(partition.index);
        let node = leader.node?;
        let reached = known.live.iter().find(|live| live.id == node)?;
        if !lives(&self.named, node) {
            self.named.push(reached.clone());
        }
        Some(CurrentLeader { node: node as i32, epoch: leader.epoch })
    }

    pub(crate) fn into_endpoints(self) -> Vec<Reached> {
        self.named
    }
}

#[cfg(test)]
pub(crate) fn live_node(id: u32) -> Reached {
    let at = Endpoint { host: format!("node-{id}"), port: 9000 + id as u16 };
    Reached { id, at, rack: Some(format!("rack-{id}")), is_unwell: false }
}

/// A node that is alone, for tests.
#[cfg(test)]
pub(crate) fn alone() -> nodes::Nodes {
    let endpoints =
        nodes::Endpoints { kafka: live_node(1).at, amqp: None, kafka_tls: None, rack: None };
    nodes::Nodes::alone(1, endpoints)
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
    fn replicas_that_do_not_live_are_offline() {
        let all = state(Some(2), &[1, 2, 3]);
        assert_eq!((all.error, all.leader, all.epoch), (0, BrokerId(2), 7));
        assert_eq!((&all.in_sync, &all.offline), (&ids(&[1, 2, 3]), &ids(&[])));
        let two = state(Some(2), &[2, 3, 4]);
        assert_eq!((two.error, two.leader), (0, BrokerId(2)));
        assert_eq!((two.in_sync, two.offline), (ids(&[2, 3]), ids(&[1])));
        assert_eq!(two.replicas, ids(&[1, 2, 3]));
    }

    #[test]
    fn a_node_stands_in_for_a_controller_that_is_not_known_or_does_not_live() {
        let live = [1, 2].map(live_node);
        assert_eq!(controller(&live, Some(2), 1), BrokerId(2));
        assert_eq!(controller(&live, Some(3), 1), BrokerId(1));
        assert_eq!(controller(&live, None, 1), BrokerId(1));
        assert_eq!(controller(&live, None, 4), NO_NODE);
    }

    #[test]
    fn a_leader_that_is_not_known_or_cannot_be_reached_is_none() {
        for (leader, live) in [(None, [1, 2, 3]), (Some(3), [1, 2, 4])] {
            let state = state(leader, &live);
            assert_eq!((state.error, state.leader), (NONE_AVAILABLE, NO_NODE));
        }
    }
}
