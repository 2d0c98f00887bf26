//! Moves of leaders, and failures of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::PartitionId;
use broker::delivery::{CreditReturns, SettleError};
use broker::{ConsumeOptions, Credit, Settlement};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::*;

/// Settles all values at one consumer's node, each once: an acknowledged settle is not delivered again.
async fn work(consumer: &mut Consumer, count: usize) {
    let mut settled: BTreeSet<String> = BTreeSet::new();
    let begun = Instant::now();
    while settled.len() < count {
        assert!(begun.elapsed() < 3 * SOON, "{} of {count} were settled", settled.len());
        let some = consumer.some(Duration::from_millis(200)).await;
        for delivery in &some {
            assert!(!settled.contains(&text(delivery)), "{} was settled", text(delivery));
        }
        let results = consumer.settle(&some, Settlement::Accept).await;
        for (delivery, result) in some.iter().zip(results) {
            match result {
                Ok(()) => drop(settled.insert(text(delivery))),
                // Its lease was lost with the leader, or the record is settled already and does not come again.
                Err(SettleError::NotLeased) => {}
                Err(SettleError::Unavailable(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn consumer_continues_when_the_leader_moves() {
    let cluster = Cluster::start(1, &[]).await;
    let first = cluster.leader(0).await;
    let mut consumers = Vec::new();
    for node in 1..=3 {
        consumers.push(cluster.consume(node, window(3)).await);
    }
    // At each node in turn: the sessions of the other two are relayed to it.
    for round in 0..4 {
        let leader = cluster.leader(0).await;
        cluster.broker(leader).hand_over().await;
        let moved = async || cluster.leader(0).await != leader;
        wait_for(moved, || "the leader moves".into()).await;
        cluster.append(0, &values(round * 9..round * 9 + 9)).await;
        let all: BTreeSet<String> = values(round * 9..round * 9 + 9).into_iter().collect();
        let (begun, mut seen) = (Instant::now(), BTreeSet::new());
        let depth = async || cluster.broker(first).counters(cluster.group).await.map(|it| it.depth);
        while seen != all || depth().await != Some(0) {
            assert!(seen.is_subset(&all), "round {round}: {seen:?}");
            assert!(begun.elapsed() < 2 * SOON, "round {round}: {seen:?}");
            for consumer in &mut consumers {
                let some = consumer.some(Duration::from_millis(200)).await;
                assert!(some.len() <= 3, "its window");
                seen.extend(texts(&some));
                // Under load another election may happen, which ends the leases: the records come again.
                let _ = consumer.settle(&some, Settlement::Accept).await;
            }
        }
        let counters = cluster.broker(first).counters(cluster.group).await.expect("there");
        assert_eq!((counters.depth, counters.consumers), (0, 3));
    }
}

/// The first entry of a term has no command for the machine, and may stay the last one.
#[tokio::test]
async fn state_of_a_node_is_current_after_an_election_without_writes() {
    let cluster = Cluster::start(1, &[]).await;
    cluster.append(0, &values(0..3)).await;
    let leader = cluster.leader(0).await;
    cluster.broker(leader).hand_over().await;
    let moved = async || cluster.leader(0).await != leader;
    wait_for(moved, || "the leader moves".into()).await;
    for node in 1..=3 {
        let partitions = [PartitionId::new(cluster.topic, 0)];
        let current = timeout(SOON, cluster.broker(node).copies_are_current(&partitions)).await;
        current.expect("in time").expect("it is current");
    }
}

#[tokio::test]
async fn leadership_leaves_a_node_whose_disk_hangs_and_stays_away() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    cluster.append(0, &values(0..1)).await;
    cluster.hang_disk(leader, true);
    let begun = Instant::now();
    let partition = PartitionId::new(cluster.topic, 0);
    let others = [leader % 3 + 1, (leader + 1) % 3 + 1];
    let mut number = 1;
    let moved = async || {
        // Writes make the disk busy.
        let batch = batch(partition, &values(number..number + 1));
        number += 1;
        drop(cluster.broker(leader).append(vec![batch]));
        others.iter().any(|node| cluster.broker(*node).leads_each(&[partition])[0])
    };
    wait_for(moved, || "another node leads".into()).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let batch = batch(partition, &values(1_000..1_001));
    let appended = timeout(SOON, cluster.broker(others[0]).append_at_leaders(vec![batch])).await;
    appended.expect("it is answered").remove(0).expect("it is appended");
    cluster.hang_disk(leader, false);
    // The next hand-over must not go to the node whose disk hung.
    let led = cluster.leader(0).await;
    cluster.broker(led).hand_over().await;
    let third = 6 - leader - led;
    wait_for(async || cluster.leader(0).await == third, || "the third leads".into()).await;
}

#[tokio::test]
async fn leadership_leaves_a_node_whose_disk_is_full_and_no_shard_is_handed_to_it() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    cluster.append(0, &values(0..1)).await;
    cluster.fill_disk(leader, true);
    let begun = Instant::now();
    let partition = PartitionId::new(cluster.topic, 0);
    let others = [leader % 3 + 1, (leader + 1) % 3 + 1];
    let leads = |node: u32| cluster.broker(node).leads_each(&[partition])[0];
    let moved = async || others.iter().any(|node| leads(*node));
    wait_for(moved, || "another node leads".into()).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(cluster.broker(leader).disk_is_full() && !cluster.broker(leader).disk_is_well());
    let batch = batch(partition, &values(1..2));
    let appended = timeout(SOON, cluster.broker(leader).append_at_leaders(vec![batch])).await;
    appended.expect("it is answered").remove(0).expect("another node takes it");
    // The next leader offers its shards to a healthy node.
    let led = cluster.leader(0).await;
    cluster.broker(led).hand_over().await;
    let third = 6 - leader - led;
    wait_for(async || leads(third), || "the third leads".into()).await;
    cluster.fill_disk(leader, false);
}

/// All disks are unwell after the second fault, since a disk counts as unwell for a minute after one.
#[tokio::test]
async fn leadership_leaves_a_full_disk_though_the_other_disks_were_full_a_moment_ago() {
    let cluster = Cluster::start(1, &[]).await;
    for _ in 0..6 {
        let full = cluster.leader(0).await;
        let begun = Instant::now();
        cluster.fill_disk(full, true);
        wait_for(async || cluster.leader(0).await != full, || "another node leads".into()).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        cluster.append(0, &values(0..1)).await;
        cluster.fill_disk(full, false);
        let has_room = async || !cluster.broker(full).disk_is_full();
        wait_for(has_room, || "the node knows of the room".into()).await;
    }
}

#[tokio::test]
async fn election_of_all_shards_ends_under_load_and_leaves_leaders_balanced() {
    let cluster = Cluster::start(3, &[]).await;
    let leaders = async || {
        let mut leaders = Vec::new();
        for partition in 0..3 {
            leaders.push(cluster.leader(partition).await);
        }
        leaders
    };
    let balanced = async || leaders().await == [1, 2, 3];
    wait_for(balanced, || "each node leads one shard".into()).await;
    // It takes tens of milliseconds. If other tests use the processor a shard may be reported, and is elected
    // again.
    let elect = async |at: u32| {
        loop {
            let begun = Instant::now();
            let elected = cluster.broker(at).elect_all().await;
            assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
            match elected {
                Ok(term) => return term,
                Err(reported) => assert!(!reported.0.is_empty()),
            }
        }
    };
    let first = timeout(3 * SOON, elect(2)).await.expect("soon");
    wait_for(balanced, || "leaders are balanced".into()).await;

    let under_load = async {
        let mut appended = 0;
        loop {
            let batches =
                (0..3).map(|at| batch(PartitionId::new(cluster.topic, at), &values(0..9)));
            let answers = cluster.broker(1).append_at_leaders(batches.collect()).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            appended += 1;
            if appended > 100_000 {
                return;
            }
        }
    };
    tokio::select! {
        () = under_load => panic!("elections take too long"),
        elected = async {
            for _ in 0..3 {
                timeout(3 * SOON, elect(3)).await.expect("soon");
            }
        } => elected,
    }
    wait_for(balanced, || "leaders are balanced".into()).await;
    let newest = timeout(3 * SOON, elect(2)).await.expect("soon");
    assert!(newest > first, "{newest} {first}");
}

/// The node presents its leases at each leader: a session keeps them under any leader.
#[tokio::test]
async fn leases_are_presented_to_each_next_leader() {
    let cluster = Cluster::start(1, &[]).await;
    let mut consumers = Vec::new();
    for node in 1..=3 {
        consumers.push(cluster.consume(node, window(4)).await);
    }
    cluster.append(0, &values(0..12)).await;
    let mut held = Vec::new();
    for consumer in &mut consumers {
        held.push(consumer.next(4).await);
    }
    for _ in 0..3 {
        let leader = cluster.leader(0).await;
        cluster.broker(leader).hand_over().await;
        let moved = async || cluster.leader(0).await != leader;
        wait_for(moved, || "the leader moves".into()).await;
    }
    cluster.append(0, &values(12..13)).await;
    let counters = async || cluster.broker(1).counters(cluster.group).await;
    let all_held = async || counters().await.is_some_and(|it| it.leased == 12 && it.ready == 1);
    wait_for(all_held, || "all are held".into()).await;
    for (consumer, held) in consumers.iter_mut().zip(&held) {
        assert_eq!(consumer.some(Duration::from_millis(100)).await.len(), 0, "its window is used");
        consumer.accept(&held[..3]).await;
    }
    // One consumer has room for the waiting record; the held leases are not available to others.
    let mut came = Vec::new();
    while came.is_empty() {
        for consumer in &mut consumers {
            came.extend(consumer.some(Duration::from_millis(100)).await);
        }
    }
    assert_eq!(texts(&came), values(12..13));
    let counters = counters().await.expect("there");
    assert_eq!((counters.depth, counters.leased), (4, 4));
}

#[tokio::test]
async fn leases_survive_the_leader_except_those_of_its_own_sessions() {
    let mut cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let (one, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let mut consumers = Vec::new();
    for node in [leader, one, other] {
        consumers.push(cluster.consume(node, window(2)).await);
    }
    cluster.append(0, &values(0..6)).await;
    let mut held = Vec::new();
    for consumer in &mut consumers {
        held.push(consumer.next(2).await);
    }
    cluster.kill(leader);
    let lost = held.remove(0);
    drop(consumers.remove(0));
    // Settled while there is no leader: the next leader applies it, once.
    for (consumer, held) in consumers.iter().zip(&held) {
        let results = consumer.settle(held, Settlement::Accept).await;
        assert_eq!(results, [Ok(()), Ok(())]);
    }
    let mut again = Vec::new();
    while again.len() < 2 {
        for consumer in &mut consumers {
            again.extend(consumer.some(Duration::from_millis(100)).await);
        }
    }
    let mut came = texts(&again);
    came.sort();
    assert_eq!(came, texts(&lost));
    let counters = cluster.broker(one).counters(cluster.group).await.expect("there");
    assert_eq!(counters.depth, 2);
}

#[tokio::test]
async fn released_or_expired_lease_is_not_presented() {
    let cluster = Cluster::start(1, &[("lease.ms", "1500")]).await;
    let leader = cluster.leader(0).await;
    let mut consumer = cluster.consume(leader % 3 + 1, window(3)).await;
    cluster.append(0, &values(0..3)).await;
    let held = consumer.next(3).await;
    let released = Settlement::Release { delay_ms: Some(0), count: true };
    assert_eq!(consumer.settle(&held[..1], released).await, [Ok(())]);
    let renewed = Settlement::Renew { lease_ms: Some(60_000) };
    assert_eq!(consumer.settle(&held[1..2], renewed).await, [Ok(())]);
    let again = consumer.next(1).await;
    assert_eq!((texts(&again), again[0].attempt), (texts(&held[..1]), 2));
    sleep(Duration::from_millis(1_600)).await;
    cluster.broker(leader).hand_over().await;
    let moved = async || cluster.leader(0).await != leader;
    wait_for(moved, || "the leader moves".into()).await;
    // One was renewed, the others expired.
    let mut later = consumer.next(2).await;
    later.sort_by_key(|delivery| delivery.offset);
    assert_eq!(texts(&later), [texts(&held[..1]), texts(&held[2..])].concat());
    let results = consumer.settle(&held[1..2], Settlement::Accept).await;
    assert_eq!(results, [Ok(())]);
}

#[tokio::test]
async fn settled_records_never_come_again_while_leaders_move_under_load() {
    let cluster = Cluster::start(1, &[]).await;
    let mut consumer = cluster.consume(cluster.follower().await, window(20)).await;
    let count = 600;
    let producing = async {
        for from in (0..count).step_by(10) {
            cluster.append(0, &values(from..from + 10)).await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    let moving = async {
        for _ in 0..5 {
            sleep(Duration::from_millis(300)).await;
            let leader = cluster.leader(0).await;
            cluster.broker(leader).hand_over().await;
        }
    };
    // A value may have been appended twice, and settled without a reply: then it is not seen again.
    let working = async {
        let mut settled: BTreeMap<(u32, u64), bool> = BTreeMap::new();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < 3 * SOON, "{} were settled", settled.len());
            let some = consumer.some(Duration::from_millis(200)).await;
            if some.is_empty() && begun.elapsed() > Duration::from_secs(4) {
                let counters = cluster.broker(1).counters(cluster.group).await;
                if counters.is_some_and(|it| it.depth == 0) {
                    return settled.len();
                }
            }
            let results = consumer.settle(&some, Settlement::Accept).await;
            for (delivery, result) in some.iter().zip(results) {
                let place = (delivery.partition, delivery.offset);
                assert_ne!(settled.get(&place), Some(&true), "{place:?} was settled");
                settled.insert(place, result.is_ok());
            }
        }
    };
    let ((), (), seen) = tokio::join!(producing, moving, working);
    assert!(seen >= count, "{seen} of {count} came");
}

#[tokio::test]
async fn leases_of_a_killed_node_are_released_at_once_and_count_as_attempts() {
    let mut cluster = Cluster::start(1, &[("lease.ms", "600000")]).await;
    let leader = cluster.leader(0).await;
    let gateway = leader % 3 + 1;
    let mut lost = cluster.consume(gateway, window(10)).await;
    cluster.append(0, &values(0..10)).await;
    let before = lost.next(10).await;
    assert!(before.iter().all(|delivery| delivery.attempt == 1));
    let mut consumer = cluster.consume(leader, window(10)).await;
    assert!(consumer.some(Duration::from_millis(100)).await.is_empty());
    let begun = Instant::now();
    cluster.kill(gateway);
    let mut again = Vec::new();
    while again.len() < 10 {
        again.extend(consumer.some(SOON).await);
    }
    assert!(begun.elapsed() < Duration::from_millis(1_800), "{:?}", begun.elapsed());
    assert_eq!(texts(&again), values(0..10));
    assert!(again.iter().all(|delivery| delivery.attempt == 2), "the node's deliveries count");
    consumer.accept(&again).await;
    let counters = cluster.broker(leader).counters(cluster.group).await.expect("there");
    assert_eq!((counters.depth, counters.consumers), (0, 1));
    drop(lost);
}

#[tokio::test]
async fn consumer_continues_at_the_next_leader_when_the_leader_dies() {
    let mut cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let mut consumer = cluster.consume(leader % 3 + 1, window(20)).await;
    cluster.append(0, &values(0..10)).await;
    consumer.next(10).await;
    cluster.kill(leader);
    cluster.append(0, &values(10..15)).await;
    work(&mut consumer, 15).await;
}

#[tokio::test]
async fn change_of_leader_keeps_used_up_grants_used_and_others_valid() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let grants = ConsumeOptions { credit_returns: CreditReturns::OnGrant, ..window(5) };
    let mut consumer = cluster.consume(leader % 3 + 1, grants).await;
    cluster.append(0, &values(0..2)).await;
    let two = consumer.next(2).await;
    consumer.accept(&two).await;
    cluster.broker(leader).hand_over().await;
    let moved = async || cluster.leader(0).await != leader;
    wait_for(moved, || "the leader moves".into()).await;
    cluster.append(0, &values(2..9)).await;
    let mut three = Vec::new();
    while three.len() < 3 {
        three.extend(consumer.some(SOON).await);
    }
    assert!(consumer.some(Duration::from_millis(200)).await.is_empty(), "no credit is left");
    consumer.session.grant(consumer.id, Credit::records(1));
    assert_eq!(consumer.next(1).await.len(), 1);
}

#[tokio::test]
async fn waiting_take_is_served_by_the_next_leader() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let session = cluster.broker(leader % 3 + 1).lease_session();
    let taking = take(&session, cluster.group, 1, Duration::from_secs(15));
    let moving = async {
        sleep(Duration::from_millis(200)).await;
        cluster.broker(leader).hand_over().await;
        cluster.append(0, &values(0..1)).await;
    };
    let (taken, ()) = tokio::join!(taking, moving);
    assert_eq!(texts(&taken), ["v0"]);
}

#[tokio::test]
async fn credit_over_three_shards_is_complete_after_their_leaders_moved() {
    let cluster = Cluster::start(3, &[]).await;
    let mut consumer = cluster.consume(1, window(6)).await;
    let mut appended = 0;
    for round in 0..3 {
        for partition in 0..3 {
            cluster.append(partition, &values(appended..appended + 8)).await;
            appended += 8;
        }
        let mut settled = 0;
        while settled < 24 {
            let some = consumer.some(SOON).await;
            let results = consumer.settle(&some, Settlement::Accept).await;
            settled += results.iter().filter(|result| result.is_ok()).count();
        }
        let leader = cluster.leader(round).await;
        cluster.broker(leader).hand_over().await;
        let moved = async || cluster.leader(round).await != leader;
        timeout(SOON, wait_for(moved, || "the leader moves".into())).await.expect("soon");
    }
    // All credit moves to one shard, which has only a share until the others return theirs.
    cluster.append(0, &values(appended..appended + 6)).await;
    let mut six = Vec::new();
    while six.len() < 6 {
        six.extend(consumer.some(SOON).await);
    }
    assert_eq!(six.len(), 6);
}
