//! From subscriptions and topics to what each member is to have.

use tracing::info;

use super::ConsumerGroup;
use crate::assignor::Subscriber;

impl ConsumerGroup {
    /// Computes what every member is to have in the group's epoch.
    pub(super) fn assign(&mut self) {
        let assignor = self.assignor();
        let partitions = self.subscriptions.partitions();
        let subscribers: Vec<_> = self
            .members
            .values()
            .map(|member| Subscriber {
                id: &member.id,
                instance_id: member.instance_id.as_ref(),
                topics: &member.subscription.topics,
                target: &member.state.target,
            })
            .collect();
        let targets = assignor.assign(&subscribers, &partitions);
        for (member, target) in self.members.values_mut().zip(targets) {
            member.state.target = target;
        }
        self.target_epoch = self.epoch;
        info!(group = %self.name, epoch = self.epoch, members = self.members.len(),
            assignor = assignor.name(), "assigned anew");
    }
}
