//! Transactions of Kafka's producers in a shard: as the home of transactional ids, and as a participant.
//!
//! * [`ids`]: the transactional ids that have their home here
//! * [`participation`]: producers that write here, with the fence of each; `pending`: their offsets
//! * [`partition`]: open transactions and aborted ranges of a partition
//! * `execution`: commands, appends and markers
//!
//! A batch of a transaction is accepted only with the epoch that the participation has open. The end raises that epoch
//! in the entry that has the markers, also in a shard where nothing was written. So no late batch opens a transaction
//! that nothing ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Offset, PartitionId, SharedMap, TopicId};

use ids::TransactionalIds;
use participation::{Participation, Participations};
use partition::PartitionTransactions;

mod execution;
pub(crate) use execution::Decision;

pub mod ids;
pub mod participation;
pub mod partition;
pub(crate) mod pending;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Transactions {
    pub(crate) ids: TransactionalIds,
    pub(crate) participations: Participations,
    /// Partitions with an open transaction or an aborted one.
    pub(crate) partitions: SharedMap<PartitionId, Arc<PartitionTransactions>>,
    /// Aborted ranges in all partitions: recomputed from them when a snapshot is decoded.
    pub(crate) aborted: usize,
}

impl Transactions {
    /// Whether this shard never had a transaction, or has forgotten all.
    pub fn are_unused(&self) -> bool {
        self.ids.is_unused() && self.participations.is_empty() && self.partitions.is_empty()
    }

    /// Transactional ids that have their home here.
    pub fn ids(&self) -> &TransactionalIds {
        &self.ids
    }

    /// State of a producer in this shard.
    pub fn participation(&self, producer: i64) -> Option<&Participation> {
        self.participations.get(producer)
    }

    /// Producers that write here or wrote, by id.
    pub fn participations(&self) -> &Participations {
        &self.participations
    }

    /// Transactions in a partition; `None` if there is no open one and no aborted one.
    pub fn partition(&self, partition: PartitionId) -> Option<&Arc<PartitionTransactions>> {
        if self.partitions.is_empty() {
            return None;
        }
        self.partitions.get(&partition)
    }

    /// The offset below which every transaction of the partition has ended, in one that ends at `next`.
    pub fn stable_end(&self, partition: PartitionId, next: Offset) -> Offset {
        let first = self.partition(partition).and_then(|it| it.first_open());
        first.map_or(next, |first| first.min(next))
    }

    /// First offset of the earliest open transaction of each partition of a topic that has one.
    pub fn first_open_of(&self, topic: TopicId) -> impl Iterator<Item = (PartitionId, Offset)> {
        let of_topic = PartitionId::new(topic, 0)..=PartitionId::new(topic, u32::MAX);
        let known = (!self.partitions.is_empty()).then(|| self.partitions.range(of_topic));
        known.into_iter().flatten().filter_map(|(id, it)| Some((*id, it.first_open()?)))
    }

    /// Whether a producer has something open in a partition.
    pub fn is_open(&self, partition: PartitionId, producer: i64) -> bool {
        self.partition(partition).is_some_and(|it| it.has_open(producer))
    }

    /// Drops everything about partitions of a topic that was deleted.
    pub(crate) fn drop_topic(&mut self, topic: TopicId) {
        if self.are_unused() {
            return;
        }
        let of_topic = PartitionId::new(topic, 0)..=PartitionId::new(topic, u32::MAX);
        let gone: Vec<_> = self.partitions.range(of_topic).map(|(id, _)| *id).collect();
        for partition in gone {
            self.drop_partition(partition);
        }
        self.participations.forget_offsets_of(topic);
    }

    /// Drops everything about a partition that is no longer here.
    pub(crate) fn drop_partition(&mut self, partition: PartitionId) {
        let Some(removed) = self.partitions.remove(&partition) else { return };
        self.aborted -= removed.aborted().len();
        for &(_, producer) in removed.open() {
            self.participations.change(producer, |it| {
                it.partitions.remove(&partition);
            });
        }
    }

    /// The partition's records begin at `start`: what is below is forgotten.
    pub(crate) fn advance_start(&mut self, partition: PartitionId, start: Offset) {
        self.change_partition(partition, |it| it.advance_start(start));
    }

    /// Changes the state of a partition, which is removed if nothing is left.
    fn change_partition(
        &mut self,
        partition: PartitionId,
        change: impl FnOnce(&mut PartitionTransactions),
    ) {
        let Some(known) = self.partitions.get_mut(&partition) else { return };
        let changed = Arc::make_mut(known);
        let before = changed.aborted().len();
        change(changed);
        let (after, is_empty) = (changed.aborted().len(), changed.is_empty());
        self.aborted = self.aborted + after - before;
        if is_empty {
            self.partitions.remove(&partition);
        }
    }

    /// Whether the parts of a decoded state fit together; `next` is the end of a partition that exists.
    pub(crate) fn is_sound(&self, next: impl Fn(PartitionId) -> Option<Offset>) -> bool {
        let mut open: BTreeMap<i64, usize> = BTreeMap::new();
        let partitions = self.partitions.iter().all(|(id, it)| {
            it.open().iter().for_each(|(_, producer)| *open.entry(*producer).or_default() += 1);
            let known = |producer: &i64| {
                self.participation(*producer).is_some_and(|it| it.partitions.contains(id))
            };
            next(*id).is_some_and(|next| it.is_sound(next))
                && it.open().iter().all(|(_, producer)| known(producer))
        });
        let participations = self.participations.iter().all(|(producer, it)| {
            it.is_sound() && it.partitions.len() == open.get(&producer).copied().unwrap_or(0)
        });
        partitions && participations && self.ids.is_sound()
    }
}
