//! Reading by offset and by time, and waiting for what is not there yet.

use std::time::Duration;

use base::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use base::{Offset, PartitionId};
use bytes::Bytes;
use hashbrown::HashMap;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::error::FetchError;

/// Consecutive batches, as they lie in the journal.
#[derive(Clone, Debug)]
pub struct Batches {
    /// Whole batches, one or more in each. The first may begin below the offset that was asked
    /// for, since that may lie in the middle of a batch; empty at the end of the partition.
    pub records: Vec<Bytes>,
    pub high_watermark: Offset,
    pub log_start: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOffset {
    pub offset: Offset,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchWant {
    pub partition: PartitionId,
    pub offset: Offset,
    pub bytes_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchLimits {
    /// Wait until so much is there, or for as long as `wait`.
    pub bytes_min: usize,
    /// Of all partitions together. At least one batch is answered if there is one.
    pub bytes_max: usize,
    pub wait: Duration,
}

impl Batches {
    pub fn bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

impl Broker {
    pub fn bounds(&self, partition: PartitionId) -> Option<Bounds> {
        self.read(|state| {
            let found = state.partition(partition)?;
            Some(Bounds { log_start: found.log_start(), end: found.next_offset() })
        })
    }

    /// Consecutive batches from the one that holds `offset` on (or the next one, if compaction
    /// took it): at most `bytes_max`, but at least one batch.
    pub async fn read_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<Batches, FetchError> {
        let Bounds { log_start, end } =
            self.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
        if offset < log_start || offset > end {
            return Err(FetchError::OffsetOutOfRange { offset, log_start, end });
        }
        let records = if offset == end || bytes_max == 0 {
            Vec::new()
        } else {
            let bytes_max = bytes_max.min(FETCH_BYTES_MAX);
            self.journal()
                .read(partition.stream(), offset, bytes_max)
                .await
                .map_err(|error| FetchError::Storage(error.to_string()))?
        };
        Ok(Batches { records, high_watermark: end, log_start })
    }

    /// Answers every want, in order, once `bytes_min` are there or the time is up. An error
    /// answers at once.
    pub async fn fetch(
        &self,
        wants: &[FetchWant],
        limits: FetchLimits,
    ) -> Vec<Result<Batches, FetchError>> {
        let deadline = Instant::now() + limits.wait.min(FETCH_WAIT_MAX);
        let mut answers = Answers::new(wants.len(), limits);
        for (place, want) in wants.iter().enumerate() {
            answers.look(self, place, want).await;
        }
        if answers.are_enough() || limits.wait.is_zero() {
            return answers.finish();
        }
        let watch = self.watch();
        let mut places: HashMap<PartitionId, usize> = HashMap::with_capacity(wants.len());
        for (place, want) in wants.iter().enumerate() {
            watch.add(want.partition);
            places.insert(want.partition, place);
        }
        // Once more, now that no change can slip by.
        for (place, want) in wants.iter().enumerate() {
            if self.bounds(want.partition).is_none_or(|bounds| bounds.end > want.offset) {
                answers.look(self, place, want).await;
            }
        }
        while !answers.are_enough() {
            if tokio::time::timeout_at(deadline, watch.ready()).await.is_err() {
                break;
            }
            for partition in watch.take_ready() {
                if let Some(&place) = places.get(&partition) {
                    answers.look(self, place, &wants[place]).await;
                }
            }
        }
        answers.finish()
    }

    /// The first record whose timestamp is at least `timestamp_ms`.
    pub async fn offset_at_time(
        &self,
        partition: PartitionId,
        timestamp_ms: i64,
    ) -> Result<Option<TimedOffset>, FetchError> {
        let bounds = self.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
        let found = self.journal().find_time(partition.stream(), timestamp_ms).await;
        let Some((_, batch)) = found.map_err(|error| FetchError::Storage(error.to_string()))?
        else {
            return Ok(None);
        };
        let at = record::offset_at_or_after(&batch, timestamp_ms)
            .map_err(|error| FetchError::Storage(error.to_string()))?;
        Ok(at
            // The batch may begin below the log's start: what is deleted is not named again.
            .map(|(offset, timestamp)| TimedOffset {
                offset: offset.max(bounds.log_start),
                timestamp,
            })
            .filter(|at| at.offset < bounds.end))
    }

    /// The record with the largest timestamp; the first of them, if several have it.
    pub async fn offset_of_max_timestamp(
        &self,
        partition: PartitionId,
    ) -> Result<Option<TimedOffset>, FetchError> {
        self.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
        let found = self.journal().find_max_time(partition.stream()).await;
        let Some((_, batch)) = found.map_err(|error| FetchError::Storage(error.to_string()))?
        else {
            return Ok(None);
        };
        let at = record::first_with_max_timestamp(&batch)
            .map_err(|error| FetchError::Storage(error.to_string()))?;
        Ok(at.map(|(offset, timestamp)| TimedOffset { offset, timestamp }))
    }
}

/// The answers to a fetch as they come together.
struct Answers {
    limits: FetchLimits,
    bytes: usize,
    failed: bool,
    by_place: Vec<Option<Result<Batches, FetchError>>>,
}

impl Answers {
    fn new(wants: usize, limits: FetchLimits) -> Self {
        Self { limits, bytes: 0, failed: false, by_place: (0..wants).map(|_| None).collect() }
    }

    fn are_enough(&self) -> bool {
        self.failed || self.bytes >= self.limits.bytes_min.max(1)
    }

    async fn look(&mut self, broker: &Broker, place: usize, want: &FetchWant) {
        if let Some(Ok(former)) = &self.by_place[place] {
            self.bytes -= former.bytes();
        }
        let left = self.limits.bytes_max.min(FETCH_BYTES_MAX).saturating_sub(self.bytes);
        let answer =
            broker.read_batches(want.partition, want.offset, left.min(want.bytes_max)).await;
        match &answer {
            Ok(batches) => self.bytes += batches.bytes(),
            Err(_) => self.failed = true,
        }
        self.by_place[place] = Some(answer);
    }

    fn finish(self) -> Vec<Result<Batches, FetchError>> {
        self.by_place.into_iter().map(|answer| answer.expect("every want was looked at")).collect()
    }
}
