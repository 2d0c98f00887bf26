//! Follower fetching (KIP-392): a consumer that names its rack, and whose leader is in another one, is
//! referred to a node of its own rack with a copy. Kafka enables it by `replica.selector.class`; here it is
//! on once nodes are configured with racks.
//!
//! Only a client that names this node's rack reads a copy. Kafka serves every client, so that one which
//! queries a former leader by mistake stays there; here it is referred to the leader.

use std::time::Duration;

use crate::limits::COPY_FETCH_WAIT_MAX;
use base::PartitionId;
use base::limits::FETCH_WAIT_MAX;

use crate::leaders::{ReachableNode, reached};
use crate::state::Gateway;

/// The client's rack in relation to this node.
#[derive(Debug)]
pub(crate) enum ClientRack {
    /// The client names no rack, or no node is in it: the leader serves it.
    Nowhere,
    /// In this node's rack: it may read partitions of other leaders here, if this node's copy is current
    /// enough.
    Here,
    /// In the rack of these other nodes.
    Elsewhere(Vec<u32>),
}

impl ClientRack {
    /// `encrypted`: the client's connection uses TLS.
    pub(crate) fn of(gateway: &Gateway, rack: &str, encrypted: bool) -> Self {
        let own = gateway.options.nodes.own().endpoints.rack.as_deref();
        if rack.is_empty() || gateway.broker.is_alone() {
            return Self::Nowhere;
        }
        if own == Some(rack) {
            return Self::Here;
        }
        Self::among(&reached(gateway, encrypted), rack)
    }

    fn among(nodes: &[ReachableNode], rack: &str) -> Self {
        let there = nodes.iter().filter(|node| node.rack.as_deref() == Some(rack));
        let there = there.filter(|node| !node.is_unwell);
        match there.map(|node| node.id).collect::<Vec<u32>>() {
            none if none.is_empty() => Self::Nowhere,
            some => Self::Elsewhere(some),
        }
    }

    /// Maximum wait of the client's fetches on this node.
    pub(crate) fn wait_max(&self) -> Duration {
        if self.is_here() { COPY_FETCH_WAIT_MAX } else { FETCH_WAIT_MAX }
    }

    /// Whether this node may serve copies to the client.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self, Self::Here)
    }

    /// Returns a node in the client's rack that has nearly all of a partition which this node leads. Several
    /// nodes share the partitions.
    pub(crate) fn preferred(&self, gateway: &Gateway, partition: PartitionId) -> Option<u32> {
        let Self::Elsewhere(nodes) = self else { return None };
        let first = partition.index as usize % nodes.len();
        let in_turn = nodes[first..].iter().chain(&nodes[..first]);
        in_turn.copied().find(|node| gateway.broker.has_near_copy(partition, *node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaders::live_node;

    fn nodes(racks: [(u32, Option<&str>, bool); 4]) -> Vec<ReachableNode> {
        let node = |(id, rack, is_unwell): (u32, Option<&str>, bool)| {
            let rack = rack.map(str::to_owned);
            ReachableNode { rack, is_unwell, ..live_node(id) }
        };
        racks.into_iter().map(node).collect()
    }

    #[test]
    fn nodes_of_the_clients_rack_are_near_unless_their_disk_is_unwell() {
        let nodes = nodes([
            (1, Some("a"), false),
            (2, Some("b"), false),
            (3, Some("b"), true),
            (4, None, false),
        ]);
        let near = |rack| match ClientRack::among(&nodes, rack) {
            ClientRack::Elsewhere(nodes) => nodes,
            ClientRack::Here | ClientRack::Nowhere => Vec::new(),
        };
        assert_eq!((near("a"), near("b")), (vec![1], vec![2]));
        assert_eq!((near("c"), near("")), (vec![], vec![]));
    }
}
