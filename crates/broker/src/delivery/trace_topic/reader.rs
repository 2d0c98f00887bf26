//! Finds what was written of one record: the topic is looked through from about when the record came, within bounds.

use std::collections::BTreeMap;

use base::limits::{
    LEASE_READ_BYTES, TRACED_READ_BYTES_MAX, TRACED_READ_FROM_BEFORE_MS, TRACED_READ_WITHIN,
    TRACED_READS_AT_ONCE,
};
use base::topics::TRACE;
use base::{Offset, PartitionId};
use bytes::Bytes;
use dispatch::SessionId;
use record::SharedBatch;
use tokio::sync::Semaphore;
use world::Instant;

use crate::broker::Broker;
use crate::error::FetchError;
use crate::stored::batches_in;

use super::super::history::SessionUser;
use super::super::looking::{HistoryEvent, RecordHistory};
use super::super::traced::{is_in_share, share};
use super::written::{Written, key};

/// Reads that are under way on this node.
static READS: Semaphore = Semaphore::const_new(TRACED_READS_AT_ONCE);

/// What was written of a record.
#[derive(Clone, Debug, Default)]
pub struct TracedSteps {
    /// In the order in which it was written.
    pub events: Vec<HistoryEvent>,
    /// Whose sessions those were, as far as it was known then.
    pub users: BTreeMap<SessionId, SessionUser>,
    /// There was more to look through than a look may take.
    pub is_cut_short: bool,
}

impl Broker {
    /// What was written of a record, if its topic asks for that and the record is in its share. `stored_ms`: the time that the
    /// record says it is of; `None`: it is not there any more.
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
            Some(trace) => self.look_through(trace, partition, offset, stored_ms).await.map(Some),
            None => Ok(Some(TracedSteps::default())),
        }
    }

    async fn look_through(
        &self,
        trace: PartitionId,
        partition: PartitionId,
        offset: Offset,
        stored_ms: Option<i64>,
    ) -> Result<TracedSteps, FetchError> {
        let mut found = TracedSteps::default();
        let _turn = READS.acquire().await;
        let until = Instant::now() + TRACED_READ_WITHIN;
        let mut next = match stored_ms {
            Some(ms) => {
                let from_ms = ms.saturating_sub(TRACED_READ_FROM_BEFORE_MS).max(0);
                match self.known_offset_at_time(trace, from_ms).await? {
                    Some(at) => at.offset,
                    // Nothing was written since.
                    None => return Ok(found),
                }
            }
            None => 0,
        };
        let (key, mut left) = (key(partition), TRACED_READ_BYTES_MAX);
        loop {
            let Some(bounds) = self.bounds_of(trace).await? else { return Ok(found) };
            next = next.max(bounds.log_start);
            if next >= bounds.end {
                return Ok(found);
            }
            if left == 0 || Instant::now() >= until {
                found.is_cut_short = true;
                return Ok(found);
            }
            let read = match self.read_known_batches(trace, next, LEASE_READ_BYTES.min(left)).await
            {
                // Retention took it a moment ago.
                Err(FetchError::OffsetOutOfRange { .. }) => continue,
                read => read?,
            };
            let before = next;
            for batch in batches_in(&read.records) {
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
                next = next.max(header.next_offset());
            }
            if next == before {
                // Compaction took all that there was.
                next = read.high_watermark.max(next + 1);
            }
        }
    }
}

impl TracedSteps {
    /// What is none of ours, which an administrator may have brought about, is passed over.
    fn add(&mut self, value: &[u8], partition: PartitionId, offset: Offset) {
        let Ok(written) = serde_json::from_slice::<Written<'_>>(value) else { return };
        if !written.is_of(partition, offset) {
            return;
        }
        self.users.extend(written.session_user());
        self.events.extend(written.event());
    }
}

impl RecordHistory {
    /// Adds what the nodes do not remember. What they do is not told twice.
    pub fn add_traced(&mut self, traced: &TracedSteps) {
        let mut events: Vec<HistoryEvent> =
            traced.events.iter().filter(|event| !self.events.contains(event)).copied().collect();
        events.append(&mut self.events);
        // What one node says stays in its order.
        events.sort_by_key(|event| event.at_ms);
        self.events = events;
        for (session, user) in &traced.users {
            self.users.entry(*session).or_insert_with(|| user.clone());
        }
    }
}
