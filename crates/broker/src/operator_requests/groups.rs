//! Queries and changes of the shards' groups, for the placement of replicas.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Level, ShardId};
use consensus::{ChangeError, Members, TransferError};
use futures_util::future::try_join_all;
use shard::LocalShard;
use shard::error::Unavailable;
use shard::local_shard::ReportedGroup;
use shard_peers::group_status::GroupStatus;
use tasks::Task;
use tokio::time::timeout;

use crate::broker::Broker;

/// Reason why a group was not changed as requested. The change may be half done, and can be requested again.
#[derive(Debug, thiserror::Error)]
pub enum GroupChangeError {
    #[error("there is no {0} here")]
    NoShard(ShardId),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The shard has no leader, or its leader does not reply.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Unknown(#[from] consensus::ProposeError),
    #[error("it is not done after {} seconds; it is tried again", .0.as_secs())]
    TooLate(Duration),
}

impl Broker {
    /// Returns the state of the groups of this node's shards, the catalog's first.
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.local_shards().iter().map(|shard| GroupStatus::of(shard)).collect()
    }

    /// Returns the groups led by this node, for gossip to the other nodes.
    pub fn led_groups(&self) -> Vec<ReportedGroup> {
        let led = self.local_shards().iter().filter_map(|shard| {
            let consensus::Role::Leader { term } = *shard.role()?.borrow() else { return None };
            let Members { voters, learners } = shard.consensus.members();
            let (voters, learners) = (voters.into_keys(), learners.into_keys());
            let (voters, learners) = (voters.collect(), learners.collect());
            Some(ReportedGroup { shard: shard.id(), term, voters, learners })
        });
        led.collect()
    }

    /// Returns the state of the groups as seen by another node.
    pub async fn groups_of(
        &self,
        node: u32,
        within: Duration,
    ) -> Result<Vec<GroupStatus>, Unavailable> {
        match self.peers().remote() {
            Some(remote) => remote.groups(node, within).await,
            None => Err(Unavailable::NotLeader),
        }
    }

    /// Changes the members of a shard's group, which this node leads; `within` bounds the wait for new voters to have
    /// the log. The change is made only if the members still equal `from`.
    pub async fn change_group(
        &self,
        shard: ShardId,
        from: &Members,
        to: Members,
        within: Duration,
    ) -> Result<(), GroupChangeError> {
        let group = &self.local_shard(shard)?.consensus;
        if group.members() != *from {
            return Err(ChangeError::UnderWay.into());
        }
        match timeout(within, group.change_members(to)).await {
            Ok(changed) => Ok(changed?),
            Err(_) => Err(GroupChangeError::TooLate(within)),
        }
    }

    /// Transfers the leadership of a shard from this node.
    pub async fn hand_shard_over(&self, shard: ShardId, to: u64) -> Result<(), GroupChangeError> {
        Ok(self.local_shard(shard)?.transfer_leadership(to).await?)
    }

    /// Returns the nodes that are committed members of some group; all nodes for a group without members yet. Where a
    /// node may be in no group, each shard's leader is queried.
    pub async fn committed_members(&self) -> Result<BTreeSet<u64>, GroupChangeError> {
        if self.level().now() >= Level::REPLICAS {
            let queries = self.local_shards().iter().map(|shard| self.members_now(shard));
            let members = try_join_all(queries).await?;
            return Ok(members.into_iter().flatten().collect());
        }
        let mut nodes = BTreeSet::new();
        for shard in self.local_shards() {
            let Members { voters, learners } = shard.consensus.committed_members().await?;
            nodes.extend(voters.into_keys().chain(learners.into_keys()));
        }
        Ok(nodes)
    }

    /// Returns the committed and pending members of a shard's group, from its leader.
    async fn members_now(&self, shard: &LocalShard) -> Result<BTreeSet<u64>, GroupChangeError> {
        if shard.is_led_here() {
            return Ok(shard.members_now().await?);
        }
        match (self.peers().remote(), shard.leader()) {
            (Some(remote), Some(leader)) => Ok(remote.members(leader, shard.id()).await?),
            _ => Err(Unavailable::NotLeader.into()),
        }
    }

    /// Removes this node's replicas of groups in which it is no member any more, as confirmed by their leaders: the
    /// next start removes the files. Returns the shards.
    pub async fn remove_former_replicas(&self) -> Vec<ShardId> {
        let mut removed = Vec::new();
        if self.level().now() < Level::REPLICAS {
            return removed;
        }
        // The catalog's shard is left out: a node that is removed from its group leaves the cluster.
        for shard in self.shards_with_rows().iter().filter(|shard| shard.has_unrecorded_removal()) {
            let here = u64::from(self.node());
            match self.members_now(shard).await {
                Ok(members) if members.contains(&here) => continue,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(shard = %shard.id(), %error, "the members of the group are not known");
                    continue;
                }
            }
            let (world, dir) = self.data();
            let (disk, dir) = (Arc::clone(&world.disk), dir.to_owned());
            let (id, shard) = (shard.id(), Arc::clone(shard));
            let noting = move || shard.record_removal(&*disk, &dir);
            match world.workers.blocking(Task::NodeDirectory, noting).await {
                Ok(Ok(())) => removed.push(id),
                Ok(Err(error)) => {
                    tracing::warn!(shard = %id, %error, "it is not noted that the shard is given up")
                }
                Err(ended) => {
                    tracing::warn!(shard = %id, %ended, "it is not noted that the shard is given up")
                }
            }
        }
        removed
    }

    /// Returns the shards whose replica was removed and whose files are still there until the next start.
    pub fn removed_replicas(&self) -> Vec<ShardId> {
        let former = self.local_shards().iter().filter(|shard| shard.has_former_files());
        former.map(|shard| shard.id()).collect()
    }

    /// Receives the groups led by another node, in place of its previous report.
    pub fn receive_led_groups(&self, from_node: u64, groups: Vec<ReportedGroup>) {
        self.leader_gossip().receive(from_node, groups);
    }

    /// Whether this node is a member of the shard's group, so that it has the rows, or is about to.
    pub fn is_member(&self, shard: ShardId) -> bool {
        let found = self.local_shards().iter().find(|local| local.id() == shard);
        found.is_some_and(|local| local.is_member())
    }

    fn local_shard(&self, shard: ShardId) -> Result<&LocalShard, GroupChangeError> {
        let found = self.local_shards().iter().find(|local| local.id() == shard);
        found.map(|local| &**local).ok_or(GroupChangeError::NoShard(shard))
    }
}
