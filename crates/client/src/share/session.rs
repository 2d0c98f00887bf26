//! A share session: its partitions, its next request, and the leases in a reply.
//!
//! It builds requests and reads replies without I/O, so that a blocking thread, a task and a simulation use the same
//! session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::HashMap;
use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch as AcknowledgedByFetch, FetchPartition, FetchTopic, ForgottenTopic,
};
use kafka_protocol::messages::share_fetch_response::PartitionData;
use kafka_protocol::messages::{
    ApiKey, GroupId, ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest,
    ShareFetchResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{LeasedRecord, Settle, Settlement, SharePartition};
use crate::error::{CallError, accepted};
use crate::records::records_of;
use crate::requests::group_id;

/// The versions that sessions are written for.
pub const SHARE_ACKNOWLEDGE: i16 = 1;
pub const SHARE_FETCH: i16 = 1;
/// Epochs of the first request of a session, and of its last.
pub(super) const FIRST: i32 = 0;
pub(super) const LAST: i32 = -1;

/// Limits of one fetch.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    /// Some brokers lease whole batches, so more records may be returned.
    pub records_max: usize,
    pub bytes_max: i32,
    /// Wait for the first record.
    pub wait: Duration,
}

/// One session with one broker. After an error of any request it is unusable: the broker ends it when its connection
/// is closed, and redelivers its records to other members.
#[derive(Debug)]
pub struct ShareSession {
    group: GroupId,
    member: StrBytes,
    /// Epoch of the next request.
    epoch: i32,
    partitions: BTreeSet<SharePartition>,
}

impl ShareSession {
    /// `member` is its permanent id within the group, chosen at random.
    pub fn new(group: &str, member: Uuid) -> Self {
        let member = StrBytes::from_string(member.to_string());
        Self { group: group_id(group), member, epoch: FIRST, partitions: BTreeSet::new() }
    }

    pub fn group(&self) -> &GroupId {
        &self.group
    }

    pub fn member(&self) -> &StrBytes {
        &self.member
    }

    /// Whether a request was built from it.
    pub fn is_begun(&self) -> bool {
        self.epoch != FIRST
    }

    /// Leases records of `wanted`, which become the session's partitions, after settling `settles`. A reply accepted
    /// by [`leased`] confirms all of them.
    pub fn fetch(
        &mut self,
        wanted: &BTreeSet<SharePartition>,
        limits: ShareLimits,
        settles: &[Settle],
    ) -> ShareFetchRequest {
        let mut named: BTreeMap<SharePartition, Vec<AcknowledgedByFetch>> = BTreeMap::new();
        for added in wanted.difference(&self.partitions) {
            named.entry(*added).or_default();
        }
        for (partition, first, last, settlement) in ranges(settles) {
            let batch = AcknowledgedByFetch::default()
                .with_first_offset(first)
                .with_last_offset(last)
                .with_acknowledge_types(vec![settlement as i8]);
            named.entry(partition).or_default().push(batch);
        }
        let named = named.into_iter().map(|(partition, batches)| {
            let row = FetchPartition::default()
                .with_partition_index(partition.partition)
                .with_acknowledgement_batches(batches);
            (partition.topic, row)
        });
        let topics = by_topic(named).map(|(topic, partitions)| {
            FetchTopic::default().with_topic_id(topic).with_partitions(partitions)
        });
        let forgotten = self.partitions.difference(wanted);
        let forgotten = by_topic(forgotten.map(|it| (it.topic, it.partition)));
        let forgotten = forgotten.map(|(topic, partitions)| {
            ForgottenTopic::default().with_topic_id(topic).with_partitions(partitions)
        });
        let records_max = i32::try_from(limits.records_max).unwrap_or(i32::MAX);
        let request = ShareFetchRequest::default()
            .with_group_id(Some(self.group.clone()))
            .with_member_id(Some(self.member.clone()))
            .with_max_wait_ms(i32::try_from(limits.wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(1)
            .with_max_bytes(limits.bytes_max)
            .with_max_records(records_max)
            .with_batch_size(records_max)
            .with_topics(topics.collect())
            .with_forgotten_topics_data(forgotten.collect());
        self.partitions.clone_from(wanted);
        request.with_share_session_epoch(self.next_epoch())
    }

    /// Settles records. A reply accepted by [`acknowledged`] confirms all of them.
    pub fn acknowledge(&mut self, settles: &[Settle]) -> ShareAcknowledgeRequest {
        let epoch = self.next_epoch();
        self.acknowledgement(settles).with_share_session_epoch(epoch)
    }

    /// Ends the session: the broker releases its leases.
    pub fn close(&mut self) -> ShareAcknowledgeRequest {
        self.epoch = LAST;
        self.acknowledgement(&[]).with_share_session_epoch(LAST)
    }

    fn acknowledgement(&self, settles: &[Settle]) -> ShareAcknowledgeRequest {
        let mut named: BTreeMap<SharePartition, Vec<AcknowledgementBatch>> = BTreeMap::new();
        for (partition, first, last, settlement) in ranges(settles) {
            let batch = AcknowledgementBatch::default()
                .with_first_offset(first)
                .with_last_offset(last)
                .with_acknowledge_types(vec![settlement as i8]);
            named.entry(partition).or_default().push(batch);
        }
        let named = named.into_iter().map(|(partition, batches)| {
            let row = AcknowledgePartition::default()
                .with_partition_index(partition.partition)
                .with_acknowledgement_batches(batches);
            (partition.topic, row)
        });
        let topics = by_topic(named).map(|(topic, partitions)| {
            AcknowledgeTopic::default().with_topic_id(topic).with_partitions(partitions)
        });
        ShareAcknowledgeRequest::default()
            .with_group_id(Some(self.group.clone()))
            .with_member_id(Some(self.member.clone()))
            .with_topics(topics.collect())
    }

    fn next_epoch(&mut self) -> i32 {
        let epoch = self.epoch;
        self.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        epoch
    }
}

/// Groups rows that are sorted by topic.
fn by_topic<T>(rows: impl Iterator<Item = (Uuid, T)>) -> impl Iterator<Item = (Uuid, Vec<T>)> {
    let mut topics: BTreeMap<Uuid, Vec<T>> = BTreeMap::new();
    for (topic, row) in rows {
        topics.entry(topic).or_default().push(row);
    }
    topics.into_iter()
}

/// Ranges of consecutive offsets of a partition with one settlement: first, last, settlement.
fn ranges(settles: &[Settle]) -> Vec<(SharePartition, i64, i64, Settlement)> {
    let mut settles = settles.to_vec();
    settles.sort_unstable();
    let follows = |a: &Settle, b: &Settle| {
        (a.topic, a.partition, a.settlement) == (b.topic, b.partition, b.settlement)
            && a.offset.checked_add(1) == Some(b.offset)
    };
    let ranges = settles.chunk_by(follows).map(|chunk| {
        let (first, last) = (chunk[0], chunk[chunk.len() - 1]);
        let partition = SharePartition { topic: first.topic, partition: first.partition };
        (partition, first.offset, last.offset, first.settlement)
    });
    ranges.collect()
}

/// Reads the leased records of a reply. An error means that a part of the request was refused.
pub fn leased(answer: ShareFetchResponse) -> Result<Vec<LeasedRecord>, CallError> {
    accepted(answer.error_code, answer.error_message.as_deref(), || "cannot lease".into())?;
    let mut leased = Vec::new();
    for topic in answer.responses {
        for partition in topic.partitions {
            take_leased(topic.topic_id, partition, &mut leased)?;
        }
    }
    Ok(leased)
}

/// Checks that all settlements of a request were accepted.
pub fn acknowledged(answer: &ShareAcknowledgeResponse) -> Result<(), CallError> {
    accepted(answer.error_code, answer.error_message.as_deref(), || "cannot settle".into())?;
    for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
        let index = partition.partition_index;
        let what = || format!("cannot settle records of partition {index}");
        accepted(partition.error_code, partition.error_message.as_deref(), what)?;
    }
    Ok(())
}

/// Batches are sent whole, so they contain other records too.
fn take_leased(
    topic: Uuid,
    data: PartitionData,
    leased: &mut Vec<LeasedRecord>,
) -> Result<(), CallError> {
    let index = data.partition_index;
    let message = data.error_message.as_deref();
    accepted(data.error_code, message, || format!("cannot lease of partition {index}"))?;
    let message = data.acknowledge_error_message.as_deref();
    let what = || format!("cannot settle records of partition {index}");
    accepted(data.acknowledge_error_code, message, what)?;
    if data.acquired_records.is_empty() {
        return Ok(());
    }
    let bytes = data.records.unwrap_or_default();
    let bytes_sent = bytes.len();
    let mut records: HashMap<i64, _> =
        records_of(bytes)?.into_iter().map(|record| (record.offset, record)).collect();
    let runs = || data.acquired_records.iter().map(|run| (run.first_offset, run.last_offset));
    for run in &data.acquired_records {
        for offset in run.first_offset..=run.last_offset {
            let Some(record) = records.remove(&offset) else {
                let mut others: Vec<_> = records.keys().collect();
                others.sort_unstable();
                return Err(CallError::Unfitting {
                    api: ApiKey::ShareFetch.into(),
                    reason: format!(
                        "partition {index}: the record at {offset} is leased, and was not sent: \
                         leased are {:?}, and in {bytes_sent} bytes there are {others:?} beside \
                         those before it",
                        runs().collect::<Vec<_>>()
                    ),
                });
            };
            leased.push(LeasedRecord {
                topic,
                partition: index,
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
    use bytes::Bytes;
    use kafka_protocol::messages::share_fetch_response::{
        AcquiredRecords, ShareFetchableTopicResponse,
    };

    use super::*;
    use crate::records::{NewRecord, batch_of};

    const TOPIC: Uuid = Uuid::from_u128(7);
    const LIMITS: ShareLimits =
        ShareLimits { records_max: 10, bytes_max: 1000, wait: Duration::from_millis(5) };

    fn partitions(indexes: &[i32]) -> BTreeSet<SharePartition> {
        let at = |&partition| SharePartition { topic: TOPIC, partition };
        indexes.iter().map(at).collect()
    }

    fn settle(partition: i32, offset: i64, settlement: Settlement) -> Settle {
        Settle { topic: TOPIC, partition, offset, settlement }
    }

    #[test]
    fn consecutive_offsets_with_one_settlement_are_one_range() {
        use Settlement::{Accept, Release};
        let settles = [
            settle(1, 1, Accept),
            settle(0, 5, Release),
            settle(0, 3, Release),
            settle(0, 2, Accept),
            settle(0, 1, Accept),
        ];
        let ranges: Vec<_> = ranges(&settles)
            .into_iter()
            .map(|(it, first, last, how)| (it.partition, first, last, how))
            .collect();
        let expected =
            [(0, 1, 2, Accept), (0, 3, 3, Release), (0, 5, 5, Release), (1, 1, 1, Accept)];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn fetch_names_added_settled_and_forgotten_partitions() {
        let mut session = ShareSession::new("g", Uuid::nil());
        let named = |request: &ShareFetchRequest| -> Vec<(i32, usize)> {
            let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.map(|it| (it.partition_index, it.acknowledgement_batches.len())).collect()
        };
        let first = session.fetch(&partitions(&[0, 1]), LIMITS, &[]);
        assert_eq!((first.share_session_epoch, named(&first)), (0, vec![(0, 0), (1, 0)]));
        let settles = [settle(1, 4, Settlement::Accept)];
        let second = session.fetch(&partitions(&[1, 2]), LIMITS, &settles);
        assert_eq!((second.share_session_epoch, named(&second)), (1, vec![(1, 1), (2, 0)]));
        assert_eq!(second.forgotten_topics_data[0].partitions, [0]);
        let third = session.acknowledge(&settles);
        assert_eq!(third.share_session_epoch, 2);
        assert_eq!(session.close().share_session_epoch, -1);
    }

    fn answer(first: i64, last: i64) -> ShareFetchResponse {
        let values = ["zero", "one", "two"].map(|value| NewRecord::of(value.into()));
        let run = AcquiredRecords::default()
            .with_first_offset(first)
            .with_last_offset(last)
            .with_delivery_count(2);
        let partition = PartitionData::default()
            .with_partition_index(3)
            .with_records(Some(batch_of(values, 0)))
            .with_acquired_records(vec![run]);
        let topic = ShareFetchableTopicResponse::default()
            .with_topic_id(TOPIC)
            .with_partitions(vec![partition]);
        ShareFetchResponse::default().with_responses(vec![topic])
    }

    #[test]
    fn only_leased_records_of_a_batch_are_returned() {
        let leased = leased(answer(1, 2)).expect("sound");
        let values: Vec<_> = leased.iter().map(|it| (it.offset, it.value.clone())).collect();
        assert_eq!(values, [(1, Bytes::from("one")), (2, Bytes::from("two"))]);
        assert_eq!((leased[0].partition, leased[0].attempt), (3, 2));
    }

    #[test]
    fn lease_on_a_record_that_was_not_sent_is_an_error() {
        let error = leased(answer(2, i64::MAX)).expect_err("not sent");
        assert!(error.to_string().contains("the record at 3 is leased, and was not sent"));
    }
}
