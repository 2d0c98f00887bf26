//! Rows brought by another node are accepted once, even if repeated or late, also across snapshots.

use base::limits::NUMBERED_ROWS_KEPT;
use base::{PartitionId, ShardId, TopicId};
use machine::catalog::feed::AdoptedTopic;
use machine::{
    Adoption, Append, AppendOutcome, BatchKind, Command, Entry, EntryEffects, Role, RowSequence,
    State, Unit,
};
use proptest::prelude::*;

const EPOCH: i32 = 3;
const PARTITIONS: u32 = 2;
/// A partition that does not exist.
const UNKNOWN: u32 = 7;

fn shard() -> State {
    let mut state = State::of(Role::Rows(ShardId(1)));
    let topic = AdoptedTopic {
        topic: TopicId(0),
        first: 0,
        step: 1,
        partitions: PARTITIONS,
        deletes_settled: false,
    };
    let adoption = Adoption { to: 1, topics: vec![topic], ..Adoption::default() };
    apply(&mut state, &[], &[Command::Adopt(adoption)], &[]);
    state
}

fn apply(
    state: &mut State,
    appends: &[Append],
    commands: &[Command],
    units: &[Unit],
) -> EntryEffects {
    let mut applied = EntryEffects::new();
    let entry = Entry { now_ms: 5, leader_epoch: Some(EPOCH), appends, commands, units };
    state.apply(&entry, &mut applied);
    applied
}

fn partition(index: u32) -> PartitionId {
    PartitionId::new(TopicId(0), index)
}

fn end(state: &State, index: u32) -> u64 {
    state.rows.partition(partition(index)).expect("it is there").next_offset()
}

fn append(index: u32, base_offset: u64, span: u32) -> Append {
    Append {
        partition: partition(index),
        base_offset,
        span,
        leader_epoch: EPOCH,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    }
}

/// Appends a node's request as a leader does: each row at its partition's end.
fn bring(state: &mut State, from: RowSequence, rows: &[(u32, u32)]) -> Vec<AppendOutcome> {
    let mut ends: Vec<u64> = (0..PARTITIONS).map(|index| end(state, index)).collect();
    let place = |&(index, span): &(u32, u32)| {
        let Some(end) = ends.get_mut(index as usize) else { return append(index, 0, span) };
        let place = append(index, *end, span);
        *end += u64::from(span);
        place
    };
    let appends: Vec<Append> = rows.iter().map(place).collect();
    let unit = Unit { appends: appends.len() as u32, brought: Some(from), ..Unit::default() };
    apply(state, &appends, &[], &[unit]).appends
}

#[test]
fn repeated_request_is_skipped_and_its_offsets_are_known() {
    let mut state = shard();
    let from = RowSequence { node: 2, incarnation: 77, number: 10 };
    let rows = [(0, 1), (1, 3), (UNKNOWN, 1), (0, 1)];
    let taken = bring(&mut state, from, &rows);
    let at = |base_offset| AppendOutcome::Taken { base_offset };
    assert_eq!(taken, [at(0), at(0), AppendOutcome::UnknownPartition, at(1)]);
    assert_eq!(bring(&mut state, from, &rows), [AppendOutcome::PassedOver; 4]);
    assert_eq!((end(&state, 0), end(&state, 1)), (2, 3));
    let brought = state.rows.requests().brought(from).expect("it is known");
    let places: Vec<_> = (10..15).map(|number| brought.offset_of(number)).collect();
    assert_eq!(places, [Some(0), Some(0), None, Some(1), None]);
    assert!(brought.knows(10) && brought.next() == 14);
    // Another incarnation of the node counts from 0 again, and so does another node.
    for other in [RowSequence { incarnation: 78, ..from }, RowSequence { node: 3, ..from }] {
        assert!(matches!(bring(&mut state, other, &[(0, 1)])[..], [AppendOutcome::Taken { .. }]));
    }
}

/// Only units of this shard write to a channel.
#[test]
fn brought_rows_may_not_go_into_a_channel() {
    let mut state = shard();
    let channel = PartitionId::channel_to(ShardId(2));
    let from = RowSequence { node: 2, incarnation: 77, number: 0 };
    let unit = Unit { appends: 1, brought: Some(from), ..Unit::default() };
    let appends = [Append { partition: channel, ..append(0, 0, 1) }];
    let applied = apply(&mut state, &appends, &[], &[unit]);
    assert_eq!(applied.appends, [AppendOutcome::UnknownPartition]);
    assert_eq!(state.rows.channels().outbox(ShardId(2)), None);
}

#[derive(Clone, Debug)]
struct Request {
    node: u32,
    rows: Vec<(u32, u32)>,
    /// For each repetition of the request, whether a snapshot precedes it.
    comes: Vec<bool>,
}

fn request() -> impl Strategy<Value = Request> {
    let row = (prop_oneof![4 => 0..PARTITIONS, 1 => Just(UNKNOWN)], 1..4_u32);
    let rows = prop::collection::vec(row, 1..8);
    (1..4_u32, rows, prop::collection::vec(any::<bool>(), 1..4))
        .prop_map(|(node, rows, comes)| Request { node, rows, comes })
}

/// A request without accepted rows may be accepted later, or refused again in the same way.
fn is_passed_over(taken: &[AppendOutcome], again: &[AppendOutcome]) -> bool {
    let is_taken = |it: &AppendOutcome| matches!(it, AppendOutcome::Taken { .. });
    let is_over = |it: &AppendOutcome| *it == AppendOutcome::PassedOver;
    again.iter().all(is_over) || (!taken.iter().any(is_taken) && !again.iter().any(is_taken))
}

proptest! {
    /// A node has one request in flight at a time. Older ones may arrive at any time, too.
    #[test]
    fn each_row_is_accepted_once_and_found_at_its_offset(
        requests in prop::collection::vec(request(), 1..30),
        late in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut state = shard();
        let mut numbers = [0_u64; 4];
        let mut sent = Vec::new();
        for Request { node, rows, comes } in &requests {
            let number = numbers[*node as usize];
            let from = RowSequence { node: *node, incarnation: u64::from(*node), number };
            numbers[*node as usize] += rows.len() as u64;
            let before: u64 = (0..PARTITIONS).map(|index| end(&state, index)).sum();
            let taken = bring(&mut state, from, rows);
            for is_restored in comes {
                if *is_restored {
                    let bytes = state.capture().encode_at(base::Level::NUMBERED);
                    let restored = State::decode(&bytes).expect("it is sound");
                    prop_assert_eq!(&restored.rows, &state.rows);
                    state = restored;
                }
                let again = bring(&mut state, from, rows);
                prop_assert!(is_passed_over(&taken, &again), "{:?}", again);
                let brought = state.rows.requests().brought(from).expect("it is known");
                for (at, outcome) in taken.iter().enumerate() {
                    let place = match outcome {
                        AppendOutcome::Taken { base_offset } => Some(*base_offset),
                        _ => None,
                    };
                    prop_assert_eq!(brought.offset_of(from.plus(at).number), place);
                }
            }
            let records = |(index, span): &(u32, u32)| if *index == UNKNOWN { 0 } else { u64::from(*span) };
            let more: u64 = rows.iter().map(records).sum();
            prop_assert_eq!((0..PARTITIONS).map(|index| end(&state, index)).sum::<u64>(), before + more);
            sent.push((from, rows.clone(), taken));
        }
        for index in late {
            let (from, rows, taken) = &sent[index.index(sent.len())];
            let again = bring(&mut state, *from, rows);
            prop_assert!(is_passed_over(taken, &again), "{:?}", again);
        }
        prop_assert!(numbers.iter().all(|number| *number < NUMBERED_ROWS_KEPT));
    }
}
