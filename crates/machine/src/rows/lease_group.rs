//! A lease group in a shard: its progress in the shard's partitions of its topic. Leases are
//! volatile state of the leader and not part of the machine.

use base::{SharedRows, TopicId};

use super::progress::Progress;

#[derive(Clone, PartialEq, Debug)]
pub struct GroupRows {
    pub(crate) topic: TopicId,
    /// One for each row of the topic, in the same order.
    pub(crate) progress: SharedRows<Progress>,
}

impl GroupRows {
    pub fn topic(&self) -> TopicId {
        self.topic
    }

    /// Progress in the partition of this row.
    pub fn row(&self, row: usize) -> Option<&Progress> {
        self.progress.get(row)
    }

    /// One for each of the shard's partitions of the topic, in the same order.
    pub fn progress(&self) -> impl Iterator<Item = &Progress> {
        self.progress.iter()
    }
}
