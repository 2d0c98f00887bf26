//! Parses a produce request without copying its batches.
//!
//! The message crate would return records as shared bytes. Here each batch owns its piece of the frame
//! ([`BytesMut::split_to`]), so that the broker can write the offset in place.

use crate::topic_ref::TopicRef;
use bytes::{Buf, BytesMut};
use kafka_wire::primitives::{Cursor, MalformedValue};

/// First version with compact lengths.
const FLEXIBLE_SINCE: i16 = 9;
/// First version that names topics by id (KIP-516).
const TOPIC_IDS_SINCE: i16 = 13;
/// A partition takes at least seven bytes of a request, and some sixty when decoded.
const PARTITIONS_MAX: usize = 1_000_000;

#[derive(Debug)]
pub(crate) struct ProduceRequest {
    pub(crate) transactional_id: Option<String>,
    pub(crate) acks: i16,
    /// How long the client waits for its batches to be durable on a majority.
    pub(crate) timeout_ms: i32,
    pub(crate) topics: Vec<ProduceTopic>,
    /// Partitions of all topics, in order.
    pub(crate) partitions: Vec<ProducePartition>,
}

#[derive(Debug)]
pub(crate) struct ProduceTopic {
    pub(crate) topic: TopicRef,
    /// Number of the request's partitions that belong to this topic.
    pub(crate) partitions: usize,
}

#[derive(Debug)]
pub(crate) struct ProducePartition {
    pub(crate) index: i32,
    pub(crate) records: Option<BytesMut>,
}

impl ProduceRequest {
    pub(crate) fn parse(version: i16, mut body: BytesMut) -> Result<Self, MalformedValue> {
        let (mut request, places) = Self::survey(version, &body)?;
        // Front to back, so that each split takes a piece off the front.
        let mut taken = 0;
        for (partition, place) in request.partitions.iter_mut().zip(places) {
            let Some((at, len)) = place else { continue };
            body.advance(at - taken);
            partition.records = Some(body.split_to(len));
            taken = at + len;
        }
        Ok(request)
    }

    /// Parses everything except the records, and returns their positions.
    #[expect(clippy::type_complexity, reason = "places live only until the records are split off")]
    fn survey(
        version: i16,
        body: &[u8],
    ) -> Result<(Self, Vec<Option<(usize, usize)>>), MalformedValue> {
        let flexible = version >= FLEXIBLE_SINCE;
        let mut cursor = Cursor::new(body);
        let transactional_id = cursor.nullable_text(flexible)?.map(str::to_owned);
        let acks = cursor.int16()?;
        let timeout_ms = cursor.int32()?;
        let topic_count = cursor.count(flexible)?.ok_or(MalformedValue::Null)?;
        let (topics, partitions) = (Vec::new(), Vec::new());
        let mut request = Self { transactional_id, acks, timeout_ms, topics, partitions };
        let mut places = Vec::new();
        for _ in 0..topic_count {
            let topic = if version >= TOPIC_IDS_SINCE {
                TopicRef::Id(cursor.uuid()?)
            } else {
                TopicRef::Name(cursor.text(flexible)?.into())
            };
            let partitions = cursor.count(flexible)?.ok_or(MalformedValue::Null)?;
            if partitions > PARTITIONS_MAX - request.partitions.len() {
                return Err(MalformedValue::Length { length: partitions as i64 });
            }
            for _ in 0..partitions {
                let index = cursor.int32()?;
                let len = cursor.blob_len(flexible)?;
                places.push(len.map(|len| (body.len() - cursor.left(), len)));
                cursor.skip(len.unwrap_or(0))?;
                if flexible {
                    cursor.skip_tagged_fields()?;
                }
                request.partitions.push(ProducePartition { index, records: None });
            }
            if flexible {
                cursor.skip_tagged_fields()?;
            }
            request.topics.push(ProduceTopic { topic, partitions });
        }
        if flexible {
            cursor.skip_tagged_fields()?;
        }
        Ok((request, places))
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::{ProduceRequest as Message, TopicName};
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    type Partitions = Vec<(i32, Option<Vec<u8>>)>;

    fn message(version: i16, acks: i16, topics: &[(String, u128, Partitions)]) -> Message {
        let topic_data = topics.iter().map(|(name, id, partitions)| {
            let partitions = partitions.iter().map(|(index, records)| {
                let records = records.as_ref().map(|bytes| bytes.clone().into());
                PartitionProduceData::default().with_index(*index).with_records(records)
            });
            let topic = TopicProduceData::default().with_partition_data(partitions.collect());
            if version >= TOPIC_IDS_SINCE {
                topic.with_topic_id(Uuid::from_u128(*id))
            } else {
                topic.with_name(TopicName(StrBytes::from_string(name.clone())))
            }
        });
        Message::default().with_acks(acks).with_timeout_ms(1).with_topic_data(topic_data.collect())
    }

    fn topics() -> impl Strategy<Value = Vec<(String, u128, Partitions)>> {
        let records = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200));
        let partitions = proptest::collection::vec((any::<i32>(), records), 0..5);
        proptest::collection::vec(("[a-z]{1,9}", any::<u128>(), partitions), 0..4)
    }

    proptest! {
        #[test]
        fn message_crate_requests_are_parsed(version in 3i16..=13, acks: i16, topics in topics()) {
            let mut body = BytesMut::new();
            message(version, acks, &topics).encode(&mut body, version).unwrap();
            let request = ProduceRequest::parse(version, body).unwrap();

            prop_assert_eq!((request.acks, request.timeout_ms), (acks, 1));
            prop_assert!(request.transactional_id.is_none());
            prop_assert_eq!(request.topics.len(), topics.len());
            let mut partitions = request.partitions.into_iter();
            for (found, (name, id, sent)) in request.topics.iter().zip(&topics) {
                match &found.topic {
                    TopicRef::Name(found) => prop_assert_eq!(&**found, name.as_str()),
                    TopicRef::Id(found) => prop_assert_eq!(found.as_u128(), *id),
                }
                prop_assert_eq!(found.partitions, sent.len());
                for (index, records) in sent {
                    let partition = partitions.next().unwrap();
                    prop_assert_eq!(partition.index, *index);
                    prop_assert_eq!(partition.records.as_deref(), records.as_deref());
                }
            }
        }

        #[test]
        fn truncated_or_damaged_request_causes_no_panic(
            version in 3i16..=13,
            topics in topics(),
            cut in any::<prop::sample::Index>(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut body = BytesMut::new();
            message(version, 1, &topics).encode(&mut body, version).unwrap();
            body.truncate(cut.index(body.len()) + 1);
            for (at, byte) in damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let _ = ProduceRequest::parse(version, body);
        }

        #[test]
        fn garbage_is_accepted_only_if_the_message_crate_accepts_it(
            version in 3i16..=13,
            bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..64),
        ) {
            // Our parser first, because it protects from lengths that the crate would trust.
            if ProduceRequest::parse(version, BytesMut::from(&bytes[..])).is_ok() {
                prop_assert!(Message::decode(&mut bytes::Bytes::from(bytes), version).is_ok());
            }
        }
    }

    #[test]
    fn parsed_batches_lie_in_the_frames_memory() {
        let topics =
            vec![("t".to_owned(), 0, vec![(0, Some(vec![1; 50])), (1, Some(vec![2; 50]))])];
        let mut body = BytesMut::new();
        message(9, -1, &topics).encode(&mut body, 9).unwrap();
        let frame = body.as_ptr() as usize..body.as_ptr() as usize + body.len();
        let request = ProduceRequest::parse(9, body).unwrap();
        for partition in request.partitions {
            let at = partition.records.unwrap().as_ptr() as usize;
            assert!(frame.contains(&at));
        }
    }
}
