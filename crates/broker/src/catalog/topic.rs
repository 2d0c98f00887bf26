//! A topic as the catalog defines it.

use std::sync::Arc;

use base::{PartitionId, TopicId};
use machine::config::{Overrides, TopicConfig};
use uuid::Uuid;

/// The definition of a topic, borrowed from a [`super::CatalogView`].
#[derive(Clone, Copy, Debug)]
pub struct Topic<'a>(pub(super) &'a machine::Topic);

impl<'a> Topic<'a> {
    /// Never given to another topic.
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

    /// What holds: the topic's own values, then the node's, then the defaults.
    pub fn config(self) -> &'a Arc<TopicConfig> {
        &self.0.config
    }

    /// The topic's own values, as they were given.
    pub fn overrides(self) -> &'a Arc<Overrides> {
        &self.0.overrides
    }

    pub fn partition_count(self) -> u32 {
        self.0.partition_count()
    }

    pub fn partition_ids(self) -> impl Iterator<Item = PartitionId> + use<> {
        self.0.partition_ids()
    }

    /// The partition of this number, which may come from outside: `None` where it is negative or
    /// the topic has fewer.
    pub fn partition(self, index: impl TryInto<u32>) -> Option<PartitionId> {
        let index = index.try_into().ok().filter(|index| *index < self.partition_count())?;
        Some(PartitionId::new(self.id(), index))
    }
}
