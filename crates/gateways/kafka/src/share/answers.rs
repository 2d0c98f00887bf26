//! Collects a share fetch response, partition by partition.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::errors::Fault;
use crate::leaders::{CurrentLeader, ReachableNode, Referrals, is_about_leader};
use crate::share::response::SharedPartition;
use crate::state::Gateway;

#[derive(Debug, Default)]
pub(crate) struct PartitionReplies(BTreeMap<Uuid, BTreeMap<i32, SharedPartition>>);

impl PartitionReplies {
    pub(crate) fn partition(&mut self, topic: Uuid, index: i32) -> &mut SharedPartition {
        let topic = self.0.entry(topic).or_default();
        topic
            .entry(index)
            .or_insert_with(|| SharedPartition { index, ..SharedPartition::default() })
    }

    /// Sets the fault of these partitions.
    pub(crate) fn fail(&mut self, topic: Uuid, partitions: &BTreeSet<i32>, fault: &Fault) {
        for &index in partitions {
            self.partition(topic, index).fault = Some(fault.clone());
        }
    }

    /// Adds the leader to each partition that another node leads. Returns these nodes.
    pub(crate) fn refer(&mut self, gateway: &Gateway, encrypted: bool) -> Vec<ReachableNode> {
        let mut referrals = Referrals::new(encrypted);
        for (topic, partitions) in &mut self.0 {
            for partition in partitions.values_mut() {
                let faults = [&partition.fault, &partition.acknowledge_fault];
                if faults.into_iter().flatten().any(|fault| is_about_leader(fault.code())) {
                    partition.leader = refer(&mut referrals, gateway, topic, partition.index);
                }
            }
        }
        referrals.into_endpoints()
    }

    /// Whether the partition has no fault so far.
    pub(crate) fn is_served(&self, topic: Uuid, index: i32) -> bool {
        let answered = self.0.get(&topic).and_then(|topic| topic.get(&index));
        answered.is_none_or(|partition| partition.fault.is_none())
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.0.values().flat_map(BTreeMap::values).any(|partition| partition.fault.is_some())
    }

    pub(crate) fn into_topics(self) -> Vec<(Uuid, Vec<SharedPartition>)> {
        let topics = self.0.into_iter();
        topics.map(|(topic, partitions)| (topic, partitions.into_values().collect())).collect()
    }
}

/// Returns the leader of a partition, if it is another node.
pub(crate) fn refer(
    referrals: &mut Referrals,
    gateway: &Gateway,
    topic: &Uuid,
    index: i32,
) -> Option<CurrentLeader> {
    let partition = {
        let catalog = gateway.broker.catalog();
        catalog.topic_with_uuid(topic).and_then(|topic| topic.partition(index))
    };
    referrals.refer(gateway, partition?)
}
