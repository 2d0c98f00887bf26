//! Effects of commands on topics, configurations, producers and groups, one rule a test.

use std::collections::BTreeMap;

use base::limits::PARTITIONS_PER_TOPIC_MAX;
use base::{PartitionId, TopicId};
use machine::limits::{GROUP_CONFIGS_MAX, OFFSET_METADATA_BYTES_MAX, PARTITIONS_PER_SHARD_MAX};
use machine::{
    Append, AppendOutcome, BatchKind, Command, CommitOffset, Entry, EntryEffects, NewTopic,
    Outcome, Refusal, State, TopicDefinition, TopicNameError,
};
use uuid::Uuid;

/// A state, and the time of the next command.
struct Machine {
    state: State,
    applied: EntryEffects,
    now_ms: i64,
    uuids: u128,
}

impl Machine {
    fn new() -> Self {
        Self { state: State::new(), applied: EntryEffects::new(), now_ms: 1000, uuids: 0 }
    }

    fn run(&mut self, command: Command) -> Result<Outcome, Refusal> {
        let entry =
            Entry { now_ms: self.now_ms, appends: &[], commands: &[command], ..Entry::default() };
        self.state.apply(&entry, &mut self.applied);
        self.applied.commands.pop().unwrap()
    }

    fn create_with(
        &mut self,
        name: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> Result<TopicId, Refusal> {
        self.uuids += 1;
        let uuid = Uuid::from_u128(self.uuids);
        let topic = NewTopic { name: name.to_owned(), uuid, partitions, config: values(config) };
        match self.run(Command::CreateTopics { topics: vec![topic] }) {
            Ok(Outcome::Topics(mut topics)) if topics.len() == 1 => topics.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, name: &str, partitions: u32) -> Result<TopicId, Refusal> {
        self.create_with(name, partitions, &[])
    }

    fn append(&mut self, partition: PartitionId, span: u32) -> AppendOutcome {
        let next = self.state.rows.partition(partition).map_or(0, |found| found.next_offset());
        self.append_at(partition, next, span)
    }

    fn append_at(&mut self, partition: PartitionId, base_offset: u64, span: u32) -> AppendOutcome {
        let append = Append {
            partition,
            base_offset,
            span,
            leader_epoch: 1,
            max_timestamp: 7,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            kind: BatchKind::Plain,
        };
        let entry =
            Entry { now_ms: self.now_ms, appends: &[append], commands: &[], ..Entry::default() };
        self.state.apply(&entry, &mut self.applied);
        self.applied.appends[0]
    }

    fn commit(
        &mut self,
        group: &str,
        partition: PartitionId,
        offset: u64,
        expire_ms: Option<i64>,
    ) -> Result<Outcome, Refusal> {
        let offset = CommitOffset {
            partition,
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            expire_ms,
        };
        self.run(Command::CommitOffsets { group: group.to_owned(), offsets: vec![offset] })
    }

    fn committed(&self, group: &str, partition: PartitionId) -> Option<u64> {
        Some(self.state.rows.group(group)?.offset(partition)?.offset)
    }
}

fn values(config: &[(&str, &str)]) -> BTreeMap<String, String> {
    config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn partition(topic: TopicId, index: u32) -> PartitionId {
    PartitionId::new(topic, index)
}

#[test]
fn topic_counts_as_deleted_only_after_it_existed() {
    let mut machine = Machine::new();
    let is_deleted = |machine: &Machine| machine.state.catalog.is_deleted(TopicId(0));
    assert!(!is_deleted(&machine), "it may be newer than this catalog");
    let topic = machine.create("t", 1).expect("created");
    assert_eq!(topic, TopicId(0));
    assert!(!is_deleted(&machine));
    machine.run(Command::DeleteTopic { topic }).expect("deleted");
    assert!(is_deleted(&machine) && !machine.state.catalog.is_deleted(TopicId(1)));
}

#[test]
fn a_topic_is_found_by_name_id_and_uuid_and_listed_by_name() {
    let mut machine = Machine::new();
    let b = machine.create("b", 2).unwrap();
    let a = machine.create("a", 1).unwrap();
    let topic = machine.state.catalog.topic_named("b").unwrap();
    assert_eq!((topic.id, topic.partition_count(), topic.created_ms), (b, 2, 1000));
    assert_eq!(machine.state.catalog.topic_with_uuid(&topic.uuid).unwrap().id, b);
    assert_eq!(machine.state.catalog.topic(a).unwrap().name.as_ref(), "a");
    assert_eq!(machine.state.catalog.topics().map(|topic| topic.id).collect::<Vec<_>>(), [a, b]);
    assert_eq!(machine.state.catalog.partition_count(), 3);
    assert!(machine.state.rows.partition(partition(b, 2)).is_none());
}

#[test]
fn each_topic_of_a_command_is_made_or_refused_by_itself() {
    let mut machine = Machine::new();
    let new = |name: &str, uuid| NewTopic {
        name: name.to_owned(),
        uuid: Uuid::from_u128(uuid),
        partitions: 1,
        config: BTreeMap::new(),
    };
    let topics = vec![new("a", 1), new("a", 2), new("b", 1), new("c", 0), new("d", 3)];
    let name = "a".to_owned();
    let expected = vec![
        Ok(TopicId(0)),
        Err(Refusal::TopicExists { name }),
        Err(Refusal::TopicUuidInUse),
        Err(Refusal::TopicUuidInUse),
        Ok(TopicId(1)),
    ];
    assert_eq!(machine.run(Command::CreateTopics { topics }), Ok(Outcome::Topics(expected)));
}

#[test]
fn a_name_that_differs_only_in_dots_and_underscores_is_refused_until_the_other_is_gone() {
    let mut machine = Machine::new();
    let first = machine.create("a.b", 1).unwrap();
    let (name, existing) = ("a_b".to_owned(), "a.b".to_owned());
    assert_eq!(machine.create("a_b", 1), Err(Refusal::TopicCollision { name, existing }));
    assert!(machine.create("a-b", 1).is_ok());
    machine.run(Command::DeleteTopic { topic: first }).unwrap();
    assert!(machine.create("a_b", 1).is_ok());
}

#[test]
fn an_illegal_name_is_refused() {
    let refused = Machine::new().create("", 1);
    assert_eq!(refused, Err(Refusal::InvalidTopicName(TopicNameError::Empty)));
}

#[test]
fn partitions_are_limited_by_topic_and_by_shard() {
    let mut machine = Machine::new();
    let count = |requested| {
        let (at_least, at_most) = (1, PARTITIONS_PER_TOPIC_MAX);
        Err(Refusal::InvalidPartitionCount { requested, at_least, at_most })
    };
    assert_eq!(machine.create("none", 0), count(0));
    assert_eq!(machine.create("all", u32::MAX), count(u32::MAX));
    for n in 0..PARTITIONS_PER_SHARD_MAX / u64::from(PARTITIONS_PER_TOPIC_MAX) {
        machine.create(&format!("full-{n}"), PARTITIONS_PER_TOPIC_MAX).unwrap();
    }
    let at_most = PARTITIONS_PER_SHARD_MAX;
    let refused = Refusal::TooManyPartitions { requested: 1, held: at_most, at_most };
    assert_eq!(machine.create("one-more", 1), Err(refused));
}

#[test]
fn a_topic_grows_and_never_shrinks() {
    let mut machine = Machine::new();
    let topic = machine.create("a", 2).unwrap();
    machine.append(partition(topic, 1), 5);
    assert_eq!(machine.run(Command::CreatePartitions { topic, total: 4 }), Ok(Outcome::Done));
    assert_eq!(machine.state.catalog.partition_count(), 4);
    assert_eq!(machine.state.rows.partition(partition(topic, 1)).unwrap().next_offset(), 5);
    for total in [0, 3, 4] {
        let refused = machine.run(Command::CreatePartitions { topic, total });
        assert!(matches!(refused, Err(Refusal::InvalidPartitionCount { at_least: 5, .. })));
    }
    let unknown = Command::CreatePartitions { topic: TopicId(9), total: 4 };
    assert_eq!(machine.run(unknown), Err(Refusal::UnknownTopic { topic: TopicId(9) }));
}

#[test]
fn a_deleted_topic_takes_its_partitions_and_committed_offsets_with_it() {
    let mut machine = Machine::new();
    let gone = machine.create("gone", 3).unwrap();
    let kept = machine.create("kept", 1).unwrap();
    machine.commit("both", partition(gone, 2), 1, None).unwrap();
    machine.commit("both", partition(kept, 0), 1, None).unwrap();
    machine.commit("only", partition(gone, 0), 1, None).unwrap();
    assert_eq!(machine.run(Command::DeleteTopic { topic: gone }), Ok(Outcome::Done));
    assert_eq!(machine.applied.removed, [(gone, 3)]);
    assert_eq!(machine.state.catalog.partition_count(), 1);
    assert_eq!(machine.append(partition(gone, 0), 1), AppendOutcome::UnknownPartition);
    assert_eq!(machine.committed("both", partition(gone, 2)), None);
    assert_eq!(machine.committed("both", partition(kept, 0)), Some(1));
    assert!(machine.state.rows.group("only").is_none());
    let again = machine.run(Command::DeleteTopic { topic: gone });
    assert_eq!(again, Err(Refusal::UnknownTopic { topic: gone }));
    // The name is free; the number is not reused.
    assert_ne!(machine.create("gone", 1).unwrap(), gone);
}

#[test]
fn a_topics_configuration_is_replaced_whole_or_not_at_all() {
    let mut machine = Machine::new();
    let topic = machine.create_with("a", 1, &[("retention.ms", "1")]).unwrap();
    let config = values(&[("max.message.bytes", "5")]);
    machine.run(Command::SetTopicConfig { topic, config: config.clone() }).unwrap();
    let holds = &machine.state.catalog.topic(topic).unwrap().config;
    assert_eq!((holds.max_message_bytes, holds.retention_ms), (5, Some(604_800_000)));
    let invalid = values(&[("retention.ms", "1"), ("nonsense", "1")]);
    let refused = machine.run(Command::SetTopicConfig { topic, config: invalid });
    assert!(matches!(refused, Err(Refusal::InvalidConfig(_))));
    assert_eq!(*machine.state.catalog.topic(topic).unwrap().overrides, config);
    assert!(matches!(
        machine.create_with("b", 1, &[("retention.ms", "x")]),
        Err(Refusal::InvalidConfig(_))
    ));
}

#[test]
fn topic_changes_as_a_whole_and_only_from_the_seen_definition() {
    let mut machine = Machine::new();
    let topic = machine.create_with("a", 1, &[("retention.ms", "1")]).unwrap();
    let definition =
        |partitions, config: &[_]| TopicDefinition { partitions, config: values(config) };
    let change = |machine: &mut Machine, seen: &TopicDefinition, wanted: &TopicDefinition| {
        let (seen, wanted) = (seen.clone(), wanted.clone());
        machine.run(Command::ChangeTopic { topic, seen, wanted })
    };
    let first = definition(1, &[("retention.ms", "1")]);
    let second = definition(3, &[("max.message.bytes", "5")]);
    assert_eq!(change(&mut machine, &first, &second), Ok(Outcome::Done));
    let holds = machine.state.catalog.topic(topic).unwrap();
    assert_eq!((holds.partition_count, &*holds.overrides), (3, &second.config));
    assert_eq!(machine.state.catalog.partition_count(), 3);
    assert!(matches!(machine.append(partition(topic, 2), 1), AppendOutcome::Taken { .. }));
    // Another change was first.
    let refused = change(&mut machine, &first, &second);
    assert_eq!(refused, Err(Refusal::TopicChanged { topic }));
    // One part of it is invalid, so that none is applied.
    let shrunk = definition(2, &[]);
    let refused = change(&mut machine, &second, &shrunk);
    assert!(matches!(refused, Err(Refusal::InvalidPartitionCount { .. })), "{refused:?}");
    let invalid = definition(4, &[("nonsense", "1")]);
    let refused = change(&mut machine, &second, &invalid);
    assert!(matches!(refused, Err(Refusal::InvalidConfig(_))), "{refused:?}");
    let holds = machine.state.catalog.topic(topic).unwrap();
    assert_eq!((holds.partition_count, &*holds.overrides), (3, &second.config));
    assert_eq!(change(&mut machine, &second, &second), Ok(Outcome::Done));
    let gone = TopicId(9);
    let nobodys = machine.run(Command::ChangeTopic { topic: gone, seen: first, wanted: second });
    assert_eq!(nobodys, Err(Refusal::UnknownTopic { topic: gone }));
}

#[test]
fn node_configuration_applies_to_every_topic_without_own_value() {
    let mut machine = Machine::new();
    let plain = machine.create("plain", 1).unwrap();
    let own = machine.create_with("own", 1, &[("retention.ms", "1")]).unwrap();
    let config = values(&[("log.retention.ms", "9"), ("message.max.bytes", "8")]);
    machine.run(Command::SetNodeConfig { config }).unwrap();
    let later = machine.create("later", 1).unwrap();
    for (topic, retention_ms) in [(plain, 9), (own, 1), (later, 9)] {
        let holds = &machine.state.catalog.topic(topic).unwrap().config;
        assert_eq!((holds.retention_ms, holds.max_message_bytes), (Some(retention_ms), 8));
    }
    // A value that contradicts a topic's own is refused, and changes nothing.
    machine.create_with("lag", 1, &[("min.compaction.lag.ms", "10")]).unwrap();
    let config = values(&[("log.cleaner.max.compaction.lag.ms", "5")]);
    let refused = machine.run(Command::SetNodeConfig { config });
    assert!(matches!(refused, Err(Refusal::InvalidConfig(_))));
    assert_eq!(machine.state.catalog.topic(plain).unwrap().config.retention_ms, Some(9));
    machine.run(Command::SetNodeConfig { config: BTreeMap::new() }).unwrap();
    assert_eq!(machine.state.catalog.topic(plain).unwrap().config.retention_ms, Some(604_800_000));
}

#[test]
fn a_group_may_be_configured_before_it_exists_and_after_it_is_gone() {
    let mut machine = Machine::new();
    let config = values(&[("consumer.session.timeout.ms", "10000")]);
    let group = "g".to_owned();
    machine.run(Command::SetGroupConfig { group: group.clone(), config }).unwrap();
    assert_eq!(machine.state.catalog.group_config("g").session_timeout_ms, Some(10_000));
    assert!(machine.state.rows.group("g").is_none());
    machine.run(Command::SetGroupConfig { group, config: BTreeMap::new() }).unwrap();
    assert_eq!(machine.state.catalog.group_config("g"), &machine::GroupConfig::DEFAULT);
}

#[test]
fn configured_groups_are_limited_and_existing_ones_can_still_be_changed() {
    let mut machine = Machine::new();
    let mut set = |number: usize, seconds: &str| {
        let config = values(&[("consumer.session.timeout.ms", seconds)]);
        machine.run(Command::SetGroupConfig { group: format!("g{number}"), config })
    };
    for number in 0..GROUP_CONFIGS_MAX {
        set(number, "10000").unwrap();
    }
    let too_many = Refusal::TooManyGroupConfigs { at_most: GROUP_CONFIGS_MAX };
    assert_eq!(set(GROUP_CONFIGS_MAX, "10000"), Err(too_many));
    set(7, "20000").unwrap();
    assert_eq!(machine.state.catalog.group_config("g7").session_timeout_ms, Some(20_000));
    let back_to_default = BTreeMap::new();
    let group = "g7".to_owned();
    machine.run(Command::SetGroupConfig { group, config: back_to_default }).unwrap();
    let config = values(&[("consumer.session.timeout.ms", "10000")]);
    machine.run(Command::SetGroupConfig { group: "one more".to_owned(), config }).unwrap();
}

#[test]
fn the_start_moves_forward_only_and_not_past_the_end() {
    let mut machine = Machine::new();
    let id = partition(machine.create("a", 1).unwrap(), 0);
    machine.append(id, 10);
    let unknown = partition(TopicId(9), 0);
    let starts = vec![(id, 4), (id, 3), (id, 11), (unknown, 0), (id, 10)];
    let out_of_range = Refusal::OffsetOutOfRange { partition: id, offset: 11, start: 4, end: 10 };
    let expected = vec![
        Ok(4),
        Ok(4),
        Err(out_of_range),
        Err(Refusal::UnknownPartition { partition: unknown }),
        Ok(10),
    ];
    let outcome = machine.run(Command::AdvanceStart { starts });
    assert_eq!(outcome, Ok(Outcome::Starts(expected)));
    assert_eq!(machine.applied.trimmed, [(id, 4), (id, 10)]);
    assert_eq!(machine.append(id, 1), AppendOutcome::Taken { base_offset: 10 });
}

#[test]
fn the_compaction_mark_moves_forward_only_and_not_past_the_end() {
    let mut machine = Machine::new();
    let id = partition(machine.create("a", 1).unwrap(), 0);
    machine.append(id, 10);
    for (up_to, mark) in [(5, 5), (3, 5), (99, 10)] {
        machine.run(Command::Compacted { partition: id, up_to }).unwrap();
        assert_eq!(machine.state.rows.partition(id).unwrap().compacted_to(), mark);
    }
}

#[test]
fn append_updates_every_field_of_the_partition() {
    let mut machine = Machine::new();
    let id = partition(machine.create("a", 1).unwrap(), 0);
    assert_eq!(machine.state.rows.partition(id).unwrap().last_append_ms(), None);
    assert_eq!(machine.append(id, 3), AppendOutcome::Taken { base_offset: 0 });
    assert_eq!(machine.append_at(id, 1, 1), AppendOutcome::NotSequenced { expected: 3 });
    let found = machine.state.rows.partition(id).unwrap();
    assert_eq!((found.log_start(), found.next_offset()), (0, 3));
    assert_eq!((found.last_append_ms(), found.max_timestamp()), (Some(1000), 7));
    assert_eq!(found.epoch_end(1), Some((1, 3)));
}

#[test]
fn producer_ids_are_handed_out_once_each() {
    let mut machine = Machine::new();
    for expected in 0..3 {
        let outcome = machine.run(Command::AllocateProducerId);
        assert_eq!(outcome, Ok(Outcome::ProducerId { id: expected, epoch: 0 }));
    }
}

#[test]
fn idle_producers_expire_and_may_start_at_any_sequence() {
    let mut machine = Machine::new();
    let id = partition(machine.create("a", 1).unwrap(), 0);
    let write = |machine: &mut Machine, producer_id, base_sequence| {
        let base_offset = machine.state.rows.partition(id).unwrap().next_offset();
        let append = Append {
            partition: id,
            base_offset,
            span: 1,
            leader_epoch: 1,
            max_timestamp: 0,
            producer_id,
            producer_epoch: 0,
            base_sequence,
            kind: BatchKind::Plain,
        };
        let entry =
            Entry { now_ms: machine.now_ms, appends: &[append], commands: &[], ..Entry::default() };
        machine.state.apply(&entry, &mut machine.applied);
        machine.applied.appends[0]
    };
    write(&mut machine, 5, 0);
    machine.now_ms = 2000;
    write(&mut machine, 6, 0);
    assert!(matches!(write(&mut machine, 5, 9), AppendOutcome::Producer(_)));
    let expired = machine.run(Command::ExpireProducers { before_ms: 2000 });
    assert_eq!(expired, Ok(Outcome::Expired { count: 1 }));
    assert!(matches!(write(&mut machine, 5, 9), AppendOutcome::Taken { .. }));
    assert!(matches!(write(&mut machine, 6, 9), AppendOutcome::Producer(_)));
}

#[test]
fn a_group_exists_while_it_has_an_offset() {
    let mut machine = Machine::new();
    let id = partition(machine.create("a", 2).unwrap(), 0);
    assert_eq!(machine.commit("g", id, 7, None), Ok(Outcome::Committed { refused: vec![] }));
    assert_eq!(machine.committed("g", id), Some(7));
    machine.commit("g", id, 3, None).unwrap();
    assert_eq!(machine.committed("g", id), Some(3));
    let group = "g".to_owned();
    let partitions = vec![id, partition(id.topic, 1)];
    let delete = Command::DeleteOffsets { group: group.clone(), partitions };
    assert_eq!(machine.run(delete.clone()), Ok(Outcome::Done));
    assert_eq!(machine.state.rows.groups().count(), 0);
    assert_eq!(machine.run(delete), Err(Refusal::UnknownGroup { group: group.clone() }));
    machine.commit("g", id, 7, None).unwrap();
    let delete = Command::DeleteGroup { group: group.clone() };
    assert_eq!(machine.run(delete.clone()), Ok(Outcome::Done));
    assert_eq!(machine.run(delete), Err(Refusal::UnknownGroup { group }));
}

#[test]
fn offsets_of_one_commit_are_taken_or_refused_one_by_one() {
    let mut machine = Machine::new();
    let id = partition(machine.create("a", 1).unwrap(), 0);
    let unknown = partition(id.topic, 1);
    let too_long = "x".repeat(OFFSET_METADATA_BYTES_MAX + 1);
    let commit = |partition, offset, metadata: &str| CommitOffset {
        partition,
        offset,
        leader_epoch: 4,
        metadata: metadata.to_owned(),
        expire_ms: None,
    };
    let offsets = vec![
        commit(unknown, 1, ""),
        commit(id, 1, &too_long),
        commit(id, u64::MAX, ""),
        commit(id, 2, "here"),
    ];
    let group = "g".to_owned();
    let Ok(Outcome::Committed { refused }) = machine.run(Command::CommitOffsets { group, offsets })
    else {
        panic!("a commit is taken as a whole");
    };
    assert!(matches!(
        refused.as_slice(),
        [
            (_, Refusal::UnknownPartition { .. }),
            (_, Refusal::MetadataTooLarge { .. }),
            (_, Refusal::OffsetOutOfRange { .. })
        ]
    ));
    let committed = machine.state.rows.group("g").unwrap().offset(id).unwrap();
    assert_eq!((committed.offset, committed.leader_epoch), (2, 4));
    assert_eq!((committed.metadata.as_str(), committed.commit_ms), ("here", 1000));
    machine.commit("nothing taken", unknown, 1, None).unwrap();
    assert!(machine.state.rows.group("nothing taken").is_none());
    let empty = machine.commit("", id, 1, None);
    assert!(matches!(empty, Err(Refusal::InvalidGroupName { .. })));
}

#[test]
fn offsets_expire_by_their_own_time_or_by_retention_and_only_in_the_groups_named() {
    let mut machine = Machine::new();
    let topic = machine.create("a", 3).unwrap();
    machine.commit("idle", partition(topic, 0), 1, None).unwrap();
    machine.commit("idle", partition(topic, 1), 1, Some(9000)).unwrap();
    machine.commit("live", partition(topic, 0), 1, None).unwrap();
    machine.now_ms = 5000;
    machine.commit("idle", partition(topic, 2), 1, None).unwrap();
    let expire = |machine: &mut Machine, before_ms| {
        let groups = vec!["idle".to_owned(), "unknown".to_owned()];
        machine.run(Command::ExpireOffsets { groups, before_ms })
    };
    assert_eq!(expire(&mut machine, 1000), Ok(Outcome::Expired { count: 0 }));
    assert_eq!(expire(&mut machine, 5000), Ok(Outcome::Expired { count: 1 }));
    machine.now_ms = 9000;
    assert_eq!(expire(&mut machine, 5000), Ok(Outcome::Expired { count: 1 }));
    assert_eq!(machine.committed("idle", partition(topic, 2)), Some(1));
    assert_eq!(machine.committed("live", partition(topic, 0)), Some(1));
    assert_eq!(expire(&mut machine, 9000), Ok(Outcome::Expired { count: 1 }));
    assert!(machine.state.rows.group("idle").is_none());
}
