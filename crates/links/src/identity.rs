//! Who a node says that it is, and who decides whether that is true.

use std::fmt;

use base::Levels;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::refusal::Refusal;

/// A node's number, given by the catalog and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// What a data directory says of its node. All of it is told at each handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryIdentity {
    pub cluster: Uuid,
    pub node: NodeId,
    /// Made with the directory: a disk that was wiped or belongs to another node has another one.
    pub directory: Uuid,
    /// How often a node was started on this directory: a disk that was set back has one that was seen
    /// before.
    pub boot: u64,
    /// Epoch of the directory when this run began: it rises while a node runs and with each start. 0: the cluster's
    /// level has none.
    pub epoch: u64,
}

/// One run of a node's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub at: DirectoryIdentity,
    /// Drawn by the process: two that were started on copies of one directory count the same boots.
    pub run: Uuid,
    /// What its binary can replay and write.
    pub levels: Levels,
}

/// Decides whether a peer is one of the cluster's nodes. Links compare cluster, versions and lane
/// themselves, and refuse a run that is older than one they have seen.
pub trait Admission: Send + Sync + 'static {
    /// Refuses a node that is not known ([`Refusal::UnknownNode`]), whose directory is not the one that is
    /// known ([`Refusal::AnotherDirectory`]), whose boot count was seen before its boot
    /// ([`Refusal::OldBoot`]), or whose binary cannot the cluster's level ([`Refusal::LevelMissing`]). Is asked at each handshake, by the side that connects and by the one that
    /// accepts, and must not wait.
    fn admit(&self, peer: &Identity) -> Result<(), Refusal>;

    /// Records that a peer passed all checks of a handshake. Must not wait.
    fn admitted(&self, _: &Identity) {}

    /// What this node's binary can replay and write: it is told at each handshake.
    fn levels(&self) -> Levels {
        Levels::OURS
    }

    /// Whether a node that presents another cluster than `ours` may hear who this one is: it belongs to none yet,
    /// and asks by [`crate::introduce`] which it will be part of. Must not wait. Without a founding in progress
    /// nobody may.
    fn admit_newcomer(&self, ours: &Identity, peer: &Identity) -> Result<(), Refusal> {
        let (cluster, presented) = (ours.at.cluster, peer.at.cluster);
        Err(Refusal::AnotherCluster { cluster, presented })
    }

    /// Which number a node has that asks to join by [`crate::join`], once the cluster has given it one. Must not
    /// wait: until then it is [`Refusal::JoinPending`], and the node asks again.
    fn admit_joining(&self, ours: &Identity, _: &Joining) -> Result<NodeId, Refusal> {
        let reason = format!("{} takes no new nodes", ours.at.node);
        Err(Refusal::NotJoined { reason })
    }
}

/// A node of no cluster that would join one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joining {
    pub directory: Uuid,
    pub boot: u64,
    /// `HOST:PORT` by which the others are to reach it, as it says.
    pub address: String,
    /// What its binary can replay and write.
    pub levels: Levels,
}

/// What a node presents in place of a cluster while it asks to join one.
pub(crate) const JOINING: Uuid = Uuid::from_u128(0x506f_7374_726f_8164_a06a_6f69_6e69_6e67);

impl<F: Fn(&Identity) -> Result<(), Refusal> + Send + Sync + 'static> Admission for F {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        self(peer)
    }
}
