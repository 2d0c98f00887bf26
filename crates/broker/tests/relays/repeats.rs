//! Settles that are not durable when the leader changes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use base::LeaseGroupId;
use broker::{ConsumeOptions, Credit, NewTopic, Settle, Settlement};
use tokio::time::{Instant, sleep};

use crate::harness::*;

const RECORDS: usize = 600;
const RELEASE: Settlement = Settlement::Release { delay_ms: Some(0), count: true };

/// Settlement of a record's first delivery.
fn first_settlement(value: &str) -> Settlement {
    let number: usize = value[1..].parse().expect("a number");
    [Settlement::Accept, Settlement::Reject, RELEASE, Settlement::Accept][number % 4]
}

impl Cluster {
    /// A group of the dead-letter topic.
    async fn dead_letters(&self) -> LeaseGroupId {
        let broker = self.broker(1);
        let letters = NewTopic {
            name: "letters".to_owned(),
            uuid: broker.entropy().uuid(),
            partitions: 1,
            config: Default::default(),
        };
        let letters = broker.create_topic(letters).await.expect("it is new");
        let made =
            broker.create_lease_group(letters, "main".into(), Vec::new(), Default::default());
        made.await.expect("it is new")
    }
}

/// The attempts of each value, of all consumers, in the order of its deliveries.
type Attempts = Mutex<BTreeMap<String, Vec<u16>>>;

/// Settles without waiting for replies, as AMQP clients do, until nothing is left.
async fn work(cluster: &Cluster, consumer: &mut Consumer, attempts: &Attempts) {
    let begun = Instant::now();
    loop {
        let some = consumer.some(Duration::from_millis(200)).await;
        if some.is_empty() {
            let counters = cluster.broker(1).counters(cluster.group).await;
            if counters.is_some_and(|it| it.depth == 0) {
                return;
            }
            assert!(begun.elapsed() < 3 * SOON, "{counters:?}");
        }
        for three in some.chunks(3) {
            let settle = |delivery: &broker::Delivery| {
                let value = text(delivery);
                let mut attempts = attempts.lock().expect("no panic");
                let before = attempts.entry(value.clone()).or_default();
                let settlement = match before.is_empty() {
                    true => first_settlement(&value),
                    false => Settlement::Accept,
                };
                before.push(delivery.attempt);
                Settle { group: delivery.group, what: delivery.lease(), settlement }
            };
            drop(consumer.session.settle(three.iter().map(settle).collect()));
            sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn settles_in_flight_at_a_hand_over_take_effect_once_at_the_next_leader() {
    let config = [("dead.letter.topic", "letters"), ("attempts.max", "5")];
    let cluster = Cluster::start(1, &config).await;
    let leader = cluster.leader(0).await;
    let of_letters = cluster.dead_letters().await;
    let window = || ConsumeOptions { credit: Credit::records(50), ..ConsumeOptions::default() };
    // One is at the leader, and one at another node.
    let mut at_leader = cluster.consume(leader, window()).await;
    let mut at_follower = cluster.consume(leader % 3 + 1, window()).await;
    cluster.append(0, &values(0..RECORDS)).await;
    let moving = async {
        for _ in 0..3 {
            sleep(Duration::from_millis(60)).await;
            let leader = cluster.leader(0).await;
            cluster.broker(leader).hand_over().await;
            let moved = async || cluster.leader(0).await != leader;
            wait_for(moved, || "the leader moves".into()).await;
        }
    };
    let attempts = Attempts::default();
    let working = async {
        tokio::join!(
            work(&cluster, &mut at_leader, &attempts),
            work(&cluster, &mut at_follower, &attempts)
        )
    };
    let ((), ((), ())) = tokio::join!(moving, working);
    let attempts = attempts.into_inner().expect("no panic");
    assert_eq!(attempts.len(), RECORDS);
    let mut wrong = Vec::new();
    for (value, attempts) in &attempts {
        // A first delivery after a leader was lost counts as if there had been one before.
        let deliveries = if first_settlement(value) == RELEASE { 2 } else { 1 };
        let counts = attempts.iter().is_sorted_by(|one, next| one < next);
        if attempts.len() != deliveries || !counts {
            wrong.push((value, attempts));
        }
    }
    assert!(wrong.is_empty(), "delivered too often: {wrong:?}");
    let settled = async || {
        let counters = cluster.broker(1).counters(cluster.group).await;
        counters.is_some_and(|it| (it.depth, it.leased) == (0, 0))
    };
    wait_for(settled, || "all is settled".into()).await;
    let dead = async || cluster.broker(1).counters(of_letters).await.map(|it| it.ready);
    let all_dead = async || dead().await == Some(RECORDS as u64 / 4);
    wait_for(all_dead, || "a dead letter for each reject".into()).await;
}
