//! Replicas of partitions that another node leads, for clients that read from a near replica.
//!
//! A replica has the entries that are committed and applied here, none of which can be undone. It may lack those
//! committed a moment ago, and lags more the worse this node's connection to the leader. So a node decides whether
//! its replica is served, and a leader decides which followers it may redirect readers to. The leader's limit is the
//! stricter one, so that a redirected reader is not sent back at once.

use base::PartitionId;
use consensus::Role;
use links::NodeId;

use crate::broker::Broker;
use crate::leadership::leader_balance::connected_for;
use crate::limits::{COPY_BEHIND_ENTRIES_MAX, COPY_NEAR_ENTRIES_MAX};

impl Broker {
    /// Whether clients may read this node's replica of a partition that another node leads: it is connected to the
    /// leader, lags little, has a well disk, and is not drained.
    pub fn serves_copy(&self, partition: PartitionId) -> bool {
        let (Some(node), true) = (self.cluster(), self.disk_is_well()) else { return false };
        if node.rests(NodeId(self.node().into())) {
            return false;
        }
        let shard = self.shard_of(partition);
        let role = shard.role().map(|role| *role.borrow());
        let Some(Role::Follower { leader, .. }) = role else { return false };
        // A node outside the group may know a leader by gossip.
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
}
