//! Partitions are rows: a hundred thousand of them are ordinary.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::{PartitionId, TopicId};
use machine::{Applied, Command, Entry, NewTopic, Partition, State};
use uuid::Uuid;

fn apply(state: &mut State, commands: &[Command]) -> Applied {
    let mut applied = Applied::new();
    state.apply(&Entry { now_ms: 1, appends: &[], commands, ..Entry::default() }, &mut applied);
    applied
}

fn create(state: &mut State, count: u32, name: impl Fn(u32) -> String, partitions: u32) {
    let topics = (0..count).map(|n| NewTopic {
        name: name(n),
        uuid: Uuid::from_u128(u128::from(n) + 1),
        partitions,
        config: BTreeMap::new(),
    });
    let applied = apply(state, &[Command::CreateTopics { topics: topics.collect() }]);
    assert!(applied.commands[0].is_ok());
}

/// Far above what it takes on a busy machine without optimisation, far below what anything that is
/// not linear would take.
const QUICKLY: Duration = Duration::from_secs(30);

#[test]
fn an_idle_partition_is_three_words() {
    assert!(size_of::<Partition>() <= 24);
}

#[test]
fn a_hundred_thousand_partitions_of_one_topic_are_made_saved_and_deleted_quickly() {
    let start = Instant::now();
    let mut state = State::new();
    create(&mut state, 1, |_| "wide".to_owned(), 100_000);
    assert_eq!(state.partition_count(), 100_000);
    assert!(state.partition(PartitionId::new(TopicId(0), 99_999)).is_some());
    let bytes = state.encode();
    assert!(bytes.len() < 4 * 100_000, "{} bytes", bytes.len());
    assert_eq!(State::decode(&bytes).unwrap().encode(), bytes);
    let applied = apply(&mut state, &[Command::DeleteTopic { topic: TopicId(0) }]);
    assert_eq!(applied.removed, [(TopicId(0), 100_000)]);
    assert_eq!(state.partition_count(), 0);
    assert!(start.elapsed() < QUICKLY, "{:?}", start.elapsed());
}

#[test]
fn a_hundred_thousand_topics_are_made_saved_and_reconfigured_quickly() {
    let start = Instant::now();
    let mut state = State::new();
    create(&mut state, 100_000, |n| format!("tenant.{n}"), 1);
    assert_eq!(state.topic_count(), 100_000);
    let bytes = state.encode();
    assert_eq!(State::decode(&bytes).unwrap().encode(), bytes);
    let config = BTreeMap::from([("log.retention.ms".to_owned(), "5".to_owned())]);
    assert!(apply(&mut state, &[Command::SetNodeConfig { config }]).commands[0].is_ok());
    assert!(state.topics().all(|topic| topic.config.retention_ms == Some(5)));
    assert!(start.elapsed() < QUICKLY, "{:?}", start.elapsed());
}
