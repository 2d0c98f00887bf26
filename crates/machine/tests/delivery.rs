//! Effects of commands on lease groups and documents, one rule a test. `leases.rs` tests them in
//! random order.

use std::collections::BTreeMap;

use base::limits::GROUP_NAME_BYTES_MAX;
use base::{LeaseGroupId, MAIN_LEASE_GROUP, Offset, PartitionId, TopicId};
use machine::limits::{
    DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENT_SPACE_BYTES_MAX, DOCUMENTS_BYTES_MAX,
};
use machine::{
    ALL_PARTITIONS, Append, BatchKind, Command, Entry, EntryEffects, GroupSettle, NewTopic,
    Outcome, Progress, Refusal, State,
};
use uuid::Uuid;

const TOPIC: TopicId = TopicId(0);
const FIRST: PartitionId = PartitionId::new(TOPIC, 0);

struct Machine {
    state: State,
    applied: EntryEffects,
}

impl Machine {
    /// One topic of two partitions with 100 records in the first.
    fn new(config: &[(&str, &str)]) -> Self {
        let mut machine = Self { state: State::new(), applied: EntryEffects::new() };
        let (name, uuid) = ("orders".to_owned(), Uuid::from_u128(1));
        let topic = NewTopic { name, uuid, partitions: 2, config: values(config) };
        machine.run(Command::CreateTopics { topics: vec![topic] }).unwrap();
        machine.append(0, 100);
        machine
    }

    fn run(&mut self, command: Command) -> Result<Outcome, Refusal> {
        let entry = Entry { now_ms: 1000, appends: &[], commands: &[command], ..Entry::default() };
        self.state.apply(&entry, &mut self.applied);
        self.applied.commands.pop().unwrap()
    }

    fn append(&mut self, base_offset: Offset, span: u32) {
        let append = Append {
            partition: FIRST,
            base_offset,
            span,
            leader_epoch: 1,
            max_timestamp: 7,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            kind: BatchKind::Plain,
        };
        let entry = Entry { now_ms: 1000, appends: &[append], commands: &[], ..Entry::default() };
        self.state.apply(&entry, &mut self.applied);
    }

    fn create(&mut self, name: &str, starts: &[Offset]) -> Result<LeaseGroupId, Refusal> {
        self.create_with(name, starts, &[])
    }

    fn create_with(
        &mut self,
        name: &str,
        starts: &[Offset],
        config: &[(&str, &str)],
    ) -> Result<LeaseGroupId, Refusal> {
        let (name, starts, config) = (name.to_owned(), starts.to_vec(), values(config));
        match self.run(Command::CreateLeaseGroup { topic: TOPIC, name, starts, config })? {
            Outcome::LeaseGroup(id) => Ok(id),
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, group: LeaseGroupId, settled: &[(Offset, u32)]) {
        let (settled, attempts) = (settled.to_vec(), Vec::new());
        let settles = vec![GroupSettle { group, partition: 0, settled, attempts }];
        assert_eq!(self.run(Command::Settle { settles }), Ok(Outcome::Done));
    }

    fn attempt(&mut self, group: LeaseGroupId, attempts: &[(Offset, u16)]) {
        let (settled, attempts) = (Vec::new(), attempts.to_vec());
        let settles = vec![GroupSettle { group, partition: 0, settled, attempts }];
        assert_eq!(self.run(Command::Settle { settles }), Ok(Outcome::Done));
    }

    fn progress(&self, group: LeaseGroupId) -> &Progress {
        self.state.rows.progress(group, 0).unwrap()
    }

    fn put(&mut self, name: &str, bytes: usize, expect: Option<u64>) -> Result<Outcome, Refusal> {
        let (space, name) = ("amqp".to_owned(), name.to_owned());
        self.run(Command::PutDocument { space, name, body: vec![7; bytes], expect })
    }
}

fn values(config: &[(&str, &str)]) -> BTreeMap<String, String> {
    config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn ranges(progress: &Progress) -> Vec<(Offset, Offset)> {
    progress.settled().collect()
}

// ----------------------------------------------------------------------------------- lease groups

#[test]
fn progress_that_is_idle_is_sixteen_bytes() {
    assert!(size_of::<Progress>() <= 16);
}

#[test]
fn group_is_created_once_and_a_repeated_command_returns_it() {
    let mut machine = Machine::new(&[]);
    let id = machine.create(MAIN_LEASE_GROUP, &[]).unwrap();
    assert_eq!(machine.create(MAIN_LEASE_GROUP, &[5]), Ok(id));
    // Configurations are compared by value, not by spelling.
    let spelled = [("lease.ms", " 30000 ")];
    assert_eq!(machine.create_with(MAIN_LEASE_GROUP, &[], &spelled), Ok(id));
    let refused = machine.create_with(MAIN_LEASE_GROUP, &[], &[("lease.ms", "1")]).unwrap_err();
    assert!(matches!(refused, Refusal::LeaseGroupExists { group, .. } if group == id));
    let other = machine.create("other", &[]).unwrap();
    assert_ne!(other, id);
    machine.run(Command::DeleteLeaseGroup { group: other }).unwrap();
    assert!(machine.create("other", &[]).unwrap() > other, "a number is never used again");
}

#[test]
fn group_starts_at_the_given_offsets_within_the_log() {
    let mut machine = Machine::new(&[]);
    machine.run(Command::AdvanceStart { starts: vec![(FIRST, 10)] }).unwrap();
    for (name, starts, floor) in
        [("start", &[][..], 10), ("early", &[3], 10), ("middle", &[50], 50), ("end", &[100], 100)]
    {
        let id = machine.create(name, starts).unwrap();
        assert_eq!(machine.progress(id).floor(), floor, "{name}");
    }
    let refused = machine.create("late", &[101]).unwrap_err();
    assert!(matches!(refused, Refusal::OffsetOutOfRange { offset: 101, end: 100, .. }));
    let refused = machine.create("wide", &[0, 0, 0]).unwrap_err();
    assert!(matches!(refused, Refusal::UnknownPartition { .. }));
    for name in [String::new(), "x".repeat(GROUP_NAME_BYTES_MAX + 1)] {
        let refused = machine.create(&name, &[]).unwrap_err();
        assert!(matches!(refused, Refusal::InvalidGroupName { .. }));
    }
    let refused = machine.create_with("odd", &[], &[("ordering", "none")]).unwrap_err();
    assert!(matches!(refused, Refusal::InvalidConfig(_)));
}

#[test]
fn adjacent_settled_ranges_merge_and_the_floor_absorbs_them() {
    let mut machine = Machine::new(&[]);
    let id = machine.create("g", &[]).unwrap();
    machine.settle(id, &[(10, 2), (14, 2), (20, 1)]);
    assert_eq!(ranges(machine.progress(id)), [(10, 12), (14, 16), (20, 21)]);
    machine.settle(id, &[(12, 2)]);
    assert_eq!(ranges(machine.progress(id)), [(10, 16), (20, 21)]);
    machine.settle(id, &[(0, 11)]);
    assert_eq!((machine.progress(id).floor(), machine.progress(id).exceptions()), (16, 1));
    machine.settle(id, &[(16, 4)]);
    assert_eq!((machine.progress(id).floor(), machine.progress(id).exceptions()), (21, 0));
    // Records beyond the end cannot be settled.
    machine.settle(id, &[(99, 50), (200, 1)]);
    assert_eq!(ranges(machine.progress(id)), [(99, 100)]);
}

#[test]
fn attempts_are_kept_until_the_record_is_settled() {
    let mut machine = Machine::new(&[]);
    let id = machine.create("g", &[]).unwrap();
    machine.attempt(id, &[(3, 1), (5, 2), (100, 9)]);
    machine.attempt(id, &[(5, 3)]);
    assert_eq!(machine.progress(id).attempts().collect::<Vec<_>>(), [(3, 1), (5, 3)]);
    machine.settle(id, &[(5, 1)]);
    machine.attempt(id, &[(5, 4)]);
    assert_eq!(machine.progress(id).attempts_of(5), 0);
    machine.attempt(id, &[(3, 0)]);
    assert_eq!(machine.progress(id).attempts().count(), 0);
}

#[test]
fn seek_drops_exceptions_and_is_atomic() {
    let mut machine = Machine::new(&[]);
    let id = machine.create("g", &[]).unwrap();
    machine.settle(id, &[(0, 50), (60, 5)]);
    machine.attempt(id, &[(70, 2)]);
    let seek =
        |starts: &[(u32, Offset)]| Command::SeekLeaseGroup { group: id, starts: starts.to_vec() };
    for refused in [&[(0, 5), (1, 1)][..], &[(0, 5), (2, 0)], &[(0, 101)]] {
        assert!(machine.run(seek(refused)).is_err());
        assert_eq!(machine.progress(id).floor(), 50);
    }
    machine.run(seek(&[(0, 20)])).unwrap();
    assert_eq!(machine.applied.moved, [(id, 0)]);
    assert_eq!(*machine.progress(id), Progress::at(20));
}

#[test]
fn delivery_is_notified_of_changes_other_than_settles() {
    let mut machine = Machine::new(&[]);
    let id = machine.create("g", &[]).unwrap();
    machine.settle(id, &[(0, 5)]);
    assert_eq!(machine.applied.moved, []);
    let all = [(id, ALL_PARTITIONS)];
    machine.run(Command::PauseLeaseGroup { group: id, paused: true }).unwrap();
    assert_eq!(machine.applied.moved, all);
    assert!(machine.state.catalog.lease_group(id).unwrap().paused);
    let config = values(&[("ordering", "key")]);
    machine.run(Command::SetLeaseGroupConfig { group: id, config }).unwrap();
    assert_eq!(machine.applied.moved, all);
    machine.run(Command::AdvanceStart { starts: vec![(FIRST, 4)] }).unwrap();
    assert_eq!(machine.applied.moved, []);
    machine.run(Command::AdvanceStart { starts: vec![(FIRST, 9)] }).unwrap();
    assert_eq!(machine.applied.moved, [(id, 0)]);
    machine.run(Command::CreatePartitions { topic: TOPIC, total: 3 }).unwrap();
    assert_eq!(machine.applied.moved, all);
    assert_eq!(machine.state.rows.lease_group(id).unwrap().progress().count(), 3);
    machine.run(Command::DeleteTopic { topic: TOPIC }).unwrap();
    assert_eq!(machine.applied.moved, all);
    assert_eq!(machine.state.catalog.lease_group_count(), 0);
}

#[test]
fn records_settled_by_all_groups_are_deleted_with_retention_settled() {
    let mut machine = Machine::new(&[("retention.settled", "true")]);
    // Without a group no record is settled by all: everything stays.
    machine.run(Command::SetTopicConfig { topic: TOPIC, config: BTreeMap::new() }).unwrap();
    let (one, two) = (machine.create("one", &[]).unwrap(), machine.create("two", &[]).unwrap());
    machine.settle(one, &[(0, 10), (20, 20)]);
    machine.settle(two, &[(0, 5), (25, 5), (35, 10)]);
    assert_eq!((&machine.applied.trimmed[..], &machine.applied.punched[..]), (&[][..], &[][..]));

    let config = values(&[("retention.settled", "true")]);
    machine.run(Command::SetTopicConfig { topic: TOPIC, config }).unwrap();
    assert_eq!(machine.applied.trimmed, [(FIRST, 5)]);
    assert_eq!(machine.applied.punched, [(FIRST, 25, 30), (FIRST, 35, 40)]);
    assert_eq!(machine.state.rows.partition(FIRST).unwrap().log_start(), 5);

    // Each range is maximal.
    machine.settle(two, &[(30, 1)]);
    assert_eq!(machine.applied.punched, [(FIRST, 25, 31)]);
    machine.settle(two, &[(5, 2)]);
    assert_eq!(
        (&machine.applied.trimmed[..], machine.applied.punched.len()),
        (&[(FIRST, 7)][..], 0)
    );

    // The group that delayed the deletion is deleted.
    machine.run(Command::DeleteLeaseGroup { group: two }).unwrap();
    assert_eq!(machine.applied.trimmed, [(FIRST, 10)]);
    assert_eq!(machine.applied.punched, [(FIRST, 20, 40)]);
    machine.run(Command::DeleteLeaseGroup { group: one }).unwrap();
    assert_eq!(machine.applied.trimmed, []);
}

#[test]
fn group_config_outside_of_the_nodes_bounds_is_refused() {
    let mut machine = Machine::new(&[]);
    let config = |ms: &str| Command::SetGroupConfig {
        group: "g".to_owned(),
        config: values(&[("share.record.lock.duration.ms", ms)]),
    };
    assert!(matches!(machine.run(config("5000")), Err(Refusal::InvalidConfig(_))));
    machine.run(config("20000")).unwrap();
    let node = values(&[("group.share.min.record.lock.duration.ms", "1000")]);
    machine.run(Command::SetNodeConfig { config: node }).unwrap();
    machine.run(config("5000")).unwrap();
}

// -------------------------------------------------------------------------------------- documents

#[test]
fn document_changes_only_with_its_current_version() {
    let mut machine = Machine::new(&[]);
    assert_eq!(machine.put("x", 1, Some(0)), Ok(Outcome::Document { version: 1 }));
    let conflict = machine.put("x", 1, Some(0)).unwrap_err();
    assert!(matches!(conflict, Refusal::DocumentConflict { version: 1, expected: 0, .. }));
    assert_eq!(machine.put("y", 1, None), Ok(Outcome::Document { version: 2 }));
    assert_eq!(machine.put("x", 3, Some(1)), Ok(Outcome::Document { version: 3 }));
    let delete = |expect| {
        let (space, name) = ("amqp".to_owned(), "x".to_owned());
        Command::DeleteDocument { space, name, expect }
    };
    assert!(matches!(machine.run(delete(Some(1))), Err(Refusal::DocumentConflict { .. })));
    let names = |machine: &Machine| {
        machine.state.catalog.documents("amqp").map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&machine), ["x", "y"]);
    machine.run(delete(Some(3))).unwrap();
    assert!(matches!(machine.run(delete(None)), Err(Refusal::UnknownDocument { .. })));
    assert_eq!(names(&machine), ["y"]);
    assert_eq!(machine.state.catalog.documents_stamp(), 4);
}

#[test]
fn documents_are_bounded() {
    let mut machine = Machine::new(&[]);
    assert!(machine.put("x", DOCUMENT_BYTES_MAX, None).is_ok());
    let refused = machine.put("x", DOCUMENT_BYTES_MAX + 1, None).unwrap_err();
    assert!(matches!(refused, Refusal::DocumentTooLarge { .. }));
    for name in [String::new(), "n".repeat(DOCUMENT_NAME_BYTES_MAX + 1)] {
        let refused = machine.put(&name, 0, None).unwrap_err();
        assert!(matches!(refused, Refusal::InvalidDocumentName { .. }));
    }
    let space = "s".repeat(DOCUMENT_SPACE_BYTES_MAX + 1);
    let (name, body) = ("x".to_owned(), Vec::new());
    let long = Command::PutDocument { space, name, body, expect: None };
    assert!(matches!(machine.run(long), Err(Refusal::InvalidDocumentName { .. })));

    let fit = DOCUMENTS_BYTES_MAX as usize / DOCUMENT_BYTES_MAX;
    let put = |machine: &mut Machine, n: usize| {
        machine.put(&format!("{n}"), DOCUMENT_BYTES_MAX - 10, None)
    };
    let taken = (0..=fit).take_while(|&n| put(&mut machine, n).is_ok()).count();
    assert_eq!(taken, fit - 1, "one is there already");
    assert!(matches!(put(&mut machine, fit), Err(Refusal::TooManyDocuments { .. })));
    // A document that needs no more room is accepted.
    assert!(put(&mut machine, 0).is_ok());
    assert!(machine.put("x", 1, None).is_ok());
    assert!(put(&mut machine, fit).is_ok());
}
