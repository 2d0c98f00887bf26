//! A member of a share group: heartbeats on one connection, a share session on another, both served
//! from within the calls of its receiver.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Failure, Settle};
use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use kafka_protocol::messages::share_fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::share_fetch_response::PartitionData;
use kafka_protocol::messages::{
    GroupId, ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest,
};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{Record, RecordBatchDecoder};
use uuid::Uuid;

use super::wire::{Connection, check, topic_name};

const SHARE_ACKNOWLEDGE: i16 = 1;
const SHARE_FETCH: i16 = 1;
const SHARE_GROUP_HEARTBEAT: i16 = 1;
/// What one fetch asks for.
pub(super) const FETCH_BYTES: i32 = 8 << 20;
/// How long a fetch waits while nothing is assigned yet.
const UNASSIGNED_WAIT: Duration = Duration::from_millis(50);
/// Epochs: the first request of a session, and the last one of a session or a membership.
const FIRST: i32 = 0;
const LAST: i32 = -1;
/// Settlements of the protocol.
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
/// Length and offset: what must be there to know how long a batch is.
const BATCH_PREFIX_BYTES: usize = 12;

type Partition = (Uuid, i32);

/// A record that is leased.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Place {
    partition: Partition,
    offset: i64,
}

#[derive(Debug)]
pub(super) struct Member {
    group: GroupId,
    id: StrBytes,
    /// Heartbeats.
    coordinator: Connection,
    epoch: i32,
    beat_every: Duration,
    beat_at: Instant,
    assigned: HashSet<Partition>,
    /// The share session, and which partitions it has.
    leader: Connection,
    session_epoch: i32,
    session: HashSet<Partition>,
}

impl Member {
    pub(super) async fn join(
        address: &str,
        group: &str,
        topics: &[String],
    ) -> Result<Self, Failure> {
        let mut member = Self {
            group: GroupId(StrBytes::from_string(group.to_owned())),
            id: StrBytes::from_string(Uuid::new_v4().to_string()),
            coordinator: Connection::open(address).await?,
            epoch: FIRST,
            beat_every: Duration::ZERO,
            beat_at: Instant::now(),
            assigned: HashSet::new(),
            leader: Connection::open(address).await?,
            session_epoch: FIRST,
            session: HashSet::new(),
        };
        member.beat(Some(topics)).await?;
        Ok(member)
    }

    /// `topics`: what to subscribe to; told once.
    async fn beat(&mut self, topics: Option<&[String]>) -> Result<(), Failure> {
        let names = topics.map(|topics| topics.iter().map(|topic| topic_name(topic)).collect());
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(self.group.clone())
            .with_member_id(self.id.clone())
            .with_member_epoch(self.epoch)
            .with_rack_id(None)
            .with_subscribed_topic_names(names);
        let answer = self.coordinator.call(SHARE_GROUP_HEARTBEAT, &request).await?;
        check("ShareGroupHeartbeat", answer.error_code)?;
        self.epoch = answer.member_epoch;
        self.beat_at = Instant::now();
        self.beat_every = Duration::from_millis(answer.heartbeat_interval_ms.max(0) as u64);
        if let Some(assignment) = answer.assignment {
            let topics = assignment.topic_partitions.into_iter();
            let each = topics.flat_map(|topic| {
                topic.partitions.into_iter().map(move |partition| (topic.topic_id, partition))
            });
            self.assigned = each.collect();
        }
        Ok(())
    }

    /// Leases up to so many records (and the rest of the batch that the last one is in).
    pub(super) async fn fetch(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<(Place, Bytes, bool)>, Failure> {
        // While nothing is assigned it asks more often: the next answer may bring partitions.
        if self.assigned.is_empty() || self.beat_at.elapsed() >= self.beat_every {
            self.beat(None).await?;
        }
        if self.assigned.is_empty() {
            tokio::time::sleep(wait.min(UNASSIGNED_WAIT)).await;
            return Ok(Vec::new());
        }
        let (added, forgotten) = self.session_changes();
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        let request = ShareFetchRequest::default()
            .with_group_id(Some(self.group.clone()))
            .with_member_id(Some(self.id.clone()))
            .with_share_session_epoch(self.next_session_epoch())
            .with_max_wait_ms(wait.as_millis() as i32)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES)
            .with_max_records(max)
            .with_batch_size(max)
            .with_topics(added)
            .with_forgotten_topics_data(forgotten);
        let answer = self.leader.call(SHARE_FETCH, &request).await?;
        check("ShareFetch", answer.error_code)?;
        let mut leased = Vec::new();
        for topic in answer.responses {
            for partition in topic.partitions {
                acquired(topic.topic_id, partition, &mut leased)?;
            }
        }
        Ok(leased)
    }

    fn session_changes(&mut self) -> (Vec<FetchTopic>, Vec<ForgottenTopic>) {
        let added = by_topic(self.assigned.difference(&self.session).copied());
        let forgotten = by_topic(self.session.difference(&self.assigned).copied());
        self.session.clone_from(&self.assigned);
        let added = added.into_iter().map(|(topic, partitions)| {
            let partition = |index| FetchPartition::default().with_partition_index(index);
            FetchTopic::default()
                .with_topic_id(topic)
                .with_partitions(partitions.into_iter().map(partition).collect())
        });
        let forgotten = forgotten.into_iter().map(|(topic, partitions)| {
            ForgottenTopic::default().with_topic_id(topic).with_partitions(partitions)
        });
        (added.collect(), forgotten.collect())
    }

    fn next_session_epoch(&mut self) -> i32 {
        let epoch = self.session_epoch;
        self.session_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        epoch
    }

    /// Settles; all of it is confirmed when this returns.
    pub(super) async fn settle(
        &mut self,
        mut settles: Vec<(Place, Settle)>,
    ) -> Result<(), Failure> {
        if settles.is_empty() {
            return Ok(());
        }
        settles.sort_unstable_by_key(|(place, _)| *place);
        let same_topic =
            |a: &(Place, Settle), b: &(Place, Settle)| a.0.partition.0 == b.0.partition.0;
        let topics = settles.chunk_by(same_topic).map(|settles| {
            AcknowledgeTopic::default()
                .with_topic_id(settles[0].0.partition.0)
                .with_partitions(acknowledged(settles))
        });
        let topics = topics.collect();
        self.acknowledge(topics).await
    }

    async fn acknowledge(&mut self, topics: Vec<AcknowledgeTopic>) -> Result<(), Failure> {
        let request = ShareAcknowledgeRequest::default()
            .with_group_id(Some(self.group.clone()))
            .with_member_id(Some(self.id.clone()))
            .with_share_session_epoch(self.next_session_epoch())
            .with_topics(topics);
        let answer = self.leader.call(SHARE_ACKNOWLEDGE, &request).await?;
        check("ShareAcknowledge", answer.error_code)?;
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
        partitions
            .map(|partition| partition.error_code)
            .try_for_each(|code| check("ShareAcknowledge of a partition", code))
    }

    pub(super) async fn leave(&mut self) -> Result<(), Failure> {
        if self.session_epoch != FIRST {
            self.session_epoch = LAST;
            self.acknowledge(Vec::new()).await?;
        }
        self.epoch = LAST;
        self.beat(None).await
    }
}

fn by_topic(partitions: impl Iterator<Item = Partition>) -> HashMap<Uuid, Vec<i32>> {
    let mut grouped: HashMap<Uuid, Vec<i32>> = HashMap::new();
    for (topic, partition) in partitions {
        grouped.entry(topic).or_default().push(partition);
    }
    grouped
}

/// The settles of one topic, in rising order.
fn acknowledged(settles: &[(Place, Settle)]) -> Vec<AcknowledgePartition> {
    let partitions = settles.chunk_by(|(a, _), (b, _)| a.partition == b.partition);
    let partitions = partitions.map(|settles| {
        let ranges =
            settles.chunk_by(|(a, how), (b, next)| how == next && a.offset + 1 == b.offset);
        let batches = ranges.map(|range| {
            let kind = match range[0].1 {
                Settle::Accept => ACCEPT,
                Settle::Release => RELEASE,
            };
            AcknowledgementBatch::default()
                .with_first_offset(range[0].0.offset)
                .with_last_offset(range[range.len() - 1].0.offset)
                .with_acknowledge_types(vec![kind])
        });
        AcknowledgePartition::default()
            .with_partition_index(settles[0].0.partition.1)
            .with_acknowledgement_batches(batches.collect())
    });
    partitions.collect()
}

/// What a partition's answer leases. Its batches are sent whole, so they have other records too.
fn acquired(
    topic: Uuid,
    data: PartitionData,
    leased: &mut Vec<(Place, Bytes, bool)>,
) -> Result<(), Failure> {
    check("ShareFetch of a partition", data.error_code)?;
    if data.acquired_records.is_empty() {
        return Ok(());
    }
    let records = records_of(data.records.unwrap_or_default())?;
    let mut records: HashMap<i64, Record> =
        records.into_iter().map(|record| (record.offset, record)).collect();
    let partition = (topic, data.partition_index);
    for run in data.acquired_records {
        for offset in run.first_offset..=run.last_offset {
            let record = records.remove(&offset).ok_or_else(|| {
                Failure::unknown(format!("the record at {offset} is leased, and was not sent"))
            })?;
            let place = Place { partition, offset };
            leased.push((place, record.value.unwrap_or_default(), run.delivery_count > 1));
        }
    }
    Ok(())
}

fn records_of(mut batches: Bytes) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    while let Some(prefix) = batches.first_chunk::<BATCH_PREFIX_BYTES>() {
        let length = i32::from_be_bytes([prefix[8], prefix[9], prefix[10], prefix[11]]);
        let length = usize::try_from(length).map_err(Failure::unknown)?;
        // The last batch may be cut.
        if batches.len() < BATCH_PREFIX_BYTES + length {
            break;
        }
        let mut batch = batches.split_to(BATCH_PREFIX_BYTES + length);
        let decoded = RecordBatchDecoder::decode(&mut batch).map_err(Failure::unknown)?;
        records.extend(decoded.records);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_and_is_settled_alike_is_one_range() {
        let settle = |offset, how| (Place { partition: (Uuid::nil(), 0), offset }, how);
        let settles = [
            settle(1, Settle::Accept),
            settle(2, Settle::Accept),
            settle(3, Settle::Release),
            settle(5, Settle::Release),
        ];
        let partitions = acknowledged(&settles);
        let ranges = partitions[0].acknowledgement_batches.iter();
        let ranges: Vec<_> = ranges
            .map(|range| (range.first_offset, range.last_offset, range.acknowledge_types[0]))
            .collect();
        assert_eq!(ranges, [(1, 2, ACCEPT), (3, 3, RELEASE), (5, 5, RELEASE)]);
    }
}
