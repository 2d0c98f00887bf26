//! From subscriptions and topics to what each member is to have.

use tracing::info;

use super::ConsumerGroup;

impl ConsumerGroup {
    /// Computes what every member is to have in the group's epoch.
    pub(super) fn assign(&mut self) {
        let assignor = self.assignor();
        self.members.assign(&self.own.subscriptions, |subscribers, partitions| {
            assignor.assign(subscribers, partitions)
        });
        info!(group = %self.name, epoch = self.epoch(), members = self.members.len(),
            assignor = assignor.name(), "assigned anew");
    }
}
