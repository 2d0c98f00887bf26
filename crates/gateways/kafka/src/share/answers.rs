//! What a share fetch answers, partition by partition, as it comes together.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::errors::Fault;
use crate::share::response::SharedPartition;

#[derive(Debug, Default)]
pub(crate) struct Answers(BTreeMap<Uuid, BTreeMap<i32, SharedPartition>>);

impl Answers {
    pub(crate) fn partition(&mut self, topic: Uuid, index: i32) -> &mut SharedPartition {
        let topic = self.0.entry(topic).or_default();
        topic
            .entry(index)
            .or_insert_with(|| SharedPartition { index, ..SharedPartition::default() })
    }

    /// Says of these partitions what is wrong with them.
    pub(crate) fn fail(&mut self, topic: Uuid, partitions: &BTreeSet<i32>, fault: &Fault) {
        for &index in partitions {
            self.partition(topic, index).fault = Some(fault.clone());
        }
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.0.values().flat_map(BTreeMap::values).any(|partition| partition.fault.is_some())
    }

    pub(crate) fn into_topics(self) -> Vec<(Uuid, Vec<SharedPartition>)> {
        let topics = self.0.into_iter();
        topics.map(|(topic, partitions)| (topic, partitions.into_values().collect())).collect()
    }
}
