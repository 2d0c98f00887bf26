//! Computes target assignments from subscriptions and topics.

use tracing::info;

use super::ConsumerGroup;

impl ConsumerGroup {
    /// Computes the target of every member for the group's epoch.
    pub(super) fn assign(&mut self) {
        let assignor = self.assignor();
        self.members.assign(&self.own.subscriptions, |subscribers, partitions| {
            assignor.assign(subscribers, partitions)
        });
        info!(group = %self.name, epoch = self.epoch(), members = self.members.len(),
            assignor = assignor.name(), "assigned again");
    }
}
