//! Which node leads which shard. Each shard has a node that founds its group and leads it whenever it can, one after
//! the other: so leaders are spread over the nodes. A node that takes over from one that died hands back what is
//! that node's once it has been there for a while; a node that is told to stop hands over all that it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::ShardId;
use cluster::Node;
use consensus::Members;
use futures_util::future::join_all;
use links::{Lane, NodeId, Phase};
use tokio::time::{Instant, MissedTickBehavior};

use crate::local_shard::LocalShard;
use crate::remote::Remote;

/// At most one shard is handed back in this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A node that returned is left alone for so long: it has things to catch up with, and may die again.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// After an attempt the shard stays where it is for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The node that founds the shard's group, and leads it when it can.
pub(crate) fn preferred(members: &Members, shard: ShardId) -> Option<u64> {
    let place = (shard.0 as usize).saturating_sub(ShardId::FIRST.0 as usize);
    let count = members.voters.len();
    members.voters.keys().nth(place.checked_rem(count)?).copied()
}

/// Hands shards back. Ends when they are gone.
pub(crate) async fn run(remote: Remote, shards: Vec<Weak<LocalShard>>) {
    let node = remote.node();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut not_before: BTreeMap<ShardId, Instant> = BTreeMap::new();
    loop {
        ticks.tick().await;
        let now = Instant::now();
        for shard in &shards {
            let Some(shard) = shard.upgrade() else { return };
            let members = shard.consensus.members();
            let Some(to) = preferred(&members, shard.id()) else { continue };
            let waits = not_before.get(&shard.id()).is_some_and(|until| now < *until);
            if waits || to == node.identity().at.node.0 || !shard.is_led_here() {
                continue;
            }
            if connected_for(node, to) < Some(SETTLED_AFTER) {
                continue;
            }
            not_before.insert(shard.id(), now + AGAIN_AFTER);
            if remote.would_lead(to).await {
                hand_over(&shard, to).await;
            }
            break;
        }
    }
}

/// Hands over all shards that this node leads, each to another node that it is connected to.
pub(crate) async fn hand_all_over(remote: &Remote, shards: &[Arc<LocalShard>]) {
    let node = remote.node();
    let here = node.identity().at.node.0;
    let led: Vec<_> = shards.iter().filter(|shard| shard.is_led_here()).collect();
    let voters = led.iter().flat_map(|shard| shard.consensus.members().voters.into_keys());
    let others: BTreeSet<u64> = voters.filter(|id| *id != here).collect();
    let asked = others.into_iter().map(async |id| remote.would_lead(id).await.then_some(id));
    let willing: BTreeSet<u64> = join_all(asked).await.into_iter().flatten().collect();
    let handing = led.into_iter().map(async |shard| {
        let others = shard.consensus.members().voters.into_keys().filter(|id| *id != here);
        // The one that has been there longest lacks least.
        let ranked =
            others.filter_map(|id| Some((willing.contains(&id), connected_for(node, id)?, id)));
        if let Some((_, _, to)) = ranked.max() {
            hand_over(shard, to).await;
        }
    });
    join_all(handing).await;
}

/// For how long a node has been connected; `None` where it is not.
pub(crate) fn connected_for(node: &Node, id: u64) -> Option<Duration> {
    match node.links().peer(NodeId(id))?.status(Lane::Control).phase {
        Phase::Connected { since, .. } => Some(since.elapsed()),
        _ => None,
    }
}

pub(crate) async fn hand_over(shard: &LocalShard, to: u64) {
    let shard_id = shard.id();
    match shard.consensus.transfer_leadership(to).await {
        Ok(()) => tracing::info!(shard = %shard_id, to, "leadership is handed over"),
        Err(error) => {
            tracing::warn!(shard = %shard_id, to, %error, "leadership is not handed over")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u64) -> Members {
        Members::voting((1..=count).map(|id| (id, String::new())))
    }

    #[test]
    fn leaders_are_spread_and_the_catalog_is_the_first_nodes() {
        let members = members(3);
        let leads = |shard| preferred(&members, ShardId(shard));
        assert_eq!(leads(0), Some(1));
        let of_shards: Vec<u64> = (1..=7).filter_map(leads).collect();
        assert_eq!(of_shards, [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn nobody_leads_a_shard_without_members() {
        assert_eq!(preferred(&members(0), ShardId::FIRST), None);
    }
}
