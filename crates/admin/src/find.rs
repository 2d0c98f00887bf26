//! Finds records by key, header or trace, in one topic or in all that the caller may read, a bounded range
//! per request.

use access::{AccessTarget, Operation, Rights};
use base::headers::ID;
use base::limits::{LEASE_READ_BYTES, OPERATION_RECORDS_MAX};
use base::{PartitionId, TopicId};
use broker::{Broker, FetchError};
use bytes::Bytes;
use operations::history::{FoundRecord, FoundRecords, SearchKey, SearchPosition};
use record::{RecordView, SharedBatch};
use tokio::time::Instant;

use crate::AdminError;
use crate::browse::{PageBudget, stored};
use crate::queues::no_topic;

/// Byte and time limit of one request: operations of other callers wait meanwhile.
const BYTES_MAX: usize = 16 << 20;
const WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
/// Internal topics are searched only if the request names them.
const OWN_PREFIX: &str = "_postroad.";
/// Header of the message id, as all protocols with message properties store it (see crate `message`).
const MESSAGE_ID: &[u8] = b"amqp.message-id";
const TRACEPARENT: &[u8] = b"traceparent";

/// The property that a record must have, in bytes.
enum SearchPredicate<'a> {
    Key(&'a [u8]),
    Header(&'a [u8], &'a [u8]),
    /// In lower case.
    Trace(String),
}

impl<'a> SearchPredicate<'a> {
    fn of(by: &'a SearchKey) -> Result<Self, AdminError> {
        Ok(match by {
            SearchKey::Key(key) => Self::Key(&key.0),
            SearchKey::Id(id) => Self::Header(ID.as_bytes(), id.as_bytes()),
            SearchKey::MessageId(id) => Self::Header(MESSAGE_ID, id.as_bytes()),
            SearchKey::Header { name, value } => Self::Header(name.as_bytes(), &value.0),
            SearchKey::TraceId(text) => {
                let id = trace_id(text).unwrap_or(text).to_ascii_lowercase();
                let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
                if !is_id {
                    let problem = format!(
                        "{text:?} is no trace id: 32 hexadecimal digits, or a value of traceparent"
                    );
                    return Err(AdminError::Invalid(problem));
                }
                Self::Trace(id)
            }
        })
    }

    fn is(&self, record: &RecordView<'_>) -> bool {
        match self {
            Self::Key(key) => record.key == Some(*key),
            Self::Header(name, value) => record.headers.last(name).flatten() == Some(*value),
            Self::Trace(id) => {
                let parent = record.headers.last(TRACEPARENT).flatten();
                let parent = parent.and_then(|value| std::str::from_utf8(value).ok());
                parent.and_then(trace_id).is_some_and(|found| found.eq_ignore_ascii_case(id))
            }
        }
    }
}

/// Returns the trace id of `version-trace-parent-flags`.
fn trace_id(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(1)
}

/// The results of a request, and its remaining limits.
struct Search<'a> {
    broker: &'a Broker,
    wanted: SearchPredicate<'a>,
    from_ms: Option<i64>,
    records_max: usize,
    room: PageBudget,
    bytes: usize,
    until: Instant,
    found: FoundRecords,
}

pub(crate) async fn find(
    broker: &Broker,
    caller: &Rights,
    topic: Option<&str>,
    by: &SearchKey,
    from_ms: Option<i64>,
    after: Option<SearchPosition>,
    records_max: u32,
) -> Result<FoundRecords, AdminError> {
    let mut search = Search {
        broker,
        wanted: SearchPredicate::of(by)?,
        from_ms,
        records_max: (records_max as usize).clamp(1, OPERATION_RECORDS_MAX),
        room: PageBudget::default(),
        bytes: BYTES_MAX,
        until: Instant::now() + WITHIN,
        found: FoundRecords { records: Vec::new(), looked_at: 0, looked_at_bytes: 0, next: None },
    };
    let topics = topics(broker, caller, topic, after.as_ref().map(|after| &*after.topic))?;
    for (name, id, partitions) in topics {
        if Instant::now() >= search.until {
            let at = after.as_ref().filter(|after| after.topic == name).cloned();
            let next = at.unwrap_or(SearchPosition { topic: name, partition: 0, offset: 0 });
            return Ok(FoundRecords { next: Some(next), ..search.found });
        }
        let ids: Vec<_> = (0..partitions).map(|index| PartitionId::new(id, index)).collect();
        broker.copies_are_current(&ids).await?;
        for partition in ids {
            let from = match &after {
                Some(after) if after.topic == name => match after.partition.cmp(&partition.index) {
                    std::cmp::Ordering::Greater => continue,
                    std::cmp::Ordering::Equal => Some(after.offset).filter(|offset| *offset > 0),
                    std::cmp::Ordering::Less => None,
                },
                _ => None,
            };
            if let Some(offset) = search.partition(&name, partition, from).await? {
                let next = SearchPosition { topic: name, partition: partition.index, offset };
                return Ok(FoundRecords { next: Some(next), ..search.found });
            }
        }
    }
    Ok(search.found)
}

/// Topics by name, from the one at which the search continues.
fn topics(
    broker: &Broker,
    caller: &Rights,
    only: Option<&str>,
    from: Option<&str>,
) -> Result<Vec<(String, TopicId, u32)>, AdminError> {
    let catalog = broker.catalog();
    if let Some(name) = only {
        let topic = catalog.topic_named(name).ok_or_else(|| no_topic(name))?;
        return Ok(vec![(name.to_owned(), topic.id(), topic.partition_count())]);
    }
    let all = catalog.topics().filter(|topic| {
        let name = &**topic.name();
        from.is_none_or(|from| name >= from)
            && !name.starts_with(OWN_PREFIX)
            && caller.would(Operation::Browse, AccessTarget::Topic(name))
    });
    let named = all.map(|topic| (topic.name().to_string(), topic.id(), topic.partition_count()));
    let mut named: Vec<_> = named.collect();
    named.sort_unstable();
    Ok(named)
}

impl Search<'_> {
    /// Searches a partition. Returns where to continue, or `None` at its end.
    async fn partition(
        &mut self,
        topic: &str,
        id: PartitionId,
        from: Option<u64>,
    ) -> Result<Option<u64>, AdminError> {
        // A topic that was deleted meanwhile has no records.
        let Some(bounds) = self.broker.bounds_of(id).await? else { return Ok(None) };
        let mut next = match (from, self.from_ms) {
            (Some(from), _) => from,
            (None, None) => bounds.log_start,
            (None, Some(ms)) => {
                let at = self.broker.known_offset_at_time(id, ms).await?;
                at.map_or(bounds.stable, |at| at.offset)
            }
        };
        loop {
            let Some(bounds) = self.broker.bounds_of(id).await? else { return Ok(None) };
            next = next.max(bounds.log_start);
            if next >= bounds.stable {
                return Ok(None);
            }
            if self.bytes == 0 || Instant::now() >= self.until {
                return Ok(Some(next));
            }
            let batches = match self.broker.read_known_batches(id, next, LEASE_READ_BYTES).await {
                // Retention removed it a moment ago.
                Err(FetchError::OffsetOutOfRange { .. }) => continue,
                Err(FetchError::UnknownPartition(_)) => return Ok(None),
                read => read?,
            };
            for batch in batches.iter() {
                let (header, encoded) = batch.map_err(damaged)?;
                self.bytes = self.bytes.saturating_sub(encoded.len());
                self.found.looked_at_bytes += encoded.len() as u64;
                let at = Some(header.base_offset);
                let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, at);
                let batch = self.broker.cpu().read_batch(encoded, decode).await;
                if let Some(full_at) = self.batch(topic, id, &batch.map_err(damaged)?, next)? {
                    return Ok(Some(full_at));
                }
                next = next.max(header.next_offset());
            }
            next = next.max(batches.next_offset());
        }
    }

    /// Searches a batch. Returns the offset of a record that does not fit into the page.
    fn batch(
        &mut self,
        topic: &str,
        id: PartitionId,
        batch: &SharedBatch,
        from: u64,
    ) -> Result<Option<u64>, AdminError> {
        for record in batch.records() {
            let view = record.map_err(damaged)?;
            if view.offset < from {
                continue;
            }
            if self.wanted.is(&view) {
                if !self.room.has(view.encoded_len(), self.records_max) {
                    return Ok(Some(view.offset));
                }
                let (topic, record) = (topic.to_owned(), stored(id.index, &view));
                self.found.records.push(FoundRecord { topic, record });
            }
            self.found.looked_at += 1;
        }
        Ok(None)
    }
}

fn damaged(error: record::BatchError) -> AdminError {
    AdminError::Damaged(format!("a batch cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_id_is_parsed_alone_or_from_a_traceparent() {
        let id = "4BF92F3577B34DA6A3CE929D0E0E4736";
        for said in [id.to_owned(), format!("00-{id}-00f067aa0ba902b7-01")] {
            let by = SearchKey::TraceId(said);
            let Ok(SearchPredicate::Trace(found)) = SearchPredicate::of(&by) else {
                panic!("{by:?}")
            };
            assert_eq!(found, id.to_ascii_lowercase());
        }
        for wrong in ["", "4bf9", "00-4bf9-00f067aa0ba902b7-01", &"g".repeat(32)] {
            assert!(SearchPredicate::of(&SearchKey::TraceId(wrong.to_owned())).is_err(), "{wrong}");
        }
    }
}
