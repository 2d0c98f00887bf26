//! Random histories, beside a plain model that keeps everything it ever saw.
//!
//! * every append and every position is what the model says: offsets are dense, a start never goes
//!   back, sequences follow Kafka's rules
//! * whoever replays a history, whole or from a snapshot taken anywhere in it, has the same state,
//!   byte for byte, and gives the same answers

mod common;

use std::collections::BTreeMap;

use base::limits::PRODUCER_BATCHES_REMEMBERED;
use base::{Offset, PartitionId, TopicId};
use machine::{
    Append, AppendOutcome, Applied, Command, CommitOffset, Entry, NewTopic, Outcome, Refusal,
    SequenceRefusal, State, decode_head, encode_head,
};
use proptest::prelude::*;
use uuid::Uuid;

const TOPICS: u32 = 4;
const PARTITIONS: u32 = 3;

/// What a random history consists of. Numbers are small, so that they meet each other.
#[derive(Clone, Debug)]
enum Step {
    Append {
        partition: PartitionId,
        /// Added to the partition's end: mostly 0.
        gap: i64,
        span: u32,
        leader_epoch: i32,
        producer: Option<Producer>,
    },
    Command(Command),
    /// Deletes all that the partition has.
    DeleteRecords(PartitionId),
    Wait {
        ms: i64,
    },
}

#[derive(Clone, Debug)]
struct Producer {
    id: i64,
    /// Added to the epoch that the partition knows: mostly 0.
    epoch_change: i16,
    sequence: Sequence,
}

#[derive(Clone, Debug)]
enum Sequence {
    /// The one that the model expects, and so on from wherever the producer is.
    Next,
    /// That many of the producer's batches back.
    Again(usize),
    Zero,
    Any(i32),
    /// Just before the sequences wrap.
    Last,
}

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
struct ModelPartition {
    start: Offset,
    end: Offset,
    compacted_to: Offset,
    epochs: Vec<(i32, Offset)>,
    /// Every batch that was ever taken from a producer that is not forgotten.
    producers: BTreeMap<i64, Vec<Batch>>,
}

#[derive(Default)]
struct Model {
    partitions: BTreeMap<PartitionId, ModelPartition>,
    /// Offset, time of the commit, own expiry.
    commits: BTreeMap<(String, PartitionId), (Offset, i64, Option<i64>)>,
}

impl ModelPartition {
    /// Kafka's rules, told from the whole history.
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

    /// Where an epoch ends is where the first later one begins, however much was deleted.
    fn epoch_end(&self, epoch: i32) -> Option<Offset> {
        match self.epochs.iter().find(|(known, _)| *known > epoch) {
            Some((_, start)) => Some((*start).max(self.start)),
            None if self.epochs.last()?.0 == epoch => Some(self.end),
            None => None,
        }
    }
}

/// Counted one by one, as a client does.
fn last_sequence(first: i32, span: u32) -> i32 {
    let mut last = first;
    for _ in 1..span {
        last = if last == i32::MAX { 0 } else { last + 1 };
    }
    last
}

impl Model {
    /// The append that a step means, given all that happened before it.
    fn resolve(&self, step: &Step) -> Option<Append> {
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

    fn append(&mut self, append: &Append, now_ms: i64) -> AppendOutcome {
        match self.partitions.get_mut(&append.partition) {
            Some(partition) => partition.append(append, now_ms),
            None => AppendOutcome::UnknownPartition,
        }
    }

    /// Follows a command by its outcome: whether it may succeed is what the other tests look at.
    fn command(&mut self, command: &Command, outcome: &Result<Outcome, Refusal>, now_ms: i64) {
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

    fn agrees_with(&self, state: &State) {
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

/// An entry as the log has it.
struct Logged {
    head: bytes::Bytes,
    appends: Vec<Append>,
    applied: Applied,
}

fn replay(state: &mut State, log: &[Logged]) {
    let mut applied = Applied::new();
    for logged in log {
        let head = decode_head(&logged.head).expect("it was encoded by us");
        let (now_ms, commands) = (head.now_ms, &head.commands);
        let entry = Entry { now_ms, appends: &logged.appends, commands, ..Entry::default() };
        state.apply(&entry, &mut applied);
        assert_eq!(applied, logged.applied);
    }
}

/// Applies the steps, an entry for each group of them, to a state and to the model beside it.
fn run(groups: &[Vec<Step>]) -> (State, Vec<Logged>) {
    let (mut state, mut model, mut log) = (State::new(), Model::default(), Vec::new());
    let mut now_ms = 1_000;
    for steps in groups {
        let (mut appends, mut commands, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Wait { ms } => now_ms += ms,
                Step::Command(command) => commands.push(command.clone()),
                Step::DeleteRecords(partition) => {
                    let end = model.partitions.get(partition).map_or(0, |found| found.end);
                    commands.push(Command::AdvanceStart { starts: vec![(*partition, end)] });
                }
                Step::Append { .. } => {}
            }
        }
        for append in steps.iter().filter_map(|step| model.resolve(step)).collect::<Vec<_>>() {
            expected.push(model.append(&append, now_ms));
            appends.push(append);
        }
        let starts_before: Vec<_> = starts(&state);
        let mut applied = Applied::new();
        state.apply(
            &Entry { now_ms, appends: &appends, commands: &commands, ..Entry::default() },
            &mut applied,
        );
        assert_eq!(applied.appends, expected);
        assert_eq!(applied.commands.len(), commands.len());
        for (command, outcome) in commands.iter().zip(&applied.commands) {
            model.command(command, outcome, now_ms);
        }
        model.agrees_with(&state);
        for (id, before) in starts_before {
            if let Some(partition) = state.rows.partition(id) {
                assert!(partition.log_start() >= before, "the start of {id} went back");
            }
        }
        log.push(Logged { head: encode_head(now_ms, &commands, &[]), appends, applied });
    }
    (state, log)
}

fn starts(state: &State) -> Vec<(PartitionId, Offset)> {
    let ids = state.catalog.topics().flat_map(|topic| topic.partition_ids());
    ids.filter_map(|id| Some((id, state.rows.partition(id)?.log_start()))).collect()
}

fn partition() -> impl Strategy<Value = PartitionId> {
    (0..TOPICS, 0..PARTITIONS).prop_map(|(topic, index)| PartitionId::new(TopicId(topic), index))
}

/// Mostly the same one, so that it sees long histories.
fn written_partition() -> impl Strategy<Value = PartitionId> {
    prop_oneof![2 => Just(PartitionId::new(TopicId(0), 0)), 1 => partition()]
}

fn producer() -> impl Strategy<Value = Producer> {
    let sequence = prop_oneof![
        8 => Just(Sequence::Next),
        3 => (0..7_usize).prop_map(Sequence::Again),
        1 => Just(Sequence::Zero),
        1 => (0..20_i32).prop_map(Sequence::Any),
        1 => Just(Sequence::Last),
    ];
    let producer = prop_oneof![
        18 => (Just(0), sequence),
        1 => (-1..2_i16, Just(Sequence::Zero)),
        1 => (-1..2_i16, Just(Sequence::Next)),
    ];
    (0..3_i64, producer).prop_map(|(id, (epoch_change, sequence))| Producer {
        id,
        epoch_change,
        sequence,
    })
}

fn append() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![9 => Just(0_i64), 1 => -2..3_i64];
    (written_partition(), gap, 1..4_u32, 0..5_i32, proptest::option::weighted(0.7, producer()))
        .prop_map(|(partition, gap, span, leader_epoch, producer)| Step::Append {
            partition,
            gap,
            span,
            leader_epoch,
            producer,
        })
}

fn group() -> impl Strategy<Value = String> {
    prop_oneof![Just("g".to_owned()), Just("h".to_owned()), Just(String::new())]
}

fn config() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = prop_oneof![
        4 => Just("retention.ms"),
        2 => Just("log.retention.ms"),
        2 => Just("consumer.session.timeout.ms"),
        1 => Just("nonsense"),
    ];
    proptest::collection::btree_map(
        names.prop_map(str::to_owned),
        (0..9_u32).prop_map(|n| n.to_string()),
        0..2,
    )
}

fn catalog_command() -> impl Strategy<Value = Command> {
    let topic = || (0..TOPICS).prop_map(TopicId);
    let new = (0..5_u32, any::<u128>(), 0..=PARTITIONS, config()).prop_map(
        |(name, uuid, partitions, config)| NewTopic {
            name: ["a", "b.c", "b_c", "d", "no name"][name as usize].to_owned(),
            uuid: Uuid::from_u128(uuid),
            partitions,
            config,
        },
    );
    prop_oneof![
        6 => proptest::collection::vec(new, 1..3)
            .prop_map(|topics| Command::CreateTopics { topics }),
        1 => topic().prop_map(|topic| Command::DeleteTopic { topic }),
        2 => (topic(), 0..=PARTITIONS)
            .prop_map(|(topic, total)| Command::CreatePartitions { topic, total }),
        1 => (topic(), config())
            .prop_map(|(topic, config)| Command::SetTopicConfig { topic, config }),
        1 => config().prop_map(|config| Command::SetNodeConfig { config }),
        1 => (group(), config())
            .prop_map(|(group, config)| Command::SetGroupConfig { group, config }),
        1 => Just(Command::AllocateProducerId),
    ]
}

fn progress_command() -> impl Strategy<Value = Command> {
    let commit = (partition(), 0..50_u64, proptest::option::of(900..1_500_i64)).prop_map(
        |(partition, offset, expire_ms)| CommitOffset {
            partition,
            offset,
            leader_epoch: -1,
            metadata: "m".repeat(offset as usize % 3),
            expire_ms,
        },
    );
    let starts = proptest::collection::vec((partition(), 0..20_u64), 0..3);
    let partitions = || proptest::collection::vec(partition(), 0..3);
    prop_oneof![
        2 => starts.prop_map(|starts| Command::AdvanceStart { starts }),
        1 => (partition(), 0..20_u64)
            .prop_map(|(partition, up_to)| Command::Compacted { partition, up_to }),
        3 => (group(), proptest::collection::vec(commit, 0..3))
            .prop_map(|(group, offsets)| Command::CommitOffsets { group, offsets }),
        1 => (group(), partitions())
            .prop_map(|(group, partitions)| Command::DeleteOffsets { group, partitions }),
        1 => group().prop_map(|group| Command::DeleteGroup { group }),
        1 => (proptest::collection::vec(group(), 0..3), 900..1_500_i64)
            .prop_map(|(groups, before_ms)| Command::ExpireOffsets { groups, before_ms }),
        1 => (900..1_500_i64).prop_map(|before_ms| Command::ExpireProducers { before_ms }),
    ]
}

fn history() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        10 => append(),
        1 => catalog_command().prop_map(Step::Command),
        3 => progress_command().prop_map(Step::Command),
        1 => written_partition().prop_map(Step::DeleteRecords),
        1 => (0..50_i64).prop_map(|ms| Step::Wait { ms }),
    ];
    // Something to write to, so that a history is not mostly refusals.
    let first = NewTopic {
        name: "first".to_owned(),
        uuid: Uuid::from_u128(1),
        partitions: PARTITIONS,
        config: BTreeMap::new(),
    };
    let first = Step::Command(Command::CreateTopics { topics: vec![first] });
    proptest::collection::vec(proptest::collection::vec(step, 0..8), 1..40).prop_map(
        move |mut groups| {
            groups.insert(0, vec![first.clone()]);
            groups
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::histories(), ..ProptestConfig::default() })]

    #[test]
    fn a_history_agrees_with_the_model_and_replays_alike(
        groups in history(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (state, log) = run(&groups);
        let bytes = state.encode();

        let mut replayed = State::new();
        replay(&mut replayed, &log);
        prop_assert_eq!(&replayed.encode(), &bytes);

        let (before, after) = log.split_at(cut.index(log.len() + 1));
        let mut restored = State::new();
        replay(&mut restored, before);
        let snapshot = restored.encode();
        // What is captured stays as it was, whatever the state goes through.
        let image = restored.capture();
        replay(&mut restored, after);
        prop_assert_eq!(&restored.encode(), &bytes);
        prop_assert_eq!(&image.encode(), &snapshot);
        drop(image);
        let mut restored = State::decode(&snapshot).expect("it was encoded by us");
        prop_assert_eq!(&restored.encode(), &snapshot);
        replay(&mut restored, after);
        prop_assert_eq!(&restored.encode(), &bytes);
        prop_assert_eq!(restored, state);
    }
}
