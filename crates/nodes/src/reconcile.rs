//! Executes the steps of the [plan](crate::plan) for shards led by this node, and keeps the node's status at the others
//! current.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use base::limits::APPEND_ENTRIES_MAX;
use base::{Level, ShardId};
use broker::{Broker, GroupChangeError, GroupStatus, Members, WeakBroker};
use bytes::Bytes;
use cluster::Node;
use futures_util::future::{join_all, join4};
use links::NodeId;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, sleep};

use crate::node_gossip::{self, NodeGossip};
use crate::plan::{self, Group, Step, View};
use crate::registry::{
    DecideError, NodeLifecycle, Registration, RegistrationChanges, Registry, decide,
};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval between two checks for removed replicas.
const GIVE_UP_EVERY: Duration = Duration::from_secs(2);
/// Timeout of a step; it is retried if the plan still has it.
const STEP_WITHIN: Duration = Duration::from_secs(10);

/// Reason why a step was not made.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Group(#[from] GroupChangeError),
    #[error(transparent)]
    Decide(#[from] DecideError),
}

/// The node's part in the placement of shards, while the broker exists.
pub(crate) async fn run(
    broker: WeakBroker,
    cluster: Weak<Node>,
    told: NodeGossip,
    heard: watch::Receiver<BTreeMap<NodeId, Bytes>>,
) {
    // None of these waits for a slow step.
    join4(
        make_all_steps(broker.clone(), cluster.clone()),
        node_gossip::send_changes(broker.clone(), cluster, told),
        node_gossip::receive_changes(broker.clone(), heard),
        remove_replicas(broker),
    )
    .await;
}

/// Gives up the node's removed replicas, while the broker exists.
async fn remove_replicas(broker: WeakBroker) {
    loop {
        sleep(GIVE_UP_EVERY).await;
        let Some(broker) = broker.upgrade() else { return };
        for shard in broker.remove_former_replicas().await {
            tracing::info!(%shard, "this node has given the shard up: its files go when it is started the next time");
        }
    }
}

/// Executes steps while the broker exists.
async fn make_all_steps(broker: WeakBroker, cluster: Weak<Node>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some((broker, cluster)) = broker.upgrade().zip(cluster.upgrade()) else { return };
        let registry = match Registry::read(&broker) {
            Ok(registry) => registry,
            Err(error) => {
                tracing::warn!(%error, "the nodes of the cluster cannot be read");
                continue;
            }
        };
        make_steps(&broker, &cluster, &registry).await;
    }
}

async fn make_steps(broker: &Broker, cluster: &Node, registry: &Registry) {
    let groups = broker.groups();
    let here = u64::from(broker.node());
    let leads = |shard: ShardId| {
        groups.iter().any(|it| it.shard == shard && it.leader == Some(broker.node()))
    };
    let view = view_of(cluster, registry, &groups);
    let steps = plan::next_steps(&view).into_iter().filter(|step| leads(step.shard()));
    let making = steps.map(async |step| match make(broker, registry, &groups, step).await {
        Ok(()) => tracing::info!(%step, "a step of a change of the cluster's nodes is made"),
        Err(error) => {
            tracing::warn!(%step, %error, node = here, "a step of a change of the nodes is not made");
        }
    });
    join_all(making).await;
}

/// The current state, as seen by this node.
pub(crate) fn view_of(cluster: &Node, registry: &Registry, groups: &[GroupStatus]) -> View {
    let node = |(id, node): (u64, &Registration)| {
        let is_live = cluster.connected_for(NodeId(id)).is_some();
        (id, plan::Node { standing: node.standing, is_live })
    };
    let nodes: BTreeMap<u64, plan::Node> = registry.present().map(node).collect();
    let removed = registry.removed().collect();
    let placed = registry.placements.iter().map(|(shard, (nodes, _))| (*shard, nodes.clone()));
    let in_rack = registry.present().filter_map(|(id, node)| Some((id, node.rack.clone()?)));
    View {
        nodes,
        removed,
        groups: groups.iter().map(group).collect(),
        spreads: registry.level.0 >= Level::REPLICAS,
        racks: in_rack.collect(),
        placed: placed.collect(),
    }
}

pub(crate) fn group(status: &GroupStatus) -> Group {
    let near = |lag: &&broker::MemberLag| {
        lag.snapshot.is_none() && lag.entries <= APPEND_ENTRIES_MAX as u64
    };
    Group {
        shard: status.shard,
        leader: status.leader.map(u64::from),
        voters: status.voters.keys().copied().collect(),
        learners: status.learners.keys().copied().collect(),
        is_changing: status.is_changing,
        caught_up: status.lags.iter().filter(near).map(|lag| lag.node).collect(),
    }
}

async fn make(
    broker: &Broker,
    registry: &Registry,
    groups: &[GroupStatus],
    step: Step,
) -> Result<(), StepError> {
    let shard = step.shard();
    let status = groups.iter().find(|group| group.shard == shard);
    let status = status.ok_or(GroupChangeError::NoShard(shard))?;
    let from = Members { voters: status.voters.clone(), learners: status.learners.clone() };
    let mut to = from.clone();
    match step {
        Step::Add { node, .. } => {
            let Some(known) = registry.nodes.get(&node) else { return Ok(()) };
            to.learners.insert(node, known.node.address.clone());
        }
        Step::Promote { node, .. } => {
            let Some(address) = to.learners.remove(&node) else { return Ok(()) };
            to.voters.insert(node, address);
        }
        Step::Demote { node, .. } => {
            let Some(address) = to.voters.remove(&node) else { return Ok(()) };
            to.learners.insert(node, address);
        }
        Step::Remove { node, .. } => {
            to.voters.remove(&node);
            to.learners.remove(&node);
        }
        Step::HandOver { to, .. } => return Ok(broker.hand_shard_over(shard, to).await?),
        Step::Forget { node } => return forget(broker, node).await,
    }
    Ok(broker.change_group(shard, &from, to, STEP_WITHIN).await?)
}

/// Removes the node from the cluster, unless a group still has it.
async fn forget(broker: &Broker, node: u64) -> Result<(), StepError> {
    if broker.committed_members().await?.contains(&node) {
        return Ok(());
    }
    let words = format!("node {node} has left");
    let removed = |registry: &Registry| {
        let found = registry.nodes.get(&node).map(|found| found.node.clone());
        let leaves = found.filter(|it| matches!(it.standing, NodeLifecycle::Leaving { .. }));
        let removed = |it| Registration { standing: NodeLifecycle::Removed, ..it };
        Ok(leaves.map(|it| (node, removed(it))).into_iter().collect::<RegistrationChanges>())
    };
    Ok(decide(broker, &words, removed).await?)
}
