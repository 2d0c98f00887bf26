//! The groups of the shards, as those see and change them who decide which node is in which.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::ShardId;
use consensus::{ChangeError, Members, TransferError};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::broker::Broker;
use crate::error::Unavailable;
use crate::local_shard::LocalShard;

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

pub(crate) fn status(local: &LocalShard) -> GroupStatus {
    let group = &local.consensus;
    let catching_up = group.catching_up();
    let lags = group.lags().into_iter().map(|(node, entries)| {
        let snapshot = catching_up.get(&node).map(|it| (it.bytes, it.of_bytes));
        MemberLag { node, entries, snapshot }
    });
    let lags = if local.is_led_here() { lags.collect() } else { Vec::new() };
    let Members { voters, learners } = group.members();
    GroupStatus {
        shard: local.id(),
        leader: local.leader(),
        term: local.term(),
        voters,
        learners,
        is_changing: group.is_changing_voters(),
        lags,
    }
}

impl Broker {
    /// How the groups of this node's shards stand, the catalog's first.
    pub fn groups(&self) -> Vec<GroupStatus> {
        self.local_shards().iter().map(|shard| status(shard)).collect()
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
