//! Random histories of lease groups and documents, compared with a model that tracks each offset.
//!
//! * settled records, attempts of unsettled ones, and existing groups agree with the model
//! * with `retention.settled` exactly those records are deleted that every group of a topic has
//!   settled, and
//!   otherwise none
//! * delivery is notified of every change that is not a settle
//! * replaying a history, whole or from a snapshot taken anywhere in it, gives the same state,
//!   byte for byte, and the same outcomes

mod common;
#[path = "common/lease_steps.rs"]
mod lease_steps;

use std::collections::{BTreeMap, BTreeSet};

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::{
    ALL_PARTITIONS, Append, Command, Entry, EntryEffects, GroupSettle, LeaseGroup, Outcome,
    Progress, Refusal, State, decode_head, encode_head,
};
use proptest::prelude::*;

use lease_steps::{Step, TOPICS, append, history};

#[derive(Clone, Debug, Default)]
struct ModelPartition {
    start: Offset,
    end: Offset,
    /// Offsets that the journal dropped, since the topic was created.
    deleted: BTreeSet<Offset>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct ModelProgress {
    /// All settled offsets, from 0 on.
    settled: BTreeSet<Offset>,
    attempts: BTreeMap<Offset, u16>,
}

#[derive(Clone, PartialEq, Debug)]
struct ModelGroup {
    topic: TopicId,
    name: String,
    config: BTreeMap<String, String>,
    paused: bool,
    progress: Vec<ModelProgress>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    partitions: BTreeMap<PartitionId, ModelPartition>,
    /// Topics that delete settled records.
    deletes_settled: BTreeSet<TopicId>,
    groups: BTreeMap<LeaseGroupId, ModelGroup>,
    documents: BTreeMap<(String, String), (u64, Vec<u8>)>,
    documents_changed: u64,
    /// Records that this entry allowed to be deleted.
    deletable: BTreeSet<(PartitionId, Offset)>,
    /// Changes of this entry that delivery must be notified of.
    moved: BTreeSet<(LeaseGroupId, u32)>,
}

impl ModelProgress {
    fn at(floor: Offset) -> Self {
        Self { settled: (0..floor).collect(), attempts: BTreeMap::new() }
    }

    fn floor(&self) -> Offset {
        (0..).find(|offset| !self.settled.contains(offset)).expect("not all are")
    }

    fn settle(&mut self, from: Offset, to: Offset) {
        self.settled.extend(from..to);
        self.attempts.retain(|offset, _| !(from..to).contains(offset));
    }

    fn agrees_with(&self, progress: &Progress, end: Offset) {
        assert_eq!(progress.floor(), self.floor());
        assert_eq!(progress.attempts().collect::<BTreeMap<_, _>>(), self.attempts);
        let mut ranges = progress.settled().collect::<Vec<_>>();
        let mut exceptions = ranges.len();
        ranges.insert(0, (0, progress.floor()));
        let offsets = ranges.iter().flat_map(|&(from, to)| from..to).collect::<BTreeSet<_>>();
        assert_eq!(offsets, self.settled);
        // Ranges are minimal: none is empty, and no two touch.
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0 && pair[1].0 < pair[1].1));
        exceptions += self.attempts.len();
        assert_eq!(progress.exceptions(), exceptions);
        for offset in 0..end + 2 {
            assert_eq!(progress.is_settled(offset), self.settled.contains(&offset));
            let attempts = self.attempts.get(&offset).copied().unwrap_or(0);
            assert_eq!(progress.attempts_of(offset), attempts);
            let next = self.settled.range(offset..).next().copied();
            assert_eq!(progress.next_settled(offset), next);
        }
    }
}

impl Model {
    fn append(&mut self, partition: PartitionId, span: u32) {
        if let Some(found) = self.partitions.get_mut(&partition) {
            found.end += u64::from(span);
        }
    }

    /// Follows a command by its outcome, except for outcomes that the model derives itself.
    fn command(&mut self, command: &Command, outcome: &Result<Outcome, Refusal>) {
        match (command, outcome) {
            (Command::CreateTopics { topics }, Ok(Outcome::Topics(made))) => {
                for (new, made) in topics.iter().zip(made) {
                    let Ok(topic) = made else { continue };
                    self.grow(*topic, new.partitions);
                    self.set_topic_config(*topic, &new.config);
                }
            }
            (Command::CreatePartitions { topic, total }, Ok(_)) => {
                self.grow(*topic, *total);
                self.all_moved(*topic);
            }
            (Command::SetTopicConfig { topic, config }, Ok(_)) => {
                self.set_topic_config(*topic, config);
                self.all_moved(*topic);
            }
            (Command::DeleteTopic { topic }, Ok(_)) => {
                self.all_moved(*topic);
                self.partitions.retain(|partition, _| partition.topic != *topic);
                self.groups.retain(|_, group| group.topic != *topic);
                self.deletes_settled.remove(topic);
            }
            (Command::AdvanceStart { starts }, Ok(Outcome::Starts(answers))) => {
                for ((partition, offset), answer) in starts.iter().zip(answers) {
                    if answer.is_ok() {
                        self.advance(*partition, *offset);
                    }
                }
            }
            (Command::CreateLeaseGroup { topic, name, starts, config }, outcome) => {
                self.create(*topic, name, starts, config, outcome);
            }
            (Command::SetLeaseGroupConfig { group, config }, outcome) => {
                assert_eq!(outcome.is_ok(), self.groups.contains_key(group));
                if let Some(found) = self.groups.get_mut(group) {
                    found.config.clone_from(config);
                    self.moved.insert((*group, ALL_PARTITIONS));
                }
            }
            (Command::DeleteLeaseGroup { group }, outcome) => {
                let known = self.groups.remove(group);
                assert_eq!(outcome.is_ok(), known.is_some());
                self.moved.extend(known.map(|_| (*group, ALL_PARTITIONS)));
            }
            (Command::PauseLeaseGroup { group, paused }, outcome) => {
                assert_eq!(outcome.is_ok(), self.groups.contains_key(group));
                if let Some(found) = self.groups.get_mut(group) {
                    found.paused = *paused;
                    self.moved.insert((*group, ALL_PARTITIONS));
                }
            }
            (Command::SeekLeaseGroup { group, starts }, outcome) => {
                self.seek(*group, starts, outcome);
            }
            (Command::Settle { settles }, outcome) => {
                assert_eq!(outcome, &Ok(Outcome::Done));
                settles.iter().for_each(|settle| self.settle(settle));
            }
            (Command::PutDocument { space, name, body, expect }, outcome) => {
                let key = (space.clone(), name.clone());
                let version = self.documents.get(&key).map_or(0, |(version, _)| *version);
                assert_eq!(outcome.is_ok(), expect.is_none_or(|expect| expect == version));
                if outcome.is_ok() {
                    self.documents_changed += 1;
                    let version = self.documents_changed;
                    assert_eq!(outcome, &Ok(Outcome::Document { version }));
                    self.documents.insert(key, (version, body.clone()));
                }
            }
            (Command::DeleteDocument { space, name, expect }, outcome) => {
                let key = (space.clone(), name.clone());
                let version = self.documents.get(&key).map_or(0, |(version, _)| *version);
                let expected = expect.is_none_or(|expect| expect == version);
                assert_eq!(outcome.is_ok(), version > 0 && expected);
                if outcome.is_ok() {
                    self.documents_changed += 1;
                    self.documents.remove(&key);
                }
            }
            _ => {}
        }
        self.note_deletable();
    }

    fn grow(&mut self, topic: TopicId, total: u32) {
        for index in 0..total {
            self.partitions.entry(PartitionId::new(topic, index)).or_default();
        }
        for group in self.groups.values_mut().filter(|group| group.topic == topic) {
            group.progress.resize(total as usize, ModelProgress::default());
        }
    }

    fn set_topic_config(&mut self, topic: TopicId, config: &BTreeMap<String, String>) {
        if config.get("retention.settled").is_some_and(|value| value == "true") {
            self.deletes_settled.insert(topic);
        } else {
            self.deletes_settled.remove(&topic);
        }
    }

    fn all_moved(&mut self, topic: TopicId) {
        let groups = self.groups.iter().filter(|(_, group)| group.topic == topic);
        self.moved.extend(groups.map(|(&id, _)| (id, ALL_PARTITIONS)));
    }

    fn advance(&mut self, id: PartitionId, offset: Offset) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if offset <= partition.start {
            return;
        }
        partition.start = offset;
        self.deletable.extend((0..offset).map(|at| (id, at)));
        for (&group, found) in self.groups.iter_mut().filter(|(_, it)| it.topic == id.topic) {
            let progress = &mut found.progress[id.index as usize];
            if progress.floor() < offset {
                progress.settle(0, offset);
                self.moved.insert((group, id.index));
            }
        }
    }

    fn create(
        &mut self,
        topic: TopicId,
        name: &str,
        starts: &[Offset],
        config: &BTreeMap<String, String>,
        outcome: &Result<Outcome, Refusal>,
    ) {
        let of_topic: Vec<_> = self.partitions.iter().filter(|(id, _)| id.topic == topic).collect();
        let existing =
            self.groups.iter().find(|(_, group)| group.topic == topic && group.name == name);
        if let Some((id, existing)) = existing {
            match outcome {
                Ok(outcome) => assert_eq!(*outcome, Outcome::LeaseGroup(*id)),
                Err(Refusal::LeaseGroupExists { group, .. }) => assert_eq!(group, id),
                Err(other) => panic!("{other}"),
            }
            assert_eq!(outcome.is_ok(), existing.config == *config);
            return;
        }
        let possible = starts.iter().zip(&of_topic).all(|(start, (_, it))| *start <= it.end)
            && starts.len() <= of_topic.len()
            && !of_topic.is_empty();
        assert_eq!(outcome.is_ok(), possible, "{outcome:?}");
        let Ok(Outcome::LeaseGroup(id)) = outcome else { return };
        assert!(self.groups.keys().all(|known| known < id), "a number was used again");
        let floor = |(place, (_, partition)): (usize, &(&PartitionId, &ModelPartition))| {
            ModelProgress::at(starts.get(place).map_or(0, |&at| at).max(partition.start))
        };
        let progress = of_topic.iter().enumerate().map(floor).collect();
        let (name, config) = (name.to_owned(), config.clone());
        self.groups.insert(*id, ModelGroup { topic, name, config, paused: false, progress });
    }

    fn seek(
        &mut self,
        group: LeaseGroupId,
        starts: &[(u32, Offset)],
        outcome: &Result<Outcome, Refusal>,
    ) {
        let Some(found) = self.groups.get_mut(&group) else {
            assert!(outcome.is_err());
            return;
        };
        let partition = |index| self.partitions.get(&PartitionId::new(found.topic, index));
        let possible =
            starts.iter().all(|&(at, offset)| partition(at).is_some_and(|it| offset <= it.end));
        assert_eq!(outcome.is_ok(), possible);
        if possible {
            for &(index, offset) in starts {
                let start = partition(index).map_or(0, |it| it.start);
                found.progress[index as usize] = ModelProgress::at(offset.max(start));
                self.moved.insert((group, index));
            }
        }
    }

    fn settle(&mut self, settle: &GroupSettle) {
        let Some(group) = self.groups.get_mut(&settle.group) else { return };
        let partition = PartitionId::new(group.topic, settle.partition);
        let Some(progress) = group.progress.get_mut(settle.partition as usize) else { return };
        let end = self.partitions[&partition].end;
        for &(offset, count) in &settle.settled {
            progress.settle(offset, (offset + u64::from(count)).min(end));
        }
        for &(offset, count) in &settle.attempts {
            progress.attempts.remove(&offset);
            if count > 0 && offset < end && !progress.settled.contains(&offset) {
                progress.attempts.insert(offset, count);
            }
        }
    }

    /// Records settled by every group of a topic that deletes them.
    fn settled_by_all(&self) -> BTreeSet<(PartitionId, Offset)> {
        let mut settled = BTreeSet::new();
        for (&id, partition) in &self.partitions {
            let groups: Vec<_> =
                self.groups.values().filter(|group| group.topic == id.topic).collect();
            if groups.is_empty() || !self.deletes_settled.contains(&id.topic) {
                continue;
            }
            let by_all = |offset: &Offset| {
                groups.iter().all(|it| it.progress[id.index as usize].settled.contains(offset))
            };
            settled.extend((0..partition.end).filter(by_all).map(|offset| (id, offset)));
        }
        settled
    }

    /// A moved start raises every lower floor, which may settle more.
    fn note_deletable(&mut self) {
        let settled = self.settled_by_all();
        self.deletable.extend(settled.iter().copied());
        for (&id, partition) in &mut self.partitions {
            let start =
                (0..).find(|&at| !settled.contains(&(id, at))).expect("not all are settled");
            partition.start = partition.start.max(start);
        }
    }

    /// Checks that dropped records were deletable, and that all deletable ones were dropped.
    fn check_deleted(&mut self, applied: &EntryEffects) {
        let trimmed = applied.trimmed.iter().map(|&(id, start)| (id, 0, start));
        for (id, from, to) in trimmed.chain(applied.punched.iter().copied()) {
            // The topic may be deleted by the end of the entry.
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            assert!(from < to && to <= partition.end, "{id} {from}..{to}");
            for offset in from..to {
                let known = !partition.deleted.insert(offset);
                assert!(known || self.deletable.contains(&(id, offset)), "{id} {offset}");
            }
        }
        for (id, offset) in self.settled_by_all() {
            assert!(self.partitions[&id].deleted.contains(&offset), "{id} {offset} stays");
        }
        self.deletable.clear();
    }

    fn check_moved(&mut self, applied: &EntryEffects) {
        let told: BTreeSet<_> = applied.moved.iter().copied().collect();
        let all = |group| told.contains(&(group, ALL_PARTITIONS));
        for &(group, partition) in &self.moved {
            assert!(told.contains(&(group, partition)) || all(group), "{group} {partition}");
        }
        for (group, partition) in &told {
            assert!(self.moved.contains(&(*group, *partition)), "{group} {partition} did not move");
        }
        self.moved.clear();
    }

    fn agrees_with(&self, state: &State) {
        for (&id, expected) in &self.partitions {
            let found = state.rows.partition(id).expect("the model has it");
            assert_eq!((found.log_start(), found.next_offset()), (expected.start, expected.end));
        }
        let ids: Vec<_> = state.catalog.lease_groups().map(|group| group.id).collect();
        assert_eq!(ids, self.groups.keys().copied().collect::<Vec<_>>());
        assert_eq!(state.catalog.lease_group_count(), ids.len());
        for (&id, expected) in &self.groups {
            let found = state.catalog.lease_group(id).expect("the model has it");
            assert_eq!((found.topic, &*found.name), (expected.topic, expected.name.as_str()));
            assert_eq!((&*found.overrides, found.paused), (&expected.config, expected.paused));
            let rows = state.rows.lease_group(id).expect("the model has it");
            assert_eq!(rows.progress().count(), expected.progress.len());
            for (index, (progress, expected)) in (0..).zip(rows.progress().zip(&expected.progress))
            {
                let end = self.partitions[&PartitionId::new(found.topic, index)].end;
                expected.agrees_with(progress, end);
            }
            let named = state.catalog.lease_group_named(found.topic, &found.name);
            assert_eq!(named.map(|group| group.id), Some(id));
        }
        let mut by_name: BTreeMap<String, Vec<LeaseGroupId>> = BTreeMap::new();
        for (&id, group) in &self.groups {
            by_name.entry(group.name.clone()).or_default().push(id);
        }
        let names: Vec<_> = state.catalog.lease_group_names_after("").collect();
        assert_eq!(names, by_name.keys().collect::<Vec<_>>());
        for (name, ids) in by_name {
            let found = state.catalog.lease_groups_with_name(&name).map(|group| group.id);
            assert_eq!(found.collect::<Vec<_>>(), ids);
        }
        for topic in (0..TOPICS).map(TopicId) {
            let named = |group: &LeaseGroup| group.name.to_string();
            let found: Vec<_> = state.catalog.lease_groups_of(topic).map(named).collect();
            let of_topic = self.groups.values().filter(|group| group.topic == topic);
            let mut expected: Vec<_> = of_topic.map(|group| group.name.clone()).collect();
            expected.sort();
            assert_eq!(found, expected);
        }
        assert_eq!(state.catalog.documents_stamp(), self.documents_changed);
        let documents = ["s", "t"].into_iter().flat_map(|space| {
            state.catalog.documents(space).map(move |(name, document)| {
                let key = (space.to_owned(), name.to_owned());
                (key, (document.version, document.body.to_vec()))
            })
        });
        assert_eq!(documents.collect::<BTreeMap<_, _>>(), self.documents);
    }
}

/// An entry of the log.
struct LoggedEntry {
    head: bytes::Bytes,
    appends: Vec<Append>,
    applied: EntryEffects,
}

fn replay(state: &mut State, log: &[LoggedEntry]) {
    let mut applied = EntryEffects::new();
    for logged in log {
        let head = decode_head(&logged.head).expect("it was encoded by us");
        let (now_ms, commands) = (head.now_ms, &head.commands);
        let entry = Entry { now_ms, appends: &logged.appends, commands, ..Entry::default() };
        state.apply(&entry, &mut applied);
        assert_eq!(applied, logged.applied);
    }
}

fn run(groups: &[Vec<Step>]) -> (State, Vec<LoggedEntry>) {
    let (mut state, mut model, mut log) = (State::new(), Model::default(), Vec::new());
    for (now_ms, steps) in (0..).zip(groups) {
        let (mut appends, mut commands) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Command(command) => commands.push(command.clone()),
                Step::Append { partition, span } => {
                    let end = model.partitions.get(partition).map_or(0, |found| found.end);
                    appends.push(append(*partition, end, *span));
                    model.append(*partition, *span);
                }
            }
        }
        let mut applied = EntryEffects::new();
        state.apply(
            &Entry { now_ms, appends: &appends, commands: &commands, ..Entry::default() },
            &mut applied,
        );
        for (command, outcome) in commands.iter().zip(&applied.commands) {
            model.command(command, outcome);
        }
        model.check_deleted(&applied);
        model.check_moved(&applied);
        model.agrees_with(&state);
        log.push(LoggedEntry { head: encode_head(now_ms, &commands, &[]), appends, applied });
    }
    (state, log)
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
        // A capture stays unchanged while the state changes.
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
