//! The groups of the shards, as those see and change them who decide which node is in which.

use std::collections::BTreeSet;
use std::time::Duration;

use base::ShardId;
use consensus::{ChangeError, Members, TransferError};
use tokio::time::timeout;

use crate::broker::Broker;
use crate::error::Unavailable;
use crate::group_status::GroupStatus;
use crate::local_shard::LocalShard;
use crate::stored_status::StoredStatus;

/// Why a group is not as it was asked to be. It may be half done, and can be asked for again.
#[derive(Debug, thiserror::Error)]
pub enum GroupChangeError {
    #[error("there is no {0} here")]
    NoShard(ShardId),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    Unknown(#[from] consensus::ProposeError),
    #[error("it is not done after {} seconds; it is tried again", .0.as_secs())]
    TooLate(Duration),
}

impl Broker {
    /// How the groups of this node's shards stand, the catalog's first.
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.local_shards().iter().map(|shard| shard.group_status()).collect()
    }

    /// The same as another node sees it.
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

    /// Looks through everything that is stored now, unless that is under way already: then `false`.
    pub fn scrub(&self) -> bool {
        self.scrubbing().begin()
    }

    /// What is known of what this node has stored.
    pub fn stored(&self) -> StoredStatus {
        self.scrubbing().stored(self.local_shards().iter().cloned())
    }

    /// The same of another node.
    pub async fn stored_at(
        &self,
        node: u32,
        within: Duration,
    ) -> Result<StoredStatus, Unavailable> {
        match self.peers().remote() {
            Some(remote) => remote.stored(node, within).await,
            None => Err(Unavailable::NotLeader),
        }
    }

    /// Makes these the members of a shard's group, which this node leads; `within` bounds how long it waits for those
    /// that are to vote to have the log. The change is made only while the members are the ones that it was decided
    /// for.
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

    /// Hands the leadership of a shard over, which this node has.
    pub async fn hand_shard_over(&self, shard: ShardId, to: u64) -> Result<(), GroupChangeError> {
        Ok(self.local_shard(shard)?.consensus.transfer_leadership(to).await?)
    }

    /// Nodes that are in some group as no later leader can take back; in a group that has none yet: all.
    pub async fn committed_members(&self) -> Result<BTreeSet<u64>, GroupChangeError> {
        let mut nodes = BTreeSet::new();
        for shard in self.local_shards() {
            let Members { voters, learners } = shard.consensus.committed_members().await?;
            nodes.extend(voters.into_keys().chain(learners.into_keys()));
        }
        Ok(nodes)
    }

    fn local_shard(&self, shard: ShardId) -> Result<&LocalShard, GroupChangeError> {
        let found = self.local_shards().iter().find(|local| local.id() == shard);
        found.map(|local| &**local).ok_or(GroupChangeError::NoShard(shard))
    }
}
