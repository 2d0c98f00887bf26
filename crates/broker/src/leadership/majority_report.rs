//! Report of a node that has no leader of the catalog: in its log, and to probes.

use std::sync::Weak;
use std::time::Duration;

use cluster::Node;
use consensus::Members;
use links::NodeId;
use shard::LocalShard;
use shard::majority::is_connected;
use tokio::time::{Instant, sleep};

/// Time without a leader before the first report, and interval of the next ones.
const REPORTED_AFTER: Duration = Duration::from_secs(3);
const REPORTED_EVERY: Duration = Duration::from_secs(10);
const REPORT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Names the voters and those of them that this node is connected to, itself included.
fn waits_for(node: &Node, members: &Members) -> String {
    let listed = |nodes: &mut dyn Iterator<Item = u64>| {
        nodes.map(|id| id.to_string()).collect::<Vec<_>>().join(", ")
    };
    let all = listed(&mut members.voters.keys().copied());
    let connected = |id: &u64| node.connected_for(NodeId(*id)).is_some();
    let heard = listed(&mut members.voters.keys().copied().filter(connected));
    match is_connected(node, members) {
        true => format!("waits for nodes {all} to elect a leader; heard from: {heard}"),
        false => format!(
            "waits for a majority of nodes {all}; heard from: {heard}. If the others are lost for good, docs/user/cluster.md \
             says how to go on without them"
        ),
    }
}

/// Reports in the log, and to probes, that this node waits for a leader of the catalog. Ends when the shard is gone.
pub(crate) async fn report(node: Weak<Node>, catalog: Weak<LocalShard>) {
    let mut leaderless_since: Option<Instant> = None;
    let mut reported: Option<Instant> = None;
    // Held weakly, so that both can end: the data directory is free once the node is dropped.
    while let (Some(shard), Some(node)) = (catalog.upgrade(), node.upgrade()) {
        let (leader, members) = (shard.leader(), shard.consensus.members());
        drop(shard);
        // A follower keeps a lost leader as its leader for as long as it cannot be elected itself.
        let is_led = leader.is_some() && is_connected(&node, &members);
        if is_led || members.voters.is_empty() {
            if reported.take().is_some() {
                tracing::info!(leader, "the catalog has a leader again");
            }
            leaderless_since = None;
            node.note_waiting(None);
        } else {
            let since = *leaderless_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= REPORTED_AFTER {
                let words = waits_for(&node, &members);
                if reported.is_none_or(|at| at.elapsed() >= REPORTED_EVERY) {
                    tracing::warn!("this node {words}");
                    reported = Some(Instant::now());
                }
                node.note_waiting(Some(words));
            }
        }
        drop(node);
        sleep(REPORT_CHECK_INTERVAL).await;
    }
}
