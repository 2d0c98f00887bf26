//! Writing a produce response.

use base::limits::REFUSED_RECORDS_EXPLAINED_MAX;
use bytes::BufMut;
use record::RefusedRecord;

use crate::errors::Fault;
use crate::produce_request::ProduceTopic;
use crate::request::RequestHead;
use crate::response::Response;
use crate::topic_ref::TopicRef;
use crate::wire::primitives::Put;

/// What became of one partition's batch.
#[derive(Clone, Debug)]
pub(crate) enum PartitionResult {
    Appended {
        base_offset: u64,
        /// -1 when the records keep their own timestamps.
        log_append_time: i64,
        log_start: u64,
    },
    Refused {
        fault: Fault,
        /// The records that are to blame, ascending; none when the whole batch is.
        records: Vec<RefusedRecord>,
    },
}

/// A typical partition's part of the response.
const PARTITION_BYTES: usize = 32;

/// `results` are those of all topics, in order.
pub(crate) fn encode(
    head: &RequestHead,
    topics: &[ProduceTopic],
    results: &[(i32, PartitionResult)],
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
    // Nobody is throttled.
    frame.put_i32(0);
    frame.put_no_tagged_fields(flexible);
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
            PartitionResult::Refused { fault, records } => (fault.message(), &records[..]),
        };
        frame.put_count(records.len(), flexible);
        for record in records {
            frame.put_i32(record.index as i32);
            // Without a message of its own, clients show that of the batch.
            let explained = (*explained_max > 0).then(|| record.to_string());
            *explained_max = explained_max.saturating_sub(1);
            frame.put_nullable_text(explained.as_deref(), flexible);
            frame.put_no_tagged_fields(flexible);
        }
        frame.put_nullable_text(message, flexible);
    }
    frame.put_no_tagged_fields(flexible);
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;
    use kafka_protocol::messages::{ApiKey, ProduceResponse};
    use kafka_protocol::protocol::Decodable;
    use record::RefusalReason;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_message_crate_reads_it_in_every_version() {
        for version in 3..=13 {
            let head =
                RequestHead { api: ApiKey::Produce, version, correlation: 7, client_id: None };
            let topic = if version >= 13 {
                TopicRef::Id(Uuid::from_u128(5))
            } else {
                TopicRef::Name("orders".into())
            };
            let topics = [ProduceTopic { topic, partitions: 2 }];
            let refused = PartitionResult::Refused {
                fault: Fault::new(ResponseError::InvalidRecord, "no key"),
                records: vec![
                    RefusedRecord { index: 3, reason: RefusalReason::MissingKey },
                    RefusedRecord { index: 5, reason: RefusalReason::MissingKey },
                ],
            };
            let appended =
                PartitionResult::Appended { base_offset: 10, log_append_time: 99, log_start: 4 };
            let response = encode(&head, &topics, &[(0, appended), (1, refused)]);

            let mut frame = response.chunks[0].slice(if version >= 9 { 9 } else { 8 }..);
            let message = ProduceResponse::decode(&mut frame, version).unwrap();
            assert!(frame.is_empty(), "version {version}");
            let [good, bad] = &message.responses[0].partition_responses[..] else {
                panic!("two partitions were answered")
            };
            assert_eq!((good.index, good.error_code, good.base_offset), (0, 0, 10));
            assert_eq!(good.log_append_time_ms, 99);
            assert_eq!((bad.index, bad.error_code, bad.base_offset), (1, 87, -1));
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
