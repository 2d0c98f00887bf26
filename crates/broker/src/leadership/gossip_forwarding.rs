//! Forwards leadership gossip ([`crate::leadership::leader_gossip`]) to the local shards: one task for all of them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use links::NodeId;
use shard::LocalShard;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::leader_gossip::LeaderGossip;

/// Interval of checks of the connections.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Forwards the gossip to the shards. Ends when they are gone.
pub(crate) async fn run(
    leader_gossip: Arc<LeaderGossip>,
    node: Arc<cluster::Node>,
    shards: Vec<Weak<LocalShard>>,
) {
    let mut looks = interval(CHECK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = leader_gossip.changed.notified() => {}
            _ = looks.tick(), if !leader_gossip.is_empty() => {}
        }
        let now = Instant::now();
        leader_gossip.update_connections(|other| node.connected_for(NodeId(other)).is_some(), now);
        let mut known = leader_gossip.known(now);
        for shard in &shards {
            let Some(shard) = shard.upgrade() else { return };
            shard.set_gossip(known.remove(&shard.id()));
        }
    }
}
