//! Spread of leaders over the nodes. Each shard has a preferred node, in turn, which founds its group and leads it
//! whenever it can. A node that took over from a failed one hands the shard back once that node has been up for a
//! while. A node that stops hands over all shards that it leads, and so does a drained node whenever it has become a
//! leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::ShardId;
use cluster::Node;
use consensus::Members;
use futures_util::future::join_all;
use links::NodeId;
use shard::LocalShard;
use shard_peers::Remote;
use tokio::time::{Instant, MissedTickBehavior};

use super::disk_health::DiskHealth;

/// Longest time for which a stopping node continues to serve while other members catch up.
const KEPT_UP_WITHIN: Duration = Duration::from_secs(5);
/// At most one shard is handed back in this interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time before a returned node gets shards back: it has to catch up first, and may fail again.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// Time for which a shard stays where it is after an attempt.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// The same for a drained node: the new leader may have been behind.
const DRAINED_RETRY_DELAY: Duration = Duration::from_secs(3);

/// Returns the node that founds the shard's group, and leads it when it can: one of the voters that may lead. `nodes`
/// are all nodes of the cluster, in the order of their numbers. The choice in turn gives each node as many shards to
/// lead, also where few nodes have a shard.
pub(crate) fn preferred(
    nodes: &[u64],
    members: &Members,
    shard: ShardId,
    may_lead: impl Fn(u64) -> bool,
) -> Option<u64> {
    in_turn(nodes, members, shard, may_lead).first().copied()
}

/// Returns the nodes that have a shard, in the order of preference for its leader. Those that may not lead come last.
pub(crate) fn order(
    nodes: &[u64],
    members: &Members,
    shard: ShardId,
    may_lead: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let mut order = in_turn(nodes, members, shard, &may_lead);
    order.extend(members.voters.keys().copied().filter(|node| !may_lead(*node)));
    order
}

/// Returns the voters that may lead, beginning with the next one in turn: another node for each shard.
fn in_turn(
    nodes: &[u64],
    members: &Members,
    shard: ShardId,
    may_lead: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let place = (shard.0 as usize).saturating_sub(ShardId::FIRST.0 as usize);
    let able = |node: &u64| may_lead(*node);
    let all: Vec<u64> = nodes.iter().copied().filter(able).collect();
    let turn = place.checked_rem(all.len()).and_then(|turn| all.get(turn)).copied();
    let mut voters: Vec<u64> = members.voters.keys().copied().filter(able).collect();
    let first = voters.iter().position(|voter| Some(*voter) >= turn).unwrap_or(0);
    voters.rotate_left(first);
    voters
}

/// Returns all known nodes of the cluster, by their numbers.
pub(crate) fn nodes_of(node: &Node) -> Vec<u64> {
    let mut nodes: Vec<u64> = node.known().into_iter().map(|known| known.id.0).collect();
    nodes.sort_unstable();
    nodes
}

/// Hands shards back to their preferred nodes. Ends when the shards are gone.
pub(crate) async fn run(remote: Remote, health: Arc<DiskHealth>, shards: Vec<Weak<LocalShard>>) {
    let node = remote.node();
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut not_before: BTreeMap<ShardId, Instant> = BTreeMap::new();
    loop {
        ticks.tick().await;
        let now = Instant::now();
        for shard in &shards {
            let Some(shard) = shard.upgrade() else { return };
            if !shard.is_led_here() {
                continue;
            }
            let waits = not_before.get(&shard.id()).is_some_and(|until| now < *until);
            if waits {
                continue;
            }
            let here = node.identity().at.node;
            let (members, nodes) = (shard.consensus.members(), nodes_of(node));
            if node.rests(here) {
                // To the shard's preferred node if that can take it, and else to another node that can.
                let may_lead = |id: u64| {
                    let is_full = health.is_full_elsewhere(id);
                    !node.rests(NodeId(id)) && !is_full && connected_for(node, id).is_some()
                };
                let may_take = |id| id != here.0 && may_lead(id);
                let to = preferred(&nodes, &members, shard.id(), may_take);
                if let Some(to) = to {
                    not_before.insert(shard.id(), now + DRAINED_RETRY_DELAY);
                    hand_over(&shard, to).await;
                }
                continue;
            }
            // While the shard moves to other nodes, the placement chooses its leader.
            if shard.is_changing_replicas() {
                continue;
            }
            let may_lead = |id: u64| !node.rests(NodeId(id));
            let preferred = preferred(&nodes, &members, shard.id(), may_lead);
            let Some(to) = preferred.filter(|to| *to != here.0) else { continue };
            if connected_for(node, to) < Some(SETTLED_AFTER) {
                continue;
            }
            not_before.insert(shard.id(), now + RETRY_DELAY);
            if remote.would_lead(to).await {
                hand_over(&shard, to).await;
            }
            break;
        }
    }
}

/// Hands over all shards that this node leads, each to another connected node, once the others have caught up enough
/// to commit without this node.
pub(crate) async fn hand_over_all(remote: &Remote, shards: &[Arc<LocalShard>]) {
    let node = remote.node();
    let here = node.identity().at.node.0;
    let led: Vec<_> = shards.iter().filter(|shard| shard.is_led_here()).collect();
    let voters = led.iter().flat_map(|shard| shard.consensus.members().voters.into_keys());
    let others: BTreeSet<u64> = voters.filter(|id| *id != here).collect();
    let asked = others.into_iter().map(async |id| remote.would_lead(id).await.then_some(id));
    let willing: BTreeSet<u64> = join_all(asked).await.into_iter().flatten().collect();
    let handing = led.into_iter().map(async |shard| {
        let voters = shard.consensus.members().voters.into_keys();
        let in_reach = voters.filter(|id| connected_for(node, *id).is_some()).collect();
        if !shard.consensus.others_keep_up(&in_reach, KEPT_UP_WITHIN).await {
            tracing::info!(shard = %shard.id(), "this node stops although other members are behind or out of reach");
        }
        let others = shard.consensus.members().voters.into_keys().filter(|id| *id != here);
        // The node that has been up longest lags least. A drained node leads only if no other can.
        let rank = |id: u64| {
            let rests = node.rests(NodeId(id));
            Some((!rests, willing.contains(&id), connected_for(node, id)?, id))
        };
        if let Some((_, _, _, to)) = others.filter_map(rank).max() {
            hand_over(shard, to).await;
        }
    });
    join_all(handing).await;
}

/// Returns for how long a node has been connected; `None` where it is not.
pub(crate) fn connected_for(node: &Node, id: u64) -> Option<Duration> {
    node.connected_for(NodeId(id))
}

pub(crate) async fn hand_over(shard: &LocalShard, to: u64) {
    let shard_id = shard.id();
    match shard.transfer_leadership(to).await {
        Ok(()) => tracing::info!(shard = %shard_id, to, "leadership is handed over"),
        Err(error) => {
            tracing::warn!(shard = %shard_id, to, %error, "leadership is not handed over")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where all nodes have the shard.
    fn order(members: &Members, shard: ShardId, may_lead: impl Fn(u64) -> bool) -> Vec<u64> {
        let nodes: Vec<u64> = members.voters.keys().copied().collect();
        super::order(&nodes, members, shard, may_lead)
    }

    fn preferred(members: &Members, shard: ShardId, may_lead: impl Fn(u64) -> bool) -> Option<u64> {
        let nodes: Vec<u64> = members.voters.keys().copied().collect();
        super::preferred(&nodes, members, shard, may_lead)
    }

    fn members(count: u64) -> Members {
        Members::voting((1..=count).map(|id| (id, String::new())))
    }

    #[test]
    fn leaders_are_spread_and_the_first_node_leads_the_catalog() {
        let members = members(3);
        let leads = |shard| preferred(&members, ShardId(shard), |_| true);
        assert_eq!(leads(0), Some(1));
        let of_shards: Vec<u64> = (1..=7).filter_map(leads).collect();
        assert_eq!(of_shards, [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn shard_without_eligible_members_has_no_preferred_leader() {
        assert_eq!(preferred(&members(0), ShardId::FIRST, |_| true), None);
        assert_eq!(preferred(&members(3), ShardId::FIRST, |_| false), None);
    }

    #[test]
    fn shards_of_an_ineligible_node_are_led_by_the_others_in_turn() {
        let members = members(3);
        let leads = |shard| preferred(&members, ShardId(shard), |node| node != 2);
        assert_eq!((1..=4).filter_map(leads).collect::<Vec<_>>(), [1, 3, 1, 3]);
    }

    #[test]
    fn replicas_are_ordered_by_preference_for_leading() {
        let members = members(3);
        let all = |shard| order(&members, ShardId(shard), |_| true);
        assert_eq!([1, 2, 3, 4].map(all), [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]);
        let drained = |shard| order(&members, ShardId(shard), |node| node != 2);
        assert_eq!([1, 2].map(drained), [[1, 3, 2], [3, 1, 2]]);
        assert_eq!(order(&members, ShardId::FIRST, |_| false), [1, 2, 3]);
    }

    #[test]
    fn leaders_are_even_when_three_of_many_nodes_have_each_shard() {
        for count in 3..=20 {
            let nodes: Vec<u64> = (1..=count).collect();
            let mut led: BTreeMap<u64, usize> = nodes.iter().map(|node| (*node, 0)).collect();
            for shard in 1..=2 * count {
                let turns = [0, count / 3, 2 * count / 3];
                let has = turns.map(|turn| (shard - 1 + turn) % count + 1);
                let members = Members::voting(has.map(|id| (id, String::new())));
                let leader = super::preferred(&nodes, &members, ShardId(shard as u32), |_| true);
                *led.entry(leader.expect("one leads")).or_default() += 1;
            }
            assert!(led.values().all(|led| *led == 2), "{count} nodes: {led:?}");
        }
    }

    #[test]
    fn next_node_in_turn_with_a_replica_leads() {
        let members = Members::voting([2, 5].map(|id| (id, String::new())));
        let leads = |shard| super::preferred(&[1, 2, 3, 4, 5], &members, ShardId(shard), |_| true);
        assert_eq!((1..=6).filter_map(leads).collect::<Vec<_>>(), [2, 2, 5, 5, 5, 2]);
    }
}
