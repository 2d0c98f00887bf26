//! Reading partitions: one fetch, and a loop that keeps one fetch in flight while the records of the last one are
//! processed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, sleep};

use crate::cluster::{Client, PATIENCE, TopicPartition};
use crate::connection::Connection;
use crate::error::{BrokerRejection, ClientError, accepted};
use crate::requests::{self, EARLIEST, FetchLimits};

/// 12 is the last version with topic names instead of ids.
const VERSIONS: std::ops::RangeInclusive<i16> = 4..=12;

/// Limits of a consumer: much, but answered as soon as there is any record.
pub const CONSUME: FetchLimits =
    FetchLimits { wait_ms: 500, bytes_min: 1, bytes_max: 16 << 20, partition_bytes_max: 4 << 20 };

/// A partition to fetch, and its start offset.
#[derive(Clone, Debug)]
pub struct FetchPosition {
    pub partition: TopicPartition,
    pub offset: u64,
}

/// Result of a fetch for one partition.
#[derive(Debug)]
pub struct FetchResult {
    pub partition: TopicPartition,
    pub high_watermark: u64,
    pub records: Result<Bytes, ResponseError>,
}

/// One fetch without a session, which contains all its partitions.
pub async fn fetch(
    connection: &Connection,
    positions: &[FetchPosition],
    limits: FetchLimits,
) -> Result<Vec<FetchResult>, ClientError> {
    let mut topics: BTreeMap<Arc<str>, Vec<(i32, i64)>> = BTreeMap::new();
    for position in positions {
        let rows = topics.entry(position.partition.topic.clone()).or_default();
        rows.push((position.partition.partition, position.offset as i64));
    }
    let named = topics.iter().map(|(name, rows)| (&**name, rows.iter().copied()));
    let request = requests::fetch(named, limits);
    let answer = connection.call(&request, VERSIONS).await?;
    accepted(answer.error_code, None, || "cannot fetch".into())?;
    let mut fetched = Vec::with_capacity(positions.len());
    for topic in answer.responses {
        let Some((name, _)) = topics.get_key_value(topic.topic.as_str()) else { continue };
        for partition in topic.partitions {
            let records = match ResponseError::try_from_code(partition.error_code) {
                None => Ok(partition.records.unwrap_or_default()),
                Some(code) => Err(code),
            };
            fetched.push(FetchResult {
                partition: TopicPartition::new(name.clone(), partition.partition_index),
                high_watermark: u64::try_from(partition.high_watermark).unwrap_or(0),
                records,
            });
        }
    }
    Ok(fetched)
}

/// Consecutive batches of a partition, for the reader of the records.
#[derive(Debug)]
pub struct BatchRange {
    pub partition: TopicPartition,
    /// Whole batches; the first may begin below `offset`.
    pub records: Bytes,
    /// The first requested offset.
    pub offset: u64,
    /// The first offset that is not wanted any more.
    pub until: Option<u64>,
}

/// Item sent by the fetching task to the consumer of the records.
#[derive(Debug)]
pub enum Delivery {
    Stretch(BatchRange),
    /// Records were deleted by retention before they were read.
    Deleted(DeletedRange),
    /// Acknowledged once everything before it was processed.
    Barrier(oneshot::Sender<()>),
}

/// Records from `from` up to, but without, `until`, where reading resumes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletedRange {
    pub partition: TopicPartition,
    pub from: u64,
    pub until: u64,
}

/// The range to read from a partition.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: u64,
    /// `None`: endless.
    pub until: Option<u64>,
}

/// Reads partitions of one leader until each has reached its end, and sends stretches as they arrive. Ends early,
/// without an error, when the receiver of `deliveries` is dropped.
pub async fn read(
    client: Arc<Client>,
    spans: Vec<(TopicPartition, Span)>,
    deliveries: mpsc::Sender<Delivery>,
) -> Result<(), ClientError> {
    let mut reader = Reader {
        client,
        spans: spans.into_iter().filter(|(_, span)| !span.is_done()).collect(),
        connection: None,
        troubled_since: None,
    };
    while !reader.spans.is_empty() {
        let fetched = match reader.fetch().await {
            Ok(fetched) => fetched,
            Err(error) => {
                reader.wait_out(error).await?;
                continue;
            }
        };
        for fetched in fetched {
            if let Some(delivery) = reader.take(fetched).await?
                && deliveries.send(delivery).await.is_err()
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Span {
    fn is_done(&self) -> bool {
        self.until.is_some_and(|until| self.from >= until)
    }
}

struct Reader {
    client: Arc<Client>,
    /// In the order of the next fetch; a partition with records moves to the back, so that a busy partition does not
    /// starve the others.
    spans: Vec<(TopicPartition, Span)>,
    connection: Option<Arc<Connection>>,
    troubled_since: Option<Instant>,
}

impl Reader {
    async fn fetch(&mut self) -> Result<Vec<FetchResult>, ClientError> {
        let connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => {
                let (partition, _) = &self.spans[0];
                let metadata = self.client.topic(&partition.topic).await?;
                let connection = self.client.leader(&metadata, partition).await?;
                self.connection.insert(connection).clone()
            }
        };
        let positions: Vec<FetchPosition> = self
            .spans
            .iter()
            .map(|(partition, span)| FetchPosition {
                partition: partition.clone(),
                offset: span.from,
            })
            .collect();
        let fetched = fetch(&connection, &positions, CONSUME).await?;
        self.troubled_since = None;
        Ok(fetched)
    }

    /// Waits a moment before the leader is looked up again; returns the error when it is permanent or lasts too long.
    async fn wait_out(&mut self, error: ClientError) -> Result<(), ClientError> {
        let since = *self.troubled_since.get_or_insert_with(Instant::now);
        if !error.is_passing() || since.elapsed() > PATIENCE {
            return Err(error);
        }
        if let Some(connection) = self.connection.take() {
            self.client.forget(&connection).await;
        }
        sleep(Duration::from_millis(200)).await;
        Ok(())
    }

    /// Advances the partition. Returns `None` if there are no new records.
    async fn take(&mut self, fetched: FetchResult) -> Result<Option<Delivery>, ClientError> {
        let place = self.spans.iter().position(|(partition, _)| *partition == fetched.partition);
        let Some(place) = place else { return Ok(None) };
        let span = self.spans[place].1;
        let records = match fetched.records {
            Ok(records) => records,
            Err(ResponseError::OffsetOutOfRange) => {
                let gone = self.start_over(&fetched.partition, span.from).await?;
                self.spans[place].1.from = gone.until;
                return Ok(Some(Delivery::Deleted(gone)));
            }
            Err(code) => {
                let what = format!("cannot read {}", fetched.partition);
                self.wait_out(BrokerRejection { what, code, message: None }.into()).await?;
                return Ok(None);
            }
        };
        let next = match next_offset(&records) {
            Some(next) => next.max(span.from),
            None => return Ok(None),
        };
        let (partition, mut moved) = self.spans.remove(place);
        moved.from = next;
        if !moved.is_done() {
            self.spans.push((partition.clone(), moved));
        }
        let (offset, until) = (span.from, span.until);
        Ok(Some(Delivery::Stretch(BatchRange { partition, records, offset, until })))
    }

    /// Retention overtook the reader: it resumes at the partition's current start.
    async fn start_over(
        &self,
        partition: &TopicPartition,
        offset: u64,
    ) -> Result<DeletedRange, ClientError> {
        let metadata = self.client.topic(&partition.topic).await?;
        let starts = self.client.offsets_at(&metadata, [(partition.clone(), EARLIEST)]).await?;
        let start = starts.get(partition).copied().flatten().unwrap_or(0);
        if start <= offset {
            // The offset is beyond the end: the topic was created again, or truncated.
            let what = format!("offset {offset} of {partition}");
            let code = ResponseError::OffsetOutOfRange;
            let message = Some("it is beyond the end; the topic may have been recreated".into());
            return Err(BrokerRejection { what, code, message }.into());
        }
        Ok(DeletedRange { partition: partition.clone(), from: offset, until: start })
    }
}

/// The offset after the last whole batch.
fn next_offset(records: &[u8]) -> Option<u64> {
    let (header, _) = record::split(records).map_while(Result::ok).last()?;
    Some(header.base_offset + header.last_offset_delta as u64 + 1)
}
