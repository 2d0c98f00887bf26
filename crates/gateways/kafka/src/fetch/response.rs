//! Writes a fetch response around records that are not copied: the response is a list of slices, ours for the
//! fields and the journal's for the batches.

use broker::{AbortedRange, EpochEnd};
use bytes::{BufMut, Bytes, BytesMut};

use crate::leaders::fields::{put_tagged_endpoints, put_tagged_leader};
use crate::leaders::{CurrentLeader, ReachableNode};
use crate::messages::{RequestHead, Response, Slices};
use crate::topic_ref::TopicRef;
use kafka_wire::primitives::PutPrimitives;

/// A partition of a fetch response.
#[derive(Clone, Debug, Default)]
pub(crate) struct FetchedPartition {
    pub(crate) index: i32,
    pub(crate) error: i16,
    /// -1 with an error.
    pub(crate) high_watermark: i64,
    /// The last stable offset; -1 with an error.
    pub(crate) stable: i64,
    pub(crate) aborted: Vec<AbortedRange>,
    pub(crate) log_start: i64,
    pub(crate) records: Vec<Bytes>,
    /// Its leader, if that is another node.
    pub(crate) leader: Option<CurrentLeader>,
    /// The replica from which the client should read.
    pub(crate) preferred: Option<u32>,
    /// Where the client's records diverge from the partition's.
    pub(crate) diverging: Option<EpochEnd>,
}

impl FetchedPartition {
    pub(crate) fn failed(index: i32, error: i16) -> Self {
        Self { index, error, high_watermark: -1, stable: -1, log_start: -1, ..Self::default() }
    }
}

#[derive(Debug)]
pub(crate) struct FetchedTopic {
    pub(crate) topic: TopicRef,
    pub(crate) partitions: Vec<FetchedPartition>,
}

#[derive(Debug, Default)]
pub(crate) struct FetchReply {
    /// Throttle time of a client that exceeded its quota.
    pub(crate) throttle_ms: i32,
    pub(crate) error: i16,
    pub(crate) session_id: i32,
    /// The client reads committed records only, and expects the list of aborted transactions.
    pub(crate) committed_only: bool,
    pub(crate) topics: Vec<FetchedTopic>,
    /// The nodes that partitions name as their leaders.
    pub(crate) leaders: Vec<ReachableNode>,
}

const FLEXIBLE_SINCE: i16 = 12;
/// First version with the endpoints of leaders (KIP-951). Leader ids and epochs are in every flexible
/// version.
const ENDPOINTS_SINCE: i16 = 16;
/// The tags of a partition's diverging epoch and of its leader, and of the leaders' endpoints.
const DIVERGING_TAG: u32 = 0;
const LEADER_TAG: u32 = 1;
const ENDPOINTS_TAG: u32 = 0;
/// Size of a partition's fields.
const PARTITION_BYTES: usize = 64;

pub(crate) fn encode(head: &RequestHead, fetched: FetchReply) -> Response {
    let partitions: usize = fetched.topics.iter().map(|topic| topic.partitions.len()).sum();
    let estimate = 64 + fetched.topics.len() * 64 + partitions * PARTITION_BYTES;
    let (version, flexible) = (head.version, head.version >= FLEXIBLE_SINCE);
    let mut out = Slices::begin(head.correlation, flexible, estimate);
    out.fields.put_i32(fetched.throttle_ms);
    if version >= 7 {
        out.fields.put_i16(fetched.error);
        out.fields.put_i32(fetched.session_id);
    }
    out.fields.put_count(fetched.topics.len(), flexible);
    for topic in fetched.topics {
        match &topic.topic {
            TopicRef::Name(name) => out.fields.put_nullable_text(Some(name), flexible),
            TopicRef::Id(id) => out.fields.put_uuid(*id),
        }
        out.fields.put_count(topic.partitions.len(), flexible);
        for partition in topic.partitions {
            put_partition(&mut out, version, fetched.committed_only, partition);
        }
        out.fields.put_no_tagged_fields(flexible);
    }
    match version {
        ENDPOINTS_SINCE.. => {
            put_tagged_endpoints(&mut out.fields, ENDPOINTS_TAG, &fetched.leaders);
        }
        _ => out.fields.put_no_tagged_fields(flexible),
    }
    out.finish()
}

fn put_partition(
    out: &mut Slices,
    version: i16,
    committed_only: bool,
    partition: FetchedPartition,
) {
    let flexible = version >= FLEXIBLE_SINCE;
    out.fields.put_i32(partition.index);
    out.fields.put_i16(partition.error);
    out.fields.put_i64(partition.high_watermark);
    out.fields.put_i64(partition.stable);
    if version >= 5 {
        out.fields.put_i64(partition.log_start);
    }
    // Null if the client reads uncommitted records.
    match (committed_only, flexible) {
        (true, _) => put_aborted(&mut out.fields, flexible, &partition.aborted),
        (false, true) => out.fields.put_u8(0),
        (false, false) => out.fields.put_i32(-1),
    }
    if version >= 11 {
        out.fields.put_i32(partition.preferred.map_or(-1, |node| node as i32));
    }
    out.put_records(partition.records);
    if let Some(end) = partition.diverging.filter(|_| flexible) {
        put_tagged_epoch_end(&mut out.fields, end);
    } else if flexible {
        put_tagged_leader(&mut out.fields, LEADER_TAG, partition.leader);
    }
}

fn put_aborted(out: &mut BytesMut, flexible: bool, aborted: &[AbortedRange]) {
    out.put_count(aborted.len(), flexible);
    for range in aborted {
        out.put_i64(range.producer);
        out.put_i64(range.first as i64);
        out.put_no_tagged_fields(flexible);
    }
}

/// The tagged fields of a partition with a diverging epoch. This node serves it, so no leader is named.
fn put_tagged_epoch_end(out: &mut BytesMut, end: EpochEnd) {
    const BYTES: u32 = 13;
    out.put_unsigned_varint(1);
    out.put_unsigned_varint(DIVERGING_TAG);
    out.put_unsigned_varint(BYTES);
    out.put_i32(end.epoch);
    out.put_i64(end.end as i64);
    out.put_no_tagged_fields(true);
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ApiKey, FetchResponse};
    use kafka_protocol::protocol::Decodable;
    use uuid::Uuid;

    use super::*;
    use crate::leaders::live_node;

    fn fetched(version: i16, committed_only: bool) -> FetchReply {
        let topic = |n: u8| {
            if version >= 13 {
                TopicRef::Id(Uuid::from_u128(n.into()))
            } else {
                TopicRef::Name(format!("topic-{n}").into())
            }
        };
        let full = FetchedPartition {
            index: 3,
            error: 0,
            high_watermark: 20,
            stable: 17,
            aborted: vec![AbortedRange { producer: 5, first: 3, last: 9 }],
            log_start: 2,
            records: vec![Bytes::from_static(b"first"), Bytes::from_static(b"second")],
            leader: None,
            preferred: Some(2),
            diverging: None,
        };
        let leader = Some(CurrentLeader { node: 3, epoch: 8 });
        let empty = FetchedPartition { index: 4, error: 1, high_watermark: -1, ..full.clone() };
        let empty = FetchedPartition { records: vec![], leader, preferred: None, ..empty };
        FetchReply {
            throttle_ms: 7,
            error: 0,
            session_id: if version >= 7 { 9 } else { 0 },
            committed_only,
            topics: vec![
                FetchedTopic { topic: topic(1), partitions: vec![full.clone(), empty.clone()] },
                FetchedTopic { topic: topic(2), partitions: vec![empty, full] },
            ],
            leaders: vec![live_node(3)],
        }
    }

    #[test]
    fn message_crate_decodes_the_response_in_every_version() {
        for version in 4..=18 {
            for committed_only in [false, true] {
                let head =
                    RequestHead { api: ApiKey::Fetch, version, correlation: 7, client_id: None };
                let response = encode(&head, fetched(version, committed_only));
                assert!(response.chunks.iter().all(|chunk| !chunk.is_empty()));
                let joined = Bytes::from(response.chunks.concat());
                let length = i32::from_be_bytes(joined[..4].try_into().unwrap());
                assert_eq!(length as usize, joined.len() - 4);

                let mut frame = joined.slice(if version >= 12 { 9 } else { 8 }..);
                let message = FetchResponse::decode(&mut frame, version).unwrap();
                assert!(frame.is_empty(), "version {version}");
                assert_eq!(message.session_id, if version >= 7 { 9 } else { 0 });
                assert_eq!((message.responses.len(), message.throttle_time_ms), (2, 7));
                let partition = &message.responses[0].partitions[0];
                assert_eq!(partition.records.as_deref(), Some(&b"firstsecond"[..]));
                assert_eq!(partition.high_watermark, 20);
                assert_eq!(partition.last_stable_offset, 17);
                let aborted = partition.aborted_transactions.as_ref();
                let aborted = aborted.map(|them| (them[0].producer_id.0, them[0].first_offset));
                assert_eq!(aborted, committed_only.then_some((5, 3)));
                let told = message.responses[0].partitions.iter();
                let told: Vec<i32> = told.map(|it| it.preferred_read_replica.0).collect();
                assert_eq!(told, if version >= 11 { [2, -1] } else { [-1, -1] });
                let failed = &message.responses[1].partitions[0];
                assert_eq!((failed.partition_index, failed.error_code), (4, 1));
                assert_eq!(failed.records.as_deref(), Some(&b""[..]));
                let leader =
                    (failed.current_leader.leader_id.0, failed.current_leader.leader_epoch);
                assert_eq!(leader, if version >= 12 { (3, 8) } else { (-1, -1) });
                assert_eq!(partition.current_leader.leader_id.0, -1);
                let told = message.node_endpoints.iter();
                let told: Vec<_> = told
                    .map(|it| (it.node_id.0, it.host.as_str(), it.port, it.rack.as_deref()))
                    .collect();
                let expected = [(3, "node-3", 9003, Some("rack-3"))];
                assert_eq!(told, expected[..if version >= 16 { 1 } else { 0 }]);
            }
        }
    }

    #[test]
    fn records_are_sent_without_a_copy() {
        let head = RequestHead { api: ApiKey::Fetch, version: 13, correlation: 7, client_id: None };
        let fetched = fetched(13, false);
        let records = fetched.topics[0].partitions[0].records[0].clone();
        let response = encode(&head, fetched);
        assert!(response.chunks.iter().any(|chunk| chunk.as_ptr() == records.as_ptr()));
    }
}
