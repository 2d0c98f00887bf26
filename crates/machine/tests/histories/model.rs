//! The plain model: it keeps everything, and derives every outcome from that.

use std::collections::BTreeMap;

use base::{Offset, PartitionId, TopicId};
use machine::limits::PRODUCER_BATCHES_REMEMBERED;
use machine::{
    Append, AppendOutcome, BatchKind, Command, Outcome, Refusal, SequenceRefusal, State,
};

use crate::steps::{Sequence, Step};

#[derive(Clone, Debug)]
struct Batch {
    epoch: i16,
    first: i32,
    last: i32,
    span: u32,
    base_offset: Offset,
    at_ms: i64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ModelPartition {
    start: Offset,
    pub(crate) end: Offset,
    compacted_to: Offset,
    epochs: Vec<(i32, Offset)>,
    /// Every accepted batch of a producer that has not expired.
    producers: BTreeMap<i64, Vec<Batch>>,
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) partitions: BTreeMap<PartitionId, ModelPartition>,
    /// Offset, time of the commit, own expiry.
    commits: BTreeMap<(String, PartitionId), (Offset, i64, Option<i64>)>,
}

impl ModelPartition {
    /// Kafka's rules, derived from the whole history.
    fn sequence(&self, append: &Append) -> Result<Option<Offset>, SequenceRefusal> {
        let (epoch, got) = (append.producer_epoch, append.base_sequence);
        let Some(batches) = self.producers.get(&append.producer_id) else { return Ok(None) };
        let current = batches.last().expect("a known producer wrote").epoch;
        let of_epoch: Vec<_> = batches.iter().filter(|batch| batch.epoch == epoch).collect();
        if epoch < current {
            return Err(SequenceRefusal::Fenced { current, got: epoch });
        }
        let remembered = of_epoch.iter().rev().take(PRODUCER_BATCHES_REMEMBERED);
        for batch in remembered {
            if batch.first == got && batch.last == last_sequence(got, append.span) {
                return Ok(Some(batch.base_offset));
            }
        }
        let expected = match of_epoch.last() {
            Some(batch) if batch.last == i32::MAX => 0,
            Some(batch) => batch.last + 1,
            None => 0,
        };
        if got == expected { Ok(None) } else { Err(SequenceRefusal::OutOfOrder { expected, got }) }
    }

    fn append(&mut self, append: &Append, now_ms: i64) -> AppendOutcome {
        let sequence = if append.producer_id < 0 { Ok(None) } else { self.sequence(append) };
        match sequence {
            Ok(Some(base_offset)) => return AppendOutcome::Duplicate { base_offset },
            _ if append.base_offset != self.end => {
                return AppendOutcome::NotSequenced { expected: self.end };
            }
            Err(refusal) => return AppendOutcome::Producer(refusal),
            Ok(None) => {}
        }
        if append.producer_id >= 0 {
            self.producers.entry(append.producer_id).or_default().push(Batch {
                epoch: append.producer_epoch,
                first: append.base_sequence,
                last: last_sequence(append.base_sequence, append.span),
                span: append.span,
                base_offset: append.base_offset,
                at_ms: now_ms,
            });
        }
        if self.epochs.iter().all(|(epoch, _)| *epoch < append.leader_epoch) {
            self.epochs.push((append.leader_epoch, append.base_offset));
        }
        self.end += u64::from(append.span);
        AppendOutcome::Taken { base_offset: append.base_offset }
    }

    /// An epoch ends at the start of the next later one, even if records were deleted.
    fn epoch_end(&self, epoch: i32) -> Option<Offset> {
        match self.epochs.iter().find(|(known, _)| *known > epoch) {
            Some((_, start)) => Some((*start).max(self.start)),
            None if self.epochs.last()?.0 == epoch => Some(self.end),
            None => None,
        }
    }
}

/// Counted one by one, as in a client.
fn last_sequence(first: i32, span: u32) -> i32 {
    let mut last = first;
    for _ in 1..span {
        last = if last == i32::MAX { 0 } else { last + 1 };
    }
    last
}

impl Model {
    /// The append of a step, given all that happened before it.
    pub(crate) fn resolve(&self, step: &Step) -> Option<Append> {
        let Step::Append { partition, gap, span, leader_epoch, producer } = step else {
            return None;
        };
        let none = ModelPartition::default();
        let found = self.partitions.get(partition).unwrap_or(&none);
        let mut append = Append {
            partition: *partition,
            base_offset: found.end.saturating_add_signed(*gap),
            span: *span,
            leader_epoch: *leader_epoch,
            max_timestamp: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            kind: BatchKind::Plain,
        };
        if let Some(producer) = producer {
            append.producer_id = producer.id;
            let batches = found.producers.get(&producer.id).map_or(&[][..], Vec::as_slice);
            let again = |back: usize| batches.iter().rev().nth(back);
            let epoch = again(0).map_or(1, |batch| batch.epoch);
            append.producer_epoch = epoch.saturating_add(producer.epoch_change);
            append.base_sequence = match producer.sequence {
                Sequence::Next => again(0).map_or(0, |batch| last_sequence(batch.last, 2)),
                Sequence::Again(back) => again(back).map_or(0, |batch| batch.first),
                Sequence::Zero => 0,
                Sequence::Any(sequence) => sequence,
                Sequence::Last => i32::MAX - 1,
            };
            if let (Sequence::Again(back), true) = (&producer.sequence, producer.id % 2 == 0) {
                append.span = again(*back).map_or(append.span, |batch| batch.span);
            }
        }
        Some(append)
    }

    pub(crate) fn append(&mut self, append: &Append, now_ms: i64) -> AppendOutcome {
        match self.partitions.get_mut(&append.partition) {
            Some(partition) => partition.append(append, now_ms),
            None => AppendOutcome::UnknownPartition,
        }
    }

    /// Follows a command by its outcome: other tests check whether it may succeed.
    pub(crate) fn command(
        &mut self,
        command: &Command,
        outcome: &Result<Outcome, Refusal>,
        now_ms: i64,
    ) {
        let Ok(outcome) = outcome else { return };
        match (command, outcome) {
            (Command::CreateTopics { topics }, Outcome::Topics(made)) => {
                for (new, made) in topics.iter().zip(made) {
                    let Ok(topic) = made else { continue };
                    self.grow(*topic, new.partitions);
                }
            }
            (Command::CreatePartitions { topic, total }, _) => self.grow(*topic, *total),
            (Command::DeleteTopic { topic }, _) => {
                self.partitions.retain(|partition, _| partition.topic != *topic);
                self.commits.retain(|(_, partition), _| partition.topic != *topic);
            }
            (Command::AdvanceStart { starts }, Outcome::Starts(answers)) => {
                for ((partition, offset), answer) in starts.iter().zip(answers) {
                    let Some(found) = self.partitions.get_mut(partition) else { continue };
                    assert_eq!(answer.is_ok(), *offset <= found.end);
                    if let Ok(start) = answer {
                        found.start = found.start.max(*offset);
                        assert_eq!(*start, found.start);
                    }
                }
            }
            (Command::Compacted { partition, up_to }, _) => {
                let found = self.partitions.get_mut(partition).expect("it was carried out");
                found.compacted_to = found.compacted_to.max((*up_to).min(found.end));
            }
            (Command::CommitOffsets { group, offsets }, Outcome::Committed { .. }) => {
                for commit in offsets {
                    if self.partitions.contains_key(&commit.partition) {
                        let value = (commit.offset, now_ms, commit.expire_ms);
                        self.commits.insert((group.clone(), commit.partition), value);
                    }
                }
            }
            (Command::DeleteOffsets { group, partitions }, _) => {
                self.commits.retain(|(of, at), _| of != group || !partitions.contains(at));
            }
            (Command::DeleteGroup { group }, _) => self.commits.retain(|(of, _), _| of != group),
            (Command::ExpireOffsets { groups, before_ms }, _) => {
                self.commits.retain(|(of, _), (_, at_ms, expire_ms)| {
                    !groups.contains(of)
                        || expire_ms.map_or(*at_ms >= *before_ms, |expire_ms| now_ms < expire_ms)
                });
            }
            (Command::ExpireProducers { before_ms }, _) => {
                for partition in self.partitions.values_mut() {
                    partition.producers.retain(|_, batches| {
                        batches.last().is_some_and(|last| last.at_ms >= *before_ms)
                    });
                }
            }
            _ => {}
        }
    }

    fn grow(&mut self, topic: TopicId, total: u32) {
        for index in 0..total {
            self.partitions.entry(PartitionId::new(topic, index)).or_default();
        }
    }

    pub(crate) fn agrees_with(&self, state: &State) {
        assert_eq!(state.catalog.partition_count(), self.partitions.len() as u64);
        for (id, expected) in &self.partitions {
            let found = state.rows.partition(*id).expect("the model has it");
            assert_eq!((found.log_start(), found.next_offset()), (expected.start, expected.end));
            if expected.end > 0 {
                assert_eq!(found.compacted_to(), expected.compacted_to);
            }
            for epoch in 0..6 {
                let end = found.epoch_end(epoch).map(|(_, end)| end);
                assert_eq!(end, expected.epoch_end(epoch), "{id} epoch {epoch}");
            }
            let known: Vec<_> = found.producers().iter().map(|(id, _)| *id).collect();
            assert_eq!(known, expected.producers.keys().copied().collect::<Vec<_>>());
        }
        let commits = state.rows.groups().flat_map(|(name, group)| {
            let of_group = group.offsets.iter();
            of_group.map(move |(id, committed)| ((name.to_owned(), *id), committed.offset))
        });
        let expected = self.commits.iter().map(|(key, (offset, ..))| (key.clone(), *offset));
        assert_eq!(commits.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
