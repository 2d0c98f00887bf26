//! Copies of what another node leads, as far as they are good enough for somebody who reads near by.
//!
//! A copy has what is committed and applied here, and nothing that could be taken back. It may lack what was committed a
//! moment ago, and the more of it the worse this node hears the leader. So a node tells whether its copy is served, and a
//! leader which followers it may send readers to. The leader is the stricter of the two: whom it sends there is not sent
//! back at once.

use base::PartitionId;
use base::limits::{COPY_BEHIND_ENTRIES_MAX, COPY_NEAR_ENTRIES_MAX};
use consensus::Role;
use links::NodeId;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::leading::connected_for;

impl Broker {
    /// Whether somebody may read this node's copy of a partition that another node leads: it hears the leader, lacks
    /// little, has a disk that is well, and is not to be left alone.
    pub fn serves_copy(&self, partition: PartitionId) -> bool {
        let (Some(node), true) = (self.cluster(), self.disk_is_well()) else { return false };
        if node.rests(NodeId(self.node().into())) {
            return false;
        }
        let shard = self.shard_of(partition);
        let role = shard.role().map(|role| *role.borrow());
        let Some(Role::Follower { leader, .. }) = role else { return false };
        // Also of one that it was told of, though it is no member of the group.
        if !shard.is_member() {
            return false;
        }
        connected_for(node, leader).is_some() && shard.consensus.behind() <= COPY_BEHIND_ENTRIES_MAX
    }

    /// Whether another node votes in the shard of a partition that this one leads, and has nearly all of its log.
    pub fn has_near_copy(&self, partition: PartitionId, node: u32) -> bool {
        let Some(cluster) = self.cluster() else { return false };
        let id = NodeId(node.into());
        if cluster.rests(id) || connected_for(cluster, id.0).is_none() {
            return false;
        }
        let group = &self.shard_of(partition).consensus;
        group.has_voter(id.0) && group.lag_of(id.0).is_some_and(|lag| lag <= COPY_NEAR_ENTRIES_MAX)
    }

    /// Whether this node's disk is one to lead on, and to read from. Where it was given up it is unwell for a while.
    pub fn disk_is_well(&self) -> bool {
        self.disk_health().is_well(Instant::now())
    }

    /// Whether this node refuses records until its disk has room.
    pub fn disk_is_full(&self) -> bool {
        self.local_shards().iter().any(|shard| shard.disk_is_full())
    }

    /// Another node reports whether its disk is full.
    pub fn hear_of_disk(&self, node: u64, is_full: bool) {
        self.disk_health().hear(node, is_full);
    }

    /// Whether the leader of some shard refuses records until its disk has room, as far as this node knows.
    pub fn leader_disk_is_full(&self) -> bool {
        self.shards_with_rows().iter().any(|shard| match shard.leader() {
            Some(leader) if leader == self.node() => shard.disk_is_full(),
            Some(leader) => self.disk_health().is_full_elsewhere(leader.into()),
            None => false,
        })
    }
}
