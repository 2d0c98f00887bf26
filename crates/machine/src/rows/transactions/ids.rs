//! Transactional ids that have their home in a shard: the producer of each, and the state of its transaction.
//!
//! The rules are those of Kafka 4's `TransactionCoordinator` and `TransactionMetadata`, except for one: an
//! InitProducerId over an open transaction gets its producer at once, instead of CONCURRENT_TRANSACTIONS first.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Offset, PartitionId, ShardId, SharedMap};

use crate::command::{EndCause, EndedPart, ProducerKey};
use crate::limits::{
    OPEN_TRANSACTIONS_MAX, TRANSACTION_PARTITIONS_MAX, TRANSACTIONAL_ID_BYTES_MAX,
    TRANSACTIONAL_IDS_BYTES_MAX,
};
use crate::outcome::TransactionRefusal;

/// Weight of an id besides its name: its row in the map.
const ID_BYTES: u64 = 200;

/// The last epoch that a producer may have. The one after it is for markers alone.
pub const EPOCH_LAST: i16 = i16::MAX - 1;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct TransactionalIds {
    by_id: SharedMap<Arc<str>, Arc<TransactionalId>>,
    /// Number of the next transaction of any id.
    next_number: u64,
    bytes: u64,
    /// Ids with an open transaction.
    open: SharedMap<Arc<str>, ()>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionalId {
    pub producer: ProducerKey,
    pub former: Option<FormerProducer>,
    pub timeout_ms: u32,
    pub phase: TransactionPhase,
    pub updated_ms: i64,
}

/// The producer before the last change of the epoch: a repetition of its request gets the same reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormerProducer {
    pub producer: ProducerKey,
    /// Whether its EndTxn changed the epoch. Otherwise its InitProducerId did.
    pub ended: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransactionPhase {
    /// The producer has begun no transaction.
    Empty,
    Ongoing(OpenTransaction),
    Ended(EndedTransaction),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenTransaction {
    pub number: u64,
    pub started_ms: i64,
    pub shards: BTreeSet<ShardId>,
    /// Partitions that the client registered (AddPartitionsToTxn before version 4).
    pub added: BTreeSet<PartitionId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedTransaction {
    pub number: u64,
    pub commit: bool,
    /// Numbers of the messages that end it in other shards.
    pub messages: Vec<(ShardId, Offset)>,
}

/// A decision that was validated: see [`TransactionalIds::plan_end`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedEnd {
    /// The producer whose transaction ends.
    pub producer: ProducerKey,
    /// `None`: no transaction is open, and only the epoch changes.
    pub part: Option<EndedPart>,
    pub shards: BTreeSet<ShardId>,
    /// The id's producer from now on.
    pub next: ProducerKey,
    former: Option<FormerProducer>,
    timeout_ms: u32,
}

fn weight(id: &str) -> u64 {
    ID_BYTES + id.len() as u64
}

/// The producer this many epochs later, or the fresh one if the epochs are used up.
fn later(
    producer: ProducerKey,
    epochs: i16,
    fresh: i64,
) -> Result<ProducerKey, TransactionRefusal> {
    match producer.epoch.checked_add(epochs).filter(|epoch| *epoch <= EPOCH_LAST) {
        Some(epoch) => Ok(ProducerKey { epoch, ..producer }),
        None if fresh < 0 => Err(TransactionRefusal::NeedsProducerId),
        None => Ok(ProducerKey { id: fresh, epoch: 0 }),
    }
}

impl TransactionalId {
    /// The open transaction.
    pub fn ongoing(&self) -> Option<&OpenTransaction> {
        match &self.phase {
            TransactionPhase::Ongoing(open) => Some(open),
            _ => None,
        }
    }

    /// Whether this is the current producer, which only then may take part.
    fn check_producer(&self, producer: ProducerKey) -> Result<(), TransactionRefusal> {
        if producer.id != self.producer.id {
            return Err(TransactionRefusal::UnknownProducer);
        }
        match producer.epoch == self.producer.epoch {
            true => Ok(()),
            false => Err(TransactionRefusal::Fenced { current: self.producer.epoch }),
        }
    }

    fn is_sound(&self) -> bool {
        let is_key = |key: &ProducerKey| key.id >= 0 && key.epoch >= 0;
        let phase = match &self.phase {
            TransactionPhase::Empty => true,
            TransactionPhase::Ongoing(open) => !(open.shards.is_empty() && open.added.is_empty()),
            TransactionPhase::Ended(ended) => ended.messages.is_sorted_by(|a, b| a.0 < b.0),
        };
        phase && is_key(&self.producer) && self.former.is_none_or(|it| is_key(&it.producer))
    }
}

impl TransactionalIds {
    pub fn is_unused(&self) -> bool {
        self.by_id.is_empty() && self.next_number == 0
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Number of ids with an open transaction.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Ids with an open transaction, by name.
    pub fn ongoing(&self) -> impl Iterator<Item = (&Arc<str>, &TransactionalId)> {
        self.open.keys().filter_map(|id| Some((id, self.get(id)?)))
    }

    pub fn get(&self, id: &str) -> Option<&TransactionalId> {
        self.by_id.get(id).map(Arc::as_ref)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &TransactionalId)> {
        self.by_id.iter().map(|(id, it)| (id, it.as_ref()))
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(super) fn initialize(
        &mut self,
        id: &str,
        expect: Option<ProducerKey>,
        fresh: i64,
        timeout_ms: u32,
        now_ms: i64,
    ) -> Result<ProducerKey, TransactionRefusal> {
        let Some(known) = self.by_id.get(id) else {
            return self.create(id, expect, fresh, timeout_ms, now_ms);
        };
        let current = known.producer;
        if let Some(expect) = expect
            && expect != current
        {
            let again = known.former.is_some_and(|former| former.producer == expect);
            return match again {
                true => Ok(current),
                false => Err(TransactionRefusal::Fenced { current: current.epoch }),
            };
        }
        if known.ongoing().is_some() {
            return Err(TransactionRefusal::Concurrent);
        }
        let next = later(current, 1, fresh)?;
        self.change(id, now_ms, |it| {
            it.former = expect.map(|producer| FormerProducer { producer, ended: false });
            (it.producer, it.timeout_ms) = (next, timeout_ms);
            it.phase = TransactionPhase::Empty;
        });
        Ok(next)
    }

    fn create(
        &mut self,
        id: &str,
        expect: Option<ProducerKey>,
        fresh: i64,
        timeout_ms: u32,
        now_ms: i64,
    ) -> Result<ProducerKey, TransactionRefusal> {
        if id.is_empty() || id.len() > TRANSACTIONAL_ID_BYTES_MAX {
            return Err(TransactionRefusal::InvalidId);
        }
        if expect.is_some() {
            return Err(TransactionRefusal::UnknownProducer);
        }
        if fresh < 0 {
            return Err(TransactionRefusal::NeedsProducerId);
        }
        if self.bytes + weight(id) > TRANSACTIONAL_IDS_BYTES_MAX {
            return Err(TransactionRefusal::TooManyIds);
        }
        let producer = ProducerKey { id: fresh, epoch: 0 };
        let phase = TransactionPhase::Empty;
        let created =
            TransactionalId { producer, former: None, timeout_ms, phase, updated_ms: now_ms };
        self.bytes += weight(id);
        self.by_id.insert(Arc::from(id), Arc::new(created));
        Ok(producer)
    }

    /// Whether the producer may take part, and the number of its transaction, which may begin with it.
    pub(super) fn check_join(
        &self,
        id: &str,
        producer: ProducerKey,
        added: &[PartitionId],
        requires: Option<PartitionId>,
    ) -> Result<u64, TransactionRefusal> {
        let known = self.get(id).ok_or(TransactionRefusal::UnknownProducer)?;
        known.check_producer(producer)?;
        let open = known.ongoing();
        let registered = open.map_or(0, |open| open.added.len());
        if registered + added.len() > TRANSACTION_PARTITIONS_MAX {
            return Err(TransactionRefusal::TooManyPartitions);
        }
        if let Some(required) = requires
            && !open.is_some_and(|open| open.added.contains(&required))
        {
            return Err(TransactionRefusal::InvalidState);
        }
        match open {
            Some(open) => Ok(open.number),
            None if self.open.len() >= OPEN_TRANSACTIONS_MAX => {
                Err(TransactionRefusal::TooManyOpen)
            }
            None => Ok(self.next_number),
        }
    }

    /// After [`Self::check_join`].
    pub(super) fn join(
        &mut self,
        id: &str,
        shard: Option<ShardId>,
        added: &[PartitionId],
        now_ms: i64,
    ) {
        let next_number = self.next_number;
        let mut begins = false;
        self.change(id, now_ms, |it| {
            if it.ongoing().is_none() {
                let (shards, added) = (BTreeSet::new(), BTreeSet::new());
                let (number, started_ms) = (next_number, now_ms);
                let open = OpenTransaction { number, started_ms, shards, added };
                it.phase = TransactionPhase::Ongoing(open);
                begins = true;
            }
            if let TransactionPhase::Ongoing(open) = &mut it.phase {
                open.shards.extend(shard);
                open.added.extend(added);
            }
        });
        if begins {
            self.next_number += 1;
            self.open.insert(Arc::from(id), ());
        }
    }

    /// Validates a decision. Changes nothing. An initialization ends the transaction of any producer: `producer` is
    /// ignored.
    pub fn plan_end(
        &self,
        id: &str,
        producer: ProducerKey,
        commit: bool,
        cause: EndCause,
        fresh: i64,
    ) -> Result<PlannedEnd, TransactionRefusal> {
        let known = self.get(id).ok_or(TransactionRefusal::UnknownProducer)?;
        let bumps = cause == EndCause::ClientWithNextEpoch;
        if let TransactionPhase::Ended(ended) = &known.phase
            && matches!(cause, EndCause::Client | EndCause::ClientWithNextEpoch)
        {
            let same = match bumps {
                true => known.former == Some(FormerProducer { producer, ended: true }),
                false => known.producer == producer,
            };
            if same {
                let (commit, producer) = (ended.commit, known.producer);
                return Err(TransactionRefusal::Ended { commit, producer });
            }
        }
        let producer = match cause {
            EndCause::Initialized { .. } => known.producer,
            _ => producer,
        };
        known.check_producer(producer)?;
        let open = known.ongoing();
        // An abort without a transaction only changes the epoch: the client need not know whether any of it arrived.
        if open.is_none() && (commit || !bumps) {
            return Err(TransactionRefusal::InvalidState);
        }
        let marker = match cause {
            EndCause::Client => producer.epoch,
            _ => producer.epoch.saturating_add(1),
        };
        let mut timeout_ms = known.timeout_ms;
        let (next, former) = match cause {
            EndCause::Client => (producer, known.former),
            EndCause::ClientWithNextEpoch => {
                (later(producer, 1, fresh)?, Some(FormerProducer { producer, ended: true }))
            }
            EndCause::Initialized { expect, timeout_ms: requested } => {
                timeout_ms = requested;
                if expect.is_some_and(|expect| expect != producer) {
                    return Err(TransactionRefusal::Fenced { current: producer.epoch });
                }
                let former = expect.map(|producer| FormerProducer { producer, ended: false });
                (later(producer, 2, fresh)?, former)
            }
            EndCause::Expired => (ProducerKey { epoch: marker, ..producer }, None),
        };
        let part = open.map(|open| EndedPart {
            producer: ProducerKey { epoch: marker, ..producer },
            number: open.number,
            commit,
        });
        let shards = open.map(|open| open.shards.clone()).unwrap_or_default();
        Ok(PlannedEnd { producer, part, shards, next, former, timeout_ms })
    }

    /// After [`Self::plan_end`], with the numbers of the messages that it sent.
    pub(super) fn end(
        &mut self,
        id: &str,
        planned: &PlannedEnd,
        commit: bool,
        messages: Vec<(ShardId, Offset)>,
        now_ms: i64,
    ) {
        self.open.remove(id);
        self.change(id, now_ms, |it| {
            let number = match (&planned.part, &it.phase) {
                (Some(part), _) => part.number,
                (None, TransactionPhase::Ended(ended)) => ended.number,
                (None, _) => 0,
            };
            it.phase = TransactionPhase::Ended(EndedTransaction { number, commit, messages });
            (it.producer, it.former) = (planned.next, planned.former);
            it.timeout_ms = planned.timeout_ms;
        });
    }

    /// Forgets those of `ids` that have no open transaction and were unused since before `before_ms`.
    pub(super) fn forget(&mut self, ids: &[String], before_ms: i64) -> u64 {
        let mut count = 0;
        for id in ids {
            let expired =
                self.get(id).is_some_and(|it| it.ongoing().is_none() && it.updated_ms < before_ms);
            if expired {
                self.by_id.remove(id.as_str());
                self.bytes -= weight(id);
                count += 1;
            }
        }
        count
    }

    fn change(&mut self, id: &str, now_ms: i64, change: impl FnOnce(&mut TransactionalId)) {
        if let Some(known) = self.by_id.get_mut(id) {
            let known = Arc::make_mut(known);
            change(known);
            known.updated_ms = now_ms;
        }
    }

    /// Sets the number of the next transaction from a snapshot.
    pub(crate) fn restore_number(&mut self, next_number: u64) {
        self.next_number = next_number;
    }

    /// Adds an id of a snapshot. False if there is one already.
    pub(crate) fn restore(&mut self, id: &str, stored: TransactionalId) -> bool {
        if stored.ongoing().is_some() {
            self.open.insert(Arc::from(id), ());
        }
        self.bytes += weight(id);
        self.by_id.insert(Arc::from(id), Arc::new(stored)).is_none()
    }

    pub(crate) fn is_sound(&self) -> bool {
        let of_id = |(id, it): (&Arc<str>, &Arc<TransactionalId>)| {
            let number = match &it.phase {
                TransactionPhase::Ongoing(open) => Some(open.number),
                _ => None,
            };
            it.is_sound()
                && (1..=TRANSACTIONAL_ID_BYTES_MAX).contains(&id.len())
                && number.is_none_or(|number| number < self.next_number)
        };
        self.by_id.iter().all(of_id)
    }
}
