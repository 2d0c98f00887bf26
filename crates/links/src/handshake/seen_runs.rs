//! The last seen run of each node.
//!
//! A node that reconnects is the same run, or a later one. An older boot, or the same boot in another run, is a
//! disk that was set back or copied, or a process that should be gone.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use uuid::Uuid;

use crate::identity::{Admission, Identity};
use crate::node_id::NodeId;
use crate::refusal::Refusal;

#[derive(Debug, Default)]
pub(crate) struct SeenRuns(Mutex<BTreeMap<NodeId, Run>>);

#[derive(Clone, Copy, Debug)]
struct Run {
    boot: u64,
    run: Uuid,
}

impl SeenRuns {
    /// Whether the peer may connect; if so its run becomes the last seen one.
    pub(crate) fn admit(
        &self,
        ours: &Identity,
        peer: &Identity,
        admission: &dyn Admission,
    ) -> Result<(), Refusal> {
        let (cluster, presented) = (ours.at.cluster, peer.at.cluster);
        if cluster != presented {
            return Err(Refusal::AnotherCluster { cluster, presented });
        }
        admission.admit(peer)?;
        let mut seen = self.0.lock();
        let Identity { at, run, .. } = *peer;
        let last = seen.entry(at.node).or_insert(Run { boot: at.boot, run });
        if at.boot < last.boot || (at.boot == last.boot && run != last.run) {
            return Err(Refusal::OldBoot { node: at.node, seen: last.boot, presented: at.boot });
        }
        *last = Run { boot: at.boot, run };
        admission.admitted(peer);
        Ok(())
    }

    /// The node was removed from the cluster.
    pub(crate) fn forget(&self, node: NodeId) {
        self.0.lock().remove(&node);
    }
}
