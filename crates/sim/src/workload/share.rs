//! A share group (KIP-932) with Kafka's protocol: members lease records, accept, release and reject them, let
//! leases expire, and leave with or without a request. Records that they reject, or release too often, go to a
//! topic for dead letters.

use std::time::Duration;

use client::requests::ProduceOutcome;
use client::share::{LeasedRecord, Settle, Settlement, ShareLimits, ShareMember};
use client::{CallError, Pipeline};
use tokio::time::timeout;

use super::jobs::found;
use super::{Client, LifeEnded, RecordToSend, kafka, number, settings, value};
use crate::checkers::jobs::{JobEnd, JobId, ReceivedDelivery, Rules};
use crate::network;
use crate::random::Random;

const TOPIC: &str = "shared";
const DEAD: &str = "shared-dead";
const TAKES_LETTERS: [(&str, &str); 1] = [("errors.deadletterqueue.group.enable", "true")];
const GROUP: &str = "sharers";
const PARTITIONS: u32 = 2;
const KEYS: u64 = 4;
pub const PRODUCERS: u64 = 1;
pub const CONSUMERS: u64 = 3;

/// Rules of the group of a run.
pub fn rules(random: &mut Random) -> Rules {
    let by_key = random.once_in(3);
    let lease_ms = random.of(&[1_000, 15_000]);
    // With keys an unseen dead record would look like a skipped one.
    let attempts_max = (!by_key && random.once_in(2)).then_some(4);
    Rules { by_key, lease_ms, attempts_max }
}

async fn open(client: &mut Client, rules: &Rules) -> Result<(), LifeEnded> {
    settings::allow(client).await?;
    let attempts = rules.attempts_max.map(|max| max.to_string());
    let config = [
        ("share.auto.offset.reset", "earliest"),
        ("share.record.lock.duration.ms", &rules.lease_ms.to_string()),
        ("share.delivery.count.limit", attempts.as_deref().unwrap_or(settings::ATTEMPTS_UNBOUNDED)),
        ("share.ordering", if rules.by_key { "key" } else { "free" }),
        ("errors.deadletterqueue.topic.name", DEAD),
        ("errors.deadletterqueue.copy.record.enable", "true"),
    ];
    settings::configure(client, GROUP, &config).await?;
    client.topic(DEAD, 1, &TAKES_LETTERS).await?;
    client.topic(TOPIC, PARTITIONS, &[]).await.map(drop)
}

pub async fn produce(mut client: Client, rules: Rules) -> LifeEnded {
    if open(&mut client, &rules).await.is_err() {
        return LifeEnded;
    }
    loop {
        let ended = match network::kafka().await {
            Ok(mut pipeline) => send(&mut client, &mut pipeline, &rules).await,
            Err(error) => error.into(),
        };
        client.trace.note(format_args!("producer of shared records is cut off: {ended}"));
        client.think(500).await;
    }
}

/// Sends until the connection fails, and returns the error.
async fn send(client: &mut Client, pipeline: &mut Pipeline, rules: &Rules) -> CallError {
    loop {
        let partition = client.random.below(PARTITIONS.into()) as u32;
        let (mut ids, mut records): (Vec<JobId>, Vec<RecordToSend>) = Default::default();
        for _ in 0..client.random.between(1, 5) {
            // A key is in one partition.
            let key = (client.random.below(KEYS) as u32 * PARTITIONS + partition) as u8;
            let is_keyed = rules.by_key || client.random.once_in(2);
            let padding = client.random.below(500) as usize;
            let id = client.knowledge.lock().shared.send(key, None);
            let (key, value) = (is_keyed.then_some(key), value(id, padding));
            ids.push(id);
            records.push(RecordToSend { key, value, headers: Vec::new() });
        }
        let answer = match kafka::append(client, pipeline, (TOPIC, partition), &records).await {
            Ok(answer) => answer,
            Err(error) => return error,
        };
        client.trace.note(format_args!("shared {ids:?} sent to {partition}: {answer:?}"));
        match answer {
            ProduceOutcome::Acknowledged { base_offset } => {
                for (id, offset) in ids.into_iter().zip(base_offset as u64..) {
                    client.knowledge.lock().shared.acknowledge(id, (partition, offset));
                }
            }
            ProduceOutcome::Refused { .. } => client.think(300).await,
        }
        client.think(150).await;
    }
}

/// Consumes, as one member after another.
pub async fn consume(mut client: Client, rules: Rules) -> LifeEnded {
    if open(&mut client, &rules).await.is_err() {
        return LifeEnded;
    }
    loop {
        let session = client.random.number();
        let lasts = Duration::from_millis(client.random.between(200, 6_000));
        let mut sharer = Sharer::new(client.fork(), rules, session, false);
        let ended = timeout(lasts, sharer.run()).await;
        client.trace.note(format_args!("sharer {session:x} goes: {ended:?}"));
        client.knowledge.lock().shared.close(session);
        client.think(300).await;
    }
}

/// Accepts all remaining records, until there is none.
pub async fn drain(mut client: Client, rules: Rules) -> Result<(), String> {
    open(&mut client, &rules).await.map_err(|error| format!("{error:?}"))?;
    Sharer::new(client, rules, 1, true).run().await.map_err(|error| error.to_string())
}

/// The settlement of a held record.
#[derive(Clone, Copy, Debug)]
enum ShareSettlement {
    End(JobEnd),
    Release,
}

struct Sharer {
    client: Client,
    rules: Rules,
    session: u64,
    /// Accepts everything, and ends when nothing is left.
    drains: bool,
    held: Vec<(JobId, LeasedRecord)>,
}

impl Sharer {
    fn new(client: Client, rules: Rules, session: u64, drains: bool) -> Self {
        Self { client, rules, session, drains, held: Vec::new() }
    }

    async fn run(&mut self) -> Result<(), CallError> {
        let (coordinator, leader) = (network::kafka().await?, network::kafka().await?);
        let (id, topics) = (self.client.broker.entropy().uuid(), [TOPIC.to_owned()]);
        let mut member = ShareMember::join(coordinator, leader, GROUP, &topics, id).await?;
        loop {
            let limits = ShareLimits {
                records_max: self.client.random.between(1, 8) as usize,
                bytes_max: 1 << 20,
                wait: Duration::from_millis(self.client.random.between(1, 300)),
            };
            let said = self.decide();
            let settles = settles(&said);
            if !said.is_empty() && self.client.random.once_in(2) {
                let settled = member.acknowledge(&settles);
                self.client.due("settles of a share group", settled).await?;
                self.confirmed(&said);
                continue;
            }
            let from_ms = self.client.trace.now_ms();
            let leased = member.fetch(limits, &settles);
            let leased = self.client.due("a fetch of a share group", leased).await?;
            self.confirmed(&said);
            let is_empty = leased.is_empty();
            self.receive(leased, from_ms);
            if self.drains && is_empty && depth(&self.client).await == Some(0) {
                return member.leave().await;
            }
            if !self.drains && self.client.random.once_in(30) {
                self.client.knowledge.lock().shared.close(self.session);
                return member.leave().await;
            }
        }
    }

    fn receive(&mut self, leased: Vec<LeasedRecord>, leased_from_ms: u64) {
        let Self { client, rules, session, held, .. } = self;
        for leased in leased {
            let Some(job) = number(&leased.value) else {
                let what = format!("{leased:?} is nobody's record");
                return client.verdict.violated(crate::verdict::Invariant::Once, what);
            };
            let (attempt, place) =
                (leased.attempt as u16, (leased.partition as u32, leased.offset as u64));
            let session = *session;
            client
                .trace
                .note(format_args!("shared {job} to sharer {session:x}, attempt {attempt}"));
            let now_ms = client.trace.now_ms();
            let wall_ms = client.broker.clock().now_ms();
            let delivered =
                ReceivedDelivery { job, session, place, attempt, leased_from_ms, now_ms, wall_ms };
            // A reply waits for the settles in the fetch, and its leases run meanwhile.
            if delivered.is_late(rules) {
                client.trace.note(format_args!("shared {job} came too late"));
                continue;
            }
            client.knowledge.lock().shared.deliver(delivered, rules, &client.verdict);
            // Its lease has expired, and it was redelivered.
            held.retain(|(other, _)| *other != job);
            held.push((job, leased));
        }
    }

    /// Settles some of the held records, and informs the checker before they are sent.
    fn decide(&mut self) -> Vec<(JobId, LeasedRecord, ShareSettlement)> {
        let mut said = Vec::new();
        let Self { client, session, drains, held, .. } = self;
        while !held.is_empty() && (*drains || !client.random.once_in(4)) {
            let place = client.random.below(held.len() as u64) as usize;
            let (job, leased) = held.swap_remove(place);
            let how = match client.random.below(8) {
                _ if *drains => ShareSettlement::End(JobEnd::Accepted),
                0 | 1 => ShareSettlement::Release,
                2 => ShareSettlement::End(JobEnd::Rejected),
                _ => ShareSettlement::End(JobEnd::Accepted),
            };
            let mut known = client.knowledge.lock();
            match how {
                ShareSettlement::Release => known.shared.release(job, *session),
                ShareSettlement::End(way) => known.shared.settle(job, way),
            }
            said.push((job, leased, how));
        }
        said
    }

    fn confirmed(&mut self, said: &[(JobId, LeasedRecord, ShareSettlement)]) {
        let Self { client, session, .. } = self;
        for (job, leased, how) in said {
            client.trace.note(format_args!("shared {job} is settled: {how:?}"));
            let mut known = client.knowledge.lock();
            match how {
                ShareSettlement::Release => {
                    known.shared.released(*job, leased.attempt as u16, None)
                }
                ShareSettlement::End(way) => known.shared.settled(*job, *session, *way),
            }
        }
    }
}

fn settles(said: &[(JobId, LeasedRecord, ShareSettlement)]) -> Vec<Settle> {
    let settle = |(_, leased, how): &(JobId, LeasedRecord, ShareSettlement)| {
        leased.settle(match how {
            ShareSettlement::Release => Settlement::Release,
            ShareSettlement::End(JobEnd::Rejected) => Settlement::Reject,
            ShareSettlement::End(_) => Settlement::Accept,
        })
    };
    said.iter().map(settle).collect()
}

/// Number of unsettled records; `None` while there is no group.
async fn depth(client: &Client) -> Option<u64> {
    let group = {
        let catalog = client.broker.catalog();
        catalog.lease_group_named(catalog.topic_id(TOPIC)?, GROUP)?.id()
    };
    Some(client.broker.counters(group).await?.depth)
}

/// Checks the final state, once the group has settled everything.
pub async fn check(client: &Client, rules: &Rules) -> Result<(), String> {
    let log = found(&client.broker, TOPIC).await?;
    let dead: Vec<JobId> = found(&client.broker, DEAD).await?.into_iter().map(|it| it.0).collect();
    client.knowledge.lock().shared.check(&log, &dead, &[], rules, &client.verdict);
    Ok(())
}
