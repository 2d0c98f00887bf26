//! Which nodes are to have which shards, and what comes next on the way there: a pure function of what is so now.
//!
//! Nothing is stored that could be stale: whoever leads a shard asks for the next steps again and again, makes those
//! that are about its shard, and looks anew. So what one leader leaves half done, the next one goes on with.
//!
//! Each shard is on all nodes but those that leave. On the way there
//!
//! * a group changes by one node at a time, and by none while a change of it is under way
//! * no step is made that leaves a group without a majority that is connected
//! * a node that comes gets one shard after the other, the catalog's first, and votes once it has the log
//! * a node that leaves gives up one shard after the other, the catalog's last, so that it hears until then what the
//!   cluster decides; where another one takes its place, each only once that one votes; and where fewer than three would
//!   be left that vote, only once those vote that have joined

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::ShardId;

use crate::registry::Standing;

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
            Self::HandOver { shard, to } => write!(f, "{shard} is led by node {to}"),
            Self::Remove { shard, node } => write!(f, "node {node} gives up {shard}"),
            Self::Forget { node } => write!(f, "node {node} leaves the cluster"),
        }
    }
}

/// The nodes that are to have each shard.
pub(crate) fn wanted(nodes: &BTreeMap<u64, Node>) -> BTreeSet<u64> {
    let stays = |node: &Node| !matches!(node.standing, Standing::Leaving { .. });
    nodes.iter().filter(|(_, node)| stays(node)).map(|(id, _)| *id).collect()
}

/// What comes next, each of it by whoever leads its shard. They may be made in any order, or not at all.
pub(crate) fn next_steps(view: &View) -> Vec<Step> {
    let wanted = wanted(&view.nodes);
    let mut steps = Vec::new();
    let (mut coming, mut leaving) = (BTreeSet::new(), BTreeSet::new());
    for group in &view.groups {
        // Who has some shard as a learner only is busy with that one.
        coming.extend(group.learners.intersection(&wanted).copied());
    }
    // Rows before the catalog.
    for group in view.groups.iter().rev() {
        steps.extend(next_of_leaving(view, group, &wanted, &mut leaving));
    }
    for group in &view.groups {
        let is_leaving = steps.iter().any(|step| step.shard() == group.shard);
        if !is_leaving {
            steps.extend(next_of_coming(view, group, &wanted, &mut coming));
        }
    }
    let members = view.groups.iter().flat_map(|group| group.voters.union(&group.learners));
    let members: BTreeSet<u64> = members.copied().collect();
    let gone = view.nodes.keys().filter(|node| !wanted.contains(node) && !members.contains(node));
    // Of a group that this node is no member of it knows nobody.
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
    wanted: &BTreeSet<u64>,
    leaving: &mut BTreeSet<u64>,
) -> Option<Step> {
    let shard = group.shard;
    let leavers = group.voters.union(&group.learners).copied();
    let leavers: Vec<u64> = leavers.filter(|node| view.leaves(*node)).collect();
    let mut step = None;
    for node in leavers {
        let is_first = leaving.insert(node);
        if !is_first || step.is_some() || group.is_changing || group.leader.is_none() {
            continue;
        }
        if group.learners.contains(&node) {
            step = Some(Step::Remove { shard, node });
            continue;
        }
        let replaced_by = match view.nodes.get(&node).map(|node| node.standing) {
            Some(Standing::Leaving { replaced_by }) => replaced_by,
            _ => None,
        };
        // A replacement that leaves in its turn is none.
        let replaced_by = replaced_by.filter(|by| wanted.contains(by));
        if replaced_by.is_some_and(|by| !group.voters.contains(&by)) {
            continue;
        }
        let mut rest = group.voters.clone();
        rest.remove(&node);
        if !view.has_majority(&group.voters) || !view.has_majority(&rest) {
            continue;
        }
        // Who comes votes first, or the group could lose nobody meanwhile.
        if rest.intersection(wanted).count() < wanted.len().min(NODES_SAFE_MIN) {
            continue;
        }
        step = match group.leader == Some(node) {
            false => Some(Step::Remove { shard, node }),
            true => {
                let can = |to: &&u64| wanted.contains(to) && view.is_live(**to);
                rest.iter().find(can).map(|to| Step::HandOver { shard, to: *to })
            }
        };
    }
    step
}

/// One of the nodes that are to be members: `coming` has those which get a shard just now.
fn next_of_coming(
    view: &View,
    group: &Group,
    wanted: &BTreeSet<u64>,
    coming: &mut BTreeSet<u64>,
) -> Option<Step> {
    let shard = group.shard;
    if group.is_changing || group.leader.is_none() || !view.has_majority(&group.voters) {
        return None;
    }
    let learners = group.learners.intersection(wanted).copied();
    let promoted = learners.filter(|node| group.caught_up.contains(node)).find(|node| {
        let with = group.voters.iter().copied().chain([*node]).collect();
        view.is_live(*node) && view.has_majority(&with)
    });
    if let Some(node) = promoted {
        return Some(Step::Promote { shard, node });
    }
    let is_member = |node: &u64| group.voters.contains(node) || group.learners.contains(node);
    let absent = wanted.iter().copied().filter(|node| !is_member(node));
    let has_catalog = |node: u64| {
        let catalog = view.groups.iter().find(|group| group.shard == ShardId::CATALOG);
        shard == ShardId::CATALOG || catalog.is_some_and(|it| it.voters.contains(&node))
    };
    let mut able = absent.filter(|node| view.is_live(*node) && has_catalog(*node));
    let node = able.find(|node| !coming.contains(node))?;
    coming.insert(node);
    Some(Step::Add { shard, node })
}

impl View {
    /// A node that is not known here may have come since this node heard of the others.
    fn leaves(&self, node: u64) -> bool {
        let standing = self.nodes.get(&node).map(|node| node.standing);
        matches!(standing, Some(Standing::Leaving { .. })) || self.removed.contains(&node)
    }

    pub(crate) fn is_live(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_live)
    }

    /// Whether a majority of these is connected.
    pub(crate) fn has_majority(&self, voters: &BTreeSet<u64>) -> bool {
        voters.iter().filter(|node| self.is_live(**node)).count() > voters.len() / 2
    }
}

/// Why a node is not removed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotRemoved {
    #[error("there is no node {0} in the cluster")]
    Unknown(u64),
    #[error("node {0} lives and may lead: drain it first, with `postroad node drain {0}`")]
    Active(u64),
    #[error(
        "without node {node} the cluster would have {left} nodes, which cannot lose one and go on: start another one \
         with `--join`, then `postroad node replace {node} --with NEW`"
    )]
    TooFew { node: u64, left: usize },
    #[error(
        "without node {node} {shard} would have no majority: of its voters {voters:?} only {live:?} are connected; \
         start those that are not, first"
    )]
    NoMajority { node: u64, shard: ShardId, voters: Vec<u64>, live: Vec<u64> },
    #[error("node {0} cannot take its own place")]
    ByItself(u64),
    #[error("node {with} cannot take the place of node {node}: it {why}")]
    NoReplacement { node: u64, with: u64, why: &'static str },
}

/// Whether a node may leave, and another one takes its place if one is named.
pub(crate) fn may_leave(view: &View, node: u64, with: Option<u64>) -> Result<(), NotRemoved> {
    let found = view.nodes.get(&node).ok_or(NotRemoved::Unknown(node))?;
    let mut stay = wanted(&view.nodes);
    stay.remove(&node);
    if let Some(with) = with {
        if with == node {
            return Err(NotRemoved::ByItself(node));
        }
        let why = match view.nodes.get(&with) {
            None => Some("is not in the cluster: start it with `--join`, which says its number"),
            Some(with) if matches!(with.standing, Standing::Leaving { .. }) => {
                Some("leaves the cluster itself")
            }
            Some(with) if !with.is_live => Some("is not connected"),
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(NotRemoved::NoReplacement { node, with, why });
        }
    } else if found.is_live && found.standing == Standing::Active {
        return Err(NotRemoved::Active(node));
    }
    let is_new = !matches!(found.standing, Standing::Leaving { .. });
    if is_new && stay.len() < NODES_SAFE_MIN && stay.len() + 1 >= NODES_SAFE_MIN {
        return Err(NotRemoved::TooFew { node, left: stay.len() });
    }
    for group in &view.groups {
        // All that are to come may have come by then.
        let rest: BTreeSet<u64> = match with {
            None => group.voters.iter().copied().filter(|voter| *voter != node).collect(),
            Some(_) => stay.clone(),
        };
        if !rest.is_empty() && view.has_majority(&rest) {
            continue;
        }
        let live = rest.iter().copied().filter(|node| view.is_live(*node)).collect();
        let (shard, voters) = (group.shard, rest.into_iter().collect());
        return Err(NotRemoved::NoMajority { node, shard, voters, live });
    }
    Ok(())
}
