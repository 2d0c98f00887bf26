//! Writes a produce response.

use crate::limits::REFUSED_RECORDS_EXPLAINED_MAX;
use bytes::BufMut;
use record::RefusedRecord;

use crate::errors::Fault;
use crate::leaders::fields::{put_tagged_endpoints, put_tagged_leader};
use crate::leaders::{CurrentLeader, ReachableNode, Referrals, is_about_leader};
use crate::messages::{RequestHead, Response};
use crate::produce::request::ProduceTopic;
use crate::state::Gateway;
use crate::topic_ref::TopicRef;
use kafka_wire::primitives::PutPrimitives;

/// Outcome of a partition's batch.
#[derive(Clone, Debug)]
pub(crate) enum PartitionResult {
    Appended {
        base_offset: u64,
        /// -1 if the records keep their own timestamps.
        log_append_time: i64,
        log_start: u64,
    },
    Refused {
        fault: Fault,
        /// The invalid records, ascending; empty if the fault concerns the whole batch.
        records: Vec<RefusedRecord>,
        /// The partition's leader, if that is another node.
        leader: Option<CurrentLeader>,
    },
}

impl PartitionResult {
    pub(crate) fn refused(fault: Fault) -> Self {
        Self::Refused { fault, records: Vec::new(), leader: None }
    }
}

/// First version with the partition's leader, for clients that queried another node (KIP-951).
const LEADERS_SINCE: i16 = 10;
/// The tags of a partition's leader, and of the leaders' endpoints.
const LEADER_TAG: u32 = 0;
const ENDPOINTS_TAG: u32 = 0;

/// Adds the leader to each partition that was refused because another node leads it. Returns these nodes.
pub(crate) fn refer(
    gateway: &Gateway,
    encrypted: bool,
    topics: &[ProduceTopic],
    results: &mut [(i32, PartitionResult)],
) -> Vec<ReachableNode> {
    let mut referrals = Referrals::new(encrypted);
    let mut left = results;
    for topic in topics {
        let (of_topic, others) = left.split_at_mut(topic.partitions);
        left = others;
        for (index, result) in of_topic {
            let PartitionResult::Refused { fault, leader, .. } = result else { continue };
            if !is_about_leader(fault.code()) {
                continue;
            }
            let id = {
                let catalog = gateway.broker.catalog();
                topic.topic.find(&catalog).and_then(|topic| topic.partition(*index))
            };
            *leader = id.and_then(|id| referrals.refer(gateway, id));
        }
    }
    referrals.into_endpoints()
}

/// Typical bytes of a partition in the response.
const PARTITION_BYTES: usize = 32;

/// `results` are those of all topics, in order; `leaders` are the nodes that they name.
pub(crate) fn encode(
    head: &RequestHead,
    throttle_ms: i32,
    topics: &[ProduceTopic],
    results: &[(i32, PartitionResult)],
    leaders: &[ReachableNode],
) -> Response {
    let version = head.version;
    let flexible = version >= 9;
    let names: usize = topics.len() * 32;
    let mut frame =
        Response::begin(head.correlation, flexible, names + results.len() * PARTITION_BYTES);
    frame.put_count(topics.len(), flexible);
    let mut left = results;
    let mut explained_max = REFUSED_RECORDS_EXPLAINED_MAX;
    for topic in topics {
        match &topic.topic {
            TopicRef::Name(name) => frame.put_nullable_text(Some(name), flexible),
            TopicRef::Id(id) => frame.put_uuid(*id),
        }
        frame.put_count(topic.partitions, flexible);
        let (of_topic, others) = left.split_at(topic.partitions);
        left = others;
        for (index, result) in of_topic {
            frame.put_i32(*index);
            put_result(&mut frame, version, flexible, result, &mut explained_max);
        }
        frame.put_no_tagged_fields(flexible);
    }
    frame.put_i32(throttle_ms);
    match version {
        LEADERS_SINCE.. => put_tagged_endpoints(&mut frame, ENDPOINTS_TAG, leaders),
        _ => frame.put_no_tagged_fields(flexible),
    }
    Response::finish(frame)
}

fn put_result(
    frame: &mut bytes::BytesMut,
    version: i16,
    flexible: bool,
    result: &PartitionResult,
    explained_max: &mut usize,
) {
    let (code, base_offset, log_append_time, log_start) = match result {
        PartitionResult::Appended { base_offset, log_append_time, log_start } => {
            (0, *base_offset as i64, *log_append_time, *log_start as i64)
        }
        PartitionResult::Refused { fault, .. } => (fault.code(), -1, -1, -1),
    };
    frame.put_i16(code);
    frame.put_i64(base_offset);
    frame.put_i64(log_append_time);
    if version >= 5 {
        frame.put_i64(log_start);
    }
    if version >= 8 {
        let (message, records) = match result {
            PartitionResult::Appended { .. } => (None, &[][..]),
            PartitionResult::Refused { fault, records, .. } => (fault.message(), &records[..]),
        };
        frame.put_count(records.len(), flexible);
        for record in records {
            frame.put_i32(record.index as i32);
            // For a record without its own message, clients show that of the batch.
            let explained = (*explained_max > 0).then(|| record.to_string());
            *explained_max = explained_max.saturating_sub(1);
            frame.put_nullable_text(explained.as_deref(), flexible);
            frame.put_no_tagged_fields(flexible);
        }
        frame.put_nullable_text(message, flexible);
    }
    match result {
        PartitionResult::Refused { leader, .. } if version >= LEADERS_SINCE => {
            put_tagged_leader(frame, LEADER_TAG, *leader);
        }
        _ => frame.put_no_tagged_fields(flexible),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;
    use kafka_protocol::messages::{ApiKey, ProduceResponse};
    use kafka_protocol::protocol::Decodable;
    use record::RefusalReason;
    use uuid::Uuid;

    use super::*;
    use crate::leaders::{live_node, not_leader};

    #[test]
    fn message_crate_decodes_the_response_in_every_version() {
        for version in 3..=13 {
            let head =
                RequestHead { api: ApiKey::Produce, version, correlation: 7, client_id: None };
            let topic = if version >= 13 {
                TopicRef::Id(Uuid::from_u128(5))
            } else {
                TopicRef::Name("orders".into())
            };
            let topics = [ProduceTopic { topic, partitions: 3 }];
            let refused = PartitionResult::Refused {
                fault: Fault::new(ResponseError::InvalidRecord, "no key"),
                records: vec![
                    RefusedRecord { index: 3, reason: RefusalReason::MissingKey },
                    RefusedRecord { index: 5, reason: RefusalReason::MissingKey },
                ],
                leader: None,
            };
            let leader = Some(CurrentLeader { node: 3, epoch: 8 });
            let elsewhere =
                PartitionResult::Refused { fault: not_leader(), records: vec![], leader };
            let appended =
                PartitionResult::Appended { base_offset: 10, log_append_time: 99, log_start: 4 };
            let results = [(0, appended), (1, refused), (2, elsewhere)];
            let response = encode(&head, 7, &topics, &results, &[live_node(3), live_node(4)]);

            let mut frame = response.chunks[0].slice(if version >= 9 { 9 } else { 8 }..);
            let message = ProduceResponse::decode(&mut frame, version).unwrap();
            assert!(frame.is_empty(), "version {version}");
            assert_eq!(message.throttle_time_ms, 7);
            let [good, bad, elsewhere] = &message.responses[0].partition_responses[..] else {
                panic!("three partitions were answered")
            };
            assert_eq!((good.index, good.error_code, good.base_offset), (0, 0, 10));
            assert_eq!(good.log_append_time_ms, 99);
            assert_eq!((bad.index, bad.error_code, bad.base_offset), (1, 87, -1));
            let codes = (elsewhere.index, elsewhere.error_code);
            assert_eq!(codes, (2, ResponseError::NotLeaderOrFollower.code()));
            let leader = &elsewhere.current_leader;
            let told: Vec<_> =
                message.node_endpoints.iter().map(|it| (it.node_id.0, it.port)).collect();
            if version >= LEADERS_SINCE {
                assert_eq!((leader.leader_id.0, leader.leader_epoch), (3, 8));
                assert_eq!(told, [(3, 9003), (4, 9004)]);
                assert_eq!(message.node_endpoints[0].host.as_str(), "node-3");
            } else {
                assert_eq!((leader.leader_id.0, told.len()), (-1, 0));
            }
            assert_eq!(bad.current_leader.leader_id.0, -1);
            if version >= 8 {
                assert_eq!(bad.error_message.as_deref(), Some("no key"));
                let named: Vec<i32> = bad.record_errors.iter().map(|it| it.batch_index).collect();
                assert_eq!(named, [3, 5]);
                let message = bad.record_errors[1].batch_index_error_message.as_deref();
                assert_eq!(message, Some("record 5 has no key, and its topic is compacted by key"));
            }
        }
    }
}
