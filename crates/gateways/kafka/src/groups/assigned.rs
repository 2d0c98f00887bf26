//! Assignment that the leader of a classic group wrote for a member: Kafka's `ConsumerProtocolAssignment`.
//! Clients write and read it. Here it is parsed for operators only, and may hold any bytes.

use operations::offset_groups::AssignedTopic;

use crate::wire::primitives::{Cursor, MalformedValue};

/// Returns partitions by topic, sorted. The version and the assignor's user data are skipped.
pub(crate) fn assigned_partitions(bytes: &[u8]) -> Result<Vec<AssignedTopic>, MalformedValue> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut cursor = Cursor::new(bytes);
    cursor.int16()?;
    let count = cursor.count(false)?.ok_or(MalformedValue::Null)?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let topic = cursor.text(false)?.to_owned();
        let count = cursor.count(false)?.ok_or(MalformedValue::Null)?;
        let mut partitions = Vec::new();
        for _ in 0..count {
            let index = cursor.int32()?;
            let index = u32::try_from(index);
            partitions.push(index.map_err(|_| MalformedValue::Length { length: -1 })?);
        }
        partitions.sort_unstable();
        topics.push(AssignedTopic { topic, partitions });
    }
    topics.sort_by(|a, b| a.topic.cmp(&b.topic));
    Ok(topics)
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
        assert!(assigned_partitions(&[0]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = assigned_partitions(&bytes);
        }
    }
}
