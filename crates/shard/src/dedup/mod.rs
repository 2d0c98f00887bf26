//! Topics with `dedup.window.ms`: a record whose `postroad.id` arrived within the window is not appended again.
//!
//! Ids are checked where records get their offsets, so that of two copies in flight only one gets an offset. A record
//! is known
//!
//! * by the state of the shard, once its entry is applied ([`machine::rows::record_ids`])
//! * as in flight, from its proposal until then
//! * below [`base::Level::RECORD_IDS`] by the ids that the leader learned from the log ([`scanned_ids`]). The first
//!   leader at that level stores them ([`seeding`])
//!
//! [`limits`] bounds the ids in the state.

mod in_flight;
mod limits;
mod scanned_ids;
mod seeding;

use base::{HashSet, Offset, PartitionId, TopicId};
use bytes::Bytes;
use journal::Body;
use machine::ids::IdsOfBatch;
use machine::{Command, RecordIds as StoredIds};
use record::{BatchHeader, CompactionResult, retain_or_empty};

use crate::append::AppendBatch;
use crate::cpu::is_quick;
use crate::record_ids::RecordIds;
use crate::request::Request;
use crate::state_machine::{Shard, View};
use in_flight::InFlightIds;
use limits::EarlyNotice;
use scanned_ids::ScannedIds;
use seeding::Seeding;

#[derive(Debug, Default)]
pub struct Dedup {
    in_flight: InFlightIds,
    /// `None`: the state has all ids within the windows.
    learned: Option<ScannedIds>,
    seeding: Seeding,
    /// Whether the leader puts ids into entries.
    replicates: bool,
    early: EarlyNotice,
}

/// A record with an id, and its proposal.
#[derive(Clone, Copy, Debug)]
struct SeenRecord {
    at_ms: i64,
    partition: PartitionId,
    offset: Offset,
    /// 0 for a record found in the log.
    ticket: u64,
}

/// The new part of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deduplicated {
    /// All records are new.
    Whole,
    /// No record is new; this is where the first one was appended before.
    Nothing { partition: PartitionId, offset: Offset },
    /// The records at these positions in the batch are copies: see [`without`].
    Part(CopyPositions),
}

/// Positions of records in their batch, ascending.
pub(crate) type CopyPositions = Vec<u64>;

/// Returns the batch without these records; offsets and producer sequences stay. `None` for a batch that cannot be
/// decoded, which stays whole.
pub(crate) fn without(batch: &[u8], copies: &[u64]) -> Option<Vec<u8>> {
    let header = BatchHeader::parse(batch).ok()?;
    if copies.len() == header.record_count as usize {
        return record::empty(batch).ok();
    }
    let base = header.base_offset;
    let is_new = |offset: Offset| copies.binary_search(&(offset - base)).is_err();
    match retain_or_empty(batch, |record| is_new(record.offset)) {
        Ok(CompactionResult::Part(rest)) => Some(rest),
        Ok(CompactionResult::All | CompactionResult::None) | Err(_) => None,
    }
}

/// Target of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchTarget {
    pub(crate) partition: PartitionId,
    pub(crate) base_offset: Offset,
    pub(crate) window_ms: i64,
    pub(crate) now_ms: i64,
    pub(crate) ticket: u64,
}

impl Dedup {
    /// Finds known ids, and notes new ones as in flight. Returns the outcome and the ids that the entry carries.
    pub(crate) fn check(
        &mut self,
        header: &BatchHeader,
        RecordIds(ids): &RecordIds,
        going: BatchTarget,
        stored: &StoredIds,
    ) -> (Deduplicated, IdsOfBatch) {
        if ids.is_empty() {
            return (Deduplicated::Whole, IdsOfBatch::default());
        }
        let BatchTarget { partition, base_offset, window_ms, now_ms, ticket } = going;
        let topic = partition.topic;
        let from_ms = now_ms.saturating_sub(window_ms);
        if let Some(learned) = &mut self.learned
            && !self.seeding.has_begun()
        {
            learned.forget_before(topic, from_ms);
        }
        let mut copies: Vec<u64> = Vec::new();
        let mut new = Vec::new();
        let mut first = None;
        for &(delta, id) in ids {
            if let Some(place) = self.find(topic, id, from_ms, stored) {
                copies.push(delta);
                first.get_or_insert(place);
                continue;
            }
            let offset = base_offset + delta;
            let seen = SeenRecord { at_ms: now_ms, partition, offset, ticket };
            if self.replicates {
                self.in_flight.add(id, seen);
                new.push((delta as u32, id));
            }
            if let Some(learned) = &mut self.learned {
                learned.remember(topic, id, seen, self.seeding.has_begun());
            }
        }
        let new = new.into_iter().collect();
        // An idempotent producer numbers its batches: the batch keeps its place, even if empty.
        if let Some((partition, offset)) = first
            && copies.len() == header.record_count as usize
            && !header.is_idempotent()
        {
            return (Deduplicated::Nothing { partition, offset }, new);
        }
        match copies.is_empty() {
            true => (Deduplicated::Whole, new),
            false => (Deduplicated::Part(copies), new),
        }
    }

    fn find(
        &self,
        topic: TopicId,
        id: u128,
        from_ms: i64,
        stored: &StoredIds,
    ) -> Option<(PartitionId, Offset)> {
        let in_flight = self.in_flight.find(topic, id);
        let learned = || self.learned.as_ref().and_then(|learned| learned.find(topic, id));
        let seen = in_flight.or_else(learned).filter(|seen| seen.at_ms >= from_ms);
        seen.map(|seen| (seen.partition, seen.offset)).or_else(|| {
            let known = stored.find(topic, id, from_ms)?;
            Some((PartitionId::new(topic, known.partition), known.offset))
        })
    }

    /// Returns the records of a batch that are copies of others in it or of those that arrived since `from_ms`;
    /// `None` if none or all of them are. Notes nothing.
    pub(crate) fn copies_among(
        &self,
        topic: TopicId,
        header: &BatchHeader,
        ids: &RecordIds,
        from_ms: i64,
        stored: &StoredIds,
    ) -> Option<CopyPositions> {
        let mut own = HashSet::default();
        let mut is_copy =
            |id: u128| self.find(topic, id, from_ms, stored).is_some() || !own.insert(id);
        let copies = ids.0.iter().filter(|(_, id)| is_copy(*id));
        let copies: CopyPositions = copies.map(|(delta, _)| *delta).collect();
        (!copies.is_empty() && copies.len() < header.record_count as usize).then_some(copies)
    }

    /// Learns the ids of a batch that another shard hands over, if this leader learns from logs.
    pub(crate) fn learn_imported(&mut self, batches: &[(Bytes, BatchTarget)]) {
        let Some(learned) = self.learned.as_mut() else { return };
        for (bytes, going) in batches {
            learned.learn_batch(bytes, *going);
        }
        if let Some((_, going)) = batches.first().filter(|_| !self.seeding.has_begun()) {
            learned.put_in_order(going.partition.topic);
        }
    }

    /// Whether the ids in imported batches count. Otherwise they arrive by a step of their own.
    pub fn learns(&self) -> bool {
        self.learned.is_some()
    }

    /// The entry of this proposal is applied: the state has its ids.
    pub(crate) fn applied(&mut self, ticket: u64) {
        self.in_flight.applied(ticket);
    }

    /// Proposals from this ticket on failed: their records do not exist.
    pub(crate) fn forget_from(&mut self, ticket: u64) {
        self.in_flight.forget_from(ticket);
        if let Some(learned) = &mut self.learned {
            learned.forget_from(ticket);
        }
        // The failed proposals may include parts of the stored ids.
        self.seeding = Seeding::default();
    }

    /// Begins a term after another node's. Reads the log only where the state does not have all ids.
    pub async fn begin(&mut self, shard: &Shard, now_ms: i64) {
        *self = Self::default();
        let is_complete = shard.rows().record_ids().is_complete();
        if !is_complete {
            self.learned = Some(ScannedIds::load(shard, now_ms).await);
        }
    }

    /// Whether a proposal of a former term may be placed: no other leader has accepted one of its ids meanwhile.
    pub(crate) fn may_place_again(commands: &[Command], bodies: &[Body], view: &View<'_>) -> bool {
        let stored = view.rows.record_ids();
        in_flight::ids_of(commands, bodies)
            .all(|(id, partition, _, from_ms)| stored.find(partition.topic, id, from_ms).is_none())
    }

    /// Notes the ids of a proposal again when it is placed in another term.
    pub(crate) fn place_again(&mut self, ticket: u64, commands: &[Command], bodies: &[Body]) {
        self.in_flight.place_again(ticket, commands, bodies);
    }
}

/// Whether a batch for a topic with a window came without ids, such as from another node.
fn lacks_ids(batch: &AppendBatch, view: &View<'_>) -> bool {
    batch.ids.is_none()
        && !batch.header.attributes.is_transactional()
        && batch.partitions().any(|partition| {
            let topic = view.catalog.topic(partition.topic);
            topic.is_some_and(|topic| topic.config.dedup_window_ms > 0)
        })
}

/// Reads the ids of batches that came without, where that is quick. The state must not be locked.
pub(crate) fn read_ids(drained: &mut [Request], shard: &Shard) {
    let mut lacking: Vec<(usize, usize)> = Vec::new();
    shard.read(|view| {
        for (place, request) in drained.iter().enumerate() {
            let Request::Append { batches, .. } = request else { continue };
            let quick = |batch: &AppendBatch| is_quick(&batch.header, batch.bytes.len());
            let lacks = |(_, batch): &(usize, &AppendBatch)| quick(batch) && lacks_ids(batch, view);
            lacking.extend(batches.iter().enumerate().filter(lacks).map(|(at, _)| (place, at)));
        }
    });
    for (place, at) in lacking {
        if let Some(Request::Append { batches, .. }) = drained.get_mut(place)
            && let Some(batch) = batches.get_mut(at)
        {
            batch.ids = Some(RecordIds::read(&batch.bytes));
        }
    }
}

/// Whether reading the ids of a request takes long.
pub(crate) fn needs_ids(request: &Request, view: &View<'_>) -> bool {
    let Request::Append { batches, .. } = request else { return false };
    batches
        .iter()
        .any(|batch| lacks_ids(batch, view) && !is_quick(&batch.header, batch.bytes.len()))
}

#[cfg(test)]
mod tests;
