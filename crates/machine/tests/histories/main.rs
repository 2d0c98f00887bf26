//! Random histories, compared with a plain model that keeps everything.
//!
//! * every append and every position agrees with the model: offsets are dense, a start never goes
//!   back, sequences follow Kafka's rules
//! * replaying a history, whole or from a snapshot taken anywhere in it, gives the same state,
//!   byte for byte, and the same outcomes

#[path = "../common/mod.rs"]
mod common;
mod model;
mod steps;

use base::{Offset, PartitionId};
use machine::{Append, Command, Entry, EntryEffects, State, decode_head, encode_head};
use proptest::prelude::*;

use model::Model;
use steps::{Step, history};

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

/// Applies the steps, an entry for each group of them, to a state and to the model.
fn run(groups: &[Vec<Step>]) -> (State, Vec<LoggedEntry>) {
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
        let mut applied = EntryEffects::new();
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
        log.push(LoggedEntry { head: encode_head(now_ms, &commands, &[]), appends, applied });
    }
    (state, log)
}

fn starts(state: &State) -> Vec<(PartitionId, Offset)> {
    let ids = state.catalog.topics().flat_map(|topic| topic.partition_ids());
    ids.filter_map(|id| Some((id, state.rows.partition(id)?.log_start()))).collect()
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
