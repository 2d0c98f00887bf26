//! Writing a metadata response, of a million partitions as well: topic by topic, without a struct a
//! partition, and with pauses in which others are served.
//!
//! All partitions of a topic look the same but for their index and their leader epoch, so a row is written once by the
//! message crate and copied. The crate also writes everything around the rows.

use broker::{LeaderEpochs, Pace, Turns};
use bytes::{BufMut, Bytes};
use kafka_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataResponse};
use kafka_protocol::protocol::Encodable;

use crate::list_response::{Chunks, around};
use crate::request::{RequestError, RequestHead};
use crate::response::Response;
use crate::wire::primitives::Put;

/// From this version on lengths are compact and structs end with tagged fields.
const FLEXIBLE_SINCE: i16 = 9;
/// Partitions that are written without a pause: some 30 us.
const ROWS_AT_ONCE: u32 = 4_096;
/// Where the index is in a row: after the error code.
const INDEX_AT: usize = 2;
/// From this version on a row has a leader epoch.
const EPOCH_SINCE: i16 = 7;
/// Where it is: after the index and the leader.
const EPOCH_AT: usize = 10;
/// What a topic takes besides its partitions and its name.
const TOPIC_BYTES: usize = 48;

pub(crate) struct MetadataWriter {
    head: RequestHead,
    /// A partition's row.
    row: Vec<u8>,
    chunks: Chunks,
    /// What follows the topics.
    tail: Bytes,
    pace: Pace,
}

impl MetadataWriter {
    /// `response` is all but the topics.
    pub(crate) fn new(
        head: &RequestHead,
        response: &MetadataResponse,
        topics: usize,
        leader: BrokerId,
        turns: &Turns,
    ) -> Result<Self, RequestError> {
        let version = head.version;
        let failed = |reason: String| RequestError::Encode { api: head.api, version, reason };
        let mut row = Vec::new();
        MetadataResponsePartition::default()
            .with_leader_id(leader)
            .with_replica_nodes(vec![leader])
            .with_isr_nodes(vec![leader])
            .encode(&mut row, version)
            .map_err(|error| failed(error.to_string()))?;
        let flexible = version >= FLEXIBLE_SINCE;
        let (before, tail) = around(version, flexible, response, response_tail(version))
            .map_err(|error| failed(error.to_string()))?;
        let mut buffer = Response::begin(head.correlation, version >= FLEXIBLE_SINCE, before.len());
        buffer.put_slice(&before);
        buffer.put_count(topics, version >= FLEXIBLE_SINCE);
        Ok(Self {
            head: head.clone(),
            row,
            chunks: Chunks::new(buffer),
            tail,
            pace: Pace::new(turns, ROWS_AT_ONCE),
        })
    }

    /// What an answer of so many topics and partitions takes, about.
    pub(crate) fn estimate(topics: usize, partitions: u64) -> usize {
        /// Of the versions before 9; later ones are smaller.
        const ROW_BYTES: usize = 38;
        topics * TOPIC_BYTES + usize::try_from(partitions).unwrap_or(usize::MAX / 64) * ROW_BYTES
    }

    /// Writes a topic, which comes without partitions, and so many of these.
    pub(crate) async fn push(
        &mut self,
        topic: &MetadataResponseTopic,
        partitions: u32,
        epochs: &LeaderEpochs,
    ) -> Result<(), RequestError> {
        let (api, version) = (self.head.api, self.head.version);
        let flexible = version >= FLEXIBLE_SINCE;
        let (before, after) = around(version, flexible, topic, topic_tail(version))
            .map_err(|error| RequestError::Encode { api, version, reason: error.to_string() })?;
        self.chunks.buffer.put_slice(&before);
        self.chunks.buffer.put_count(partitions as usize, version >= FLEXIBLE_SINCE);
        for index in 0..partitions {
            self.row[INDEX_AT..INDEX_AT + 4].copy_from_slice(&index.to_be_bytes());
            if version >= EPOCH_SINCE {
                let epoch = epochs.of(index).to_be_bytes();
                self.row[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&epoch);
            }
            self.chunks.buffer.put_slice(&self.row);
            self.chunks.cut(self.row.len());
            self.pace.step(1).await;
        }
        self.chunks.buffer.put_slice(&after);
        // A topic without partitions is work too.
        self.pace.step(16).await;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Response {
        let tail = std::mem::take(&mut self.tail);
        self.chunks.buffer.put_slice(&tail);
        self.chunks.finish()
    }
}

/// Bytes of the fields after a response's topics.
fn response_tail(version: i16) -> usize {
    let cluster_operations = if (8..=10).contains(&version) { 4 } else { 0 };
    let error = if version >= 13 { 2 } else { 0 };
    cluster_operations + error + usize::from(version >= FLEXIBLE_SINCE)
}

/// Bytes of the fields after a topic's partitions.
fn topic_tail(version: i16) -> usize {
    let operations = if version >= 8 { 4 } else { 0 };
    operations + usize::from(version >= FLEXIBLE_SINCE)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
    use kafka_protocol::messages::{ApiKey, TopicName};
    use kafka_protocol::protocol::{Decodable, StrBytes};
    use uuid::Uuid;

    use super::*;

    fn topic(version: i16, name: &'static str, operations: i32) -> MetadataResponseTopic {
        let topic = MetadataResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str(name))));
        let topic = if version >= 10 { topic.with_topic_id(Uuid::from_u128(5)) } else { topic };
        if version >= 8 { topic.with_topic_authorized_operations(operations) } else { topic }
    }

    #[tokio::test]
    async fn the_message_crate_reads_it_in_every_version() {
        let range = crate::versions::handled(ApiKey::Metadata).expect("it is handled");
        for version in range.clone() {
            let head =
                RequestHead { api: ApiKey::Metadata, version, correlation: 7, client_id: None };
            let broker = MetadataResponseBroker::default()
                .with_node_id(BrokerId(3))
                .with_host(StrBytes::from_static_str("here"))
                .with_port(9092);
            let mut around = MetadataResponse::default().with_brokers(vec![broker]);
            if version >= 1 {
                around.controller_id = BrokerId(3);
            }
            if version >= 2 {
                around.cluster_id = Some(StrBytes::from_static_str("cluster"));
            }
            let mut writer =
                MetadataWriter::new(&head, &around, 3, BrokerId(3), &Turns::new(1)).unwrap();
            // More than a chunk has.
            let counts = [2, 0, 12_000];
            for (name, count) in ["one", "none", "many"].into_iter().zip(counts) {
                writer
                    .push(&topic(version, name, 77), count, &LeaderEpochs::same(9))
                    .await
                    .unwrap();
            }
            let response = writer.finish();
            let frame: Vec<u8> = response.chunks.concat();
            assert!(version < 9 || response.chunks.len() > 1);
            let length = i32::from_be_bytes(*frame.first_chunk().unwrap());
            assert_eq!(length as usize, frame.len() - 4);
            let mut body =
                Bytes::from(frame).slice(if version >= FLEXIBLE_SINCE { 9 } else { 8 }..);
            let read = MetadataResponse::decode(&mut body, version).unwrap();
            assert!(body.is_empty(), "version {version}");
            assert_eq!(read.brokers, around.brokers);
            assert_eq!(read.controller_id, around.controller_id);
            for (found, count) in read.topics.iter().zip(counts) {
                assert_eq!(found.partitions.len(), count as usize);
                assert!(version < 8 || found.topic_authorized_operations == 77);
                for (index, partition) in found.partitions.iter().enumerate() {
                    assert_eq!(partition.partition_index, index as i32);
                    assert_eq!(partition.leader_id, BrokerId(3));
                    assert_eq!(partition.isr_nodes, [BrokerId(3)]);
                    assert!(version < 7 || partition.leader_epoch == 9);
                }
            }
        }
    }
}
