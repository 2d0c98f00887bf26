//! Steps of a random history, and their generators.

use std::collections::BTreeMap;

use base::{PartitionId, TopicId};
use machine::{Command, CommitOffset, NewTopic};
use proptest::prelude::*;
use uuid::Uuid;

const TOPICS: u32 = 4;
const PARTITIONS: u32 = 3;

/// A step of a random history. Numbers are small, so that they collide.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Append {
        partition: PartitionId,
        /// Added to the partition's end: mostly 0.
        gap: i64,
        span: u32,
        leader_epoch: i32,
        producer: Option<Producer>,
    },
    Command(Command),
    /// Deletes all records of the partition.
    DeleteRecords(PartitionId),
    Wait {
        ms: i64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    /// Added to the epoch that the partition knows: mostly 0.
    pub(crate) epoch_change: i16,
    pub(crate) sequence: Sequence,
}

#[derive(Clone, Debug)]
pub(crate) enum Sequence {
    /// The sequence that the model expects next for this producer.
    Next,
    /// A repetition of the batch this many back.
    Again(usize),
    Zero,
    Any(i32),
    /// Just before the sequences wrap.
    Last,
}

fn partition() -> impl Strategy<Value = PartitionId> {
    (0..TOPICS, 0..PARTITIONS).prop_map(|(topic, index)| PartitionId::new(TopicId(topic), index))
}

/// Mostly the same one, so that it gets long histories.
fn written_partition() -> impl Strategy<Value = PartitionId> {
    prop_oneof![2 => Just(PartitionId::new(TopicId(0), 0)), 1 => partition()]
}

fn producer() -> impl Strategy<Value = Producer> {
    let sequence = prop_oneof![
        8 => Just(Sequence::Next),
        3 => (0..7_usize).prop_map(Sequence::Again),
        1 => Just(Sequence::Zero),
        1 => (0..20_i32).prop_map(Sequence::Any),
        1 => Just(Sequence::Last),
    ];
    let producer = prop_oneof![
        18 => (Just(0), sequence),
        1 => (-1..2_i16, Just(Sequence::Zero)),
        1 => (-1..2_i16, Just(Sequence::Next)),
    ];
    (0..3_i64, producer).prop_map(|(id, (epoch_change, sequence))| Producer {
        id,
        epoch_change,
        sequence,
    })
}

fn append() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![9 => Just(0_i64), 1 => -2..3_i64];
    (written_partition(), gap, 1..4_u32, 0..5_i32, proptest::option::weighted(0.7, producer()))
        .prop_map(|(partition, gap, span, leader_epoch, producer)| Step::Append {
            partition,
            gap,
            span,
            leader_epoch,
            producer,
        })
}

fn group() -> impl Strategy<Value = String> {
    prop_oneof![Just("g".to_owned()), Just("h".to_owned()), Just(String::new())]
}

fn config() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = prop_oneof![
        4 => Just("retention.ms"),
        2 => Just("log.retention.ms"),
        2 => Just("consumer.session.timeout.ms"),
        1 => Just("nonsense"),
    ];
    proptest::collection::btree_map(
        names.prop_map(str::to_owned),
        (0..9_u32).prop_map(|n| n.to_string()),
        0..2,
    )
}

fn catalog_command() -> impl Strategy<Value = Command> {
    let topic = || (0..TOPICS).prop_map(TopicId);
    let new = (0..5_u32, any::<u128>(), 0..=PARTITIONS, config()).prop_map(
        |(name, uuid, partitions, config)| NewTopic {
            name: ["a", "b.c", "b_c", "d", "no name"][name as usize].to_owned(),
            uuid: Uuid::from_u128(uuid),
            partitions,
            config,
        },
    );
    prop_oneof![
        6 => proptest::collection::vec(new, 1..3)
            .prop_map(|topics| Command::CreateTopics { topics }),
        1 => topic().prop_map(|topic| Command::DeleteTopic { topic }),
        2 => (topic(), 0..=PARTITIONS)
            .prop_map(|(topic, total)| Command::CreatePartitions { topic, total }),
        1 => (topic(), config())
            .prop_map(|(topic, config)| Command::SetTopicConfig { topic, config }),
        1 => config().prop_map(|config| Command::SetNodeConfig { config }),
        1 => (group(), config())
            .prop_map(|(group, config)| Command::SetGroupConfig { group, config }),
        1 => Just(Command::AllocateProducerId),
    ]
}

fn progress_command() -> impl Strategy<Value = Command> {
    let commit = (partition(), 0..50_u64, proptest::option::of(900..1_500_i64)).prop_map(
        |(partition, offset, expire_ms)| CommitOffset {
            partition,
            offset,
            leader_epoch: -1,
            metadata: "m".repeat(offset as usize % 3),
            expire_ms,
        },
    );
    let starts = proptest::collection::vec((partition(), 0..20_u64), 0..3);
    let partitions = || proptest::collection::vec(partition(), 0..3);
    prop_oneof![
        2 => starts.prop_map(|starts| Command::AdvanceStart { starts }),
        1 => (partition(), 0..20_u64)
            .prop_map(|(partition, up_to)| Command::Compacted { partition, up_to }),
        3 => (group(), proptest::collection::vec(commit, 0..3))
            .prop_map(|(group, offsets)| Command::CommitOffsets { group, offsets }),
        1 => (group(), partitions())
            .prop_map(|(group, partitions)| Command::DeleteOffsets { group, partitions }),
        1 => group().prop_map(|group| Command::DeleteGroup { group }),
        1 => (proptest::collection::vec(group(), 0..3), 900..1_500_i64)
            .prop_map(|(groups, before_ms)| Command::ExpireOffsets { groups, before_ms }),
        1 => (900..1_500_i64).prop_map(|before_ms| Command::ExpireProducers { before_ms }),
    ]
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        10 => append(),
        1 => catalog_command().prop_map(Step::Command),
        3 => progress_command().prop_map(Step::Command),
        1 => written_partition().prop_map(Step::DeleteRecords),
        1 => (0..50_i64).prop_map(|ms| Step::Wait { ms }),
    ];
    // A topic to write to, so that a history is not mostly refusals.
    let first = NewTopic {
        name: "first".to_owned(),
        uuid: Uuid::from_u128(1),
        partitions: PARTITIONS,
        config: BTreeMap::new(),
    };
    let first = Step::Command(Command::CreateTopics { topics: vec![first] });
    proptest::collection::vec(proptest::collection::vec(step, 0..8), 1..40).prop_map(
        move |mut groups| {
            groups.insert(0, vec![first.clone()]);
            groups
        },
    )
}
