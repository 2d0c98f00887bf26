//! Publishers with confirms and consumers with acknowledgements on each node; one message of twenty is rejected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client_amqp::blocking::Connection;
use client_amqp::{AmqpError, Argument, Mode};

use super::super::site::FOUNDERS;
use super::super::target::{TIMEOUT, WorkloadContext};
use super::{Check, WorkloadResult, joined};
use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use histories::queue::{Delivery, History, Message, SettleAttempt, check};

const QUEUE: &str = "faults.work";
const DEAD: &str = "faults.dead";
const PREFETCH: u16 = 20;
const IN_FLIGHT: usize = 10;
const REJECTED_OF: u64 = 20;
/// The queue counts as empty after this time without a delivery.
const EMPTY_AFTER: Duration = Duration::from_secs(3);
const EMPTIED_WITHIN: Duration = Duration::from_secs(60);
const DELIVERED_WITHIN: Duration = Duration::from_millis(200);

pub(super) fn prepare(target: &WorkloadContext) -> Outcome {
    let mut connection = Connection::open(target.addresses.amqp[0], TIMEOUT, Mode::Confirms)?;
    connection.declare(&[DEAD.to_owned()], "quorum")?;
    let arguments = [
        ("x-queue-type", Argument::Text("quorum")),
        ("x-dead-letter-exchange", Argument::Text("")),
        ("x-dead-letter-routing-key", Argument::Text(DEAD)),
        ("x-delivery-limit", Argument::Number(1_000_000)),
    ];
    connection.declare_with(&[QUEUE.to_owned()], &arguments)?;
    Ok(connection.close()?)
}

#[derive(Debug, Default)]
struct Shared {
    messages: AtomicU64,
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct PublisherLog {
    published: Vec<Message>,
    confirmed: Vec<Message>,
}

pub(super) fn start(target: &WorkloadContext, seed: u64, isolates: bool) -> Check {
    let shared = Arc::<Shared>::default();
    let publishers: Vec<_> = (0..FOUNDERS)
        .map(|node| {
            let (target, shared) = (target.clone(), Arc::clone(&shared));
            std::thread::spawn(move || publish(&target, &shared, node, seed))
        })
        .collect();
    let consumers: Vec<_> = (0..FOUNDERS)
        .map(|node| {
            let (target, shared) = (target.clone(), Arc::clone(&shared));
            std::thread::spawn(move || consume_until_stopped(&target, &shared, node, seed))
        })
        .collect();
    Box::new(move |target| {
        let (mut history, mut found) = (History::default(), WorkloadResult::default());
        for publisher in publishers {
            let PublisherLog { published, confirmed } = joined(publisher)?;
            found
                .counts
                .entry("messages confirmed")
                .and_modify(|it| *it += confirmed.len() as u64)
                .or_insert(confirmed.len() as u64);
            history.published.extend(published);
            history.confirmed.extend(confirmed);
        }
        for consumer in consumers {
            history.deliveries.extend(joined(consumer)?);
        }
        // Connections of dead nodes hold messages until the cluster detects the failure.
        history.deliveries.extend(empty(target, &shared, QUEUE, SettleAttempt::Acknowledged)?);
        let dead = empty(target, &shared, DEAD, SettleAttempt::Acknowledged)?;
        history.dead = dead.into_iter().map(|it| it.message).collect();
        found.counts.insert("deliveries", history.deliveries.len() as u64);
        found.counts.insert("dead letters", history.dead.len() as u64);
        history.deliveries.sort_by_key(|it| it.at);
        found.violations = check(&history, isolates);
        Ok(found)
    })
}

fn publish(target: &WorkloadContext, shared: &Shared, node: usize, seed: u64) -> PublisherLog {
    let mut done = PublisherLog::default();
    let mut random = Random::new(seed ^ (node as u64 + 200));
    while !target.stops() {
        // A failed publish is retried on a new connection, with a new message, so that no message is sent twice.
        let _ = publish_on(target, shared, node, &mut random, &mut done);
        std::thread::sleep(Duration::from_millis(50));
    }
    done
}

fn publish_on(
    target: &WorkloadContext,
    shared: &Shared,
    node: usize,
    random: &mut Random,
    done: &mut PublisherLog,
) -> Result<(), AmqpError> {
    let mut connection = Connection::open(target.addresses.amqp[node], TIMEOUT, Mode::Confirms)?;
    let mut sent = std::collections::BTreeMap::new();
    while !target.stops() {
        while connection.unconfirmed() < IN_FLIGHT {
            let message = shared.messages.fetch_add(1, Ordering::SeqCst);
            done.published.push(message);
            let tag = connection.publish(QUEUE, message.to_string().as_bytes());
            sent.insert(tag, message);
        }
        for confirm in connection.confirms()? {
            if let Some(message) = sent.remove(&confirm.tag).filter(|_| confirm.taken) {
                done.confirmed.push(message);
            }
        }
        std::thread::sleep(Duration::from_millis(random.between(5, 20)));
    }
    Ok(())
}

fn message_of(body: &[u8]) -> Option<Message> {
    std::str::from_utf8(body).ok()?.parse().ok()
}

fn consume_until_stopped(
    target: &WorkloadContext,
    shared: &Shared,
    node: usize,
    seed: u64,
) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    let mut random = Random::new(seed ^ (node as u64 + 300));
    while !target.stops() {
        let _ = consume_on(target, shared, node, &mut random, &mut deliveries);
        std::thread::sleep(Duration::from_millis(50));
    }
    deliveries
}

fn consume_on(
    target: &WorkloadContext,
    shared: &Shared,
    node: usize,
    random: &mut Random,
    deliveries: &mut Vec<Delivery>,
) -> Result<(), AmqpError> {
    let mut connection = Connection::open(target.addresses.amqp[node], TIMEOUT, Mode::Confirms)?;
    connection.consume(QUEUE, PREFETCH)?;
    let number = shared.connections.fetch_add(1, Ordering::SeqCst);
    while !target.stops() {
        let Some(delivery) = connection.delivery(DELIVERED_WITHIN)? else { continue };
        let Some(message) = message_of(&delivery.body) else { continue };
        let at = target.now();
        let place = deliveries.len();
        deliveries.push(Delivery { message, connection: number, at, settled: SettleAttempt::Not });
        let settled = match random.between(1, REJECTED_OF) {
            1 => {
                connection.nack(delivery.tag, false);
                SettleAttempt::Rejected
            }
            _ => {
                connection.ack(delivery.tag);
                SettleAttempt::Acknowledged
            }
        };
        connection.flush()?;
        deliveries[place].settled = settled;
    }
    // The server processes earlier settles before it replies to the close.
    connection.close()
}

/// Consumes all messages of a queue.
fn empty(
    target: &WorkloadContext,
    shared: &Shared,
    queue: &str,
    how: SettleAttempt,
) -> Outcome<Vec<Delivery>> {
    let deadline = Instant::now() + EMPTIED_WITHIN;
    let mut deliveries = Vec::new();
    for node in (0..FOUNDERS).cycle() {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("{queue} cannot be emptied in {EMPTIED_WITHIN:?}")));
        }
        let emptied = empty_at(target, shared, node, queue, how, &mut deliveries);
        match emptied {
            Ok(()) => return Ok(deliveries),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    Ok(deliveries)
}

fn empty_at(
    target: &WorkloadContext,
    shared: &Shared,
    node: usize,
    queue: &str,
    settled: SettleAttempt,
    deliveries: &mut Vec<Delivery>,
) -> Outcome {
    let address = target.addresses.amqp[node];
    let mut connection = Connection::open(address, TIMEOUT, Mode::Confirms)?;
    connection.consume(queue, PREFETCH)?;
    let number = shared.connections.fetch_add(1, Ordering::SeqCst);
    let mut last = Instant::now();
    while last.elapsed() < EMPTY_AFTER {
        let Some(delivery) = connection.delivery(DELIVERED_WITHIN)? else { continue };
        last = Instant::now();
        let message = message_of(&delivery.body).context_of(queue)?;
        deliveries.push(Delivery { message, connection: number, at: target.now(), settled });
        connection.ack(delivery.tag);
        connection.flush()?;
    }
    connection.close().context(|| format!("cannot close the consumer of {queue}"))
}

trait QueueContext<T> {
    fn context_of(self, queue: &str) -> Outcome<T>;
}

impl<T> QueueContext<T> for Option<T> {
    fn context_of(self, queue: &str) -> Outcome<T> {
        self.ok_or_else(|| Failure::new(format!("a message of {queue} is not one of this run")))
    }
}
