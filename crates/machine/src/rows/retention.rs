//! Deletes records: on command ([`Rows::advance_start`]), and with `retention.settled` those that
//! every lease group of the topic has settled, from the start on (`trimmed`) and in between
//! (`punched`).

use base::{Offset, PartitionId, TopicId};

use super::Rows;
use super::progress::Progress;
use super::topic::TopicRows;
use crate::outcome::{EntryEffects, Refusal};

impl Rows {
    /// Returns the current start. A start below it is no error, as in Kafka.
    pub(crate) fn advance_start(
        &mut self,
        id: PartitionId,
        offset: Offset,
        applied: &mut EntryEffects,
    ) -> Result<Offset, Refusal> {
        let partition = self.partition_mut(id)?;
        let (start, end) = (partition.log_start(), partition.next_offset());
        if offset > end {
            return Err(Refusal::OffsetOutOfRange { partition: id, offset, start, end });
        }
        if partition.advance_start(offset) {
            applied.trimmed.push((id, offset));
            self.transactions.advance_start(id, offset);
            self.raise_floors(id, offset, applied);
        }
        Ok(self.partition_mut(id)?.log_start())
    }

    /// Raises the floors of a partition's lease groups to its moved start.
    fn raise_floors(&mut self, partition: PartitionId, start: Offset, applied: &mut EntryEffects) {
        let Some(topic) = self.topics.get(&partition.topic) else { return };
        let Some(row) = topic.stripe.row(partition.index) else { return };
        let mut joined = false;
        for &id in topic.groups() {
            let group = self.lease_groups.get_mut(&id).map(std::sync::Arc::make_mut);
            let Some(progress) = group.and_then(|group| group.progress.get_mut(row)) else {
                continue;
            };
            if progress.raise_floor(start) {
                applied.moved.push((id, partition.index));
                joined |= progress.floor() > start;
            }
        }
        // A raised floor that merged with a settled range may raise the lowest floor further.
        if joined && self.deletes_settled(partition.topic) {
            self.delete_settled(partition, &[], applied);
        }
    }

    pub(super) fn deletes_settled(&self, topic: TopicId) -> bool {
        self.topic(topic).is_some_and(|topic| topic.deletes_settled)
    }

    /// Deletes everything that all groups of a topic have settled, if that is its policy.
    pub(crate) fn delete_settled_of_topic(&mut self, topic: TopicId, applied: &mut EntryEffects) {
        let Some(found) = self.topic(topic).filter(|found| found.deletes_settled) else { return };
        for partition in found.partition_ids().collect::<Vec<_>>() {
            self.delete_settled(partition, &[(0, Offset::MAX)], applied);
        }
    }

    /// Deletes records that all groups of a topic have settled: below the lowest floor, and in
    /// ranges that touch `ranges`.
    pub(super) fn delete_settled(
        &mut self,
        id: PartitionId,
        ranges: &[(Offset, Offset)],
        applied: &mut EntryEffects,
    ) {
        let lowest = self.progress_of(id).map(Progress::floor).min();
        let Some(lowest) = lowest else { return };
        let Ok(partition) = self.partition_mut(id) else { return };
        if partition.advance_start(lowest) {
            applied.trimmed.push((id, lowest));
            self.transactions.advance_start(id, lowest);
        }
        for &(from, to) in ranges {
            let mut offset = from.max(lowest);
            while offset < to {
                match self.settled_by_all(id, offset) {
                    Ok((begin, end)) => {
                        // Neighbours settled one by one are one range.
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

    /// The longest range around `offset` that every group of a topic has settled; or else the next
    /// offset at which there may be one.
    fn settled_by_all(
        &self,
        id: PartitionId,
        offset: Offset,
    ) -> Result<(Offset, Offset), Option<Offset>> {
        let (mut from, mut to) = (0, Offset::MAX);
        for progress in self.progress_of(id) {
            match progress.settled_around(offset) {
                Some((begin, end)) => (from, to) = (from.max(begin), to.min(end)),
                None => return Err(progress.next_settled(offset)),
            }
        }
        Ok((from, to))
    }

    /// Progress of each lease group of the topic.
    fn progress_of(&self, id: PartitionId) -> impl Iterator<Item = &Progress> {
        let topic = self.topic(id.topic);
        let row = topic.and_then(|topic| topic.stripe.row(id.index));
        let groups = topic.map_or(&[][..], TopicRows::groups).iter();
        groups.filter_map(move |group| self.lease_groups.get(group)?.progress.get(row?))
    }
}
