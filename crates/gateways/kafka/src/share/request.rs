//! Parses ShareFetch and ShareAcknowledge requests here, because the message crate lacks their second version
//! (KIP-1206, KIP-1222).
//!
//! Both requests acknowledge records in the same format. An invalid acknowledgement is a fault of its
//! partition, not of the request, so it is detected here and reported with the partition.

use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::groups::text::own;
use crate::messages::RequestError;
use crate::request::Request;
use kafka_wire::primitives::{Cursor, MalformedValue};
use kafka_wire::shape;

/// First version in which a member may renew its leases.
const RENEWALS_SINCE: i16 = 2;

/// A member's acknowledgement of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acknowledge {
    /// There was no record at this offset: it is settled.
    Gap,
    Accept,
    Release,
    Reject,
    Renew,
}

impl Acknowledge {
    fn from_wire(number: i8) -> Option<Self> {
        Some(match number {
            0 => Self::Gap,
            1 => Self::Accept,
            2 => Self::Release,
            3 => Self::Reject,
            4 => Self::Renew,
            _ => return None,
        })
    }
}

/// Consecutive records with the same acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AcknowledgedRange {
    pub(crate) first: u64,
    /// Inclusive.
    pub(crate) last: u64,
    pub(crate) acknowledge: Acknowledge,
}

/// Reason why a partition's acknowledgements are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InvalidRanges(pub(crate) &'static str);

/// A partition of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SharePartition {
    pub(crate) topic: Uuid,
    pub(crate) index: i32,
    /// In order, without overlaps.
    pub(crate) acknowledged: Result<Vec<AcknowledgedRange>, InvalidRanges>,
}

impl SharePartition {
    pub(crate) fn acknowledges(&self) -> bool {
        self.acknowledged.as_ref().map_or(true, |ranges| !ranges.is_empty())
    }
}

/// The member and its session's epoch, which both requests have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShareHead {
    pub(crate) group: Option<StrBytes>,
    pub(crate) member: Option<StrBytes>,
    pub(crate) epoch: i32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShareFetchRequest {
    pub(crate) head: ShareHead,
    pub(crate) wait_max_ms: i32,
    pub(crate) bytes_min: i32,
    pub(crate) bytes_max: i32,
    pub(crate) records_max: i32,
    /// It renews leases and fetches nothing, because the leases may expire while a fetch waits.
    pub(crate) renews: bool,
    pub(crate) partitions: Vec<SharePartition>,
    pub(crate) forgotten: Vec<(Uuid, i32)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShareAcknowledgeRequest {
    pub(crate) head: ShareHead,
    pub(crate) partitions: Vec<SharePartition>,
}

impl ShareFetchRequest {
    pub(crate) fn parse(request: &mut Request) -> Result<Self, RequestError> {
        parse(request, ApiKey::ShareFetch, Self::read)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, MalformedValue> {
        let head = reader.head()?;
        let cursor = &mut reader.cursor;
        let (wait_max_ms, bytes_min) = (cursor.int32()?, cursor.int32()?);
        let (bytes_max, records_max) = (cursor.int32()?, cursor.int32()?);
        // Preferred number of records per range of acquired ones: ranges are as long as possible here, which
        // is the shortest encoding.
        cursor.skip(4)?;
        if reader.version >= RENEWALS_SINCE {
            // Whether `records_max` is a strict limit: here it always is.
            cursor.skip(1)?;
            reader.renews = cursor.int8()? != 0;
        }
        let partitions = reader.partitions()?;
        let forgotten = reader.forgotten()?;
        reader.cursor.skip_tagged_fields()?;
        let renews = reader.renews;
        Ok(Self {
            head,
            wait_max_ms,
            bytes_min,
            bytes_max,
            records_max,
            renews,
            partitions,
            forgotten,
        })
    }
}

impl ShareAcknowledgeRequest {
    pub(crate) fn parse(request: &mut Request) -> Result<Self, RequestError> {
        parse(request, ApiKey::ShareAcknowledge, Self::read)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, MalformedValue> {
        let head = reader.head()?;
        if reader.version >= RENEWALS_SINCE {
            reader.renews = reader.cursor.int8()? != 0;
        }
        let partitions = reader.partitions()?;
        reader.cursor.skip_tagged_fields()?;
        Ok(Self { head, partitions })
    }
}

fn parse<T>(
    request: &mut Request,
    api: ApiKey,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, MalformedValue>,
) -> Result<T, RequestError> {
    let version = request.head.version;
    let body = std::mem::take(&mut request.body);
    shape::examine(api, version, &body).map_err(|error| RequestError::Shape {
        api,
        version,
        error,
    })?;
    let mut reader = Reader { cursor: Cursor::new(&body), version, renews: false };
    read(&mut reader).map_err(|malformed| RequestError::Malformed { api, version, malformed })
}

/// Both requests are flexible in every version.
struct Reader<'a> {
    cursor: Cursor<'a>,
    version: i16,
    renews: bool,
}

impl Reader<'_> {
    fn head(&mut self) -> Result<ShareHead, MalformedValue> {
        let group = self.cursor.nullable_text(true)?.map(own);
        let member = self.cursor.nullable_text(true)?.map(own);
        Ok(ShareHead { group, member, epoch: self.cursor.int32()? })
    }

    fn count(&mut self) -> Result<usize, MalformedValue> {
        self.cursor.count(true)?.ok_or(MalformedValue::Null)
    }

    fn partitions(&mut self) -> Result<Vec<SharePartition>, MalformedValue> {
        let mut partitions = Vec::new();
        for _ in 0..self.count()? {
            let topic = self.cursor.uuid()?;
            for _ in 0..self.count()? {
                let index = self.cursor.int32()?;
                let acknowledged = self.ranges()?;
                self.cursor.skip_tagged_fields()?;
                partitions.push(SharePartition { topic, index, acknowledged });
            }
            self.cursor.skip_tagged_fields()?;
        }
        Ok(partitions)
    }

    fn ranges(&mut self) -> Result<Result<Vec<AcknowledgedRange>, InvalidRanges>, MalformedValue> {
        let mut ranges = Ranges { renews: self.renews, found: Ok(Vec::new()) };
        for _ in 0..self.count()? {
            let (first, last) = (self.cursor.int64()?, self.cursor.int64()?);
            let count = self.count()?;
            let types = self.cursor.take(count)?;
            self.cursor.skip_tagged_fields()?;
            ranges.push(first, last, types);
        }
        Ok(ranges.found)
    }

    fn forgotten(&mut self) -> Result<Vec<(Uuid, i32)>, MalformedValue> {
        let mut forgotten = Vec::new();
        for _ in 0..self.count()? {
            let topic = self.cursor.uuid()?;
            for _ in 0..self.count()? {
                forgotten.push((topic, self.cursor.int32()?));
            }
            self.cursor.skip_tagged_fields()?;
        }
        Ok(forgotten)
    }
}

/// Collects a partition's acknowledgements, or the reason why they are invalid.
struct Ranges {
    renews: bool,
    found: Result<Vec<AcknowledgedRange>, InvalidRanges>,
}

impl Ranges {
    /// Adds a batch: one type for all of its records, or one for each.
    fn push(&mut self, first: i64, last: i64, types: &[u8]) {
        let Ok(ranges) = &mut self.found else { return };
        let added = (|| {
            let first = u64::try_from(first).map_err(|_| "an offset is negative")?;
            let last = u64::try_from(last).map_err(|_| "an offset is negative")?;
            if first > last {
                return Err("a batch ends before it begins");
            }
            if ranges.last().is_some_and(|before| first <= before.last) {
                return Err("batches are out of order, or overlap");
            }
            match types {
                [] => Err("a batch has no acknowledge type"),
                [one] => push_range(ranges, first, last, *one, self.renews),
                each if each.len() as u64 != last - first + 1 => {
                    Err("a batch has neither one acknowledge type nor one for each record")
                }
                each => each.iter().zip(first..).try_for_each(|(one, offset)| {
                    push_range(ranges, offset, offset, *one, self.renews)
                }),
            }
        })();
        if let Err(reason) = added {
            self.found = Err(InvalidRanges(reason));
        }
    }
}

/// Adds a range, or extends the previous one if it is adjacent and has the same acknowledgement.
fn push_range(
    ranges: &mut Vec<AcknowledgedRange>,
    first: u64,
    last: u64,
    number: u8,
    renews: bool,
) -> Result<(), &'static str> {
    let acknowledge =
        Acknowledge::from_wire(number as i8).ok_or("an acknowledge type is not known")?;
    if acknowledge == Acknowledge::Renew && !renews {
        return Err("a lease is renewed by a request that does not say so");
    }
    match ranges.last_mut() {
        Some(before) if before.acknowledge == acknowledge && before.last + 1 == first => {
            before.last = last;
        }
        _ => ranges.push(AcknowledgedRange { first, last, acknowledge }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::share_acknowledge_request::{
        AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
    };
    use kafka_protocol::messages::share_fetch_request::{
        AcknowledgementBatch as FetchedBatch, FetchPartition, FetchTopic, ForgottenTopic,
    };
    use kafka_protocol::messages::{self, GroupId};
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::authorization::Caller;
    use crate::messages::RequestHead;
    use crate::state::Session;
    use kafka_wire::primitives::PutPrimitives;

    fn request(api: ApiKey, version: i16, body: BytesMut) -> Request {
        let head = RequestHead { api, version, correlation: 1, client_id: None };
        let (session, caller) = (Session::without_client(), Caller::unrestricted(api));
        Request { head, body, permit: None, session, caller }
    }

    #[test]
    fn share_fetch_encoded_by_the_message_crate_is_parsed() {
        let topic = Uuid::from_u128(5);
        let batch = FetchedBatch::default()
            .with_first_offset(3)
            .with_last_offset(5)
            .with_acknowledge_types(vec![1, 1, 2]);
        let partition = FetchPartition::default()
            .with_partition_index(7)
            .with_acknowledgement_batches(vec![batch]);
        let written = messages::ShareFetchRequest::default()
            .with_group_id(Some(GroupId(own("g"))))
            .with_member_id(Some(own("m")))
            .with_share_session_epoch(4)
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(1000)
            .with_max_records(10)
            .with_batch_size(10)
            .with_topics(vec![
                FetchTopic::default().with_topic_id(topic).with_partitions(vec![partition]),
            ])
            .with_forgotten_topics_data(vec![
                ForgottenTopic::default().with_topic_id(topic).with_partitions(vec![1, 2]),
            ]);
        let mut body = BytesMut::new();
        written.encode(&mut body, 1).unwrap();
        let read = ShareFetchRequest::parse(&mut request(ApiKey::ShareFetch, 1, body)).unwrap();
        let range = |first, last, acknowledge| AcknowledgedRange { first, last, acknowledge };
        let acknowledged =
            Ok(vec![range(3, 4, Acknowledge::Accept), range(5, 5, Acknowledge::Release)]);
        let expected = ShareFetchRequest {
            head: ShareHead { group: Some(own("g")), member: Some(own("m")), epoch: 4 },
            wait_max_ms: 500,
            bytes_min: 1,
            bytes_max: 1000,
            records_max: 10,
            renews: false,
            partitions: vec![SharePartition { topic, index: 7, acknowledged }],
            forgotten: vec![(topic, 1), (topic, 2)],
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn share_acknowledge_encoded_by_the_message_crate_is_parsed() {
        let batch = AcknowledgementBatch::default()
            .with_first_offset(0)
            .with_last_offset(99)
            .with_acknowledge_types(vec![3]);
        let partition = AcknowledgePartition::default().with_acknowledgement_batches(vec![batch]);
        let written = messages::ShareAcknowledgeRequest::default()
            .with_group_id(None)
            .with_member_id(Some(own("m")))
            .with_share_session_epoch(-1)
            .with_topics(vec![AcknowledgeTopic::default().with_partitions(vec![partition])]);
        let mut body = BytesMut::new();
        written.encode(&mut body, 1).unwrap();
        let read = ShareAcknowledgeRequest::parse(&mut request(ApiKey::ShareAcknowledge, 1, body))
            .unwrap();
        assert_eq!(read.head, ShareHead { group: None, member: Some(own("m")), epoch: -1 });
        let range = AcknowledgedRange { first: 0, last: 99, acknowledge: Acknowledge::Reject };
        assert_eq!(read.partitions[0].acknowledged, Ok(vec![range]));
    }

    #[test]
    fn renew_type_is_valid_only_if_the_request_renews_leases() {
        for renews in [false, true] {
            let mut body = BytesMut::new();
            body.put_nullable_text(Some("g"), true);
            body.put_nullable_text(Some("m"), true);
            body.put_i32(1);
            body.put_i8(i8::from(renews));
            body.put_count(1, true);
            body.put_uuid(Uuid::from_u128(1));
            body.put_count(1, true);
            body.put_i32(0);
            body.put_count(1, true);
            body.put_i64(3);
            body.put_i64(3);
            body.put_count(1, true);
            body.put_i8(4);
            body.put_bytes(0, 4);
            let mut request = request(ApiKey::ShareAcknowledge, 2, body);
            let read = ShareAcknowledgeRequest::parse(&mut request).unwrap();
            let renewed = AcknowledgedRange { first: 3, last: 3, acknowledge: Acknowledge::Renew };
            let acknowledged = read.partitions[0].acknowledged.clone();
            assert_eq!(acknowledged.ok(), renews.then(|| vec![renewed]));
        }
    }

    #[test]
    fn invalid_acknowledgement_batches_are_detected() {
        let invalid = |batches: &[(i64, i64, &[u8])]| {
            let mut ranges = Ranges { renews: false, found: Ok(Vec::new()) };
            batches.iter().for_each(|(first, last, types)| ranges.push(*first, *last, types));
            ranges.found.is_err()
        };
        assert!(!invalid(&[(0, 4, &[1]), (5, 6, &[2, 3]), (9, 9, &[0])]));
        assert!(invalid(&[(4, 3, &[1])]));
        assert!(invalid(&[(-1, 3, &[1])]));
        assert!(invalid(&[(0, 4, &[1]), (4, 6, &[1])]));
        assert!(invalid(&[(0, 4, &[])]));
        assert!(invalid(&[(0, 4, &[1, 2])]));
        assert!(invalid(&[(0, 0, &[5])]));
        assert!(invalid(&[(0, 0, &[255])]));
        assert!(invalid(&[(0, 0, &[4])]), "nobody renews by a request that does not say so");
        assert!(invalid(&[(0, i64::MAX, &[1, 1])]));
    }
}
