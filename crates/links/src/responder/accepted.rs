//! One connection for each peer and lane.
//!
//! A peer that reconnects has lost its earlier connection, which this side may not know yet. The later connection
//! replaces the earlier one, so that no stream of appends is served twice.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::lane::Lane;
use crate::node_id::NodeId;

#[derive(Debug, Default)]
pub(crate) struct AcceptedConnections(Mutex<BTreeMap<(NodeId, Lane), oneshot::Sender<()>>>);

impl AcceptedConnections {
    /// Ready once a later connection replaces this one.
    pub(crate) fn insert(&self, node: NodeId, lane: Lane) -> oneshot::Receiver<()> {
        let (replaces, replaced) = oneshot::channel();
        self.0.lock().insert((node, lane), replaces);
        replaced
    }

    /// Ends all connections of a node.
    pub(crate) fn remove(&self, node: NodeId) {
        self.0.lock().retain(|(of, _), _| *of != node);
    }
}
