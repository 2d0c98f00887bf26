//! Order of delivery: keys, delays, priorities, and expired records.

use std::time::Duration;

use base::headers;
use broker::{ConsumeOptions, Credit, Event, Settlement};
use world::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_record_blocks_only_its_own_key() {
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
        consumers.push(consume(&node, group, options).await);
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
async fn delayed_record_is_delivered_when_due_and_not_before() {
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
async fn delayed_record_is_cancelled_by_its_id() {
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
async fn released_record_precedes_only_records_of_lower_priority() {
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
async fn consumer_gets_the_best_ready_record_when_credit_returns() {
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
        node.append(topic, &ranked(priority)).await;
        // Its priority is known once the driver has read it.
        consumer.nothing().await;
        consumer.accept(&held).await;
        held = consumer.next(1).await;
        assert_eq!(texts(&held), [priority.to_string()]);
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_expired_on_arrival_goes_only_to_a_consumer_with_credit() {
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
            // The consumer is busy, so this one expires.
            node.append(topic, &at_once("nobody")).await;
            consumer.nothing().await;
            consumer.accept(&held).await;
            consumer.nothing().await;
        }
        node.wait_for_depth(group, 0).await;
    }
    node.broker.shutdown().await;
}
