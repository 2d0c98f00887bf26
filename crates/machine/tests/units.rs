//! Units: atomic parts of an entry, compared with an oracle that applies the parts of a unit one by
//! one to a copy of the state, and discards the copy if one is refused.
//!
//! Topics are deleted, grown and trimmed in between, documents and lease groups change, and the
//! history is replayed from its start and from a snapshot anywhere in it, as after a crash.

mod common;

use std::collections::BTreeMap;

use base::{LeaseGroupId, PartitionId, TopicId};
use machine::{
    Append, AppendOutcome, BatchKind, Command, Entry, EntryEffects, GroupSettle, NewTopic, Refusal,
    State, Unit, decode_head, encode_head,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use uuid::Uuid;

const TOPICS: u32 = 4;
const PARTITIONS: u32 = 2;
const EPOCH: i32 = 3;

/// An append of a history: its offset depends on earlier steps.
#[derive(Clone, Debug)]
struct Batch {
    partition: PartitionId,
    /// Added to the expected end: mostly 0.
    gap: u64,
    span: u32,
    /// Sequenced by a leader of another term: mostly not.
    stale: bool,
    producer: Option<(i64, i32)>,
}

#[derive(Clone, Debug)]
enum Step {
    Append(Batch),
    Command(Command),
    Unit { batches: Vec<Batch>, commands: Vec<Command> },
}

/// A resolved step of an entry.
enum EntryStep {
    Append(Append),
    Unit(Vec<Append>, Vec<Command>),
}

struct LoggedEntry {
    head: bytes::Bytes,
    appends: Vec<Append>,
    applied: EntryEffects,
}

/// The leader's view: the ends of partitions once its whole entry is applied.
struct LeaderView<'a> {
    state: &'a State,
    ahead: BTreeMap<PartitionId, u64>,
}

impl LeaderView<'_> {
    fn place(&mut self, batch: &Batch) -> Append {
        let known =
            self.state.rows.partition(batch.partition).map_or(0, |found| found.next_offset());
        let end = self.ahead.entry(batch.partition).or_insert(known);
        let base_offset = *end + batch.gap;
        *end = base_offset + u64::from(batch.span);
        let (producer_id, base_sequence) = batch.producer.unwrap_or((-1, -1));
        Append {
            partition: batch.partition,
            base_offset,
            span: batch.span,
            leader_epoch: if batch.stale { EPOCH - 1 } else { EPOCH },
            max_timestamp: 0,
            producer_id,
            producer_epoch: if producer_id < 0 { -1 } else { 0 },
            base_sequence,
            kind: BatchKind::Plain,
        }
    }
}

/// Applies one thing alone, as in an entry of its own.
fn alone(state: &mut State, now_ms: i64, appends: &[Append], commands: &[Command]) -> EntryEffects {
    let mut applied = EntryEffects::new();
    let leader_epoch = Some(EPOCH);
    state.apply(&Entry { now_ms, leader_epoch, appends, commands, units: &[] }, &mut applied);
    applied
}

/// The state after a unit, or `None` if it was refused.
fn oracle(state: &State, now_ms: i64, appends: &[Append], commands: &[Command]) -> Option<State> {
    let documents = commands.iter().filter(|it| !matches!(it, Command::Settle { .. }));
    if documents.count() > 1 {
        return None;
    }
    let mut copy = state.clone();
    for (at, append) in appends.iter().enumerate() {
        let same = |other: &Append| {
            append.has_producer()
                && (other.partition, other.producer_id) == (append.partition, append.producer_id)
        };
        let applied = alone(&mut copy, now_ms, &[*append], &[]);
        if !matches!(applied.appends[..], [AppendOutcome::Taken { .. }])
            || appends[..at].iter().any(same)
        {
            return None;
        }
    }
    for command in commands {
        let allowed = matches!(
            command,
            Command::Settle { .. } | Command::PutDocument { .. } | Command::DeleteDocument { .. }
        );
        if !allowed
            || alone(&mut copy, now_ms, &[], std::slice::from_ref(command)).commands[0].is_err()
        {
            return None;
        }
    }
    Some(copy)
}

fn replay(state: &mut State, log: &[LoggedEntry]) {
    let mut applied = EntryEffects::new();
    for logged in log {
        let head = decode_head(&logged.head).expect("it was encoded by us");
        let entry = Entry {
            now_ms: head.now_ms,
            leader_epoch: Some(EPOCH),
            appends: &logged.appends,
            commands: &head.commands,
            units: &head.units,
        };
        state.apply(&entry, &mut applied);
        assert_eq!(applied, logged.applied);
    }
}

fn run(entries: &[Vec<Step>]) -> (State, Vec<LoggedEntry>, [usize; 2]) {
    let (mut state, mut log, mut counts) = (State::new(), Vec::new(), [0; 2]);
    for (now_ms, steps) in (1..).zip(entries) {
        let mut ends = LeaderView { state: &state, ahead: BTreeMap::new() };
        let (mut parts, mut lone) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Append(batch) => parts.push(EntryStep::Append(ends.place(batch))),
                Step::Command(command) => lone.push(command.clone()),
                Step::Unit { batches, commands } => {
                    let appends = batches.iter().map(|batch| ends.place(batch)).collect();
                    parts.push(EntryStep::Unit(appends, commands.clone()));
                }
            }
        }
        let mut expected = state.clone();
        let (mut appends, mut commands, mut units) = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = Vec::new();
        for part in parts {
            match part {
                EntryStep::Append(append) => {
                    alone(&mut expected, now_ms, &[append], &[]);
                    appends.push(append);
                }
                EntryStep::Unit(bound, with) => {
                    let after = oracle(&expected, now_ms, &bound, &with);
                    taken.push(after.is_some());
                    expected = after.unwrap_or(expected);
                    units.push(Unit {
                        first_append: appends.len() as u32,
                        appends: bound.len() as u32,
                        commands: with.len() as u32,
                        origin: None,
                        brought: None,
                    });
                    appends.extend(bound);
                    commands.extend(with);
                }
            }
        }
        commands.extend(lone.iter().cloned());
        for command in &lone {
            alone(&mut expected, now_ms, &[], std::slice::from_ref(command));
        }
        // Also if the entry had nothing but a clock.
        alone(&mut expected, now_ms, &[], &[]);

        let mut applied = EntryEffects::new();
        let leader_epoch = Some(EPOCH);
        let entry =
            Entry { now_ms, leader_epoch, appends: &appends, commands: &commands, units: &units };
        state.apply(&entry, &mut applied);
        assert!(state == expected, "entry {now_ms}: {steps:?}");
        assert_eq!(
            (applied.appends.len(), applied.commands.len()),
            (appends.len(), commands.len())
        );
        assert_outcomes(&applied, &units, &taken);
        counts[0] += taken.iter().filter(|taken| **taken).count();
        counts[1] += taken.iter().filter(|taken| !**taken).count();
        log.push(LoggedEntry { head: encode_head(now_ms, &commands, &units), appends, applied });
    }
    (state, log, counts)
}

/// All parts of an accepted unit report success, and none of a refused one does.
fn assert_outcomes(applied: &EntryEffects, units: &[Unit], taken: &[bool]) {
    let mut commands = applied.commands.iter();
    for (unit, &taken) in units.iter().zip(taken) {
        let first = unit.first_append as usize;
        for outcome in &applied.appends[first..first + unit.appends as usize] {
            assert_eq!(matches!(outcome, AppendOutcome::Taken { .. }), taken, "{outcome:?}");
        }
        for outcome in commands.by_ref().take(unit.commands as usize) {
            assert_eq!(outcome.is_ok(), taken, "{outcome:?}");
        }
    }
}

fn partition() -> impl Strategy<Value = PartitionId> {
    (0..TOPICS, 0..PARTITIONS).prop_map(|(topic, index)| PartitionId::new(TopicId(topic), index))
}

fn batch() -> impl Strategy<Value = Batch> {
    let gap = prop_oneof![20 => Just(0_u64), 1 => 1..3_u64];
    let producer = prop_oneof![6 => Just(None), 1 => (0..2_i64, 0..3_i32).prop_map(Some)];
    (partition(), gap, 1..4_u32, prop::bool::weighted(0.03), producer).prop_map(
        |(partition, gap, span, stale, producer)| Batch { partition, gap, span, stale, producer },
    )
}

fn settle() -> impl Strategy<Value = Command> {
    let settle = (0..TOPICS, 0..PARTITIONS, 0..12_u64, 1..5_u32).prop_map(
        |(group, partition, offset, count)| GroupSettle {
            group: LeaseGroupId(group),
            partition,
            settled: vec![(offset, count)],
            attempts: vec![(offset + 7, 1)],
        },
    );
    prop::collection::vec(settle, 1..3).prop_map(|settles| Command::Settle { settles })
}

fn document() -> impl Strategy<Value = Command> {
    let expect = prop_oneof![Just(None), (0..6_u64).prop_map(Some)];
    ("[ab]", expect, any::<bool>()).prop_map(|(name, expect, put)| {
        let space = "space".to_owned();
        match put {
            true => Command::PutDocument { space, name, body: vec![1], expect },
            false => Command::DeleteDocument { space, name, expect },
        }
    })
}

fn topic(name: u32, uuid: u128) -> Command {
    let config = BTreeMap::from([("retention.settled".to_owned(), "true".to_owned())]);
    let (name, uuid) = (format!("topic-{name}"), Uuid::from_u128(uuid));
    Command::CreateTopics { topics: vec![NewTopic { name, uuid, partitions: PARTITIONS, config }] }
}

/// Changes that the leader may have proposed just before a unit, to things that the unit relies on.
fn change() -> impl Strategy<Value = Command> {
    prop_oneof![
        3 => (0..TOPICS).prop_map(|topic| Command::DeleteTopic { topic: TopicId(topic) }),
        1 => (0..TOPICS, 1..5_u32)
            .prop_map(|(topic, total)| Command::CreatePartitions { topic: TopicId(topic), total }),
        1 => (partition(), 0..6_u64)
            .prop_map(|(id, start)| Command::AdvanceStart { starts: vec![(id, start)] }),
        1 => (0..TOPICS).prop_map(|group| Command::DeleteLeaseGroup { group: LeaseGroupId(group) }),
        2 => settle(),
        2 => document(),
    ]
}

fn unit() -> impl Strategy<Value = Step> {
    let command = prop_oneof![8 => settle(), 3 => document(), 1 => change()];
    (prop::collection::vec(batch(), 0..4), prop::collection::vec(command, 0..3))
        .prop_map(|(batches, commands)| Step::Unit { batches, commands })
}

fn history() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        3 => batch().prop_map(Step::Append),
        4 => unit(),
        1 => change().prop_map(Step::Command),
    ];
    let entries = prop::collection::vec(prop::collection::vec(step, 0..6), 1..30);
    entries.prop_map(|mut entries| {
        let mut first = Vec::new();
        for number in 0..TOPICS {
            first.push(Step::Command(topic(number, u128::from(number) + 1)));
            first.push(Step::Command(Command::CreateLeaseGroup {
                topic: TopicId(number),
                name: "main".to_owned(),
                starts: vec![],
                config: BTreeMap::new(),
            }));
        }
        entries.insert(0, first);
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::histories(), ..ProptestConfig::default() })]

    #[test]
    fn unit_is_atomic_and_replays_to_the_same_state(
        entries in history(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (state, log, _) = run(&entries);
        let bytes = state.encode();
        let (before, after) = log.split_at(cut.index(log.len() + 1));
        let mut restored = State::new();
        replay(&mut restored, before);
        let mut restored = State::decode(&restored.encode()).expect("it was encoded by us");
        replay(&mut restored, after);
        prop_assert_eq!(restored.encode(), bytes);
        prop_assert_eq!(restored, state);
    }
}

#[test]
fn histories_cover_accepted_and_refused_units() {
    let mut runner = TestRunner::deterministic();
    let mut all = [0; 2];
    for _ in 0..100 {
        let entries = history().new_tree(&mut runner).expect("it can always be made").current();
        let (_, _, counts) = run(&entries);
        all = [all[0] + counts[0], all[1] + counts[1]];
    }
    assert!(all.iter().all(|count| *count > 300), "taken and refused: {all:?}");
}

/// One topic with a lease group, and three records.
fn queue() -> State {
    let mut state = State::new();
    let group = Command::CreateLeaseGroup {
        topic: TopicId(0),
        name: "main".to_owned(),
        starts: vec![],
        config: BTreeMap::new(),
    };
    alone(&mut state, 1, &[], &[topic(0, 1), topic(1, 2), group]);
    alone(&mut state, 1, &[at(0, 0, 3)], &[]);
    state
}

fn at(topic: u32, base_offset: u64, span: u32) -> Append {
    let partition = PartitionId::new(TopicId(topic), 0);
    let batch = Batch { partition, gap: 0, span, stale: false, producer: None };
    let state = State::new();
    Append { base_offset, ..LeaderView { state: &state, ahead: BTreeMap::new() }.place(&batch) }
}

fn settle_first() -> Command {
    let (settled, attempts) = (vec![(0, 1)], vec![]);
    let settle = GroupSettle { group: LeaseGroupId(0), partition: 0, settled, attempts };
    Command::Settle { settles: vec![settle] }
}

fn floor(state: &State) -> u64 {
    state.rows.progress(LeaseGroupId(0), 0).unwrap().floor()
}

/// The topic of the dead letters was being deleted when the dead letter was sequenced.
#[test]
fn a_dead_letter_whose_topic_is_gone_leaves_its_record_unsettled() {
    let mut state = queue();
    alone(&mut state, 2, &[], &[Command::DeleteTopic { topic: TopicId(1) }]);
    let units = [Unit { first_append: 0, appends: 1, commands: 1, origin: None, brought: None }];
    let mut applied = EntryEffects::new();
    let (appends, commands) = ([at(1, 0, 1)], [settle_first()]);
    let leader_epoch = Some(EPOCH);
    let entry =
        Entry { now_ms: 3, leader_epoch, appends: &appends, commands: &commands, units: &units };
    state.apply(&entry, &mut applied);
    assert_eq!(applied.appends, [AppendOutcome::UnknownPartition]);
    assert_eq!(applied.commands, [Err(Refusal::UnitRefused)]);
    assert_eq!(floor(&state), 0);
}

#[test]
fn rest_of_the_entry_takes_effect_despite_a_refused_unit() {
    let mut state = queue();
    let units = [Unit { first_append: 1, appends: 2, commands: 1, origin: None, brought: None }];
    // The second append of the unit is out of place.
    let appends = [at(0, 3, 1), at(0, 4, 1), at(1, 7, 1), at(0, 4, 1)];
    let commands = [settle_first(), Command::AllocateProducerId];
    let mut applied = EntryEffects::new();
    let leader_epoch = Some(EPOCH);
    let entry =
        Entry { now_ms: 3, leader_epoch, appends: &appends, commands: &commands, units: &units };
    state.apply(&entry, &mut applied);
    assert_eq!(
        applied.appends,
        [
            AppendOutcome::Taken { base_offset: 3 },
            AppendOutcome::UnitRefused,
            AppendOutcome::NotSequenced { expected: 0 },
            AppendOutcome::Taken { base_offset: 4 },
        ]
    );
    assert!(applied.commands[0].is_err() && applied.commands[1].is_ok());
    assert_eq!(floor(&state), 0);
}

#[test]
fn unit_that_binds_more_than_the_entry_has_is_refused() {
    let mut state = queue();
    let before = state.clone();
    let units = [Unit { first_append: 0, appends: 2, commands: 1, origin: None, brought: None }];
    let mut applied = EntryEffects::new();
    let (appends, commands) = ([at(0, 3, 1)], [settle_first()]);
    let leader_epoch = Some(EPOCH);
    let entry =
        Entry { now_ms: 1, leader_epoch, appends: &appends, commands: &commands, units: &units };
    state.apply(&entry, &mut applied);
    assert_eq!(applied.appends, [AppendOutcome::UnitRefused]);
    assert_eq!(state, before);
}

#[test]
fn an_append_of_another_terms_leader_is_out_of_place() {
    let mut state = queue();
    let stale = Append { leader_epoch: EPOCH - 1, ..at(0, 3, 1) };
    let applied = alone(&mut state, 2, &[stale], &[]);
    assert_eq!(applied.appends, [AppendOutcome::NotSequenced { expected: 3 }]);
}

#[test]
fn time_of_the_log_never_goes_back_even_across_a_snapshot() {
    let mut state = queue();
    alone(&mut state, 5_000, &[at(0, 3, 1)], &[]);
    alone(&mut state, 1_000, &[at(0, 4, 1)], &[]);
    let id = PartitionId::new(TopicId(0), 0);
    assert_eq!(state.rows.partition(id).unwrap().last_append_ms(), Some(5_000));
    let mut restored = State::decode(&state.encode()).unwrap();
    assert_eq!(restored.last_ms(), 5_000);
    alone(&mut restored, 2_000, &[at(0, 5, 1)], &[]);
    assert_eq!(restored.rows.partition(id).unwrap().last_append_ms(), Some(5_000));
}
