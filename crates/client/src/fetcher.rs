//! Reading partitions: one fetch, and the loop that keeps one under way while the last one's
//! records are looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, sleep};

use crate::cluster::{Client, PATIENCE, TopicPartition};
use crate::connection::Connection;
use crate::error::{ClientError, Refused, accepted};
use crate::requests::{self, EARLIEST, FetchLimits};

/// 12 is the last version that names topics rather than numbering them.
const VERSIONS: std::ops::RangeInclusive<i16> = 4..=12;

/// What a consumer asks for: much, but answered as soon as there is anything.
pub const CONSUME: FetchLimits =
    FetchLimits { wait_ms: 500, bytes_min: 1, bytes_max: 16 << 20, partition_bytes_max: 4 << 20 };

/// A partition that a fetch asks for, and from which offset on.
#[derive(Clone, Debug)]
pub struct FetchPosition {
    pub partition: TopicPartition,
    pub offset: u64,
}

/// What one partition gave.
#[derive(Debug)]
pub struct Fetched {
    pub partition: TopicPartition,
    pub high_watermark: u64,
    pub records: Result<Bytes, ResponseError>,
}

/// One fetch, without a session: what is asked for is all in it.
pub async fn fetch(
    connection: &Connection,
    positions: &[FetchPosition],
    limits: FetchLimits,
) -> Result<Vec<Fetched>, ClientError> {
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
            fetched.push(Fetched {
                partition: TopicPartition::new(name.clone(), partition.partition_index),
                high_watermark: u64::try_from(partition.high_watermark).unwrap_or(0),
                records,
            });
        }
    }
    Ok(fetched)
}

/// Batches of a partition that follow one another, for the reader of the records.
#[derive(Debug)]
pub struct Stretch {
    pub partition: TopicPartition,
    /// Whole batches; the first may begin below `offset`.
    pub records: Bytes,
    /// The first offset that was asked for.
    pub offset: u64,
    /// Nothing at or after this is wanted.
    pub until: Option<u64>,
}

/// What the fetching task sends to the consumer of the records.
#[derive(Debug)]
pub enum Delivery {
    Stretch(Stretch),
    /// Records were deleted before they were read, by retention.
    Deleted(DeletedRange),
    /// Answered once everything before it was dealt with.
    Barrier(oneshot::Sender<()>),
}

/// Records `from` to `until`, without the latter; reading goes on there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletedRange {
    pub partition: TopicPartition,
    pub from: u64,
    pub until: u64,
}

/// What is read of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: u64,
    /// `None`: for ever.
    pub until: Option<u64>,
}

/// Reads partitions of one leader until each has reached its end, sending stretches as they come.
/// Ends early, without an error, when the other end of `deliveries` is gone.
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
    /// In the order in which they are asked for; what was answered goes to the back, so that a
    /// busy partition does not starve the others.
    spans: Vec<(TopicPartition, Span)>,
    connection: Option<Arc<Connection>>,
    troubled_since: Option<Instant>,
}

impl Reader {
    async fn fetch(&mut self) -> Result<Vec<Fetched>, ClientError> {
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

    /// Waits a moment and looks for the leader anew, or gives up.
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

    /// Moves the partition on. `None` when there was nothing new.
    async fn take(&mut self, fetched: Fetched) -> Result<Option<Delivery>, ClientError> {
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
                self.wait_out(Refused { what, code, message: None }.into()).await?;
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
        Ok(Some(Delivery::Stretch(Stretch { partition, records, offset, until })))
    }

    /// Retention overtook the reader: it goes on where the partition begins now.
    async fn start_over(
        &self,
        partition: &TopicPartition,
        offset: u64,
    ) -> Result<DeletedRange, ClientError> {
        let metadata = self.client.topic(&partition.topic).await?;
        let starts = self.client.offsets_at(&metadata, [(partition.clone(), EARLIEST)]).await?;
        let start = starts.get(partition).copied().flatten().unwrap_or(0);
        if start <= offset {
            // Beyond the end then: the topic was made anew, or cut.
            let what = format!("offset {offset} of {partition}");
            let code = ResponseError::OffsetOutOfRange;
            let message = Some("it is beyond the end; the topic may have been made anew".into());
            return Err(Refused { what, code, message }.into());
        }
        Ok(DeletedRange { partition: partition.clone(), from: offset, until: start })
    }
}

/// The offset after the last whole batch.
fn next_offset(records: &[u8]) -> Option<u64> {
    let (header, _) = record::split(records).map_while(Result::ok).last()?;
    Some(header.base_offset + header.last_offset_delta as u64 + 1)
}
