//! Clients of a simulated cluster that lease records at any node, wherever the leaders of their shards are, and
//! settle them there. Rejected records become dead letters, mostly in another shard.

use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::delivery::{Events, SettleError};
use broker::{Broker, ConsumeOptions, Credit, Delivery, Event, LeaseSession, Settle, Settlement};
use tokio::time::{Instant, sleep, timeout};

use super::leased::{LeaderTerm, LeaseEnd, LeasedPosition, ObservedDelivery};
use super::producers::{PARTITIONS, leader, topic, topic_named};
use crate::cluster::Shared;
use crate::history::{SentRecord, sent_of};
use crate::random::Random;
use crate::reading;
use crate::verdict::Invariant;

const GROUP: &str = "workers";
const DEAD_LETTERS: &str = "log-dead";
/// Without a reply in this time a client restarts at another node.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// Simulated time limit for a healed cluster to deliver everything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Simulated time limit for the second copy of a duplicate dead letter to appear.
const TWICE_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Consumer {
    id: u32,
    shared: Shared,
    random: Random,
}

/// One consumer's session at a node.
pub(crate) struct ConsumerSession {
    shared: Shared,
    /// A number, because a handle would keep a killed node in memory.
    node: u32,
    topic: TopicId,
    session: LeaseSession,
    pub(crate) held: Vec<Delivery>,
    /// When it had last received all available records, and its node's leaderships at that time.
    received_ms: u64,
    led: Vec<Option<LeaderTerm>>,
}

impl ConsumerSession {
    /// The leadership of each partition that this node leads.
    fn leads(&self) -> Vec<Option<LeaderTerm>> {
        let Some(broker) = self.shared.broker_of(self.node) else {
            return vec![None; PARTITIONS as usize];
        };
        let leaders = broker.leaders(self.topic);
        let of = |index| {
            let leader = leaders.of(index);
            let partition = PartitionId::new(self.topic, index);
            let leads = leader.node == Some(self.node) && broker.leads(partition);
            leads.then_some((self.node, leader.epoch))
        };
        (0..PARTITIONS).map(of).collect()
    }

    /// The leadership of the partition, if it is unchanged since the consumer had received everything.
    fn still_leads(&self, partition: u32) -> Option<LeaderTerm> {
        let before = self.led.get(partition as usize).copied().flatten();
        before.filter(|_| self.leads()[partition as usize] == before)
    }
}

impl Consumer {
    pub(crate) fn new(id: u32, shared: Shared, random: Random) -> Self {
        Self { id, shared, random }
    }

    /// Consumes at one node after the other until everything is healed.
    pub(crate) async fn run(mut self) {
        let topic = topic(&self.shared, &mut self.random).await;
        topic_named(DEAD_LETTERS, PARTITIONS, &self.shared, &mut self.random).await;
        while !self.shared.lock().is_healed {
            let Some(broker) = self.shared.any_broker(&mut self.random) else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let lease_ms = self.shared.lock().leased.lease_ms;
            let Some(group) = group(&broker, topic, lease_ms).await else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let lasts = Duration::from_millis(self.random.between(300, 6_000));
            self.consume(broker, topic, group, Instant::now() + lasts).await;
        }
    }

    async fn consume(
        &mut self,
        broker: Broker,
        topic: TopicId,
        group: LeaseGroupId,
        until: Instant,
    ) {
        if let Some((mut at, mut events)) = self.join(broker, topic, group).await {
            self.settle_until(&mut at, &mut events, until).await;
            self.leave(&at);
        }
    }

    /// Begins to consume at a node; `None` if the node does not reply.
    pub(crate) async fn join(
        &mut self,
        broker: Broker,
        topic: TopicId,
        group: LeaseGroupId,
    ) -> Option<(ConsumerSession, Events)> {
        let session = broker.lease_session();
        let node = broker.node();
        drop(broker);
        let events = session.events()?;
        let credit = Credit::records(self.random.between(1, 12) as u32);
        let options = ConsumeOptions { credit, ..ConsumeOptions::default() };
        let received_ms = self.now_ms();
        let joined = timeout(ANSWERED_WITHIN, session.consume(group, options)).await;
        self.note(format_args!("consumes at node {node}: {joined:?}"));
        if !matches!(joined, Ok(Ok(_))) {
            sleep(Duration::from_millis(50)).await;
            return None;
        }
        let (shared, held, led) = (self.shared.clone(), Vec::new(), Vec::new());
        Some((ConsumerSession { shared, node, topic, session, held, received_ms, led }, events))
    }

    /// Settles most received records, in any order, until the given time or until its node ends.
    pub(crate) async fn settle_until(
        &mut self,
        at: &mut ConsumerSession,
        events: &mut Events,
        until: Instant,
    ) {
        while Instant::now() < until {
            let patience = Duration::from_millis(self.random.between(1, 200));
            if !self.receive(events, at, patience).await {
                // Its node has ended.
                return;
            }
            while !at.held.is_empty() && !self.random.once_in(4) {
                let place = self.random.below(at.held.len() as u64) as usize;
                let delivery = at.held.swap_remove(place);
                if !self.settle(at, &delivery).await {
                    return;
                }
            }
        }
    }

    /// Leaves with its leased records.
    pub(crate) fn leave(&self, at: &ConsumerSession) {
        self.note(format_args!("leaves node {} with {}", at.node, at.held.len()));
        self.shared.lock().leased.leave(self.id);
    }

    fn now_ms(&self) -> u64 {
        self.shared.lock().trace.now_ms()
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        let trace = self.shared.lock().trace.clone();
        trace.note(format_args!("consumer {} {what}", self.id));
    }

    /// Returns whether more may come.
    pub(crate) async fn receive(
        &self,
        events: &mut Events,
        at: &mut ConsumerSession,
        patience: Duration,
    ) -> bool {
        let mut next = timeout(patience, events.recv()).await.ok();
        while let Some(event) = next {
            match event {
                Some(Event::Deliveries(deliveries)) => {
                    deliveries.iter().for_each(|delivery| self.deliver(at, delivery));
                    at.held.extend(deliveries);
                }
                Some(Event::Active { .. }) => {}
                Some(Event::Gone { reason, .. }) => {
                    let what = format!("consumer {} is gone: {reason:?}", self.id);
                    self.shared.lock().verdict.violated(Invariant::Consumed, what);
                }
                None => return false,
            }
            next = events.try_recv().map(Some);
        }
        (at.received_ms, at.led) = (self.now_ms(), at.leads());
        true
    }

    fn deliver(&self, at: &ConsumerSession, delivery: &Delivery) {
        let place = place(delivery);
        let led = at.still_leads(delivery.partition);
        let sent = delivery.value().as_deref().and_then(sent_of);
        let mut state = self.shared.lock();
        let (now_ms, verdict) = (state.trace.now_ms(), state.verdict.clone());
        let Some(sent) = sent else {
            let what = format!("{place:?} is delivered as something that nobody sent");
            return verdict.violated(Invariant::Once, what);
        };
        let (consumer, leased_from_ms) = (self.id, at.received_ms);
        let seen = ObservedDelivery { place, consumer, sent, led, leased_from_ms, now_ms };
        state.leased.deliver(seen, &verdict);
    }

    /// Returns whether it was answered.
    async fn settle(&mut self, at: &ConsumerSession, delivery: &Delivery) -> bool {
        let (settlement, way) = match self.random.below(8) {
            0 => {
                let delay_ms = self.random.of(&[0, 0, 300, 2_000]);
                (Settlement::Release { delay_ms: Some(delay_ms), count: false }, None)
            }
            1 | 2 => (Settlement::Reject, Some(LeaseEnd::Rejected)),
            _ => (Settlement::Accept, Some(LeaseEnd::Accepted)),
        };
        let place = place(delivery);
        let asked_ms = self.now_ms();
        let (was_settled, deliveries) = {
            let mut state = self.shared.lock();
            let deliveries = state.leased.let_go(place, self.id);
            if let Some(way) = way {
                state.leased.settle(place, way);
            }
            // The confirmation of a release may arrive after the next consumer's settle was confirmed.
            (state.leased.is_settled(place), deliveries)
        };
        let leads = at.leads()[delivery.partition as usize];
        let settle = Settle { group: delivery.group, what: delivery.lease(), settlement };
        let settled = timeout(ANSWERED_WITHIN, at.session.settle(vec![settle])).await;
        let Ok(answer) = settled.map(|mut all| all.remove(0)) else { return false };
        self.note(format_args!("settles {place:?} by {settlement:?}: {answer:?}"));
        let leads = leads.filter(|_| at.leads()[delivery.partition as usize] == leads);
        let mut state = self.shared.lock();
        let verdict = state.verdict.clone();
        match (answer, settlement) {
            (Ok(()), Settlement::Release { delay_ms, .. }) => {
                if was_settled {
                    let what = format!("{place:?} was settled, and was leased again");
                    verdict.violated(Invariant::Settled, what);
                }
                let until_ms = asked_ms + delay_ms.unwrap_or(0) as u64;
                state.leased.released(place, deliveries, leads, until_ms);
            }
            (Ok(()), _) => {
                if let Some(way) = way {
                    state.leased.settled(place, way, &verdict);
                }
            }
            (Err(SettleError::NotLeased | SettleError::Unavailable(_)), _) => {}
            (Err(other), _) => {
                let what = format!("consumer {} may not settle: {other}", self.id);
                verdict.violated(Invariant::Alive, what);
            }
        }
        true
    }
}

fn place(delivery: &Delivery) -> LeasedPosition {
    (delivery.partition, delivery.offset)
}

/// The group, which is created if absent.
pub(crate) async fn group(broker: &Broker, topic: TopicId, lease_ms: u64) -> Option<LeaseGroupId> {
    let found = broker.catalog().lease_group_named(topic, GROUP).map(|group| group.id());
    if found.is_some() {
        return found;
    }
    let lease_ms = lease_ms.to_string();
    let config =
        [("lease.ms", &*lease_ms), ("attempts.max", "0"), ("dead.letter.topic", DEAD_LETTERS)];
    let config = config.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let made = broker.create_lease_group(topic, GROUP.to_owned(), Vec::new(), config.into());
    timeout(ANSWERED_WITHIN, made).await.ok()?.ok()
}

/// Consumes the remaining records at each node in turn, once everything is healed. Then every record was seen, and
/// every rejected one is a dead letter.
pub(crate) async fn judge(shared: &Shared, mut random: Random) {
    if let Err(why) = drain(shared, &mut random).await {
        let verdict = shared.lock().verdict.clone();
        verdict.violated(Invariant::Progress, why);
    }
}

async fn drain(shared: &Shared, random: &mut Random) -> Result<(), String> {
    let topic = topic(shared, random).await;
    let deadline = Instant::now() + PATIENCE;
    let members = shared.members();
    let lease_ms = shared.lock().leased.lease_ms;
    for number in 0.. {
        let place = members[number % members.len()];
        let Some(broker) = shared.broker(place) else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(group) = group(&broker, topic, lease_ms).await else {
            // Leaders may still move, and then its creation fails.
            if Instant::now() > deadline {
                return Err("the group is not there".to_owned());
            }
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut consumer = Consumer::new(1_000 + place as u32, shared.clone(), random.fork());
        let until = Instant::now() + Duration::from_secs(2);
        consumer.consume(broker.clone(), topic, group, until).await;
        let counters = timeout(ANSWERED_WITHIN, broker.counters(group)).await;
        if matches!(counters, Ok(Some(counters)) if counters.depth == 0) && number >= members.len()
        {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!("not all is consumed: {counters:?}"));
        }
        broker.hand_over().await;
    }
    for index in 0..PARTITIONS {
        let partition = PartitionId::new(topic, index);
        let bounds = members.iter().filter_map(|place| shared.broker(*place)?.bounds(partition));
        let end = bounds.map(|bounds| bounds.end).max().unwrap_or(0);
        let state = shared.lock();
        if let Some(lost) = (0..end).find(|offset| !state.leased.was_seen((index, *offset))) {
            return Err(format!("record {lost} of partition {index} was delivered to nobody"));
        }
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = dead_letters(shared, random).await;
        let due = found.as_ref().map(|found| shared.lock().leased.dead_letters_due(found));
        match due {
            Ok(0) => break,
            due if Instant::now() > deadline => {
                return Err(format!("dead letters that are due: {due:?}"));
            }
            _ => sleep(Duration::from_millis(200)).await,
        }
    }
    sleep(TWICE_WITHIN).await;
    let found = loop {
        match dead_letters(shared, random).await {
            Ok(found) => break found,
            // Leadership returns to its preferred node, and the former leader replies so.
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(50)).await,
            Err(why) => return Err(why),
        }
    };
    let state = shared.lock();
    state.leased.check(&found, &state.verdict);
    Ok(())
}

/// All dead letters, as their leaders have them.
async fn dead_letters(shared: &Shared, random: &mut Random) -> Result<Vec<SentRecord>, String> {
    let topic = topic_named(DEAD_LETTERS, PARTITIONS, shared, random).await;
    let mut all = Vec::new();
    for index in 0..PARTITIONS {
        let partition = PartitionId::new(topic, index);
        let broker = leader(shared, random, partition).ok_or("nobody leads the dead letters")?;
        for (offset, sent) in reading::sent_in(&broker, partition).await? {
            all.push(sent.ok_or_else(|| format!("{partition} has nobody's record at {offset}"))?);
        }
    }
    Ok(all)
}
