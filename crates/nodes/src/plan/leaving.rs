//! Checks whether a node may be removed.

use std::collections::BTreeSet;

use base::ShardId;

use super::{NODES_SAFE_MIN, View, staying, wanted};
use crate::registry::NodeLifecycle;

/// Reason why a node is not removed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RemovalObstacle {
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
    #[error(
        "the node asked does not know the members of {0} yet: retry in a few seconds, or ask another node"
    )]
    UnknownMembers(ShardId),
    #[error("node {0} cannot take its own place")]
    ByItself(u64),
    #[error("node {with} cannot take the place of node {node}: it {why}")]
    NoReplacement { node: u64, with: u64, why: &'static str },
}

/// Checks whether a node may leave, optionally replaced by `with`.
pub(crate) fn may_leave(view: &View, node: u64, with: Option<u64>) -> Result<(), RemovalObstacle> {
    let found = view.nodes.get(&node).ok_or(RemovalObstacle::Unknown(node))?;
    let mut stay = staying(&view.nodes);
    stay.remove(&node);
    if let Some(with) = with {
        if with == node {
            return Err(RemovalObstacle::ByItself(node));
        }
        let why = match view.nodes.get(&with) {
            None => Some("is not in the cluster: start it with `--join`, which says its number"),
            Some(with) if matches!(with.standing, NodeLifecycle::Leaving { .. }) => {
                Some("leaves the cluster itself")
            }
            Some(with) if !with.is_live => Some("is not connected"),
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(RemovalObstacle::NoReplacement { node, with, why });
        }
    } else if found.is_live && found.standing == NodeLifecycle::Active {
        return Err(RemovalObstacle::Active(node));
    }
    let is_new = !matches!(found.standing, NodeLifecycle::Leaving { .. });
    if is_new && stay.len() < NODES_SAFE_MIN && stay.len() + 1 >= NODES_SAFE_MIN {
        return Err(RemovalObstacle::TooFew { node, left: stay.len() });
    }
    if let Some(shard) = view.shard_with_unknown_members() {
        return Err(RemovalObstacle::UnknownMembers(shard));
    }
    if view.spreads {
        return check_remaining_nodes(view, node, with);
    }
    for group in &view.groups {
        // By then all wanted members may have joined the group.
        let rest: BTreeSet<u64> = match with {
            None => group.voters.iter().copied().filter(|voter| *voter != node).collect(),
            Some(_) => stay.clone(),
        };
        has_majority(view, node, group.shard, &rest)?;
    }
    Ok(())
}

/// Checks that each group with the node as voter can add a member, and then works without the node.
fn check_remaining_nodes(view: &View, node: u64, with: Option<u64>) -> Result<(), RemovalObstacle> {
    let mut then = view.clone();
    if let Some(found) = then.nodes.get_mut(&node) {
        found.standing = NodeLifecycle::Leaving { replaced_by: with };
    }
    let wanted = wanted(&then);
    for group in &view.groups {
        if group.voters.contains(&node) {
            has_majority(view, node, group.shard, &group.voters)?;
            let rest = wanted.get(&group.shard).map(|wanted| &wanted.voters);
            rest.map_or(Ok(()), |rest| has_majority(view, node, group.shard, rest))?;
        }
    }
    Ok(())
}

fn has_majority(
    view: &View,
    node: u64,
    shard: ShardId,
    voters: &BTreeSet<u64>,
) -> Result<(), RemovalObstacle> {
    if !voters.is_empty() && view.has_majority(voters) {
        return Ok(());
    }
    let live = voters.iter().copied().filter(|node| view.is_live(*node)).collect();
    Err(RemovalObstacle::NoMajority { node, shard, voters: voters.iter().copied().collect(), live })
}
