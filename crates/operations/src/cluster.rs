//! Operations on a cluster as a whole, accepted by any of its nodes: an operation family of its own.

use serde::{Deserialize, Serialize};

use crate::backup::Step;

/// The name of the family.
pub const FAMILY: &str = "cluster";

/// A request. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Reply: [`Status`].
    Status {},
    /// The node leads no shard from now on. Reply: [`NodeDecision`].
    DrainNode { node: u64 },
    /// The node may lead again; a pending removal is cancelled. Reply: [`NodeDecision`].
    ResumeNode { node: u64 },
    /// Removes all replicas from the node, and then the node from the cluster. Reply: [`NodeDecision`].
    RemoveNode { node: u64 },
    /// The same, after another node has received all replicas. Reply: [`NodeDecision`].
    ReplaceNode { node: u64, with: u64 },
    /// Scrub state of the replying node; `begin` starts a scrub now. Also for a single node. Reply: [`ScrubStatus`].
    Scrub { begin: bool },
    /// Feature level of the cluster and the levels that its nodes support; `finalize` raises it to the newest one that
    /// all nodes support. Also for a single node. Reply: [`Upgrade`].
    Upgrade { finalize: bool },
    /// Moves partitions of a topic to another shard, in the background. Also for a single node with several shards.
    /// Reply: [`Moves`].
    MovePartitions { topic: String, partitions: Vec<u32>, to_shard: u32 },
    /// Cancels those moves that can still be cancelled. Reply: [`Moves`].
    CancelMoves { topic: String, partitions: Vec<u32> },
    /// Partitions in motion, and the current shard of each partition of a topic. Reply: [`Moves`].
    Moves { topic: Option<String> },
    /// Current and wanted nodes of each shard. Reply: [`Placements`].
    Placements {},
    /// Pins a shard to these nodes while they are in the cluster. Without nodes the cluster places it again. Reply:
    /// [`Placements`].
    PlaceShard { shard: u32, nodes: Vec<u64> },
    /// Places all shards again, pinned ones included; `dry_run` only returns the result. Reply: [`Placements`].
    Balance { dry_run: bool },
    /// A step of a backup, of the cluster or of a single node, read from the replying node.
    Backup(Step),
}

/// The change is decided; its consequences are in progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeDecision {
    pub node: u64,
    /// False if this was the state already.
    pub changed: bool,
}

/// State of a cluster, as seen by one of its nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    pub cluster: String,
    /// The replying node.
    pub answered_by: u64,
    pub nodes: Vec<Node>,
    /// The catalog shard first.
    pub shards: Vec<Shard>,
    /// Changes in progress.
    pub under_way: Vec<String>,
    /// Conditions that an operator should look at.
    pub at_risk: Vec<String>,
    pub verdict: Verdict,
    /// Scrub states, as far as nodes have reported them.
    #[serde(default)]
    pub stored: Vec<ScrubStatus>,
    #[serde(default)]
    pub upgrade: Upgrade,
}

/// Partitions that move from one shard to another.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Moves {
    /// Moves in all topics.
    pub moving: Vec<PartitionMove>,
    /// Shard of each partition of the requested topic, by partition number.
    pub shards: Vec<u32>,
}

/// Current and wanted places of shards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placements {
    /// Shards with records.
    pub shards: Vec<Placement>,
    pub nodes: Vec<Load>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placement {
    pub shard: u32,
    /// Current voters; empty if no leader has reported them.
    pub nodes: Vec<u64>,
    /// Voters once all changes are done.
    pub wanted: Vec<u64>,
    /// Pinned by an operator.
    pub by_hand: bool,
}

/// Number of these shards on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Load {
    pub node: u64,
    pub shards: u64,
    /// Number once all changes are done.
    pub wanted: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionMove {
    pub topic: String,
    pub partition: u32,
    pub from_shard: u32,
    pub to_shard: u32,
    pub state: MoveState,
    /// Records copied to the other shard, of `of` in total, deleted ones included.
    pub copied: u64,
    pub of: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveState {
    Waits,
    Copies,
    /// The partition takes no appends for a moment.
    Frozen,
    /// The other shard has the partition and is about to serve it.
    HandedOver,
    /// The move is being undone.
    Cancelled,
}

/// Feature level of a cluster, and the level it could be raised to.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Upgrade {
    pub level: u16,
    /// The newest level that all nodes support.
    pub possible: u16,
    pub nodes: Vec<Program>,
    /// Description of each level that some node supports and that the cluster has not reached.
    pub brings: Vec<String>,
    /// Reasons why the cluster cannot be raised to the newest of them, and what to do.
    pub in_the_way: Vec<String>,
    /// Raised by this operation.
    pub raised: bool,
}

/// The program that a node runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    pub node: u64,
    /// Program name with version; null: the node has not reported it.
    pub name: Option<String>,
    pub level_min: u16,
    pub level_max: u16,
    /// Whether it is connected to the replying node, or is that node.
    pub live: bool,
}

/// Scrub state of a node's stored data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScrubStatus {
    pub node: u64,
    /// During a scrub: bytes read so far, of about `of_bytes`.
    pub looked_at_bytes: Option<u64>,
    pub of_bytes: Option<u64>,
    /// End of the last complete scrub; null: none since the node started.
    pub ended_ms: Option<i64>,
    /// Damage found, by file and place.
    pub damaged: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub node: u64,
    /// Address of its peer port.
    pub address: String,
    /// Rack that the node was started with; null: none.
    #[serde(default)]
    pub rack: Option<String>,
    pub standing: NodeState,
    /// The node that replaces it.
    pub replaced_by: Option<u64>,
    /// Whether it is connected to the replying node, or is that node.
    pub live: bool,
    /// Start of the current connection or disconnection; null: since the replying node started, or unknown.
    pub since_ms: Option<i64>,
    /// Reason why it is not connected.
    pub why: Option<String>,
    pub leads: u64,
    pub holds: u64,
}

/// Wanted state of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    Active,
    /// The node leads no shard.
    Drained,
    /// The node gives up its replicas.
    Leaving,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shard {
    pub shard: u32,
    /// Null: no node claims to lead it.
    pub leader: Option<u64>,
    pub voters: Vec<u64>,
    /// Replicas that receive the log and do not vote.
    pub learners: Vec<u64>,
    /// A membership change has begun.
    pub changing: bool,
    /// Members that lag, as far as the leader knows.
    pub lags: Vec<Lag>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lag {
    pub node: u64,
    /// Missing entries of the log.
    pub entries: u64,
    /// During a snapshot transfer: bytes received, of `snapshot_of_bytes`; 0 of 0 until the node has reported.
    pub snapshot_bytes: Option<u64>,
    pub snapshot_of_bytes: Option<u64>,
}

/// Whether the cluster tolerates the loss of any one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub can_lose_a_node: bool,
    pub text: String,
}
