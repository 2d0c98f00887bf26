//! Finds the traced steps of one record: scans the topic from about the record's time, within limits.

use std::collections::BTreeMap;

use base::limits::LEASE_READ_BYTES;
use base::topics::TRACE;
use base::{Offset, PartitionId};
use bytes::Bytes;
use dispatch::SessionId;
use record::SharedBatch;
use shard::delivery::history::SessionUser;
use shard::delivery::trace_queue::{is_in_share, share};
use shard::error::FetchError;
use tokio::sync::Semaphore;
use world::Instant;

use super::super::history_query::{HistoryEvent, RecordHistory};
use super::trace_record::{TraceRecord, key};
use crate::broker::Broker;
use crate::limits::{
    TRACED_READ_BYTES_MAX, TRACED_READ_FROM_BEFORE_MS, TRACED_READ_WITHIN, TRACED_READS_AT_ONCE,
};

/// Permits of concurrent scans on this node.
static READS: Semaphore = Semaphore::const_new(TRACED_READS_AT_ONCE);

/// Traced steps of a record.
#[derive(Clone, Debug, Default)]
pub struct TracedSteps {
    /// In the order of writing.
    pub events: Vec<HistoryEvent>,
    /// The users of their sessions, if known at the time of writing.
    pub users: BTreeMap<SessionId, SessionUser>,
    /// The scan hit its limit of bytes or time.
    pub is_cut_short: bool,
}

impl Broker {
    /// Traced steps of a record; `None` if its topic is not traced or the record is not in the share.
    /// `stored_ms`: the record's timestamp; `None`: it is no longer stored.
    pub async fn traced_steps(
        &self,
        partition: PartitionId,
        offset: Offset,
        stored_ms: Option<i64>,
    ) -> Result<Option<TracedSteps>, FetchError> {
        let trace = {
            let catalog = self.catalog();
            let Some(topic) = catalog.topic(partition.topic) else { return Ok(None) };
            let is_kept = share(topic.name(), topic.config())
                .is_some_and(|share| is_in_share(share, partition, offset));
            if !is_kept {
                return Ok(None);
            }
            catalog.topic_named(TRACE).map(|found| PartitionId::new(found.id(), 0))
        };
        match trace {
            Some(trace) => self.read_steps(trace, partition, offset, stored_ms).await.map(Some),
            None => Ok(Some(TracedSteps::default())),
        }
    }

    async fn read_steps(
        &self,
        trace: PartitionId,
        partition: PartitionId,
        offset: Offset,
        stored_ms: Option<i64>,
    ) -> Result<TracedSteps, FetchError> {
        let mut found = TracedSteps::default();
        let _permit = READS.acquire().await;
        let until = Instant::now() + TRACED_READ_WITHIN;
        let mut next = match stored_ms {
            Some(ms) => {
                let from_ms = ms.saturating_sub(TRACED_READ_FROM_BEFORE_MS).max(0);
                match self.known_offset_at_time(trace, from_ms).await? {
                    Some(at) => at.offset,
                    // No step was written since.
                    None => return Ok(found),
                }
            }
            None => 0,
        };
        let (key, mut left) = (key(partition), TRACED_READ_BYTES_MAX);
        loop {
            let Some(bounds) = self.bounds_of(trace).await? else { return Ok(found) };
            next = next.max(bounds.log_start);
            if next >= bounds.stable {
                return Ok(found);
            }
            if left == 0 || Instant::now() >= until {
                found.is_cut_short = true;
                return Ok(found);
            }
            let read = match self.read_known_batches(trace, next, LEASE_READ_BYTES.min(left)).await
            {
                // Retention removed it a moment ago.
                Err(FetchError::OffsetOutOfRange { .. }) => continue,
                read => read?,
            };
            for batch in read.iter() {
                let storage = |error: record::BatchError| FetchError::Storage(error.to_string());
                let (header, bytes) = batch.map_err(storage)?;
                left = left.saturating_sub(bytes.len());
                let base_offset = Some(header.base_offset);
                let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, base_offset);
                let batch = self.cpu().read_batch(bytes, decode).await.map_err(storage)?;
                for record in batch.records() {
                    let record = record.map_err(storage)?;
                    if record.offset >= next && record.key == Some(key.as_bytes()) {
                        found.add(record.value.unwrap_or_default(), partition, offset);
                    }
                }
            }
            next = read.next_offset();
        }
    }
}

impl TracedSteps {
    /// Skips records that are not traces; an administrator may have written some.
    fn add(&mut self, value: &[u8], partition: PartitionId, offset: Offset) {
        let Ok(written) = serde_json::from_slice::<TraceRecord<'_>>(value) else { return };
        if !written.is_of(partition, offset) {
            return;
        }
        self.users.extend(written.session_user());
        self.events.extend(written.event());
    }
}

impl RecordHistory {
    /// Adds steps that the nodes do not remember, without duplicates.
    pub fn add_traced(&mut self, traced: &TracedSteps) {
        let mut events: Vec<HistoryEvent> =
            traced.events.iter().filter(|event| !self.events.contains(event)).copied().collect();
        events.append(&mut self.events);
        // The sort is stable: steps of one node stay in order.
        events.sort_by_key(|event| event.at_ms);
        self.events = events;
        for (session, user) in &traced.users {
            self.users.entry(*session).or_insert_with(|| user.clone());
        }
    }
}
