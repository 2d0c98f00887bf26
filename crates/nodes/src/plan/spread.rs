//! Assigns shards to nodes if a shard is on three nodes instead of all.
//!
//! Shards stay where they are if possible:
//!
//! * a staying node keeps its shard, unless the shard has too many nodes or another node has too few shards
//! * a shard's nodes are in as many racks as possible, up to one for each of them; a node without a rack counts as a
//!   rack of its own
//! * a shard that lacks a node gets its replacement, if there is one, otherwise the node with the fewest shards
//! * a shard that an operator has pinned is on those nodes, as long as they stay
//! * any other shard moves only if its node has at least two more shards than the receiving one, or to gain a rack
//!
//! Each move increases the sum of racks, or keeps it and makes the loads more even, so planning ends. A move first adds
//! the new member. The surplus node is then the one with the most shards, which is the node that the move was to
//! relieve. So an unfinished move is planned to the same end.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::NODES_JOINED_MAX;
use base::ShardId;
use base::limits::REPLICAS;

use super::{Group, View, staying};
use crate::registry::NodeLifecycle;

/// The wanted nodes of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TargetReplicas {
    pub(crate) voters: BTreeSet<u64>,
    /// Replicas without a vote.
    pub(crate) learners: BTreeSet<u64>,
}

impl TargetReplicas {
    pub(crate) fn has(&self, node: u64) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }
}

/// The wanted nodes of each shard.
pub(crate) fn wanted(view: &View) -> BTreeMap<ShardId, TargetReplicas> {
    // Founding nodes are registered one after the other: until all are, each keeps its shards.
    if view.spreads && view.groups.iter().flat_map(Group::members).any(|it| !view.knows(it)) {
        let now = |group: &Group| {
            let (voters, learners) = (group.voters.clone(), group.learners.clone());
            (group.shard, TargetReplicas { voters, learners })
        };
        return view.groups.iter().map(now).collect();
    }
    let stay = staying(&view.nodes);
    if !view.spreads || stay.len() <= REPLICAS {
        let all = TargetReplicas { voters: stay, learners: BTreeSet::new() };
        return view.groups.iter().map(|group| (group.shard, all.clone())).collect();
    }
    let mut plan = Plan::of(view, &stay);
    plan.complete();
    plan.balance();
    let rows = plan
        .has
        .into_iter()
        .map(|(shard, voters)| (shard, TargetReplicas { voters, learners: BTreeSet::new() }));
    let mut wanted: BTreeMap<ShardId, TargetReplicas> = rows.collect();
    let catalog = view.groups.iter().find(|group| group.shard == ShardId::CATALOG);
    wanted.extend(catalog.map(|group| (group.shard, wanted_catalog(view, group, &stay))));
    wanted
}

/// Some nodes vote, and the others are learners.
fn wanted_catalog(view: &View, group: &Group, stay: &BTreeSet<u64>) -> TargetReplicas {
    let mut voters: BTreeSet<u64> = group.voters.intersection(stay).copied().collect();
    while voters.len() > NODES_JOINED_MAX {
        let surplus = voters.iter().copied().max_by_key(|node| {
            let rest = without(&voters, *node);
            let leads = group.leader == Some(*node);
            (racks(view, &rest), !view.is_live(*node), !leads, *node)
        });
        surplus.map(|node| voters.remove(&node));
    }
    while voters.len() < NODES_JOINED_MAX {
        let mut able = stay.difference(&voters).copied().collect::<Vec<_>>();
        able.sort_by_key(|node| {
            let racks = racks(view, &with(&voters, *node));
            let replaces = replaced(view, &group.voters).any(|by| by == *node);
            (!view.is_live(*node), !replaces, std::cmp::Reverse(racks), *node)
        });
        let Some(node) = able.first() else { break };
        voters.insert(*node);
    }
    let learners = stay.difference(&voters).copied().collect();
    TargetReplicas { voters, learners }
}

struct Plan<'a> {
    view: &'a View,
    stay: &'a BTreeSet<u64>,
    groups: BTreeMap<ShardId, &'a Group>,
    /// Assigned nodes of each shard so far.
    has: BTreeMap<ShardId, BTreeSet<u64>>,
    /// Number of assigned shards with rows, by node.
    load: BTreeMap<u64, usize>,
    /// Whether the nodes of each shard are known.
    knows_all: bool,
}

impl<'a> Plan<'a> {
    /// Starts from the current assignment, without leaving nodes.
    fn of(view: &'a View, stay: &'a BTreeSet<u64>) -> Self {
        let rows = view.groups.iter().filter(|group| group.shard != ShardId::CATALOG);
        let groups: BTreeMap<ShardId, &Group> = rows.map(|group| (group.shard, group)).collect();
        let mut plan = Self {
            view,
            stay,
            has: BTreeMap::new(),
            load: stay.iter().map(|node| (*node, 0)).collect(),
            knows_all: groups.values().all(|group| !group.voters.is_empty()),
            groups,
        };
        for (shard, group) in &plan.groups {
            // A learner that is gone must not keep other nodes from getting the shard.
            let comes = |node: &u64| group.voters.contains(node) || view.is_live(*node);
            let members = group.members().filter(|node| !view.leaves(*node)).filter(comes);
            let members: BTreeSet<u64> = members.collect();
            let members = match view.placed.get(shard) {
                // A shard without known members is assigned to no node.
                Some(placed) if !members.is_empty() => put(placed, stay, &members),
                _ => members,
            };
            for node in &members {
                *plan.load.entry(*node).or_default() += 1;
            }
            plan.has.insert(*shard, members);
        }
        plan
    }

    /// Gives each shard its wanted number of nodes.
    fn complete(&mut self) {
        let shards: Vec<ShardId> = self.groups.keys().copied().collect();
        for shard in &shards {
            while self.has[shard].len() > REPLICAS {
                let Some(node) = self.surplus(*shard) else { break };
                self.take(*shard, node);
            }
        }
        for shard in &shards {
            // A shard without known voters is assigned to no node.
            let is_known = !self.groups[shard].voters.is_empty();
            while is_known && self.has[shard].len() < REPLICAS {
                let Some(node) = self.newcomer(*shard) else { break };
                self.give(*shard, node);
            }
        }
    }

    /// The node to remove from a shard with too many nodes.
    fn surplus(&self, shard: ShardId) -> Option<u64> {
        let (has, group) = (&self.has[&shard], self.groups[&shard]);
        // An unknown node joined a moment ago.
        let known = has.iter().copied().filter(|node| self.stay.contains(node));
        known.max_by_key(|node| {
            let racks = racks(self.view, &without(has, *node));
            let leads = group.leader == Some(*node);
            (racks, !self.view.is_live(*node), self.load[node], !leads, *node)
        })
    }

    /// The node to add to a shard.
    fn newcomer(&self, shard: ShardId) -> Option<u64> {
        let (has, group) = (&self.has[&shard], self.groups[&shard]);
        let replaces: BTreeSet<u64> = replaced(self.view, &group.voters).collect();
        let able = self.stay.iter().copied().filter(|node| !has.contains(node));
        able.min_by_key(|node| {
            let racks = racks(self.view, &with(has, *node));
            let (is_live, is_active) = (self.view.is_live(*node), self.is_active(*node));
            let replaces = replaces.contains(node);
            (!is_live, !replaces, !is_active, std::cmp::Reverse(racks), self.load[node], *node)
        })
    }

    /// Moves shards to gain racks and to even out the load.
    fn balance(&mut self) {
        // A drained node keeps its shards, and a disconnected one gets none.
        let takers = self.stay.iter().copied();
        let takers = takers.filter(|node| self.is_active(*node) && self.view.is_live(*node));
        let takers: Vec<u64> = takers.collect();
        if !self.knows_all {
            return;
        }
        while let Some((shard, from, to)) = self.to_more_racks(&takers) {
            self.take(shard, from);
            self.give(shard, to);
        }
        while let Some((shard, from, to)) = self.to_less_load(&takers) {
            self.take(shard, from);
            self.give(shard, to);
        }
    }

    /// Shards that the planner may move: those without a pin.
    fn movable(&self) -> impl Iterator<Item = (&ShardId, &BTreeSet<u64>)> {
        self.has.iter().filter(|(shard, _)| !self.view.placed.contains_key(*shard))
    }

    fn to_more_racks(&self, takers: &[u64]) -> Option<(ShardId, u64, u64)> {
        for (shard, has) in self.movable() {
            let now = racks(self.view, has);
            if now >= REPLICAS.min(has.len()) {
                continue;
            }
            let adds = |to: &&u64| racks(self.view, &with(has, **to)) > now;
            let to = takers.iter().filter(adds).min_by_key(|to| (self.load[*to], **to));
            let Some(to) = to else { continue };
            let with = with(has, *to);
            // One of the nodes shares a rack with another one.
            let from = has.iter().filter(|from| {
                self.stay.contains(from) && racks(self.view, &without(&with, **from)) > now
            });
            if let Some(from) = from.max_by_key(|from| (self.load[*from], **from)) {
                return Some((*shard, *from, *to));
            }
        }
        None
    }

    fn to_less_load(&self, takers: &[u64]) -> Option<(ShardId, u64, u64)> {
        let mut to_order = takers.to_vec();
        to_order.sort_by_key(|node| (self.load[node], *node));
        let mut from_order: Vec<u64> =
            self.stay.iter().copied().filter(|node| self.is_active(*node)).collect();
        from_order.sort_by_key(|node| (std::cmp::Reverse(self.load[node]), *node));
        for from in &from_order {
            for to in &to_order {
                if self.load[from] < self.load[to] + 2 {
                    break;
                }
                let moves = |has: &BTreeSet<u64>| {
                    let then = || without(&with(has, *to), *from);
                    has.contains(from)
                        && !has.contains(to)
                        && racks(self.view, &then()) >= racks(self.view, has)
                };
                if let Some((shard, _)) = self.movable().find(|(_, has)| moves(has)) {
                    return Some((*shard, *from, *to));
                }
            }
        }
        None
    }

    fn is_active(&self, node: u64) -> bool {
        self.view.nodes.get(&node).is_some_and(|node| node.standing == NodeLifecycle::Active)
    }

    fn take(&mut self, shard: ShardId, node: u64) {
        if self.has.get_mut(&shard).is_some_and(|has| has.remove(&node)) {
            self.load.entry(node).and_modify(|load| *load -= 1);
        }
    }

    fn give(&mut self, shard: ShardId, node: u64) {
        if self.has.get_mut(&shard).is_some_and(|has| has.insert(node)) {
            *self.load.entry(node).or_default() += 1;
        }
    }
}

/// The staying nodes of a pin, completed by current members.
fn put(placed: &BTreeSet<u64>, stay: &BTreeSet<u64>, members: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut put: BTreeSet<u64> = placed.intersection(stay).copied().collect();
    let lacking = REPLICAS.saturating_sub(put.len());
    let others: Vec<u64> = members.difference(&put).copied().take(lacking).collect();
    put.extend(others);
    put
}

/// Replacements of leaving members.
fn replaced<'a>(view: &'a View, members: &'a BTreeSet<u64>) -> impl Iterator<Item = u64> + 'a {
    members.iter().filter_map(|member| match view.nodes.get(member)?.standing {
        NodeLifecycle::Leaving { replaced_by } => replaced_by,
        _ => None,
    })
}

/// Number of racks of these nodes.
fn racks(view: &View, nodes: &BTreeSet<u64>) -> usize {
    let told: BTreeSet<&str> =
        nodes.iter().filter_map(|node| view.racks.get(node)).map(String::as_str).collect();
    told.len() + nodes.iter().filter(|node| !view.racks.contains_key(node)).count()
}

fn without(nodes: &BTreeSet<u64>, node: u64) -> BTreeSet<u64> {
    nodes.iter().copied().filter(|it| *it != node).collect()
}

fn with(nodes: &BTreeSet<u64>, node: u64) -> BTreeSet<u64> {
    nodes.iter().copied().chain([node]).collect()
}
