//! How the group of a shard stands: what nodes tell one another of it.

use std::collections::BTreeMap;

use base::ShardId;
use serde::{Deserialize, Serialize};

/// How a shard's group stands, as one node sees it. Travels between nodes: what is added later needs a variant of its
/// own in what they ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    pub shard: ShardId,
    /// The node that leads, as far as this one knows.
    pub leader: Option<u32>,
    /// The term in which it does.
    pub term: u64,
    /// By the newest members in this node's log: committed, or about to be.
    pub voters: BTreeMap<u64, String>,
    pub learners: BTreeMap<u64, String>,
    /// Whether a change of voters has only begun.
    pub is_changing: bool,
    /// What the other members lack; known to the leader, and empty elsewhere.
    pub lags: Vec<MemberLag>,
}

/// What a member of a group lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberLag {
    pub node: u64,
    /// Entries of the log.
    pub entries: u64,
    /// While it is sent a snapshot: how many bytes of it it has, and of how many; 0 of 0 until it has said.
    pub snapshot: Option<(u64, u64)>,
}
