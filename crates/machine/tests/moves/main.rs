//! Moves of partitions between shards: each step repeated, late and out of order. Nothing of a
//! partition is lost or in two places in any order of events.

mod any_order;

use std::collections::BTreeMap;

use base::{PartitionId, ShardId, TopicId};
use machine::outcome::EntryEffects;
use machine::{
    Append, AppendOutcome, BatchKind, Command, Entry, MoveEnd, MoveStep, MovedRow, NewTopic,
    Outcome, Refusal, Role, State, Step, Unit,
};
use uuid::Uuid;

const SHARDS: u32 = 3;
const P: PartitionId = PartitionId::new(TopicId(0), 0);

/// A shard with the bytes of its journal: one for each offset.
#[derive(Clone)]
struct Shard {
    state: State,
    stored: BTreeMap<u64, u64>,
    term: i32,
}

impl Shard {
    fn new(id: u32) -> Self {
        let state = State::of(Role::Rows(ShardId(id)));
        Self { state, stored: BTreeMap::new(), term: 1 }
    }

    fn entry(
        &mut self,
        appends: &[(Append, u64)],
        commands: &[Command],
        unit: bool,
    ) -> EntryEffects {
        let units = [Unit {
            first_append: 0,
            appends: appends.len() as u32,
            commands: commands.len() as u32,
            origin: None,
            brought: None,
        }];
        let batches: Vec<Append> = appends.iter().map(|(append, _)| *append).collect();
        let mut applied = EntryEffects::new();
        let entry = Entry {
            leader_epoch: Some(self.term),
            appends: &batches,
            commands,
            units: if unit { &units } else { &[] },
            ..Entry::default()
        };
        self.state.apply(&entry, &mut applied);
        for ((append, value), outcome) in appends.iter().zip(&applied.appends) {
            if let AppendOutcome::Taken { base_offset } = outcome {
                assert_eq!(*base_offset, append.base_offset);
                let before = self.stored.insert(*base_offset, *value);
                assert_eq!(before, None, "a journal takes each offset once");
            }
        }
        for (_, start) in &applied.trimmed {
            self.stored.retain(|offset, _| offset >= start);
        }
        if !applied.left.is_empty() {
            self.stored.clear();
        }
        applied
    }

    fn run(&mut self, command: Command) -> Result<Outcome, Refusal> {
        self.entry(&[], &[command], false).commands.remove(0)
    }

    fn step(&mut self, id: u64, what: Step) -> Result<Outcome, Refusal> {
        self.run(Command::Move(MoveStep { partition: P, id, what }))
    }

    fn append(&mut self, value: u64) -> AppendOutcome {
        let rows = &self.state.rows;
        let base_offset = rows.partition(P).map_or(0, |row| row.next_offset());
        let leader_epoch = self.term + rows.epoch_base(P);
        self.entry(&[(batch(base_offset, leader_epoch), value)], &[], false).appends[0]
    }

    /// Imports a range of offsets from another shard.
    fn import(&mut self, id: u64, from: u64, to: u64, of: &Shard) -> Result<Outcome, Refusal> {
        let appends: Vec<_> =
            of.stored.range(from..to).map(|(at, it)| (batch(*at, 7), *it)).collect();
        let what = Step::Import { from, to };
        let command = Command::Move(MoveStep { partition: P, id, what });
        self.entry(&appends, &[command], true).commands.remove(0)
    }

    fn end(&self) -> Option<u64> {
        self.state.rows.partition(P).map(|row| row.next_offset())
    }
}

fn batch(base_offset: u64, leader_epoch: i32) -> Append {
    Append {
        partition: P,
        base_offset,
        span: 1,
        leader_epoch,
        max_timestamp: 5,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    }
}

fn catalog_with_topic(partitions: u32) -> Shard {
    let mut catalog = Shard { state: State::of(Role::Catalog), stored: BTreeMap::new(), term: 1 };
    catalog.run(Command::SetShards { count: SHARDS }).expect("there are none yet");
    let (name, uuid, config) = ("t".to_owned(), Uuid::from_u128(1), BTreeMap::new());
    let topics = vec![NewTopic { name, uuid, partitions, config }];
    catalog.run(Command::CreateTopics { topics }).expect("it is new");
    catalog
}

fn adopting(catalog: &Shard, id: u32) -> Shard {
    let mut shard = Shard::new(id);
    let adoption = catalog.state.catalog.adoption(ShardId(id), 0, 100).expect("there is something");
    shard.run(Command::Adopt(adoption)).expect("it follows");
    shard
}

fn wanted(topic: TopicId, to: u32) -> Command {
    Command::MovePartitions { topic, partitions: vec![0], to: ShardId(to) }
}

/// A partition with three records in shard 1, wanted in shard 2 by move 1.
fn moving() -> (Shard, Shard, Shard) {
    let mut catalog = catalog_with_topic(1);
    let (mut one, two) = (adopting(&catalog, 1), adopting(&catalog, 2));
    (0..3).for_each(|value| assert!(matches!(one.append(value), AppendOutcome::Taken { .. })));
    catalog.run(wanted(TopicId(0), 2)).expect("it may move");
    (catalog, one, two)
}

const FREEZE: Step = Step::Freeze { to: ShardId(2) };

#[test]
fn partition_moves_by_steps_that_may_be_repeated() {
    let (mut catalog, mut one, mut two) = moving();
    let out_of_turn = Err(Refusal::MoveOutOfTurn { partition: P });
    for _ in 0..2 {
        assert_eq!(two.import(1, 0, 2, &one), Ok(Outcome::Imported { next: 2 }));
    }
    assert_eq!(one.step(1, Step::HandOver { end: 3 }), out_of_turn, "it is not frozen");
    for _ in 0..2 {
        assert_eq!(one.step(1, FREEZE), Ok(Outcome::Done));
        assert_eq!(one.append(9), AppendOutcome::Moving);
    }
    assert_eq!(one.step(1, Step::HandOver { end: 2 }), out_of_turn, "it ends elsewhere");
    let row = one.state.rows.moved_row(P).expect("it is here");
    let activate = Step::Activate { row, epoch_base: 500 };
    assert_eq!(two.step(1, activate.clone()), out_of_turn, "one is missing");
    assert_eq!(two.import(1, 2, 3, &one), Ok(Outcome::Imported { next: 3 }));
    for _ in 0..2 {
        assert_eq!(one.step(1, Step::HandOver { end: 3 }), Ok(Outcome::Done));
        assert_eq!(one.step(1, Step::Thaw), Ok(Outcome::Done), "too late, and no harm");
        assert_eq!(one.step(1, Step::Cancel), out_of_turn);
        assert_eq!((one.end(), one.state.rows.gone_to(P)), (None, Some(ShardId(2))));
    }
    assert_eq!(two.end(), None);
    for _ in 0..2 {
        assert_eq!(two.step(1, activate.clone()), Ok(Outcome::Activated { epoch_base: 500 }));
        let placed = MoveEnd::Placed { epoch_base: 500 };
        catalog.run(Command::EndMove { partition: P, id: 1, end: placed }).expect("it is there");
        assert_eq!(one.step(1, Step::Leave), Ok(Outcome::Done));
    }
    let topic = catalog.state.catalog.topic(TopicId(0)).expect("it is there");
    assert_eq!((topic.placement.shard_of(0), topic.moving.len()), (ShardId(2), 0));
    assert_eq!((two.end(), two.stored.len(), one.stored.len()), (Some(3), 3, 0));
    assert_eq!(two.step(1, Step::Discard), Ok(Outcome::Done), "it is none that was given up");
    assert!(matches!(two.append(3), AppendOutcome::Taken { base_offset: 3 }));
    let epochs = two.state.rows.partition(P).expect("it is here").epochs().to_vec();
    assert_eq!(epochs.iter().map(|it| it.epoch).collect::<Vec<_>>(), [1, 501]);
    // Late messages of the same move.
    assert_eq!(two.import(1, 0, 1, &one), out_of_turn);
    assert_eq!(one.step(1, FREEZE), out_of_turn);
}

#[test]
fn a_producers_sequence_moves_along() {
    let (_, mut one, mut two) = moving();
    let produced = |sequence, base_offset, leader_epoch| {
        let (producer_id, producer_epoch, base_sequence) = (70, 0, sequence);
        let of = batch(base_offset, leader_epoch);
        (Append { producer_id, producer_epoch, base_sequence, ..of }, 50)
    };
    one.entry(&[produced(0, 3, 1)], &[], false);
    one.step(1, FREEZE).expect("it is here");
    two.import(1, 0, 4, &one).expect("it comes");
    one.step(1, Step::HandOver { end: 4 }).expect("it is frozen");
    let row = one.state.rows.moved_row(P).expect("its bytes are here");
    two.step(1, Step::Activate { row, epoch_base: 9 }).expect("all is there");
    let again = two.entry(&[produced(0, 4, 10)], &[], false).appends[0];
    assert_eq!(again, AppendOutcome::Duplicate { base_offset: 3 });
    let gap = two.entry(&[produced(2, 4, 10)], &[], false).appends[0];
    assert!(matches!(gap, AppendOutcome::Producer(_)), "{gap:?}");
    let next = two.entry(&[produced(1, 4, 10)], &[], false).appends[0];
    assert_eq!(next, AppendOutcome::Taken { base_offset: 4 });
}

#[test]
fn move_can_be_cancelled_until_it_is_handed_over() {
    let (mut catalog, mut one, mut two) = moving();
    two.import(1, 0, 2, &one).expect("it comes");
    one.step(1, FREEZE).expect("it is here");
    catalog.run(Command::CancelMoves { topic: TopicId(0), partitions: vec![0] }).expect("it moves");
    for _ in 0..2 {
        assert_eq!(one.step(1, Step::Cancel), Ok(Outcome::Done));
        assert!(matches!(one.append(3), AppendOutcome::Taken { .. }));
    }
    let out_of_turn = Err(Refusal::MoveOutOfTurn { partition: P });
    assert_eq!(one.step(1, FREEZE), out_of_turn, "a leader of before may say so still");
    assert_eq!(one.step(1, Step::HandOver { end: 5 }), out_of_turn);
    let end = Command::EndMove { partition: P, id: 1, end: MoveEnd::Cancelled };
    for _ in 0..2 {
        assert_eq!(catalog.run(end.clone()), Ok(Outcome::Done));
        assert_eq!(two.step(1, Step::Discard), Ok(Outcome::Done));
        assert_eq!(one.step(1, Step::Forget), Ok(Outcome::Done));
    }
    assert_eq!((two.stored.len(), two.state.rows.topics().count()), (0, 0));
    assert_eq!((one.end(), one.state.rows.moving_topics().count()), (Some(5), 0));
}

#[test]
fn invalid_moves_are_refused() {
    let mut catalog = catalog_with_topic(2);
    let topic = TopicId(0);
    let shard = ShardId(4);
    assert_eq!(catalog.run(wanted(topic, 4)), Err(Refusal::UnknownShard { shard }));
    let partitions = vec![2];
    let other = Command::MovePartitions { topic, partitions, to: ShardId(2) };
    let partition = PartitionId::new(topic, 2);
    assert_eq!(catalog.run(other), Err(Refusal::UnknownPartition { partition }));
    assert_eq!(catalog.run(wanted(topic, 1)), Ok(Outcome::Done), "it is there");
    assert_eq!(catalog.state.catalog.moving_count(), 0);
    for _ in 0..2 {
        assert_eq!(catalog.run(wanted(topic, 2)), Ok(Outcome::Done));
        assert_eq!(catalog.state.catalog.moving_count(), 1);
    }
    let already = Refusal::MovesAlready { partition: P, to: ShardId(2) };
    assert_eq!(catalog.run(wanted(topic, 3)), Err(already));
    let group = || {
        let (name, starts) = ("g".to_owned(), Vec::new());
        Command::CreateLeaseGroup { topic, name, starts, config: BTreeMap::new() }
    };
    let moved = Refusal::PartitionMoved { partition: P, index: 0, at: ShardId(2), home: 1 };
    assert_eq!(catalog.run(group()), Err(moved.clone()));
    let placed = |id| {
        let end = MoveEnd::Placed { epoch_base: 9 };
        Command::EndMove { partition: P, id, end }
    };
    catalog.run(placed(1)).expect("it is there");
    assert_eq!(catalog.run(group()), Err(moved));
    catalog.run(wanted(topic, 1)).expect("it may go back");
    let (partition, id) =
        catalog.state.catalog.all_moving().map(|it| (it.0, it.1.id)).next().unwrap();
    assert_eq!(partition, P);
    catalog.run(placed(id)).expect("it is there");
    catalog.run(group()).expect("all is where it was made");
    assert!(matches!(catalog.run(wanted(topic, 2)), Err(Refusal::HasLeaseGroups { .. })));
    assert_eq!(State::decode(&catalog.state.encode()).as_ref(), Ok(&catalog.state));
}

#[test]
fn deleted_topic_removes_its_imported_partitions() {
    let (mut catalog, one, mut two) = moving();
    two.import(1, 0, 2, &one).expect("it comes");
    catalog.run(Command::DeleteTopic { topic: TopicId(0) }).expect("it is there");
    assert_eq!(catalog.state.catalog.moving_count(), 0);
    let adoption = catalog.state.catalog.adoption(ShardId(2), 1, 100).expect("it is gone");
    let applied = two.entry(&[], &[Command::Adopt(adoption)], false);
    assert_eq!(applied.removed, [(TopicId(0), 1)]);
    assert_eq!(two.state.rows.topics().count() + two.state.rows.moving_topics().count(), 0);
}

#[test]
fn invalid_moved_row_is_refused() {
    let (_, one, mut two) = moving();
    two.import(1, 0, 3, &one).expect("it comes");
    let row = |bytes: &[u8]| postcard::from_bytes::<MovedRow>(bytes).expect("a row");
    // It ends before it begins.
    let step = Step::Activate { row: row(&[5, 3, 0]), epoch_base: 1 };
    assert_eq!(two.step(1, step), Err(Refusal::MoveOutOfTurn { partition: P }));
}

/// The persisted form of moves never changes.
#[test]
fn commands_have_golden_bytes() {
    let partition = PartitionId::new(TopicId(5), 3);
    let step = |what| Command::Move(MoveStep { partition, id: 7, what });
    let row = postcard::from_bytes(&[1, 2, 0]).expect("a row");
    let (topic, partitions, to) = (TopicId(5), vec![3, 4], ShardId(2));
    let placed = MoveEnd::Placed { epoch_base: 1 };
    let all: [(Command, &[u8]); 8] = [
        (
            Command::MovePartitions { topic, partitions: partitions.clone(), to },
            &[32, 5, 2, 3, 4, 2],
        ),
        (Command::CancelMoves { topic, partitions }, &[33, 5, 2, 3, 4]),
        (Command::EndMove { partition, id: 7, end: placed }, &[34, 5, 3, 7, 0, 2]),
        (step(Step::Freeze { to }), &[35, 5, 3, 7, 0, 2]),
        (step(Step::HandOver { end: 9 }), &[35, 5, 3, 7, 3, 9]),
        (step(Step::Import { from: 1, to: 9 }), &[35, 5, 3, 7, 6, 1, 9]),
        (step(Step::Activate { row, epoch_base: 1 }), &[35, 5, 3, 7, 7, 1, 2, 0, 2]),
        (step(Step::Discard), &[35, 5, 3, 7, 8]),
    ];
    for (command, bytes) in all {
        assert_eq!(postcard::to_stdvec(&command).expect("it can be written"), bytes, "{command:?}");
    }
}
