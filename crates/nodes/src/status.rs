//! Status of the cluster, in words that an operator acts on. Reports of nodes and groups are gathered first; pure
//! functions derive the status from them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::operations::cluster as document;
use base::ShardId;
use broker::{Broker, GroupStatus, StoredStatus};
use cluster::Node;
use futures_util::future::join_all;
use links::{ConnectError, Lane, NodeId, Phase, Refusal};

use crate::node_gossip::NodeGossip;
use crate::plan::{self, Step, View};
use crate::registry::{DecideError, NodeLifecycle, Registration, Registry};
use crate::{moves, reconcile, upgrade};

/// Timeout for a node's report.
const SAID_WITHIN: Duration = Duration::from_secs(1);
/// A member that lacks more entries counts as behind: fewer are just in flight.
const BEHIND_ENTRIES: u64 = 10_000;

/// A connection to another node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Connection {
    live: bool,
    since_ms: Option<i64>,
    why: Option<String>,
}

/// Queries the connected nodes, and derives the status.
pub(crate) async fn status(
    broker: &Broker,
    cluster: &Node,
) -> Result<document::Status, DecideError> {
    let registry = Registry::read(broker)?;
    let here = u64::from(broker.node());
    let ids: Vec<u64> = registry.present().map(|(id, _)| id).collect();
    let connection = |id: &u64| (*id, connection(broker, cluster, *id));
    let connections: BTreeMap<u64, Connection> = ids.iter().map(connection).collect();
    let others = ids.iter().filter(|id| **id != here && connections[*id].live);
    let asked: Vec<u32> = others.filter_map(|id| u32::try_from(*id).ok()).collect();
    let stored = asked.iter().map(|id| async move {
        Some(stored(u64::from(*id), broker.stored_at(*id, SAID_WITHIN).await.ok()?))
    });
    let stored = join_all(stored);
    let asked = asked.iter().map(|id| async move {
        (u64::from(*id), broker.groups_of(*id, SAID_WITHIN).await.unwrap_or_default())
    });
    let (groups, others) = futures_util::future::join(join_all(asked), stored).await;
    let mut said = vec![(here, broker.groups())];
    said.extend(groups);
    let mut stored = vec![self::stored(here, broker.stored())];
    stored.extend(others.into_iter().flatten());
    stored.sort_by_key(|stored| stored.node);
    let groups = newest(&said);
    let view = reconcile::view_of(cluster, &registry, &groups);
    let upgrade = upgrade::progress(broker, Some(cluster), &registry);
    let (removed_replicas, full) = (removed_replicas(broker, cluster), full(broker, cluster));
    let cluster = broker.cluster_id().to_string();
    let mut status = report(cluster, here, &registry, &connections, &groups, &view, &full);
    status.under_way.extend(moves::describe(broker).await);
    status.under_way.extend(removed_replicas);
    status.under_way.extend(stored.iter().filter_map(scrubbed));
    status.at_risk.extend(stored.iter().flat_map(damaged));
    Ok(document::Status { stored, upgrade, ..status })
}

/// Nodes that still have files of removed replicas.
fn removed_replicas(broker: &Broker, cluster: &Node) -> Vec<String> {
    let own = broker.removed_replicas().into_iter().map(|shard| shard.0).collect();
    let mut told = BTreeMap::from([(u64::from(broker.node()), own)]);
    for (node, bytes) in &*cluster.groups().latest_gossip().borrow() {
        let is_live = cluster.connected_for(*node).is_some();
        let heard = NodeGossip::decode(bytes).filter(|_| is_live);
        told.extend(heard.map(|heard| (node.0, heard.removed_replicas)));
    }
    told.into_iter().filter_map(|(node, shards)| still_has(node, &shards)).collect()
}

/// The nodes that reject records until their disks have room.
fn full(broker: &Broker, cluster: &Node) -> BTreeSet<u64> {
    let mut full: BTreeSet<u64> =
        broker.disk_is_full().then_some(broker.node().into()).into_iter().collect();
    for (node, bytes) in &*cluster.groups().latest_gossip().borrow() {
        let is_live = cluster.connected_for(*node).is_some();
        if is_live && NodeGossip::decode(bytes).is_some_and(|told| told.is_full) {
            full.insert(node.0);
        }
    }
    full
}

fn still_has(node: u64, shards: &[u32]) -> Option<String> {
    let names: Vec<String> = shards.iter().map(u32::to_string).collect();
    let (what, they) = match names.len() {
        0 => return None,
        1 => ("shard", "it"),
        _ => ("shards", "them"),
    };
    Some(format!(
        "node {node} has given {what} {} up, and still has the files of {they}: they go when it is started the next time",
        names.join(", ")
    ))
}

pub(crate) fn stored(node: u64, status: StoredStatus) -> document::ScrubStatus {
    let StoredStatus { under_way, ended_ms, damaged } = status;
    let (looked_at_bytes, of_bytes) = under_way.unzip();
    document::ScrubStatus { node, looked_at_bytes, of_bytes, ended_ms, damaged }
}

fn scrubbed(stored: &document::ScrubStatus) -> Option<String> {
    let (node, bytes, of_bytes) = (stored.node, stored.looked_at_bytes?, stored.of_bytes?);
    Some(format!("node {node} looks through what it has stored: {bytes} of {of_bytes} bytes"))
}

fn damaged(stored: &document::ScrubStatus) -> impl Iterator<Item = String> {
    let node = stored.node;
    let words = stored.damaged.iter();
    words.map(move |what| {
        format!("node {node}: {what}; it fetches what was there from another node")
    })
}

fn connection(broker: &Broker, cluster: &Node, id: u64) -> Connection {
    if id == u64::from(broker.node()) {
        return Connection { live: true, since_ms: None, why: None };
    }
    let Some(peer) = cluster.links().peer(NodeId(id)) else { return Connection::default() };
    let status = peer.status(Lane::Control);
    let ago = |ago: Duration| {
        i64::try_from(ago.as_millis()).ok().map(|ago| broker.clock().now_ms() - ago)
    };
    let ended = status.last.as_ref().and_then(|last| ago(last.at.elapsed()));
    match &status.phase {
        Phase::Connected { since, .. } => {
            Connection { live: true, since_ms: ago(since.elapsed()), why: None }
        }
        Phase::Waiting { error, .. } => {
            let why = match error {
                // Another node was started at the same address.
                ConnectError::Refused(Refusal::AnotherNode { found, .. })
                | ConnectError::RefusedHere(Refusal::AnotherNode { found, .. }) => {
                    format!("{found} runs at its address")
                }
                error => error.to_string(),
            };
            Connection { live: false, since_ms: ended, why: Some(why) }
        }
        Phase::Idle | Phase::Connecting { .. } | Phase::Closed => {
            Connection { live: false, since_ms: ended, why: None }
        }
    }
}

/// For each shard the report of its leader. If no node claims to lead it, the first report, without a leader.
fn newest(said: &[(u64, Vec<GroupStatus>)]) -> Vec<GroupStatus> {
    let mut groups: BTreeMap<ShardId, (bool, GroupStatus)> = BTreeMap::new();
    for (node, statuses) in said {
        for status in statuses {
            let leads = status.leader.map(u64::from) == Some(*node);
            let known = groups.get(&status.shard);
            let is_newer = match known {
                None => true,
                Some((true, known)) => leads && status.term > known.term,
                // A node without a replica and without a known leader knows no members.
                Some((false, known)) => {
                    leads || known.voters.is_empty() && !status.voters.is_empty()
                }
            };
            if is_newer {
                let leader = status.leader.filter(|_| leads);
                groups.insert(status.shard, (leads, GroupStatus { leader, ..status.clone() }));
            }
        }
    }
    groups.into_values().map(|(_, group)| group).collect()
}

fn report(
    cluster: String,
    answered_by: u64,
    registry: &Registry,
    connections: &BTreeMap<u64, Connection>,
    groups: &[GroupStatus],
    view: &View,
    full: &BTreeSet<u64>,
) -> document::Status {
    let nodes = registry.present().map(|(id, registration)| {
        let connection = connections.get(&id).cloned().unwrap_or_default();
        node(id, registration, connection, groups)
    });
    let nodes: Vec<document::Node> = nodes.collect();
    let at_risk = at_risk(&nodes, groups, view, full);
    document::Status {
        cluster,
        answered_by,
        nodes,
        shards: groups.iter().map(shard).collect(),
        under_way: under_way(groups, view),
        at_risk,
        verdict: verdict(groups, view, full),
        stored: Vec::new(),
        upgrade: document::Upgrade::default(),
    }
}

fn node(
    id: u64,
    registration: &Registration,
    Connection { live, since_ms, why }: Connection,
    groups: &[GroupStatus],
) -> document::Node {
    let (standing, replaced_by) = match registration.standing {
        NodeLifecycle::Active => (document::NodeState::Active, None),
        NodeLifecycle::Drained => (document::NodeState::Drained, None),
        NodeLifecycle::Leaving { replaced_by } => (document::NodeState::Leaving, replaced_by),
        NodeLifecycle::Removed => (document::NodeState::Leaving, None),
    };
    let leads = groups.iter().filter(|group| group.leader.map(u64::from) == Some(id));
    let has =
        |group: &&GroupStatus| group.voters.contains_key(&id) || group.learners.contains_key(&id);
    document::Node {
        node: id,
        address: registration.address.clone(),
        rack: registration.rack.clone(),
        standing,
        replaced_by,
        live,
        since_ms,
        why,
        leads: leads.count() as u64,
        holds: groups.iter().filter(has).count() as u64,
    }
}

fn shard(group: &GroupStatus) -> document::Shard {
    let lags = group.lags.iter().filter(|lag| lag.entries > 0 || lag.snapshot.is_some());
    let lags = lags.map(|lag| document::Lag {
        node: lag.node,
        entries: lag.entries,
        snapshot_bytes: lag.snapshot.map(|(bytes, _)| bytes),
        snapshot_of_bytes: lag.snapshot.map(|(_, of_bytes)| of_bytes),
    });
    document::Shard {
        shard: group.shard.0,
        leader: group.leader.map(u64::from),
        voters: group.voters.keys().copied().collect(),
        learners: group.learners.keys().copied().collect(),
        changing: group.is_changing,
        lags: lags.collect(),
    }
}

/// Names the catalog's shard by its role.
fn name(shard: ShardId) -> String {
    match shard {
        ShardId::CATALOG => "the catalog".to_owned(),
        shard => shard.to_string(),
    }
}

fn listed(nodes: impl IntoIterator<Item = u64>) -> String {
    let nodes: Vec<String> = nodes.into_iter().map(|node| node.to_string()).collect();
    match nodes.as_slice() {
        [] => "none".to_owned(),
        [one] => format!("node {one}"),
        several => format!("nodes {}", several.join(", ")),
    }
}

fn under_way(groups: &[GroupStatus], view: &View) -> Vec<String> {
    let mut words = Vec::new();
    let (stay, wanted) = (plan::staying(&view.nodes), plan::wanted(view));
    let count = groups.len();
    let having = |node: u64| groups.iter().filter(|group| group.voters.contains_key(&node)).count();
    for (id, node) in &view.nodes {
        let has = groups
            .iter()
            .filter(|group| group.voters.contains_key(id) || group.learners.contains_key(id));
        match node.standing {
            NodeLifecycle::Leaving { replaced_by } => {
                let place = match replaced_by {
                    Some(by) => format!(", and node {by} takes its place"),
                    None => String::new(),
                };
                words.push(format!(
                    "node {id} leaves{place}: it still has {} of {count} shards",
                    has.count()
                ));
            }
            _ if view.spreads => words.extend(moved(*id, groups, &wanted)),
            _ if having(*id) < count => words
                .push(format!("node {id} joins: it votes in {} of {count} shards", having(*id))),
            _ => {}
        }
    }
    for step in plan::next_steps(view) {
        if !matches!(step, Step::Forget { .. }) {
            words.push(format!("next: {step}"));
        }
    }
    for group in groups {
        for lag in &group.lags {
            let (node, shard) = (lag.node, name(group.shard));
            if let Some((bytes, of_bytes)) = lag.snapshot {
                words.push(format!(
                    "node {node} is sent a snapshot of {shard}: it has {bytes} of {of_bytes} bytes"
                ));
            } else if lag.entries > BEHIND_ENTRIES && view.is_live(node) {
                words.push(format!("node {node} lacks {} entries of {shard}", lag.entries));
            }
        }
        if group.is_changing {
            words.push(format!("the voters of {} change", name(group.shard)));
        }
    }
    for (id, node) in &view.nodes {
        let leads = groups.iter().any(|group| group.leader.map(u64::from) == Some(*id));
        if leads && !matches!(node.standing, NodeLifecycle::Active) && stay.contains(id) {
            words.push(format!("node {id} is drained, and hands over what it leads"));
        }
    }
    words
}

/// Number of shards that a node receives and releases.
fn moved(
    node: u64,
    groups: &[GroupStatus],
    wanted: &BTreeMap<ShardId, plan::TargetReplicas>,
) -> Option<String> {
    let (mut gets, mut gives) = (0, 0);
    for group in groups {
        let has = group.voters.contains_key(&node) || group.learners.contains_key(&node);
        let is_to_have = wanted.get(&group.shard).is_some_and(|wanted| wanted.has(node));
        let is_to_vote = wanted.get(&group.shard).is_some_and(|it| it.voters.contains(&node));
        gets += usize::from(is_to_have && !has || is_to_vote && !group.voters.contains_key(&node));
        gives += usize::from(has && !is_to_have);
    }
    match (gets, gives) {
        (0, 0) => None,
        (gets, 0) => Some(format!("node {node} takes over shards: {gets} are to come")),
        (0, gives) => Some(format!("node {node} hands shards to others: {gives} are to go")),
        (gets, gives) => Some(format!(
            "node {node} takes over shards and hands others on: {gets} are to come, and {gives} to go"
        )),
    }
}

fn at_risk(
    nodes: &[document::Node],
    groups: &[GroupStatus],
    view: &View,
    full: &BTreeSet<u64>,
) -> Vec<String> {
    let mut words: Vec<String> = full.iter().map(|node| disk_full(*node, groups)).collect();
    // Shards without a majority, by their voters.
    let mut stopped: BTreeMap<BTreeSet<u64>, Vec<String>> = BTreeMap::new();
    for group in groups {
        let voters: BTreeSet<u64> = group.voters.keys().copied().collect();
        if !voters.is_empty() && !view.has_majority(&voters) {
            stopped.entry(voters).or_default().push(name(group.shard));
        }
    }
    // Nodes join and are replaced by decisions of the catalog's majority.
    let is_decided = !stopped.values().flatten().any(|shard| *shard == name(ShardId::CATALOG));
    for node in nodes.iter().filter(|node| !node.live) {
        let why = node.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let id = node.node;
        words.push(match node.standing {
            document::NodeState::Leaving => format!("node {id} is not connected{why}; it leaves"),
            _ if !is_decided => format!("node {id} is not connected{why}"),
            _ => format!(
                "node {id} is not connected{why}: start it again, or if it is lost start a new one with `--join` and \
                 type `postroad node replace {id} --with NEW`"
            ),
        });
    }
    for (voters, shards) in &stopped {
        let live = voters.iter().copied().filter(|node| view.is_live(*node));
        let verb = if shards.len() == 1 { "accepts" } else { "accept" };
        words.push(format!(
            "without a majority of {}, {} {verb} no writes: only {} can be reached from here",
            listed(voters.iter().copied()),
            shards.join(", "),
            listed(live)
        ));
    }
    if !is_decided {
        words.push(recovery(nodes));
    }
    for group in groups {
        let voters: BTreeSet<u64> = group.voters.keys().copied().collect();
        if !stopped.contains_key(&voters) && group.leader.is_none() {
            words.push(format!(
                "{} has no leader: nothing is written to it until one is elected",
                name(group.shard)
            ));
        }
    }
    words
}

/// The way on after the loss of a majority.
fn recovery(nodes: &[document::Node]) -> String {
    let lost = nodes.iter().filter(|node| !node.live).map(|node| node.node.to_string());
    let lost: Vec<String> = lost.collect();
    format!(
        "start the nodes that are not connected: until then no node can join, be removed or replaced. If their disks \
         are lost, stop a remaining node, and see `postroad recover --data DIR --lost {} --dry-run` of its directory",
        if lost.is_empty() { "N,M".to_owned() } else { lost.join(",") }
    )
}

fn disk_full(node: u64, groups: &[GroupStatus]) -> String {
    let led = groups.iter().filter(|group| group.leader.map(u64::from) == Some(node)).count();
    let consequence = match led {
        0 => "it leads no shard, and counts as away".to_owned(),
        1 => "1 shard that it still leads takes no records".to_owned(),
        led => format!("{led} shards that it still leads take no records"),
    };
    format!(
        "node {node}'s disk is full: {consequence}. Free some space there, or delete records \
         (`postroad topic alter TOPIC --config retention.bytes=...`) or topics (`postroad topic delete TOPIC`)"
    )
}

/// Whether each group tolerates the loss of any one voter. A node with a full disk counts as lost.
fn verdict(groups: &[GroupStatus], view: &View, full: &BTreeSet<u64>) -> document::Verdict {
    let refuse = |text: String| document::Verdict { can_lose_a_node: false, text };
    for group in groups {
        let voters: BTreeSet<u64> = group.voters.keys().copied().collect();
        let shard = name(group.shard);
        let needed = voters.len() / 2 + 1;
        let behind = |node: &u64| {
            let lag = group.lags.iter().find(|lag| lag.node == *node);
            lag.is_some_and(|lag| lag.snapshot.is_some() || lag.entries > BEHIND_ENTRIES)
        };
        let live = voters.iter().copied().filter(|node| view.is_live(*node));
        let able: Vec<u64> = live.filter(|node| !behind(node) && !full.contains(node)).collect();
        if voters.len() == 1 {
            return refuse(format!(
                "The cluster cannot lose {}: {shard} is nowhere else.",
                listed(voters)
            ));
        }
        let only = || {
            let (count, able) = (voters.len(), listed(able.iter().copied()));
            let room = if voters.is_disjoint(full) { "" } else { " and room on its disk" };
            format!(
                "{shard} needs {needed} of its {count} voters, and only {able} can be reached with its log{room}."
            )
        };
        if able.len() < needed {
            return refuse(format!("The cluster is not whole: {}", only()));
        }
        if able.len() == needed {
            return refuse(format!("The cluster cannot lose another node: {}", only()));
        }
        if group.leader.is_none() {
            return refuse(format!("The cluster is not whole: {shard} has no leader."));
        }
    }
    let text =
        "The cluster can lose one more node: each shard has a majority without any one of them.";
    document::Verdict { can_lose_a_node: true, text: text.to_owned() }
}

#[cfg(test)]
mod tests;
