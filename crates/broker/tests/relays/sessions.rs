//! Operations of a session at any node.

use std::time::Duration;

use base::PartitionId;
use broker::delivery::{ConsumeError, PeekOptions, SettleError, SettleTarget, TransferError};
use broker::{ConsumeOptions, Event, Settle, Settlement};
use delivery::limits::RELAY_SIGN_EVERY;
use shard::limits::LEASE_CONNECTION_UNREAD_BYTES_MAX;
use tokio::time::{sleep, timeout};

use crate::harness::*;

#[tokio::test]
async fn records_consumed_at_a_follower_are_settled_there() {
    let cluster = Cluster::start(1, &[]).await;
    let mut consumer = cluster.consume(cluster.follower().await, window(5)).await;
    cluster.append(0, &values(0..12)).await;
    let first = consumer.next(5).await;
    assert_eq!(texts(&first), values(0..5));
    assert!(consumer.some(Duration::from_millis(100)).await.is_empty(), "its window is full");
    consumer.accept(&first[..2]).await;
    let back = Settlement::Release { delay_ms: Some(0), count: true };
    consumer.settle(&first[2..3], back).await.remove(0).expect("released");
    let mut more = Vec::new();
    while more.len() < 3 {
        more.extend(consumer.some(SOON).await);
    }
    more.sort_by_key(|delivery| delivery.offset);
    assert_eq!(texts(&more), ["v2", "v5", "v6"]);
    assert_eq!((more[0].attempt, more[1].attempt), (2, 1));
    assert_eq!(
        consumer.settle(&first[..1], Settlement::Accept).await,
        [Err(SettleError::NotLeased)]
    );
    consumer.accept(&first[3..]).await;
    consumer.accept(&more).await;
    let mut rest = Vec::new();
    while rest.len() < 5 {
        rest.extend(consumer.some(SOON).await);
    }
    consumer.accept(&rest).await;
    for node in 1..=3 {
        let counters = cluster.broker(node).counters(cluster.group).await.expect("there");
        assert_eq!((counters.depth, counters.consumers, counters.settled), (0, 1, 12));
    }
}

#[tokio::test]
async fn records_of_a_cancelled_take_or_closed_session_are_released() {
    let cluster = Cluster::start(1, &[]).await;
    let session = cluster.broker(cluster.follower().await).lease_session();
    assert!(take(&session, cluster.group, 3, Duration::ZERO).await.is_empty());
    // It is cancelled while it waits.
    let waiting = take(&session, cluster.group, 3, Duration::from_secs(15));
    assert!(timeout(Duration::from_millis(100), waiting).await.is_err());
    // The cancellation reaches the leader before the append.
    sleep(RELAY_SIGN_EVERY).await;
    cluster.append(0, &values(0..4)).await;
    let ready = async || {
        let counters = cluster.broker(1).counters(cluster.group).await.expect("there");
        counters.ready == 4
    };
    wait_for(ready, || "what nobody waits for comes back".to_owned()).await;
    let taken = take(&session, cluster.group, 3, Duration::from_secs(15)).await;
    assert_eq!((texts(&taken), taken[0].attempt), (values(0..3), 1));
    let waiting = take(&session, cluster.group, 1, Duration::from_secs(15)).await;
    assert_eq!(texts(&waiting), ["v3"]);
    drop(session);
    let ready = async || {
        let counters = cluster.broker(2).counters(cluster.group).await.expect("there");
        counters.ready == 4 && counters.leased == 0
    };
    wait_for(ready, || "a closed session's leases come back".to_owned()).await;
}

#[tokio::test]
async fn cancelled_consumer_gets_no_more_and_keeps_its_leases() {
    let cluster = Cluster::start(1, &[]).await;
    let mut consumer = cluster.consume(cluster.follower().await, window(3)).await;
    cluster.append(0, &values(0..3)).await;
    let held = consumer.next(3).await;
    timeout(SOON, consumer.session.cancel(consumer.id)).await.expect("soon");
    cluster.append(0, &values(3..6)).await;
    assert!(consumer.some(Duration::from_millis(100)).await.is_empty());
    consumer.accept(&held).await;
    let counters = cluster.broker(1).counters(cluster.group).await.expect("there");
    assert_eq!((counters.ready, counters.leased, counters.consumers), (3, 0, 0));
}

#[tokio::test]
async fn sessions_of_all_nodes_share_a_group_and_an_exclusive_one_is_alone() {
    let cluster = Cluster::start(1, &[]).await;
    let mut consumers = Vec::new();
    for node in 1..=3 {
        consumers.push(cluster.consume(node, window(2)).await);
    }
    cluster.append(0, &values(0..6)).await;
    let mut all = Vec::new();
    for consumer in &mut consumers {
        let two = consumer.next(2).await;
        consumer.accept(&two[..1]).await;
        all.extend(texts(&two));
    }
    all.sort();
    assert_eq!(all, values(0..6));
    let leases = cluster.broker(cluster.follower().await).leases(cluster.group, None, 100).await;
    let mut sessions: Vec<u64> = leases.iter().map(|lease| lease.session).collect();
    sessions.sort_unstable();
    let mut expected: Vec<u64> = consumers.iter().map(|it| it.session.id()).collect();
    expected.sort_unstable();
    assert_eq!(sessions, expected);
    let exclusive = ConsumeOptions { exclusive: true, ..window(1) };
    for node in 1..=3 {
        let session = cluster.broker(node).lease_session();
        let refused = session.consume(cluster.group, exclusive).await;
        assert_eq!(refused, Err(ConsumeError::Exclusive));
    }
}

#[tokio::test]
async fn records_move_to_another_topic_in_one_entry_from_any_node() {
    let cluster = Cluster::start(3, &[]).await;
    let follower = cluster.follower().await;
    let mut consumer = cluster.consume(follower, window(10)).await;
    cluster.append(0, &values(0..2)).await;
    let held = consumer.next(2).await;
    let settle = |settlement| Settle { group: cluster.group, what: held[0].lease(), settlement };
    for partition in [0, 1, 2] {
        // It settles in one shard and appends in any.
        let to = PartitionId::new(cluster.topic, partition);
        let settles = match partition {
            0 => vec![settle(Settlement::Accept)],
            _ => Vec::new(),
        };
        let batches = vec![batch(to, &[format!("moved to {partition}")])];
        let moved = timeout(SOON, consumer.session.transfer(settles, batches)).await.expect("soon");
        assert_eq!(moved.expect("it takes effect").len(), 1);
        assert_eq!(texts(&consumer.next(1).await), [format!("moved to {partition}")]);
    }
    let again = consumer.session.transfer(vec![settle(Settlement::Accept)], Vec::new()).await;
    let source = SettleError::NotLeased;
    assert_eq!(again, Err(TransferError::Settle { item: 0, source }));
    let unknown = PartitionId::new(cluster.topic, 77);
    let refused = consumer.session.transfer(Vec::new(), vec![batch(unknown, &values(0..1))]).await;
    assert!(matches!(refused, Err(TransferError::Append { batch: 0, .. })), "{refused:?}");
}

#[tokio::test]
async fn operators_inspect_and_change_a_group_at_any_node() {
    let cluster = Cluster::start(1, &[]).await;
    let follower = cluster.broker(cluster.follower().await);
    cluster.append(0, &values(0..10)).await;
    let session = follower.lease_session();
    let held = take(&session, cluster.group, 1, Duration::from_secs(5)).await;
    assert_eq!(follower.leases(cluster.group, None, 10).await.len(), 1);
    let all = async || {
        let peeked = follower.peek(cluster.group, PeekOptions::default()).await.expect("peeks");
        peeked.len() == 10
    };
    wait_for(all, || "all records are seen".to_owned()).await;
    follower.delete_record(cluster.group, 0, 5).await.expect("removed");
    assert!(follower.delete_record(cluster.group, 0, 5).await.is_err(), "it is gone");
    assert!(
        follower.delete_record(cluster.group, 0, held[0].offset).await.is_err(),
        "it is leased"
    );
    assert_eq!(follower.purge(cluster.group).await, Ok(8));
    let counters = follower.counters(cluster.group).await.expect("there");
    assert_eq!((counters.depth, counters.leased), (1, 1));
}

#[tokio::test]
async fn deliveries_to_a_session_that_does_not_read_are_bounded() {
    let cluster = Cluster::start(1, &[]).await;
    let mut consumer = cluster.consume(cluster.follower().await, ConsumeOptions::default()).await;
    let value = "x".repeat(256 << 10);
    let mut appended = 0;
    while appended < 6 * LEASE_CONNECTION_UNREAD_BYTES_MAX {
        cluster.append(0, &[value.clone(), value.clone()]).await;
        appended += 2 * value.len();
    }
    let leased = async || {
        cluster.broker(1).counters(cluster.group).await.expect("there").leased_bytes as usize
    };
    // Unread bytes at both nodes, and the deliveries of one iteration.
    wait_for(async || leased().await > LEASE_CONNECTION_UNREAD_BYTES_MAX, || "the bound".into())
        .await;
    sleep(Duration::from_millis(500)).await;
    let held = leased().await;
    assert!(held <= 3 * LEASE_CONNECTION_UNREAD_BYTES_MAX, "{held} of {appended}");
    // Once it reads, it gets all of it.
    let mut read = 0;
    while read < appended {
        let event = timeout(SOON, consumer.events.recv()).await.expect("it goes on");
        let Some(Event::Deliveries(deliveries)) = event else { panic!("{event:?}") };
        read += deliveries.iter().map(|it| it.value().map_or(0, |it| it.len())).sum::<usize>();
    }
}

#[tokio::test]
async fn granted_credit_is_split_over_the_leaders_of_three_shards() {
    let cluster = Cluster::start(3, &[]).await;
    for partition in 0..3 {
        cluster.append(partition, &values(0..20)).await;
    }
    let mut consumer = cluster.consume(2, window(4)).await;
    let mut settled = 0;
    while settled < 60 {
        let some = consumer.some(SOON).await;
        assert!((1..=4).contains(&some.len()), "{} at a time", some.len());
        consumer.accept(&some).await;
        settled += some.len();
    }
    let unknown = SettleTarget::Range { partition: 0, first: 0, last: 3 };
    let what = Settle { group: cluster.group, what: unknown, settlement: Settlement::Accept };
    assert_eq!(consumer.session.settle(vec![what]).await, [Err(SettleError::NotLeased)]);
}
