//! Sessions on topics in several shards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::delivery::{CreditReturns, PeekOptions, SeekTo, SettleError};
use broker::{
    AppendBatch, ConsumeOptions, Credit, Delivery, Event, Settle, SettleTarget, Settlement,
    TakeOptions,
};
use futures_util::future::join_all;
use record::Compression;
use tokio::time::{Instant, sleep, timeout};
use world::SimulatedDisk;

use crate::SHARDS;
use crate::harness::*;

/// A topic with one partition in each shard, and `records` in each of them.
async fn jobs(node: &Node, config: &[(&str, &str)], records: usize) -> (TopicId, LeaseGroupId) {
    let topic = node.topic("jobs", SHARDS, &[]).await;
    let group = node.group(topic, config).await;
    for partition in 0..SHARDS {
        append_to(node, topic, partition, records).await;
    }
    (topic, group)
}

async fn append_to(node: &Node, topic: TopicId, partition: u32, records: usize) {
    if records == 0 {
        return;
    }
    let id = PartitionId::new(topic, partition);
    let records: Vec<TestRecord> =
        (0..records).map(|it| new(format!("{partition}/{it}"))).collect();
    let batch = batch(id, Compression::None, &records);
    node.broker.append(vec![batch]).await.remove(0).expect("taken");
}

fn window(records: u32) -> ConsumeOptions {
    ConsumeOptions { credit: Credit::records(records), ..ConsumeOptions::default() }
}

/// The deliveries of the next event.
async fn some(consumer: &mut Consumer) -> Vec<Delivery> {
    loop {
        let event = timeout(SOON, consumer.events.recv()).await.expect("in time");
        match event {
            Some(Event::Deliveries(deliveries)) => return deliveries,
            Some(Event::Active { .. }) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

fn count_by_partition(deliveries: &[Delivery]) -> Vec<usize> {
    let count = |partition| deliveries.iter().filter(|it| it.partition == partition).count();
    (0..SHARDS).map(count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefetch_of_one_rotates_over_the_shards() {
    let node = open(&SimulatedDisk::new()).await;
    let (_, group) = jobs(&node, &[], 20).await;
    let mut consumer = consume(&node, group, window(1)).await;
    let mut seen = Vec::new();
    while seen.len() < 30 {
        let held = consumer.next(1).await;
        assert_eq!(node.broker.counters(group).await.expect("there").leased, 1);
        consumer.accept(&held).await;
        seen.extend(held);
    }
    let counts = count_by_partition(&seen);
    assert!(counts.iter().all(|count| *count >= 4), "{counts:?}");
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_credit_moves_to_shards_with_records() {
    let node = open(&SimulatedDisk::new()).await;
    let (topic, group) = jobs(&node, &[], 0).await;
    let mut consumer = consume(&node, group, window(10)).await;
    append_to(&node, topic, 2, 25).await;
    let held = consumer.next(10).await;
    consumer.nothing().await;
    assert_eq!(count_by_partition(&held), [0, 0, 10]);
    // Records in another shard wait until some are settled, and then are served.
    append_to(&node, topic, 0, 5).await;
    consumer.nothing().await;
    let mut all = held.clone();
    consumer.accept(&held).await;
    while all.len() < 30 {
        let more = some(&mut consumer).await;
        consumer.accept(&more).await;
        all.extend(more);
    }
    assert_eq!((count_by_partition(&all), node.depth(group).await), (vec![5, 0, 25], 0));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn byte_credit_and_grants_are_split_over_shards() {
    let node = open(&SimulatedDisk::new()).await;
    let (_, group) = jobs(&node, &[], 9).await;
    let grants = ConsumeOptions { credit_returns: CreditReturns::OnGrant, ..window(4) };
    let mut consumer = consume(&node, group, grants).await;
    let held = consumer.next(4).await;
    consumer.accept(&held).await;
    consumer.nothing().await;
    consumer.session.grant(consumer.id, Credit { records: 3, bytes: 0 });
    consumer.next(3).await;
    consumer.nothing().await;
    consumer.session.set_credit(consumer.id, Credit::records(2));
    consumer.next(2).await;
    consumer.nothing().await;
    drop(consumer);
    let bytes = Credit { records: u32::MAX, bytes: 3 };
    let mut consumer =
        consume(&node, group, ConsumeOptions { credit: bytes, ..ConsumeOptions::default() }).await;
    // A record larger than the window is delivered all the same, one in each shard.
    let mut left = node.depth(group).await as usize;
    while left > 0 {
        let event = timeout(SOON, consumer.events.recv()).await.expect("in time");
        let Some(Event::Deliveries(held)) = event else { panic!("unexpected {event:?}") };
        assert!(held.len() <= SHARDS as usize);
        left -= held.len();
        consumer.accept(&held).await;
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_limit_holds_over_queues_in_different_shards() {
    let node = open(&SimulatedDisk::new()).await;
    let mut groups = Vec::new();
    for number in 0..SHARDS {
        let topic = node.topic(&format!("queue-{number}"), 1, &[]).await;
        groups.push(node.group(topic, &[]).await);
        node.append(topic, &values(20)).await;
    }
    let session = node.broker.lease_session();
    session.limit(Some(4));
    let mut events = session.events().expect("the first to ask");
    for group in &groups {
        session.consume(*group, ConsumeOptions::default()).await.expect("may consume");
    }
    let (mut held, mut done) = (Vec::<Delivery>::new(), BTreeSet::new());
    while done.len() + held.len() < 60 {
        while held.len() < 4 && done.len() + held.len() < 60 {
            let event = timeout(SOON, events.recv()).await.expect("in time");
            let Some(Event::Deliveries(more)) = event else { panic!("unexpected {event:?}") };
            held.extend(more);
        }
        assert!(held.len() <= 4, "{} are held", held.len());
        let first = held.remove(0);
        settle(&session, std::slice::from_ref(&first), Settlement::Accept).await;
        assert!(done.insert((first.group, first.offset)), "delivered twice");
    }
    // Each queue was served.
    session.limit(None);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_settles_in_several_shards_are_in_request_order() {
    let node = open(&SimulatedDisk::new()).await;
    let (_, group) = jobs(&node, &[], 2).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let held = consumer.next(2 * SHARDS as usize).await;
    consumer.accept(&held[1..2]).await;
    let accept = |what| Settle { group, what, settlement: Settlement::Accept };
    let mut settles: Vec<Settle> = held.iter().map(|it| accept(it.lease())).collect();
    settles.push(accept(SettleTarget::UpTo { partition: 9, last: 9 }));
    // The token of another partition's lease is not valid.
    let token = held[0].token;
    settles
        .push(accept(SettleTarget::Lease { partition: (held[0].partition + 1) % SHARDS, token }));
    let answers = consumer.session.settle(settles).await;
    let mut expected = vec![Ok(()); held.len()];
    expected[1] = Err(SettleError::NotLeased);
    expected.push(Err(SettleError::NotLeased));
    assert_eq!(answers[..=held.len()], expected);
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_is_filled_from_all_shards_up_to_its_limits() {
    let node = open(&SimulatedDisk::new()).await;
    let (topic, group) = jobs(&node, &[], 4).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 10).await;
    assert_eq!(taken.len(), 10);
    let options = TakeOptions { records_max: 9, partitions: vec![0, 2], ..TakeOptions::default() };
    let rest = session.take(group, options.clone()).await.expect("may take");
    assert!(rest.iter().all(|it| it.partition != 1));
    settle(&session, &taken, Settlement::Release { delay_ms: Some(0), count: false }).await;
    settle(&session, &rest, Settlement::Release { delay_ms: Some(0), count: false }).await;
    let few = TakeOptions { records_max: 9, bytes_max: 20, ..TakeOptions::default() };
    let few = session.take(group, few).await.expect("may take");
    let bytes: usize = few.iter().map(|it| it.record.encoded_len()).sum();
    assert!(!few.is_empty() && (few.len() == 1 || bytes <= 20), "{} of {bytes} bytes", few.len());
    settle(&session, &few, Settlement::Accept).await;
    assert_eq!(take_all(&session, group).await.len(), 12 - few.len());
    // The take waits at all shards, and one replies.
    let waiting = tokio::spawn(async move {
        let options = TakeOptions { wait: SOON, records_max: 5, ..TakeOptions::default() };
        let taken = session.take(group, options).await.expect("may take");
        (session, taken)
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    append_to(&node, topic, 1, 1).await;
    let (session, taken) = waiting.await.expect("no panic");
    assert_eq!(taken[0].partition, 1);
    let gone = TakeOptions { wait: Duration::from_millis(20), ..TakeOptions::default() };
    assert!(session.take(group, gone).await.expect("may take").is_empty());
    node.broker.delete_topic(topic).await.expect("deleted");
    assert!(session.take(group, TakeOptions::default()).await.is_err());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_takes_lose_no_records() {
    let node = open(&SimulatedDisk::new()).await;
    let (topic, group) = jobs(&node, &[], 0).await;
    let session = node.broker.lease_session();
    let mut taken = 0;
    for round in 0..60 {
        append_to(&node, topic, round % SHARDS, 1).await;
        let options = TakeOptions { wait: SOON, records_max: 3, ..TakeOptions::default() };
        let patience = Duration::from_micros(u64::from(round) * 30);
        if let Ok(records) = timeout(patience, session.take(group, options)).await {
            let records = records.expect("may take");
            settle(&session, &records, Settlement::Accept).await;
            taken += records.len();
        }
    }
    let rest = take_all(&session, group).await;
    assert_eq!(taken + rest.len(), 60);
    assert!(rest.iter().all(|it| it.attempt == 1), "they were never seen");
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_consumer_alone_is_served_until_it_leaves() {
    let node = open(&SimulatedDisk::new()).await;
    for credit in [window(4), ConsumeOptions::default()] {
        let topic = node.topic(&format!("alone-{}", credit.credit.records), SHARDS, &[]).await;
        let group = node.group(topic, &[("consumers", "single-active")]).await;
        let mut first = consume(&node, group, credit).await;
        let mut second = consume(&node, group, credit).await;
        for partition in 0..SHARDS {
            append_to(&node, topic, partition, 4).await;
        }
        let mut done = Vec::new();
        while done.len() < 12 {
            let held = some(&mut first).await;
            first.accept(&held).await;
            done.extend(held);
        }
        assert_eq!(count_by_partition(&done), [4, 4, 4]);
        while let Ok(Some(event)) = timeout(Duration::from_millis(40), second.events.recv()).await {
            assert!(matches!(event, Event::Active { active: false, .. }), "unexpected {event:?}");
        }
        first.session.cancel(first.id).await;
        for partition in 0..SHARDS {
            append_to(&node, topic, partition, 4).await;
        }
        let mut done = Vec::new();
        while done.len() < 12 {
            let held = some(&mut second).await;
            second.accept(&held).await;
            done.extend(held);
        }
        assert_eq!(count_by_partition(&done), [4, 4, 4]);
        assert_eq!(node.broker.counters(group).await.expect("there").consumers, 1);
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclusive_consumer_is_alone_in_all_shards() {
    let node = open(&SimulatedDisk::new()).await;
    let (_, group) = jobs(&node, &[], 1).await;
    let exclusive = ConsumeOptions { exclusive: true, ..ConsumeOptions::default() };
    let mut first = consume(&node, group, exclusive).await;
    first.next(SHARDS as usize).await;
    let other = node.broker.lease_session();
    assert!(other.consume(group, ConsumeOptions::default()).await.is_err());
    assert_eq!(node.broker.counters(group).await.expect("there").consumers, 1);
    first.session.cancel(first.id).await;
    other.consume(group, exclusive).await.expect("it is free again");
    assert!(first.session.consume(group, ConsumeOptions::default()).await.is_err());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_of_a_growing_topic_gets_new_shards_with_the_same_credit() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("grows", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let mut consumer = consume(&node, group, window(3)).await;
    consumer.session.limit(Some(2));
    node.broker.create_partitions(topic, SHARDS).await.expect("grown");
    for partition in 0..SHARDS {
        append_to(&node, topic, partition, 5).await;
    }
    let mut done = Vec::new();
    while done.len() < 15 {
        let held = some(&mut consumer).await;
        assert!(node.broker.counters(group).await.expect("there").leased <= 2);
        consumer.accept(&held).await;
        done.extend(held);
    }
    assert_eq!(count_by_partition(&done), [5, 5, 5]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_of_a_deleted_group_gets_one_gone_event() {
    let node = open(&SimulatedDisk::new()).await;
    let (topic, group) = jobs(&node, &[], 0).await;
    let mut consumer = consume(&node, group, window(5)).await;
    node.broker.delete_topic(topic).await.expect("deleted");
    let event = timeout(SOON, consumer.events.recv()).await.expect("in time");
    assert!(matches!(event, Some(Event::Gone { consumer: id, .. }) if id == consumer.id));
    consumer.nothing().await;
    assert!(consumer.session.consume(group, window(1)).await.is_err());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_inspect_and_change_all_shards() {
    let node = open(&SimulatedDisk::new()).await;
    let (topic, group) = jobs(&node, &[], 5).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 4).await;
    let counters = node.broker.counters(group).await.expect("there");
    assert_eq!((counters.depth, counters.leased, counters.ready), (15, 4, 11));
    let peeked = node.broker.peek(group, PeekOptions::default()).await.expect("answers");
    let places: Vec<_> = peeked.iter().map(|it| (it.partition, it.offset)).collect();
    assert!(places.is_sorted() && places.len() == 15, "{places:?}");
    let leases = node.broker.leases(group, None, 3).await;
    let mut leased: Vec<_> = taken.iter().map(|it| (it.partition, it.offset)).collect();
    leased.sort_unstable();
    assert_eq!(leases.iter().map(|it| (it.partition, it.offset)).collect::<Vec<_>>(), leased[..3]);
    let rest = node.broker.leases(group, Some(leased[2]), 9).await;
    assert_eq!((rest.len(), rest[0].offset), (1, leased[3].1));
    assert!(node.broker.delete_record(group, leased[0].0, leased[0].1).await.is_err());
    for partition in 0..SHARDS {
        node.broker.delete_record(group, partition, 4).await.expect("nobody has it");
    }
    assert_eq!(node.broker.purge(group).await, Ok(8));
    assert_eq!(node.depth(group).await, 4);
    node.broker.seek(group, SeekTo::Start).await.expect("moved");
    node.wait_for_depth(group, 15).await;
    assert_eq!(node.broker.counters(group).await.expect("there").leased, 0);
    node.broker.seek(group, SeekTo::End).await.expect("moved");
    node.wait_for_depth(group, 0).await;
    let later = new("later")
        .header(base::headers::ID, "x")
        .header(base::headers::DELIVER_AT, START_MS + 60_000);
    for partition in 0..SHARDS {
        let id = PartitionId::new(topic, partition);
        let batch = batch(id, Compression::None, std::slice::from_ref(&later));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let delayed = node.broker.list_delayed(group, None, 9).await.expect("answers");
    assert_eq!(delayed.iter().map(|it| it.partition).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(node.broker.cancel_delayed(group, b"x").await, Ok(3));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_records_are_redelivered_after_a_restart_and_settled_ones_are_not() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let (_, group) = jobs(&node, &[], 6).await;
    let mut consumer = consume(&node, group, window(9)).await;
    let held = consumer.next(9).await;
    consumer.accept(&held[..5]).await;
    node.broker.shutdown().await;
    drop(consumer);
    let node = open(&disk).await;
    let session = node.broker.lease_session();
    let again: BTreeSet<_> =
        take_all(&session, group).await.iter().map(|it| (it.partition, it.offset)).collect();
    assert_eq!(again.len(), 13);
    assert!(held[..5].iter().all(|it| !again.contains(&(it.partition, it.offset))));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_holds_and_records_come_once_across_elections_of_all_shards() {
    const RECORDS: usize = 300;
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", SHARDS * 2, &[]).await;
    let group = node.group(topic, &[("lease.ms", "600000")]).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let elections = {
        let (broker, stop) = (node.broker.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(15)).await;
                broker.reelect().await.expect("it is elected");
            }
        })
    };
    let mut consumer = consume(&node, group, window(5)).await;
    let producer = {
        let broker = node.broker.clone();
        tokio::spawn(async move {
            for number in 0..RECORDS {
                let partition = PartitionId::new(topic, number as u32 % (SHARDS * 2));
                let batch = batch(partition, Compression::None, &[new(format!("{number}"))]);
                broker.append(vec![batch]).await.remove(0).expect("taken");
            }
        })
    };
    let (mut held, mut seen) = (Vec::<Delivery>::new(), BTreeSet::new());
    while seen.len() < RECORDS {
        let event = timeout(SOON, consumer.events.recv()).await;
        let event = event.unwrap_or_else(|_| panic!("{} of {RECORDS} came", seen.len()));
        let Some(Event::Deliveries(more)) = event else { panic!("unexpected {event:?}") };
        for delivery in &more {
            assert!(seen.insert((delivery.partition, delivery.offset)), "delivered twice");
            assert_eq!(delivery.attempt, 1);
        }
        held.extend(more);
        assert!(held.len() <= 5, "{} are held", held.len());
        consumer.accept(&std::mem::take(&mut held)).await;
    }
    producer.await.expect("no panic");
    stop.store(true, std::sync::atomic::Ordering::Release);
    elections.await.expect("no panic");
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_settles_in_one_shard_and_appends_in_any() {
    let node = open(&SimulatedDisk::new()).await;
    let (topic, group) = jobs(&node, &[], 2).await;
    let session = node.broker.lease_session();
    let taken = take_all(&session, group).await;
    let of = |partition| taken.iter().find(|it| it.partition == partition).expect("taken");
    let accept = |partition| {
        vec![Settle { group, what: of(partition).lease(), settlement: Settlement::Accept }]
    };
    let to = |partition| -> Vec<AppendBatch> {
        vec![batch(PartitionId::new(topic, partition), Compression::None, &values(1))]
    };
    let moved = session.transfer(accept(1), to(1)).await.expect("all of it is in one shard");
    assert_eq!(moved[0].map(|row| row.base_offset), Some(2));
    let moved = session.transfer(accept(0), to(1)).await.expect("it is sent to the other shard");
    assert_eq!(moved[0].map(|row| row.base_offset), Some(3));
    assert_eq!(node.broker.counters(group).await.expect("there").leased, 4);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_of_three_shards_is_atomic_under_power_loss() {
    const RUNS: u64 = 60;
    let (mut there, mut answered) = (0, 0);
    for seed in 0..RUNS {
        let disk = SimulatedDisk::new();
        let node = open(&disk).await;
        let (_, group) = jobs(&node, &[], 1).await;
        let to = PartitionId::new(node.topic("to", 1, &[]).await, 0);
        let session = node.broker.lease_session();
        let taken = take_all(&session, group).await;
        assert_eq!(taken.len(), SHARDS as usize);
        let accept = |it: &Delivery| {
            let settlement = Settlement::Accept;
            Settle { group, what: it.lease(), settlement }
        };
        let accepted = taken.iter().map(accept).collect();
        disk.cut_power_after(seed % 20);
        let batches = vec![batch(to, Compression::None, &values(1))];
        let done = session.transfer(accepted, batches).await.is_ok();
        drop(session);
        node.broker.shutdown().await;

        let node = open(&disk.power_loss(seed)).await;
        let appended = node.broker.bounds(to).expect("there").end;
        assert!(appended == 1 || !done, "seed {seed}: lost");
        // A message that is not acknowledged is sent again after the start, before anything is delivered.
        let all = if appended == 1 { 0 } else { SHARDS as usize };
        let again = take_all(&node.broker.lease_session(), group).await;
        assert_eq!(again.len(), all, "seed {seed}");
        assert_eq!(node.depth(group).await, all as u64, "seed {seed}");
        there += appended;
        answered += u64::from(done);
        node.broker.shutdown().await;
    }
    assert!((1..RUNS).contains(&there), "{there} of {RUNS} were there");
    assert!((1..=there).contains(&answered), "{answered} of {there} were answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_transfer_of_three_shards_settles_all_or_nothing() {
    let abandoned = (0..24).map(|step| abandon_after(Duration::from_micros(step * 150)));
    let done = join_all(abandoned).await;
    assert!(done.contains(&true) && done.contains(&false), "{done:?}");
}

/// Ends a session after its transfer has run for a time. Returns whether the transfer took effect.
async fn abandon_after(time: Duration) -> bool {
    let node = open(&SimulatedDisk::new()).await;
    let (_, group) = jobs(&node, &[], 1).await;
    let to = PartitionId::new(node.topic("to", 1, &[]).await, 0);
    let session = node.broker.lease_session();
    let accepted = take_all(&session, group).await.into_iter().map(|it| Settle {
        group,
        what: it.lease(),
        settlement: Settlement::Accept,
    });
    let batches = vec![batch(to, Compression::None, &values(1))];
    let _ = timeout(time, session.transfer(accepted.collect(), batches)).await;
    drop(session);
    // Records of a transfer that is refused are delivered again, the others never.
    let (other, begun) = (node.broker.lease_session(), Instant::now());
    let mut again = Vec::new();
    while begun.elapsed() < Duration::from_secs(4) && again.len() < SHARDS as usize {
        again.extend(take_all(&other, group).await);
        sleep(Duration::from_millis(20)).await;
    }
    let is_done = node.broker.bounds(to).expect("there").end == 1;
    let expected = if is_done { 0 } else { SHARDS as usize };
    assert_eq!(again.len(), expected, "after {time:?}");
    assert_eq!(node.depth(group).await, expected as u64, "after {time:?}");
    node.broker.shutdown().await;
    is_done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_limit_is_split_over_its_shards() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("full", SHARDS, &[("limit.records", "7")]).await;
    node.group(topic, &[]).await;
    let mut taken = vec![0; SHARDS as usize];
    for round in 0..12 {
        let partition = round % SHARDS;
        let batch = batch(PartitionId::new(topic, partition), Compression::None, &values(1));
        taken[partition as usize] +=
            usize::from(node.broker.append(vec![batch]).await.remove(0).is_ok());
    }
    assert_eq!(taken, [2, 2, 2]);
    // A batch over its shard's part of the limit is accepted if nothing waits there.
    let topic = node.topic("empty", SHARDS, &[("limit.records", "7")]).await;
    for (records, is_taken) in [(8, false), (5, true), (1, false)] {
        let batch = batch(PartitionId::new(topic, 0), Compression::None, &values(records));
        assert_eq!(node.broker.append(vec![batch]).await.remove(0).is_ok(), is_taken);
    }
    node.broker.shutdown().await;
}
