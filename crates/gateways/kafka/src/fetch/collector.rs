//! Reads for one fetch: partition after partition, until the response is full.
//!
//! A served partition goes to the back of the queue and an unserved one stays in front. So a consumer whose
//! responses are always full still receives all its partitions in time. The first partition with data returns
//! at least one batch, whatever the limits: otherwise a batch above them would block its consumer for ever
//! (KIP-74).

use std::sync::Arc;

use base::{HashMap, HashSet, Offset, PartitionId, TopicId};
use broker::{AbortedRange, Bounds, EpochEnd, StoredBatches, YieldBudget, batches_in};
use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use tokio::sync::OwnedSemaphorePermit;

use crate::authorization::{Caller, topic_refused};
use crate::errors::Fault;
use crate::fetch::near::ClientRack;
use crate::fetch::response::FetchedPartition;
use crate::leaders::{ReachableNode, Referrals, is_about_leader, not_leader};
use crate::state::fetch_sessions::{FetchParameters, FetchState, SessionPartition};
use crate::state::{FETCH_BUDGET_UNIT, Gateway};

/// Byte limit of a fetch while the node's budget for fetched bytes is used up: consumers that do not drain
/// their responses must not block the others.
const WITHOUT_ROOM_BYTES_MAX: usize = 64 << 10;

pub(crate) struct Collector<'a> {
    gateway: &'a Gateway,
    bytes_max: usize,
    /// The response has every partition, even those without data.
    is_full: bool,
    /// The client reads records of committed transactions only.
    committed_only: bool,
    bytes: usize,
    /// The response must not wait any longer.
    urgent: bool,
    /// The next partition did not fit.
    full: bool,
    found: HashMap<PartitionId, PartitionData>,
    near: ClientRack,
    /// Copies that end before the requested offset.
    beyond: HashSet<PartitionId>,
    referrals: Referrals,
    caller: &'a Caller,
    /// Cached rights, by topic.
    may_read: HashMap<TopicId, bool>,
    room: Option<OwnedSemaphorePermit>,
}

#[derive(Default)]
struct PartitionData {
    fault: Option<Fault>,
    /// Slices of the response in order: a batch may come in two, its base offset and the rest.
    records: Vec<Bytes>,
    /// Offset at which reading resumes, if more data arrives while the fetch waits.
    next_offset: Offset,
    high_watermark: Offset,
    /// First offset of the earliest open transaction, or else the high watermark.
    stable: Offset,
    log_start: Offset,
    /// Aborted transactions with records in the response, for a client that reads committed records only.
    aborted: Vec<AbortedRange>,
    /// The node from which the client must read instead.
    preferred: Option<u32>,
    /// Where the client's records diverge from the partition's.
    diverging: Option<EpochEnd>,
}

enum ReadOutcome {
    /// There is nothing to read.
    Nothing,
    /// There is data or an error: the partition is read next time too.
    Something,
    /// It must wait for the next response.
    NoRoom,
    Gone,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(
        gateway: &'a Gateway,
        encrypted: bool,
        near: ClientRack,
        caller: &'a Caller,
        bytes_max: usize,
        (is_full, committed_only): (bool, bool),
    ) -> Self {
        Self {
            gateway,
            caller,
            may_read: HashMap::default(),
            bytes_max,
            is_full,
            committed_only,
            bytes: 0,
            urgent: false,
            full: false,
            found: HashMap::default(),
            near,
            beyond: HashSet::default(),
            referrals: Referrals::new(encrypted),
            room: None,
        }
    }

    pub(crate) fn gateway(&self) -> &'a Gateway {
        self.gateway
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn has_no_room(&self) -> bool {
        self.full
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Reads every queued partition, and yields to other tasks in between.
    pub(crate) async fn collect(&mut self, state: &mut FetchState, pace: &mut YieldBudget) {
        self.full = false;
        for _ in 0..state.turns.len() {
            pace.step(1).await;
            let Some(partition) = state.turns.pop_front() else { break };
            // The client may have removed it from the session since it was queued.
            let Some(wanted) = state.wanted.get_mut(&partition) else { continue };
            wanted.queued = false;
            let wanted = *wanted;
            match self.look_at(partition, &wanted).await {
                ReadOutcome::Nothing => {}
                ReadOutcome::Something => state.queue(partition),
                ReadOutcome::Gone => state.lose(partition),
                ReadOutcome::NoRoom => {
                    if let Some(wanted) = state.wanted.get_mut(&partition) {
                        wanted.queued = true;
                    }
                    state.turns.push_front(partition);
                    self.full = true;
                    break;
                }
            }
        }
    }

    pub(crate) fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// Whether the caller may read the topic. True for a deleted topic: its absence is reported later.
    fn may_read(&mut self, topic: TopicId) -> bool {
        if self.caller.is_unrestricted() {
            return true;
        }
        let (gateway, caller) = (self.gateway, self.caller);
        *self.may_read.entry(topic).or_insert_with(|| {
            let catalog = gateway.broker.catalog();
            catalog.topic(topic).is_none_or(|topic| caller.may_topic(topic.name()))
        })
    }

    async fn look_at(&mut self, partition: PartitionId, wanted: &SessionPartition) -> ReadOutcome {
        if !self.may_read(partition.topic) {
            return self.fail(partition, NOWHERE, topic_refused());
        }
        let is_led = self.gateway.broker.leads(partition);
        if !is_led && !self.serves_copy(partition) && self.exists(partition) {
            return self.fail(partition, NOWHERE, not_leader());
        }
        let Some(bounds) = self.gateway.broker.bounds(partition) else {
            // This node's copy may not have received the partition's creation yet.
            if !is_led && self.exists(partition) {
                return self.fail(partition, NOWHERE, not_leader());
            }
            self.urgent = true;
            return ReadOutcome::Gone;
        };
        if let Err(fault) = check_leader_epoch(self.gateway, partition, wanted.want.leader_epoch) {
            return self.fail(partition, bounds, fault);
        }
        if !is_led && wanted.want.offset > bounds.end as i64 {
            // The client read up to there at the leader, and the copy catches up in a moment.
            self.beyond.insert(partition);
            return ReadOutcome::Nothing;
        }
        self.beyond.remove(&partition);
        if let Err(fault) = check_range(wanted, bounds) {
            return self.fail(partition, bounds, fault);
        }
        if wanted.want.last_epoch >= 0 {
            match self.diverges(partition, wanted).await {
                Ok(None) => {}
                Ok(Some(end)) => return self.answer_diverging(partition, bounds, end),
                Err(fault) => return self.fail(partition, bounds, fault),
            }
        }
        if is_led && self.sends_elsewhere(partition, wanted, bounds) {
            return ReadOutcome::Something;
        }
        let end = if self.committed_only { bounds.stable } else { bounds.end };
        if self.is_full
            && wanted.want.offset as Offset >= end
            && !self.found.contains_key(&partition)
        {
            // An empty result needs no entry while the fetch waits: a full response fills it in.
            return ReadOutcome::Nothing;
        }
        let found = self.found.entry(partition).or_insert_with(|| PartitionData::at(wanted));
        found.preferred = None;
        found.set_bounds(bounds);
        let (offset, has_records) = (found.next_offset, !found.records.is_empty());
        if offset >= end {
            return if has_records { ReadOutcome::Something } else { ReadOutcome::Nothing };
        }
        if self.bytes > 0 && self.bytes >= self.bytes_max {
            return ReadOutcome::NoRoom;
        }
        self.read(partition, wanted, offset, bounds, is_led).await
    }

    /// Returns the end of the epoch of the client's last record, if it lies before the requested offset: the
    /// client then has records that the partition does not have (KIP-595).
    async fn diverges(
        &self,
        partition: PartitionId,
        wanted: &SessionPartition,
    ) -> Result<Option<EpochEnd>, Fault> {
        let FetchParameters { offset, last_epoch, .. } = wanted.want;
        let shards = self.gateway.broker.shards();
        let mut ends = shards.epoch_ends(&[(partition, last_epoch)]).await?;
        let known = ends.pop().flatten().ok_or_else(Fault::unknown_partition)?;
        // Nothing was written in this epoch yet.
        let end = known.ok_or(Fault::plain(ResponseError::OffsetOutOfRange))?;
        Ok((end.epoch < last_epoch || (end.end as i64) < offset).then_some(end))
    }

    fn answer_diverging(
        &mut self,
        partition: PartitionId,
        bounds: Bounds,
        end: EpochEnd,
    ) -> ReadOutcome {
        self.urgent = true;
        let found = self.found.entry(partition).or_default();
        if found.records.is_empty() {
            found.set_bounds(bounds);
            found.diverging = Some(end);
        }
        ReadOutcome::Something
    }

    fn serves_copy(&self, partition: PartitionId) -> bool {
        self.near.is_here() && self.gateway.broker.serves_copy(partition)
    }

    /// Whether the client must read the partition from another node. Records already read are sent first.
    fn sends_elsewhere(
        &mut self,
        partition: PartitionId,
        wanted: &SessionPartition,
        bounds: Bounds,
    ) -> bool {
        let has_records = |found: &PartitionData| !found.records.is_empty();
        if self.found.get(&partition).is_some_and(has_records) {
            return false;
        }
        let preferred = self.near.preferred(self.gateway, partition);
        if preferred.is_some() {
            self.urgent = true;
            let found = self.found.entry(partition).or_insert_with(|| PartitionData::at(wanted));
            found.preferred = preferred;
            found.set_bounds(bounds);
        }
        preferred.is_some()
    }

    /// Before the response: refers a client that has waited for a lagging copy to the leader. The response is
    /// never `OFFSET_OUT_OF_RANGE`, since the leader may have the offset (KAFKA-14255).
    pub(crate) fn fail_lagging_copies(&mut self, has_waited: bool) {
        for partition in std::mem::take(&mut self.beyond) {
            let bounds = self.gateway.broker.bounds(partition).unwrap_or(NOWHERE);
            if has_waited {
                self.fail(partition, bounds, Fault::plain(ResponseError::OffsetNotAvailable));
            }
        }
    }

    fn exists(&self, partition: PartitionId) -> bool {
        let catalog = self.gateway.broker.catalog();
        let topic = catalog.topic(partition.topic);
        topic.is_some_and(|topic| partition.index < topic.partition_count())
    }

    async fn read(
        &mut self,
        partition: PartitionId,
        wanted: &SessionPartition,
        offset: Offset,
        bounds: Bounds,
        is_led: bool,
    ) -> ReadOutcome {
        let left = self.bytes_max.saturating_sub(self.bytes);
        let bytes_max = left.min(usize::try_from(wanted.want.bytes_max).unwrap_or(0)).max(1);
        let Some((bytes_max, room)) = self.reserve(bytes_max) else { return ReadOutcome::NoRoom };
        let broker = &self.gateway.broker;
        let read = match is_led {
            true => broker.read_raw_batches(partition, offset, bytes_max).await,
            false => broker.read_known_raw_batches(partition, offset, bytes_max).await,
        };
        let mut batches = match read {
            Ok(batches) => batches,
            Err(broker::FetchError::UnknownPartition(_)) => {
                self.urgent = true;
                return ReadOutcome::Gone;
            }
            Err(error) => return self.fail(partition, bounds, error.into()),
        };
        if self.committed_only {
            batches.cut_at_stable_end();
        }
        let bytes = batches.bytes();
        // A batch may exceed the limit; only the first batch of a response may do so.
        if self.bytes > 0 && bytes > left {
            return ReadOutcome::NoRoom;
        }
        self.keep(room, bytes);
        self.bytes += bytes;
        self.gateway.traffic.delivered(bytes as u64);
        let Some(found) = self.found.get_mut(&partition) else { return ReadOutcome::Nothing };
        (found.high_watermark, found.log_start) = (batches.high_watermark, batches.log_start);
        found.stable = batches.stable_end();
        if self.committed_only {
            found.add_aborted(batches.aborted());
        }
        if let Some(next) = next_offset(&batches.records) {
            found.next_offset = next;
        }
        batches.records.into_iter().for_each(|read| read.put_pieces(&mut found.records));
        if found.records.is_empty() { ReadOutcome::Nothing } else { ReadOutcome::Something }
    }

    /// Reserves room for this many bytes, or for fewer, in the node's budget.
    fn reserve(&self, bytes: usize) -> Option<(usize, Option<OwnedSemaphorePermit>)> {
        let units = u32::try_from(bytes.div_ceil(FETCH_BUDGET_UNIT)).unwrap_or(u32::MAX);
        match Arc::clone(&self.gateway.fetch_budget).try_acquire_many_owned(units) {
            Ok(room) => Some((bytes, Some(room))),
            Err(_) if self.bytes > 0 => None,
            Err(_) => Some((bytes.min(WITHOUT_ROOM_BYTES_MAX), None)),
        }
    }

    /// Releases the unused part of the reserved room.
    fn keep(&mut self, room: Option<OwnedSemaphorePermit>, bytes: usize) {
        let Some(mut room) = room else { return };
        let used = bytes.div_ceil(FETCH_BUDGET_UNIT);
        if let Some(unused) = room.num_permits().checked_sub(used) {
            drop(room.split(unused));
        }
        match &mut self.room {
            Some(held) => held.merge(room),
            None => self.room = Some(room),
        }
    }

    fn fail(&mut self, partition: PartitionId, bounds: Bounds, fault: Fault) -> ReadOutcome {
        self.urgent = true;
        let found = self.found.entry(partition).or_default();
        if found.records.is_empty() {
            found.set_bounds(bounds);
            found.fault = Some(fault);
        }
        ReadOutcome::Something
    }

    /// One partition's part of a full response.
    pub(crate) fn take(
        &mut self,
        state: &mut FetchState,
        partition: PartitionId,
    ) -> Option<FetchedPartition> {
        let found = match self.found.remove(&partition) {
            Some(found) => found,
            // There was no data, or the partition was not read: its result is empty.
            None => {
                let mut found = PartitionData::default();
                found.set_bounds(self.gateway.broker.bounds(partition)?);
                found
            }
        };
        if let Some(wanted) = state.wanted.get_mut(&partition) {
            wanted.told = found.fault.is_none().then(|| found.bounds());
        }
        Some(self.answered(partition, found))
    }

    /// The partitions that changed since the client's last response, by topic.
    pub(crate) fn take_news(
        &mut self,
        state: &mut FetchState,
    ) -> Vec<(PartitionId, FetchedPartition)> {
        let mut news = Vec::new();
        for (partition, found) in std::mem::take(&mut self.found) {
            let Some(wanted) = state.wanted.get_mut(&partition) else { continue };
            let bounds = Some(found.bounds());
            let is_news = found.fault.is_some()
                || found.preferred.is_some()
                || found.diverging.is_some()
                || !found.records.is_empty()
                || wanted.told != bounds;
            wanted.told = if found.fault.is_some() { None } else { bounds };
            if is_news {
                news.push((partition, self.answered(partition, found)));
            }
        }
        news.sort_unstable_by_key(|(partition, _)| *partition);
        news
    }

    /// The result, with the leader if that is another node.
    fn answered(&mut self, partition: PartitionId, found: PartitionData) -> FetchedPartition {
        let mut answered = found.into_partition(partition.index);
        if is_about_leader(answered.error) {
            answered.leader = self.referrals.refer(self.gateway, partition);
        }
        answered
    }

    /// The reserved room of the records, and the nodes that partitions name as their leaders.
    pub(crate) fn finish(self) -> (Option<OwnedSemaphorePermit>, Vec<ReachableNode>) {
        (self.room, self.referrals.into_endpoints())
    }
}

impl PartitionData {
    fn at(wanted: &SessionPartition) -> Self {
        Self { next_offset: wanted.want.offset as Offset, ..Self::default() }
    }

    fn set_bounds(&mut self, Bounds { log_start, stable, end }: Bounds) {
        (self.high_watermark, self.stable, self.log_start) = (end, stable, log_start);
    }

    fn bounds(&self) -> Bounds {
        let (end, stable, log_start) = (self.high_watermark, self.stable, self.log_start);
        Bounds { log_start, stable, end }
    }

    /// A range may overlap several reads.
    fn add_aborted(&mut self, aborted: Vec<AbortedRange>) {
        for range in aborted {
            if self.aborted.last() != Some(&range) && !self.aborted.contains(&range) {
                self.aborted.push(range);
            }
        }
    }

    fn into_partition(self, index: u32) -> FetchedPartition {
        let (error, high_watermark, stable) = match &self.fault {
            Some(fault) => (fault.code(), -1, -1),
            None => (0, self.high_watermark as i64, self.stable as i64),
        };
        FetchedPartition {
            index: index as i32,
            error,
            high_watermark,
            stable,
            aborted: self.aborted,
            log_start: self.log_start as i64,
            records: self.records,
            leader: None,
            preferred: self.preferred,
            diverging: self.diverging,
        }
    }
}

/// Bounds of a partition that this node does not lead.
const NOWHERE: Bounds = Bounds { log_start: 0, stable: 0, end: 0 };

/// Rejects an offset outside of the partition's readable range.
fn check_range(wanted: &SessionPartition, bounds: Bounds) -> Result<(), Fault> {
    let within = u64::try_from(wanted.want.offset)
        .is_ok_and(|offset| (bounds.log_start..=bounds.end).contains(&offset));
    if within { Ok(()) } else { Err(Fault::plain(ResponseError::OffsetOutOfRange)) }
}

/// Rejects a leader epoch that is older or newer than this node's: the client must refresh its metadata
/// (KIP-320). -1 if the client sends none.
pub(crate) fn check_leader_epoch(
    gateway: &Gateway,
    partition: PartitionId,
    epoch: i32,
) -> Result<(), Fault> {
    if epoch < 0 {
        return Ok(());
    }
    match epoch.cmp(&gateway.broker.leader_epoch(partition)) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(Fault::plain(ResponseError::FencedLeaderEpoch)),
        std::cmp::Ordering::Greater => Err(Fault::plain(ResponseError::UnknownLeaderEpoch)),
    }
}

/// The offset after the last of these batches.
fn next_offset(records: &[StoredBatches]) -> Option<Offset> {
    let last = std::slice::from_ref(records.last()?);
    batches_in(last).map_while(Result::ok).last().map(|(header, _)| header.next_offset())
}
