//! Clients of a simulated cluster that lease records at any node, whoever leads their shards, and settle them there.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::delivery::{Events, SettleError};
use broker::{Broker, ConsumeOptions, Credit, Delivery, Event, LeaseSession, Settle, Settlement};
use tokio::time::{Instant, sleep, timeout};

use super::producers::{PARTITIONS, topic};
use super::{NODES, Shared};
use crate::random::Random;
use crate::verdict::Invariant;

const GROUP: &str = "workers";
/// Who gets no answer begins anew elsewhere.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// Simulated time in which a healed cluster has delivered everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// By partition and offset.
type Place = (u32, u64);

/// What consumers know together.
#[derive(Debug, Default)]
pub(crate) struct Leased {
    seen: BTreeSet<Place>,
    /// Those whose settle was confirmed.
    settled: BTreeSet<Place>,
}

#[derive(Debug)]
pub(super) struct Consumer {
    id: u32,
    shared: Shared,
    random: Random,
}

impl Consumer {
    pub(super) fn new(id: u32, shared: Shared, random: Random) -> Self {
        Self { id, shared, random }
    }

    /// Consumes at one node after the other until everything is healed.
    pub(super) async fn run(mut self) {
        let topic = topic(&self.shared, &mut self.random).await;
        while !self.shared.lock().is_healed {
            let Some(broker) = self.shared.any_broker(&mut self.random) else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let Some(group) = group(&broker, topic).await else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let lasts = Duration::from_millis(self.random.between(300, 6_000));
            self.consume(broker, group, Instant::now() + lasts).await;
        }
    }

    async fn consume(&mut self, broker: Broker, group: LeaseGroupId, until: Instant) {
        let session = broker.lease_session();
        let node = broker.node();
        // This handle would keep a node in memory that is killed meanwhile.
        drop(broker);
        let Some(mut events) = session.events() else { return };
        let credit = Credit::records(self.random.between(1, 12) as u32);
        let options = ConsumeOptions { credit, ..ConsumeOptions::default() };
        let joined = timeout(ANSWERED_WITHIN, session.consume(group, options)).await;
        self.note(format_args!("consumes at node {node}: {joined:?}"));
        if !matches!(joined, Ok(Ok(_))) {
            return sleep(Duration::from_millis(50)).await;
        }
        let mut held = Vec::new();
        while Instant::now() < until {
            let patience = Duration::from_millis(self.random.between(1, 200));
            if !self.receive(&mut events, &mut held, patience).await {
                // Its node has ended.
                return;
            }
            while !held.is_empty() && !self.random.once_in(4) {
                let place = self.random.below(held.len() as u64) as usize;
                let delivery = held.swap_remove(place);
                if !self.settle(&session, &delivery).await {
                    return;
                }
            }
        }
        // It leaves with whatever it holds.
        self.note(format_args!("leaves node {node} with {}", held.len()));
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        let trace = self.shared.lock().trace.clone();
        trace.note(format_args!("consumer {} {what}", self.id));
    }

    /// Whether more may come.
    async fn receive(
        &self,
        events: &mut Events,
        held: &mut Vec<Delivery>,
        patience: Duration,
    ) -> bool {
        let Ok(received) = timeout(patience, events.recv()).await else { return true };
        let more = received.is_some();
        let mut next = received;
        while let Some(event) = next {
            match event {
                Event::Deliveries(deliveries) => {
                    let mut state = self.shared.lock();
                    state.leased.seen.extend(deliveries.iter().map(place));
                    held.extend(deliveries);
                }
                Event::Active { .. } => {}
                Event::Gone { reason, .. } => {
                    let what = format!("consumer {} is gone: {reason:?}", self.id);
                    self.shared.lock().verdict.violated(Invariant::Consumed, what);
                }
            }
            next = events.try_recv();
        }
        more
    }

    /// Whether it was answered.
    async fn settle(&mut self, session: &LeaseSession, delivery: &Delivery) -> bool {
        let settlement = match self.random.once_in(8) {
            true => Settlement::Release { delay_ms: Some(0), count: false },
            false => Settlement::Accept,
        };
        let place = place(delivery);
        // Who gives back may hear of it after the next one's settle was confirmed.
        let was_settled = self.shared.lock().leased.settled.contains(&place);
        let settle = Settle { group: delivery.group, what: delivery.lease(), settlement };
        let settled = timeout(ANSWERED_WITHIN, session.settle(vec![settle])).await;
        let Ok(answer) = settled.map(|mut all| all.remove(0)) else { return false };
        self.note(format_args!("settles {place:?} by {settlement:?}: {answer:?}"));
        match answer {
            Ok(()) => {
                let mut state = self.shared.lock();
                let again = match settlement {
                    Settlement::Accept => !state.leased.settled.insert(place),
                    _ => was_settled,
                };
                if again {
                    let what = format!("{place:?} was settled, and was leased again");
                    state.verdict.violated(Invariant::Settled, what);
                }
            }
            Err(SettleError::NotLeased | SettleError::Unavailable(_)) => {}
            Err(other) => {
                let what = format!("consumer {} may not settle: {other}", self.id);
                self.shared.lock().verdict.violated(Invariant::Alive, what);
            }
        }
        true
    }
}

fn place(delivery: &Delivery) -> Place {
    (delivery.partition, delivery.offset)
}

/// The group, made if it is not there.
async fn group(broker: &Broker, topic: TopicId) -> Option<LeaseGroupId> {
    let found = broker.catalog().lease_group_named(topic, GROUP).map(|group| group.id());
    if found.is_some() {
        return found;
    }
    let made = broker.create_lease_group(topic, GROUP.to_owned(), Vec::new(), [].into());
    timeout(ANSWERED_WITHIN, made).await.ok()?.ok()
}

/// Nothing fails any more: what is left is consumed at each node in turn, and then all of it was seen.
pub(super) async fn judge(shared: &Shared, mut random: Random) {
    if let Err(why) = drain(shared, &mut random).await {
        let verdict = shared.lock().verdict.clone();
        verdict.violated(Invariant::Progress, why);
    }
}

async fn drain(shared: &Shared, random: &mut Random) -> Result<(), String> {
    let topic = topic(shared, random).await;
    let deadline = Instant::now() + PATIENCE;
    for number in 0.. {
        let place = number % NODES;
        let Some(broker) = shared.broker(place) else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let group = group(&broker, topic).await.ok_or("the group is not there")?;
        let mut consumer = Consumer::new(1_000 + place as u32, shared.clone(), random.fork());
        consumer.consume(broker.clone(), group, Instant::now() + Duration::from_secs(2)).await;
        let counters = timeout(ANSWERED_WITHIN, broker.counters(group)).await;
        if matches!(counters, Ok(Some(counters)) if counters.depth == 0) && number >= NODES {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!("not all is consumed: {counters:?}"));
        }
        broker.hand_over().await;
    }
    for index in 0..PARTITIONS {
        let partition = PartitionId::new(topic, index);
        let end =
            (0..NODES).filter_map(|place| shared.broker(place)?.bounds(partition)).map(|it| it.end);
        let end = end.max().unwrap_or(0);
        let state = shared.lock();
        if let Some(lost) = (0..end).find(|offset| !state.leased.seen.contains(&(index, *offset))) {
            return Err(format!("record {lost} of partition {index} was delivered to nobody"));
        }
    }
    Ok(())
}
