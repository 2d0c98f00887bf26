//! Nodes that stand still or lose a majority for a moment: consumers at nodes that live keep their leases, and their
//! acknowledgements take effect, whichever node leads afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::Settlement;
use broker::delivery::SettleError;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::*;

/// Longer than a silent connection stays open.
const PAUSE: Duration = Duration::from_millis(2_300);

impl Consumer {
    /// All deliveries within this time.
    async fn all(&mut self, within: Duration) -> Vec<String> {
        let (until, mut all) = (Instant::now() + within, Vec::new());
        while Instant::now() < until {
            all.extend(texts(&self.some(until - Instant::now()).await));
        }
        all
    }
}

impl Cluster {
    /// Waits until all records are settled.
    async fn is_drained(&self, node: u32) {
        let drained = async || {
            let counters = self.broker(node).counters(self.group).await;
            counters.is_some_and(|it| (it.depth, it.leased) == (0, 0))
        };
        wait_for(drained, || "all is settled".into()).await;
    }
}

#[tokio::test]
async fn leases_of_a_node_that_stood_still_continue_under_the_same_leader() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let gateway = leader % 3 + 1;
    let mut consumer = cluster.consume(gateway, window(10)).await;
    cluster.append(0, &values(0..10)).await;
    let held = consumer.next(10).await;
    let mut other = cluster.consume(leader, window(20)).await;
    cluster.pause(gateway, PAUSE);
    sleep(Duration::from_millis(50)).await;
    let settled = consumer.session.settle(settles(&held[..5], Settlement::Accept));
    let again = other.all(PAUSE + Duration::from_secs(1)).await;
    assert_eq!(again, Vec::<String>::new(), "their consumer is there");
    let settled = timeout(SOON, settled).await.expect("it is answered");
    assert_eq!(settled, vec![Ok(()); 5]);
    assert_eq!(cluster.leader(0).await, leader);
    consumer.accept(&held[5..]).await;
    cluster.is_drained(gateway).await;
    // Consumers and credit are as before.
    cluster.append(0, &values(10..20)).await;
    let (one, two) = (consumer.next(5).await, other.next(5).await);
    consumer.accept(&one).await;
    other.accept(&two).await;
    cluster.is_drained(leader).await;
}

#[tokio::test]
async fn leases_and_settles_survive_a_leader_that_leads_again_in_the_next_term() {
    let cluster = Cluster::start(1, &[]).await;
    let mut leader = cluster.leader(0).await;
    let (one, two) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    // A node whose disk was full campaigns late, so that the former leader is elected.
    for node in [one, two] {
        for is_full in [true, false] {
            cluster.fill_disk(node, is_full);
            let noticed = async || cluster.broker(node).disk_is_full() == is_full;
            wait_for(noticed, || "the node knows its disk".into()).await;
        }
    }
    let mut consumers = Vec::new();
    for node in [leader, one, two] {
        consumers.push(cluster.consume(node, window(10)).await);
    }
    let mut delivered: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..3 {
        let records = round * 15..round * 15 + 15;
        cluster.append(0, &values(records.clone())).await;
        let mut held = vec![Vec::new(); consumers.len()];
        while held.iter().map(Vec::len).sum::<usize>() < 15 {
            for (consumer, held) in consumers.iter_mut().zip(&mut held) {
                held.extend(consumer.some(Duration::from_millis(50)).await);
            }
        }
        for value in held.iter().flat_map(|held| texts(held)) {
            *delivered.entry(value).or_default() += 1;
        }
        // It notices on waking that no majority has replied.
        cluster.pause(leader, Duration::from_millis(1_000));
        sleep(Duration::from_millis(20)).await;
        // Some settles are in flight meanwhile, and the other leases are only held.
        let settled: Vec<_> = consumers
            .iter()
            .zip(&held)
            .map(|(consumer, held)| {
                consumer.session.settle(settles(&held[..held.len() / 2], Settlement::Accept))
            })
            .collect();
        for settled in settled {
            for result in timeout(SOON, settled).await.expect("it is answered") {
                // The leader applied it, and its reply was lost.
                let is_well = matches!(result, Ok(()) | Err(SettleError::Unavailable(_)));
                assert!(is_well, "{result:?}");
            }
        }
        for (consumer, held) in consumers.iter().zip(&held) {
            consumer.accept(&held[held.len() / 2..]).await;
        }
        for consumer in &mut consumers {
            for value in consumer.all(Duration::from_millis(500)).await {
                *delivered.entry(value).or_default() += 1;
            }
        }
        cluster.is_drained(one).await;
        leader = cluster.leader(0).await;
    }
    delivered.retain(|_, count| *count != 1);
    assert_eq!(delivered, BTreeMap::new(), "delivered again");
}

/// The node has no replica of the shard: the leader changes without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_leader_waits_for_the_leases_of_a_node_that_stands_still() {
    let cluster = Cluster::start_of(4, 1, &[]).await;
    let (leader, gateway) = (cluster.leader(0).await, cluster.outsider(0));
    let mut consumer = cluster.consume(gateway, window(10)).await;
    cluster.append(0, &values(0..10)).await;
    let held = consumer.next(10).await;
    let mut other = cluster.consume(leader, window(20)).await;
    cluster.pause(gateway, Duration::from_millis(1_200));
    sleep(Duration::from_millis(20)).await;
    let moving = cluster.broker(leader).hand_over();
    let consuming = async {
        let settled = consumer.session.settle(settles(&held[..5], Settlement::Accept));
        let again = other.all(Duration::from_secs(2)).await;
        assert_eq!(again, Vec::<String>::new(), "their consumer is there");
        let settled = timeout(SOON, settled).await.expect("it is answered");
        assert_eq!(settled, vec![Ok(()); 5]);
    };
    tokio::join!(moving, consuming);
    assert_ne!(cluster.leader(0).await, leader);
    consumer.accept(&held[5..]).await;
    cluster.is_drained(gateway).await;
}
