//! Time and memory that lease groups cost the machine: `cargo run --release -p machine --example
//! footprint`. `docs/internals/machine.md` has the results.

#![expect(clippy::disallowed_types, reason = "it measures the time of this machine")]

use std::collections::BTreeMap;
use std::time::Instant;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::{Append, BatchKind, Command, Entry, EntryEffects, GroupSettle, NewTopic, State};
use uuid::Uuid;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(1).expect("resident").parse::<u64>();
    pages.expect("a number") * 4096
}

fn run(state: &mut State, command: Command) {
    let mut applied = EntryEffects::new();
    state.apply(
        &Entry { now_ms: 1, appends: &[], commands: &[command], ..Entry::default() },
        &mut applied,
    );
    assert!(applied.commands[0].is_ok(), "{applied:?}");
}

fn with_group(topics: u32, records: u32) -> State {
    let mut state = State::new();
    let new = (0..topics).map(|n| NewTopic {
        name: format!("queue-{n}"),
        uuid: Uuid::from_u128(u128::from(n) + 1),
        partitions: 1,
        config: BTreeMap::new(),
    });
    run(&mut state, Command::CreateTopics { topics: new.collect() });
    let append = Append {
        partition: PartitionId::new(TopicId(0), 0),
        base_offset: 0,
        span: records,
        leader_epoch: 1,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    };
    let entry = Entry { now_ms: 1, appends: &[append], commands: &[], ..Entry::default() };
    state.apply(&entry, &mut EntryEffects::new());
    state
}

fn create_group(state: &mut State, topic: u32) {
    let (topic, name) = (TopicId(topic), "main".to_owned());
    let (starts, config) = (Vec::new(), BTreeMap::new());
    run(state, Command::CreateLeaseGroup { topic, name, starts, config });
}

/// Settles with a hundred records per command, as in one slot of a driver.
fn settle(state: &mut State, offsets: impl Iterator<Item = Offset>, attempts: bool) -> u64 {
    let offsets: Vec<Offset> = offsets.collect();
    let group = LeaseGroupId(0);
    let mut applied = EntryEffects::new();
    let started = Instant::now();
    for some in offsets.chunks(100) {
        let (mut settled, mut counts) = (Vec::new(), Vec::new());
        match attempts {
            true => counts.extend(some.iter().map(|&offset| (offset, 1))),
            false => settled.extend(some.iter().map(|&offset| (offset, 1))),
        }
        let settles = vec![GroupSettle { group, partition: 0, settled, attempts: counts }];
        let commands = [Command::Settle { settles }];
        state.apply(
            &Entry { now_ms: 1, appends: &[], commands: &commands, ..Entry::default() },
            &mut applied,
        );
    }
    started.elapsed().as_nanos() as u64 / offsets.len() as u64
}

fn settling() {
    const RECORDS: u64 = 10_000_000;
    let fresh = || {
        let mut state = with_group(1, RECORDS as u32);
        create_group(&mut state, 0);
        state
    };
    let mut state = fresh();
    println!("in order: {} ns a record", settle(&mut state, 0..RECORDS, false));
    let mut state = fresh();
    println!("from the end: {} ns a record", settle(&mut state, (0..RECORDS).rev(), false));
    let mut state = fresh();
    let shuffled = (0..RECORDS).map(|n| n * 7_368_787 % RECORDS);
    println!("in random order: {} ns a record", settle(&mut state, shuffled, false));

    let mut state = fresh();
    let before = resident_bytes();
    let every_other = settle(&mut state, (0..RECORDS / 2).map(|n| n * 2 + 1), false);
    let bytes = (resident_bytes() - before) as f64 / (RECORDS / 2) as f64;
    println!("every other: {every_other} ns a record, {bytes:.1} bytes a range");
    let started = Instant::now();
    let encoded = state.encode();
    println!("encoded: {} bytes in {:?}", encoded.len(), started.elapsed());

    let mut state = fresh();
    let before = resident_bytes();
    let counted = settle(&mut state, 0..RECORDS, true);
    let bytes = (resident_bytes() - before) as f64 / RECORDS as f64;
    println!("attempts: {counted} ns a record, {bytes:.1} bytes each");
}

fn idle_groups() {
    const GROUPS: u32 = 100_000;
    let mut state = with_group(GROUPS, 1);
    let before = resident_bytes();
    (0..GROUPS).for_each(|topic| create_group(&mut state, topic));
    let bytes = (resident_bytes() - before) / u64::from(GROUPS);
    println!("{GROUPS} groups of one partition: {bytes} bytes each");
    println!("encoded with their topics: {} bytes each", state.encode().len() / GROUPS as usize);
}

fn main() {
    settling();
    idle_groups();
}
