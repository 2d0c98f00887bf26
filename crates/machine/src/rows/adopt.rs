//! Applies changes of the catalog to a shard's rows. Each is idempotent.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::limits::PARTITIONS_PER_TOPIC_MAX;
use base::{LeaseGroupId, Offset, PartitionId, SharedRows, Stripe, TopicId};

use super::Rows;
use super::lease_group::GroupRows;
use super::partition::Partition;
use super::progress::Progress;
use super::topic::TopicRows;
use crate::command::{AdoptedGroup, AdoptedTopic, Adoption};
use crate::group_ids::GroupIds;
use crate::outcome::{ALL_PARTITIONS, EntryEffects, Refusal};

impl Rows {
    /// Adopts changes of the catalog.
    pub(crate) fn adopt(
        &mut self,
        adoption: &Adoption,
        applied: &mut EntryEffects,
    ) -> Result<(), Refusal> {
        if adoption.from != self.adopted || adoption.to < adoption.from {
            return Err(Refusal::AdoptionConflict {
                version: self.adopted,
                expected: adoption.from,
            });
        }
        for AdoptedTopic { topic, first, step, partitions, .. } in &adoption.topics {
            let (requested, at_most) = (*partitions, PARTITIONS_PER_TOPIC_MAX);
            if Stripe::new(*first, *step).is_none() {
                return Err(Refusal::UnknownTopic { topic: *topic });
            }
            if requested > at_most {
                return Err(Refusal::InvalidPartitionCount { requested, at_least: 1, at_most });
            }
        }
        if adoption.all {
            self.drop_all_but(adoption, applied);
        }
        for &group in &adoption.groups_gone {
            self.drop_lease_group(group, applied);
        }
        for &topic in &adoption.topics_gone {
            self.drop_topic(topic, applied);
        }
        for adopted in &adoption.topics {
            let id = adopted.topic;
            let Some(stripe) = Stripe::new(adopted.first, adopted.step) else { continue };
            self.adopt_topic(id, stripe, adopted.partitions, adopted.deletes_settled);
            self.grow_topic(id, adopted.partitions, applied);
            if self.set_deletes_settled(id, adopted.deletes_settled) {
                self.delete_settled_of_topic(id, applied);
            }
        }
        for AdoptedGroup { group, topic, starts } in &adoption.groups {
            if !self.lease_groups.contains_key(group) {
                self.adopt_lease_group(*group, *topic, starts, applied);
                applied.moved.push((*group, ALL_PARTITIONS));
            }
        }
        self.adopted = adoption.to;
        Ok(())
    }

    fn drop_all_but(&mut self, adoption: &Adoption, applied: &mut EntryEffects) {
        let topics: BTreeSet<TopicId> = adoption.topics.iter().map(|it| it.topic).collect();
        let groups: BTreeSet<LeaseGroupId> = adoption.groups.iter().map(|it| it.group).collect();
        let gone = self.lease_groups.keys().filter(|id| !groups.contains(id));
        for group in gone.copied().collect::<Vec<_>>() {
            self.drop_lease_group(group, applied);
        }
        // The adoption may be older than a move that has begun: such topics are checked one by one.
        let gone =
            self.topics.iter().filter(|(id, topic)| !topics.contains(id) && topic.moves.is_none());
        for topic in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.drop_topic(topic, applied);
        }
    }

    /// Removes from an adoption the deletions of topics and groups that this shard does not have.
    pub fn without_unknown(&self, mut adoption: Adoption) -> Adoption {
        adoption.topics_gone.retain(|id| self.topics.contains_key(id) || self.offsets.knows(*id));
        adoption.groups_gone.retain(|id| self.lease_groups.contains_key(id));
        adoption
    }

    /// Creates a topic of this many partitions, of which the shard owns those in `stripe`.
    pub(crate) fn adopt_topic(
        &mut self,
        id: TopicId,
        stripe: Stripe,
        partitions: u32,
        deletes_settled: bool,
    ) {
        match self.topics.get_mut(&id) {
            // Until now it had only partitions of other shards.
            Some(topic) if topic.stripe == Stripe::NONE && stripe != Stripe::NONE => {
                let topic = Arc::make_mut(topic);
                (topic.stripe, topic.deletes_settled) = (stripe, deletes_settled);
                return;
            }
            Some(_) => return,
            None => {}
        }
        let rows = vec![Partition::default(); stripe.rows_of(partitions)];
        self.insert_topic(id, stripe, rows.into(), deletes_settled);
    }

    pub(crate) fn insert_topic(
        &mut self,
        id: TopicId,
        stripe: Stripe,
        partitions: SharedRows<Partition>,
        deletes_settled: bool,
    ) {
        let groups = GroupIds::default();
        let topic = TopicRows { id, stripe, partitions, groups, deletes_settled, moves: None };
        self.topics.insert(id, Arc::new(topic));
    }

    /// Sets the topic's number of partitions in all shards together.
    pub(crate) fn grow_topic(&mut self, id: TopicId, partitions: u32, applied: &mut EntryEffects) {
        let Some(found) = self.topic(id) else { return };
        let rows = found.stripe.rows_of(partitions);
        if rows <= found.row_count() {
            return;
        }
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let topic = Arc::make_mut(topic);
        topic.partitions.grow(rows, &Partition::default());
        for group in topic.groups.as_slice() {
            if let Some(group) = self.lease_groups.get_mut(group) {
                Arc::make_mut(group).progress.grow(rows, &Progress::default());
            }
        }
        self.note_groups_moved(id, applied);
    }

    /// Deletes the topic, with its lease groups and all offsets committed in it.
    pub(crate) fn drop_topic(&mut self, id: TopicId, applied: &mut EntryEffects) {
        self.offsets.forget_topic(id);
        self.record_ids.drop_topic(id);
        self.transactions.drop_topic(id);
        let Some(removed) = self.topics.remove(&id) else { return };
        self.moving.remove(&id);
        for &group in removed.groups() {
            self.lease_groups.remove(&group);
            applied.moved.push((group, ALL_PARTITIONS));
        }
        applied.removed.push((id, removed.partitions_end()));
    }

    /// Sets `retention.settled` of the topic. Returns whether it changed.
    pub(crate) fn set_deletes_settled(&mut self, id: TopicId, deletes_settled: bool) -> bool {
        if self.topic(id).is_none_or(|topic| topic.deletes_settled == deletes_settled) {
            return false;
        }
        if let Some(topic) = self.topics.get_mut(&id) {
            Arc::make_mut(topic).deletes_settled = deletes_settled;
        }
        true
    }

    /// Records the topic's lease groups as changed, for delivery.
    pub(crate) fn note_groups_moved(&self, id: TopicId, applied: &mut EntryEffects) {
        let groups = self.topic(id).map_or(&[][..], TopicRows::groups);
        applied.moved.extend(groups.iter().map(|&group| (group, ALL_PARTITIONS)));
    }

    /// Whether a group of a topic may begin at `starts`, one for each partition from the first on.
    pub(crate) fn check_starts(&self, id: TopicId, starts: &[Offset]) -> Result<(), Refusal> {
        let topic = self.topic(id).ok_or(Refusal::UnknownTopic { topic: id })?;
        if starts.len() > topic.partitions_end() as usize {
            let partition = PartitionId::new(id, topic.partitions_end());
            return Err(Refusal::UnknownPartition { partition });
        }
        for (partition, row) in topic.partitions() {
            let (start, end) = (row.log_start(), row.next_offset());
            if let Some(&offset) = starts.get(partition.index as usize)
                && offset > end
            {
                return Err(Refusal::OffsetOutOfRange { partition, offset, start, end });
            }
        }
        Ok(())
    }

    /// Creates a lease group. `starts` defaults to each partition's start.
    pub(crate) fn adopt_lease_group(
        &mut self,
        id: LeaseGroupId,
        topic: TopicId,
        starts: &[Offset],
        applied: &mut EntryEffects,
    ) {
        if self.lease_groups.contains_key(&id) {
            return;
        }
        let Some(found) = self.topic(topic) else { return };
        let progress: Vec<Progress> = found
            .stripe_rows()
            .map(|(partition, row)| {
                let (start, end) = (row.log_start(), row.next_offset());
                let offset = starts.get(partition.index as usize).copied().unwrap_or(start);
                Progress::at(offset.clamp(start, end))
            })
            .collect();
        self.insert_lease_group(id, topic, progress.into());
        // The first group of a topic decides alone which records are settled: all before its
        // starts.
        self.delete_settled_of_topic(topic, applied);
    }

    /// Adds a new group, with one progress for each row of its topic.
    pub(crate) fn insert_lease_group(
        &mut self,
        id: LeaseGroupId,
        topic: TopicId,
        progress: SharedRows<Progress>,
    ) {
        let Some(found) = self.topics.get_mut(&topic) else { return };
        let groups = &mut Arc::make_mut(found).groups;
        if let Err(at) = groups.as_slice().binary_search(&id) {
            groups.insert(at, id);
        }
        self.lease_groups.insert(id, Arc::new(GroupRows { topic, progress }));
    }

    pub(crate) fn drop_lease_group(&mut self, id: LeaseGroupId, applied: &mut EntryEffects) {
        let Some(removed) = self.lease_groups.remove(&id) else { return };
        if let Some(topic) = self.topics.get_mut(&removed.topic) {
            Arc::make_mut(topic).groups.remove(id);
        }
        applied.moved.push((id, ALL_PARTITIONS));
        // Records that only this group had not settled are now settled by all.
        self.delete_settled_of_topic(removed.topic, applied);
    }
}
