//! A catalog and shards with rows, each with a log of its own, compared with one state that has
//! everything: they must never differ in stored, settled and deleted records.

mod common;
#[path = "common/lease_steps.rs"]
mod lease_steps;

use std::collections::{BTreeMap, BTreeSet};

use base::{LeaseGroupId, PartitionId, ShardId, TopicId};
use machine::command::Home;
use machine::limits::REMOVALS_REMEMBERED;
use machine::{
    Append, AppendOutcome, Command, Entry, EntryEffects, NewTopic, Outcome, Refusal, Role, State,
    Unit,
};
use proptest::prelude::*;
use uuid::Uuid;

use lease_steps::{Step, append, history};

fn apply(state: &mut State, appends: &[Append], commands: &[Command]) -> EntryEffects {
    let mut applied = EntryEffects::new();
    let entry = Entry { now_ms: 1, appends, commands, ..Entry::default() };
    state.apply(&entry, &mut applied);
    applied
}

/// Deleted records and changed groups in one step of all shards.
#[derive(Debug, Default)]
struct Effects {
    /// Every record that the journal dropped.
    deleted: BTreeSet<(PartitionId, u64)>,
    moved: BTreeSet<(LeaseGroupId, u32)>,
}

impl Effects {
    fn add(&mut self, applied: &EntryEffects) {
        let trimmed = applied.trimmed.iter().map(|&(id, start)| (id, 0, start));
        for (id, from, to) in trimmed.chain(applied.punched.iter().copied()) {
            self.deleted.extend((from..to).map(|offset| (id, offset)));
        }
        self.moved.extend(&applied.moved);
    }
}

struct Shards {
    catalog: State,
    rows: Vec<State>,
}

impl Shards {
    fn new(count: u32) -> Self {
        let mut catalog = State::of(Role::Catalog);
        let made = apply(&mut catalog, &[], &[Command::SetShards { count }]);
        assert_eq!(made.commands, [Ok(Outcome::Done)]);
        let rows = (1..=count).map(|shard| State::of(Role::Rows(ShardId(shard))));
        Self { catalog, rows: rows.collect() }
    }

    fn shard_of(&mut self, partition: PartitionId) -> Option<&mut State> {
        let topic = self.catalog.catalog.topic(partition.topic)?;
        let shard = topic.placement.shard_of(partition.index);
        self.rows.get_mut((shard.0 - 1) as usize)
    }

    fn topic_of(&self, group: LeaseGroupId) -> TopicId {
        self.catalog.catalog.lease_group(group).map_or(TopicId(u32::MAX), |group| group.topic)
    }

    fn adopt(&mut self, changes_max: usize, effects: &mut Effects) {
        let catalog = &self.catalog.catalog;
        for state in &mut self.rows {
            let shard = state.role().shard();
            while let Some(adoption) = catalog.adoption(shard, state.rows.adopted(), changes_max) {
                let adoption = state.rows.without_unknown(adoption);
                let applied = apply(state, &[], &[Command::Adopt(adoption)]);
                assert_eq!(applied.commands, [Ok(Outcome::Done)]);
                effects.add(&applied);
            }
        }
    }

    fn command(&mut self, command: &Command, effects: &mut Effects) -> Result<Outcome, Refusal> {
        if command.home() == Home::Catalog {
            let mut applied = apply(&mut self.catalog, &[], std::slice::from_ref(command));
            effects.add(&applied);
            self.adopt(usize::MAX, effects);
            return applied.commands.remove(0);
        }
        let parts: Vec<(PartitionId, Command)> = match command {
            Command::AdvanceStart { starts } => {
                let one = |&start: &(PartitionId, u64)| {
                    (start.0, Command::AdvanceStart { starts: vec![start] })
                };
                starts.iter().map(one).collect()
            }
            Command::SeekLeaseGroup { group, starts } => {
                let topic = self.topic_of(*group);
                let id = |index| PartitionId::new(topic, index);
                let mut of_shards: BTreeMap<Option<ShardId>, Vec<(u32, u64)>> = BTreeMap::new();
                for &(index, offset) in starts {
                    let shard = self.shard_of(id(index)).map(|state| state.role().shard());
                    of_shards.entry(shard).or_default().push((index, offset));
                }
                let seek = |starts: Vec<(u32, u64)>| {
                    let first = id(starts[0].0);
                    (first, Command::SeekLeaseGroup { group: *group, starts })
                };
                of_shards.into_values().map(seek).collect()
            }
            Command::Settle { settles } => {
                let one = |settle: &machine::GroupSettle| {
                    let partition = PartitionId::new(self.topic_of(settle.group), settle.partition);
                    (partition, Command::Settle { settles: vec![settle.clone()] })
                };
                settles.iter().map(one).collect()
            }
            _ => panic!("no step is {command:?}"),
        };
        for (partition, command) in parts {
            if let Some(state) = self.shard_of(partition) {
                effects.add(&apply(state, &[], &[command]));
            }
        }
        Ok(Outcome::Done)
    }

    fn agree_with(&self, whole: &State) {
        let catalog = &self.catalog.catalog;
        let definitions = |catalog: &machine::Catalog| -> Vec<_> {
            let said = |topic: &machine::Topic| {
                (topic.id, topic.name.clone(), topic.partition_count(), topic.overrides.clone())
            };
            catalog.topics().map(said).collect()
        };
        assert_eq!(definitions(catalog), definitions(&whole.catalog));
        let mut rows = 0;
        for topic in catalog.topics() {
            for id in topic.partition_ids() {
                let shard = topic.placement.shard_of(id.index);
                let found = &self.rows[(shard.0 - 1) as usize].rows;
                assert_eq!(found.partition(id), whole.rows.partition(id), "{id}");
                for group in catalog.lease_groups_of(topic.id) {
                    let progress = found.progress(group.id, id.index);
                    let expected = whole.rows.progress(group.id, id.index);
                    assert_eq!(progress, expected, "{} {id}", group.id);
                    assert!(progress.is_some());
                }
                rows += 1;
            }
        }
        let held = self.rows.iter().flat_map(|state| state.rows.topics());
        assert_eq!(held.map(|topic| topic.row_count()).sum::<usize>(), rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::histories(), ..ProptestConfig::default() })]

    #[test]
    fn shards_together_equal_one_whole_state(history in history(), count in 1..4_u32) {
        let (mut whole, mut shards) = (State::new(), Shards::new(count));
        let (mut expected, mut found) = (Effects::default(), Effects::default());
        for step in history.into_iter().flatten() {
            match step {
                Step::Append { partition, span } => {
                    let end = whole.rows.partition(partition).map_or(0, |row| row.next_offset());
                    let append = append(partition, end, span);
                    let outcome = apply(&mut whole, &[append], &[]).appends;
                    if let Some(state) = shards.shard_of(partition) {
                        let applied = apply(state, &[append], &[]);
                        prop_assert_eq!(outcome, applied.appends);
                    }
                }
                Step::Command(command) => {
                    let mut applied = apply(&mut whole, &[], std::slice::from_ref(&command));
                    expected.add(&applied);
                    let outcome = applied.commands.remove(0);
                    // The leader checks refusals of the rows before it queries the catalog.
                    if let Err(Refusal::OffsetOutOfRange { .. } | Refusal::UnknownPartition { .. }) = outcome {
                        continue;
                    }
                    let of_catalog = command.home() == Home::Catalog;
                    let answer = shards.command(&command, &mut found);
                    if of_catalog {
                        prop_assert_eq!(outcome, answer);
                    }
                }
            }
            prop_assert_eq!(&expected.deleted, &found.deleted);
            prop_assert!(expected.moved.is_subset(&found.moved));
            expected.moved.clear();
            found.moved.clear();
            shards.agree_with(&whole);
        }
        for state in shards.rows.iter().chain([&shards.catalog]) {
            let bytes = state.encode();
            let again = State::decode(&bytes).expect("it was encoded by us");
            prop_assert_eq!(&again, state);
            prop_assert_eq!(again.encode(), bytes);
        }
    }

    #[test]
    fn lagging_shard_ends_in_the_same_state(
        history in history(),
        lags in prop::collection::vec(0..6_usize, 1..20),
    ) {
        let (mut prompt, mut lagging) = (Shards::new(2), Shards::new(2));
        let mut lags = lags.into_iter().cycle();
        let mut effects = Effects::default();
        for step in history.into_iter().flatten() {
            let Step::Command(command) = step else { continue };
            if command.home() != Home::Catalog {
                continue;
            }
            let _ = prompt.command(&command, &mut effects);
            apply(&mut lagging.catalog, &[], &[command]);
            match lags.next() {
                Some(0) | None => {}
                Some(changes_max) => lagging.adopt(changes_max, &mut effects),
            }
        }
        lagging.adopt(1, &mut effects);
        prop_assert_eq!(&lagging.catalog, &prompt.catalog);
        prop_assert_eq!(lagging.rows, prompt.rows);
    }

    #[test]
    fn split_of_a_whole_state_equals_separate_shards(history in history()) {
        let (mut whole, mut shards) = (State::new(), Shards::new(1));
        let mut effects = Effects::default();
        for step in history.into_iter().flatten() {
            let Step::Command(command) = step else { continue };
            let applied = apply(&mut whole, &[], std::slice::from_ref(&command));
            if applied.commands[0].is_ok() {
                let _ = shards.command(&command, &mut effects);
            }
        }
        let (catalog, rows) = whole.clone().split();
        let split = Shards { catalog, rows: vec![rows] };
        split.agree_with(&whole);
        prop_assert!(split.catalog.catalog.adoption(ShardId(1), split.rows[0].rows.adopted(), 9).is_none());
        let adopted = |shards: &Shards| {
            let state = &shards.rows[0];
            state.rows.topics().map(|topic| topic.partition_ids().collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        prop_assert_eq!(adopted(&split), adopted(&shards));
    }
}

fn topic(name: &str, partitions: u32) -> NewTopic {
    let number = name.bytes().fold(1_u128, |number, byte| (number << 7) + u128::from(byte));
    let uuid = Uuid::from_u128(number);
    NewTopic { name: name.to_owned(), uuid, partitions, config: BTreeMap::new() }
}

#[test]
fn shard_that_missed_too_many_removals_adopts_everything() {
    let mut shards = Shards::new(1);
    let mut effects = Effects::default();
    let names: Vec<String> = (0..REMOVALS_REMEMBERED + 10).map(|at| format!("t{at}")).collect();
    let topics = names.iter().map(|name| topic(name, 1)).collect();
    shards.command(&Command::CreateTopics { topics }, &mut effects).unwrap();
    let deletes: Vec<Command> =
        (0..names.len() as u32 - 3).map(|id| Command::DeleteTopic { topic: TopicId(id) }).collect();
    apply(&mut shards.catalog, &[], &deletes);
    let adoption = shards.catalog.catalog.adoption(ShardId(1), shards.rows[0].rows.adopted(), 100);
    assert!(adoption.is_some_and(|adoption| adoption.all));
    shards.adopt(100, &mut effects);
    assert_eq!(shards.rows[0].rows.topics().count(), 3);
}

#[test]
fn adoption_from_another_version_is_refused() {
    let mut shards = Shards::new(1);
    apply(&mut shards.catalog, &[], &[Command::CreateTopics { topics: vec![topic("a", 1)] }]);
    let adoption = shards.catalog.catalog.adoption(ShardId(1), 0, 10).expect("a topic is new");
    let adopt = Command::Adopt(adoption);
    let applied = apply(&mut shards.rows[0], &[], &[adopt.clone(), adopt]);
    let again = Refusal::AdoptionConflict { version: 1, expected: 0 };
    assert_eq!(applied.commands, [Ok(Outcome::Done), Err(again)]);
}

#[test]
fn a_command_for_another_log_is_refused() {
    let mut shards = Shards::new(1);
    let for_catalog = Command::AllocateProducerId;
    let for_rows = Command::ExpireProducers { before_ms: 0 };
    let refused = |shard| [Err(Refusal::NotHere { shard })];
    assert_eq!(apply(&mut shards.catalog, &[], &[for_rows]).commands, refused(ShardId::CATALOG));
    assert_eq!(apply(&mut shards.rows[0], &[], &[for_catalog]).commands, refused(ShardId(1)));
    let whole = apply(&mut State::new(), &[], &[Command::SetShards { count: 2 }]);
    assert_eq!(whole.commands, refused(ShardId::CATALOG));
}

#[test]
fn a_unit_with_a_command_for_another_log_changes_nothing() {
    let mut shards = Shards::new(1);
    let create = Command::CreateTopics { topics: vec![topic("a", 1)] };
    shards.command(&create, &mut Effects::default()).unwrap();
    let partition = PartitionId::new(TopicId(0), 0);
    let put = Command::PutDocument {
        space: "s".to_owned(),
        name: "d".to_owned(),
        body: vec![1],
        expect: None,
    };
    let (appends, commands) = ([append(partition, 0, 1)], [put]);
    let units = [Unit { first_append: 0, appends: 1, commands: 1, origin: None, brought: None }];
    let mut applied = EntryEffects::new();
    let entry = Entry {
        now_ms: 1,
        leader_epoch: None,
        appends: &appends,
        commands: &commands,
        units: &units,
    };
    let state = &mut shards.rows[0];
    state.apply(&entry, &mut applied);
    assert_eq!(applied.appends, [AppendOutcome::UnitRefused]);
    assert_eq!(applied.commands, [Err(Refusal::NotHere { shard: ShardId(1) })]);
    assert_eq!(state.rows.partition(partition).unwrap().next_offset(), 0);
}

#[test]
fn a_topic_that_grows_into_a_shard_brings_its_lease_groups() {
    let mut shards = Shards::new(3);
    let mut effects = Effects::default();
    let create = Command::CreateTopics { topics: vec![topic("a", 1)] };
    let group = Command::CreateLeaseGroup {
        topic: TopicId(0),
        name: "main".to_owned(),
        starts: Vec::new(),
        config: BTreeMap::new(),
    };
    let grow = Command::CreatePartitions { topic: TopicId(0), total: 3 };
    let has = |shards: &Shards| -> Vec<bool> {
        shards.rows.iter().map(|it| it.rows.lease_group(LeaseGroupId(0)).is_some()).collect()
    };
    for command in [create, group] {
        shards.command(&command, &mut effects).unwrap();
    }
    assert_eq!(has(&shards), [true, false, false]);
    shards.command(&grow, &mut effects).unwrap();
    assert_eq!(has(&shards), [true, true, true]);
}
