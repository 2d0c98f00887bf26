//! A topic as the catalog defines it.

use std::sync::Arc;

use base::{PartitionId, TopicId};
use machine::config::{Overrides, TopicConfig};
use uuid::Uuid;

/// The definition of a topic, borrowed from a [`super::CatalogView`].
#[derive(Clone, Copy, Debug)]
pub struct Topic<'a>(pub(super) &'a machine::Topic);

impl<'a> Topic<'a> {
    /// Unique; never reused for another topic.
    pub fn id(self) -> TopicId {
        self.0.id
    }

    pub fn uuid(self) -> Uuid {
        self.0.uuid
    }

    pub fn name(self) -> &'a Arc<str> {
        &self.0.name
    }

    pub fn created_ms(self) -> i64 {
        self.0.created_ms
    }

    /// Effective settings: the topic's own values, then the node's, then the defaults.
    pub fn config(self) -> &'a Arc<TopicConfig> {
        &self.0.config
    }

    /// The topic's own settings, as they were set.
    pub fn overrides(self) -> &'a Arc<Overrides> {
        &self.0.overrides
    }

    pub fn partition_count(self) -> u32 {
        self.0.partition_count()
    }

    pub fn partition_ids(self) -> impl Iterator<Item = PartitionId> + use<> {
        self.0.partition_ids()
    }

    /// Returns the partition of this number, which may come from a client: `None` where it is negative or the topic
    /// has fewer.
    pub fn partition(self, index: impl TryInto<u32>) -> Option<PartitionId> {
        let index = index.try_into().ok().filter(|index| *index < self.partition_count())?;
        Some(PartitionId::new(self.id(), index))
    }
}
