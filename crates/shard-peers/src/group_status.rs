//! State of a shard's group, as reported between nodes.

use std::collections::BTreeMap;

use base::ShardId;
use serde::{Deserialize, Serialize};

/// State of a shard's group as seen by one node. Travels between nodes: a later field needs a new variant of the
/// query.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    pub shard: ShardId,
    /// The leader, as far as this node knows.
    pub leader: Option<u32>,
    /// The leader's term.
    pub term: u64,
    /// By the newest members in this node's log: committed, or about to be.
    pub voters: BTreeMap<u64, String>,
    pub learners: BTreeMap<u64, String>,
    /// Whether a change of voters is in progress.
    pub is_changing: bool,
    /// Lag of the other members; known to the leader, and empty elsewhere.
    pub lags: Vec<MemberLag>,
}

/// Lag of a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberLag {
    pub node: u64,
    /// Log entries behind the leader.
    pub entries: u64,
    /// Progress of a snapshot being sent: bytes received and total; 0 of 0 until the first report.
    pub snapshot: Option<(u64, u64)>,
}
