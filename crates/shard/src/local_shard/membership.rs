//! This node's role in a shard's group, and the group's members.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use base::limits::REPLICAS;
use base::{Level, ShardId};
use consensus::{Floor, LogEnd, Members};
use journal::DiskRoom;
use links::NodeId;
use tokio::sync::watch;
use world::Disk;

use super::{LocalShard, NewestReport, RemovedReplica, ReplicaFiles};
use crate::error::Unavailable;
use crate::limits::MAJORITY_AWAITED_FOR;
use crate::majority;

impl LocalShard {
    /// Returns the shard's leader, as far as this node knows. A node that is alone leads also between two terms.
    pub fn leader(&self) -> Option<u32> {
        let Some(role) = &self.role else { return Some(self.node) };
        let role = *role.borrow();
        match role {
            consensus::Role::Leader { .. } => Some(self.node),
            role => role.other_leader().and_then(|leader| u32::try_from(leader).ok()),
        }
    }

    /// Whether this node rejects records until its disk has room.
    pub fn disk_is_full(&self) -> bool {
        matches!(self.journal().room(), DiskRoom::Full { .. })
    }

    /// The nodes that have the shard, ascending.
    pub fn replicas(&self) -> Vec<u32> {
        if self.role.is_none() {
            return vec![self.node];
        }
        let voters = self.members().voters.into_keys();
        voters.filter_map(|node| u32::try_from(node).ok()).collect()
    }

    /// Whether the shard has no other members, and never will.
    pub fn is_alone(&self) -> bool {
        self.role.is_none()
    }

    /// Whether this node leads the shard. A node that is alone leads also between two terms.
    pub fn is_led_here(&self) -> bool {
        let role = self.role.as_ref();
        role.is_none_or(|role| matches!(*role.borrow(), consensus::Role::Leader { .. }))
    }

    /// Returns the term in which this node leads the shard, once it has applied all entries committed before that
    /// term: only then does it have everything acknowledged, and may serve queries. A node that is alone always
    /// returns the same term, also between two elections.
    pub fn serves_in(&self) -> Option<u64> {
        let Some(role) = &self.role else { return Some(0) };
        let consensus::Role::Leader { term } = *role.borrow() else { return None };
        (self.consensus.term() == term).then_some(term)
    }

    /// Returns the term of the shard's leader, as far as this node knows.
    pub fn term(&self) -> u64 {
        let role = self.role.as_ref().map(|role| *role.borrow());
        match role {
            Some(consensus::Role::Leader { term } | consensus::Role::Follower { term, .. }) => term,
            _ => self.consensus.term(),
        }
    }

    /// This node's role in the shard's group; `None` where it is alone.
    pub fn role(&self) -> Option<watch::Receiver<consensus::Role>> {
        self.role.clone()
    }

    /// Stores the newest gossip on the group, in place of the previous one.
    pub fn set_gossip(&self, known: Option<NewestReport>) {
        self.consensus.set_reported_leader(known.as_ref().and_then(NewestReport::leader));
        self.newest_report.send_if_modified(|last| {
            let is_new = *last != known;
            *last = known;
            is_new
        });
    }

    /// Whether this node has the rows, or is about to have them: it is a member of the group by its own log, and no
    /// leader of a newer term denies it. A removed node may never get the entry that removes it.
    pub fn is_member(&self) -> bool {
        if self.role.is_none() || self.is_led_here() {
            return true;
        }
        if !self.consensus.has_member(self.node.into()) {
            return false;
        }
        let report = self.newest_report.borrow();
        let newer = report.as_ref().filter(|report| report.group.term >= self.term());
        newer.is_none_or(|report| report.group.has(self.node.into()))
    }

    /// Whether this node's own rows are read. Otherwise it is no member of the group, and the leader is queried.
    /// Below the level that permits this, every node is a member or about to be.
    pub fn has_rows(&self) -> bool {
        self.shard.level.now() < Level::REPLICAS || self.is_member()
    }

    /// Returns the members of the group: by this node's log, or by gossip if this node is no member.
    pub fn members(&self) -> Members {
        let own = self.consensus.members();
        if self.is_member() {
            return own;
        }
        let report = self.newest_report.borrow();
        let Some(NewestReport { group, .. }) = report.as_ref() else { return own };
        let known = self.cluster.iter().flat_map(|node| node.known());
        let addresses: BTreeMap<NodeId, String> = known.map(|it| (it.id, it.address)).collect();
        let named = |nodes: &[u64]| {
            let address = |node: &u64| addresses.get(&NodeId(*node)).cloned().unwrap_or_default();
            nodes.iter().map(|node| (*node, address(node))).collect()
        };
        Members { voters: named(&group.voters), learners: named(&group.learners) }
    }

    /// Whether this node is connected to a majority of the shard's voters, itself included.
    pub fn majority_is_connected(&self) -> bool {
        self.cluster.as_ref().is_none_or(|node| majority::is_connected(node, &self.members()))
    }

    /// Resolves after [`MAJORITY_AWAITED_FOR`], once no majority of the shard's voters is connected; never where the
    /// node is alone.
    pub async fn majority_is_absent(&self) {
        let Some(node) = &self.cluster else { return std::future::pending().await };
        majority::absent_after(node, MAJORITY_AWAITED_FOR, || self.members()).await;
    }

    /// Whether the shard is moving to other nodes: it has a learner, or too many voters.
    pub fn is_changing_replicas(&self) -> bool {
        let Members { voters, learners } = self.consensus.members();
        let has_rows = self.id() != ShardId::CATALOG && self.shard.level.now() >= Level::REPLICAS;
        has_rows && (!learners.is_empty() || voters.len() > REPLICAS)
    }

    /// For the shard's leader: the nodes that are members of the group, or may become members by a pending change.
    /// All others are no members any more, even if their own log still lists them.
    pub async fn members_now(&self) -> Result<BTreeSet<u64>, Unavailable> {
        self.read_index().await?;
        let failed = |error| Unavailable::from(&error);
        let committed = self.consensus.committed_members().await.map_err(failed)?;
        let newest = self.consensus.members();
        let all =
            [committed, newest].into_iter().flat_map(|it| it.voters.into_iter().chain(it.learners));
        Ok(all.map(|(node, _)| node).collect())
    }

    /// Whether this node has the log of a group in which it is no member any more, as far as it knows, and has not
    /// recorded the removal.
    pub fn has_unrecorded_removal(&self) -> bool {
        let last = self.journal().last_id().map(LogEnd::from);
        let is_recorded =
            |it: &RemovedReplica| it.files == ReplicaFiles::Marked && it.ended == last;
        !self.is_member()
            && last.is_some()
            && !self.removed.lock().as_ref().is_some_and(is_recorded)
    }

    /// Whether this node still has the files of a removed replica.
    pub fn has_former_files(&self) -> bool {
        let last = self.journal().last_id().map(LogEnd::from);
        let removed = self.removed.lock();
        !self.is_member()
            && removed
                .as_ref()
                .is_some_and(|it| it.files == ReplicaFiles::Marked && it.ended == last)
    }

    /// Records that the next start has to remove the files. Blocking.
    pub fn record_removal(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let floor = Floor::of(self.journal()).map_err(io::Error::other)?;
        let mut removed = self.removed.lock();
        let now = RemovedReplica::of(floor, *removed);
        now.write(disk, dir, self.id())?;
        *removed = Some(now);
        Ok(())
    }
}
