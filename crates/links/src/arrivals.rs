//! Peers that connect to this node: they run, so the links to them need not wait before the next attempt.

use std::sync::Arc;

use base::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::node_id::NodeId;

#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    peers: Mutex<HashMap<NodeId, Arc<Notify>>>,
}

impl Arrivals {
    /// Wakes the links to a peer at each of its connections.
    pub(crate) fn of(&self, node: NodeId) -> Arc<Notify> {
        Arc::clone(self.peers.lock().entry(node).or_default())
    }

    pub(crate) fn note(&self, node: NodeId) {
        if let Some(links) = self.peers.lock().get(&node) {
            links.notify_waiters();
        }
    }

    pub(crate) fn forget(&self, node: NodeId) {
        self.peers.lock().remove(&node);
    }
}
