//! Lag of a group.

use std::collections::{BTreeMap, BTreeSet};

use base::lag::{lag, next_unread};
use client::cluster::Metadata;
use client::offsets::Bounds;
use client::{Client, TopicPartition};
use operations::time::now_ms;
use serde::Serialize;

use crate::command_error::CommandError;

/// Lag of a group in one partition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct PartitionLag {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// `null`: nothing committed yet.
    pub(super) committed: Option<u64>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) lag_records: u64,
    /// Age of the oldest unread record: 0 when there is none, `null` when it has no timestamp.
    pub(super) lag_seconds: Option<f64>,
    /// The member that reads it.
    pub(super) member: Option<String>,
}

/// Lag of a group in every partition with a committed offset, and in `also`.
pub(super) async fn lags(
    client: &Client,
    committed: &BTreeMap<TopicPartition, u64>,
    also: &BTreeMap<TopicPartition, String>,
) -> Result<Vec<PartitionLag>, CommandError> {
    let places: BTreeSet<&TopicPartition> = committed.keys().chain(also.keys()).collect();
    let metadata = metadata_of(client, places.iter().copied()).await?;
    // A deleted topic may still have committed offsets.
    let there = |place: &&TopicPartition| {
        let topic = metadata.topics.get(&*place.topic);
        topic.is_some_and(|topic| (place.partition as usize) < topic.partitions.len())
    };
    let places: Vec<TopicPartition> = places.into_iter().filter(there).cloned().collect();
    let bounds = client.bounds(&metadata, &places).await?;
    let unread = |place: &TopicPartition, bounds: &Bounds| {
        let committed = committed.get(place).copied().unwrap_or(0);
        let is_behind = lag(committed, bounds.start, bounds.end) > 0;
        is_behind.then(|| next_unread(committed, bounds.start))
    };
    let oldest: BTreeMap<TopicPartition, u64> = bounds
        .iter()
        .filter_map(|(place, bounds)| Some((place.clone(), unread(place, bounds)?)))
        .collect();
    let timestamps = client.timestamps_at(&metadata, oldest.clone()).await?;
    let now = now_ms();
    let lags = bounds.into_iter().map(|(place, bounds)| {
        let lag_seconds = match (oldest.get(&place), timestamps.get(&place)) {
            (None, _) => Some(0.0),
            (Some(_), Some(&timestamp)) if timestamp >= 0 => {
                Some((now - timestamp).max(0) as f64 / 1000.0)
            }
            (Some(_), _) => None,
        };
        PartitionLag {
            topic: place.topic.to_string(),
            partition: place.partition,
            committed: committed.get(&place).copied(),
            start: bounds.start,
            end: bounds.end,
            lag_records: lag(committed.get(&place).copied().unwrap_or(0), bounds.start, bounds.end),
            lag_seconds,
            member: also.get(&place).cloned(),
        }
    });
    Ok(lags.collect())
}

pub(super) async fn metadata_of(
    client: &Client,
    places: impl Iterator<Item = &TopicPartition>,
) -> Result<Metadata, CommandError> {
    let topics: BTreeSet<&str> = places.map(|place| &*place.topic).collect();
    let topics: Vec<&str> = topics.into_iter().collect();
    Ok(client.metadata(Some(&topics)).await?)
}

pub(super) fn total_records(lags: &[PartitionLag]) -> u64 {
    lags.iter().map(|lag| lag.lag_records).sum()
}

/// Age of the oldest unread record anywhere.
pub(super) fn total_seconds(lags: &[PartitionLag]) -> Option<f64> {
    lags.iter().filter_map(|lag| lag.lag_seconds).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::behind;

    fn lag(records: u64, seconds: Option<f64>) -> PartitionLag {
        PartitionLag {
            topic: "t".into(),
            partition: 0,
            committed: None,
            start: 0,
            end: records,
            lag_records: records,
            lag_seconds: seconds,
            member: None,
        }
    }

    #[test]
    fn lag_of_a_group_is_the_age_of_its_oldest_unread_record() {
        let lags = [lag(5, Some(2.0)), lag(0, Some(0.0)), lag(3, Some(90.0)), lag(1, None)];
        assert_eq!(total_records(&lags), 9);
        assert_eq!(total_seconds(&lags), Some(90.0));
        assert_eq!(behind(total_seconds(&lags)), "1m 30s");
        assert_eq!(behind(None), "-");
    }
}
