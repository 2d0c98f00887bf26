//! Reports of other nodes on the groups that they lead.

use base::ShardId;
use consensus::ReportedLeader;

/// A shard's group, as reported by its leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedGroup {
    pub shard: ShardId,
    /// Term of the leader.
    pub term: u64,
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
}

impl ReportedGroup {
    pub fn has(&self, node: u64) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }
}

/// The newest report on a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewestReport {
    /// The reporting node: the leader of the term.
    pub by: u64,
    pub group: ReportedGroup,
    /// Whether that node is connected, or was a moment ago.
    pub counts: bool,
}

impl NewestReport {
    pub fn leader(&self) -> Option<ReportedLeader> {
        self.counts.then_some(ReportedLeader { node: self.by, term: self.group.term })
    }
}
