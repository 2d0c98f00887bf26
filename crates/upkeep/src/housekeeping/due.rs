//! One due time per partition, in order, so that a check examines the due partitions and no others.

use std::collections::{BTreeMap, BTreeSet};

use base::{PartitionId, TopicId};

#[derive(Debug)]
pub(crate) struct Dues<T> {
    of: BTreeMap<PartitionId, T>,
    in_order: BTreeSet<(T, PartitionId)>,
}

impl<T> Default for Dues<T> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), in_order: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> Dues<T> {
    /// Replaces the due time; `None` for never.
    pub(crate) fn set(&mut self, partition: PartitionId, at: Option<T>) {
        let former = match at {
            Some(at) => self.of.insert(partition, at),
            None => self.of.remove(&partition),
        };
        if former == at {
            return;
        }
        if let Some(former) = former {
            self.in_order.remove(&(former, partition));
        }
        if let Some(at) = at {
            self.in_order.insert((at, partition));
        }
    }

    /// Lowers the due time to `at`.
    pub(crate) fn hasten(&mut self, partition: PartitionId, at: T) {
        if self.of.get(&partition).is_none_or(|known| at < *known) {
            self.set(partition, Some(at));
        }
    }

    pub(crate) fn has(&self, partition: PartitionId) -> bool {
        self.of.contains_key(&partition)
    }

    pub(crate) fn is_due(&self, now: T) -> bool {
        self.in_order.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Removes and returns a due partition.
    pub(crate) fn pop(&mut self, now: T) -> Option<PartitionId> {
        let &(at, partition) = self.in_order.first()?;
        if at > now {
            return None;
        }
        self.in_order.pop_first();
        self.of.remove(&partition);
        Some(partition)
    }

    pub(crate) fn forget(&mut self, topic: TopicId) {
        for (partition, at) in split_topic(&mut self.of, topic) {
            self.in_order.remove(&(at, partition));
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.of.len(), self.in_order.len());
        self.of.len()
    }
}

/// Removes a topic's partitions from a map, without touching the others.
pub(crate) fn split_topic<V>(
    map: &mut BTreeMap<PartitionId, V>,
    topic: TopicId,
) -> Vec<(PartitionId, V)> {
    let (first, last) = (PartitionId::new(topic, 0), PartitionId::new(topic, u32::MAX));
    let of_topic: Vec<PartitionId> = map.range(first..=last).map(|(id, _)| *id).collect();
    let taken = of_topic.into_iter().filter_map(|id| Some((id, map.remove(&id)?)));
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(topic: u32, index: u32) -> PartitionId {
        PartitionId::new(TopicId(topic), index)
    }

    #[test]
    fn due_partitions_are_popped_once_and_in_order() {
        let mut dues = Dues::default();
        for (index, at) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
            dues.set(partition(1, index), Some(at));
        }
        dues.set(partition(1, 2), Some(25));
        dues.hasten(partition(1, 0), 15);
        dues.hasten(partition(1, 1), 12);
        dues.set(partition(1, 3), None);
        let due: Vec<u32> = std::iter::from_fn(|| dues.pop(25)).map(|it| it.index).collect();
        assert_eq!(due, [1, 0, 2]);
        assert_eq!(dues.len(), 0);
    }

    #[test]
    fn forgotten_topic_leaves_no_due_times() {
        let mut dues = Dues::default();
        for topic in [1, 2, u32::MAX] {
            (0..3).for_each(|index| dues.set(partition(topic, index), Some(5)));
        }
        dues.forget(TopicId(1));
        assert!(!dues.has(partition(1, 2)) && dues.has(partition(2, 0)));
        dues.forget(TopicId(u32::MAX));
        assert_eq!(dues.len(), 3);
    }
}
