//! Assignment that the leader of a classic group wrote for a member: Kafka's `ConsumerProtocolAssignment`.
//! Clients write and read it. Here it is parsed for operators only, and may hold any bytes.

use bytes::Buf;

/// Partitions of one topic that are assigned to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssignedPartitions {
    pub topic: String,
    pub partitions: Vec<u32>,
}

/// Returns the assigned partitions by topic, sorted; `None` if the assignment has another form. The version and the
/// assignor's user data are skipped.
pub fn assigned_partitions(mut bytes: &[u8]) -> Option<Vec<AssignedPartitions>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    bytes.try_get_i16().ok()?;
    let mut topics = Vec::new();
    for _ in 0..count(&mut bytes)? {
        let topic = name(&mut bytes)?;
        let mut partitions = Vec::new();
        for _ in 0..count(&mut bytes)? {
            partitions.push(u32::try_from(bytes.try_get_i32().ok()?).ok()?);
        }
        partitions.sort_unstable();
        topics.push(AssignedPartitions { topic, partitions });
    }
    topics.sort_by(|a, b| a.topic.cmp(&b.topic));
    Some(topics)
}

/// Every element takes a byte or more, so a count above the remaining bytes is refused here.
fn count(bytes: &mut &[u8]) -> Option<usize> {
    let count = usize::try_from(bytes.try_get_i32().ok()?).ok()?;
    (count <= bytes.len()).then_some(count)
}

fn name(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (name, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    std::str::from_utf8(name).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition;
    use kafka_protocol::messages::{ConsumerProtocolAssignment, TopicName};
    use kafka_protocol::protocol::{Encodable, StrBytes};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn assignments_written_by_clients_are_parsed() {
        let of = |topic: &'static str, partitions: &[i32]| {
            TopicPartition::default()
                .with_topic(TopicName(StrBytes::from_static_str(topic)))
                .with_partitions(partitions.to_vec())
        };
        let written = ConsumerProtocolAssignment::default()
            .with_assigned_partitions(vec![of("b", &[2, 0]), of("a", &[1])])
            .with_user_data(Some("anything".into()));
        for version in 0..=3_i16 {
            let mut bytes = version.to_be_bytes().to_vec();
            written.encode(&mut bytes, version).expect("is written");
            let read = assigned_partitions(&bytes).expect("is read");
            let read: Vec<_> = read.iter().map(|it| (&*it.topic, &*it.partitions)).collect();
            assert_eq!(read, [("a", &[1_u32][..]), ("b", &[0, 2][..])]);
        }
        assert!(assigned_partitions(&[]).expect("none").is_empty());
        assert!(assigned_partitions(&[0]).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = assigned_partitions(&bytes);
        }
    }
}
