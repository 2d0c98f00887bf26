//! Which nodes are to have which shards, and what comes next on the way there: a pure function of what is so now.
//!
//! Nothing is stored that could be stale: whoever leads a shard asks for the next steps again and again, makes those
//! that are about its shard, and looks anew. So what one leader leaves half done, the next one goes on with.
//!
//! A shard with rows is on three nodes ([`spread`]), and the catalog on all; below [`base::Level::REPLICAS`], and where
//! no more than three nodes stay, each shard is on all nodes but those that leave. On the way there
//!
//! * a group changes by one node at a time, and by none while a change of it is under way
//! * no step is made that leaves a group without a majority that is connected
//! * a node that comes gets one shard after the other, the catalog's first, and votes once it has the log
//! * a node whose shard moves to another node gives it up once that one votes, and three voters are connected then
//! * a node that leaves gives up one shard after the other, the catalog's last, so that it hears until then what the
//!   cluster decides; where another one takes its place, each only once that one votes; and where fewer than three would
//!   be left that vote, only once those vote that have joined

mod leaving;
mod spread;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::ShardId;

use crate::registry::Standing;

pub(crate) use leaving::may_leave;
pub(crate) use spread::{Wanted, wanted};

/// The fewest nodes that one may lose and go on.
pub(crate) const NODES_SAFE_MIN: usize = 3;

/// What is so now, as the node sees it that asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct View {
    /// Those that were removed are not among them.
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) removed: BTreeSet<u64>,
    /// The catalog's first.
    pub(crate) groups: Vec<Group>,
    /// Whether three nodes have a shard, and not all.
    pub(crate) spreads: bool,
    /// Of the nodes that were told one.
    pub(crate) racks: BTreeMap<u64, String>,
    /// Shards that operators have put on nodes of their choice.
    pub(crate) placed: BTreeMap<ShardId, BTreeSet<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) standing: Standing,
    /// Whether it is connected, or the one that asks.
    pub(crate) is_live: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) shard: ShardId,
    pub(crate) leader: Option<u64>,
    pub(crate) voters: BTreeSet<u64>,
    pub(crate) learners: BTreeSet<u64>,
    /// A change of voters has only begun.
    pub(crate) is_changing: bool,
    /// Members that have the log, or nearly; known to the leader.
    pub(crate) caught_up: BTreeSet<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Step {
    /// The node is to have the shard, and does not vote yet.
    Add { shard: ShardId, node: u64 },
    /// It votes from now on.
    Promote { shard: ShardId, node: u64 },
    /// It has the shard and votes no more, since enough others do.
    Demote { shard: ShardId, node: u64 },
    /// Leadership goes to that node, since the leader is to leave.
    HandOver { shard: ShardId, to: u64 },
    /// The node is in the group no more.
    Remove { shard: ShardId, node: u64 },
    /// The node is in no group any more: it is none of the cluster's.
    Forget { node: u64 },
}

impl Step {
    /// The shard whose leader makes the step; that of a node's document is the catalog's.
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

/// The nodes that are to be the cluster's.
pub(crate) fn staying(nodes: &BTreeMap<u64, Node>) -> BTreeSet<u64> {
    let stays = |node: &Node| !matches!(node.standing, Standing::Leaving { .. });
    nodes.iter().filter(|(_, node)| stays(node)).map(|(id, _)| *id).collect()
}

/// What comes next, each of it by whoever leads its shard. They may be made in any order, or not at all.
pub(crate) fn next_steps(view: &View) -> Vec<Step> {
    let (all_wanted, nobody) = (wanted(view), Wanted::default());
    let wanted_of = |group: &Group| all_wanted.get(&group.shard).unwrap_or(&nobody);
    let mut steps = Vec::new();
    let (mut coming, mut leaving) = (BTreeSet::new(), BTreeSet::new());
    for group in &view.groups {
        // Who has some shard as a learner only is busy with that one, unless it is to stay one.
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
    // Of a group that this node is no member of, and whose leader it does not hear, it knows nobody.
    let knows_all = view.groups.iter().all(|group| !group.voters.is_empty());
    if knows_all && !view.groups.is_empty() {
        steps.extend(gone.map(|node| Step::Forget { node: *node }));
    }
    steps
}

/// One of the members that are to be none: `leaving` has those which give up another shard just now.
fn next_of_leaving(
    view: &View,
    group: &Group,
    wanted: &Wanted,
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
            // A shard that waits for a newcomer holds back no other one.
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

fn leaves_group(view: &View, group: &Group, wanted: &Wanted, node: u64) -> Option<Step> {
    let shard = group.shard;
    let goes = || match group.leader == Some(node) {
        false => Some(Step::Remove { shard, node }),
        true => hands_over(view, group, wanted, node),
    };
    if group.learners.contains(&node) {
        return goes();
    }
    let replaced_by = match view.nodes.get(&node).map(|node| node.standing) {
        Some(Standing::Leaving { replaced_by }) => replaced_by,
        _ => None,
    };
    // A replacement that is to have something else is none.
    let replaced_by = replaced_by.filter(|by| wanted.voters.contains(by));
    if replaced_by.is_some_and(|by| !group.voters.contains(&by)) {
        return None;
    }
    votes_no_more(view, group, wanted, node)?;
    goes()
}

/// Whether the group can go on without the vote of a node.
fn votes_no_more(view: &View, group: &Group, wanted: &Wanted, node: u64) -> Option<()> {
    let mut rest = group.voters.clone();
    rest.remove(&node);
    if !view.has_majority(&group.voters) || !view.has_majority(&rest) {
        return None;
    }
    // Who comes votes first, or the group could lose nobody meanwhile.
    if rest.intersection(&wanted.voters).count() < wanted.voters.len().min(NODES_SAFE_MIN) {
        return None;
    }
    // Nobody is in a hurry where the node stays: it goes once the others are there.
    let live = rest.iter().filter(|voter| view.is_live(**voter)).count();
    let is_moved = !view.leaves(node) && view.is_live(node);
    (!is_moved || live >= NODES_SAFE_MIN).then_some(())
}

fn hands_over(view: &View, group: &Group, wanted: &Wanted, node: u64) -> Option<Step> {
    let able = group
        .voters
        .iter()
        .copied()
        .filter(|to| *to != node && wanted.voters.contains(to) && view.is_live(*to));
    let is_drained = |to: &u64| view.nodes.get(to).map(|it| it.standing) != Some(Standing::Active);
    let to = able.min_by_key(|to| (is_drained(to), *to))?;
    Some(Step::HandOver { shard: group.shard, to })
}

/// One of the voters that are to have a copy only.
fn next_of_demoted(view: &View, group: &Group, wanted: &Wanted) -> Option<Step> {
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

/// One of the nodes that are to be members: `coming` has those which get a shard just now.
fn next_of_coming(
    view: &View,
    group: &Group,
    wanted: &Wanted,
    coming: &mut BTreeSet<u64>,
) -> Option<Step> {
    let shard = group.shard;
    if group.is_changing || group.leader.is_none() || !view.has_majority(&group.voters) {
        return None;
    }
    let learners = group.learners.intersection(&wanted.voters).copied();
    // One that leads may have lost its vote by a change that the leader before it had begun. It has all there is.
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
    /// A node that is not known here may have come since this node heard of the others.
    pub(crate) fn leaves(&self, node: u64) -> bool {
        let standing = self.nodes.get(&node).map(|node| node.standing);
        matches!(standing, Some(Standing::Leaving { .. })) || self.removed.contains(&node)
    }

    /// Whether the node is registered, or was.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.nodes.contains_key(&node) || self.removed.contains(&node)
    }

    pub(crate) fn is_live(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_live)
    }

    /// Whether a majority of these is connected.
    pub(crate) fn has_majority(&self, voters: &BTreeSet<u64>) -> bool {
        voters.iter().filter(|node| self.is_live(**node)).count() > voters.len() / 2
    }
}
