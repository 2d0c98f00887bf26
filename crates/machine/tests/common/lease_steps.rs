//! Random steps of a few topics with lease groups and documents.

use std::collections::BTreeMap;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::{Append, BatchKind, Command, GroupSettle, NewTopic};
use proptest::prelude::*;
use uuid::Uuid;

pub(crate) const TOPICS: u32 = 3;
const PARTITIONS: u32 = 2;
const GROUPS: u32 = 6;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Append { partition: PartitionId, span: u32 },
    Command(Command),
}

pub(crate) fn append(partition: PartitionId, base_offset: Offset, span: u32) -> Append {
    Append {
        partition,
        base_offset,
        span,
        leader_epoch: 1,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: BatchKind::Plain,
    }
}

fn topic() -> impl Strategy<Value = TopicId> {
    prop_oneof![3 => Just(TopicId(0)), 1 => (0..TOPICS).prop_map(TopicId)]
}

fn partition() -> impl Strategy<Value = PartitionId> {
    (topic(), prop_oneof![3 => Just(0), 1 => 0..PARTITIONS + 1])
        .prop_map(|(topic, index)| PartitionId::new(topic, index))
}

fn group() -> impl Strategy<Value = LeaseGroupId> {
    prop_oneof![3 => Just(0), 2 => Just(1), 1 => 0..GROUPS].prop_map(LeaseGroupId)
}

fn offset() -> impl Strategy<Value = Offset> {
    0..50_u64
}

fn topic_config() -> impl Strategy<Value = BTreeMap<String, String>> {
    let settled =
        |value: &str| BTreeMap::from([("retention.settled".to_owned(), value.to_owned())]);
    prop_oneof![
        4 => Just(settled("true")),
        1 => Just(settled("false")),
        2 => Just(BTreeMap::new()),
    ]
}

fn group_config() -> impl Strategy<Value = BTreeMap<String, String>> {
    let ordering = BTreeMap::from([("ordering".to_owned(), "key".to_owned())]);
    prop_oneof![3 => Just(BTreeMap::new()), 1 => Just(ordering)]
}

fn group_settle() -> impl Strategy<Value = GroupSettle> {
    let settled =
        prop::collection::vec((offset(), prop_oneof![4 => 1..4_u32, 1 => 0..30_u32]), 0..5);
    let attempts = prop::collection::vec((offset(), 0..4_u16), 0..4);
    let index = prop_oneof![4 => Just(0), 1 => 0..PARTITIONS + 1];
    (group(), index, settled, attempts).prop_map(|(group, partition, settled, attempts)| {
        GroupSettle { group, partition, settled, attempts }
    })
}

fn command() -> impl Strategy<Value = Command> {
    let name =
        || prop_oneof![2 => Just("main"), 1 => Just("a"), 1 => Just("z")].prop_map(String::from);
    let space = || prop_oneof![Just("s"), Just("t")].prop_map(String::from);
    let document = || prop_oneof![Just("x"), Just("y")].prop_map(String::from);
    let expect = || prop::option::weighted(0.4, 0..6_u64);
    let starts = || prop::collection::vec(0..30_u64, 0..4);
    let seeks = prop::collection::vec((0..PARTITIONS + 1, offset()), 0..3);
    prop_oneof![
        20 => prop::collection::vec(group_settle(), 1..4)
            .prop_map(|settles| Command::Settle { settles }),
        4 => (topic(), name(), starts(), group_config()).prop_map(|(topic, name, starts, config)| {
            Command::CreateLeaseGroup { topic, name, starts, config }
        }),
        1 => (group(), group_config())
            .prop_map(|(group, config)| Command::SetLeaseGroupConfig { group, config }),
        1 => group().prop_map(|group| Command::DeleteLeaseGroup { group }),
        1 => (group(), any::<bool>())
            .prop_map(|(group, paused)| Command::PauseLeaseGroup { group, paused }),
        2 => (group(), seeks).prop_map(|(group, starts)| Command::SeekLeaseGroup { group, starts }),
        2 => prop::collection::vec((partition(), offset()), 1..3)
            .prop_map(|starts| Command::AdvanceStart { starts }),
        1 => (topic(), 1..PARTITIONS + 2)
            .prop_map(|(topic, total)| Command::CreatePartitions { topic, total }),
        1 => (topic(), topic_config())
            .prop_map(|(topic, config)| Command::SetTopicConfig { topic, config }),
        1 => (1..TOPICS).prop_map(|topic| Command::DeleteTopic { topic: TopicId(topic) }),
        2 => (space(), document(), prop::collection::vec(any::<u8>(), 0..5), expect()).prop_map(
            |(space, name, body, expect)| Command::PutDocument { space, name, body, expect }
        ),
        1 => (space(), document(), expect())
            .prop_map(|(space, name, expect)| Command::DeleteDocument { space, name, expect }),
    ]
}

/// Each vector is an entry.
pub(crate) fn history() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        1 => (partition(), 1..8_u32)
            .prop_map(|(partition, span)| Step::Append { partition, span }),
        3 => command().prop_map(Step::Command),
    ];
    let begin = (topic_config(), topic_config()).prop_map(|(first, second)| {
        let topic = |number: u128, config| NewTopic {
            name: format!("topic-{number}"),
            uuid: Uuid::from_u128(number),
            partitions: PARTITIONS,
            config,
        };
        let topics = vec![topic(1, first), topic(2, second), topic(3, BTreeMap::new())];
        let group = |topic, name: &str| Command::CreateLeaseGroup {
            topic: TopicId(topic),
            name: name.to_owned(),
            starts: Vec::new(),
            config: BTreeMap::new(),
        };
        let commands =
            [Command::CreateTopics { topics }, group(0, "main"), group(0, "a"), group(1, "main")];
        commands.into_iter().map(Step::Command).collect::<Vec<_>>()
    });
    let first = PartitionId::new(TopicId(0), 0);
    let filled = vec![Step::Append { partition: first, span: 40 }];
    let rest = prop::collection::vec(prop::collection::vec(step, 0..5), 1..40);
    (begin, rest).prop_map(move |(begin, mut groups)| {
        groups.insert(0, begin);
        groups.insert(1, filled.clone());
        groups
    })
}
