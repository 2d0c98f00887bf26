//! A member of a share group, and the records that it acquires.

use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use kafka_protocol::messages::share_fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::share_fetch_response::PartitionData;
use kafka_protocol::messages::*;
use uuid::Uuid;

use super::group;
use crate::harness::*;

pub(crate) const ACCEPT: i8 = 1;
pub(crate) const RELEASE: i8 = 2;
pub(crate) const REJECT: i8 = 3;

/// A member of a share group, on a connection of its own, as in a client library.
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) id: &'static str,
    pub(crate) group: &'static str,
    pub(crate) member_epoch: i32,
    pub(crate) session_epoch: i32,
}

impl Member {
    pub(crate) async fn join(node: &Node, id: &'static str, topics: &[&str]) -> Self {
        Self::join_group(node, id, "g", topics).await
    }

    pub(crate) async fn join_group(
        node: &Node,
        id: &'static str,
        group: &'static str,
        topics: &[&str],
    ) -> Self {
        let mut member =
            Self { client: node.client().await, id, group, member_epoch: 0, session_epoch: 0 };
        let joined = member.beat(Some(topics)).await;
        assert_eq!(joined.error_code, 0, "{:?}", joined.error_message);
        member
    }

    pub(crate) async fn beat(&mut self, topics: Option<&[&str]>) -> ShareGroupHeartbeatResponse {
        let names = topics.map(|topics| topics.iter().map(|topic| name(topic)).collect());
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(group(self.group))
            .with_member_id(text(self.id))
            .with_member_epoch(self.member_epoch)
            .with_subscribed_topic_names(names);
        let response = self.client.ask(1, &request).await;
        if response.error_code == 0 {
            self.member_epoch = response.member_epoch;
        }
        response
    }

    pub(crate) fn fetch_request(
        &self,
        topic: Uuid,
        partitions: &[i32],
        wait_ms: i32,
    ) -> ShareFetchRequest {
        let partitions = partitions
            .iter()
            .map(|&index| FetchPartition::default().with_partition_index(index))
            .collect();
        ShareFetchRequest::default()
            .with_group_id(Some(group(self.group)))
            .with_member_id(Some(text(self.id)))
            .with_share_session_epoch(self.session_epoch)
            .with_max_wait_ms(wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_max_records(100)
            .with_batch_size(100)
            .with_topics(vec![
                FetchTopic::default().with_topic_id(topic).with_partitions(partitions),
            ])
    }

    /// The next fetch of the session, which advances its epoch.
    pub(crate) async fn send(&mut self, request: ShareFetchRequest) -> ShareFetchResponse {
        let response = self.client.ask(1, &request).await;
        if response.error_code == 0 {
            self.session_epoch += 1;
        }
        response
    }

    /// Fetches one partition, and waits for records.
    pub(crate) async fn take(&mut self, topic: Uuid, partition: i32) -> AcquiredBatches {
        let request = self.fetch_request(topic, &[partition], 5000);
        let response = self.send(request).await;
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        taken(&response)
    }

    pub(crate) async fn acknowledge(
        &mut self,
        topic: Uuid,
        ranges: &[(i64, i64, i8)],
    ) -> ShareAcknowledgeResponse {
        let batches = ranges.iter().map(|&(first, last, kind)| {
            AcknowledgementBatch::default()
                .with_first_offset(first)
                .with_last_offset(last)
                .with_acknowledge_types(vec![kind])
        });
        let partition =
            AcknowledgePartition::default().with_acknowledgement_batches(batches.collect());
        let request = ShareAcknowledgeRequest::default()
            .with_group_id(Some(group(self.group)))
            .with_member_id(Some(text(self.id)))
            .with_share_session_epoch(self.session_epoch)
            .with_topics(vec![
                AcknowledgeTopic::default().with_topic_id(topic).with_partitions(vec![partition]),
            ]);
        let response = self.client.ask(1, &request).await;
        if response.error_code == 0 {
            self.session_epoch += 1;
        }
        response
    }

    /// Settles records of partition 0, and expects success.
    pub(crate) async fn settle(&mut self, topic: Uuid, ranges: &[(i64, i64, i8)]) {
        let response = self.acknowledge(topic, ranges).await;
        assert_eq!(acknowledge_code(&response), 0);
    }
}

pub(crate) fn acknowledge_code(response: &ShareAcknowledgeResponse) -> i16 {
    assert_eq!(response.error_code, 0, "{:?}", response.error_message);
    response.responses[0].partitions[0].error_code
}

/// Acquired ranges with their number of deliveries, and all values of the batches that came along.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AcquiredBatches {
    pub(crate) acquired: Vec<(i64, i64, i16)>,
    pub(crate) values: Vec<String>,
}

pub(crate) fn partition_of(response: &ShareFetchResponse) -> Option<&PartitionData> {
    response.responses.first()?.partitions.first()
}

pub(crate) fn taken(response: &ShareFetchResponse) -> AcquiredBatches {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut taken = AcquiredBatches { acquired: Vec::new(), values: Vec::new() };
    for partition in partitions {
        assert_eq!(partition.error_code, 0, "{:?}", partition.error_message);
        taken.acquired.extend(
            partition
                .acquired_records
                .iter()
                .map(|range| (range.first_offset, range.last_offset, range.delivery_count)),
        );
        taken.values.extend(values_of(partition.records.as_deref()));
    }
    taken
}

pub(crate) fn acquired(ranges: &[(i64, i64, i16)], values: &[&str]) -> AcquiredBatches {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    AcquiredBatches { acquired: ranges.to_vec(), values }
}
