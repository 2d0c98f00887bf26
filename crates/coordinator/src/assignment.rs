//! Partitions of a member.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::reconcile::AssignmentSet;

/// Partitions by topic; every listed topic has at least one partition.
///
/// Topics are identified by UUID: a member may still hold partitions of a deleted topic, whose name another topic
/// may have by then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment(BTreeMap<Uuid, BTreeSet<i32>>);

impl Assignment {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    pub fn contains(&self, topic: Uuid, partition: i32) -> bool {
        self.0.get(&topic).is_some_and(|partitions| partitions.contains(&partition))
    }

    pub fn insert(&mut self, topic: Uuid, partition: i32) {
        self.0.entry(topic).or_default().insert(partition);
    }

    pub fn partitions_of(&self, topic: Uuid) -> impl Iterator<Item = &i32> {
        self.0.get(&topic).into_iter().flatten()
    }

    /// Each partition once, topic by topic.
    pub fn iter(&self) -> impl Iterator<Item = (Uuid, i32)> {
        self.0.iter().flat_map(|(&topic, partitions)| {
            partitions.iter().map(move |&partition| (topic, partition))
        })
    }

    pub fn topics(&self) -> impl Iterator<Item = (Uuid, &BTreeSet<i32>)> {
        self.0.iter().map(|(&topic, partitions)| (topic, partitions))
    }

    #[cfg(test)]
    pub(crate) fn is_subset_of(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }
}

impl FromIterator<(Uuid, i32)> for Assignment {
    fn from_iter<T: IntoIterator<Item = (Uuid, i32)>>(partitions: T) -> Self {
        let mut assignment = Self::default();
        assignment.extend(partitions);
        assignment
    }
}

impl Extend<(Uuid, i32)> for Assignment {
    fn extend<T: IntoIterator<Item = (Uuid, i32)>>(&mut self, partitions: T) {
        for (topic, partition) in partitions {
            self.insert(topic, partition);
        }
    }
}

impl AssignmentSet for Assignment {
    type Item = (Uuid, i32);

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.iter().any(|(topic, partition)| other.contains(topic, partition))
    }

    fn both(&self, other: &Self) -> Self {
        self.iter().filter(|&(topic, partition)| other.contains(topic, partition)).collect()
    }

    fn without(&self, other: &Self) -> Self {
        self.iter().filter(|&(topic, partition)| !other.contains(topic, partition)).collect()
    }

    fn add(&mut self, other: Self) {
        self.extend(other.iter());
    }

    fn items(&self) -> impl Iterator<Item = (Uuid, i32)> {
        self.iter()
    }
}
