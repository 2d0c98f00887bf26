//! The wall clock is set while records are leased, delayed or about to expire: nothing happens early, and no
//! duration changes.

use base::headers;
use broker::ConsumeOptions;
use world::SimulatedDisk;

use crate::harness::{START_MS, consume, new, open, take_all, texts};

const HOUR_MS: i64 = 3_600_000;
const STEPS: [i64; 2] = [HOUR_MS, -HOUR_MS];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_step_neither_ends_nor_extends_a_lease() {
    for step in STEPS {
        let node = open(&SimulatedDisk::new()).await;
        let topic = node.topic("jobs", 1, &[]).await;
        let group = node.group(topic, &[("lease.ms", "60000")]).await;
        node.append(topic, &[new("a"), new("b")]).await;
        let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
        let held = consumer.next(2).await;
        node.clock.step_ms(step);
        consumer.nothing().await;
        node.clock.advance_ms(59_999);
        consumer.nothing().await;
        consumer.accept(&held[..1]).await;
        node.clock.advance_ms(2);
        let again = consumer.next(1).await;
        assert_eq!((texts(&again), again[0].attempt), (vec!["b".to_owned()], 2), "after {step}");
        node.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_lease_expiry_follows_the_current_wall_clock() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "60000")]).await;
    node.append(topic, &[new("a")]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    consumer.next(1).await;
    node.clock.step_ms(HOUR_MS);
    let leases = node.broker.leases(group, None, 10).await;
    assert_eq!(leases[0].expires_ms, Some(START_MS + HOUR_MS + 60_000));
    node.broker.shutdown().await;
}

/// Whether the group had scanned the record before the step, or scans it afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_step_does_not_shorten_a_delay() {
    for (step, known) in STEPS.into_iter().flat_map(|step| [(step, true), (step, false)]) {
        let node = open(&SimulatedDisk::new()).await;
        let topic = node.topic("later", 1, &[]).await;
        let group = node.group(topic, &[]).await;
        let due = START_MS + 60_000;
        node.append(topic, &[new("later").header(headers::DELIVER_AT, due)]).await;
        let mut early = None;
        if known {
            let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
            consumer.nothing().await;
            early = Some(consumer);
        }
        node.clock.advance_ms(1_000);
        node.clock.step_ms(step);
        let mut consumer = match early {
            Some(consumer) => consumer,
            None => consume(&node, group, ConsumeOptions::default()).await,
        };
        consumer.nothing().await;
        let listed = node.broker.list_delayed(group, None, 10).await.expect("listed");
        assert_eq!(listed.len(), 1, "step {step}, known {known}");
        node.clock.advance_ms(58_999);
        consumer.nothing().await;
        // A record that was not scanned yet is due by the clock that was set back.
        node.clock.advance_ms(if known || step > 0 { 1 } else { 1 + HOUR_MS });
        let delivered = consumer.next(1).await;
        assert_eq!(texts(&delivered), ["later"], "step {step}, known {known}");
        node.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delay_set_after_a_clock_step_uses_the_new_clock() {
    for step in STEPS {
        let node = open(&SimulatedDisk::new()).await;
        let topic = node.topic("later", 1, &[]).await;
        let group = node.group(topic, &[]).await;
        node.clock.advance_ms(2 * HOUR_MS);
        node.clock.step_ms(step);
        let now = START_MS + 2 * HOUR_MS + step;
        let later = new("later").at(now).header(headers::DELIVER_AT, now + 60_000);
        node.append(topic, &[later]).await;
        let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
        consumer.nothing().await;
        node.clock.advance_ms(59_999);
        consumer.nothing().await;
        node.clock.advance_ms(1);
        assert_eq!(texts(&consumer.next(1).await), ["later"], "after {step}");
        node.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_step_does_not_expire_a_record() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let at = |ms: i64| START_MS + ms;
    node.append(
        topic,
        &[
            new("a minute").header(headers::EXPIRES_AT, at(60_000)),
            new("two minutes").header(headers::EXPIRES_AT, at(120_000)),
        ],
    )
    .await;
    node.clock.advance_ms(59_000);
    node.clock.step_ms(HOUR_MS);
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    assert_eq!(texts(&consumer.next(2).await), ["a minute", "two minutes"]);
    node.broker.shutdown().await;
}

/// The timeline and the wall clock are two clocks: they agree to some milliseconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_expired_at_its_timestamp_is_not_delivered() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let at_once = node.group_named(topic, "at once", &[("record.ttl.ms", "0")]).await;
    let later = node.group_named(topic, "later", &[]).await;
    node.clock.step_ms(40);
    let now = START_MS + 40;
    let over = new("over").at(now).header(headers::EXPIRES_AT, now);
    node.append(topic, &[over, new("lasts").at(now)]).await;
    let session = node.broker.lease_session();
    assert_eq!(texts(&take_all(&session, later).await), ["lasts"]);
    assert!(take_all(&session, at_once).await.is_empty());
    node.broker.shutdown().await;
}
