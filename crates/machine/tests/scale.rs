//! Partitions are rows: a hundred thousand of them are ordinary.

#![expect(clippy::disallowed_types, reason = "it measures the time of this machine")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::{PartitionId, TopicId};
use machine::{Append, BatchKind, Command, Entry, EntryEffects, NewTopic, Partition, State};
use uuid::Uuid;

fn apply(state: &mut State, commands: &[Command]) -> EntryEffects {
    let mut applied = EntryEffects::new();
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

/// Far above the time on a busy machine without optimisation, far below that of anything that is
/// not linear.
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
    assert_eq!(state.catalog.partition_count(), 100_000);
    assert!(state.rows.partition(PartitionId::new(TopicId(0), 99_999)).is_some());
    let bytes = state.encode();
    assert!(bytes.len() < 4 * 100_000, "{} bytes", bytes.len());
    assert_eq!(State::decode(&bytes).unwrap().encode(), bytes);
    let applied = apply(&mut state, &[Command::DeleteTopic { topic: TopicId(0) }]);
    assert_eq!(applied.removed, [(TopicId(0), 100_000)]);
    assert_eq!(state.catalog.partition_count(), 0);
    assert!(start.elapsed() < QUICKLY, "{:?}", start.elapsed());
}

#[test]
fn a_hundred_thousand_topics_are_made_saved_and_reconfigured_quickly() {
    let start = Instant::now();
    let mut state = State::new();
    create(&mut state, 100_000, |n| format!("tenant.{n}"), 1);
    assert_eq!(state.catalog.topic_count(), 100_000);
    let bytes = state.encode();
    assert_eq!(State::decode(&bytes).unwrap().encode(), bytes);
    let config = BTreeMap::from([("log.retention.ms".to_owned(), "5".to_owned())]);
    assert!(apply(&mut state, &[Command::SetNodeConfig { config }]).commands[0].is_ok());
    assert!(state.catalog.topics().all(|topic| topic.config.retention_ms == Some(5)));
    assert!(start.elapsed() < QUICKLY, "{:?}", start.elapsed());
}

fn append(state: &mut State, partition: PartitionId, base_offset: u64) {
    let append = Append {
        partition,
        base_offset,
        span: 1,
        leader_epoch: 0,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    };
    let entry = Entry { now_ms: 2, appends: &[append], ..Entry::default() };
    state.apply(&entry, &mut EntryEffects::new());
}

#[test]
fn after_a_capture_a_write_to_a_wide_topic_copies_one_chunk_of_it() {
    let mut state = State::new();
    create(&mut state, 1, |_| "wide".to_owned(), 100_000);
    let bytes = state.encode();
    let image = state.capture();
    let topic = state.rows.shared_topic(TopicId(0)).unwrap();
    append(&mut state, PartitionId::new(TopicId(0), 50_000), 0);
    let written = state.rows.topic(TopicId(0)).unwrap();
    assert_eq!(written.partition(50_000).unwrap().next_offset(), 1);
    let copied = 100_000 - written.rows_shared_with(&topic);
    assert!((1..=128).contains(&copied), "{copied} partitions were copied");
    assert_eq!(image.encode(), bytes);
}

#[test]
fn after_a_capture_a_write_to_one_of_many_topics_copies_one_topic() {
    let mut state = State::new();
    create(&mut state, 100_000, |n| format!("tenant.{n}"), 1);
    let bytes = state.encode();
    let image = state.capture();
    let at = |state: &State| -> Vec<*const machine::rows::topic::TopicRows> {
        state.rows.topics().map(std::ptr::from_ref).collect()
    };
    let before = at(&state);
    append(&mut state, PartitionId::new(TopicId(777), 0), 0);
    let moved = before.iter().zip(at(&state)).filter(|(before, after)| **before != *after);
    assert_eq!(moved.count(), 1);
    assert_eq!(image.encode(), bytes);
}

/// Figures, not checks: `cargo test --release -p machine --test scale measure -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn measure_capture_and_encode() {
    for (topics, partitions) in [(100_000, 1), (1, 1_000_000)] {
        let mut state = State::new();
        create(&mut state, topics, |n| format!("tenant.{n}"), partitions);
        let count = topics * partitions;
        let ids: Vec<PartitionId> = (0..1_000_000_u32)
            .map(|n| n.wrapping_mul(7919) % count)
            .map(|n| PartitionId::new(TopicId(n / partitions), n % partitions))
            .collect();
        let mut written = BTreeMap::new();
        for round in ["first", "again", "after a capture", "and again"] {
            let image = (round == "after a capture").then(|| {
                let started = Instant::now();
                let image = state.capture();
                println!("  capture {:?}", started.elapsed());
                image
            });
            let offsets: Vec<u64> = ids
                .iter()
                .map(|id| {
                    let next = written.entry(*id).or_insert(0_u64);
                    *next += 1;
                    *next - 1
                })
                .collect();
            let started = Instant::now();
            for (id, offset) in ids.iter().zip(offsets) {
                append(&mut state, *id, offset);
            }
            let each = started.elapsed().as_nanos() / ids.len() as u128;
            println!("{topics} topics x {partitions}, {round}: {each} ns an append");
            if let Some(image) = image {
                let started = Instant::now();
                let bytes = image.encode().len();
                println!("  encode {bytes} B in {:?}", started.elapsed());
            }
        }
    }
}
