//! A consumer that settles records while leadership moves between healthy nodes. Every settle takes effect: no
//! record stays leased to the consumer after its settle, though a reply may be lost with the former leader.

use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::Broker;
use broker::delivery::{Counters, Events};
use record::BatchOptions;
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::clients::consumers::{Consumer, ConsumerSession, group};
use super::clients::producers::{PARTITIONS, topic};
use crate::history::{SentRecord, sent_value};
use crate::random::Random;
use crate::verdict::Invariant;
use crate::workload::{RecordToSend, batch};

const RECORDS_PER_PARTITION: u32 = 20;
/// First number of the producers and consumers of this part.
const FIRST_ID: u32 = 2_000;
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// Simulated time limit for the leases of former consumers to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Shorter than any lease, so that a leftover lease does not expire meanwhile.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);

/// A consumer at each node in turn.
pub(super) async fn judge(shared: &Shared, mut random: Random) {
    let topic = topic(shared, &mut random).await;
    let lease_ms = shared.lock().leased.lease_ms;
    for place in shared.members() {
        let Some(broker) = shared.broker(place) else { continue };
        let Some(group) = group(&broker, topic, lease_ms).await else { continue };
        if let Err(why) = consume(shared, &mut random, place as u32, topic, group).await {
            let verdict = shared.lock().verdict.clone();
            verdict.violated(Invariant::Progress, why);
        }
    }
}

async fn consume(
    shared: &Shared,
    random: &mut Random,
    place: u32,
    topic: TopicId,
    group: LeaseGroupId,
) -> Result<(), String> {
    let Some(broker) = shared.broker(place as usize) else { return Ok(()) };
    append(&broker, topic, place).await;
    let counters = counters_once(&broker, group, PATIENCE, |counters| counters.leased == 0).await;
    if counters.is_none_or(|counters| counters.leased > 0) {
        return Err(format!("leases of consumers that have left remain: {counters:?}"));
    }
    let mut consumer = Consumer::new(FIRST_ID + place, shared.clone(), random.fork());
    let Some((mut at, mut events)) = consumer.join(broker.clone(), topic, group).await else {
        return Ok(());
    };
    let until = Instant::now() + Duration::from_secs(3);
    tokio::select! {
        biased;
        () = consumer.settle_until(&mut at, &mut events, until) => {}
        () = move_leaders(shared, random.fork()) => {}
    }
    let checked = check(&consumer, &broker, &mut at, &mut events, group).await;
    consumer.leave(&at);
    checked
}

async fn append(broker: &Broker, topic: TopicId, place: u32) {
    for index in 0..PARTITIONS {
        let value = |number| {
            let producer = FIRST_ID + place;
            sent_value(SentRecord { producer, number: index * RECORDS_PER_PARTITION + number }, 10)
        };
        let new = |number| RecordToSend { key: None, value: value(number), headers: Vec::new() };
        let values: Vec<RecordToSend> = (0..RECORDS_PER_PARTITION).map(new).collect();
        let partition = PartitionId::new(topic, index);
        let batch = batch(partition, BatchOptions::default(), broker.clock().now_ms(), &values);
        // Fewer records suffice: this part checks settles only.
        let _ = timeout(ANSWERED_WITHIN, broker.append_at_leaders(vec![batch])).await;
    }
}

/// Makes one node after the other transfer all its leaderships. Never ends.
async fn move_leaders(shared: &Shared, mut random: Random) {
    loop {
        sleep(Duration::from_millis(random.between(20, 400))).await;
        if let Some(broker) = shared.any_broker(&mut random) {
            broker.hand_over().await;
        }
    }
}

/// The counters of the group as soon as they are as expected, otherwise the last ones.
async fn counters_once(
    broker: &Broker,
    group: LeaseGroupId,
    within: Duration,
    expected: impl Fn(&Counters) -> bool,
) -> Option<Counters> {
    let (deadline, mut last) = (Instant::now() + within, None);
    loop {
        let counters = timeout(ANSWERED_WITHIN, broker.counters(group)).await.ok().flatten();
        last = counters.or(last);
        if counters.as_ref().is_some_and(&expected) || Instant::now() >= deadline {
            return last;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Checks that the group leases no more records than its one consumer holds.
async fn check(
    consumer: &Consumer,
    broker: &Broker,
    at: &mut ConsumerSession,
    events: &mut Events,
    group: LeaseGroupId,
) -> Result<(), String> {
    let deadline = Instant::now() + NOTICED_WITHIN;
    loop {
        if !consumer.receive(events, at, Duration::from_millis(20)).await {
            return Ok(());
        }
        let counters = counters_once(broker, group, Duration::ZERO, |_| true).await;
        let (leased, held) = (counters.map(|counters| counters.leased), at.held.len() as u64);
        if leased.is_some_and(|leased| leased <= held) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return match leased {
                Some(leased) => {
                    Err(format!("{leased} records are leased to a consumer that holds {held}"))
                }
                None => Err("the counters of the group are not known".to_owned()),
            };
        }
    }
}
