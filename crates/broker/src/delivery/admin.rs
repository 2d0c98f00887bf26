//! Inspecting lease groups and changing them from outside: peek, purge, delete, seek, delayed records,
//! counters. Redrive of dead letters is in [`super::redrive`].

use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId};
use dispatch::RecordInfo as Known;
use record::{ReservedHeaders, SharedBatch, SharedRecord};
use shard::delivery::dead_letter::DeadLetterRouter;
use shard::delivery::error::{BrowseError, RemoveError, SeekError, SettleError};
use shard::delivery::handle::{DriverQuery, Handle, SettleResults};
use shard::delivery::history::SessionUser;
use shard::delivery::inspect::{
    Counters, DelayedRecord, LeaseInfo, PeekOptions, PeekedRecord, SeekTo, ends, stands,
};
use shard::error::{ExecuteError, Unavailable};
use shard::timeline::Shifts;
use tokio::sync::oneshot;

use super::record_reader::{RecordReader, read_shared};
use super::session::LeaseSession;
use crate::broker::Broker;

impl Broker {
    /// A new session that consumes and takes by lease.
    pub fn lease_session(&self) -> LeaseSession {
        self.lease_session_of(SessionUser::default())
    }

    /// A new session with its user, who is shown in the history of records.
    pub fn lease_session_of(&self, user: SessionUser) -> LeaseSession {
        LeaseSession::open(self.clone(), user)
    }

    /// Sets the router of dead letters for groups whose `dead.letter.route` begins with this scheme and a
    /// colon; it is given the rest of the route. Until it is set, their dead letters wait.
    pub fn set_dead_letter_router(&self, scheme: &'static str, router: Arc<dyn DeadLetterRouter>) {
        for driver in self.drivers().all() {
            driver.routers.set(scheme, Arc::clone(&router));
        }
    }

    /// `None` if the group does not exist.
    #[tasks::boxed]
    pub async fn counters(&self, group: LeaseGroupId) -> Option<Counters> {
        let mut counters: Option<Counters> = None;
        for driver in self.drivers_of(group)? {
            let here = driver.query(|reply| DriverQuery::Counters { group, reply }).await?;
            counters = match (counters, here) {
                (Some(before), Some(here)) => Some(before.and(here)),
                (before, here) => before.or(here),
            };
        }
        counters
    }

    /// Unsettled records and their states, in the order of their offsets, without leasing them.
    #[tasks::boxed]
    pub async fn peek(
        &self,
        group: LeaseGroupId,
        options: PeekOptions,
    ) -> Result<Vec<PeekedRecord>, BrowseError> {
        let is_unknown = |error: &BrowseError| matches!(error, BrowseError::UnknownGroup(_));
        self.with_group(group, is_unknown, || self.try_to_peek(group, &options)).await
    }

    async fn try_to_peek(
        &self,
        group: LeaseGroupId,
        options: &PeekOptions,
    ) -> Result<Vec<PeekedRecord>, BrowseError> {
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
                    .query_driver_of(PartitionId::new(topic, partition), |reply| {
                        DriverQuery::Unsettled { group, partition, from, records_max, reply }
                    })
                    .await?
                    .ok_or(BrowseError::UnknownGroup(group))?;
                let Some(last) = known.last() else { break };
                from = last.offset + 1;
                for known in known {
                    // The record may be removed by compaction although the group does not know yet.
                    let Some(record) = reader.record(known.offset).await? else { continue };
                    peeked.push(peeked_at(&known, record, &self.timeline().shifts()));
                }
            }
        }
        Ok(peeked)
    }

    /// Leases after the given place, by partition and offset.
    pub async fn leases(
        &self,
        group: LeaseGroupId,
        after: Option<(u32, Offset)>,
        leases_max: usize,
    ) -> Vec<LeaseInfo> {
        let mut leases = Vec::new();
        for driver in self.drivers_of(group).unwrap_or_default() {
            let asked =
                driver.query(|reply| DriverQuery::Leases { group, after, leases_max, reply });
            leases.extend(asked.await.unwrap_or_default());
        }
        leases.sort_unstable_by_key(|lease| (lease.partition, lease.offset));
        let shifts = self.timeline().shifts();
        leases
            .into_iter()
            .take(leases_max)
            .map(|lease| LeaseInfo {
                partition: lease.partition,
                offset: lease.offset,
                attempt: lease.attempt,
                session: lease.session,
                expires_ms: ends(lease.expires_ms, &shifts),
            })
            .collect()
    }

    /// Settles all records that are not leased, and returns their number. Durable when it returns.
    #[tasks::boxed]
    pub async fn purge(&self, group: LeaseGroupId) -> Result<u64, RemoveError> {
        let is_unknown = |error: &RemoveError| matches!(error, RemoveError::UnknownGroup(_));
        self.with_group(group, is_unknown, || self.try_to_purge(group)).await
    }

    async fn try_to_purge(&self, group: LeaseGroupId) -> Result<u64, RemoveError> {
        let drivers = self.drivers_of(group).ok_or(RemoveError::UnknownGroup(group))?;
        let mut purged = 0;
        for driver in drivers {
            let (durable, done) = oneshot::channel();
            let asked = driver.query(|reply| DriverQuery::Purge { group, durable, reply });
            purged += asked.await.ok_or(Unavailable::Stopping)??;
            settled(done).await?;
        }
        Ok(purged)
    }

    /// Settles one record that is not leased. Durable when it returns.
    #[tasks::boxed]
    pub async fn delete_record(
        &self,
        group: LeaseGroupId,
        partition: u32,
        offset: Offset,
    ) -> Result<(), RemoveError> {
        let is_unknown = |error: &RemoveError| matches!(error, RemoveError::UnknownGroup(_));
        self.with_group(group, is_unknown, || self.try_to_delete_record(group, partition, offset))
            .await
    }

    async fn try_to_delete_record(
        &self,
        group: LeaseGroupId,
        partition: u32,
        offset: Offset,
    ) -> Result<(), RemoveError> {
        let (durable, done) = oneshot::channel();
        let (topic, _) = self.partitions_of(group).map_err(|_| RemoveError::UnknownGroup(group))?;
        self.query_driver_of(PartitionId::new(topic, partition), |reply| DriverQuery::Remove {
            group,
            partition,
            offset,
            durable,
            reply,
        })
        .await??;
        settled(done).await
    }

    /// Delayed records in the order of the log after the given place. Reads the group's backlog: it is for
    /// operators, not for programs in a loop.
    #[tasks::boxed]
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

    /// Settles delayed records with this `postroad.id`, and returns their number. Reads the group's backlog.
    /// Durable when it returns.
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

    /// Moves a group forwards or back. Its leases are void.
    #[tasks::boxed]
    pub async fn seek(&self, group: LeaseGroupId, to: SeekTo) -> Result<(), SeekError> {
        let (topic, partitions) =
            self.partitions_of(group).map_err(|_| SeekError::UnknownGroup(group))?;
        let mut starts = Vec::new();
        match to {
            SeekTo::Offsets(offsets) => starts = offsets,
            SeekTo::Start | SeekTo::End => {
                let ids = (0..partitions).map(|index| PartitionId::new(topic, index));
                let ids: Vec<PartitionId> = ids.collect();
                let bounds = self.shards().bounds(&ids).await?;
                for (id, bounds) in ids.into_iter().zip(bounds) {
                    let Some(bounds) = bounds else { continue };
                    let start = if to == SeekTo::Start { bounds.log_start } else { bounds.stable };
                    starts.push((id.index, start));
                }
            }
            SeekTo::Time(time_ms) => {
                let ids = (0..partitions).map(|index| PartitionId::new(topic, index));
                self.copies_are_current(&ids.collect::<Vec<_>>()).await?;
                for index in 0..partitions {
                    let partition = PartitionId::new(topic, index);
                    let at = self.known_offset_at_time(partition, time_ms).await?;
                    let end = self.bounds_of(partition).await?.map_or(0, |bounds| bounds.stable);
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

    /// The drivers with any of the group's partitions, in the order of their first; `None` if the group does
    /// not exist.
    fn drivers_of(&self, group: LeaseGroupId) -> Option<Vec<Handle>> {
        let shards = self.drivers().route(group)?.shards();
        Some(shards.into_iter().map(|shard| self.drivers().of(shard).clone()).collect())
    }

    /// The driver of the partition.
    pub(super) fn driver_of(&self, partition: PartitionId) -> &Handle {
        self.drivers().of(self.shard_of(partition).id())
    }

    async fn query_driver_of<R>(
        &self,
        partition: PartitionId,
        query: impl FnOnce(oneshot::Sender<R>) -> DriverQuery,
    ) -> Result<R, Unavailable> {
        self.driver_of(partition).query(query).await.ok_or(Unavailable::Stopping)
    }

    pub(super) fn partitions_of(
        &self,
        group: LeaseGroupId,
    ) -> Result<(base::TopicId, u32), BrowseError> {
        let route = self.drivers().route(group).ok_or(BrowseError::UnknownGroup(group))?;
        Ok((route.topic, route.partitions))
    }

    /// Calls `found` with each unsettled delayed record, until it returns false.
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
                let floor = self.shards().lease_floors(&[(group, partition)]).await?;
                let floor = floor.into_iter().flatten().next();
                offset = offset.max(floor.ok_or(BrowseError::UnknownGroup(group))?);
                let batches = read_shared(self, id, offset).await?;
                let Some(last) = batches.last() else { break };
                let next = last.header().next_offset();
                for batch in &batches {
                    let waiting = self.delayed_in(id, offset, batch);
                    let offsets = waiting.iter().map(|waiting| waiting.offset).collect();
                    let settled = self.shards().are_settled(group, id, offsets).await?;
                    let unsettled = waiting.into_iter().zip(settled).filter(|(_, is)| !is);
                    for (record, _) in unsettled {
                        if !found(record) {
                            return Ok(());
                        }
                    }
                }
                offset = next;
            }
        }
        Ok(())
    }

    /// Delayed records of a batch, settled or not.
    fn delayed_in(
        &self,
        id: PartitionId,
        from: Offset,
        batch: &Arc<SharedBatch>,
    ) -> Vec<DelayedRecord> {
        let (now_ms, shifts) = (self.timeline().now_ms(), self.timeline().shifts());
        let records = batch.records().map_while(Result::ok).filter(|it| it.offset >= from);
        let delayed = records.filter_map(|record| {
            let reserved = ReservedHeaders::read(&record.headers);
            let waits = |due_ms: &i64| shifts.place(*due_ms, record.timestamp) > now_ms;
            let due_ms = reserved.deliver_at_ms.filter(waits)?;
            let (partition, offset) = (id.index, record.offset);
            let record = batch.record(offset)?;
            let id = reserved.id.map(|id| record.share(id));
            Some(DelayedRecord { partition, offset, due_ms, id, record })
        });
        delayed.collect()
    }
}

fn peeked_at(known: &Known, record: SharedRecord, shifts: &Shifts) -> PeekedRecord {
    let Known { partition, offset, attempts, state } = *known;
    PeekedRecord { partition, offset, state: stands(state, shifts), attempts, record }
}

/// Waits until a change from outside is durable.
async fn settled(done: oneshot::Receiver<SettleResults>) -> Result<(), RemoveError> {
    let unavailable = |why| RemoveError::Unavailable(why);
    let results = done.await.map_err(|_| unavailable(Unavailable::Stopping))?;
    match results.into_iter().find_map(Result::err) {
        Some(SettleError::Unavailable(why)) => Err(unavailable(why)),
        _ => Ok(()),
    }
}
