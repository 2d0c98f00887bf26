//! Committed offsets of groups, and their stored members.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{PartitionId, ShardId};
use futures_util::future::try_join_all;
use machine::{Command, CommitOffset, CommittedOffset, Group, Outcome, Refusal};
use shard::LocalShard;
use shard::error::{ExecuteError, Unavailable};
use shard::request::Request;
use shard_peers::shard_query::{
    GroupFacts, OffsetAges, ShardQuery, ShardQueryReply, TOLD_AT_ONCE_MAX, after,
};
use tokio::sync::oneshot;

use super::ShardClient;
use super::remote_query::RemoteQuery;
use crate::routing::HomeTerm;

/// Returns names of a shard's groups with committed offsets after this one, sorted, up to a maximum number.
fn names_after(shard: &LocalShard, name: &str, groups_max: usize) -> Vec<String> {
    let rows = shard.shard.rows();
    rows.groups_after(name).take(groups_max).map(|(name, _)| name.to_owned()).collect()
}

fn first(names: impl Iterator<Item = String>, max: usize) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.truncate(max);
    names
}

impl ShardClient<'_> {
    /// Returns which of these groups have committed offsets.
    pub async fn have_offsets(&self, groups: &[impl AsRef<str>]) -> Result<Vec<bool>, Unavailable> {
        let facts = self.facts(groups, |_| (), |_| ()).await?;
        Ok(facts.into_iter().map(|facts| facts.is_some()).collect())
    }

    /// Whether a group has committed offsets.
    #[tasks::boxed]
    pub async fn has_offsets(&self, group: &str) -> Result<bool, Unavailable> {
        Ok(self.facts_of(group).await?.is_some())
    }

    /// Number of groups with committed offsets that this node coordinates.
    pub fn coordinated_group_count(&self) -> usize {
        self.led_here().map(|shard| shard.shard.rows().group_count()).sum()
    }

    pub async fn offset_group_count(&self) -> Result<usize, Unavailable> {
        let counts = self.broker.shards_with_rows().iter().map(async |shard| {
            self.is_current(shard).await?;
            if shard.has_rows() {
                return Ok(shard.shard.rows().group_count());
            }
            let part = |reply| match reply {
                ShardQueryReply::GroupCount(count) => usize::try_from(count).ok(),
                _ => None,
            };
            self.broker.query_leader_for(shard, &ShardQuery::GroupCount, part).await
        });
        Ok(try_join_all(counts).await?.into_iter().sum())
    }

    /// Returns names of groups with committed offsets after this one, sorted, up to a maximum number.
    pub async fn offset_groups_after(
        &self,
        name: &str,
        groups_max: usize,
    ) -> Result<Vec<String>, Unavailable> {
        let named = self.broker.shards_with_rows().iter().map(async |shard| {
            self.is_current(shard).await?;
            match shard.has_rows() {
                true => Ok(names_after(shard, name, groups_max)),
                false => self.names_elsewhere(shard, name, groups_max).await,
            }
        });
        let groups = try_join_all(named).await?.into_iter().flatten();
        Ok(first(groups, groups_max))
    }

    /// Returns the same for the groups that this node coordinates.
    pub fn coordinated_groups_after(&self, name: &str, groups_max: usize) -> Vec<String> {
        first(self.led_here().flat_map(|shard| names_after(shard, name, groups_max)), groups_max)
    }

    /// Number of offsets that a group has committed.
    pub async fn offset_count(&self, group: &str) -> Result<usize, Unavailable> {
        let facts = self.facts_of(group).await?;
        Ok(facts.map_or(0, |facts| usize::try_from(facts.offsets).unwrap_or(usize::MAX)))
    }

    /// Returns a group's committed offset in each of these partitions.
    pub async fn offsets(
        &self,
        group: &str,
        partitions: &[PartitionId],
    ) -> Result<Vec<Option<CommittedOffset>>, Unavailable> {
        let home = self.broker.home_of(group);
        self.is_current(home).await?;
        if home.has_rows() {
            let rows = home.shard.rows();
            let group = rows.group(group);
            return Ok(partitions.iter().map(|id| group?.offset(*id).cloned()).collect());
        }
        let mut found = Vec::with_capacity(partitions.len());
        for some in partitions.chunks(TOLD_AT_ONCE_MAX) {
            let part = |reply| match reply {
                ShardQueryReply::Offsets(reply) if reply.len() == some.len() => Some(reply),
                _ => None,
            };
            let query = ShardQuery::Offsets { group: group.to_owned(), partitions: some.to_vec() };
            found.extend(self.broker.query_leader_for(home, &query, part).await?);
        }
        Ok(found)
    }

    /// Returns a group's committed offsets in partitions after this one, sorted, up to a maximum number.
    pub async fn offsets_after(
        &self,
        group: &str,
        partition: Option<PartitionId>,
        offsets_max: usize,
    ) -> Result<Vec<(PartitionId, CommittedOffset)>, Unavailable> {
        let home = self.broker.home_of(group);
        self.is_current(home).await?;
        if home.has_rows() {
            let rows = home.shard.rows();
            let Some(group) = rows.group(group) else { return Ok(Vec::new()) };
            let found = after(group, partition).take(offsets_max);
            return Ok(found.map(|(id, committed)| (*id, committed.clone())).collect());
        }
        let mut found: Vec<(PartitionId, CommittedOffset)> = Vec::new();
        loop {
            let max = offsets_max.saturating_sub(found.len()).min(TOLD_AT_ONCE_MAX);
            let partition = found.last().map(|(id, _)| *id).or(partition);
            let query =
                ShardQuery::OffsetsAfter { group: group.to_owned(), partition, max: max as u32 };
            let part = |reply| match reply {
                ShardQueryReply::OffsetsAfter(reply) if reply.len() <= max => Some(reply),
                _ => None,
            };
            let reply = self.broker.query_leader_for(home, &query, part).await?;
            let is_all = reply.len() < max;
            found.extend(reply);
            if is_all || found.len() >= offsets_max {
                return Ok(found);
            }
        }
    }

    /// Returns the ages of each group's offsets.
    pub async fn offset_ages(
        &self,
        groups: &[impl AsRef<str>],
    ) -> Result<Vec<Option<OffsetAges>>, Unavailable> {
        self.facts(groups, OffsetAges::of, |facts| facts.ages).await
    }

    /// Shards whose groups this node coordinates.
    fn led_here(&self) -> impl Iterator<Item = &LocalShard> {
        let shards = self.broker.shards_with_rows().iter().map(|shard| &**shard);
        shards.filter(|shard| shard.is_led_here())
    }

    async fn facts_of(&self, group: &str) -> Result<Option<GroupFacts>, Unavailable> {
        let home = self.broker.home_of(group);
        self.is_current(home).await?;
        if home.has_rows() {
            return Ok(home.shard.rows().group(group).map(GroupFacts::of));
        }
        let part = |reply| match reply {
            ShardQueryReply::Groups(facts) if facts.len() == 1 => Some(facts[0]),
            _ => None,
        };
        self.broker.query_leader_for(home, &ShardQuery::Groups(vec![group.to_owned()]), part).await
    }

    /// Returns a fact about each of these groups that has committed offsets.
    async fn facts<T>(
        &self,
        groups: &[impl AsRef<str>],
        here: impl Fn(&Group) -> T,
        reply: impl Fn(GroupFacts) -> T,
    ) -> Result<Vec<Option<T>>, Unavailable> {
        let mut found: Vec<Option<T>> = Vec::with_capacity(groups.len());
        let mut remote_items: BTreeMap<ShardId, Vec<(usize, String)>> = BTreeMap::new();
        let homes = groups.iter().map(|group| self.broker.place_of_home(group.as_ref()));
        self.are_current(homes).await?;
        for (at, group) in groups.iter().enumerate() {
            let group: &str = AsRef::as_ref(group);
            let home = self.broker.home_of(group);
            if home.has_rows() {
                found.push(home.shard.rows().group(group).map(&here));
            } else {
                found.push(None);
                remote_items.entry(home.id()).or_default().push((at, group.to_owned()));
            }
        }
        if remote_items.is_empty() {
            return Ok(found);
        }
        let elsewhere = RemoteQuery {
            query: ShardQuery::Groups,
            reply: |reply| match reply {
                ShardQueryReply::Groups(facts) => Some(facts),
                _ => None,
            },
        };
        for (at, facts) in
            self.broker.query_lists(remote_items.into_iter().collect(), &elsewhere).await?
        {
            found[at] = facts.map(&reply);
        }
        Ok(found)
    }

    async fn names_elsewhere(
        &self,
        shard: &LocalShard,
        name: &str,
        groups_max: usize,
    ) -> Result<Vec<String>, Unavailable> {
        let mut found: Vec<String> = Vec::new();
        loop {
            let max = groups_max.saturating_sub(found.len()).min(TOLD_AT_ONCE_MAX);
            let name = found.last().map_or(name, |last| last).to_owned();
            let part = |reply| match reply {
                ShardQueryReply::GroupNames(reply) if reply.len() <= max => Some(reply),
                _ => None,
            };
            let query = ShardQuery::GroupsAfter { name, max: max as u32 };
            let reply = self.broker.query_leader_for(shard, &query, part).await?;
            let is_all = reply.len() < max;
            found.extend(reply);
            if is_all || found.len() >= groups_max {
                return Ok(found);
            }
        }
    }

    /// Commits offsets of a group, which is created if missing. Returns the rejected ones.
    pub async fn commit_offsets(
        &self,
        group: &str,
        mut offsets: Vec<CommitOffset>,
    ) -> Result<Vec<(PartitionId, Refusal)>, ExecuteError> {
        // Only the catalog knows which partitions exist.
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

    /// Deletes a group's offsets. Partitions without a committed offset are skipped.
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

    /// Executes a command of a group on its coordinator only, which alone knows the members and their rights. If
    /// another node coordinates the group by now, a change that was allowed here must not be forwarded.
    async fn execute_at_home(
        &self,
        group: &str,
        command: Command,
    ) -> Result<Outcome, ExecuteError> {
        self.broker.home_of(group).execute(command).await
    }

    /// Returns the stored members of all groups that are coordinated in this term. The bytes are shared with the
    /// shard's state.
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

    /// Stores the members of each group, in place of the former ones; empty bytes remove them. Rejected in any term
    /// but that of their coordinator.
    pub async fn keep_members(
        &self,
        home: HomeTerm,
        groups: Vec<(String, Vec<u8>)>,
    ) -> Result<(), ExecuteError> {
        let term = (!self.broker.is_alone()).then_some(home.term);
        for groups in self.by_home(groups, |(group, _)| group) {
            let shard = self.broker.home_of(&groups[0].0);
            let (reply, answer) = oneshot::channel();
            shard.request(Request::KeepMembers { term, groups, reply })?;
            answer.await.unwrap_or(Err(Unavailable::Stopping.into()))?;
        }
        Ok(())
    }

    /// Splits items of groups by the home shards of the groups.
    fn by_home<T>(&self, all: Vec<T>, group: impl Fn(&T) -> &str) -> impl Iterator<Item = Vec<T>> {
        let mut of_shards: BTreeMap<ShardId, Vec<T>> = BTreeMap::new();
        for one in all {
            of_shards.entry(self.broker.home_of(group(&one)).id()).or_default().push(one);
        }
        of_shards.into_values()
    }

    /// Deletes expired offsets of `groups`, which have been idle since before `before_ms`: those committed before it,
    /// and those whose own retention has ended. Returns their number.
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
