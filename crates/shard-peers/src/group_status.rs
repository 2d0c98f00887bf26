//! State of a shard's group, as reported between nodes.

use std::collections::BTreeMap;

use base::ShardId;
use consensus::Members;
use serde::{Deserialize, Serialize};
use shard::LocalShard;

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

impl GroupStatus {
    /// Returns the state of the shard's group as seen by this node.
    pub fn of(shard: &LocalShard) -> Self {
        let group = &shard.consensus;
        let catching_up = group.catching_up();
        let lags = group.lags().into_iter().map(|(node, entries)| {
            let snapshot = catching_up.get(&node).map(|it| (it.bytes, it.of_bytes));
            MemberLag { node, entries, snapshot }
        });
        let lags = if shard.is_led_here() { lags.collect() } else { Vec::new() };
        let Members { voters, learners } = shard.members();
        Self {
            shard: shard.id(),
            leader: shard.leader(),
            term: shard.term(),
            voters,
            learners,
            is_changing: group.is_changing_voters(),
            lags,
        }
    }
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
