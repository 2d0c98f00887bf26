//! A queue: producers send jobs, consumers lease and settle them one by one. Some move them to another topic, some
//! fail, some leave without closing.

use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId, headers};
use broker::delivery::{Events, SettleError, TransferError};
use broker::{
    AppendError, Broker, ConsumeOptions, Credit, Delivery, Event, LeaseSession, Settle, Settlement,
};
use record::BatchOptions;
use tokio::time::timeout;

use super::{Client, LifeEnded, RecordToSend, batch, number, overrides, value};
use crate::checkers::jobs::{EarliestDelivery, JobEnd, JobId, ReceivedDelivery, Rules};
use crate::random::Random;
use crate::reading;

const TOPIC: &str = "jobs";
const DEAD: &str = "jobs-dead";
const MOVED: &str = "jobs-moved";
const GROUP: &str = "workers";
const PARTITIONS: u32 = 2;
/// Most jobs that one transfer moves: they may be in several shards.
const MOVED_MAX: u64 = 4;
const KEYS: u64 = 5;
pub const PRODUCERS: u64 = 2;
pub const CONSUMERS: u64 = 3;

impl Rules {
    /// Rules of the queue of a run.
    pub fn of(random: &mut Random) -> Self {
        let by_key = random.once_in(2);
        let lease_ms = random.of(&[3_000, 30_000]);
        // With keys an unseen dead job would look like a skipped one.
        let attempts_max = (!by_key && random.once_in(2)).then(|| random.of(&[2, 4]));
        Self { by_key, lease_ms, attempts_max }
    }
}

/// Topics and group of the queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    topic: TopicId,
    moved: TopicId,
    group: LeaseGroupId,
}

async fn open(client: &mut Client, rules: &Rules) -> Result<Queue, LifeEnded> {
    let topic = client.topic(TOPIC, PARTITIONS, &[]).await?;
    client.topic(DEAD, 1, &[]).await?;
    let moved = client.topic(MOVED, PARTITIONS, &[]).await?;
    let ordering = if rules.by_key { "key" } else { "free" };
    let lease_ms = rules.lease_ms.to_string();
    let attempts = rules.attempts_max.unwrap_or(0).to_string();
    let config = [
        ("ordering", ordering),
        ("lease.ms", &lease_ms),
        ("attempts.max", &attempts),
        ("dead.letter.topic", DEAD),
    ];
    loop {
        let (name, config) = (GROUP.to_owned(), overrides(config.iter()));
        let made = client.broker.create_lease_group(topic, name, Vec::new(), config).await;
        match client.changed(made).await? {
            Ok(group) => return Ok(Queue { topic, moved, group }),
            Err(broker::ExecuteError::Refused(refusal)) => {
                client.refused("making the queue", &refusal)
            }
            Err(_) => {}
        }
    }
}

pub async fn produce(mut client: Client, rules: Rules) -> LifeEnded {
    let Ok(Queue { topic, .. }) = open(&mut client, &rules).await else { return LifeEnded };
    loop {
        let partition = client.random.below(u64::from(PARTITIONS)) as u32;
        let mut ids: Vec<JobId> = Vec::new();
        let mut jobs: Vec<RecordToSend> = Vec::new();
        for _ in 0..client.random.between(1, 5) {
            // A key is in one partition.
            let key = (client.random.below(KEYS) as u32 * PARTITIONS + partition) as u8;
            let delayed = !rules.by_key && client.random.once_in(4);
            let now_ms = client.broker.clock().now_ms();
            let delay_ms = delayed.then(|| client.random.between(1, 4_000));
            let due = delay_ms.map(|delay_ms| EarliestDelivery {
                wall_ms: now_ms + delay_ms as i64,
                at_ms: client.trace.now_ms() + delay_ms,
            });
            let padding = client.random.below(600) as usize;
            let id = client.knowledge.lock().jobs.send(key, due);
            let header = due.map(|due| (headers::DELIVER_AT, due.wall_ms.to_string()));
            let (value, headers) = (value(id, padding), header.into_iter().collect());
            ids.push(id);
            jobs.push(RecordToSend { key: Some(key), value, headers });
        }
        let now_ms = client.broker.clock().now_ms();
        let batch =
            batch(PartitionId::new(topic, partition), BatchOptions::default(), now_ms, &jobs);
        client.trace.note(format_args!("jobs {ids:?}, stamped {now_ms}"));
        let appended = client.broker.append(vec![batch]);
        let answer = client.due("an answer to a producer of jobs", appended).await.remove(0);
        client.trace.note(format_args!("jobs {ids:?} sent to {partition}: {answer:?}"));
        match &answer {
            Ok(appended) => {
                for (id, offset) in ids.into_iter().zip(appended.base_offset..) {
                    client.knowledge.lock().jobs.acknowledge(id, (partition, offset));
                }
            }
            Err(AppendError::Unavailable(error)) => match client.after(error).await {
                Ok(()) => {}
                Err(LifeEnded) => return LifeEnded,
            },
            Err(AppendError::StorageFull { .. }) => client.think(300).await,
            Err(other) => client.refused("producer of jobs", other),
        }
        client.think(120).await;
    }
}

/// Consumes, with one session after another.
pub async fn consume(mut client: Client, rules: Rules) -> LifeEnded {
    let Ok(queue) = open(&mut client, &rules).await else { return LifeEnded };
    loop {
        let session = client.broker.lease_session();
        let Some(events) = session.events() else { return LifeEnded };
        let credit = Credit::records(client.random.between(1, 8) as u32);
        let options = ConsumeOptions { credit, ..ConsumeOptions::default() };
        let begun_ms = client.trace.now_ms();
        if let Err(error) = session.consume(queue.group, options).await {
            client.trace.note(format_args!("consume: {error:?}"));
            match error {
                broker::delivery::ConsumeError::Unavailable(error) => {
                    if client.after(&error).await.is_err() {
                        return LifeEnded;
                    }
                }
                other => client.refused("consumer", &other),
            }
            continue;
        }
        let mut consumer = Consumer::new(client.fork(), rules, queue, session, begun_ms);
        let lasts = Duration::from_millis(client.random.between(100, 6_000));
        let ended = timeout(lasts, consumer.run(events)).await;
        // It leaves without closing, with its leased records.
        let id = consumer.session.id();
        client.trace.note(format_args!("session {id} closes"));
        client.knowledge.lock().jobs.close(id);
        drop(consumer);
        if ended == Ok(LifeEnded) {
            return LifeEnded;
        }
    }
}

struct Consumer {
    client: Client,
    rules: Rules,
    queue: Queue,
    session: LeaseSession,
    held: Vec<(JobId, Delivery)>,
    /// When it had last received all available records.
    received_ms: u64,
}

impl Consumer {
    /// `begun_ms`: when the session was to begin consuming. A shard with an early reply leases records while
    /// another one's disk hangs.
    fn new(
        client: Client,
        rules: Rules,
        queue: Queue,
        session: LeaseSession,
        begun_ms: u64,
    ) -> Self {
        Self { client, rules, queue, session, held: Vec::new(), received_ms: begun_ms }
    }

    async fn run(&mut self, mut events: Events) -> LifeEnded {
        loop {
            let patience = Duration::from_millis(self.client.random.between(1, 300));
            if self.receive_all(&mut events, patience).await.is_err() {
                return LifeEnded;
            }
            while !self.held.is_empty() && !self.client.random.once_in(3) {
                let (job, delivery) = self.take_one();
                if self.settle(job, delivery).await.is_err() {
                    return LifeEnded;
                }
            }
        }
    }

    /// Takes any of the held jobs, of which there is at least one.
    fn take_one(&mut self) -> (JobId, Delivery) {
        let place = self.client.random.below(self.held.len() as u64) as usize;
        self.held.swap_remove(place)
    }

    /// Receives all available records. Returns whether any arrived before the patience was over.
    async fn receive_all(
        &mut self,
        events: &mut Events,
        patience: Duration,
    ) -> Result<bool, LifeEnded> {
        let mut came = false;
        let mut next = timeout(patience, events.recv()).await.ok();
        while let Some(event) = next {
            match event {
                Some(Event::Deliveries(deliveries)) => self.receive(deliveries),
                Some(Event::Active { .. }) => {}
                Some(Event::Gone { .. }) | None => return Err(LifeEnded),
            }
            came = true;
            next = events.try_recv().map(Some);
        }
        self.received_ms = self.client.trace.now_ms();
        Ok(came)
    }

    fn receive(&mut self, deliveries: Vec<Delivery>) {
        for delivery in deliveries {
            let Some(job) = delivery.value().and_then(|value| number(&value)) else {
                let what = format!("{delivery:?} is no job");
                return self.client.verdict.violated(crate::verdict::Invariant::Once, what);
            };
            let session = self.session.id();
            let place = (delivery.partition, delivery.offset);
            let attempt = delivery.attempt;
            self.client
                .trace
                .note(format_args!("job {job} to session {session}, attempt {attempt}"));
            let now_ms = self.client.trace.now_ms();
            let wall_ms = self.client.broker.clock().now_ms();
            let leased_from_ms = self.received_ms;
            let delivered =
                ReceivedDelivery { job, session, place, attempt, leased_from_ms, now_ms, wall_ms };
            // A settle in a shard with a hung disk takes long, and leases of other shards end meanwhile.
            if delivered.is_late(&self.rules) {
                self.client.trace.note(format_args!("job {job} came too late"));
                continue;
            }
            let Client { knowledge, verdict, .. } = &self.client;
            knowledge.lock().jobs.deliver(delivered, &self.rules, verdict);
            self.held.push((job, delivery));
        }
    }

    async fn settle(&mut self, job: JobId, delivery: Delivery) -> Result<(), LifeEnded> {
        match self.client.random.below(10) {
            0 => self.release(job, delivery).await,
            1 => self.end(job, delivery, JobEnd::Rejected).await,
            2 | 3 => {
                let mut jobs = vec![(job, delivery)];
                let count = self.client.random.between(1, MOVED_MAX) as usize;
                while jobs.len() < count && !self.held.is_empty() {
                    jobs.push(self.take_one());
                }
                self.move_to_another_topic(jobs).await
            }
            _ => self.end(job, delivery, JobEnd::Accepted).await,
        }
    }

    fn of(&self, delivery: &Delivery, settlement: Settlement) -> Settle {
        Settle { group: self.queue.group, what: delivery.lease(), settlement }
    }

    async fn release(&mut self, job: JobId, delivery: Delivery) -> Result<(), LifeEnded> {
        let delay_ms = self.client.random.of(&[0, 0, 200, 2_000]);
        let not_before_ms = (delay_ms > 0).then(|| self.client.trace.now_ms() + delay_ms);
        let session = self.session.id();
        self.client.knowledge.lock().jobs.release(job, session);
        let settlement = Settlement::Release { delay_ms: Some(delay_ms as i64), count: true };
        let answer = self.session.settle(vec![self.of(&delivery, settlement)]).await.remove(0);
        self.client.trace.note(format_args!("job {job} released by {delay_ms} ms: {answer:?}"));
        if answer.is_ok() {
            let mut knowledge = self.client.knowledge.lock();
            knowledge.jobs.released(job, delivery.attempt, not_before_ms);
        }
        self.answered(answer).await
    }

    async fn end(&mut self, job: JobId, delivery: Delivery, way: JobEnd) -> Result<(), LifeEnded> {
        let settlement = match way {
            JobEnd::Rejected => Settlement::Reject,
            JobEnd::Accepted | JobEnd::Moved => Settlement::Accept,
        };
        self.client.knowledge.lock().jobs.settle(job, way);
        let settled = self.session.settle(vec![self.of(&delivery, settlement)]);
        let answer = self.client.due("a settle", settled).await.remove(0);
        self.client.trace.note(format_args!("job {job} {way:?}: {answer:?}"));
        self.note(job, way, answer.is_ok());
        self.answered(answer).await
    }

    async fn move_to_another_topic(
        &mut self,
        jobs: Vec<(JobId, Delivery)>,
    ) -> Result<(), LifeEnded> {
        let now_ms = self.client.broker.clock().now_ms();
        let (mut settles, mut batches) = (Vec::new(), Vec::new());
        for (job, delivery) in &jobs {
            let record = RecordToSend { key: None, value: value(*job, 0), headers: Vec::new() };
            let partition = self.client.random.below(u64::from(PARTITIONS)) as u32;
            let to = PartitionId::new(self.queue.moved, partition);
            batches.push(batch(to, BatchOptions::default(), now_ms, &[record]));
            settles.push(self.of(delivery, Settlement::Accept));
            self.client.knowledge.lock().jobs.settle(*job, JobEnd::Moved);
        }
        let answer = self.session.transfer(settles, batches).await;
        for (job, _) in &jobs {
            self.client.trace.note(format_args!("job {job} moved: {answer:?}"));
            self.note(*job, JobEnd::Moved, answer.is_ok());
        }
        match answer {
            Ok(_) => Ok(()),
            Err(TransferError::Unavailable(error)) => self.client.after(&error).await,
            Err(TransferError::Append { source: AppendError::Unavailable(error), .. }) => {
                self.client.after(&error).await
            }
            Err(TransferError::Settle { source, .. }) => self.answered(Err(source)).await,
            Err(TransferError::Append { source: AppendError::StorageFull { .. }, .. }) => {
                self.client.think(300).await;
                Ok(())
            }
            Err(other) => {
                self.client.refused("moving a job", &other);
                Ok(())
            }
        }
    }

    fn note(&self, job: JobId, way: JobEnd, settled: bool) {
        let session = self.session.id();
        let mut known = self.client.knowledge.lock();
        match settled {
            true => known.jobs.settled(job, session, way),
            false => known.jobs.not_settled(job, session),
        }
    }

    async fn answered(&mut self, answer: Result<(), SettleError>) -> Result<(), LifeEnded> {
        match answer {
            // It may have expired, also without another delivery.
            Ok(()) | Err(SettleError::NotLeased) => Ok(()),
            Err(SettleError::Unavailable(error)) => self.client.after(&error).await,
            Err(other) => {
                self.client.refused("settling a job", &other);
                Ok(())
            }
        }
    }
}

/// Accepts all remaining jobs, some of them only on redelivery, until the queue is empty.
pub async fn drain(mut client: Client, rules: Rules) -> Result<(), LifeEnded> {
    let queue = open(&mut client, &rules).await?;
    let session = client.broker.lease_session();
    let Some(mut events) = session.events() else { return Err(LifeEnded) };
    let begun_ms = client.trace.now_ms();
    session.consume(queue.group, ConsumeOptions::default()).await.map_err(|_| LifeEnded)?;
    let broker = client.broker.clone();
    let mut consumer = Consumer::new(client, rules, queue, session, begun_ms);
    loop {
        if !consumer.receive_all(&mut events, Duration::from_millis(100)).await? {
            let counters = broker.counters(queue.group).await.ok_or(LifeEnded)?;
            if counters.depth == 0 {
                return Ok(());
            }
        }
        for (job, delivery) in std::mem::take(&mut consumer.held) {
            match delivery.attempt {
                // It has to be redelivered, in this life.
                1 if consumer.client.random.once_in(4) => consumer.release(job, delivery).await?,
                _ => consumer.end(job, delivery, JobEnd::Accepted).await?,
            }
        }
    }
}

/// Numbers of waiting, delayed and leased jobs; for a message.
pub async fn left(broker: &Broker) -> String {
    match group(broker) {
        Some(group) => format!("{:?}", broker.counters(group).await),
        None => "no queue".to_owned(),
    }
}

fn group(broker: &Broker) -> Option<LeaseGroupId> {
    let catalog = broker.catalog();
    Some(catalog.lease_group_named(catalog.topic_id(TOPIC)?, GROUP)?.id())
}

/// Every job in a topic, with its position.
pub(super) async fn found(
    broker: &Broker,
    topic: &str,
) -> Result<Vec<(JobId, (u32, u64))>, String> {
    let partitions = broker.catalog().topic_named(topic).map(|topic| topic.partition_ids());
    let mut jobs = Vec::new();
    for partition in partitions.into_iter().flatten() {
        for it in reading::read_all(broker, partition).await? {
            let job = it.value.and_then(|value| number(&value)).ok_or("a record was changed")?;
            jobs.push((job, (partition.index, it.offset)));
        }
    }
    Ok(jobs)
}

/// Checks the final state, once the queue is empty.
pub async fn check(client: &Client, rules: &Rules) -> Result<(), String> {
    let ids =
        |jobs: Vec<(JobId, (u32, u64))>| jobs.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    let log = found(&client.broker, TOPIC).await?;
    let dead = ids(found(&client.broker, DEAD).await?);
    let moved = ids(found(&client.broker, MOVED).await?);
    client.knowledge.lock().jobs.check(&log, &dead, &moved, rules, &client.verdict);
    Ok(())
}
