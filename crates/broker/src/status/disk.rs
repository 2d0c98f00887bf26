//! Health of this node's disk, and the reports of other nodes on theirs.

use tokio::time::Instant;

use crate::broker::Broker;

impl Broker {
    /// Whether this node's disk is fit to lead on and to read from. After leadership was moved off the disk it counts
    /// as unwell for a while.
    pub fn disk_is_well(&self) -> bool {
        self.disk_health().is_well(Instant::now())
    }

    /// Whether this node rejects records until its disk has room.
    pub fn disk_is_full(&self) -> bool {
        self.local_shards().iter().any(|shard| shard.disk_is_full())
    }

    /// Notes the report of another node whether its disk is full.
    pub fn note_disk_report(&self, node: u64, is_full: bool) {
        self.disk_health().set_full(node, is_full);
    }

    /// Whether the leader of some shard rejects records until its disk has room, as far as this node knows.
    pub fn leader_disk_is_full(&self) -> bool {
        self.shards_with_rows().iter().any(|shard| match shard.leader() {
            Some(leader) if leader == self.node() => shard.disk_is_full(),
            Some(leader) => self.disk_health().is_full_elsewhere(leader.into()),
            None => false,
        })
    }
}
