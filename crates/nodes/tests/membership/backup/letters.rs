//! A queue whose every third record is rejected, so that it goes to the dead letters in another shard; and the
//! invariants of any cut through that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::{
    Broker, CommitOffset, Delivery, LeaseSession, NewTopic, Settle, SettleTarget, Settlement,
    TakeOptions,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use world::{Entropy, OsEntropy};

use crate::harness::{PARTITIONS, batch, values, wait_for};

const READERS: &str = "readers";

/// Attempted operations, and the acknowledged ones.
#[derive(Clone, Default)]
pub(crate) struct LetterHistory {
    pub(crate) appended: BTreeSet<u64>,
    accepting: BTreeSet<u64>,
    accepted: BTreeSet<u64>,
    rejecting: BTreeSet<u64>,
    pub(crate) rejected: BTreeSet<u64>,
    /// By partition.
    committed: BTreeMap<u32, u64>,
    /// Topics with a record in each partition.
    topics: BTreeSet<TopicId>,
}

#[derive(Clone, Copy)]
pub(crate) struct Queue {
    queue: TopicId,
    graves: TopicId,
    group: LeaseGroupId,
}

pub(crate) struct LetterWorkload {
    queue: Queue,
    done: Arc<Mutex<LetterHistory>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

async fn topic(broker: &Broker, name: &str) -> TopicId {
    let (name, uuid, config) = (name.to_owned(), OsEntropy.uuid(), BTreeMap::new());
    let new = NewTopic { name, uuid, partitions: PARTITIONS, config };
    broker.create_topic(new).await.expect("the topic is new")
}

impl LetterWorkload {
    pub(crate) async fn begin(broker: &Broker) -> Self {
        // The dead-letter topic begins in the next shard after that of the queue.
        let (queue, graves) = (topic(broker, "queue").await, topic(broker, "graves").await);
        let config = BTreeMap::from([("dead.letter.topic".to_owned(), "graves".to_owned())]);
        let made = broker.create_lease_group(queue, "main".into(), Vec::new(), config).await;
        let queue = Queue { queue, graves, group: made.expect("the group is new") };
        let (done, stop) = (Arc::<Mutex<LetterHistory>>::default(), Arc::<AtomicBool>::default());
        let tasks = vec![
            tokio::spawn(append(broker.clone(), queue, Arc::clone(&done), Arc::clone(&stop))),
            tokio::spawn(settle(broker.clone(), queue, Arc::clone(&done), Arc::clone(&stop))),
            tokio::spawn(create(broker.clone(), Arc::clone(&done), Arc::clone(&stop))),
        ];
        Self { queue, done, stop, tasks }
    }

    pub(crate) fn of(&self) -> Queue {
        self.queue
    }

    pub(crate) fn so_far(&self) -> LetterHistory {
        self.done.lock().clone()
    }

    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("it does not panic");
        }
    }
}

async fn append(
    broker: Broker,
    queue: Queue,
    done: Arc<Mutex<LetterHistory>>,
    stop: Arc<AtomicBool>,
) {
    for number in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let index = (number % u64::from(PARTITIONS)) as u32;
        let partition = PartitionId::new(queue.queue, index);
        let batch = batch(partition, &number.to_string());
        let answers = broker.append_at_leaders(vec![batch]).await;
        if let Some(Ok(appended)) = answers.into_iter().next() {
            let offset = appended.base_offset + 1;
            done.lock().appended.insert(number);
            // A group that reads as fast as records are written.
            let commit = CommitOffset {
                partition,
                offset,
                leader_epoch: -1,
                metadata: String::new(),
                expire_ms: None,
            };
            if broker.shards().commit_offsets(READERS, vec![commit]).await.is_ok() {
                done.lock().committed.insert(index, offset);
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
}

async fn settle(
    broker: Broker,
    queue: Queue,
    done: Arc<Mutex<LetterHistory>>,
    stop: Arc<AtomicBool>,
) {
    let session = broker.lease_session();
    while !stop.load(Ordering::SeqCst) {
        for delivery in take(&session, queue.group).await {
            let number = number(&delivery);
            let rejects = number % 3 == 1;
            {
                let mut done = done.lock();
                if rejects { &mut done.rejecting } else { &mut done.accepting }.insert(number);
            }
            let settlement = if rejects { Settlement::Reject } else { Settlement::Accept };
            let what: SettleTarget = delivery.lease();
            let answers =
                session.settle(vec![Settle { group: queue.group, what, settlement }]).await;
            if answers.iter().all(Result::is_ok) {
                let mut done = done.lock();
                if rejects { &mut done.rejected } else { &mut done.accepted }.insert(number);
            }
        }
    }
}

/// Keeps the shards adopting changes of the catalog.
async fn create(broker: Broker, done: Arc<Mutex<LetterHistory>>, stop: Arc<AtomicBool>) {
    for number in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let (name, uuid) = (format!("topic-{number}"), OsEntropy.uuid());
        let new = NewTopic { name, uuid, partitions: PARTITIONS, config: BTreeMap::new() };
        if let Ok(topic) = broker.create_topic(new).await {
            let batches = (0..PARTITIONS).map(|index| batch(PartitionId::new(topic, index), "1"));
            let answers = broker.append_at_leaders(batches.collect()).await;
            if answers.iter().all(Result::is_ok) {
                done.lock().topics.insert(topic);
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn take(session: &LeaseSession, group: LeaseGroupId) -> Vec<Delivery> {
    let wait = Duration::from_millis(20);
    let options = TakeOptions { records_max: 20, wait, ..TakeOptions::default() };
    session.take(group, options).await.unwrap_or_default()
}

fn number(delivery: &Delivery) -> u64 {
    let value = delivery.value().expect("a value");
    String::from_utf8(value.to_vec()).expect("text").parse().expect("a number")
}

async fn numbers(broker: &Broker, topic: TopicId) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    for index in 0..PARTITIONS {
        let values = values(broker, PartitionId::new(topic, index)).await;
        all.push(values.iter().map(|value| value.parse().expect("a number")).collect());
    }
    all
}

/// `before`: operations acknowledged before the backup began. `tried`: operations attempted before it ended.
pub(crate) async fn check(
    broker: &Broker,
    queue: Queue,
    before: &LetterHistory,
    tried: &LetterHistory,
) {
    let of_queue = numbers(broker, queue.queue).await;
    let mut there = BTreeSet::new();
    for (index, numbers) in of_queue.iter().enumerate() {
        assert!(numbers.is_sorted_by(|one, next| one < next), "partition {index}: {numbers:?}");
        assert!(numbers.iter().all(|it| *it % u64::from(PARTITIONS) == index as u64));
        there.extend(numbers);
    }
    let missing: Vec<_> = before.appended.difference(&there).collect();
    assert!(missing.is_empty(), "acknowledged before and lost: {missing:?}");
    // Every waiting record is delivered once, since none is settled.
    let session = broker.lease_session();
    let mut waits = BTreeSet::new();
    let mut empty = 0;
    while empty < 5 {
        let taken = take(&session, queue.group).await;
        empty = if taken.is_empty() { empty + 1 } else { 0 };
        for delivery in taken {
            assert!(waits.insert(number(&delivery)), "{} comes twice", number(&delivery));
        }
    }
    let again: Vec<_> = waits.intersection(&before.accepted).collect();
    assert!(again.is_empty(), "settled before, and there again: {again:?}");
    let again: Vec<_> = waits.intersection(&before.rejected).collect();
    assert!(again.is_empty(), "rejected before, and there again: {again:?}");
    // Messages between shards arrive.
    let settled: BTreeSet<u64> = there.difference(&waits).copied().collect();
    let letters: BTreeSet<u64> = settled.iter().copied().filter(|it| it % 3 == 1).collect();
    let mut graves = Vec::new();
    let arrives = async || {
        graves = numbers(broker, queue.graves).await;
        graves.iter().map(Vec::len).sum::<usize>() >= letters.len()
    };
    wait_for(arrives, || format!("{} dead letters", letters.len())).await;
    let all: Vec<u64> = graves.iter().flatten().copied().collect();
    let once: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(all.len(), once.len(), "dead letters that are there twice: {all:?}");
    assert_eq!(once, letters, "dead letters are the rejected records, and no others");
    assert!(before.rejected.is_subset(&once) && once.is_subset(&tried.rejecting));
    let accepted: BTreeSet<u64> = settled.difference(&letters).copied().collect();
    assert!(before.accepted.is_subset(&accepted) && accepted.is_subset(&tried.accepting));
    for topic in &before.topics {
        assert_eq!(numbers(broker, *topic).await, vec![vec![1]; PARTITIONS as usize], "{topic:?}");
    }
    // Offsets refer to existing records, and none committed before is lost.
    for index in 0..PARTITIONS {
        let partition = PartitionId::new(queue.queue, index);
        let found = broker.shards().offsets(READERS, &[partition]).await.expect("it is led here");
        let offset = found[0].as_ref().map_or(0, |committed| committed.offset);
        let end = broker.bounds(partition).expect("it is there").end;
        assert!(offset <= end, "partition {index}: {offset} of {end}");
        assert!(offset >= before.committed.get(&index).copied().unwrap_or(0));
    }
}
