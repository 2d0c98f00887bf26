//! Producers that write to a shard in transactions: the fence of each, and the things that the end of its transaction
//! concerns here.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{PartitionId, ShardId, SharedMap, TopicId};

use super::pending::{PendingByGroup, PendingOffsets};
use crate::command::{CommitOffset, EndedPart, ProducerKey};
use crate::limits::{OPEN_TRANSACTIONS_MAX, PARTICIPATIONS_MAX};
use crate::outcome::TransactionRefusal;

/// A producer in this shard. It stays when its transaction has ended, as the fence against late batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Participation {
    /// While it is open, the epoch of its batches. Later the epoch of the markers.
    pub epoch: i16,
    /// Shard of the transactional id.
    pub home: ShardId,
    /// The home's number of the transaction that is open, or of the last one.
    pub number: u64,
    pub is_open: bool,
    /// Partitions with an open transaction of it.
    pub partitions: BTreeSet<PartitionId>,
    /// Offsets that the end commits.
    pub pending: PendingOffsets,
    /// Time of the last command or marker.
    pub updated_ms: i64,
}

/// All producers with transactions in a shard.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Participations {
    by_producer: SharedMap<i64, Arc<Participation>>,
    /// Number of the open ones.
    open: usize,
    pending: PendingByGroup,
}

impl Participation {
    /// Whether a snapshot's participation could be the result of commands.
    pub(super) fn is_sound(&self) -> bool {
        let is_unused = self.partitions.is_empty() && self.pending.is_empty();
        self.epoch >= 0 && (self.is_open || is_unused) && self.pending.is_sound()
    }
}

impl Participations {
    pub fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_producer.len()
    }

    /// Number of producers with an open transaction here.
    pub fn open(&self) -> usize {
        self.open
    }

    pub fn get(&self, producer: i64) -> Option<&Participation> {
        if self.by_producer.is_empty() {
            return None;
        }
        self.by_producer.get(&producer).map(Arc::as_ref)
    }

    /// By producer id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Participation)> {
        self.by_producer.iter().map(|(producer, it)| (*producer, it.as_ref()))
    }

    /// Bytes of all pending offsets, weighed as committed ones.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending.bytes()
    }

    /// Whether a group has a pending offset of a partition.
    pub fn has_pending(&self, group: &str, partition: PartitionId) -> bool {
        let producers = self.pending.producers_of(group);
        let mut known = producers.filter_map(|producer| self.get(producer));
        known.any(|it| it.pending.has(group, partition))
    }

    /// Whether a group has any pending offset.
    pub fn has_pending_of(&self, group: &str) -> bool {
        self.pending.producers_of(group).next().is_some()
    }

    /// Opens the producer's transaction with this number. Repeating it changes nothing.
    pub(super) fn open_transaction(
        &mut self,
        producer: ProducerKey,
        number: u64,
        home: ShardId,
        now_ms: i64,
    ) -> Result<(), TransactionRefusal> {
        self.check_open(producer, number)?;
        let ProducerKey { id, epoch } = producer;
        if self.get(id).is_some_and(|it| it.is_open) {
            return Ok(());
        }
        self.open += 1;
        let (partitions, pending) = (BTreeSet::new(), PendingOffsets::default());
        let updated_ms = now_ms;
        let opened =
            Participation { epoch, home, number, is_open: true, partitions, pending, updated_ms };
        self.by_producer.insert(id, Arc::new(opened));
        Ok(())
    }

    /// Whether [`Self::open_transaction`] would be accepted.
    pub(super) fn check_open(
        &self,
        producer: ProducerKey,
        number: u64,
    ) -> Result<(), TransactionRefusal> {
        if producer.id < 0 || producer.epoch < 0 {
            return Err(TransactionRefusal::UnknownProducer);
        }
        match self.get(producer.id) {
            None if self.len() >= PARTICIPATIONS_MAX => Err(TransactionRefusal::TooManyOpen),
            Some(it) if it.epoch > producer.epoch => {
                Err(TransactionRefusal::Fenced { current: it.epoch })
            }
            // The end of the former transaction has not arrived yet.
            Some(it) if it.is_open && it.number < number => Err(TransactionRefusal::Concurrent),
            Some(it) if it.is_open && it.number == number && it.epoch == producer.epoch => Ok(()),
            // Its end has arrived first.
            Some(it) if it.is_open || it.number >= number => Err(TransactionRefusal::NotOpen),
            _ if self.open >= OPEN_TRANSACTIONS_MAX => Err(TransactionRefusal::TooManyOpen),
            _ => Ok(()),
        }
    }

    /// Whether the producer may write with this epoch.
    pub(super) fn check_epoch(&self, producer: ProducerKey) -> Result<(), TransactionRefusal> {
        match self.get(producer.id) {
            Some(it) if it.epoch > producer.epoch => {
                Err(TransactionRefusal::Fenced { current: it.epoch })
            }
            Some(it) if it.is_open && it.epoch == producer.epoch => Ok(()),
            _ => Err(TransactionRefusal::NotOpen),
        }
    }

    /// Partitions in which a transaction that ends here has records.
    pub fn partitions_ended_by(&self, part: &EndedPart) -> Option<&BTreeSet<PartitionId>> {
        let known = self.get(part.producer.id)?;
        (known.is_open && known.number == part.number).then_some(&known.partitions)
    }

    /// Ends the producer's transaction, and raises the fence. Returns its pending offsets, if they are to be committed.
    pub(super) fn end(&mut self, part: &EndedPart, home: ShardId, now_ms: i64) -> PendingOffsets {
        let &EndedPart { producer: ProducerKey { id, epoch }, number, commit } = part;
        let Some(known) = self.by_producer.get_mut(&id) else {
            // It joined and never opened here: a late `Open` is refused from now on.
            let (partitions, pending) = (BTreeSet::new(), PendingOffsets::default());
            let (is_open, updated_ms) = (false, now_ms);
            let ended =
                Participation { epoch, home, number, is_open, partitions, pending, updated_ms };
            if self.by_producer.len() < PARTICIPATIONS_MAX {
                self.by_producer.insert(id, Arc::new(ended));
            }
            return PendingOffsets::default();
        };
        // A later transaction of the producer is not concerned.
        if known.number > number || (known.number == number && !known.is_open) {
            return PendingOffsets::default();
        }
        let known = Arc::make_mut(known);
        if known.is_open {
            self.open -= 1;
        }
        known.epoch = known.epoch.max(epoch);
        (known.number, known.is_open, known.updated_ms) = (number, false, now_ms);
        known.partitions.clear();
        let pending = std::mem::take(&mut known.pending);
        self.pending.remove_all(id, &pending);
        if commit { pending } else { PendingOffsets::default() }
    }

    /// Notes that a partition has records of the producer's open transaction.
    pub(super) fn note_partition(&mut self, producer: i64, partition: PartitionId) {
        self.change(producer, |it| {
            it.partitions.insert(partition);
        });
    }

    pub(super) fn note_pending(
        &mut self,
        producer: i64,
        group: &str,
        commit: &CommitOffset,
        now_ms: i64,
    ) {
        let Some(known) = self.by_producer.get_mut(&producer) else { return };
        let known = Arc::make_mut(known);
        known.updated_ms = now_ms;
        let more = known.pending.put(group, commit);
        self.pending.note(producer, group, more);
    }

    pub(super) fn change(&mut self, producer: i64, change: impl FnOnce(&mut Participation)) {
        if let Some(known) = self.by_producer.get_mut(&producer) {
            change(Arc::make_mut(known));
        }
    }

    /// Drops pending offsets of a deleted topic.
    pub(super) fn forget_offsets_of(&mut self, topic: TopicId) {
        let with_some =
            |(id, it): (&i64, &Arc<Participation>)| it.pending.knows(topic).then_some(*id);
        let concerned: Vec<i64> = self.by_producer.iter().filter_map(with_some).collect();
        for producer in concerned {
            self.change_pending(producer, |pending| pending.forget_topic(topic));
        }
    }

    /// Drops pending offsets of a deleted group. Returns whether it had some.
    pub(crate) fn forget_group(&mut self, group: &str) -> bool {
        let producers: Vec<i64> = self.pending.producers_of(group).collect();
        for &producer in &producers {
            self.change_pending(producer, |pending| pending.forget_group(group));
        }
        !producers.is_empty()
    }

    /// Drops pending offsets of a group in these partitions. Returns whether the group had any.
    pub(crate) fn forget_offsets(
        &mut self,
        group: &str,
        partitions: impl Iterator<Item = PartitionId> + Clone,
    ) -> bool {
        let producers: Vec<i64> = self.pending.producers_of(group).collect();
        for &producer in &producers {
            let partitions = partitions.clone();
            self.change_pending(producer, |pending| pending.forget_offsets(group, partitions));
        }
        !producers.is_empty()
    }

    fn change_pending(&mut self, producer: i64, change: impl FnOnce(&mut PendingOffsets)) {
        let Some(known) = self.by_producer.get_mut(&producer) else { return };
        let known = Arc::make_mut(known);
        self.pending.remove_all(producer, &known.pending);
        change(&mut known.pending);
        self.pending.add_all(producer, &known.pending);
    }

    /// Forgets producers without an open transaction that were unused since before `before_ms`. A late batch of one is
    /// refused by its home, which knows the epoch.
    pub(crate) fn expire(&mut self, before_ms: i64) -> u64 {
        let expired = |(id, it): (&i64, &Arc<Participation>)| {
            (!it.is_open && it.updated_ms < before_ms).then_some(*id)
        };
        let expired: Vec<i64> = self.by_producer.iter().filter_map(expired).collect();
        for producer in &expired {
            self.by_producer.remove(producer);
        }
        expired.len() as u64
    }

    /// Adds one of a snapshot. False if there is one already.
    pub(crate) fn restore(&mut self, producer: i64, participation: Participation) -> bool {
        self.open += usize::from(participation.is_open);
        self.pending.add_all(producer, &participation.pending);
        producer >= 0 && self.by_producer.insert(producer, Arc::new(participation)).is_none()
    }

    /// Bytes that one more pending offset takes.
    pub(super) fn pending_growth(&self, producer: i64, group: &str, commit: &CommitOffset) -> u64 {
        self.get(producer).map_or(0, |it| it.pending.growth(group, commit))
    }
}
