//! Tasks: the work of one subtopology on one partition of its sources.

use std::collections::BTreeSet;

use crate::Text;
use crate::reconcile::AssignmentSet;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Task {
    pub subtopology: Text,
    pub partition: i32,
}

impl Task {
    pub fn new(subtopology: &Text, partition: i32) -> Self {
        Self { subtopology: subtopology.clone(), partition }
    }
}

/// Tasks of a member: active processing, and standby copies of state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tasks {
    pub active: BTreeSet<Task>,
    pub standby: BTreeSet<Task>,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.standby.len()
    }
}

/// Only active tasks have a known epoch of their assignment: standby copies commit nothing.
impl AssignmentSet for Tasks {
    type Item = Task;

    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty()
    }

    fn overlaps(&self, other: &Self) -> bool {
        !self.active.is_disjoint(&other.active) || !self.standby.is_disjoint(&other.standby)
    }

    fn both(&self, other: &Self) -> Self {
        Self {
            active: self.active.intersection(&other.active).cloned().collect(),
            standby: self.standby.intersection(&other.standby).cloned().collect(),
        }
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            active: self.active.difference(&other.active).cloned().collect(),
            standby: self.standby.difference(&other.standby).cloned().collect(),
        }
    }

    fn add(&mut self, other: Self) {
        self.active.extend(other.active);
        self.standby.extend(other.standby);
    }

    fn items(&self) -> impl Iterator<Item = Task> {
        self.active.iter().cloned()
    }
}

/// Partitions by subtopology, as in messages.
pub fn by_subtopology(tasks: &BTreeSet<Task>) -> Vec<(Text, Vec<i32>)> {
    let mut rows: Vec<(Text, Vec<i32>)> = Vec::new();
    for task in tasks {
        match rows.last_mut() {
            Some((subtopology, partitions)) if *subtopology == task.subtopology => {
                partitions.push(task.partition);
            }
            _ => rows.push((task.subtopology.clone(), vec![task.partition])),
        }
    }
    rows
}
