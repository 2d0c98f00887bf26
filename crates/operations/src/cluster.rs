//! What operators ask of a cluster as a whole, at any of its nodes: a family of operations of its own.

use serde::{Deserialize, Serialize};

use crate::backup::Step;

/// The name of the family.
pub const FAMILY: &str = "cluster";

/// What is asked for. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Answers [`Status`].
    Status {},
    /// The node leads nothing from now on. Answers [`Decided`].
    DrainNode { node: u64 },
    /// The node may lead again, and stays if it was to leave. Answers [`Decided`].
    ResumeNode { node: u64 },
    /// The node gives up all that it has, and is none of the cluster's then. Answers [`Decided`].
    RemoveNode { node: u64 },
    /// The same, once another node has all of it. Answers [`Decided`].
    ReplaceNode { node: u64, with: u64 },
    /// What the node that is asked knows of what it has stored; with `begin` it looks through all of it now. Also for
    /// a node that is alone. Answers [`Stored`].
    Scrub { begin: bool },
    /// At which feature level the cluster is, and which ones its nodes support; with `finalize` it is raised to the newest
    /// that all of them can. Also for a node that is alone. Answers [`Upgrade`].
    Upgrade { finalize: bool },
    /// Partitions of a topic are wanted in another shard; what follows goes on by itself. Also for a node that is alone
    /// and has several shards. Answers [`Moves`].
    MovePartitions { topic: String, partitions: Vec<u32>, to_shard: u32 },
    /// Those of them that move are wanted where they are, unless it is too late. Answers [`Moves`].
    CancelMoves { topic: String, partitions: Vec<u32> },
    /// Which partitions move, and where those of a topic are. Answers [`Moves`].
    Moves { topic: Option<String> },
    /// Which nodes have which shard, and which are to have it. Answers [`Placements`].
    Placements {},
    /// A shard is wanted on these nodes, and stays there while they are in the cluster; without nodes the cluster places it
    /// again. Answers [`Placements`].
    PlaceShard { shard: u32, nodes: Vec<u64> },
    /// The cluster places all shards again, also those that were put somewhere; with `dry_run` it only says where they would be.
    /// Answers [`Placements`].
    Balance { dry_run: bool },
    /// A step of a backup of the cluster, or of a node that is alone, from the node that is asked.
    Backup(Step),
}

/// It is decided; what follows from it is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Decided {
    pub node: u64,
    /// False where it was so before.
    pub changed: bool,
}

/// How a cluster stands, as one of its nodes sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    pub cluster: String,
    /// The node that answers.
    pub answered_by: u64,
    pub nodes: Vec<Node>,
    /// The catalog's first.
    pub shards: Vec<Shard>,
    /// What goes on by itself.
    pub under_way: Vec<String>,
    /// What an operator should look at.
    pub at_risk: Vec<String>,
    pub verdict: Verdict,
    /// Of the nodes that have said it.
    #[serde(default)]
    pub stored: Vec<Stored>,
    #[serde(default)]
    pub upgrade: Upgrade,
}

/// Partitions that move from one shard to another.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Moves {
    /// Of all topics.
    pub moving: Vec<Moving>,
    /// The shard of each partition of the topic that was asked about, from the first on.
    pub shards: Vec<u32>,
}

/// Where shards are, and where they are to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placements {
    /// Those with records.
    pub shards: Vec<Placement>,
    pub nodes: Vec<Load>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placement {
    pub shard: u32,
    /// Its voters now; empty: nobody who leads it has said so.
    pub nodes: Vec<u64>,
    /// The same once all is done.
    pub wanted: Vec<u64>,
    /// An operator has put it there.
    pub by_hand: bool,
}

/// How many of these shards a node has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Load {
    pub node: u64,
    pub shards: u64,
    /// The same once all is done.
    pub wanted: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moving {
    pub topic: String,
    pub partition: u32,
    pub from_shard: u32,
    pub to_shard: u32,
    pub state: MoveState,
    /// Of its records, deleted ones included, so many are in the other shard.
    pub copied: u64,
    pub of: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveState {
    Waits,
    Copies,
    /// It takes no appends for a moment.
    Frozen,
    /// The other shard has it, and is about to serve it.
    HandedOver,
    /// It is being given up.
    Cancelled,
}

/// At which feature level a cluster is, and what it could be raised to.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Upgrade {
    pub level: u16,
    /// The newest that all nodes support.
    pub possible: u16,
    pub nodes: Vec<Program>,
    /// Of each level that some node can and the cluster is not at, in words.
    pub brings: Vec<String>,
    /// Why the cluster cannot be raised to the newest of them, and what to do.
    pub in_the_way: Vec<String>,
    /// It was raised by this operation.
    pub raised: bool,
}

/// What a node runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    pub node: u64,
    /// With its version; null: it has not said.
    pub name: Option<String>,
    pub level_min: u16,
    pub level_max: u16,
    /// Whether it is connected to the node that answers, or is that one.
    pub live: bool,
}

/// What a node knows of what it has stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    pub node: u64,
    /// While it looks through it: so many bytes, of about so many.
    pub looked_at_bytes: Option<u64>,
    pub of_bytes: Option<u64>,
    /// When it had looked through everything; null: not since it was started.
    pub ended_ms: Option<i64>,
    /// What is damaged, by file and place.
    pub damaged: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub node: u64,
    /// Of its peer port.
    pub address: String,
    /// Where it is, as it was told when it was started; null: it was not.
    #[serde(default)]
    pub rack: Option<String>,
    pub standing: Standing,
    /// The node that takes its place.
    pub replaced_by: Option<u64>,
    /// Whether it is connected to the node that answers, or is that one.
    pub live: bool,
    /// Since when it is connected, or is not; null: since the node that answers was started, or that is not known.
    pub since_ms: Option<i64>,
    /// Why it is not connected.
    pub why: Option<String>,
    pub leads: u64,
    pub holds: u64,
}

/// What is wanted of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Active,
    /// It leads nothing.
    Drained,
    /// It gives up what it has.
    Leaving,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shard {
    pub shard: u32,
    /// Null: nobody says that it leads.
    pub leader: Option<u64>,
    pub voters: Vec<u64>,
    /// They have the log, or are sent it, and do not vote.
    pub learners: Vec<u64>,
    /// A change of voters has begun.
    pub changing: bool,
    /// Of the members that its leader knows to lack something.
    pub lags: Vec<Lag>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lag {
    pub node: u64,
    /// Of the log.
    pub entries: u64,
    /// While it is sent a snapshot: so many bytes of it it has; 0 of 0 until it has said.
    pub snapshot_bytes: Option<u64>,
    pub snapshot_of_bytes: Option<u64>,
}

/// Whether the cluster could go on without any one of its nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub can_lose_a_node: bool,
    pub text: String,
}
