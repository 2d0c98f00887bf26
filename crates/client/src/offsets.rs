//! Start and end offsets of partitions, offsets by time, and the age of records.

use std::collections::BTreeMap;

use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use crate::cluster::{Client, Metadata, TopicPartition, patiently};
use crate::error::{ClientError, accepted};
use crate::fetcher::{FetchPosition, fetch};
use crate::requests::{self, FetchLimits};

pub use crate::requests::{EARLIEST, LATEST};

/// The first offset of a partition, and the offset after its last record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub start: u64,
    pub end: u64,
}

impl Bounds {
    /// Upper limit of the number of records: offsets may be missing between them.
    pub fn records(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A look at an old record need not fetch a whole batch budget for each partition.
const PEEK: FetchLimits =
    FetchLimits { wait_ms: 0, bytes_min: 1, bytes_max: 32 << 20, partition_bytes_max: 64 << 10 };

/// Partitions per request. A broker limits the memory of a decoded request.
pub(crate) const PARTITIONS_PER_REQUEST: usize = 50_000;

impl Client {
    /// For each partition the offset of the first record at or after a timestamp in ms, or of [`EARLIEST`] or
    /// [`LATEST`]; `None` if there is no such record.
    pub async fn offsets_at(
        &self,
        metadata: &Metadata,
        wanted: impl IntoIterator<Item = (TopicPartition, i64)> + Clone,
    ) -> Result<BTreeMap<TopicPartition, Option<u64>>, ClientError> {
        patiently(|| async {
            let mut found = BTreeMap::new();
            for (leader, partitions) in self.by_leader(metadata, wanted.clone()).await? {
                for partitions in partitions.chunks(PARTITIONS_PER_REQUEST) {
                    let answer = leader.call(&list_offsets(partitions), 1..=7).await?;
                    take_offsets(answer, &mut found)?;
                }
            }
            Ok(found)
        })
        .await
    }

    /// Start and end of each partition.
    pub async fn bounds(
        &self,
        metadata: &Metadata,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, Bounds>, ClientError> {
        let at = |place| partitions.iter().cloned().map(move |partition| (partition, place));
        let starts = self.offsets_at(metadata, at(EARLIEST)).await?;
        let ends = self.offsets_at(metadata, at(LATEST)).await?;
        let bounds = starts.into_iter().map(|(partition, start)| {
            let start = start.unwrap_or(0);
            let end = ends.get(&partition).copied().flatten().unwrap_or(start);
            (partition, Bounds { start, end })
        });
        Ok(bounds.collect())
    }

    /// The timestamp of the first record at or after each offset, in ms. A partition without a record there is left
    /// out.
    pub async fn timestamps_at(
        &self,
        metadata: &Metadata,
        mut wanted: BTreeMap<TopicPartition, u64>,
    ) -> Result<BTreeMap<TopicPartition, i64>, ClientError> {
        let mut found = BTreeMap::new();
        // A reply is bounded, and holds at least one batch: each round completes at least one partition.
        while !wanted.is_empty() {
            let before = wanted.len();
            let by_leader = self.by_leader(metadata, wanted.clone()).await?;
            for (leader, partitions) in by_leader {
                let positions: Vec<FetchPosition> = partitions
                    .iter()
                    .map(|(partition, offset)| FetchPosition {
                        partition: partition.clone(),
                        offset: *offset,
                    })
                    .collect();
                for fetched in fetch(&leader, &positions, PEEK).await? {
                    // A deleted offset has no record whose age could be read.
                    let records = fetched.records.unwrap_or_default();
                    let offset = wanted.get(&fetched.partition).copied().unwrap_or_default();
                    match first_timestamp(&records, offset) {
                        Some(timestamp) => {
                            wanted.remove(&fetched.partition);
                            found.insert(fetched.partition, timestamp);
                        }
                        None if offset >= fetched.high_watermark => {
                            wanted.remove(&fetched.partition);
                        }
                        None => {}
                    }
                }
            }
            if wanted.len() == before {
                break;
            }
        }
        Ok(found)
    }
}

fn first_timestamp(records: &[u8], offset: u64) -> Option<i64> {
    for (_, range) in record::split(records).map_while(Result::ok) {
        let batch = record::Batch::decode(&records[range]).ok()?;
        let first = batch.records().map_while(Result::ok).find(|record| record.offset >= offset);
        if let Some(record) = first {
            return Some(record.timestamp);
        }
    }
    None
}

fn list_offsets(partitions: &[(TopicPartition, i64)]) -> ListOffsetsRequest {
    let mut topics: BTreeMap<&str, Vec<(i32, i64)>> = BTreeMap::new();
    for (partition, timestamp) in partitions {
        topics.entry(&partition.topic).or_default().push((partition.partition, *timestamp));
    }
    requests::list_offsets(topics)
}

fn take_offsets(
    answer: ListOffsetsResponse,
    found: &mut BTreeMap<TopicPartition, Option<u64>>,
) -> Result<(), ClientError> {
    for topic in answer.topics {
        let name: std::sync::Arc<str> = topic.name.as_str().into();
        for partition in topic.partitions {
            let place = TopicPartition::new(name.clone(), partition.partition_index);
            accepted(partition.error_code, None, || format!("cannot look into {place}"))?;
            found.insert(place, u64::try_from(partition.offset).ok());
        }
    }
    Ok(())
}
