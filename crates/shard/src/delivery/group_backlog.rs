//! Waiting records in the lease groups of topics that refuse records when they are full. A limit counts records
//! that wait for delivery. Only the driver knows which are leased, but the sequencer refuses. So the driver
//! records the state of each such group here, with the sum of end offsets at that time; the sequencer adds the
//! records that it has sequenced since.

use std::collections::VecDeque;

use crate::limits::LEASE_SEQUENCED_BATCHES_MAX;
use base::{HashMap, LeaseGroupId, TopicId};
use machine::rows::lease_group::GroupRows;
use machine::rows::topic::TopicRows;
use parking_lot::Mutex;

/// Number and size of a group's waiting records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupBacklog {
    /// Records that could be delivered, scanned or not.
    pub waiting: u64,
    /// Delayed records, which are not delivered yet.
    pub delayed: u64,
    /// Number of further records that would be delivered at once, and never wait.
    pub credit: u64,
    /// The sum of the partitions' end offsets.
    pub ends: u64,
    /// Bytes of the values of waiting records, as far as they were read.
    pub bytes: u64,
    /// The sum of the offsets up to which they were read.
    pub known: u64,
}

impl GroupBacklog {
    /// Number of waiting records once the sum of the topic's end offsets is `ends`.
    pub(crate) fn held_at(&self, ends: u64) -> u64 {
        let waiting = self.waiting + ends.saturating_sub(self.ends);
        self.delayed + waiting.saturating_sub(self.credit)
    }
}

/// Has only groups that the driver has loaded: the others have no leases.
#[derive(Debug, Default)]
pub struct GroupBacklogs {
    groups: Mutex<HashMap<LeaseGroupId, GroupBacklog>>,
    /// Batches of topics with a limit in bytes, until they are read: the sum of the topic's end offsets after
    /// each, and the bytes of its values.
    sequenced: Mutex<HashMap<TopicId, SequencedBatches>>,
}

#[derive(Debug, Default)]
struct SequencedBatches {
    batches: VecDeque<(u64, u64)>,
    /// Sum of all batches.
    bytes: u64,
}

impl SequencedBatches {
    /// Forgets batches at the front and at the back.
    fn forget(&mut self, known: impl Fn(u64) -> bool, void: impl Fn(u64) -> bool) {
        while let Some((_, bytes)) = self.batches.pop_front_if(|(end, _)| known(*end)) {
            self.bytes -= bytes;
        }
        while let Some((_, bytes)) = self.batches.pop_back_if(|(end, _)| void(*end)) {
            self.bytes -= bytes;
        }
    }
}

impl GroupBacklogs {
    pub fn note(&self, group: LeaseGroupId, standing: GroupBacklog) {
        self.groups.lock().insert(group, standing);
    }

    pub fn forget(&self, group: LeaseGroupId) {
        self.groups.lock().remove(&group);
    }

    /// A batch was sequenced; after it the sum of the topic's end offsets is `ends`.
    pub(crate) fn note_sequenced(&self, topic: TopicId, ends: u64, bytes: u64) {
        let mut sequenced = self.sequenced.lock();
        let of_topic = sequenced.entry(topic).or_default();
        // A batch that was recorded and then refused for another reason has given its offsets to this one.
        of_topic.forget(|_| false, |other| other >= ends);
        if of_topic.batches.len() >= LEASE_SEQUENCED_BATCHES_MAX
            && let Some((_, bytes)) = of_topic.batches.pop_front()
        {
            of_topic.bytes -= bytes;
        }
        of_topic.batches.push_back((ends, bytes));
        of_topic.bytes += bytes;
    }

    /// Bytes of batches that were sequenced up to `ends` and not read up to `known`.
    pub(crate) fn bytes_since(&self, topic: TopicId, known: u64, ends: u64) -> u64 {
        let mut sequenced = self.sequenced.lock();
        let Some(of_topic) = sequenced.get_mut(&topic) else { return 0 };
        of_topic.forget(|end| end <= known, |end| end > ends);
        let bytes = of_topic.bytes;
        if of_topic.batches.is_empty() {
            sequenced.remove(&topic);
        }
        bytes
    }

    pub fn of(&self, group: LeaseGroupId) -> Option<GroupBacklog> {
        self.groups.lock().get(&group).copied()
    }
}

/// Number of unsettled records of a group, by the durable state.
pub fn depth(group: &GroupRows, topic: &TopicRows) -> u64 {
    let partitions = group.progress().zip(topic.partitions());
    let unsettled = partitions.map(|(progress, (_, partition))| {
        let above: u64 = progress.settled().map(|(from, to)| to - from).sum();
        partition.next_offset().saturating_sub(progress.floor()).saturating_sub(above)
    });
    unsettled.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_within_spare_credit_do_not_count_as_waiting() {
        let standing =
            GroupBacklog { waiting: 2, delayed: 1, ends: 100, ..GroupBacklog::default() };
        assert_eq!((standing.held_at(100), standing.held_at(103)), (3, 6));
        let standing = GroupBacklog { waiting: 0, credit: 5, ..standing };
        assert_eq!((standing.held_at(104), standing.held_at(107)), (1, 3));
    }

    #[test]
    fn bytes_are_counted_from_their_sequencing_until_they_are_read() {
        let (standings, topic) = (GroupBacklogs::default(), TopicId(7));
        assert_eq!(standings.bytes_since(topic, 0, 0), 0);
        standings.note_sequenced(topic, 10, 4);
        standings.note_sequenced(topic, 12, 6);
        assert_eq!(standings.bytes_since(topic, 0, 12), 10);
        assert_eq!(standings.bytes_since(topic, 10, 12), 6);
        // It was refused after all: another one has its offsets.
        standings.note_sequenced(topic, 13, 100);
        standings.note_sequenced(topic, 13, 1);
        assert_eq!(standings.bytes_since(topic, 10, 13), 7);
        standings.note_sequenced(topic, 20, 100);
        assert_eq!(standings.bytes_since(topic, 10, 13), 7);
        assert_eq!(standings.bytes_since(topic, 13, 13), 0);
        assert!(standings.sequenced.lock().is_empty());
    }
}
