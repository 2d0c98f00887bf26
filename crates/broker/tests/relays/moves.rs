//! Leaders move, and nodes end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::PartitionId;
use broker::delivery::{CreditReturns, SettleError};
use broker::{ConsumeOptions, Credit, Settlement};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::*;

fn window(records: u32) -> ConsumeOptions {
    ConsumeOptions { credit: Credit::records(records), ..ConsumeOptions::default() }
}

/// Settles all values at one consumer's node, each once: what was answered as settled does not come again.
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
                // Its lease went with the leader, or it may be settled and not come again.
                Err(SettleError::NotLeased) => {}
                Err(SettleError::Unavailable(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

#[tokio::test]
async fn a_consumer_goes_on_wherever_its_shards_leader_moves() {
    let cluster = Cluster::start(1, &[]).await;
    let first = cluster.leader(0).await;
    let mut consumers = Vec::new();
    for node in 1..=3 {
        consumers.push(cluster.consume(node, window(3)).await);
    }
    // At each node in turn: the two others' sessions are relayed to it.
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
                // Beside much else another node may be elected once more, which ends the leases: they come again.
                let _ = consumer.settle(&some, Settlement::Accept).await;
            }
        }
        let counters = cluster.broker(first).counters(cluster.group).await.expect("there");
        assert_eq!((counters.depth, counters.consumers), (0, 3));
    }
}

/// The first entry of a term has nothing for the machine, and may stay the last one.
#[tokio::test]
async fn what_is_known_at_a_node_is_current_after_an_election_though_nobody_writes() {
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
async fn a_shard_leaves_a_node_whose_disk_hangs_and_stays_away() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    cluster.append(0, &values(0..1)).await;
    cluster.hang_disk(leader, true);
    let begun = Instant::now();
    let partition = PartitionId::new(cluster.topic, 0);
    let others = [leader % 3 + 1, (leader + 1) % 3 + 1];
    let mut number = 1;
    let moved = async || {
        // What is written makes the disk busy.
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
    // It is offered the shards of who stops now, and would not lead them.
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
    // The next leader offers its shards to a node that is well.
    let led = cluster.leader(0).await;
    cluster.broker(led).hand_over().await;
    let third = 6 - leader - led;
    wait_for(async || leads(third), || "the third leads".into()).await;
    cluster.fill_disk(leader, false);
}

/// No disk is well after the second fault, since a disk counts as unwell for a minute after one.
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
    // Some tens of milliseconds. Where other tests take the processor a shard may be reported, and is elected again.
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

/// Presents itself at each leader: whoever leads, what a session holds stays its own.
#[tokio::test]
async fn leases_go_over_to_whichever_node_leads_next() {
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
    // One has room for the record that waits; what is held still is nobody else's.
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
async fn leases_outlive_the_node_that_led_and_those_of_its_sessions_come_back_at_once() {
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
    // Settled while nobody leads: by the next leader, and once.
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
async fn a_lease_that_was_released_or_ran_out_is_not_presented() {
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
    // One was renewed, the others ran out.
    let mut later = consumer.next(2).await;
    later.sort_by_key(|delivery| delivery.offset);
    assert_eq!(texts(&later), [texts(&held[..1]), texts(&held[2..])].concat());
    let results = consumer.settle(&held[1..2], Settlement::Accept).await;
    assert_eq!(results, [Ok(())]);
}

#[tokio::test]
async fn nothing_that_was_settled_comes_again_while_leaders_move_under_load() {
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
    // A value may have been appended twice, and settled without an answer: then it is not seen again.
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
async fn a_node_that_ends_gives_its_leases_back_at_once() {
    let mut cluster = Cluster::start(1, &[("lease.ms", "600000")]).await;
    let leader = cluster.leader(0).await;
    let gateway = leader % 3 + 1;
    let mut lost = cluster.consume(gateway, window(10)).await;
    cluster.append(0, &values(0..10)).await;
    lost.next(10).await;
    let mut consumer = cluster.consume(leader, window(10)).await;
    assert!(consumer.some(Duration::from_millis(100)).await.is_empty());
    let begun = Instant::now();
    cluster.kill(gateway);
    let mut again = Vec::new();
    while again.len() < 10 {
        again.extend(consumer.some(SOON).await);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(texts(&again), values(0..10));
    consumer.accept(&again).await;
    let counters = cluster.broker(leader).counters(cluster.group).await.expect("there");
    assert_eq!((counters.depth, counters.consumers), (0, 1));
    drop(lost);
}

#[tokio::test]
async fn a_consumer_goes_on_at_the_next_leader_when_the_leader_ends() {
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
async fn grants_that_are_used_up_do_not_come_back_with_another_leader_and_others_stay() {
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
async fn a_take_that_waits_is_answered_by_the_next_leader() {
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
async fn credit_over_three_shards_is_whole_after_their_leaders_have_moved() {
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
    // All of it in one shard, which has no more than a share until others give theirs.
    cluster.append(0, &values(appended..appended + 6)).await;
    let mut six = Vec::new();
    while six.len() < 6 {
        six.extend(consumer.some(SOON).await);
    }
    assert_eq!(six.len(), 6);
}
