//! Connection of this node to a majority of a shard's voters. Without it no leader can be elected on this side of a
//! partition of the network: requests are rejected early, and clients look for the leader elsewhere.

use std::time::Duration;

use cluster::Node;
use consensus::Members;
use links::NodeId;
use tokio::time::sleep;

/// Interval of checks of the connections.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether this node and the voters connected to it are a majority of the group. True if the voters are not known.
pub fn is_connected(node: &Node, members: &Members) -> bool {
    let voters = members.voters.keys();
    let connected = voters.filter(|id| node.connected_for(NodeId(**id)).is_some()).count();
    members.voters.is_empty() || connected > members.voters.len() / 2
}

/// Resolves after `hold`, once no majority of the voters is connected.
pub async fn absent_after(node: &Node, hold: Duration, members: impl Fn() -> Members) {
    sleep(hold).await;
    while is_connected(node, &members()) {
        sleep(LOOK_EVERY).await;
    }
}
