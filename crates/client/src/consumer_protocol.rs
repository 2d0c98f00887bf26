//! Data that members of a group exchange through the coordinator: subscriptions and assignments of the `consumer`
//! protocol (`ConsumerProtocolSubscription`, `ConsumerProtocolAssignment`).
//!
//! They are read by hand, and only as far as needed: any client may put any bytes there, and the message crate
//! reserves memory for as many elements as an array claims to have. All versions begin alike.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Encodable;

use crate::cluster::TopicPartition;

/// The version that is written, which every client reads.
const VERSION: i16 = 0;

/// A message of the protocol: its version, then the message.
pub(crate) fn versioned(message: &impl Encodable) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(VERSION);
    message.encode(&mut bytes, VERSION).expect("version 0 has every field that is set here");
    bytes.freeze()
}

/// The topics of a subscription; `None` if it is malformed.
pub(crate) fn subscribed_topics(mut bytes: &[u8]) -> Option<Vec<String>> {
    bytes.try_get_i16().ok()?;
    let count = bytes.try_get_i32().ok()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        topics.push(text(&mut bytes)?.to_owned());
    }
    Some(topics)
}

/// The partitions of an assignment; empty if it is malformed.
pub(crate) fn assigned_partitions(mut bytes: &[u8]) -> Vec<TopicPartition> {
    assigned(&mut bytes).unwrap_or_default()
}

fn assigned(bytes: &mut &[u8]) -> Option<Vec<TopicPartition>> {
    bytes.try_get_i16().ok()?;
    let topics = bytes.try_get_i32().ok()?;
    let mut partitions = Vec::new();
    for _ in 0..topics {
        let topic: Arc<str> = text(bytes)?.into();
        for _ in 0..bytes.try_get_i32().ok()? {
            partitions.push(TopicPartition::new(topic.clone(), bytes.try_get_i32().ok()?));
        }
    }
    Some(partitions)
}

fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition as AssignedTopic;
    use kafka_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
    use kafka_protocol::protocol::StrBytes;
    use proptest::prelude::*;

    use super::*;
    use crate::requests::topic_name;

    #[test]
    fn written_assignment_is_read_back() {
        let topic =
            AssignedTopic::default().with_topic(topic_name("t")).with_partitions(vec![1, 2]);
        let assignment =
            ConsumerProtocolAssignment::default().with_assigned_partitions(vec![topic]);
        let read = assigned_partitions(&versioned(&assignment));
        assert_eq!(read, [TopicPartition::new("t", 1), TopicPartition::new("t", 2)]);
        assert_eq!(assigned_partitions(b"\0"), []);
        assert_eq!(assigned_partitions(b"garbage"), []);
    }

    #[test]
    fn subscription_is_read_in_every_version() {
        let topics = ["t", "u"].map(StrBytes::from_static_str).to_vec();
        let subscription = ConsumerProtocolSubscription::default().with_topics(topics);
        for version in 0..=3 {
            let mut bytes = BytesMut::new();
            bytes.put_i16(version);
            subscription.encode(&mut bytes, version).expect("encodes");
            let read = subscribed_topics(&bytes).expect("a subscription");
            assert_eq!(read, ["t", "u"]);
        }
        assert_eq!(subscribed_topics(b"garbage"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = assigned_partitions(&bytes);
            let _ = subscribed_topics(&bytes);
        }
    }
}
