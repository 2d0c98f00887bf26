//! Looking at lease groups, and changing them from outside: peek, purge, delete, seek, delayed
//! records, counters. Moving dead letters back is in [`super::redrive`].

use std::sync::Arc;

use base::limits::{LEASE_READ_BYTES, LEASE_READ_UNPACKED_BYTES};
use base::{LeaseGroupId, Offset, PartitionId};
use bytes::Bytes;
use dispatch::{Peeked as Known, RemoveRefused, SessionId};
use record::{BatchError, Reserved, SharedBatch, SharedRecord};
use tokio::sync::oneshot;

use crate::broker::Broker;
use crate::error::{ExecuteError, FetchError, Unavailable};
use crate::fetch::batches_in;
use crate::timeline::Shifts;

use super::dead_letter::DeadLetterRouter;
use super::driver::Driver;
use super::error::{BrowseError, RemoveError, SeekError, SettleError};
use super::group::{Counts, depth, find};
use super::rates::Rates;
use super::session::LeaseSession;

/// Where a record of a group stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordState {
    Ready,
    /// Ready but for an earlier record of its key that is not settled.
    Blocked,
    Leased {
        session: SessionId,
        /// When the lease ends, ms since the epoch; `None`: with its session.
        expires_ms: Option<i64>,
    },
    Delayed {
        /// Ms since the epoch.
        due_ms: i64,
    },
    /// On its way to the dead letters.
    DeadLettering,
}

/// A record that was looked at and not taken.
#[derive(Clone, Debug)]
pub struct Peeked {
    pub partition: u32,
    pub offset: Offset,
    pub state: RecordState,
    /// How often it was delivered and came back.
    pub attempts: u16,
    pub record: SharedRecord,
}

#[derive(Clone, Debug)]
pub struct PeekOptions {
    /// `None`: all, one after another.
    pub partition: Option<u32>,
    /// In each partition.
    pub from: Offset,
    pub records_max: usize,
}

impl Default for PeekOptions {
    fn default() -> Self {
        Self { partition: None, from: 0, records_max: 100 }
    }
}

/// What a group holds and does.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counters {
    /// Records that are not settled.
    pub depth: u64,
    /// Of those, neither leased, delayed nor on the way to the dead letters. A group that nobody uses
    /// counts all as ready.
    pub ready: u64,
    pub leased: u64,
    pub leased_bytes: u64,
    pub delayed: u64,
    pub consumers: u32,
    /// Timestamp of the oldest record that is not settled, ms since the epoch, as far as is known.
    pub oldest_unsettled_ms: Option<i64>,
    /// Since the node started.
    pub delivered: u64,
    pub redelivered: u64,
    pub settled: u64,
    pub dead_letters: u64,
    pub rates: Rates,
}

/// A record that is to be delivered later.
#[derive(Clone, Debug)]
pub struct DelayedRecord {
    pub partition: u32,
    pub offset: Offset,
    /// Ms since the epoch.
    pub due_ms: i64,
    /// Its `postroad.id`.
    pub id: Option<Bytes>,
    pub record: SharedRecord,
}

/// What somebody holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseInfo {
    pub partition: u32,
    pub offset: Offset,
    pub attempt: u16,
    pub session: SessionId,
    /// Ms since the epoch; `None`: with its session.
    pub expires_ms: Option<i64>,
}

/// Where a group goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Everything that is still there.
    Start,
    /// Nothing of what is there.
    End,
    /// The first record at or after this time, ms since the epoch.
    Time(i64),
    /// Of single partitions; the others stay.
    Offsets(Vec<(u32, Offset)>),
}

impl Broker {
    /// A new session that consumes and takes by lease.
    pub fn lease_session(&self) -> LeaseSession {
        LeaseSession::open(self.delivery().clone())
    }

    /// Who finds the place of dead letters for groups whose `dead.letter.route` begins with this
    /// scheme and a colon; it is given the rest. Until it is set, their dead letters wait.
    pub fn set_dead_letter_router(&self, scheme: &'static str, router: Arc<dyn DeadLetterRouter>) {
        self.delivery().routers.set(scheme, router);
    }

    /// `None` when there is no such group.
    pub async fn counters(&self, group: LeaseGroupId) -> Option<Counters> {
        self.delivery().ask(move |driver| driver.counters(group)).await?
    }

    /// Unsettled records and where they stand, in the order of their offsets, untouched.
    pub async fn peek(
        &self,
        group: LeaseGroupId,
        options: PeekOptions,
    ) -> Result<Vec<Peeked>, BrowseError> {
        let (topic, count) = self.partitions_of(group)?;
        let mut peeked = Vec::new();
        let partitions = match options.partition {
            Some(partition) => partition..partition.saturating_add(1).min(count),
            None => 0..count,
        };
        for partition in partitions {
            let mut from = options.from;
            let mut reader = RecordReader::new(self, PartitionId::new(topic, partition));
            while peeked.len() < options.records_max {
                let records_max = options.records_max - peeked.len();
                let known = self
                    .ask(move |driver| driver.known_from(group, partition, from, records_max))
                    .await?
                    .ok_or(BrowseError::UnknownGroup(group))?;
                let Some(last) = known.last() else { break };
                from = last.offset + 1;
                for known in known {
                    // One that compaction took is not there, though the group has not met it yet.
                    let Some(record) = reader.record(known.offset).await? else { continue };
                    peeked.push(told(&known, record, &self.timeline().shifts()));
                }
            }
        }
        Ok(peeked)
    }

    /// Who holds what, by partition and offset, after the given place.
    pub async fn leases(
        &self,
        group: LeaseGroupId,
        after: Option<(u32, Offset)>,
        leases_max: usize,
    ) -> Vec<LeaseInfo> {
        let asked = self.delivery().ask(move |driver| {
            let Some(group) = driver.groups.get(&group) else { return Vec::new() };
            group.dispatch.leases(after, leases_max)
        });
        let leases = asked.await.unwrap_or_default().into_iter();
        let shifts = self.timeline().shifts();
        leases
            .map(|lease| LeaseInfo {
                partition: lease.partition,
                offset: lease.offset,
                attempt: lease.attempt,
                session: lease.session,
                expires_ms: ends(lease.expires_ms, &shifts),
            })
            .collect()
    }

    /// Settles all that is not leased; how many records. Durable when it returns.
    pub async fn purge(&self, group: LeaseGroupId) -> Result<u64, RemoveError> {
        let (durable, done) = oneshot::channel();
        let purged = self
            .ask(move |driver| {
                if !driver.load(group) {
                    return Err(RemoveError::UnknownGroup(group));
                }
                driver.appended(None);
                let purged = driver.groups.get_mut(&group).map_or(0, |it| it.dispatch.purge());
                driver.changed_from_outside(group, durable);
                Ok(purged)
            })
            .await??;
        settled(done).await?;
        Ok(purged)
    }

    /// Settles one record that is not leased. Durable when it returns.
    pub async fn delete_record(
        &self,
        group: LeaseGroupId,
        partition: u32,
        offset: Offset,
    ) -> Result<(), RemoveError> {
        let (durable, done) = oneshot::channel();
        self.ask(move |driver| {
            if !driver.load(group) {
                return Err(RemoveError::UnknownGroup(group));
            }
            driver.appended(None);
            if let Some(found) = driver.groups.get_mut(&group) {
                found.dispatch.remove(partition, offset)?;
            }
            driver.changed_from_outside(group, durable);
            Ok(())
        })
        .await??;
        settled(done).await
    }

    /// Records that are to be delivered later, in the order of the log after the given place. Reads
    /// the group's backlog: it is for people, not for programs in a loop.
    pub async fn list_delayed(
        &self,
        group: LeaseGroupId,
        after: Option<(u32, Offset)>,
        records_max: usize,
    ) -> Result<Vec<DelayedRecord>, BrowseError> {
        let mut delayed = Vec::new();
        self.for_each_delayed(group, after, |record| {
            delayed.push(record);
            delayed.len() < records_max
        })
        .await?;
        Ok(delayed)
    }

    /// Settles records that are to be delivered later and have this `postroad.id`; how many. Reads
    /// the group's backlog. Durable when it returns.
    pub async fn cancel_delayed(&self, group: LeaseGroupId, id: &[u8]) -> Result<u64, RemoveError> {
        let mut found = Vec::new();
        let looked = self.for_each_delayed(group, None, |record| {
            if record.id.as_deref() == Some(id) {
                found.push((record.partition, record.offset));
            }
            true
        });
        looked.await.map_err(|error| match error {
            BrowseError::UnknownGroup(group) => RemoveError::UnknownGroup(group),
            BrowseError::Read(error) => RemoveError::Read(error),
            BrowseError::Unavailable(why) => RemoveError::Unavailable(why),
        })?;
        let mut cancelled = 0;
        for (partition, offset) in found {
            match self.delete_record(group, partition, offset).await {
                Ok(()) => cancelled += 1,
                // It became due meanwhile.
                Err(RemoveError::Leased { .. } | RemoveError::NotThere { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(cancelled)
    }

    /// Moves a group, forwards or back. Its leases are void.
    pub async fn seek(&self, group: LeaseGroupId, to: SeekTo) -> Result<(), SeekError> {
        let (topic, partitions) =
            self.partitions_of(group).map_err(|_| SeekError::UnknownGroup(group))?;
        let mut starts = Vec::new();
        match to {
            SeekTo::Offsets(offsets) => starts = offsets,
            SeekTo::Start | SeekTo::End => {
                for index in 0..partitions {
                    let Some(bounds) = self.bounds(PartitionId::new(topic, index)) else {
                        continue;
                    };
                    let start = if to == SeekTo::Start { bounds.log_start } else { bounds.end };
                    starts.push((index, start));
                }
            }
            SeekTo::Time(time_ms) => {
                for index in 0..partitions {
                    let partition = PartitionId::new(topic, index);
                    let at = self.offset_at_time(partition, time_ms).await?;
                    let end = self.bounds(partition).map_or(0, |bounds| bounds.end);
                    starts.push((index, at.map_or(end, |at| at.offset)));
                }
            }
        }
        match self.shards().seek_lease_group(group, starts).await {
            Ok(()) => Ok(()),
            Err(ExecuteError::Refused(refusal)) => Err(SeekError::Refused(refusal)),
            Err(ExecuteError::Unavailable(why)) => Err(SeekError::Unavailable(why)),
        }
    }

    async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Driver) -> R + Send + 'static,
    ) -> Result<R, Unavailable> {
        self.delivery().ask(question).await.ok_or(Unavailable::Stopping)
    }

    pub(super) fn partitions_of(
        &self,
        group: LeaseGroupId,
    ) -> Result<(base::TopicId, u32), BrowseError> {
        self.read(|state| {
            find(&state.catalog, group).map(|(_, topic)| (topic.id, topic.partition_count()))
        })
        .ok_or(BrowseError::UnknownGroup(group))
    }

    /// Calls `found` with each unsettled record that is to be delivered later than now, until it
    /// answers false.
    async fn for_each_delayed(
        &self,
        group: LeaseGroupId,
        after: Option<(u32, Offset)>,
        mut found: impl FnMut(DelayedRecord) -> bool,
    ) -> Result<(), BrowseError> {
        let (topic, partitions) = self.partitions_of(group)?;
        let (first, from) = after.map_or((0, 0), |(partition, offset)| (partition, offset + 1));
        for partition in first..partitions {
            let id = PartitionId::new(topic, partition);
            let mut offset = if partition == first { from } else { 0 };
            loop {
                let floor = self.read(|state| Some(state.rows.progress(group, partition)?.floor()));
                offset = offset.max(floor.ok_or(BrowseError::UnknownGroup(group))?);
                let batches = read_shared(self, id, offset).await?;
                let Some(last) = batches.last() else { break };
                let next = last.header().next_offset();
                for batch in &batches {
                    if !self.visit_delayed(group, partition, offset, batch, &mut found) {
                        return Ok(());
                    }
                }
                offset = next;
            }
        }
        Ok(())
    }

    fn visit_delayed(
        &self,
        group: LeaseGroupId,
        partition: u32,
        from: Offset,
        batch: &Arc<SharedBatch>,
        found: &mut impl FnMut(DelayedRecord) -> bool,
    ) -> bool {
        let (now_ms, shifts) = (self.timeline().now_ms(), self.timeline().shifts());
        for record in batch.records().map_while(Result::ok).filter(|it| it.offset >= from) {
            let reserved = Reserved::read(&record.headers);
            let waits = |due_ms: &i64| shifts.place(*due_ms, record.timestamp) > now_ms;
            let Some(due_ms) = reserved.deliver_at_ms.filter(waits) else { continue };
            let offset = record.offset;
            let settled = self.read(|state| {
                let progress = state.rows.progress(group, partition);
                progress.is_none_or(|progress| progress.is_settled(offset))
            });
            let Some(record) = batch.record(offset).filter(|_| !settled) else { continue };
            let id = reserved.id.map(|id| record.share(id));
            if !found(DelayedRecord { partition, offset, due_ms, id, record }) {
                return false;
            }
        }
        true
    }
}

/// Batches from the one that holds `offset` on; none at the end.
async fn read_shared(
    broker: &Broker,
    partition: PartitionId,
    offset: Offset,
) -> Result<Vec<Arc<SharedBatch>>, FetchError> {
    let bounds = broker.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
    let offset = offset.max(bounds.log_start);
    if offset >= bounds.end {
        return Ok(Vec::new());
    }
    let found = broker.read_batches(partition, offset, LEASE_READ_BYTES).await?;
    let unreadable = |error: BatchError| FetchError::Storage(error.to_string());
    let (mut batches, mut unpacked) = (Vec::new(), 0);
    for batch in batches_in(&found.records) {
        if unpacked >= LEASE_READ_UNPACKED_BYTES {
            break;
        }
        let (header, bytes) = batch.map_err(unreadable)?;
        let base_offset = Some(header.base_offset);
        let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, base_offset);
        let batch = broker.cpu().read_batch(bytes, decode).await.map_err(unreadable)?;
        unpacked += batch.bytes();
        batches.push(Arc::new(batch));
    }
    Ok(batches)
}

/// Reads single records that ascend, a batch at a time.
pub(super) struct RecordReader<'a> {
    broker: &'a Broker,
    partition: PartitionId,
    batches: std::collections::VecDeque<Arc<SharedBatch>>,
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(broker: &'a Broker, partition: PartitionId) -> Self {
        Self { broker, partition, batches: Default::default() }
    }

    /// `None` when it is not stored any more.
    pub(super) async fn record(
        &mut self,
        offset: Offset,
    ) -> Result<Option<SharedRecord>, FetchError> {
        while self.batches.front().is_some_and(|batch| batch.header().last_offset() < offset) {
            self.batches.pop_front();
        }
        if self.batches.is_empty() {
            self.batches = read_shared(self.broker, self.partition, offset).await?.into();
        }
        Ok(self.batches.front().and_then(|batch| batch.record(offset)))
    }
}

/// By the wall clock.
fn ends(expires_ms: i64, shifts: &Shifts) -> Option<i64> {
    Some(expires_ms).filter(|at| *at != i64::MAX).map(|at| shifts.wall(at))
}

fn told(known: &Known, record: SharedRecord, shifts: &Shifts) -> Peeked {
    let state = match known.state {
        dispatch::RecordState::Ready => RecordState::Ready,
        dispatch::RecordState::Blocked => RecordState::Blocked,
        dispatch::RecordState::Delayed { due_ms } => {
            RecordState::Delayed { due_ms: shifts.wall(due_ms) }
        }
        dispatch::RecordState::Leased { session, expires_ms, .. } => {
            RecordState::Leased { session, expires_ms: ends(expires_ms, shifts) }
        }
        dispatch::RecordState::Dead { .. } | dispatch::RecordState::Settling => {
            RecordState::DeadLettering
        }
    };
    let Known { partition, offset, attempts, .. } = *known;
    Peeked { partition, offset, state, attempts, record }
}

/// Waits until what was changed from outside is durable.
pub(super) async fn settled(
    done: oneshot::Receiver<Vec<Result<(), SettleError>>>,
) -> Result<(), RemoveError> {
    let unavailable = |why| RemoveError::Unavailable(why);
    let results = done.await.map_err(|_| unavailable(Unavailable::Stopping))?;
    match results.into_iter().find_map(Result::err) {
        Some(SettleError::Unavailable(why)) => Err(unavailable(why)),
        _ => Ok(()),
    }
}

impl From<RemoveRefused> for RemoveError {
    fn from(refused: RemoveRefused) -> Self {
        match refused {
            RemoveRefused::Absent { partition, offset }
            | RemoveRefused::NotDelayed { partition, offset } => {
                Self::NotThere { partition, offset }
            }
            RemoveRefused::Busy { partition, offset } => Self::Leased { partition, offset },
        }
    }
}

impl Driver {
    fn counters(&mut self, id: LeaseGroupId) -> Option<Counters> {
        let (depth, topic, partitions) = self.shard.read(|state| {
            let (group, topic) = find(&state.catalog, id)?;
            let (progress, rows) = (state.rows.lease_group(group.id)?, state.rows.topic(topic.id)?);
            Some((depth(progress, rows), topic.id, topic.partition_count()))
        })?;
        self.appended(None);
        let published = self.published.per_second(topic, self.clock.now_ms());
        let now_ms = self.timeline.now_ms();
        let Some(group) = self.groups.get_mut(&id) else {
            let (counts, _) = self.retired.get(&id).copied().unwrap_or_default();
            let rates = Rates { published, ..Rates::default() };
            let counters = Counters { depth, ready: depth, rates, ..Counters::default() };
            return Some(with_counts(counters, counts));
        };
        group.meters.note(group.counts, now_ms);
        let known = group.dispatch.counters();
        let oldest = (0..partitions).filter_map(|index| group.dispatch.oldest(index)?.1);
        let counters = Counters {
            depth: known.depth,
            ready: known.ready + known.blocked,
            leased: known.leased,
            leased_bytes: known.leased_bytes,
            delayed: known.delayed,
            consumers: known.consumers,
            oldest_unsettled_ms: oldest.min().map(|at| self.timeline.shifts().wall(at)),
            rates: Rates { published, ..group.meters.rates(now_ms) },
            ..Counters::default()
        };
        Some(with_counts(counters, group.counts))
    }

    /// What the group's engine knows of a partition's unsettled records. `None`: no such group.
    fn known_from(
        &mut self,
        group: LeaseGroupId,
        partition: u32,
        from: Offset,
        records_max: usize,
    ) -> Option<Vec<Known>> {
        if !self.load(group) {
            return None;
        }
        self.appended(None);
        let group = self.groups.get(&group)?;
        Some(group.dispatch.peek(partition, from, records_max))
    }

    /// Somebody from outside changed the group, and waits for that to be durable.
    pub(super) fn changed_from_outside(
        &mut self,
        group: LeaseGroupId,
        durable: oneshot::Sender<Vec<Result<(), SettleError>>>,
    ) {
        self.mark_changed(group);
        self.enqueue(group);
        self.wait_until_durable(group, durable);
    }
}

fn with_counts(counters: Counters, counts: Counts) -> Counters {
    let Counts { delivered, redelivered, settled, dead_letters } = counts;
    Counters { delivered, redelivered, settled, dead_letters, ..counters }
}
