//! Which nodes are to have which shard, where three have it and not all.
//!
//! What is there stays where it can:
//!
//! * whoever has a shard and stays in the cluster keeps it, unless it is one too many or another node has too little
//! * a shard's nodes are in as many racks as there are, up to one for each of them; a node that was told no rack counts
//!   as one of its own
//! * a shard that lacks a node gets the one with the fewest shards, and where one is replaced by another, that one
//! * a shard that an operator has put on some nodes is on those, as long as they stay
//! * any other moves only if its node has at least two more than the one that gets it, or to be in one rack more
//!
//! A move makes the sum of racks larger, or leaves it and makes the loads less different, so that there is an end. It
//! begins with the newcomer as a member more: who then is one too many is the one with the most shards, which is the one
//! that the move is to relieve. So what is half done is planned on as it was begun.

use std::collections::{BTreeMap, BTreeSet};

use base::ShardId;
use base::limits::{NODES_JOINED_MAX, REPLICAS};

use super::{Group, View, staying};
use crate::registry::Standing;

/// The nodes that are to have a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) voters: BTreeSet<u64>,
    /// Have a copy, and no vote.
    pub(crate) learners: BTreeSet<u64>,
}

impl Wanted {
    pub(crate) fn has(&self, node: u64) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }
}

/// The nodes that are to have each shard.
pub(crate) fn wanted(view: &View) -> BTreeMap<ShardId, Wanted> {
    // Those that found a cluster are registered one after the other: until all are, each keeps what it has.
    if view.spreads && view.groups.iter().flat_map(Group::members).any(|it| !view.knows(it)) {
        let now = |group: &Group| {
            let (voters, learners) = (group.voters.clone(), group.learners.clone());
            (group.shard, Wanted { voters, learners })
        };
        return view.groups.iter().map(now).collect();
    }
    let stay = staying(&view.nodes);
    if !view.spreads || stay.len() <= REPLICAS {
        let all = Wanted { voters: stay, learners: BTreeSet::new() };
        return view.groups.iter().map(|group| (group.shard, all.clone())).collect();
    }
    let mut plan = Plan::of(view, &stay);
    plan.complete();
    plan.balance();
    let rows = plan
        .has
        .into_iter()
        .map(|(shard, voters)| (shard, Wanted { voters, learners: BTreeSet::new() }));
    let mut wanted: BTreeMap<ShardId, Wanted> = rows.collect();
    let catalog = view.groups.iter().find(|group| group.shard == ShardId::CATALOG);
    wanted.extend(catalog.map(|group| (group.shard, of_catalog(view, group, &stay))));
    wanted
}

/// Some vote, and the others have a copy.
fn of_catalog(view: &View, group: &Group, stay: &BTreeSet<u64>) -> Wanted {
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
    Wanted { voters, learners }
}

struct Plan<'a> {
    view: &'a View,
    stay: &'a BTreeSet<u64>,
    groups: BTreeMap<ShardId, &'a Group>,
    /// Which nodes are to have which shard, as far as that is worked out.
    has: BTreeMap<ShardId, BTreeSet<u64>>,
    /// Shards with rows that each node is to have.
    load: BTreeMap<u64, usize>,
    /// Of each shard it is known which nodes have it.
    knows_all: bool,
}

impl<'a> Plan<'a> {
    /// As it is, apart from nodes that leave.
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
            // Who has died before it had the shard does not keep others from getting it.
            let comes = |node: &u64| group.voters.contains(node) || view.is_live(*node);
            let members = group.members().filter(|node| !view.leaves(*node)).filter(comes);
            let members: BTreeSet<u64> = members.collect();
            let members = match view.placed.get(shard) {
                // Nobody is to get a shard that nobody is known to have.
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

    /// Each shard has as many nodes as it is to have.
    fn complete(&mut self) {
        let shards: Vec<ShardId> = self.groups.keys().copied().collect();
        for shard in &shards {
            while self.has[shard].len() > REPLICAS {
                let Some(node) = self.surplus(*shard) else { break };
                self.take(*shard, node);
            }
        }
        for shard in &shards {
            // Where nobody is known to have it, nobody is to get it.
            let is_known = !self.groups[shard].voters.is_empty();
            while is_known && self.has[shard].len() < REPLICAS {
                let Some(node) = self.newcomer(*shard) else { break };
                self.give(*shard, node);
            }
        }
    }

    /// Who is one too many.
    fn surplus(&self, shard: ShardId) -> Option<u64> {
        let (has, group) = (&self.has[&shard], self.groups[&shard]);
        // One that is not known yet has joined a moment ago.
        let known = has.iter().copied().filter(|node| self.stay.contains(node));
        known.max_by_key(|node| {
            let racks = racks(self.view, &without(has, *node));
            let leads = group.leader == Some(*node);
            (racks, !self.view.is_live(*node), self.load[node], !leads, *node)
        })
    }

    /// Who is to have the shard, too.
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

    /// Moves shards to racks and nodes that have too little.
    fn balance(&mut self) {
        // One that is drained keeps what it has, and one that is away gets nothing.
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

    /// Shards that are the planner's to move.
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
            // Somebody is in a rack with another one.
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
        self.view.nodes.get(&node).is_some_and(|node| node.standing == Standing::Active)
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

/// The nodes on which an operator has put a shard, as far as they stay; in the place of others, members that are there.
fn put(placed: &BTreeSet<u64>, stay: &BTreeSet<u64>, members: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut put: BTreeSet<u64> = placed.intersection(stay).copied().collect();
    let lacking = REPLICAS.saturating_sub(put.len());
    let others: Vec<u64> = members.difference(&put).copied().take(lacking).collect();
    put.extend(others);
    put
}

/// Those that are to take the place of members which leave.
fn replaced<'a>(view: &'a View, members: &'a BTreeSet<u64>) -> impl Iterator<Item = u64> + 'a {
    members.iter().filter_map(|member| match view.nodes.get(member)?.standing {
        Standing::Leaving { replaced_by } => replaced_by,
        _ => None,
    })
}

/// In how many racks these nodes are.
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
