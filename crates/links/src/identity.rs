//! The identity that a node presents, and the admission that checks it.

use base::Levels;
use uuid::Uuid;

use crate::node_id::NodeId;
use crate::refusal::Refusal;

/// Identity of a data directory. All of it is sent in each handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryIdentity {
    pub cluster: Uuid,
    pub node: NodeId,
    /// Drawn when the directory was created: a wiped disk, or the disk of another node, has another one.
    pub directory: Uuid,
    /// Number of starts on this directory: a disk that was set back has a count that was seen before.
    pub boot: u64,
    /// Epoch of the directory when this run began: it rises while a node runs and with each start. 0: the cluster's
    /// level has none.
    pub epoch: u64,
}

/// One run of a node's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub at: DirectoryIdentity,
    /// Drawn by the process: two processes on copies of one directory count the same boots.
    pub run: Uuid,
    /// The levels that its binary can replay and write.
    pub levels: Levels,
}

/// Decides whether a peer is one of the cluster's nodes. Links compare cluster, versions and lane themselves, and
/// refuse a run that is older than the last one seen.
pub trait Admission: Send + Sync + 'static {
    /// Refuses an unknown node ([`Refusal::UnknownNode`]), a node with another directory
    /// ([`Refusal::AnotherDirectory`]), a boot count that was seen before its boot ([`Refusal::OldBoot`]), or a
    /// binary without the cluster's level ([`Refusal::LevelMissing`]). Is called at each handshake, by the
    /// connecting and by the accepting side, and must not wait.
    fn admit(&self, peer: &Identity) -> Result<(), Refusal>;

    /// Records that a peer passed all checks of a handshake. Must not wait.
    fn admitted(&self, _: &Identity) {}

    /// The levels that this node's binary can replay and write, sent in each handshake.
    fn levels(&self) -> Levels {
        Levels::OURS
    }

    /// Whether a node that presents another cluster than `ours` may learn this node's identity: it belongs to no
    /// cluster yet, and looks for one by [`crate::introduce`]. Must not wait. Without a founding in progress no
    /// node may.
    fn admit_newcomer(&self, ours: &Identity, peer: &Identity) -> Result<(), Refusal> {
        let (cluster, presented) = (ours.at.cluster, peer.at.cluster);
        Err(Refusal::AnotherCluster { cluster, presented })
    }

    /// The number of a node that joins by [`crate::join`], once the cluster has assigned one. Must not wait: until
    /// then it is [`Refusal::JoinPending`], and the node retries.
    fn admit_joining(&self, ours: &Identity, _: &JoiningNode) -> Result<NodeId, Refusal> {
        let reason = format!("{} takes no new nodes", ours.at.node);
        Err(Refusal::NotJoined { reason })
    }
}

/// A node without a cluster that joins one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoiningNode {
    pub directory: Uuid,
    pub boot: u64,
    /// `HOST:PORT` at which the others are to reach it, as it reports it.
    pub address: String,
    /// The levels that its binary can replay and write.
    pub levels: Levels,
}

/// Presented in place of a cluster by a node that joins one.
pub(crate) const JOINING: Uuid = Uuid::from_u128(0x506f_7374_726f_8164_a06a_6f69_6e69_6e67);

impl<F: Fn(&Identity) -> Result<(), Refusal> + Send + Sync + 'static> Admission for F {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        self(peer)
    }
}
