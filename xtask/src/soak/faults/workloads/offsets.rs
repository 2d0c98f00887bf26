//! Offsets that groups commit, and ends of partitions, read at all nodes while they rise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::requests::{group_id, topic_name};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::{FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest};
use kafka_protocol::protocol::StrBytes;

use super::super::target::{Kafka, WorkloadContext};
use super::append::{PARTITIONS, Progress, TOPIC};
use super::{Check, WorkloadResult, joined};
use crate::random::Random;
use histories::register::{self, Op};

const GROUPS: usize = 3;
const READERS: usize = 2;
const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 7;
const FIND_COORDINATOR: i16 = 3;

/// A committed offset of a group, or the end of a partition.
type Register = (Option<usize>, usize);
type History = Vec<(Register, Op)>;

fn group(number: usize) -> String {
    format!("register-{number}")
}

pub(super) fn start(target: &WorkloadContext, progress: &Arc<Progress>, seed: u64) -> Check {
    let committer = |number: usize| {
        let target = target.clone();
        std::thread::spawn(move || commit(&target, number, seed))
    };
    let reader = |number: usize| {
        let (target, progress) = (target.clone(), Arc::clone(progress));
        std::thread::spawn(move || read(&target, &progress, seed ^ (number as u64 + 100)))
    };
    let mut clients: Vec<_> = (0..GROUPS).map(committer).collect();
    clients.extend((0..READERS).map(reader));
    Box::new(move |_| {
        let mut histories: BTreeMap<Register, Vec<Op>> = BTreeMap::new();
        let mut found = WorkloadResult::default();
        for client in clients {
            for (register, op) in joined(client)? {
                let what = match op {
                    Op::Write { .. } => "offsets committed or ends acknowledged",
                    Op::Read { .. } => "offsets and ends read",
                };
                *found.counts.entry(what).or_default() += 1;
                histories.entry(register).or_default().push(op);
            }
        }
        for ((group_number, partition), history) in histories {
            let name = match group_number {
                Some(number) => format!("committed offset of {}/{partition}", group(number)),
                None => format!("end of {TOPIC}/{partition}"),
            };
            found.violations.extend(register::check(&name, &history));
        }
        Ok(found)
    })
}

fn coordinator(kafka: &mut Kafka, place: usize, group: &str) -> Option<usize> {
    let request = FindCoordinatorRequest::default()
        .with_key_type(0)
        .with_key(StrBytes::from_string(group.to_owned()));
    let answer = kafka.call(place, FIND_COORDINATOR, &request).ok()?;
    kafka.place_of(answer.port).filter(|_| answer.error_code == 0)
}

fn commit(target: &WorkloadContext, number: usize, seed: u64) -> History {
    let mut random = Random::new(seed ^ (number as u64 + 10));
    let (mut kafka, name) = (Kafka::new(target, number), group(number));
    let (mut history, mut value) = (History::new(), 0);
    let mut known = None;
    while !target.stops() {
        let place = target.any(&mut random);
        known = known.or_else(|| coordinator(&mut kafka, place, &name));
        let Some(place) = known else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let partition = random.between(0, PARTITIONS as u64 - 1) as usize;
        value += 1;
        let offset = OffsetCommitRequestPartition::default()
            .with_partition_index(partition as i32)
            .with_committed_offset(value);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic_name(TOPIC))
            .with_partitions(vec![offset]);
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(&name))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        let begun = target.now();
        let answer = kafka.call(place, OFFSET_COMMIT, &request);
        let taken = answer.is_ok_and(|answer| {
            let mut all = answer.topics.iter().flat_map(|topic| &topic.partitions);
            all.all(|partition| partition.error_code == 0)
        });
        let done = taken.then(|| target.now());
        history.push(((Some(number), partition), Op::Write { value, begun, done }));
        if !taken {
            known = None;
        }
        std::thread::sleep(Duration::from_millis(random.between(2, 15)));
    }
    history
}

fn read(target: &WorkloadContext, progress: &Progress, seed: u64) -> History {
    let mut random = Random::new(seed);
    let mut kafka = Kafka::new(target, 0);
    let mut history = History::new();
    while !target.stops() {
        let node = target.any(&mut random);
        if random.between(0, 2) == 0 {
            let partition = random.between(0, PARTITIONS as u64 - 1) as usize;
            let (acknowledged, begun) = (progress.end(partition), target.now());
            let answer = kafka.at(node, |it| it.end_offset(TOPIC, partition as i32));
            if let Ok(end) = answer {
                let register = (None, partition);
                // The acknowledged end was written before the read began. The read may return a higher one, of a
                // batch without an acknowledgement.
                let written = Op::Write { value: acknowledged, begun, done: Some(begun) };
                let possible = Op::Write { value: end, begun, done: None };
                let read = Op::Read { value: end, begun: begun + 1, done: target.now() + 1, node };
                history.extend([written, possible, read].map(|op| (register, op)));
            }
        } else {
            history.extend(read_committed(target, &mut kafka, node, &mut random));
        }
        std::thread::sleep(Duration::from_millis(random.between(1, 10)));
    }
    history
}

/// Committed offsets of a group according to a coordinator: the one that this node names, or the node itself.
fn read_committed(
    target: &WorkloadContext,
    kafka: &mut Kafka,
    node: usize,
    random: &mut Random,
) -> History {
    let number = random.between(0, GROUPS as u64 - 1) as usize;
    let name = group(number);
    let asked = match random.between(0, 1) {
        0 => Some(node),
        _ => coordinator(kafka, node, &name),
    };
    let Some(node) = asked else { return History::new() };
    let topic = OffsetFetchRequestTopic::default()
        .with_name(topic_name(TOPIC))
        .with_partition_indexes((0..PARTITIONS as i32).collect());
    let request =
        OffsetFetchRequest::default().with_group_id(group_id(&name)).with_topics(Some(vec![topic]));
    let begun = target.now();
    let Ok(answer) = kafka.call(node, OFFSET_FETCH, &request) else { return History::new() };
    let done = target.now();
    if answer.error_code != 0 {
        return History::new();
    }
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let partitions = partitions.filter(|partition| partition.error_code == 0);
    let read = partitions.map(|partition| {
        let register = (Some(number), partition.partition_index as usize);
        (register, Op::Read { value: partition.committed_offset, begun, done, node })
    });
    read.collect()
}
