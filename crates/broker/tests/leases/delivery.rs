//! Who gets what, in which order, and what becomes of it.

use std::collections::BTreeSet;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use base::{PartitionId, headers};
use broker::delivery::{CreditReturns, SettleError};
use broker::{ConsumeOptions, Credit, Event, Settle, SettleWhat, Settlement, TakeOptions};
use record::Compression;
use world::SimulatedDisk;

use crate::harness::*;

const RELEASE: Settlement = Settlement::Release { delay_ms: None, count: true };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_produced_is_leased_and_accepted() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    node.append(topic, &[new("a").key("k").header("h", "x"), new("b")]).await;
    let deliveries = consumer.next(2).await;
    assert_eq!(texts(&deliveries), ["a", "b"]);
    assert_eq!(deliveries[0].key().as_deref(), Some(&b"k"[..]));
    assert_eq!(header(&deliveries[0], "h").as_deref(), Some("x"));
    assert_eq!((deliveries[0].offset, deliveries[0].attempt), (0, 1));
    let counters = node.broker.counters(group).await.expect("there");
    assert_eq!((counters.depth, counters.leased), (2, 2));
    consumer.accept(&deliveries).await;
    assert_eq!(node.depth(group).await, 0);
    node.append(topic, &[new("c")]).await;
    assert_eq!(texts(&consumer.next(1).await), ["c"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_batches_are_unpacked_once_and_delivered_record_by_record() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("packed", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    for compression in Compression::ALL {
        let batch = batch(PartitionId::new(topic, 0), compression, &values(20));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let deliveries = consumer.next(100).await;
    for (number, delivery) in deliveries.iter().enumerate() {
        assert_eq!(text(delivery), format!("v{}", number % 20));
        assert_eq!(delivery.offset, number as u64);
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_record_comes_back_with_its_second_attempt() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &[new("a")]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let first = consumer.next(1).await;
    consumer.settle(&first, RELEASE).await;
    let second = consumer.next(1).await;
    assert_eq!((text(&second[0]).as_str(), second[0].attempt), ("a", 2));
    assert_ne!(first[0].token, second[0].token);
    // The first lease's token is worth nothing any more.
    let late = try_settle(&consumer.session, &first, Settlement::Accept).await;
    assert_eq!(late, [Err(SettleError::NotLeased)]);
    consumer.accept(&second).await;
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_session_held_is_available_again_at_once() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "0")]).await;
    node.append(topic, &values(3)).await;
    let mut first = consume(&node, group, ConsumeOptions::default()).await;
    let held = first.next(3).await;
    first.accept(&held[1..2]).await;
    let mut second = consume(&node, group, ConsumeOptions::default()).await;
    second.nothing().await;
    drop(first);
    let again = second.next(2).await;
    assert_eq!(texts(&again), ["v0", "v2"]);
    assert_eq!(again[0].attempt, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_runs_out_makes_its_record_available() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "1000")]).await;
    node.append(topic, &[new("a")]).await;
    let mut first = consume(&node, group, ConsumeOptions::default()).await;
    let held = first.next(1).await;
    node.clock.advance_ms(999);
    first.nothing().await;
    node.clock.advance_ms(2);
    let again = first.next(1).await;
    assert_eq!(again[0].attempt, 2);
    let late = try_settle(&first.session, &held, Settlement::Accept).await;
    assert_eq!(late, [Err(SettleError::NotLeased)]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_settled_at_once_by_who_holds_it() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 6).await;
    assert_eq!(taken.len(), 6);
    let range = |first, last| Settle {
        group,
        what: SettleWhat::Range { partition: 0, first, last },
        settlement: Settlement::Accept,
    };
    let results = session.settle(vec![range(0, 3), range(5, 8)]).await;
    assert_eq!(results, [Ok(()), Err(SettleError::NotLeased)]);
    assert_eq!(node.depth(group).await, 6);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_waits_for_the_first_record() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let session = node.broker.lease_session();
    assert!(take(&session, group, 5).await.is_empty(), "nothing is there, and it does not wait");
    let options =
        TakeOptions { records_max: 5, wait: Duration::from_millis(50), ..TakeOptions::default() };
    assert!(session.take(group, options).await.expect("may take").is_empty());
    let options = TakeOptions { records_max: 5, wait: SOON, ..TakeOptions::default() };
    let (taken, _) = tokio::join!(session.take(group, options), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        node.append(topic, &[new("a")]).await
    });
    assert_eq!(texts(&taken.expect("may take")), ["a"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_without_looking_at_the_answer_holds_nothing() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "0")]).await;
    let session = node.broker.lease_session();
    let options = TakeOptions { wait: SOON, ..TakeOptions::default() };
    let mut gives_up = Box::pin(session.take(group, options));
    // It is asked for once, so that it is under way, and then never looked at again.
    let asked = std::future::poll_fn(|context| Poll::Ready(gives_up.as_mut().poll(context)));
    assert!(asked.await.is_pending());
    node.append(topic, &[new("a")]).await;
    let is_leased = async || {
        let counters = node.broker.counters(group).await.expect("there");
        counters.leased == 1
    };
    wait_for(is_leased, || "the record is handed out".to_owned()).await;
    drop(gives_up);
    let other = node.broker.lease_session();
    let options = TakeOptions { wait: SOON, ..TakeOptions::default() };
    let taken = other.take(group, options).await.expect("may take");
    assert_eq!((texts(&taken), taken[0].attempt), (vec!["a".to_string()], 1));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_waiting_holds_nothing() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "0")]).await;
    let session = node.broker.lease_session();
    let options = TakeOptions { wait: SOON, ..TakeOptions::default() };
    let gave_up =
        tokio::time::timeout(Duration::from_millis(20), session.take(group, options)).await;
    assert!(gave_up.is_err());
    node.append(topic, &[new("a")]).await;
    let other = node.broker.lease_session();
    let taken = take(&other, group, 1).await;
    assert_eq!((texts(&taken), taken[0].attempt), (vec!["a".to_string()], 1));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_bounds_what_is_unsettled() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let options = ConsumeOptions { credit: Credit::records(3), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    let first = consumer.next(3).await;
    consumer.nothing().await;
    consumer.accept(&first[..2]).await;
    assert_eq!(texts(&consumer.next(2).await), ["v3", "v4"]);
    consumer.nothing().await;

    let options = ConsumeOptions {
        credit: Credit::records(0),
        credit_returns: CreditReturns::OnGrant,
        ..ConsumeOptions::default()
    };
    let mut granted = consume(&node, group, options).await;
    granted.nothing().await;
    granted.session.grant(granted.id, Credit::records(2));
    let two = granted.next(2).await;
    granted.accept(&two).await;
    granted.nothing().await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sessions_limit_holds_over_all_its_groups() {
    let node = open(&SimulatedDisk::new()).await;
    let (one, two) = (node.topic("one", 1, &[]).await, node.topic("two", 1, &[]).await);
    let (of_one, of_two) = (node.group(one, &[]).await, node.group(two, &[]).await);
    let mut consumer = {
        let session = node.broker.lease_session();
        session.limit(Some(3));
        let events = session.events().expect("the first to ask");
        let id = session.consume(of_one, ConsumeOptions::default()).await.expect("may consume");
        session.consume(of_two, ConsumeOptions::default()).await.expect("may consume");
        Consumer { session, events, id }
    };
    node.append(one, &values(3)).await;
    let held = consumer.next(3).await;
    node.append(two, &values(3)).await;
    consumer.nothing().await;
    consumer.accept(&held[..1]).await;
    let next = consumer.next(1).await;
    assert_eq!(next[0].group, of_two);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_does_not_read_is_bounded() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("big", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let options = ConsumeOptions { settle_on_send: true, ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    let large = New { value: "x".repeat(64 << 10), ..New::default() };
    let records = 600;
    for _ in 0..records {
        node.append(topic, std::slice::from_ref(&large)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiting = node.depth(group).await;
    let sent = (records - waiting) * (64 << 10);
    let bound = base::limits::LEASE_SESSION_UNREAD_BYTES_MAX as u64;
    assert!(waiting > 0 && sent < 3 * bound, "{sent} bytes were sent to one who does not read");
    consumer.next(records as usize).await;
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_key_holds_up_nobody_but_itself() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("keyed", 1, &[]).await;
    let group = node.group(topic, &[("ordering", "key"), ("retry.backoff.ms", "1000")]).await;
    let mut records = Vec::new();
    for round in 0..5 {
        for key in ["poison", "b", "c"] {
            records.push(new(format!("{key}{round}")).key(key));
        }
    }
    node.append(topic, &records).await;
    let options = ConsumeOptions { credit: Credit::records(1), ..ConsumeOptions::default() };
    let mut consumers = Vec::new();
    for _ in 0..4 {
        consumers.push(consume(&node, group, options.clone()).await);
    }
    let mut seen: Vec<String> = Vec::new();
    let mut failures = 0;
    while seen.len() < 10 || failures < 1 {
        for consumer in &mut consumers {
            let Ok(Some(Event::Deliveries(deliveries))) =
                tokio::time::timeout(Duration::from_millis(20), consumer.events.recv()).await
            else {
                continue;
            };
            for delivery in deliveries {
                let value = text(&delivery);
                if value.starts_with("poison") {
                    assert_eq!(value, "poison0", "its successors wait for it");
                    failures += 1;
                    consumer.settle(&[delivery], RELEASE).await;
                } else {
                    seen.push(value);
                    consumer.accept(&[delivery]).await;
                }
            }
        }
    }
    for key in ["b", "c"] {
        let of_key: Vec<&String> = seen.iter().filter(|value| value.starts_with(key)).collect();
        let expected: Vec<String> = (0..5).map(|round| format!("{key}{round}")).collect();
        assert_eq!(of_key, expected.iter().collect::<Vec<_>>());
    }
    assert_eq!(node.depth(group).await, 5, "the poisoned key waits, whole");
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_record_comes_when_it_is_due_and_not_before() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("later", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let at = |ms: i64| (START_MS + ms).to_string();
    node.append(
        topic,
        &[
            new("in two hours").header(headers::DELIVER_AT, at(7_200_000)),
            new("in a second").header(headers::DELIVER_AT, at(1_000)).header(headers::ID, "x"),
            new("now"),
        ],
    )
    .await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let now = consumer.next(1).await;
    assert_eq!(texts(&now), ["now"]);
    consumer.accept(&now).await;
    let delayed = node.broker.list_delayed(group, None, 10).await.expect("listed");
    let due: Vec<_> = delayed.iter().map(|it| (it.offset, it.due_ms - START_MS)).collect();
    assert_eq!(due, [(0, 7_200_000), (1, 1_000)]);
    assert_eq!(delayed[1].id.as_deref(), Some(&b"x"[..]));
    consumer.nothing().await;
    node.clock.advance_ms(1_000);
    let second = consumer.next(1).await;
    assert_eq!(texts(&second), ["in a second"]);
    consumer.accept(&second).await;
    node.clock.advance_ms(7_198_999);
    consumer.nothing().await;
    node.clock.advance_ms(1);
    assert_eq!(texts(&consumer.next(1).await), ["in two hours"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_record_is_cancelled_by_its_id() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("later", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let due = START_MS + 1_000;
    for id in ["a", "b", "a"] {
        node.append(topic, &[new(id).header(headers::DELIVER_AT, due).header(headers::ID, id)])
            .await;
    }
    assert_eq!(node.broker.cancel_delayed(group, b"a").await, Ok(2));
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    node.clock.advance_ms(2_000);
    assert_eq!(texts(&consumer.next(1).await), ["b"]);
    consumer.nothing().await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn higher_priorities_come_first() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("ranked", 1, &[("priorities.max", "10")]).await;
    let group = node.group(topic, &[]).await;
    let mut records = Vec::new();
    for priority in [0, 5, 200, 5, 9] {
        let number = records.len();
        records.push(new(format!("{priority}#{number}")).header(headers::PRIORITY, priority));
    }
    node.append(topic, &records).await;
    let options = ConsumeOptions { credit: Credit::records(1), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    let mut order = Vec::new();
    for _ in 0..5 {
        let next = consumer.next(1).await;
        order.push(text(&next[0]));
        consumer.accept(&next).await;
    }
    assert_eq!(order, ["200#2", "9#4", "5#1", "5#3", "0#0"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_back_goes_before_what_has_a_lower_priority_and_nothing_else() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("ranked", 1, &[("priorities.max", "2")]).await;
    let group = node.group(topic, &[]).await;
    let ranked = |priority: u8| [new(priority.to_string()).header(headers::PRIORITY, priority)];
    let session = node.broker.lease_session();
    let back = Settlement::Release { delay_ms: None, count: true };
    for _ in 0..20 {
        node.append(topic, &ranked(0)).await;
        node.append(topic, &ranked(2)).await;
        let high = take(&session, group, 1).await;
        node.append(topic, &ranked(1)).await;
        settle(&session, &high, back).await;
        let mut order = Vec::new();
        for _ in 0..3 {
            let next = take(&session, group, 1).await;
            order.extend(texts(&next));
            settle(&session, &next, Settlement::Accept).await;
        }
        assert_eq!(order, ["2", "1", "0"]);
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_gets_the_best_of_what_was_there_when_it_had_credit_again() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("ranked", 1, &[("priorities.max", "9")]).await;
    let group = node.group(topic, &[]).await;
    let ranked = |priority: u8| [new(priority.to_string()).header(headers::PRIORITY, priority)];
    let options = ConsumeOptions { credit: Credit::records(1), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    node.append(topic, &ranked(0)).await;
    let mut held = consumer.next(1).await;
    node.append(topic, &ranked(1)).await;
    for priority in 2..=9 {
        // It is there before the last is settled.
        node.append(topic, &ranked(priority)).await;
        consumer.accept(&held).await;
        held = consumer.next(1).await;
        assert_eq!(texts(&held), [priority.to_string()]);
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_whose_time_is_over_as_it_comes_is_for_those_who_wait_for_it() {
    let node = open(&SimulatedDisk::new()).await;
    for config in [&[("record.ttl.ms", "0")][..], &[]] {
        let topic = node.topic(&format!("now{}", config.len()), 1, &[]).await;
        let group = node.group(topic, config).await;
        let at_once = |value: &str| [new(value).header(headers::EXPIRES_AT, START_MS)];
        node.append(topic, &at_once("nobody")).await;
        let session = node.broker.lease_session();
        assert_eq!(texts(&take_all(&session, group).await), [""; 0]);
        let options = ConsumeOptions { credit: Credit::records(1), ..ConsumeOptions::default() };
        let mut consumer = consume(&node, group, options).await;
        for value in ["one", "two"] {
            node.append(topic, &at_once(value)).await;
            let held = consumer.next(1).await;
            assert_eq!(texts(&held), [value]);
            // He is busy, so this one is not for him.
            node.append(topic, &at_once("nobody")).await;
            consumer.nothing().await;
            consumer.accept(&held).await;
            consumer.nothing().await;
        }
        node.wait_for_depth(group, 0).await;
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_consumers_of_a_group_share_its_records() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("shared", 3, &[]).await;
    let group = node.group(topic, &[]).await;
    let options = ConsumeOptions { credit: Credit::records(5), ..ConsumeOptions::default() };
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(consume(&node, group, options.clone()).await);
    }
    for index in 0..3 {
        let batch = batch(PartitionId::new(topic, index), Compression::None, &values(50));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let mut seen = BTreeSet::new();
    let mut counts = [0; 3];
    while seen.len() < 150 {
        for (place, consumer) in consumers.iter_mut().enumerate() {
            let Ok(Some(Event::Deliveries(deliveries))) =
                tokio::time::timeout(Duration::from_millis(50), consumer.events.recv()).await
            else {
                continue;
            };
            counts[place] += deliveries.len();
            for delivery in &deliveries {
                assert!(seen.insert((delivery.partition, delivery.offset)), "delivered twice");
            }
            consumer.accept(&deliveries).await;
        }
    }
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_consumer_of_a_single_active_group_is_served_until_it_leaves() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("alone", 1, &[]).await;
    let group = node.group(topic, &[("consumers", "single-active")]).await;
    let mut first = consume(&node, group, ConsumeOptions::default()).await;
    let mut second = consume(&node, group, ConsumeOptions::default()).await;
    node.append(topic, &values(4)).await;
    let held = first.next(4).await;
    first.accept(&held).await;
    second.nothing().await;
    drop(first);
    node.append(topic, &values(1)).await;
    second.next(1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exclusive_consumer_is_alone() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("mine", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let exclusive = ConsumeOptions { exclusive: true, ..ConsumeOptions::default() };
    let first = consume(&node, group, exclusive.clone()).await;
    let other = node.broker.lease_session();
    assert!(other.consume(group, ConsumeOptions::default()).await.is_err());
    first.session.cancel(first.id).await;
    other.consume(group, exclusive).await.expect("it is free again");
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_consumed_by_several_groups_and_by_offset_at_the_same_time() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("both", 1, &[]).await;
    let one = node.group_named(topic, "one", &[]).await;
    let two = node.group_named(topic, "two", &[]).await;
    let mut first = consume(&node, one, ConsumeOptions::default()).await;
    let mut second = consume(&node, two, ConsumeOptions::default()).await;
    node.append(topic, &values(2)).await;
    let held = first.next(2).await;
    first.accept(&held).await;
    assert_eq!(texts(&second.next(2).await), ["v0", "v1"]);
    let partition = PartitionId::new(topic, 0);
    let read = node.broker.read_batches(partition, 0, 1 << 20).await.expect("reads");
    assert_eq!(read.high_watermark, 2);
    assert!(!read.records.is_empty());
    node.broker.shutdown().await;
}
