//! Ids inside a node. Names and UUIDs belong to the catalog; all parts below it use these ids.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A record's place in its partition. Dense, from 0, never reused.
///
/// Kafka's wire type is `i64`; the sign bit is never set here.
pub type Offset = u64;

/// A shard's number. The catalog is shard 0; records are in those from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShardId(pub u32);

impl ShardId {
    pub const CATALOG: Self = Self(0);
    /// The first shard with records.
    pub const FIRST: Self = Self(1);
}

/// A topic's number. Handed out in order and never reused, so that a topic which is
/// deleted and made again under its old name cannot be confused with the former one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TopicId(pub u32);

/// One ordered sequence of records: a row of its topic, never a file, a task or a Raft group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PartitionId {
    pub topic: TopicId,
    /// Place in the topic, from 0.
    pub index: u32,
}

/// A lease group's number. Handed out in order and never reused. A lease group belongs
/// to one topic, in which its name is unique; a group of consumers that reads three topics is three
/// lease groups of one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LeaseGroupId(pub u32);

/// The lease group of consumers that name none.
pub const MAIN_LEASE_GROUP: &str = "main";

impl TopicId {
    /// Reserved for channels, never assigned to a topic: its partitions are the channels of a shard, each numbered
    /// by the shard that it leads to.
    pub const CHANNELS: Self = Self(u32::MAX);
}

impl PartitionId {
    /// The partition that holds messages to another shard.
    pub const fn channel_to(shard: ShardId) -> Self {
        Self::new(TopicId::CHANNELS, shard.0)
    }

    /// The shard that a channel leads to; `None` for a partition of a topic.
    pub const fn as_channel(self) -> Option<ShardId> {
        if self.topic.0 == TopicId::CHANNELS.0 { Some(ShardId(self.index)) } else { None }
    }

    pub const fn new(topic: TopicId, index: u32) -> Self {
        Self { topic, index }
    }

    /// The journal's name for this partition: it stores bodies by an opaque 64-bit stream number
    /// and knows no topics.
    pub const fn stream(self) -> u64 {
        ((self.topic.0 as u64) << 32) | self.index as u64
    }

    /// The inverse of [`PartitionId::stream`].
    pub const fn from_stream(stream: u64) -> Self {
        Self { topic: TopicId((stream >> 32) as u32), index: stream as u32 }
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl fmt::Display for LeaseGroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(to) = self.as_channel() {
            return write!(f, "channel to {to}");
        }
        write!(f, "{}/{}", self.topic, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_number_round_trips_to_its_partition() {
        for (topic, index) in [(0, 0), (1, 0), (0, 1), (u32::MAX, u32::MAX), (7, 99_999)] {
            let id = PartitionId::new(TopicId(topic), index);
            assert_eq!(PartitionId::from_stream(id.stream()), id);
        }
    }

    #[test]
    fn stream_numbers_keep_a_topics_partitions_together() {
        let last_of_first = PartitionId::new(TopicId(1), u32::MAX);
        let first_of_second = PartitionId::new(TopicId(2), 0);
        assert!(last_of_first.stream() < first_of_second.stream());
    }
}
