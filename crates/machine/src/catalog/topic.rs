//! A topic in the catalog: a named set of partitions with one policy. The partitions themselves are
//! rows of shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{PartitionId, ShardId, TopicId};
use uuid::Uuid;

use super::placement::Placement;
use crate::config::{Overrides, TopicConfig};

#[derive(Clone, PartialEq, Debug)]
pub struct Topic {
    pub id: TopicId,
    pub uuid: Uuid,
    pub name: Arc<str>,
    pub created_ms: i64,
    /// The effective configuration: the topic's own values, over the node's, over the defaults.
    /// Topics with equal own values share it, and the values too.
    pub config: Arc<TopicConfig>,
    /// The topic's own values, as given.
    pub overrides: Arc<Overrides>,
    pub partition_count: u32,
    pub placement: Placement,
    /// Partitions that move.
    pub moving: BTreeMap<u32, MoveTarget>,
}

/// The target shard of a moving partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveTarget {
    /// Later moves have higher ids.
    pub id: u64,
    pub to: ShardId,
    /// The move is cancelled, unless the partition was already handed over.
    pub cancelled: bool,
}

impl Topic {
    /// At most `PARTITIONS_PER_TOPIC_MAX`.
    pub fn partition_count(&self) -> u32 {
        self.partition_count
    }

    pub fn has_partition(&self, index: u32) -> bool {
        index < self.partition_count
    }

    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let topic = self.id;
        (0..self.partition_count).map(move |index| PartitionId::new(topic, index))
    }
}
