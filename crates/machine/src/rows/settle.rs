//! Settling records of a lease group, and seeking the group to other offsets.

use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId};

use super::Rows;
use super::progress::Progress;
use crate::command::GroupSettle;
use crate::outcome::{EntryEffects, Refusal};

impl Rows {
    /// Applies all of the starts, or none.
    pub(crate) fn seek_lease_group(
        &mut self,
        group: LeaseGroupId,
        starts: &[(u32, Offset)],
        applied: &mut EntryEffects,
    ) -> Result<(), Refusal> {
        let topic = self.lease_group_mut(group)?.topic;
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
        let stripe = self.topic(topic).ok_or(Refusal::UnknownTopic { topic })?.stripe;
        let sought = self.lease_group_mut(group)?;
        for &(index, floor) in &floors {
            let row = stripe.row(index).and_then(|row| sought.progress.get_mut(row));
            if let Some(progress) = row {
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
        Ok(())
    }

    pub(crate) fn settle(&mut self, settles: &[GroupSettle], applied: &mut EntryEffects) {
        let mut fresh = Vec::new();
        for settle in settles {
            let Some(group) = self.lease_groups.get_mut(&settle.group) else { continue };
            let Some(topic) = self.topics.get(&group.topic) else { continue };
            let Some(row) = topic.stripe.row(settle.partition) else { continue };
            let group = Arc::make_mut(group);
            let (Some(partition), Some(progress)) =
                (topic.partitions.get(row), group.progress.get_mut(row))
            else {
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
            if topic.deletes_settled && !fresh.is_empty() {
                let partition = PartitionId::new(group.topic, settle.partition);
                self.delete_settled(partition, &fresh, applied);
            }
        }
    }
}
