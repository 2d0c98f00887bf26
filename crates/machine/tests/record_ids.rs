//! Ids of records in a shard's state: entries, snapshots and moves.

mod common;

use base::{Level, PartitionId, ShardId, TopicId};
use common::histories;
use machine::catalog::feed::AdoptedTopic;
use machine::ids::{AppendedIds, KnownId, RecordIdsChange, TopicIdsChange};
use machine::{
    Adoption, Append, BatchKind, Command, Entry, EntryEffects, MoveStep, Outcome, Refusal, Role,
    State, Step, decode_head, encode_head_at,
};
use proptest::prelude::*;

const TOPIC: TopicId = TopicId(3);

fn shard(number: u32) -> State {
    let mut state = State::of(Role::Rows(ShardId(number)));
    let adopted =
        |topic| AdoptedTopic { topic, first: 0, step: 1, partitions: 2, deletes_settled: false };
    let adoption = Adoption {
        to: 1,
        topics: vec![adopted(TOPIC), adopted(TopicId(4))],
        ..Adoption::default()
    };
    let commands = &[Command::Adopt(adoption)][..];
    state.apply(&Entry { commands, ..Entry::default() }, &mut EntryEffects::new());
    state
}

/// An entry of the log.
struct LoggedEntry {
    head: bytes::Bytes,
    appends: Vec<Append>,
}

fn replay(state: &mut State, log: &[LoggedEntry]) {
    for LoggedEntry { head, appends } in log {
        let head = decode_head(head).expect("it was encoded by us");
        let (now_ms, commands) = (head.now_ms, &head.commands[..]);
        state.apply(
            &Entry { now_ms, appends, commands, ..Entry::default() },
            &mut EntryEffects::new(),
        );
    }
}

fn append(partition: u32, base_offset: u64) -> Append {
    Append {
        partition: PartitionId::new(TOPIC, partition),
        base_offset,
        span: 1,
        leader_epoch: 1,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    }
}

fn spread(number: u32) -> u128 {
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// One append of a batch with these ids, and the leader's parameters.
#[derive(Clone, Debug)]
struct AppendCase {
    partition: u32,
    /// Added to the partition's end: mostly 0.
    gap: u64,
    ids: Vec<u32>,
    later_ms: i64,
    window_ms: i64,
    at_most: u64,
    drops: bool,
}

fn step() -> impl Strategy<Value = AppendCase> {
    let gap = prop_oneof![9 => Just(0_u64), 1 => Just(1_u64)];
    let drops = proptest::bool::weighted(0.02);
    let ids = proptest::collection::vec(0..2_000_u32, 0..20);
    (0..2_u32, gap, ids, 0..50_i64, 0..500_i64, 1..500_u64, drops).prop_map(
        |(partition, gap, ids, later_ms, window_ms, at_most, drops)| AppendCase {
            partition,
            gap,
            ids,
            later_ms,
            window_ms,
            at_most,
            drops,
        },
    )
}

fn logged(steps: &[AppendCase]) -> Vec<LoggedEntry> {
    let (mut ends, mut now_ms, mut version) = ([0_u64; 2], 1_000, 1);
    let mut log = Vec::new();
    for AppendCase { partition, gap, ids, later_ms, window_ms, at_most, drops } in steps {
        now_ms += later_ms;
        let end = &mut ends[*partition as usize];
        let one = append(*partition, *end + gap);
        *end += u64::from(*gap == 0);
        let ids = ids.iter().enumerate().map(|(place, id)| (place as u32, spread(*id))).collect();
        let change = TopicIdsChange {
            topic: TOPIC,
            expire_before_ms: now_ms - window_ms,
            at_most: *at_most,
            appended: vec![AppendedIds { append: 0, ids }],
            inherited: Vec::new(),
        };
        let complete = version > 1;
        let mut commands =
            vec![Command::RecordIds(RecordIdsChange { topics: vec![change], complete })];
        if *drops {
            let topics_gone = vec![TopicId(4)];
            let (from, to) = (version, version + 1);
            commands.push(Command::Adopt(Adoption {
                from,
                to,
                topics_gone,
                ..Adoption::default()
            }));
            version += 1;
        }
        let head = encode_head_at(Level::RECORD_IDS, now_ms, &commands, &[]);
        log.push(LoggedEntry { head, appends: vec![one] });
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), ..ProptestConfig::default() })]

    #[test]
    fn snapshot_and_replay_has_the_ids_of_a_whole_replay(
        steps in proptest::collection::vec(step(), 1..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = logged(&steps);
        let mut whole = shard(1);
        replay(&mut whole, &log);
        let bytes = whole.encode();

        let (before, after) = log.split_at(cut.index(log.len() + 1));
        let mut state = shard(1);
        replay(&mut state, before);
        let image = state.capture();
        let snapshot = state.encode();
        replay(&mut state, after);
        prop_assert_eq!(&image.encode(), &snapshot, "the image changed with the state");
        prop_assert_eq!(&state.encode(), &bytes);

        let mut restored = State::decode(&snapshot).expect("it was encoded by us");
        prop_assert_eq!(&restored.encode(), &snapshot);
        replay(&mut restored, after);
        prop_assert_eq!(&restored.encode(), &bytes);
        for id in 0..2_000 {
            let find = |state: &State| state.rows.record_ids().find(TOPIC, spread(id), 0);
            prop_assert_eq!(find(&restored), find(&whole));
        }
        prop_assert_eq!(restored, whole);
    }

    #[test]
    fn forged_snapshot_is_refused_or_sound(
        steps in proptest::collection::vec(step(), 1..10),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut state = shard(1);
        replay(&mut state, &logged(&steps));
        let mut bytes = state.encode();
        for (place, value) in changes {
            let place = 12 + place.index(bytes.len() - 12);
            bytes[place] = value;
        }
        let checksum = base::checksum::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(mut state) = State::decode(&bytes) {
            replay(&mut state, &logged(&steps));
            let bytes = state.encode();
            prop_assert_eq!(State::decode(&bytes).expect("it was encoded by us").encode(), bytes);
        }
    }
}

#[test]
fn command_with_ids_has_its_persisted_bytes_and_needs_its_level() {
    let ids = [(1, u128::from(u8::MAX))].into_iter().collect();
    let known = KnownId { hash: 1, at_ms: 2, partition: 3, offset: 300 };
    let change = TopicIdsChange {
        topic: TOPIC,
        expire_before_ms: 1,
        at_most: 5,
        appended: vec![AppendedIds { append: 7, ids }],
        inherited: vec![known],
    };
    let step = Step::ImportIds(TopicIdsChange::new(TOPIC, 0, 0));
    let step = MoveStep { partition: PartitionId::new(TOPIC, 1), id: 8, what: step };
    let commands = [
        Command::RecordIds(RecordIdsChange { topics: vec![change], complete: true }),
        Command::Move(step),
    ];
    let head = encode_head_at(Level::FIRST, 3, &commands, &[]);
    let zeros = [0; 15];
    let expected = [
        &[3, 7, 0, 2, 6, 0, 2][..],
        &[36, 1, 3, 2, 5, 1, 7, 1, 1],
        &zeros,
        &[0xff, 1],
        &zeros,
        &[1, 4, 3, 0xac, 2, 1],
        &[35, 3, 1, 8, 9, 3, 0, 0, 0, 0],
    ];
    assert_eq!(head[..], expected.concat());
    assert_eq!(decode_head(&head).expect("it is ours").commands, commands);
}

#[test]
fn ids_of_a_moving_partition_are_stored_by_the_importing_shard() {
    let mut state = State::of(Role::Rows(ShardId(2)));
    let mut now = |what| {
        let partition = PartitionId::new(TOPIC, 1);
        let commands = &[Command::Move(MoveStep { partition, id: 8, what })][..];
        let mut applied = EntryEffects::new();
        state.apply(&Entry { commands, ..Entry::default() }, &mut applied);
        (applied.commands.remove(0), state.clone())
    };
    let known = KnownId { hash: 1, at_ms: 2, partition: 1, offset: 0 };
    let change = TopicIdsChange { inherited: vec![known], ..TopicIdsChange::new(TOPIC, 0, 5) };
    let (early, _) = now(Step::ImportIds(change.clone()));
    let partition = PartitionId::new(TOPIC, 1);
    assert_eq!(early, Err(Refusal::MoveOutOfTurn { partition }));
    assert!(now(Step::Import { from: 0, to: 0 }).0.is_ok());
    let (taken, state) = now(Step::ImportIds(change.clone()));
    assert_eq!(taken, Ok(Outcome::Done));
    assert_eq!(state.rows.record_ids().find(TOPIC, 1, 0), Some(known));
    let decoded = State::decode(&state.encode()).expect("it was encoded by us");
    assert_eq!(decoded, state);
    // Repeating it changes nothing, and ids of a topic that the shard does not import are dropped.
    let (_, again) = now(Step::ImportIds(change));
    assert_eq!(again, state);
    let (_, discarded) = now(Step::Discard);
    assert!(discarded.rows.record_ids().is_empty());
}

/// A run of the property above found it.
#[test]
fn snapshot_without_ids_has_the_number_of_displaced_ones() {
    let displacing = AppendCase {
        partition: 0,
        gap: 0,
        ids: vec![0, 1],
        later_ms: 0,
        window_ms: 0,
        at_most: 1,
        drops: false,
    };
    let after_the_window = AppendCase { ids: Vec::new(), later_ms: 1, ..displacing.clone() };
    let mut state = shard(1);
    replay(&mut state, &logged(&[displacing, after_the_window]));
    let ids = state.rows.record_ids();
    assert_eq!((ids.len(), ids.forgotten_early()), (0, 1));
    assert_eq!(State::decode(&state.encode()).expect("it was encoded by us"), state);
}

#[test]
fn snapshot_without_ids_has_the_former_version() {
    let bytes = shard(1).encode();
    assert_eq!(bytes[4..6], 4_u16.to_le_bytes());
}
