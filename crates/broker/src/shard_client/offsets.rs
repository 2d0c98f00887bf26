//! Committed offsets of groups, and their stored members.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::{PartitionId, ShardId};
use machine::{Command, CommitOffset, CommittedOffset, Group, Outcome, Refusal};

use super::ShardClient;
use crate::error::{ExecuteError, Unavailable};
use crate::routing::HomeTerm;

/// How old the offsets of a group are. Both times are ms since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffsetAges {
    /// When the oldest was committed; `None` if there is none.
    pub oldest_commit_ms: Option<i64>,
    /// When the first one expires that was committed with a time of its own.
    pub next_expire_ms: Option<i64>,
}

impl OffsetAges {
    fn of(group: &Group) -> Self {
        let offsets = || group.offsets.values();
        Self {
            oldest_commit_ms: offsets().map(|committed| committed.commit_ms).min(),
            next_expire_ms: offsets().filter_map(|committed| committed.expire_ms).min(),
        }
    }
}

impl ShardClient<'_> {
    /// Which of these groups have committed offsets.
    pub async fn have_offsets(&self, groups: &[impl AsRef<str>]) -> Result<Vec<bool>, Unavailable> {
        let has = |group: &_| {
            let group: &str = AsRef::as_ref(group);
            self.home_of(group).group(group).is_some()
        };
        Ok(groups.iter().map(has).collect())
    }

    /// Whether a group has committed offsets.
    pub async fn has_offsets(&self, group: &str) -> Result<bool, Unavailable> {
        Ok(self.home_of(group).group(group).is_some())
    }

    pub async fn offset_group_count(&self) -> Result<usize, Unavailable> {
        Ok(self.each().map(|rows| rows.group_count()).sum())
    }

    /// Names of groups with committed offsets after this one, sorted, at most so many.
    pub async fn offset_groups_after(
        &self,
        name: &str,
        groups_max: usize,
    ) -> Result<Vec<String>, Unavailable> {
        let mut groups = Vec::new();
        for rows in self.each() {
            let some = rows.groups_after(name).take(groups_max);
            groups.extend(some.map(|(name, _)| name.to_owned()));
        }
        groups.sort_unstable();
        groups.truncate(groups_max);
        Ok(groups)
    }

    /// How many offsets a group has committed.
    pub async fn offset_count(&self, group: &str) -> Result<usize, Unavailable> {
        Ok(self.home_of(group).group(group).map_or(0, |group| group.offsets.len()))
    }

    /// What a group committed in each of these partitions.
    pub async fn offsets(
        &self,
        group: &str,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<CommittedOffset>>, Unavailable> {
        let rows = self.home_of(group);
        let group = rows.group(group);
        Ok(partitions.iter().map(|id| group?.offset(*id).cloned()).collect())
    }

    /// What a group committed in partitions after this one, sorted, at most so many.
    pub async fn offsets_after(
        &self,
        group: &str,
        partition: Option<PartitionId>,
        offsets_max: usize,
    ) -> Result<Vec<(PartitionId, CommittedOffset)>, Unavailable> {
        let rows = self.home_of(group);
        let Some(group) = rows.group(group) else { return Ok(Vec::new()) };
        let from = partition.map_or(Bound::Unbounded, Bound::Excluded);
        let after = group.offsets.range((from, Bound::Unbounded)).take(offsets_max);
        Ok(after.map(|(id, committed)| (*id, committed.clone())).collect())
    }

    /// How old the offsets of each of these groups are.
    pub async fn offset_ages(
        &self,
        groups: &[impl AsRef<str>],
    ) -> Result<Vec<Option<OffsetAges>>, Unavailable> {
        let ages = |group: &_| {
            let group: &str = AsRef::as_ref(group);
            self.home_of(group).group(group).map(OffsetAges::of)
        };
        Ok(groups.iter().map(ages).collect())
    }

    /// Commits offsets of a group, which is made if there is none. Answers those that were refused.
    pub async fn commit_offsets(
        &self,
        group: &str,
        mut offsets: Vec<CommitOffset>,
    ) -> Result<Vec<(PartitionId, Refusal)>, ExecuteError> {
        // Which partitions there are is the catalog's to say.
        let mut unknown = Vec::new();
        {
            let catalog = self.broker.catalog();
            offsets.retain(|&CommitOffset { partition, .. }| {
                let topic = catalog.topic(partition.topic);
                let exists = topic.is_some_and(|topic| topic.partition(partition.index).is_some());
                if !exists {
                    unknown.push((partition, Refusal::UnknownPartition { partition }));
                }
                exists
            });
        }
        let command = Command::CommitOffsets { group: group.to_owned(), offsets };
        let mut refused = match self.execute_at_home(group, command).await? {
            Outcome::Committed { refused } => refused,
            other => unreachable!("a commit is not answered with {other:?}"),
        };
        refused.append(&mut unknown);
        Ok(refused)
    }

    /// Partitions without a committed offset are passed over.
    pub async fn delete_offsets(
        &self,
        group: &str,
        partitions: Vec<PartitionId>,
    ) -> Result<(), ExecuteError> {
        let command = Command::DeleteOffsets { group: group.to_owned(), partitions };
        self.execute_at_home(group, command).await.map(drop)
    }

    /// Deletes all offsets of a group.
    pub async fn delete_offset_group(&self, group: &str) -> Result<(), ExecuteError> {
        let command = Command::DeleteGroup { group: group.to_owned() };
        self.execute_at_home(group, command).await.map(drop)
    }

    /// Only the node that coordinates the group changes its offsets: it alone knows the members, and whether one of
    /// them may. Where another node coordinates it by now, a change that was allowed here must not go there.
    async fn execute_at_home(
        &self,
        group: &str,
        command: Command,
    ) -> Result<Outcome, ExecuteError> {
        self.broker.home_of(group).execute(command).await
    }

    /// The stored members of all groups that are coordinated in this term. The bytes are shared with the shard's state.
    pub fn memberships(&self, home: HomeTerm) -> Vec<(Arc<str>, Arc<[u8]>)> {
        let shards = self.broker.shards_with_rows().iter();
        let homes = shards.filter(|shard| self.broker.is_alone() || shard.id() == home.shard);
        let mut kept = Vec::new();
        for shard in homes {
            let rows = shard.shard.rows();
            kept.extend(rows.memberships().map(|(group, it)| (Arc::clone(group), Arc::clone(it))));
        }
        kept
    }

    /// Stores the members of each group, in place of what was stored. No bytes: removes it.
    pub async fn keep_members(&self, groups: Vec<(String, Vec<u8>)>) -> Result<(), ExecuteError> {
        for groups in self.by_home(groups, |(group, _)| group) {
            let home = self.broker.home_of(&groups[0].0);
            home.execute(Command::KeepMembers { groups }).await?;
        }
        Ok(())
    }

    /// These, which are of groups, apart by the shards of the groups.
    fn by_home<T>(&self, all: Vec<T>, group: impl Fn(&T) -> &str) -> impl Iterator<Item = Vec<T>> {
        let mut of_shards: BTreeMap<ShardId, Vec<T>> = BTreeMap::new();
        for one in all {
            of_shards.entry(self.broker.home_of(group(&one)).id()).or_default().push(one);
        }
        of_shards.into_values()
    }

    /// In `groups`, which are known to have been idle since before `before_ms`, forgets offsets that
    /// were committed before it, and those whose own expiry has come. Answers how many.
    pub async fn expire_offsets(
        &self,
        groups: Vec<String>,
        before_ms: i64,
    ) -> Result<u64, ExecuteError> {
        let mut forgotten = 0;
        for groups in self.by_home(groups, |group| group) {
            let home = self.broker.home_of(&groups[0]);
            match home.execute(Command::ExpireOffsets { groups, before_ms }).await? {
                Outcome::Expired { count } => forgotten += count,
                other => unreachable!("an expiry is not answered with {other:?}"),
            }
        }
        Ok(forgotten)
    }
}
