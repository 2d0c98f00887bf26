//! Writes a metadata response, even of a million partitions: topic by topic, without a struct per partition,
//! and yielding to other tasks in between.
//!
//! All partitions of a shard differ only in their index, so the message crate writes one row of each shard,
//! which is copied. The crate also writes everything around the rows.

use broker::{Leaders, YieldBudget, YieldSlots};
use bytes::{BufMut, Bytes};
use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::protocol::Encodable;

use crate::leaders::PartitionState;
use crate::messages::list_response::{Chunks, around};
use crate::messages::{RequestError, RequestHead, Response};
use kafka_wire::primitives::PutPrimitives;

/// First version with compact lengths, and tagged fields at the end of structs.
const FLEXIBLE_SINCE: i16 = 9;
/// Partitions written between two yields: some 30 us.
const ROWS_AT_ONCE: u32 = 4_096;
/// Position of the index in a row: after the error code.
const INDEX_AT: usize = 2;
/// Position of the leader epoch, in versions that have it: after the index and the leader.
const EPOCH_AT: usize = 10;
/// First version with a leader epoch in a row.
const EPOCH_SINCE: i16 = 7;
/// First version with the offline replicas in a row.
const OFFLINE_SINCE: i16 = 5;
/// Bytes of a topic besides its partitions and its name.
const TOPIC_BYTES: usize = 48;

pub(crate) struct MetadataWriter {
    head: RequestHead,
    /// A partition's row for each shard, by place; the last one is for unknown shards.
    rows: Vec<Vec<u8>>,
    chunks: Chunks,
    /// The fields after the topics.
    tail: Bytes,
    pace: YieldBudget,
}

impl MetadataWriter {
    /// `response` has all but the topics; `states` are those of the shards, and of an unknown one.
    pub(crate) fn new(
        head: &RequestHead,
        response: &MetadataResponse,
        topics: usize,
        states: &[PartitionState],
        turns: &YieldSlots,
    ) -> Result<Self, RequestError> {
        let version = head.version;
        let failed = |reason: String| RequestError::Encode { api: head.api, version, reason };
        let rows: Result<Vec<Vec<u8>>, _> =
            states.iter().map(|state| row(state, version)).collect();
        let rows = rows.map_err(|error| failed(error.to_string()))?;
        let flexible = version >= FLEXIBLE_SINCE;
        let (before, tail) = around(version, flexible, response, response_tail(version))
            .map_err(|error| failed(error.to_string()))?;
        let mut buffer = Response::begin(head.correlation, version >= FLEXIBLE_SINCE, before.len());
        buffer.put_slice(&before);
        buffer.put_count(topics, version >= FLEXIBLE_SINCE);
        Ok(Self {
            head: head.clone(),
            rows,
            chunks: Chunks::new(buffer),
            tail,
            pace: YieldBudget::new(turns, ROWS_AT_ONCE),
        })
    }

    /// Approximate bytes of a response with so many topics and partitions.
    pub(crate) fn estimate(topics: usize, partitions: u64) -> usize {
        /// Bytes of a row in versions before 9; later ones are smaller.
        const ROW_BYTES: usize = 38;
        topics * TOPIC_BYTES + usize::try_from(partitions).unwrap_or(usize::MAX / 64) * ROW_BYTES
    }

    /// Writes a topic, which comes without partitions, and this number of partitions.
    pub(crate) async fn push(
        &mut self,
        topic: &MetadataResponseTopic,
        partitions: u32,
        leaders: &Leaders,
    ) -> Result<(), RequestError> {
        let (api, version) = (self.head.api, self.head.version);
        let flexible = version >= FLEXIBLE_SINCE;
        let (before, after) = around(version, flexible, topic, topic_tail(version))
            .map_err(|error| RequestError::Encode { api, version, reason: error.to_string() })?;
        self.chunks.buffer.put_slice(&before);
        self.chunks.buffer.put_count(partitions as usize, version >= FLEXIBLE_SINCE);
        let (unknown, has_epochs) = (self.rows.len() - 1, version >= EPOCH_SINCE);
        for index in 0..partitions {
            let row = &mut self.rows[leaders.place_of(index).min(unknown)];
            row[INDEX_AT..INDEX_AT + 4].copy_from_slice(&index.to_be_bytes());
            let of_shard = if has_epochs { epoch_in(row) } else { -1 };
            // A moved partition has another epoch than its shard.
            let epoch = leaders.epoch_of(index, of_shard);
            if epoch != of_shard {
                row[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&epoch.to_be_bytes());
            }
            self.chunks.buffer.put_slice(row);
            if epoch != of_shard {
                row[EPOCH_AT..EPOCH_AT + 4].copy_from_slice(&of_shard.to_be_bytes());
            }
            self.chunks.cut(row.len());
            self.pace.step(1).await;
        }
        self.chunks.buffer.put_slice(&after);
        // A topic without partitions costs time too.
        self.pace.step(16).await;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Response {
        let tail = std::mem::take(&mut self.tail);
        self.chunks.buffer.put_slice(&tail);
        self.chunks.finish()
    }
}

/// The leader epoch in a row of a version that has it.
fn epoch_in(row: &[u8]) -> i32 {
    let bytes = row.get(EPOCH_AT..).and_then(|rest| rest.first_chunk());
    bytes.map_or(-1, |bytes| i32::from_be_bytes(*bytes))
}

/// Encodes a row by the message crate, which rejects fields that a version does not have.
fn row(state: &PartitionState, version: i16) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut partition = MetadataResponsePartition::default()
        .with_error_code(state.error)
        .with_leader_id(state.leader)
        .with_replica_nodes(state.replicas.clone())
        .with_isr_nodes(state.in_sync.clone());
    if version >= OFFLINE_SINCE {
        partition.offline_replicas = state.offline.clone();
    }
    if version >= EPOCH_SINCE {
        partition.leader_epoch = state.epoch;
    }
    let mut row = Vec::new();
    partition.encode(&mut row, version)?;
    Ok(row)
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
    use base::ShardId;
    use broker::Leader;
    use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
    use kafka_protocol::messages::{ApiKey, BrokerId, TopicName};
    use kafka_protocol::protocol::{Decodable, StrBytes};
    use uuid::Uuid;

    use super::*;
    use crate::leaders::live_node;

    fn topic(version: i16, name: &'static str, operations: i32) -> MetadataResponseTopic {
        let topic = MetadataResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str(name))));
        let topic = if version >= 10 { topic.with_topic_id(Uuid::from_u128(5)) } else { topic };
        if version >= 8 { topic.with_topic_authorized_operations(operations) } else { topic }
    }

    /// A shard led by node 3, whose replica on node 4 is offline, and an unknown shard.
    fn states() -> [PartitionState; 2] {
        let live = [1, 3].map(live_node);
        let leader = Leader { node: Some(3), epoch: 9 };
        let nobody = Leader { node: None, epoch: -1 };
        [PartitionState::of(leader, &[1, 3, 4], &live), PartitionState::of(nobody, &[], &live)]
    }

    #[tokio::test]
    async fn message_crate_decodes_the_response_in_every_version() {
        let range = crate::api_keys::handled(ApiKey::Metadata).expect("it is handled");
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
                MetadataWriter::new(&head, &around, 5, &states(), &YieldSlots::new(1)).unwrap();
            // More than fit into one chunk.
            let counts = [2, 0, 12_000];
            for (name, count) in ["one", "none", "many"].into_iter().zip(counts) {
                let leaders = Leaders::default();
                writer.push(&topic(version, name, 77), count, &leaders).await.unwrap();
            }
            // Its partitions span more shards than there are states.
            let leaders = Leaders::unknown(1, 2);
            writer.push(&topic(version, "elsewhere", 77), 2, &leaders).await.unwrap();
            let leaders = Leaders::unknown(0, 1).with_moved(1, ShardId::FIRST, 1_000);
            writer.push(&topic(version, "moved", 77), 3, &leaders).await.unwrap();
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
                    assert_eq!((partition.error_code, partition.leader_id), (0, BrokerId(3)));
                    assert_eq!(partition.replica_nodes, [1, 3, 4].map(BrokerId));
                    assert_eq!(partition.isr_nodes, [1, 3].map(BrokerId));
                    assert!(version < 5 || partition.offline_replicas == [BrokerId(4)]);
                    assert!(version < 7 || partition.leader_epoch == 9);
                }
            }
            let moved = &read.topics[4].partitions;
            let epochs: Vec<i32> = moved.iter().map(|partition| partition.leader_epoch).collect();
            assert!(version < 7 || epochs == [9, 1_009, 9], "{epochs:?}");
            let [unknown, known] = &read.topics[3].partitions[..] else { panic!("two") };
            assert_eq!((unknown.error_code, unknown.leader_id), (5, BrokerId(-1)));
            assert_eq!((known.error_code, known.leader_id), (0, BrokerId(3)));
        }
    }
}
