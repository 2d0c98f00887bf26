//! Partitions changed by applied entries. Housekeeping examines these and no others.
//!
//! Each entry notes its partitions under one short lock. A partition is noted once, however often it changes before
//! the next pass of housekeeping, so the notes never outnumber the partitions.

use std::collections::BTreeSet;

use base::{HashMap, PartitionId, TopicId};
use machine::outcome::{AppendOutcome, EntryEffects};
use machine::{Append, Command, MoveStep, Step};
use parking_lot::Mutex;

#[derive(Debug)]
pub struct Changes(Mutex<ChangedPartitions>);

#[derive(Debug, Default)]
pub struct ChangedPartitions {
    /// Every partition: after a start of the node, a change of its configuration, or a snapshot from another member.
    pub all: bool,
    /// Topics that were reconfigured or deleted. A new topic has no records yet.
    pub topics: BTreeSet<TopicId>,
    pub partitions: HashMap<PartitionId, Change>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Largest timestamp of the oldest appended batch; `i64::MAX` when none was appended.
    pub oldest_ms: i64,
    /// The first batch may be another one, or facts recorded about the partition may be outdated.
    pub anew: bool,
}

impl Change {
    pub const ANEW: Self = Self { oldest_ms: i64::MAX, anew: true };

    fn and(self, other: Self) -> Self {
        let oldest_ms = self.oldest_ms.min(other.oldest_ms);
        Self { oldest_ms, anew: self.anew || other.anew }
    }
}

impl Default for Changes {
    /// State after a start of the node.
    fn default() -> Self {
        Self(Mutex::new(ChangedPartitions { all: true, ..ChangedPartitions::default() }))
    }
}

impl Changes {
    pub(crate) fn note(&self, appends: &[Append], commands: &[Command], applied: &EntryEffects) {
        let mut changed = self.0.lock();
        changed.topics.extend(applied.removed.iter().map(|(topic, _)| *topic));
        for command in commands {
            match command {
                Command::SetNodeConfig { .. } => changed.all = true,
                Command::SetTopicConfig { topic, .. } | Command::ChangeTopic { topic, .. } => {
                    changed.topics.insert(*topic);
                }
                Command::Compacted { partition, .. }
                // Records appended to it before it became active here were examined in vain.
                | Command::Move(MoveStep {
                    partition,
                    what: Step::Activate { .. } | Step::ActivateWith { .. },
                    ..
                }) => {
                    changed.add(*partition, Change::ANEW);
                }
                _ => {}
            }
        }
        if changed.all {
            changed.partitions = HashMap::default();
            return;
        }
        for (append, outcome) in appends.iter().zip(&applied.appends) {
            if matches!(outcome, AppendOutcome::Taken { .. }) {
                let change = Change { oldest_ms: append.max_timestamp, anew: false };
                changed.add(append.partition, change);
            }
        }
        let trimmed = applied.trimmed.iter().map(|(partition, _)| *partition);
        let punched = applied.punched.iter().map(|(partition, _, _)| *partition);
        trimmed.chain(punched).for_each(|partition| changed.add(partition, Change::ANEW));
    }

    /// Marks everything as changed.
    pub(crate) fn note_all(&self) {
        let mut changed = self.0.lock();
        changed.all = true;
        changed.partitions = HashMap::default();
    }

    /// Whether all partitions changed, for tests.
    pub fn all(&self) -> bool {
        self.0.lock().all
    }

    /// Takes the changes since the last call.
    pub fn take(&self) -> ChangedPartitions {
        std::mem::take(&mut self.0.lock())
    }
}

impl ChangedPartitions {
    pub fn is_empty(&self) -> bool {
        !self.all && self.topics.is_empty() && self.partitions.is_empty()
    }

    pub fn add(&mut self, partition: PartitionId, change: Change) {
        let known = self.partitions.entry(partition).or_insert(change);
        *known = known.and(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(index: u32, max_timestamp: i64) -> Append {
        Append {
            partition: PartitionId::new(TopicId(1), index),
            base_offset: 0,
            span: 1,
            leader_epoch: 1,
            max_timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            kind: machine::BatchKind::Plain,
        }
    }

    /// After the first pass over everything.
    fn settled() -> Changes {
        let changes = Changes::default();
        assert!(changes.take().all, "a start looks at everything");
        changes
    }

    #[test]
    fn appended_partition_is_noted_once_with_its_oldest_timestamp() {
        let changes = settled();
        let taken = AppendOutcome::Taken { base_offset: 0 };
        for stamp in [30, 10, 20] {
            let appends = [append(0, stamp), append(1, 5)];
            let outcomes = vec![taken, AppendOutcome::UnknownPartition];
            changes.note(
                &appends,
                &[],
                &EntryEffects { appends: outcomes, ..EntryEffects::default() },
            );
        }
        let changed = changes.take();
        assert_eq!(changed.partitions.len(), 1, "what was refused changed nothing");
        let change = changed.partitions[&PartitionId::new(TopicId(1), 0)];
        assert_eq!(change, Change { oldest_ms: 10, anew: false });
        assert!(changes.take().is_empty());
    }

    #[test]
    fn all_replaces_the_partitions_and_keeps_removed_topics() {
        let changes = Changes::default();
        let gone = EntryEffects { removed: vec![(TopicId(7), 3)], ..EntryEffects::default() };
        changes.note(&[], &[], &gone);
        let trimmed = vec![(PartitionId::new(TopicId(1), 0), 5)];
        changes.note(&[], &[], &EntryEffects { trimmed, ..EntryEffects::default() });
        let changed = changes.take();
        assert!(changed.all && changed.partitions.is_empty());
        assert!(changed.topics.contains(&TopicId(7)));
    }
}
