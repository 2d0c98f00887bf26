//! Changes of the catalog that a shard with rows adopts, in an entry of its own log.

use base::{LeaseGroupId, Offset, TopicId};
use serde::{Deserialize, Serialize};

/// The changes that a shard adopts. Its fields are persisted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Adoption {
    /// The shard's current version of the catalog: the adoption is refused if it differs.
    pub from: u64,
    /// The shard's version afterwards.
    pub to: u64,
    /// Topics and groups that are not listed are deleted.
    pub all: bool,
    pub topics: Vec<AdoptedTopic>,
    pub groups: Vec<AdoptedGroup>,
    pub topics_gone: Vec<TopicId>,
    pub groups_gone: Vec<LeaseGroupId>,
}

/// A topic of which the shard owns each `step`th partition from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptedTopic {
    pub topic: TopicId,
    pub first: u32,
    pub step: u32,
    /// Number of partitions in all shards together.
    pub partitions: u32,
    pub deletes_settled: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptedGroup {
    pub group: LeaseGroupId,
    pub topic: TopicId,
    /// Start offset in each of the topic's partitions, from the first on; a missing one is the
    /// partition's start.
    pub starts: Vec<Offset>,
}

impl Adoption {
    /// It contains nothing but a new version.
    pub fn is_empty(&self) -> bool {
        let named = self.topics.len() + self.groups.len();
        !self.all && named + self.topics_gone.len() + self.groups_gone.len() == 0
    }
}
