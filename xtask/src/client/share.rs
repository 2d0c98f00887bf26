//! A member of a share group (KIP-932): it leases records and settles each, and knows of every
//! settle whether the server confirmed it. It reports to no coordinator: which partitions it fetches
//! it is told by who made it, so that a restart of the server costs it one connect.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as Acknowledged,
};
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch as AcknowledgedByFetch, FetchPartition, FetchTopic,
};
use kafka_protocol::messages::share_fetch_response::PartitionData;
use kafka_protocol::messages::{
    GroupId, MetadataRequest, ShareAcknowledgeRequest, ShareFetchRequest,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Connection, FETCH_BYTES, invalid, name, records_of, refused};

const SHARE_ACKNOWLEDGE: i16 = 1;
const SHARE_FETCH: i16 = 1;
/// The first with ids of topics that is asked by name.
const METADATA_WITH_IDS: i16 = 12;
const EPOCH_MAX: i32 = i32::MAX;

/// A record that the member has a lease on.
#[derive(Clone, Debug)]
pub(crate) struct Leased {
    /// The topic's place in what the member was made with.
    pub(crate) topic: usize,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    /// 1 for the first delivery.
    pub(crate) attempt: i16,
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Bytes,
}

/// What is said of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Accept = 1,
    Release = 2,
    Reject = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settle {
    pub(crate) topic: usize,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) settlement: Settlement,
}

impl Leased {
    pub(crate) fn settle(&self, settlement: Settlement) -> Settle {
        let Leased { topic, partition, offset, .. } = *self;
        Settle { topic, partition, offset, settlement }
    }
}

#[derive(Debug)]
struct Topic {
    id: Uuid,
    partitions: Vec<i32>,
}

/// One member with its share session, on its own connection.
#[derive(Debug)]
pub(crate) struct ShareMember {
    connection: Connection,
    group: GroupId,
    member: StrBytes,
    /// What the next request of the session says.
    epoch: i32,
    topics: Vec<Topic>,
}

impl ShareMember {
    /// Connects and looks the topics up; all their partitions are fetched. The group must have its
    /// place in each topic already.
    pub(crate) fn open(
        address: SocketAddr,
        patience: Duration,
        group: &str,
        topics: &[String],
    ) -> io::Result<ShareMember> {
        let mut connection = Connection::open(address, patience)?;
        let asked = topics.iter().map(|topic| {
            MetadataRequestTopic::default().with_topic_id(Uuid::nil()).with_name(Some(name(topic)))
        });
        let request = MetadataRequest::default()
            .with_topics(Some(asked.collect()))
            .with_allow_auto_topic_creation(false);
        let response = connection.call(METADATA_WITH_IDS, &request)?;
        let mut found = Vec::with_capacity(topics.len());
        for topic in topics {
            let named = |name: &str| name == topic;
            let known = response
                .topics
                .iter()
                .find(|it| it.name.as_ref().is_some_and(|name| named(name.0.as_str())));
            let known = known.ok_or_else(|| invalid(format!("topic {topic} was not described")))?;
            if known.error_code != 0 {
                return Err(refused(&format!("metadata of topic {topic}"), known.error_code));
            }
            let partitions = known.partitions.iter().map(|it| it.partition_index).collect();
            found.push(Topic { id: known.topic_id, partitions });
        }
        Ok(ShareMember {
            connection,
            group: GroupId(StrBytes::from_string(group.to_owned())),
            member: StrBytes::from_string(Uuid::new_v4().to_string()),
            epoch: 0,
            topics: found,
        })
    }

    /// Leases up to so many records, and waits up to `wait` for the first. It settles these before;
    /// all of them are confirmed when this returns without an error.
    pub(crate) fn fetch(
        &mut self,
        records_max: usize,
        wait: Duration,
        settles: &[Settle],
    ) -> io::Result<Vec<Leased>> {
        let topics = if self.epoch == 0 { self.all_partitions() } else { self.settled(settles) };
        let request = ShareFetchRequest::default()
            .with_group_id(Some(self.group.clone()))
            .with_member_id(Some(self.member.clone()))
            .with_share_session_epoch(self.next_epoch())
            .with_max_wait_ms(wait.as_millis() as i32)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES)
            .with_max_records(records_max as i32)
            .with_batch_size(records_max as i32)
            .with_topics(topics);
        let response = self.connection.call(SHARE_FETCH, &request)?;
        if response.error_code != 0 {
            return Err(refused("ShareFetch", response.error_code));
        }
        let mut leased = Vec::new();
        for topic in response.responses {
            let place = self.topics.iter().position(|known| known.id == topic.topic_id);
            let place = place.ok_or_else(|| invalid("a topic that nobody asked for"))?;
            for partition in topic.partitions {
                acquired(place, partition, &mut leased)?;
            }
        }
        Ok(leased)
    }

    /// Settles, in rising order of topic, partition and offset. Confirmed when this returns.
    pub(crate) fn acknowledge(&mut self, settles: &[Settle]) -> io::Result<()> {
        let topics = by_topic(settles).map(|(topic, settles)| {
            let partitions = by_partition(settles).map(|(partition, settles)| {
                let batches = ranges(settles).map(|(first, last, settlement)| {
                    Acknowledged::default()
                        .with_first_offset(first)
                        .with_last_offset(last)
                        .with_acknowledge_types(vec![settlement as i8])
                });
                AcknowledgePartition::default()
                    .with_partition_index(partition)
                    .with_acknowledgement_batches(batches.collect())
            });
            AcknowledgeTopic::default()
                .with_topic_id(self.topics[topic].id)
                .with_partitions(partitions.collect())
        });
        let request = ShareAcknowledgeRequest::default()
            .with_group_id(Some(self.group.clone()))
            .with_member_id(Some(self.member.clone()))
            .with_topics(topics.collect())
            .with_share_session_epoch(self.next_epoch());
        let response = self.connection.call(SHARE_ACKNOWLEDGE, &request)?;
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let codes = partitions.map(|partition| partition.error_code);
        match std::iter::once(response.error_code).chain(codes).find(|&code| code != 0) {
            Some(code) => Err(refused("ShareAcknowledge", code)),
            None => Ok(()),
        }
    }

    fn next_epoch(&mut self) -> i32 {
        let epoch = self.epoch;
        self.epoch = if epoch == EPOCH_MAX { 1 } else { epoch + 1 };
        epoch
    }

    fn all_partitions(&self) -> Vec<FetchTopic> {
        let topics = self.topics.iter().map(|topic| {
            let partition = |&index| FetchPartition::default().with_partition_index(index);
            FetchTopic::default()
                .with_topic_id(topic.id)
                .with_partitions(topic.partitions.iter().map(partition).collect())
        });
        topics.collect()
    }

    fn settled(&self, settles: &[Settle]) -> Vec<FetchTopic> {
        let topics = by_topic(settles).map(|(topic, settles)| {
            let partitions = by_partition(settles).map(|(partition, settles)| {
                let batches = ranges(settles).map(|(first, last, settlement)| {
                    AcknowledgedByFetch::default()
                        .with_first_offset(first)
                        .with_last_offset(last)
                        .with_acknowledge_types(vec![settlement as i8])
                });
                FetchPartition::default()
                    .with_partition_index(partition)
                    .with_acknowledgement_batches(batches.collect())
            });
            FetchTopic::default()
                .with_topic_id(self.topics[topic].id)
                .with_partitions(partitions.collect())
        });
        topics.collect()
    }
}

fn by_topic(settles: &[Settle]) -> impl Iterator<Item = (usize, &[Settle])> {
    settles.chunk_by(|a, b| a.topic == b.topic).map(|chunk| (chunk[0].topic, chunk))
}

fn by_partition(settles: &[Settle]) -> impl Iterator<Item = (i32, &[Settle])> {
    settles.chunk_by(|a, b| a.partition == b.partition).map(|chunk| (chunk[0].partition, chunk))
}

/// Offsets that follow one another and are settled alike: first, last, how.
fn ranges(settles: &[Settle]) -> impl Iterator<Item = (i64, i64, Settlement)> {
    settles
        .chunk_by(|a, b| a.settlement == b.settlement && a.offset + 1 == b.offset)
        .map(|chunk| (chunk[0].offset, chunk[chunk.len() - 1].offset, chunk[0].settlement))
}

/// What a partition's answer leases. Its batches are sent whole, so they have other records too.
fn acquired(topic: usize, data: PartitionData, leased: &mut Vec<Leased>) -> io::Result<()> {
    for (what, code) in
        [("a partition", data.error_code), ("a settle", data.acknowledge_error_code)]
    {
        if code != 0 {
            return Err(refused(&format!("{what} of ShareFetch"), code));
        }
    }
    if data.acquired_records.is_empty() {
        return Ok(());
    }
    let bytes = data.records.unwrap_or_default();
    let bytes_sent = bytes.len();
    let records = records_of(bytes)?;
    let mut records: HashMap<i64, _> =
        records.into_iter().map(|record| (record.offset, record)).collect();
    let acquired: Vec<(i64, i64)> =
        data.acquired_records.iter().map(|run| (run.first_offset, run.last_offset)).collect();
    for run in data.acquired_records {
        for offset in run.first_offset..=run.last_offset {
            let record = records.remove(&offset);
            let record = record.ok_or_else(|| {
                let mut sent: Vec<_> = records.keys().collect();
                sent.sort_unstable();
                invalid(format!(
                    "partition {}: the record at {offset} is leased, and was not sent: leased are \
                     {acquired:?}, and in {bytes_sent} bytes there are {sent:?} beside those \
                     before it",
                    data.partition_index
                ))
            })?;
            leased.push(Leased {
                topic,
                partition: data.partition_index,
                offset,
                attempt: run.delivery_count,
                key: record.key,
                value: record.value.unwrap_or_default(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_and_is_settled_alike_is_one_range() {
        use Settlement::{Accept, Release};
        let settle = |offset, settlement| Settle { topic: 0, partition: 0, offset, settlement };
        let settles =
            [settle(1, Accept), settle(2, Accept), settle(3, Release), settle(5, Release)];
        let expected = [(1, 2, Accept), (3, 3, Release), (5, 5, Release)];
        assert_eq!(ranges(&settles).collect::<Vec<_>>(), expected);
    }
}
