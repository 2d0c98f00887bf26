//! Queues and topics that are declared at one node and deleted at another, in a loop.

use std::time::{Duration, Instant};

use client::requests::{self, ConfigChange, ConfigResource, topic_name};
use client_amqp::AmqpError;
use client_amqp::Mode;
use client_amqp::blocking::Connection;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::DeleteTopicsRequest;

use super::super::target::{Kafka, TIMEOUT, WorkloadContext};
use super::{Check, WorkloadResult, joined};
use crate::failure::Outcome;
use crate::random::Random;
use histories::catalog::{Op, check};

const QUEUES: usize = 3;
const TOPICS: usize = 2;
const DELETE_TOPICS: i16 = 5;
/// Time limit for reading a confirmed message.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// A queue that all nodes deny for this long does not exist; a message that no reader gets for this long is lost.
const DENIED_FOR: Duration = Duration::from_secs(10);
const NOT_FOUND: u16 = 404;

pub(super) fn prepare(_: &WorkloadContext) -> Outcome {
    Ok(())
}

pub(super) fn start(target: &WorkloadContext, seed: u64) -> Check {
    let queue = |number: usize| {
        let target = target.clone();
        std::thread::spawn(move || queues(&target, number, seed))
    };
    let topic = |number: usize| {
        let target = target.clone();
        std::thread::spawn(move || topics(&target, number, seed))
    };
    let mut clients: Vec<_> = (0..QUEUES).map(queue).collect();
    clients.extend((0..TOPICS).map(topic));
    Box::new(move |_| {
        let mut found = WorkloadResult::default();
        for client in clients {
            for (name, history) in joined(client)? {
                *found.counts.entry("declarations, deletions and reads").or_default() +=
                    history.len() as u64;
                found.violations.extend(check(&name, &history));
            }
        }
        Ok(found)
    })
}

/// Histories by name. A name is abandoned after a deletion without a reply, which may be applied at any later time.
#[derive(Debug)]
struct Names {
    base: String,
    done: Vec<(String, Vec<Op>)>,
    history: Vec<Op>,
}

impl Names {
    fn new(base: String) -> Self {
        Self { base, done: Vec::new(), history: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.base, self.done.len())
    }

    fn give_up(&mut self) {
        let name = self.name();
        self.done.push((name, std::mem::take(&mut self.history)));
    }

    fn all(mut self) -> Vec<(String, Vec<Op>)> {
        self.give_up();
        self.done
    }
}

fn open(target: &WorkloadContext, node: usize) -> Result<Connection, AmqpError> {
    Connection::open(target.addresses.amqp[node], TIMEOUT, Mode::Confirms)
}

fn queues(target: &WorkloadContext, number: usize, seed: u64) -> Vec<(String, Vec<Op>)> {
    let mut names = Names::new(format!("catalog.queue.{number}"));
    let mut random = Random::new(seed ^ (number as u64 + 400));
    let mut body = 0;
    while !target.stops() {
        let name = names.name();
        let history = &mut names.history;
        let node = target.any(&mut random);
        body += 1;
        if let Some(published) = declare_and_publish(target, node, &name, body, history) {
            history.push(published);
            let read = read(target, &name, &mut random);
            history.extend(read);
        }
        let node = target.any(&mut random);
        let deleted = open(target, node).and_then(|mut connection| connection.delete(&name));
        match deleted {
            Ok(()) => history.push(Op::Deleted { node, at: target.now() }),
            Err(_) => names.give_up(),
        }
        std::thread::sleep(Duration::from_millis(random.between(0, 50)));
    }
    names.all()
}

/// Declares the queue and publishes a mandatory message to it on the same channel.
fn declare_and_publish(
    target: &WorkloadContext,
    node: usize,
    name: &str,
    body: u64,
    history: &mut Vec<Op>,
) -> Option<Op> {
    let declared = open(target, node).and_then(|mut connection| {
        connection.declare(&[name.to_owned()], "quorum").map(|()| connection)
    });
    let Ok(mut connection) = declared else {
        history.push(Op::Unknown);
        return None;
    };
    history.push(Op::Declared { node, at: target.now() });
    connection.publish_mandatory(name, body.to_string().as_bytes());
    let confirms = connection.confirms().ok()?;
    // A return comes before its confirm.
    let taken = confirms.iter().all(|confirm| confirm.taken) && connection.returned().is_empty();
    taken.then(|| Op::Published { node, at: target.now(), body })
}

/// Reads all messages of a queue at any node. Records a node that denies the queue, and tries the others. Returns
/// nothing if no node replies in time.
fn read(target: &WorkloadContext, name: &str, random: &mut Random) -> Vec<Op> {
    let deadline = Instant::now() + READ_WITHIN;
    let mut ops = Vec::new();
    let (mut denied, mut empty): (Option<Instant>, Option<Instant>) = (None, None);
    while Instant::now() < deadline {
        let node = target.any(random);
        match read_at(target, node, name) {
            // An earlier reader's connection may hold the message until its end is noticed.
            Ok(bodies)
                if bodies.is_empty()
                    && empty.get_or_insert_with(Instant::now).elapsed() < DENIED_FOR => {}
            Ok(bodies) => {
                ops.push(Op::Read { node, bodies: Some(bodies) });
                return ops;
            }
            Err(AmqpError::Closed { code: NOT_FOUND, .. }) => {
                let what = "basic.consume";
                let is_known =
                    |op: &Op| matches!(op, Op::SaidMissing { node: at, .. } if *at == node);
                if !ops.iter().any(is_known) {
                    ops.push(Op::SaidMissing { node, what, at: target.now() });
                }
                if denied.get_or_insert_with(Instant::now).elapsed() > DENIED_FOR {
                    ops.push(Op::Read { node, bodies: None });
                    return ops;
                }
            }
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    ops
}

/// Reads all messages of a queue, of which there should be at least one; waits some seconds for it.
fn read_at(target: &WorkloadContext, node: usize, name: &str) -> Result<Vec<u64>, AmqpError> {
    let mut connection = open(target, node)?;
    connection.consume(name, 10)?;
    let (mut bodies, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_secs(4) {
        let wait = Duration::from_millis(if bodies.is_empty() { 500 } else { 20 });
        match connection.delivery(wait)? {
            Some(delivery) => {
                let text = String::from_utf8_lossy(&delivery.body).into_owned();
                bodies.extend(text.parse::<u64>());
            }
            None if !bodies.is_empty() => break,
            None => {}
        }
    }
    // Messages stay unacknowledged, so that the next reader gets them until the queue is deleted.
    Ok(bodies)
}

fn topics(target: &WorkloadContext, number: usize, seed: u64) -> Vec<(String, Vec<Op>)> {
    let mut names = Names::new(format!("catalog.topic.{number}"));
    let mut random = Random::new(seed ^ (number as u64 + 500));
    let mut kafka = Kafka::new(target, number);
    while !target.stops() {
        let name = names.name();
        let history = &mut names.history;
        let node = target.any(&mut random);
        let created = kafka.at(node, |connection| connection.create_topic(&name, 1, &[]));
        history.push(match created {
            Ok(()) => Op::Declared { node, at: target.now() },
            Err(_) => Op::Unknown,
        });
        for _ in 0..3 {
            history.extend(alter(target, &mut kafka, target.any(&mut random), &name));
        }
        let node = target.any(&mut random);
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(&name)])
            .with_timeout_ms(TIMEOUT.as_millis() as i32);
        let answer = kafka.call(node, DELETE_TOPICS, &request);
        let deleted = answer.is_ok_and(|it| it.responses.iter().all(|it| it.error_code == 0));
        match deleted {
            true => history.push(Op::Deleted { node, at: target.now() }),
            false => names.give_up(),
        }
        std::thread::sleep(Duration::from_millis(random.between(0, 50)));
    }
    names.all()
}

fn alter(target: &WorkloadContext, kafka: &mut Kafka, node: usize, name: &str) -> Option<Op> {
    let change =
        ConfigChange::Set { name: "retention.ms".to_owned(), value: "86400000".to_owned() };
    let request = requests::alter_configs(ConfigResource::Topic, name, &[change]);
    let answer = kafka.call(node, requests::ALTER_CONFIGS, &request).ok()?;
    let code = answer.responses.first()?.error_code;
    let missing =
        ResponseError::try_from_code(code) == Some(ResponseError::UnknownTopicOrPartition);
    let at = target.now();
    missing.then_some(Op::SaidMissing { node, what: "IncrementalAlterConfigs", at })
}
