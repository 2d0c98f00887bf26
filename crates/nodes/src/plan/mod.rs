//! Plans the wanted nodes of each shard and the next steps towards them: a pure function of the current state.
//!
//! No plan is stored, so none can be stale. The leader of a shard recomputes the next steps periodically, executes
//! those of its shard, and repeats. So a new leader resumes any unfinished change.
//!
//! A shard with rows is on three nodes ([`spread`]), and the catalog on all. Below [`base::Level::REPLICAS`], and with
//! at most three staying nodes, each shard is on all nodes except those that leave. On the way there
//!
//! * a group changes by one node at a time, and not while another change of it is in progress
//! * no step leaves a group without a connected majority
//! * a joining node gets one shard after the other, the catalog first, and votes once it has caught up with the log
//! * a node whose shard moves to another node releases it once that node votes and three voters are connected
//! * a leaving node releases one shard after the other, the catalog last, so that it learns the cluster's decisions
//!   until then. If it is replaced, it releases each shard only once its replacement votes there. If fewer than three
//!   voters would remain, it waits until nodes that have joined vote

mod leaving;
mod spread;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::ShardId;

use crate::registry::NodeLifecycle;

pub(crate) use leaving::may_leave;
pub(crate) use spread::{TargetReplicas, wanted};

/// Minimum number of nodes that tolerates the loss of one.
pub(crate) const NODES_SAFE_MIN: usize = 3;

/// The current state, as seen by the planning node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    /// Without removed nodes.
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) removed: BTreeSet<u64>,
    /// The catalog first.
    pub(crate) groups: Vec<Group>,
    /// Whether a shard is on three nodes instead of all.
    pub(crate) spreads: bool,
    /// Racks of the nodes that have one.
    pub(crate) racks: BTreeMap<u64, String>,
    /// Shards pinned to nodes by operators.
    pub(crate) placed: BTreeMap<ShardId, BTreeSet<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) standing: NodeLifecycle,
    /// Whether it is connected to the planning node, or is that node.
    pub(crate) is_live: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) shard: ShardId,
    pub(crate) leader: Option<u64>,
    pub(crate) voters: BTreeSet<u64>,
    pub(crate) learners: BTreeSet<u64>,
    /// A membership change has begun and is not complete.
    pub(crate) is_changing: bool,
    /// Members that have nearly all of the log; only the leader knows them.
    pub(crate) caught_up: BTreeSet<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Step {
    /// The node becomes a learner of the shard.
    Add { shard: ShardId, node: u64 },
    /// The node becomes a voter.
    Promote { shard: ShardId, node: u64 },
    /// The node becomes a learner, since there are enough other voters.
    Demote { shard: ShardId, node: u64 },
    /// Leadership moves to that node, because the leader is to leave.
    HandOver { shard: ShardId, to: u64 },
    /// The node leaves the group.
    Remove { shard: ShardId, node: u64 },
    /// The node is in no group and leaves the cluster.
    Forget { node: u64 },
}

impl Step {
    /// The shard whose leader makes the step. Documents of nodes belong to the catalog.
    pub(crate) fn shard(self) -> ShardId {
        match self {
            Self::Add { shard, .. }
            | Self::Promote { shard, .. }
            | Self::Demote { shard, .. }
            | Self::HandOver { shard, .. }
            | Self::Remove { shard, .. } => shard,
            Self::Forget { .. } => ShardId::CATALOG,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { shard, node } => write!(f, "node {node} gets {shard}"),
            Self::Promote { shard, node } => write!(f, "node {node} has {shard}, and votes in it"),
            Self::Demote { shard, node } => {
                write!(f, "node {node} keeps a copy of {shard}, and votes in it no more")
            }
            Self::HandOver { shard, to } => write!(f, "{shard} is led by node {to}"),
            Self::Remove { shard, node } => write!(f, "node {node} gives up {shard}"),
            Self::Forget { node } => write!(f, "node {node} leaves the cluster"),
        }
    }
}

/// The nodes that stay in the cluster.
pub(crate) fn staying(nodes: &BTreeMap<u64, Node>) -> BTreeSet<u64> {
    let stays = |node: &Node| !matches!(node.standing, NodeLifecycle::Leaving { .. });
    nodes.iter().filter(|(_, node)| stays(node)).map(|(id, _)| *id).collect()
}

/// The next steps; the leader of a step's shard makes it. Steps may be made in any order, or not at all.
pub(crate) fn next_steps(view: &View) -> Vec<Step> {
    let (all_wanted, nobody) = (wanted(view), TargetReplicas::default());
    let wanted_of = |group: &Group| all_wanted.get(&group.shard).unwrap_or(&nobody);
    let mut steps = Vec::new();
    let (mut coming, mut leaving) = (BTreeSet::new(), BTreeSet::new());
    for group in &view.groups {
        // A node that is a learner of some shard first catches up there, unless it is to stay a learner.
        coming.extend(group.learners.intersection(&wanted_of(group).voters).copied());
    }
    // Rows before the catalog.
    for group in view.groups.iter().rev() {
        steps.extend(next_of_leaving(view, group, wanted_of(group), &mut leaving));
    }
    for group in &view.groups {
        let is_leaving = steps.iter().any(|step| step.shard() == group.shard);
        if !is_leaving {
            let wanted = wanted_of(group);
            let demoted = || next_of_demoted(view, group, wanted);
            steps.extend(next_of_coming(view, group, wanted, &mut coming).or_else(demoted));
        }
    }
    let stay = staying(&view.nodes);
    let members = view.groups.iter().flat_map(Group::members);
    let members: BTreeSet<u64> = members.collect();
    let gone = view.nodes.keys().filter(|node| !stay.contains(node) && !members.contains(node));
    if view.shard_with_unknown_members().is_none() && !view.groups.is_empty() {
        steps.extend(gone.map(|node| Step::Forget { node: *node }));
    }
    steps
}

/// The next step of a member that is to leave the group. `leaving` has the nodes that are releasing another shard.
fn next_of_leaving(
    view: &View,
    group: &Group,
    wanted: &TargetReplicas,
    leaving: &mut BTreeSet<u64>,
) -> Option<Step> {
    let shard = group.shard;
    let leavers = group.members().filter(|node| !wanted.has(*node) && view.knows(*node));
    let leavers: Vec<u64> = leavers.collect();
    let is_elsewhere = |node: u64| {
        let rows = view.groups.iter().filter(|group| group.shard != ShardId::CATALOG);
        rows.flat_map(Group::members).any(|member| member == node)
    };
    for node in leavers {
        let is_free = match view.spreads {
            // A shard that waits for a new member must not delay other shards.
            true => !leaving.contains(&node) && (shard != ShardId::CATALOG || !is_elsewhere(node)),
            false => leaving.insert(node),
        };
        if !is_free || group.is_changing || group.leader.is_none() {
            continue;
        }
        if let Some(step) = leaves_group(view, group, wanted, node) {
            leaving.extend(group.members().filter(|it| !view.spreads && view.leaves(*it)));
            leaving.insert(node);
            return Some(step);
        }
    }
    None
}

fn leaves_group(view: &View, group: &Group, wanted: &TargetReplicas, node: u64) -> Option<Step> {
    let shard = group.shard;
    let goes = || match group.leader == Some(node) {
        false => Some(Step::Remove { shard, node }),
        true => hands_over(view, group, wanted, node),
    };
    if group.learners.contains(&node) {
        return goes();
    }
    let replaced_by = match view.nodes.get(&node).map(|node| node.standing) {
        Some(NodeLifecycle::Leaving { replaced_by }) => replaced_by,
        _ => None,
    };
    // A replacement that is not wanted in this group does not count.
    let replaced_by = replaced_by.filter(|by| wanted.voters.contains(by));
    if replaced_by.is_some_and(|by| !group.voters.contains(&by)) {
        return None;
    }
    votes_no_more(view, group, wanted, node)?;
    goes()
}

/// Checks that the group works without the vote of a node.
fn votes_no_more(view: &View, group: &Group, wanted: &TargetReplicas, node: u64) -> Option<()> {
    let mut rest = group.voters.clone();
    rest.remove(&node);
    if !view.has_majority(&group.voters) || !view.has_majority(&rest) {
        return None;
    }
    // New members vote first; otherwise the group could not tolerate a loss meanwhile.
    if rest.intersection(&wanted.voters).count() < wanted.voters.len().min(NODES_SAFE_MIN) {
        return None;
    }
    // A node that stays is in no hurry: it leaves once enough other voters are connected.
    let live = rest.iter().filter(|voter| view.is_live(**voter)).count();
    let is_moved = !view.leaves(node) && view.is_live(node);
    (!is_moved || live >= NODES_SAFE_MIN).then_some(())
}

fn hands_over(view: &View, group: &Group, wanted: &TargetReplicas, node: u64) -> Option<Step> {
    let able = group
        .voters
        .iter()
        .copied()
        .filter(|to| *to != node && wanted.voters.contains(to) && view.is_live(*to));
    let is_drained =
        |to: &u64| view.nodes.get(to).map(|it| it.standing) != Some(NodeLifecycle::Active);
    let to = able.min_by_key(|to| (is_drained(to), *to))?;
    Some(Step::HandOver { shard: group.shard, to })
}

/// The next step of a voter that is to become a learner.
fn next_of_demoted(view: &View, group: &Group, wanted: &TargetReplicas) -> Option<Step> {
    if group.is_changing || group.leader.is_none() {
        return None;
    }
    let demoted = group.voters.intersection(&wanted.learners).copied();
    let mut able = demoted.filter(|node| votes_no_more(view, group, wanted, *node).is_some());
    let node = able.next()?;
    match group.leader == Some(node) {
        false => Some(Step::Demote { shard: group.shard, node }),
        true => hands_over(view, group, wanted, node),
    }
}

/// The next step of a node that is to join the group. `coming` has the nodes that are receiving a shard.
fn next_of_coming(
    view: &View,
    group: &Group,
    wanted: &TargetReplicas,
    coming: &mut BTreeSet<u64>,
) -> Option<Step> {
    let shard = group.shard;
    if group.is_changing || group.leader.is_none() || !view.has_majority(&group.voters) {
        return None;
    }
    let learners = group.learners.intersection(&wanted.voters).copied();
    // A leader may have lost its vote through a change that its predecessor began. It has the whole log.
    let has_log = |node: &u64| group.caught_up.contains(node) || group.leader == Some(*node);
    let promoted = learners.filter(has_log).find(|node| {
        let with = group.voters.iter().copied().chain([*node]).collect();
        view.is_live(*node) && view.has_majority(&with)
    });
    if let Some(node) = promoted {
        return Some(Step::Promote { shard, node });
    }
    let is_member = |node: &u64| group.voters.contains(node) || group.learners.contains(node);
    let absent = wanted.voters.union(&wanted.learners).copied().filter(|node| !is_member(node));
    let has_catalog = |node: u64| {
        let catalog = view.groups.iter().find(|group| group.shard == ShardId::CATALOG);
        let has = |catalog: &Group| {
            catalog.voters.contains(&node) || view.spreads && catalog.learners.contains(&node)
        };
        shard == ShardId::CATALOG || catalog.is_some_and(has)
    };
    let mut able = absent.filter(|node| view.is_live(*node) && has_catalog(*node));
    let node = able.find(|node| !coming.contains(node))?;
    coming.insert(node);
    Some(Step::Add { shard, node })
}

impl Group {
    /// Voters and learners.
    pub(crate) fn members(&self) -> impl Iterator<Item = u64> + '_ {
        self.voters.union(&self.learners).copied()
    }
}

impl View {
    /// An unknown node does not leave: it may have joined after this node's last update.
    pub(crate) fn leaves(&self, node: u64) -> bool {
        let standing = self.nodes.get(&node).map(|node| node.standing);
        matches!(standing, Some(NodeLifecycle::Leaving { .. })) || self.removed.contains(&node)
    }

    /// Whether the node is or was registered.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.nodes.contains_key(&node) || self.removed.contains(&node)
    }

    pub(crate) fn is_live(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_live)
    }

    /// Shard without a replica on the planning node and without a leader known there.
    pub(crate) fn shard_with_unknown_members(&self) -> Option<ShardId> {
        self.groups.iter().find(|group| group.voters.is_empty()).map(|group| group.shard)
    }

    /// Whether a majority of these is connected.
    pub(crate) fn has_majority(&self, voters: &BTreeSet<u64>) -> bool {
        voters.iter().filter(|node| self.is_live(**node)).count() > voters.len() / 2
    }
}
