//! Writes share fetch and share acknowledge responses. As in a fetch, the batches are not copied: the
//! response is a list of slices, ours for the fields and the journal's for the batches.

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::errors::Fault;
use crate::leaders::fields::{put_endpoints, put_leader};
use crate::leaders::{CurrentLeader, ReachableNode};
use crate::messages::{RequestHead, Response, Slices};
use kafka_wire::primitives::PutPrimitives;

/// Consecutive records that were leased to the member, all with the same number of deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AcquiredRange {
    pub(crate) first: u64,
    /// Inclusive.
    pub(crate) last: u64,
    /// This delivery included.
    pub(crate) deliveries: u16,
}

/// One partition's part of a share fetch response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SharedPartition {
    pub(crate) index: i32,
    pub(crate) fault: Option<Fault>,
    /// Fault of the acknowledgements in the fetch.
    pub(crate) acknowledge_fault: Option<Fault>,
    /// The partition's leader, if that is another node.
    pub(crate) leader: Option<CurrentLeader>,
    /// Whole batches, which hold the acquired records among others.
    pub(crate) batches: Vec<Bytes>,
    pub(crate) acquired: Vec<AcquiredRange>,
}

impl SharedPartition {
    /// Adds acquired records with their batches. If the batches could not be read, sets the fault and returns
    /// the records for release: a member ignores the records of a partition with a fault, and retries with
    /// its next fetch.
    pub(crate) fn give(
        &mut self,
        read: Result<Vec<Bytes>, Fault>,
        acquired: Vec<AcquiredRange>,
    ) -> Vec<AcquiredRange> {
        match read {
            Ok(batches) => {
                (self.batches, self.acquired, self.fault) = (batches, acquired, None);
                Vec::new()
            }
            Err(fault) => {
                self.fault = Some(fault);
                acquired
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ShareFetched {
    /// Throttle time of a client that exceeded its quota.
    pub(crate) throttle_ms: i32,
    pub(crate) fault: Option<Fault>,
    pub(crate) lock_ms: i32,
    pub(crate) topics: Vec<(Uuid, Vec<SharedPartition>)>,
    /// The nodes that partitions name as their leaders.
    pub(crate) leaders: Vec<ReachableNode>,
}

/// One partition's part of a share acknowledge response.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PartitionOutcome {
    pub(crate) index: i32,
    /// Fault of the acknowledgements.
    pub(crate) fault: Option<Fault>,
    /// The partition's leader, if that is another node.
    pub(crate) leader: Option<CurrentLeader>,
}

#[derive(Debug, Default)]
pub(crate) struct ShareAcknowledged {
    pub(crate) fault: Option<Fault>,
    pub(crate) lock_ms: i32,
    pub(crate) topics: Vec<(Uuid, Vec<PartitionOutcome>)>,
    /// The nodes that partitions name as their leaders.
    pub(crate) leaders: Vec<ReachableNode>,
}

/// First version whose acknowledge response has the duration of a renewed lease.
const ACKNOWLEDGE_LOCK_SINCE: i16 = 2;

pub(crate) fn encode_fetched(head: &RequestHead, fetched: ShareFetched) -> Response {
    let partitions: usize = fetched.topics.iter().map(|(_, partitions)| partitions.len()).sum();
    let mut out =
        Slices::begin(head.correlation, true, 64 + 32 * fetched.topics.len() + 64 * partitions);
    put_head(&mut out.fields, fetched.throttle_ms, fetched.fault.as_ref());
    out.fields.put_i32(fetched.lock_ms);
    out.fields.put_count(fetched.topics.len(), true);
    for (topic, partitions) in fetched.topics {
        out.fields.put_uuid(topic);
        out.fields.put_count(partitions.len(), true);
        for partition in partitions {
            put_partition(&mut out, partition);
        }
        out.fields.put_no_tagged_fields(true);
    }
    put_end(&mut out.fields, &fetched.leaders);
    out.finish()
}

fn put_partition(out: &mut Slices, partition: SharedPartition) {
    out.fields.put_i32(partition.index);
    put_fault(&mut out.fields, partition.fault.as_ref());
    put_fault(&mut out.fields, partition.acknowledge_fault.as_ref());
    put_leader(&mut out.fields, partition.leader);
    out.put_records(partition.batches);
    out.fields.put_count(partition.acquired.len(), true);
    for acquired in partition.acquired {
        out.fields.put_i64(acquired.first as i64);
        out.fields.put_i64(acquired.last as i64);
        out.fields.put_i16(acquired.deliveries.min(i16::MAX as u16) as i16);
        out.fields.put_no_tagged_fields(true);
    }
    out.fields.put_no_tagged_fields(true);
}

pub(crate) fn encode_acknowledged(head: &RequestHead, done: ShareAcknowledged) -> Response {
    let partitions: usize = done.topics.iter().map(|(_, partitions)| partitions.len()).sum();
    let mut frame =
        Response::begin(head.correlation, true, 64 + 32 * done.topics.len() + 32 * partitions);
    put_head(&mut frame, 0, done.fault.as_ref());
    if head.version >= ACKNOWLEDGE_LOCK_SINCE {
        frame.put_i32(done.lock_ms);
    }
    frame.put_count(done.topics.len(), true);
    for (topic, partitions) in done.topics {
        frame.put_uuid(topic);
        frame.put_count(partitions.len(), true);
        for PartitionOutcome { index, fault, leader } in partitions {
            frame.put_i32(index);
            put_fault(&mut frame, fault.as_ref());
            put_leader(&mut frame, leader);
            frame.put_no_tagged_fields(true);
        }
        frame.put_no_tagged_fields(true);
    }
    put_end(&mut frame, &done.leaders);
    Response::finish(frame)
}

fn put_head(out: &mut BytesMut, throttle_ms: i32, fault: Option<&Fault>) {
    out.put_i32(throttle_ms);
    put_fault(out, fault);
}

fn put_fault(out: &mut BytesMut, fault: Option<&Fault>) {
    out.put_i16(fault.map_or(0, Fault::code));
    out.put_nullable_text(fault.and_then(Fault::message), true);
}

/// Writes the leaders' endpoints, and the end of the message.
fn put_end(out: &mut BytesMut, leaders: &[ReachableNode]) {
    put_endpoints(out, leaders);
    out.put_no_tagged_fields(true);
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;
    use kafka_protocol::messages::share_fetch_response::LeaderIdAndEpoch;
    use kafka_protocol::messages::{ApiKey, ShareAcknowledgeResponse, ShareFetchResponse};
    use kafka_protocol::protocol::Decodable;

    use super::*;
    use crate::leaders::live_node;

    fn head(api: ApiKey, version: i16) -> RequestHead {
        RequestHead { api, version, correlation: 7, client_id: None }
    }

    fn body(response: &Response) -> Bytes {
        let joined = Bytes::from(response.chunks.concat());
        let length = i32::from_be_bytes(joined[..4].try_into().unwrap());
        assert_eq!(length as usize, joined.len() - 4);
        joined.slice(9..)
    }

    #[test]
    fn message_crate_decodes_share_fetch_responses() {
        let topic = Uuid::from_u128(3);
        let full = SharedPartition {
            index: 4,
            batches: vec![Bytes::from_static(b"first"), Bytes::from_static(b"second")],
            acquired: vec![
                AcquiredRange { first: 5, last: 8, deliveries: 1 },
                AcquiredRange { first: 10, last: 10, deliveries: 3 },
            ],
            ..SharedPartition::default()
        };
        let failed = SharedPartition {
            index: 5,
            fault: Some(Fault::new(ResponseError::UnknownTopicId, "gone")),
            acknowledge_fault: Some(Fault::plain(ResponseError::InvalidRecordState)),
            leader: Some(CurrentLeader { node: 3, epoch: 8 }),
            ..SharedPartition::default()
        };
        let topics = vec![(topic, vec![full, failed])];
        let leaders = vec![live_node(3)];
        let fetched =
            ShareFetched { throttle_ms: 7, fault: None, lock_ms: 30_000, topics, leaders };
        let response = encode_fetched(&head(ApiKey::ShareFetch, 1), fetched);
        let mut bytes = body(&response);
        let message = ShareFetchResponse::decode(&mut bytes, 1).unwrap();
        assert!(bytes.is_empty());
        assert_eq!((message.error_code, message.acquisition_lock_timeout_ms), (0, 30_000));
        let partitions = &message.responses[0].partitions;
        assert_eq!(partitions[0].records.as_deref(), Some(&b"firstsecond"[..]));
        let acquired = &partitions[0].acquired_records[1];
        assert_eq!((acquired.first_offset, acquired.last_offset), (10, 10));
        assert_eq!(acquired.delivery_count, 3);
        assert_eq!(partitions[1].error_code, ResponseError::UnknownTopicId.code());
        assert_eq!(partitions[1].error_message.as_deref(), Some("gone"));
        let acknowledged = partitions[1].acknowledge_error_code;
        assert_eq!(acknowledged, ResponseError::InvalidRecordState.code());
        assert_eq!(partitions[1].records.as_deref(), Some(&b""[..]));
        let leaders = [0, 1].map(|place| {
            let leader: &LeaderIdAndEpoch = &partitions[place].current_leader;
            (leader.leader_id, leader.leader_epoch)
        });
        assert_eq!(leaders, [(-1, -1), (3, 8)]);
        let endpoint = &message.node_endpoints[0];
        assert_eq!(
            (endpoint.node_id.0, endpoint.host.as_str(), endpoint.port),
            (3, "node-3", 9003)
        );
    }

    #[test]
    fn records_are_given_with_their_batches_or_released_with_a_fault() {
        let acquired = vec![AcquiredRange { first: 5, last: 8, deliveries: 1 }];
        let led_elsewhere = || Fault::plain(ResponseError::NotLeaderOrFollower);
        let mut moved =
            SharedPartition { fault: Some(led_elsewhere()), ..SharedPartition::default() };
        let batches = vec![Bytes::from_static(b"batch")];
        assert_eq!(moved.give(Ok(batches.clone()), acquired.clone()), []);
        let given =
            SharedPartition { batches, acquired: acquired.clone(), ..SharedPartition::default() };
        assert_eq!(moved, given);

        let mut unread = SharedPartition::default();
        assert_eq!(unread.give(Err(led_elsewhere()), acquired.clone()), acquired);
        let told = SharedPartition { fault: Some(led_elsewhere()), ..SharedPartition::default() };
        assert_eq!(unread, told);
    }

    #[test]
    fn batches_are_sent_without_a_copy() {
        let batch = Bytes::from_static(b"batch");
        let partition =
            SharedPartition { batches: vec![batch.clone()], ..SharedPartition::default() };
        let topics = vec![(Uuid::nil(), vec![partition])];
        let fetched = ShareFetched { topics, ..ShareFetched::default() };
        let response = encode_fetched(&head(ApiKey::ShareFetch, 2), fetched);
        assert!(response.chunks.iter().any(|chunk| chunk.as_ptr() == batch.as_ptr()));
    }

    #[test]
    fn message_crate_decodes_share_acknowledge_responses() {
        let fault = Some(Fault::plain(ResponseError::InvalidRecordState));
        let leader = Some(CurrentLeader { node: 3, epoch: 8 });
        let refused = PartitionOutcome { index: 1, fault, leader };
        let topics = vec![(Uuid::from_u128(1), vec![PartitionOutcome::default(), refused])];
        let leaders = vec![live_node(3)];
        let done = ShareAcknowledged { fault: None, lock_ms: 9, topics, leaders };
        let response = encode_acknowledged(&head(ApiKey::ShareAcknowledge, 1), done);
        let mut bytes = body(&response);
        let message = ShareAcknowledgeResponse::decode(&mut bytes, 1).unwrap();
        assert!(bytes.is_empty());
        let codes: Vec<_> = message.responses[0].partitions.iter().map(|p| p.error_code).collect();
        assert_eq!(codes, [0, ResponseError::InvalidRecordState.code()]);
        let leaders = message.responses[0].partitions.iter().map(|it| it.current_leader.leader_id);
        assert_eq!(leaders.collect::<Vec<_>>(), [-1, 3]);
        assert_eq!(message.node_endpoints[0].node_id.0, 3);
    }

    #[test]
    fn share_acknowledge_version_2_has_the_lock_timeout() {
        let whole = Fault::new(ResponseError::ShareSessionNotFound, "no");
        let done = |lock_ms| ShareAcknowledged {
            fault: Some(whole.clone()),
            lock_ms,
            ..Default::default()
        };
        let first = body(&encode_acknowledged(&head(ApiKey::ShareAcknowledge, 1), done(7)));
        let second = body(&encode_acknowledged(&head(ApiKey::ShareAcknowledge, 2), done(7)));
        // Throttle time, code and message come first.
        let at = 4 + 2 + 3;
        assert_eq!(second[at..at + 4], 7i32.to_be_bytes());
        assert_eq!([&second[..at], &second[at + 4..]].concat(), first);
    }
}
