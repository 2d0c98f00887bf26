//! The rows of a shard: partitions, their producers, the progress of lease groups, and committed
//! offsets. The catalog ([`crate::catalog`]) has names and configurations. Rows refer to topics and
//! groups by number, and have only `retention.settled` of their configuration.
//!
//! * [`topic`], [`partition`], [`producer`]: positions of batches
//! * [`lease_group`], [`progress`]: settled records
//! * [`group`], `offset_groups`: committed offsets; `memberships`: members of groups
//! * [`channels`]: messages to and from other shards
//! * `adopt`: adopts changes of the catalog
//! * [`record_ids`]: ids of records, for deduplication
//! * [`requests`]: rows brought by other nodes
//! * [`transactions`]: transactions of Kafka's producers
//! * [`moves`]: partitions that move between shards; `arrival_moves`: their stays
//! * `settle`: settling and seeking
//! * `retention`: deleting

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId, SharedMap, TopicId};

use crate::command::{CommitOffset, EndedPart};
use crate::entry::{Append, BatchKind};
use crate::group_name::validate_group_name;
use crate::outcome::{AppendOutcome, Outcome, Refusal};
use channels::Channels;
use group::{Group, validate_commit};
use lease_group::GroupRows;
use memberships::Memberships;
use offset_groups::OffsetGroups;
use partition::Partition;
use progress::Progress;
use record_ids::RecordIds;
use requests::Requests;
use topic::TopicRows;
use transactions::Transactions;

mod adopt;
mod arrival_moves;
pub mod channels;
pub mod group;
pub mod lease_group;
pub(crate) mod memberships;
pub mod moves;
mod offset_groups;
pub mod partition;
pub mod producer;
pub mod progress;
pub mod record_ids;
pub mod requests;
mod retention;
mod settle;
pub mod topic;
pub mod transactions;

pub use arrival_moves::ArrivalMoves;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rows {
    pub(crate) topics: SharedMap<TopicId, Arc<TopicRows>>,
    pub(crate) lease_groups: SharedMap<LeaseGroupId, Arc<GroupRows>>,
    pub(crate) offsets: OffsetGroups,
    pub(crate) memberships: Memberships,
    pub(crate) channels: Channels,
    pub(crate) requests: Requests,
    pub(crate) record_ids: RecordIds,
    pub(crate) transactions: Transactions,
    /// See [`Rows::adopted`].
    pub(crate) adopted: u64,
    /// Topics with moves in this shard, also past ones.
    pub(crate) moving: BTreeSet<TopicId>,
}

// ------------------------------------------------------------------------------------- queries

impl Rows {
    pub fn topic(&self, topic: TopicId) -> Option<&TopicRows> {
        self.topics.get(&topic).map(Arc::as_ref)
    }

    /// The topic's current state, shared: a long read holds no lock.
    pub fn shared_topic(&self, topic: TopicId) -> Option<Arc<TopicRows>> {
        self.topics.get(&topic).map(Arc::clone)
    }

    /// Sorted by number. Channels are not among them.
    pub fn topics(&self) -> impl Iterator<Item = &TopicRows> {
        self.topics.values().map(Arc::as_ref)
    }

    /// Whether any partition moved to or from this shard, or is moving.
    pub fn has_moves(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Also accepts channels to other shards, which always exist.
    pub fn partition(&self, partition: PartitionId) -> Option<&Partition> {
        if let Some(to) = partition.as_channel() {
            return self.channels.partition(to);
        }
        self.topics.get(&partition.topic)?.partition(partition.index)
    }

    pub fn lease_group(&self, group: LeaseGroupId) -> Option<&GroupRows> {
        self.lease_groups.get(&group).map(Arc::as_ref)
    }

    /// The group's current state, shared: a long read holds no lock.
    pub fn shared_lease_group(&self, group: LeaseGroupId) -> Option<Arc<GroupRows>> {
        self.lease_groups.get(&group).map(Arc::clone)
    }

    /// A lease group's progress in a partition.
    pub fn progress(&self, group: LeaseGroupId, partition: u32) -> Option<&Progress> {
        let found = self.lease_group(group)?;
        let row = self.topic(found.topic)?.stripe.row(partition)?;
        found.progress.get(row)
    }

    /// Groups with progress here, ascending.
    pub fn lease_group_ids(&self) -> impl Iterator<Item = LeaseGroupId> {
        self.lease_groups.keys().copied()
    }

    /// Messages to and from other shards.
    pub fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Rows brought by other nodes.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Ids of records in topics with `dedup.window.ms`.
    pub fn record_ids(&self) -> &RecordIds {
        &self.record_ids
    }

    /// The version of the catalog that these rows have adopted.
    pub fn adopted(&self) -> u64 {
        self.adopted
    }

    /// Committed offsets.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.offsets.get(name)
    }

    /// Groups with committed offsets here, sorted by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.offsets.iter()
    }

    /// Groups after this name, sorted: for paged listings.
    pub fn groups_after(&self, name: &str) -> impl Iterator<Item = (&str, &Group)> {
        self.offsets.after(name)
    }

    pub fn group_count(&self) -> usize {
        self.offsets.len()
    }

    /// The stored members of groups, sorted by name.
    pub fn memberships(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<[u8]>)> {
        self.memberships.by_group.iter()
    }
}

// ------------------------------------------------------------------------- batches and producers

impl Rows {
    /// `ending`: the end of a transaction that the append's unit has.
    pub(crate) fn append(
        &mut self,
        append: &Append,
        ending: Option<&EndedPart>,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> AppendOutcome {
        if let Some(to) = append.partition.as_channel() {
            return self.channels.append(to, append, leader_epoch, now_ms);
        }
        let id = append.partition;
        if self.is_frozen(id) || self.gone_to(id).is_some() {
            return AppendOutcome::Moving;
        }
        let leader_epoch = leader_epoch.map(|term| term.saturating_add(self.epoch_base(id)));
        if let Err(refused) = self.check_kind(append, ending) {
            return refused;
        }
        let outcome = match self.partition_mut(id) {
            Ok(partition) => partition.append(append, leader_epoch, now_ms),
            Err(_) => return AppendOutcome::UnknownPartition,
        };
        if append.kind != BatchKind::Plain && matches!(outcome, AppendOutcome::Taken { .. }) {
            self.note_kind(append);
        }
        outcome
    }

    pub(crate) fn note_compacted(&mut self, id: PartitionId, up_to: Offset) -> Result<(), Refusal> {
        self.partition_mut(id)?.note_compacted(up_to);
        Ok(())
    }

    /// Removes idle producers and returns their number. Copies only changed chunks shared with an
    /// image.
    pub(crate) fn expire_producers(&mut self, before_ms: i64) -> u64 {
        let mut silent = Vec::new();
        for topic in self.topics.values() {
            let with_some = topic.partitions().filter(|(_, it)| it.has_producers_before(before_ms));
            silent.extend(with_some.map(|(id, _)| id));
        }
        let mut expired = 0;
        for id in silent {
            let open = self.transactions.partition(id).cloned();
            let is_open = |producer| open.as_ref().is_some_and(|it| it.has_open(producer));
            if let Ok(partition) = self.partition_mut(id) {
                expired += partition.expire_producers(before_ms, is_open);
            }
        }
        expired + self.transactions.participations.expire(before_ms)
    }

    /// For partitions of topics only.
    fn partition_mut(&mut self, partition: PartitionId) -> Result<&mut Partition, Refusal> {
        self.topics
            .get_mut(&partition.topic)
            .filter(|topic| topic.partition(partition.index).is_some())
            .and_then(|topic| Arc::make_mut(topic).row_mut(partition.index))
            .ok_or(Refusal::UnknownPartition { partition })
    }

    fn lease_group_mut(&mut self, group: LeaseGroupId) -> Result<&mut GroupRows, Refusal> {
        let found = self.lease_groups.get_mut(&group).map(Arc::make_mut);
        found.ok_or(Refusal::UnknownLeaseGroup { group })
    }
}

// ----------------------------------------------------------------------------- committed offsets

impl Rows {
    /// `exists` returns whether there is such a partition, in any shard.
    pub(crate) fn commit(
        &mut self,
        name: &str,
        offsets: &[CommitOffset],
        now_ms: i64,
        exists: impl Fn(PartitionId) -> bool,
    ) -> Result<Outcome, Refusal> {
        validate_group_name(name)?;
        let mut refused = Vec::new();
        for commit in offsets {
            let partition = commit.partition;
            let committed = match exists(partition) {
                true => validate_commit(commit).and_then(|()| {
                    let pending = self.transactions.participations.pending_bytes();
                    self.offsets.commit(name, commit, pending, now_ms)
                }),
                false => Err(Refusal::UnknownPartition { partition }),
            };
            if let Err(refusal) = committed {
                refused.push((partition, refusal));
            }
        }
        Ok(Outcome::Committed { refused })
    }

    pub(crate) fn delete_offsets(
        &mut self,
        name: &str,
        partitions: &[PartitionId],
    ) -> Result<(), Refusal> {
        let were_pending =
            self.transactions.participations.forget_offsets(name, partitions.iter().copied());
        match self.offsets.delete_offsets(name, partitions) || were_pending {
            true => Ok(()),
            false => Err(Refusal::UnknownGroup { group: name.to_owned() }),
        }
    }

    pub(crate) fn delete_group(&mut self, name: &str) -> Result<(), Refusal> {
        let was_pending = self.transactions.participations.forget_group(name);
        match self.offsets.remove(name) || was_pending {
            true => Ok(()),
            false => Err(Refusal::UnknownGroup { group: name.to_owned() }),
        }
    }

    pub(crate) fn expire_offsets(&mut self, groups: &[String], now_ms: i64, before_ms: i64) -> u64 {
        groups.iter().map(|group| self.offsets.expire(group, now_ms, before_ms)).sum()
    }
}
