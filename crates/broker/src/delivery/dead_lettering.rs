//! Dead-lettering: a record's copy is appended where it belongs, in the same log entry that
//! settles it, so that a crash neither loses nor doubles it.
//!
//! A group's dead letters are appended in the order in which they died, one request at a time. What
//! is refused (a full disk, a full topic) is tried again: it is not lost, and not delivered.

use std::sync::Arc;
use std::time::Duration;

use base::limits::{BATCH_BYTES_DEFAULT, DEAD_LETTERS_PER_ENTRY, ENTRY_ROW_BYTES};
use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use bytes::{Bytes, BytesMut};
use dispatch::{DeadLetter, DeadReason};
use machine::GroupSettle;
use record::{BatchBuilder, BatchHeader, BatchOptions, SharedRecord};
use tokio::time::Instant;

use crate::append::{AppendBatch, Appended};
use crate::error::{AppendError, Unavailable};

use super::commit::UnderWay;
use super::dead_letter::{DeadLetterRouter, DeadRecord, DeathReason};
use super::driver::Driver;
use super::group::{Group, PendingLetter};

const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A request under way that appends the first `count` of a group's dead letters.
#[derive(Debug)]
pub(super) struct DeadLettering {
    pub(super) group: LeaseGroupId,
    engine: u64,
    count: usize,
}

impl Group {
    /// Why it died is known better here.
    pub(super) fn pending_letter(&mut self, letter: DeadLetter) -> PendingLetter {
        let reason = match letter.reason {
            _ if self.overflowed.remove(&(letter.partition, letter.offset)) => {
                DeathReason::Overflow
            }
            DeadReason::Rejected => DeathReason::Rejected,
            DeadReason::Attempts => DeathReason::Attempts,
            DeadReason::Expired => DeathReason::Expired,
        };
        PendingLetter { letter, reason }
    }

    /// Takes over dead letters, to be appended.
    pub(super) fn add_dead(&mut self, dead: Vec<PendingLetter>) {
        self.died += dead.len() as u64;
        self.dead.extend(dead);
    }

    pub(super) fn dead_record(
        &self,
        PendingLetter { letter, reason }: PendingLetter,
        record: SharedRecord,
        time_ms: i64,
    ) -> DeadRecord {
        DeadRecord {
            group: self.id,
            group_name: self.name.clone(),
            topic: self.topic,
            topic_name: self.topic_name.clone(),
            partition: letter.partition,
            offset: letter.offset,
            reason,
            attempts: letter.attempts,
            time_ms,
            record,
        }
    }
}

/// Where a group's dead letters go.
pub(super) enum DeadLetterTarget {
    Routed { route: String, router: Arc<dyn DeadLetterRouter> },
    Topic { topic: TopicId, partitions: u32 },
    Nowhere,
}

impl DeadLetterTarget {
    pub(super) fn add(&self, letters: &mut DeadLetterBatches, dead: DeadRecord) {
        match self {
            Self::Routed { route, router } => letters.routed(router.route(route, &dead)),
            Self::Topic { topic, partitions } => {
                letters.add(PartitionId::new(*topic, dead.partition % partitions), &dead);
            }
            Self::Nowhere => {
                tracing::warn!(group = %dead.group_name, topic = %dead.topic_name,
                    offset = dead.offset, reason = dead.reason.name(),
                    "there is no place for a dead letter; it is dropped");
            }
        }
    }
}

impl Driver {
    /// Starts a request where dead letters wait and none is under way.
    pub(super) fn start_dead_lettering(&mut self) {
        if self.groups_with_dead.is_empty() {
            return;
        }
        let ids: Vec<LeaseGroupId> = self.groups_with_dead.iter().copied().collect();
        for id in ids {
            let Some(group) = self.groups.get(&id).filter(|group| !group.dead.is_empty()) else {
                self.groups_with_dead.remove(&id);
                continue;
            };
            if group.dead_lettering {
                continue;
            }
            if let Some(after) = group.dead_letter_after.filter(|after| *after > Instant::now()) {
                self.dead_letter_at = Some(self.dead_letter_at.map_or(after, |at| at.min(after)));
                continue;
            }
            self.dead_letter_first(id);
        }
    }

    /// `None` while nobody is there who knows: gateways come after the broker, and to append then would be
    /// to drop.
    pub(super) fn dead_letter_target(&self, id: LeaseGroupId) -> Option<DeadLetterTarget> {
        let config = &self.groups.get(&id)?.config;
        if let Some(named) = &config.dead_letter_route {
            let (route, router) = self.routers.of(named)?;
            return Some(DeadLetterTarget::Routed { route: route.to_owned(), router });
        }
        let topic = config.dead_letter_topic.as_deref().and_then(|name| {
            self.shard.read(|state| {
                let topic = state.catalog.topic_named(name)?;
                Some((topic.id, topic.partition_count()))
            })
        });
        Some(topic.map_or(DeadLetterTarget::Nowhere, |(topic, partitions)| {
            DeadLetterTarget::Topic { topic, partitions }
        }))
    }

    /// Moves the first of a group's dead letters, as many as are in memory and fit.
    fn dead_letter_first(&mut self, id: LeaseGroupId) {
        let Some(target) = self.dead_letter_target(id) else { return self.dead_letter_later(id) };
        let Some(group) = self.groups.get(&id) else { return };
        let engine = group.engine;
        let now_ms = self.clock.now_ms();
        let mut letters = DeadLetterBatches::default();
        let mut settled: Vec<(u32, Offset)> = Vec::new();
        let mut missing = None;
        for pending in group.dead.iter().take(DEAD_LETTERS_PER_ENTRY) {
            let letter = pending.letter;
            let partition = group.partition(letter.partition);
            let at = (letter.partition, letter.offset);
            match self.batches.record(partition, letter.offset) {
                None if self.lost.contains(&(partition, letter.offset)) => settled.push(at),
                // Nothing is left of it.
                Some(Err(_)) => settled.push(at),
                None => {
                    missing = Some((partition, letter.offset));
                    break;
                }
                Some(Ok(record)) => {
                    target.add(&mut letters, group.dead_record(*pending, record, now_ms));
                    settled.push(at);
                    if letters.bytes >= BATCH_BYTES_DEFAULT as usize {
                        break;
                    }
                }
            }
        }
        if settled.is_empty() {
            if let Some((partition, offset)) = missing {
                self.read_record(partition, offset);
            }
            return;
        }
        let under_way = DeadLettering { group: id, engine, count: settled.len() };
        if let Some(group) = self.groups.get_mut(&id) {
            group.dead_lettering = true;
        }
        let settles = settles_of(id, settled);
        self.execute_with(vec![id], settles, letters.batches(), UnderWay::DeadLettering(under_way));
    }

    fn dead_letter_later(&mut self, id: LeaseGroupId) {
        let after = Instant::now() + TRY_AGAIN_AFTER;
        if let Some(group) = self.groups.get_mut(&id) {
            group.dead_letter_after = Some(after);
        }
        self.dead_letter_at = Some(self.dead_letter_at.map_or(after, |at| at.min(after)));
    }

    /// The request that appends dead letters came to its end. True where the group has to be made
    /// anew, because it took effect for settled what was refused.
    pub(super) fn dead_lettered(
        &mut self,
        under_way: DeadLettering,
        result: Result<Vec<Result<Appended, AppendError>>, Unavailable>,
    ) -> bool {
        let DeadLettering { group: id, engine, count } = under_way;
        let Some(group) = self.groups.get_mut(&id) else { return false };
        let refused = match result {
            Ok(rows) => cause(rows),
            Err(unavailable) => Some(unavailable.into()),
        };
        if group.engine != engine {
            // The new engine took them for settled, since their entry was under way.
            return refused.is_some();
        }
        group.dead_lettering = false;
        if let Some(why) = refused {
            tracing::warn!(group = %group.name, topic = %group.topic_name, %why,
                "dead letters could not be appended; trying again");
            group.dead_letter_after = Some(Instant::now() + TRY_AGAIN_AFTER);
            if let AppendError::Unavailable(why) = why {
                // Nobody can tell when, or whether it has happened.
                let waiters = std::mem::take(&mut group.reject_waiters);
                waiters.into_iter().for_each(|(_, waiter)| waiter.fail(&why));
                group.dead_lettering_failed = Some(why);
            }
        } else {
            group.dead_letter_after = None;
            group.dead_lettering_failed = None;
            for PendingLetter { letter, .. } in group.dead.drain(..count) {
                group.dispatch.ended(letter.partition, letter.offset);
            }
            group.dead_lettered += count as u64;
            group.counts.dead_letters += count as u64;
            group.counts.settled += count as u64;
            self.answer_dead_lettered(id);
            self.enqueue(id);
        }
        false
    }

    /// A dead letter could not be read: it is not tried again at once.
    pub(super) fn postpone_dead_letters(&mut self, partition: PartitionId, offset: Offset) {
        for id in &self.groups_with_dead {
            let Some(group) = self.groups.get_mut(id) else { continue };
            let first = group.dead.front().map(|pending| pending.letter);
            if first
                .is_some_and(|it| group.partition(it.partition) == partition && it.offset == offset)
            {
                group.dead_letter_after = Some(Instant::now() + TRY_AGAIN_AFTER);
            }
        }
    }

    /// Answers rejects whose dead letters are appended.
    pub(super) fn answer_dead_lettered(&mut self, id: LeaseGroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let mut ready = Vec::new();
        while let Some((mark, _)) = group.reject_waiters.front()
            && *mark <= group.dead_lettered
        {
            ready.extend(group.reject_waiters.pop_front().map(|(_, waiter)| waiter));
        }
        for waiter in ready {
            self.answer(waiter);
        }
    }
}

/// What stood in the way of a unit, of the answers to its rows: it is among those that were refused
/// only because of it.
pub(super) fn cause(rows: Vec<Result<Appended, AppendError>>) -> Option<AppendError> {
    let mut refused = rows.into_iter().filter_map(Result::err);
    let first = refused.next()?;
    match first {
        AppendError::UnitRefused => {
            refused.find(|it| *it != AppendError::UnitRefused).or(Some(AppendError::UnitRefused))
        }
        cause => Some(cause),
    }
}

/// The settles of dead-lettered records, as ranges of each partition.
pub(super) fn settles_of(group: LeaseGroupId, mut records: Vec<(u32, Offset)>) -> Vec<GroupSettle> {
    records.sort_unstable();
    let mut settles: Vec<GroupSettle> = Vec::new();
    for (partition, offset) in records {
        if settles.last().is_none_or(|last| last.partition != partition) {
            let (settled, attempts) = (Vec::new(), Vec::new());
            settles.push(GroupSettle { group, partition, settled, attempts });
        }
        let Some(last) = settles.last_mut() else { continue };
        match last.settled.last_mut() {
            Some((first, count)) if *first + u64::from(*count) == offset => *count += 1,
            _ => last.settled.push((offset, 1)),
        }
    }
    settles
}

/// Dead letters on their way, as batches of the partitions that they go to.
#[derive(Default)]
pub(super) struct DeadLetterBatches {
    builders: Vec<(PartitionId, BatchBuilder)>,
    finished: Vec<AppendBatch>,
    bytes: usize,
}

impl DeadLetterBatches {
    pub(super) fn routed(&mut self, batches: Vec<(PartitionId, Bytes)>) {
        // What goes to several partitions alike is written once.
        let same = |a: &(_, Bytes), b: &(_, Bytes)| a.1.as_ptr_range() == b.1.as_ptr_range();
        for batches in batches.chunk_by(same) {
            let [(partition, bytes), others @ ..] = batches else { continue };
            self.bytes += bytes.len() + batches.len() * ENTRY_ROW_BYTES;
            match BatchHeader::parse(bytes) {
                Ok(header) => {
                    let also = others.iter().map(|(partition, _)| *partition).collect();
                    let own = BytesMut::from(&bytes[..]);
                    self.finished
                        .push(AppendBatch { also, ..AppendBatch::new(*partition, header, own) });
                }
                Err(error) => {
                    tracing::error!(%error, "a router made no valid batch of a dead letter");
                }
            }
        }
    }

    pub(super) fn add(&mut self, to: PartitionId, dead: &DeadRecord) {
        let place = match self.builders.iter().position(|(partition, _)| *partition == to) {
            Some(place) => place,
            None => {
                self.builders.push((to, BatchBuilder::new(BatchOptions::default())));
                self.builders.len() - 1
            }
        };
        if self.builders[place].1.len() >= BATCH_BYTES_DEFAULT as usize {
            let fresh = (to, BatchBuilder::new(BatchOptions::default()));
            let (to, full) = std::mem::replace(&mut self.builders[place], fresh);
            self.finished.push(append_batch(to, full));
        }
        let (_, builder) = &mut self.builders[place];
        let before = builder.len();
        if let Err(error) = dead.copy_into(builder, &[]) {
            // As large as a batch can be: there is no room for what killed it.
            tracing::error!(%error, offset = dead.offset, "a dead letter is too large; it is dropped");
        }
        self.bytes += builder.len() - before;
    }

    /// About what they take of an entry.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.builders.iter().all(|(_, builder)| builder.is_empty())
    }

    pub(super) fn batches(self) -> Vec<AppendBatch> {
        let mut batches = self.finished;
        for (partition, builder) in self.builders {
            if !builder.is_empty() {
                batches.push(append_batch(partition, builder));
            }
        }
        batches
    }
}

pub(super) fn append_batch(partition: PartitionId, builder: BatchBuilder) -> AppendBatch {
    let bytes = BytesMut::from(Bytes::from(builder.finish()));
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}
