//! Consumers by offset (`x-stream-offset`): nothing is leased or settled, and every consumer reads all records from
//! its start offset. Acknowledgements only return credit.
//!
//! One task per consumer reads ahead as far as its prefetch allows.

use std::sync::Arc;
use std::time::Duration;

use base::limits::LEASE_READ_BYTES;
use base::{Offset, PartitionId};
use broker::{Broker, FetchError};
use bytes::Bytes;
use record::{SharedBatch, SharedRecord};
use tasks::Task;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::codec::table::{FieldTable, FieldValue, kind_name};
use crate::errors::{Exception, ReplyCode};
use crate::posted::{PostedMessage, StreamCredit, StreamRecords};

/// Retry interval while a partition has no leader.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Number of offsets that the search for the last batch examines.
const SKIPPED_MAX: usize = 16;

/// Start position of a consumer in each partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartAt {
    First,
    /// The last batch, which corresponds to RabbitMQ's chunk.
    Last,
    Next,
    Offset(Offset),
    /// Milliseconds since the epoch.
    Time(i64),
}

/// A running reader task, aborted when dropped.
#[derive(Debug)]
pub(crate) struct StreamConsumer {
    task: AbortHandle,
}

impl Drop for StreamConsumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The source of a consumer's records, and the route to its channel.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) broker: Broker,
    pub(crate) channel: u16,
    pub(crate) generation: u32,
    pub(crate) tag: Arc<str>,
    pub(crate) posts: mpsc::Sender<Box<PostedMessage>>,
    pub(crate) filter: Option<Filter>,
}

/// Filter of a consumer (`x-stream-filter`) by the record header `x-stream-filter-value`. RabbitMQ filters chunks and
/// leaves the rest to the client; this filter is exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    values: Vec<Bytes>,
    /// Also accepts records without a value.
    unfiltered: bool,
}

impl Filter {
    pub(crate) fn of(arguments: &FieldTable) -> Option<Self> {
        let text = |value: &FieldValue| match value {
            FieldValue::LongString(text) => Some(text.clone()),
            _ => None,
        };
        let values = match arguments.get("x-stream-filter")? {
            FieldValue::Array(values) => values.iter().filter_map(text).collect(),
            value => vec![text(value)?],
        };
        let unfiltered = arguments.get("x-stream-match-unfiltered");
        let unfiltered = unfiltered.and_then(FieldValue::as_bool).unwrap_or(false);
        Some(Self { values, unfiltered })
    }

    fn takes(&self, record: &SharedRecord) -> bool {
        match record.view().headers.last(b"x-stream-filter-value").flatten() {
            Some(value) => self.values.iter().any(|wanted| wanted == value),
            None => self.unfiltered,
        }
    }
}

impl StartAt {
    /// Parses `x-stream-offset` as RabbitMQ does.
    pub(crate) fn parse(value: Option<&FieldValue>, now_ms: i64) -> Result<Self, String> {
        match value {
            None => Ok(Self::Next),
            Some(FieldValue::Timestamp(seconds)) => {
                Ok(Self::Time(i64::try_from(*seconds).unwrap_or(i64::MAX).saturating_mul(1000)))
            }
            Some(FieldValue::LongString(text)) => match &text[..] {
                b"first" => Ok(Self::First),
                b"last" => Ok(Self::Last),
                b"next" => Ok(Self::Next),
                other => {
                    let text = String::from_utf8_lossy(other).into_owned();
                    let age = topology::arguments::max_age_ms(&text).ok_or("invalid_max_age")?;
                    Ok(Self::Time(now_ms.saturating_sub(age)))
                }
            },
            Some(value) => match value.as_integer().map(u64::try_from) {
                Some(Ok(offset)) => Ok(Self::Offset(offset)),
                _ => Err(format!("{{invalid_offset_arg,{}}}", kind_name(value))),
            },
        }
    }
}

impl Reader {
    /// Starts to read `partitions` with credit for `prefetch` unacknowledged records.
    pub(crate) async fn start(
        self,
        partitions: Vec<PartitionId>,
        from: StartAt,
        prefetch: u32,
    ) -> Result<StreamConsumer, Exception> {
        // Another node may lead them: records published before must be visible here.
        let current = self.broker.copies_are_current(&partitions).await;
        current.map_err(|error| Exception::precondition_failed(error.to_string()))?;
        let mut positions = Vec::with_capacity(partitions.len());
        for partition in partitions {
            positions.push((partition, self.begin(partition, from).await?));
        }
        let credit = StreamCredit(Arc::new(Semaphore::new(prefetch as usize)));
        let (posts, channel, generation) = (self.posts.clone(), self.channel, self.generation);
        let reading = self.run(positions, credit);
        // Without notice of the panic the consumer would wait for ever.
        let on_panic = async move {
            let _ = posts.send(Box::new(PostedMessage::Panicked { channel, generation })).await;
        };
        let task = tasks::watched(Task::AmqpStreamReader, reading, on_panic).abort_handle();
        Ok(StreamConsumer { task })
    }

    async fn begin(&self, partition: PartitionId, from: StartAt) -> Result<Offset, Exception> {
        let gone = || Exception::new(ReplyCode::NotFound, "the stream was deleted");
        let failed = |error: FetchError| Exception::precondition_failed(error.to_string());
        let bounds = self.broker.bounds_of(partition).await;
        let bounds = bounds.map_err(|why| failed(why.into()))?.ok_or_else(gone)?;
        Ok(match from {
            StartAt::First => bounds.log_start,
            StartAt::Next => bounds.stable,
            // A future offset is waited for; a deleted one is skipped.
            StartAt::Offset(offset) => offset.max(bounds.log_start),
            StartAt::Last => {
                // The last offsets may be those of markers and of aborted batches.
                for last in (bounds.log_start..bounds.stable).rev().take(SKIPPED_MAX) {
                    let read = self.broker.read_known_batches(partition, last, 1).await;
                    let read = read.map_err(failed)?;
                    let batch = read.iter().find_map(Result::ok);
                    if let Some((header, _)) = batch {
                        return Ok(header.base_offset.max(bounds.log_start));
                    }
                }
                bounds.stable
            }
            StartAt::Time(ms) => {
                let found =
                    self.broker.known_offset_at_time(partition, ms).await.map_err(failed)?;
                found.map_or(bounds.stable, |at| at.offset)
            }
        })
    }

    async fn run(self, mut positions: Vec<(PartitionId, Offset)>, credit: StreamCredit) {
        let watch = self.broker.watch();
        positions.iter().for_each(|(partition, _)| watch.add(*partition));
        loop {
            let mut any = false;
            for (partition, position) in &mut positions {
                match self.read(*partition, position, &credit).await {
                    Ok(read) => any |= read,
                    Err(ReadEnd::Gone) => return self.send_gone(credit).await,
                    Err(ReadEnd::Unheard) => return,
                }
            }
            if !any {
                watch.ready().await;
                let _ = watch.take_ready();
            }
        }
    }

    /// Reads the next records of one partition and posts them. Returns false at the end of the partition.
    async fn read(
        &self,
        partition: PartitionId,
        position: &mut Offset,
        credit: &StreamCredit,
    ) -> Result<bool, ReadEnd> {
        let bounds = match self.broker.bounds_of(partition).await {
            Ok(bounds) => bounds.ok_or(ReadEnd::Gone)?,
            Err(why) => {
                tracing::debug!(%partition, %why, "a stream is not read for a moment");
                sleep(AGAIN_AFTER).await;
                return Ok(true);
            }
        };
        if *position < bounds.log_start {
            *position = bounds.log_start;
        }
        if *position >= bounds.stable {
            return Ok(false);
        }
        let read =
            match self.broker.read_known_batches(partition, *position, LEASE_READ_BYTES).await {
                Ok(read) => read,
                // Retention deleted it a moment ago.
                Err(FetchError::OffsetOutOfRange { .. }) => return Ok(true),
                Err(FetchError::UnknownPartition(_)) => return Err(ReadEnd::Gone),
                Err(FetchError::Unavailable(why)) => {
                    tracing::debug!(%partition, %why, "a stream is not read for a moment");
                    sleep(AGAIN_AFTER).await;
                    return Ok(true);
                }
                Err(error) => {
                    tracing::warn!(%partition, %error, "a stream cannot be read");
                    return Err(ReadEnd::Gone);
                }
            };
        let before = *position;
        for (header, bytes) in read.iter().filter_map(Result::ok) {
            let at = Some(header.base_offset);
            let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, at);
            let Ok(batch) = self.broker.cpu().read_batch(bytes, decode).await else { continue };
            let batch = Arc::new(batch);
            while *position < header.next_offset() {
                self.post(&batch, header.next_offset(), position, credit).await?;
            }
        }
        // Holes, markers and aborted batches are skipped.
        *position = read.next_offset().max(*position);
        Ok(*position > before)
    }

    /// Posts as many records of a batch as there is credit for, at least one.
    async fn post(
        &self,
        batch: &Arc<SharedBatch>,
        end: Offset,
        position: &mut Offset,
        credit: &StreamCredit,
    ) -> Result<(), ReadEnd> {
        let mut records = Vec::new();
        while *position < end {
            let record = batch.record(*position);
            let record =
                record.filter(|record| self.filter.as_ref().is_none_or(|f| f.takes(record)));
            let Some(record) = record else {
                *position += 1;
                continue;
            };
            let permit = if records.is_empty() {
                credit.0.acquire().await.ok()
            } else {
                credit.0.try_acquire().ok()
            };
            let Some(permit) = permit else { break };
            // Returned by the acknowledgement.
            permit.forget();
            records.push(record);
            *position += 1;
        }
        if records.is_empty() {
            return Ok(());
        }
        self.send(StreamRecords {
            tag: Arc::clone(&self.tag),
            credit: credit.clone(),
            records,
            gone: false,
        })
        .await
    }

    async fn send(&self, records: StreamRecords) -> Result<(), ReadEnd> {
        let (channel, generation) = (self.channel, self.generation);
        let posted = Box::new(PostedMessage::Stream { channel, generation, records });
        let posted = self.posts.send(posted).await;
        posted.map_err(|_| ReadEnd::Unheard)
    }

    async fn send_gone(&self, credit: StreamCredit) {
        let tag = Arc::clone(&self.tag);
        let gone = StreamRecords { tag, credit, records: Vec::new(), gone: true };
        let _ = self.send(gone).await;
    }
}

/// Reason why reading ends.
enum ReadEnd {
    /// The topic was deleted.
    Gone,
    /// The session has ended.
    Unheard,
}
