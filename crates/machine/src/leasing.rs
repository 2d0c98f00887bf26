//! What commands do to lease groups, and what follows for the log: with `retention.settled`, what
//! every group of a topic has settled is deleted, from the start on (`trimmed`) and in between
//! (`punched`).

use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};

use crate::command::GroupSettle;
use crate::config::{LeaseGroupConfig, Overrides};
use crate::group::validate_group_name;
use crate::lease_group::{LeaseGroup, shared_name};
use crate::outcome::{ALL_PARTITIONS, Applied, Outcome, Refusal};
use crate::progress::Progress;
use crate::state::State;

// ------------------------------------------------------------------------------------- questions

impl State {
    pub fn lease_group(&self, group: LeaseGroupId) -> Option<&LeaseGroup> {
        self.lease_groups.get(group)
    }

    /// The group as it is now: who looks at all of a large one keeps nobody waiting meanwhile.
    pub fn shared_lease_group(&self, group: LeaseGroupId) -> Option<Arc<LeaseGroup>> {
        self.lease_groups.shared(group)
    }

    pub fn lease_group_named(&self, topic: TopicId, name: &str) -> Option<&LeaseGroup> {
        self.lease_groups.named(topic, name)
    }

    /// Groups of this name, one a topic, sorted by number.
    pub fn lease_groups_with_name(&self, name: &str) -> impl Iterator<Item = &LeaseGroup> {
        self.lease_groups.of_name(name)
    }

    /// Names of lease groups after this one, sorted: for those who look at all, some at a time.
    pub fn lease_group_names_after(&self, name: &str) -> impl Iterator<Item = &str> {
        self.lease_groups.names_after(name)
    }

    /// Sorted by name.
    pub fn lease_groups_of(&self, topic: TopicId) -> impl Iterator<Item = &LeaseGroup> {
        let ids = self.lease_groups.ids_of(topic);
        ids.iter().filter_map(|&id| self.lease_groups.get(id))
    }

    /// Sorted by number.
    pub fn lease_groups(&self) -> impl Iterator<Item = &LeaseGroup> {
        self.lease_groups.iter()
    }

    pub fn lease_group_count(&self) -> usize {
        self.lease_groups.len()
    }
}

// --------------------------------------------------------------------------------------- changes

impl State {
    pub(crate) fn create_lease_group(
        &mut self,
        topic: TopicId,
        name: &str,
        starts: &[Offset],
        overrides: &Overrides,
        now_ms: i64,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        validate_group_name(name)?;
        let of_topic = self.topics.get(&topic).ok_or(Refusal::UnknownTopic { topic })?;
        let config = LeaseGroupConfig::parse(overrides)?;
        if let Some(existing) = self.lease_groups.named(topic, name) {
            // Who asks again for what is there already is answered alike: a retry is no error.
            return if *existing.config == config {
                Ok(Outcome::LeaseGroup(existing.id))
            } else {
                Err(Refusal::LeaseGroupExists { group: existing.id, name: name.to_owned() })
            };
        }
        self.lease_groups.check_room(of_topic.partition_count())?;
        if starts.len() > of_topic.partitions.len() {
            let partition = PartitionId::new(topic, of_topic.partition_count());
            return Err(Refusal::UnknownPartition { partition });
        }
        let mut progress = Vec::with_capacity(of_topic.partitions.len());
        for (id, partition) in of_topic.partition_ids().zip(&of_topic.partitions) {
            let (start, end) = (partition.log_start(), partition.next_offset());
            let offset = starts.get(id.index as usize).copied().unwrap_or(start);
            if offset > end {
                return Err(Refusal::OffsetOutOfRange { partition: id, offset, start, end });
            }
            progress.push(Progress::at(offset.max(start)));
        }
        let (overrides, config) = self.lease_groups.configs.share(overrides, config);
        let id = LeaseGroupId(self.lease_groups.next);
        self.lease_groups.next += 1;
        self.lease_groups.insert(LeaseGroup {
            id,
            topic,
            name: shared_name(name),
            config,
            overrides,
            progress: progress.into(),
            paused: false,
            created_ms: now_ms,
        });
        // The first group of a topic decides alone what is settled: all before where it begins.
        self.delete_settled_of_topic(topic, applied);
        Ok(Outcome::LeaseGroup(id))
    }

    pub(crate) fn set_lease_group_config(
        &mut self,
        group: LeaseGroupId,
        overrides: &Overrides,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        let config = LeaseGroupConfig::parse(overrides)?;
        self.lease_groups.get_mut(group)?;
        let (overrides, config) = self.lease_groups.configs.share(overrides, config);
        let changed = self.lease_groups.get_mut(group)?;
        changed.config = config;
        changed.overrides = overrides;
        applied.moved.push((group, ALL_PARTITIONS));
        Ok(Outcome::Done)
    }

    pub(crate) fn delete_lease_group(
        &mut self,
        group: LeaseGroupId,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        let removed = self.lease_groups.remove(group)?;
        applied.moved.push((group, ALL_PARTITIONS));
        // What only this group had not settled is settled by all now.
        self.delete_settled_of_topic(removed.topic, applied);
        Ok(Outcome::Done)
    }

    pub(crate) fn pause_lease_group(
        &mut self,
        group: LeaseGroupId,
        paused: bool,
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        self.lease_groups.get_mut(group)?.paused = paused;
        applied.moved.push((group, ALL_PARTITIONS));
        Ok(Outcome::Done)
    }

    /// All of the starts, or none.
    pub(crate) fn seek_lease_group(
        &mut self,
        group: LeaseGroupId,
        starts: &[(u32, Offset)],
        applied: &mut Applied,
    ) -> Result<Outcome, Refusal> {
        let topic = self.lease_groups.get_mut(group)?.topic;
        let mut floors = Vec::with_capacity(starts.len());
        for &(index, offset) in starts {
            let id = PartitionId::new(topic, index);
            let unknown = Refusal::UnknownPartition { partition: id };
            let partition = self.partition(id).ok_or(unknown)?;
            let (start, end) = (partition.log_start(), partition.next_offset());
            if offset > end {
                return Err(Refusal::OffsetOutOfRange { partition: id, offset, start, end });
            }
            floors.push((index, offset.max(start)));
        }
        let sought = self.lease_groups.get_mut(group)?;
        for &(index, floor) in &floors {
            if let Some(progress) = sought.progress.get_mut(index as usize) {
                *progress = Progress::at(floor);
                applied.moved.push((group, index));
            }
        }
        if self.deletes_settled(topic) {
            for &(index, floor) in &floors {
                let partition = PartitionId::new(topic, index);
                self.delete_settled(partition, &[(0, floor)], applied);
            }
        }
        Ok(Outcome::Done)
    }

    pub(crate) fn settle(&mut self, settles: &[GroupSettle], applied: &mut Applied) {
        let mut fresh = Vec::new();
        for settle in settles {
            let Ok(group) = self.lease_groups.get_mut(settle.group) else { continue };
            let Some(topic) = self.topics.get(&group.topic) else { continue };
            let (Some(partition), Some(progress)) = (
                topic.partition(settle.partition),
                group.progress.get_mut(settle.partition as usize),
            ) else {
                continue;
            };
            let end = partition.next_offset();
            fresh.clear();
            for &(offset, count) in &settle.settled {
                let to = offset.saturating_add(count.into()).min(end);
                if progress.settle(offset, to) {
                    fresh.push((offset, to));
                }
            }
            for &(offset, count) in settle.attempts.iter().filter(|(offset, _)| *offset < end) {
                progress.note_attempts(offset, count);
            }
            if topic.config.retention_settled && !fresh.is_empty() {
                let partition = PartitionId::new(group.topic, settle.partition);
                self.delete_settled(partition, &fresh, applied);
            }
        }
    }

    /// Lifts the floors of a partition's lease groups to its start, which moved.
    pub(crate) fn lift_floors(
        &mut self,
        partition: PartitionId,
        start: Offset,
        applied: &mut Applied,
    ) {
        let mut at = 0;
        let mut joined = false;
        while let Some(&id) = self.lease_groups.ids_of(partition.topic).get(at) {
            at += 1;
            let Ok(group) = self.lease_groups.get_mut(id) else { continue };
            let Some(progress) = group.progress.get_mut(partition.index as usize) else { continue };
            if progress.raise_floor(start) {
                applied.moved.push((id, partition.index));
                joined |= progress.floor() > start;
            }
        }
        // A floor that met a settled range may have taken the lowest one further.
        if joined && self.deletes_settled(partition.topic) {
            self.delete_settled(partition, &[], applied);
        }
    }

    /// Deletes with a topic its lease groups.
    pub(crate) fn delete_lease_groups_of(&mut self, topic: TopicId, applied: &mut Applied) {
        let removed = self.lease_groups.remove_of(topic);
        applied.moved.extend(removed.into_iter().map(|id| (id, ALL_PARTITIONS)));
    }

    pub(crate) fn note_lease_groups_moved(&self, topic: TopicId, applied: &mut Applied) {
        let ids = self.lease_groups.ids_of(topic);
        applied.moved.extend(ids.iter().map(|&id| (id, ALL_PARTITIONS)));
    }

    fn deletes_settled(&self, topic: TopicId) -> bool {
        self.topic(topic).is_some_and(|topic| topic.config.retention_settled)
    }

    /// Deletes what all groups of a topic have settled, wherever it is, if that is its policy.
    pub(crate) fn delete_settled_of_topic(&mut self, topic: TopicId, applied: &mut Applied) {
        let Some(found) = self.topic(topic).filter(|found| found.config.retention_settled) else {
            return;
        };
        for partition in found.partition_ids() {
            self.delete_settled(partition, &[(0, Offset::MAX)], applied);
        }
    }

    /// Deletes what all groups of a topic have settled: below the lowest floor, and in what
    /// touches `ranges`.
    fn delete_settled(
        &mut self,
        id: PartitionId,
        ranges: &[(Offset, Offset)],
        applied: &mut Applied,
    ) {
        let Some(lowest) = self.lease_groups.lowest_floor(id.topic, id.index) else { return };
        let Ok(partition) = self.partition_mut(id) else { return };
        if partition.advance_start(lowest) {
            applied.trimmed.push((id, lowest));
        }
        for &(from, to) in ranges {
            let mut offset = from.max(lowest);
            while offset < to {
                match self.lease_groups.settled_by_all(id.topic, id.index, offset) {
                    Ok((begin, end)) => {
                        // Neighbours that were settled one by one are one range.
                        if applied.punched.last() != Some(&(id, begin, end)) {
                            applied.punched.push((id, begin, end));
                        }
                        offset = end;
                    }
                    Err(Some(next)) => offset = next,
                    Err(None) => break,
                }
            }
        }
    }
}
