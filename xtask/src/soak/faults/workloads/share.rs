//! A share group of two members, which accept each record individually.

use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::{Connection, ShareMember};
use client::requests::{self, ConfigChange, ConfigResource, ProduceOutcome};
use client::share::Settlement;
use kafka_protocol::messages::ShareGroupHeartbeatRequest;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::super::site::FOUNDERS;
use super::super::target::{Kafka, TIMEOUT, WorkloadContext};
use super::{Check, WorkloadResult, joined};
use crate::failure::{Failure, Outcome};
use crate::records::batch;
use histories::share::{Delivery, History, check};

const TOPIC: &str = "share";
const GROUP: &str = "share";
const MEMBERS: usize = 2;
const SHARE_GROUP_HEARTBEAT: i16 = 1;
const RECORDS_MAX: usize = 20;
const WAIT: Duration = Duration::from_millis(100);
/// All records count as delivered after this time without a delivery.
const EMPTY_AFTER: Duration = Duration::from_secs(3);
const EMPTIED_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn prepare(target: &WorkloadContext) -> Outcome {
    let mut kafka = Kafka::new(target, 0);
    kafka.at(0, |connection| connection.create_topic(TOPIC, 1, &[]))?;
    let earliest = ConfigChange::Set {
        name: "share.auto.offset.reset".to_owned(),
        value: "earliest".to_owned(),
    };
    let request = requests::alter_configs(ConfigResource::Group, GROUP, &[earliest]);
    let answer = kafka.call(0, requests::ALTER_CONFIGS, &request)?;
    requests::altered(&answer).map_err(|refused| Failure::new(refused.to_string()))?;
    subscribe(&mut kafka)
}

/// The group's state for the topic is created when a member subscribes to it.
fn subscribe(kafka: &mut Kafka) -> Outcome {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let request = ShareGroupHeartbeatRequest::default()
        .with_group_id(requests::group_id(GROUP))
        .with_member_id(text(&Uuid::new_v4().to_string()))
        .with_member_epoch(0)
        .with_subscribed_topic_names(Some(vec![requests::topic_name(TOPIC)]));
    let begun = Instant::now();
    while begun.elapsed() < EMPTIED_WITHIN {
        for place in 0..FOUNDERS {
            let answer = kafka.call(place, SHARE_GROUP_HEARTBEAT, &request);
            if answer.is_ok_and(|answer| answer.error_code == 0) {
                return Ok(());
            }
        }
        std::thread::sleep(WAIT);
    }
    Err(Failure::new("no node takes a member of the share group"))
}

pub(super) fn start(target: &WorkloadContext, _seed: u64) -> Check {
    let producing = target.clone();
    let producer = std::thread::spawn(move || produce(&producing));
    let members: Vec<_> = (0..MEMBERS)
        .map(|number| {
            let target = target.clone();
            std::thread::spawn(move || consume(&target, number))
        })
        .collect();
    Box::new(move |target| {
        let (produced, writes) = joined(producer)?;
        let mut history =
            History { produced: produced.into_iter().collect(), ..History::default() };
        for member in members {
            history.deliveries.extend(joined(member)?);
        }
        let mut kafka = Kafka::new(target, 0);
        let (deadline, mut last) = (Instant::now() + EMPTIED_WITHIN, Instant::now());
        let mut why = String::new();
        while last.elapsed() < EMPTY_AFTER {
            if Instant::now() > deadline {
                let what = format!("the share group does not come to its end: {why}");
                return Err(Failure::new(what));
            }
            let before = history.deliveries.len();
            let connected = consume_on(target, &mut kafka, &mut history.deliveries, || true);
            if let Err(failure) = connected {
                (why, last) = (failure.to_string(), Instant::now());
            }
            if history.deliveries.len() > before {
                last = Instant::now();
            }
        }
        let mut found = WorkloadResult { writes: vec![writes], ..WorkloadResult::default() };
        found.counts.insert("share group, records produced", history.produced.len() as u64);
        found.counts.insert("share group, deliveries", history.deliveries.len() as u64);
        found.violations = check(&history);
        Ok(found)
    })
}

fn produce(target: &WorkloadContext) -> (Vec<i64>, Vec<u64>) {
    let (mut offsets, mut writes) = (Vec::new(), Vec::new());
    let mut kafka = Kafka::new(target, 0);
    while !target.stops() {
        if let Some(leader) = kafka.leader(TOPIC, 0) {
            let value = Bytes::from_static(b"share");
            let batches = [(0, batch(std::iter::once(value)))];
            let request = requests::produce(TOPIC, -1, batches);
            let request = request.with_timeout_ms(TIMEOUT.as_millis() as i32);
            let answer = kafka.call(leader, requests::PRODUCE, &request);
            let first = answer.ok().and_then(|it| requests::produced(&it).first().copied());
            if let Some(ProduceOutcome::Acknowledged { base_offset }) = first {
                offsets.push(base_offset);
                writes.push(target.now());
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    (offsets, writes)
}

fn consume(target: &WorkloadContext, number: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    let mut kafka = Kafka::new(target, number);
    while !target.stops() {
        let _ = consume_on(target, &mut kafka, &mut deliveries, || target.stops());
        std::thread::sleep(Duration::from_millis(50));
    }
    deliveries
}

/// Runs one member until it fails, or until `ends` holds and no record comes.
fn consume_on(
    target: &WorkloadContext,
    kafka: &mut Kafka,
    deliveries: &mut Vec<Delivery>,
    ends: impl Fn() -> bool,
) -> Outcome {
    let leader = kafka.leader(TOPIC, 0).ok_or_else(|| Failure::new("no leader"))?;
    let connection = Connection::open(target.addresses.kafka[leader], TIMEOUT)?;
    let mut member = ShareMember::over(connection, GROUP, &[TOPIC.to_owned()], Uuid::new_v4())?;
    loop {
        let asked = target.now();
        let leased = member.fetch(RECORDS_MAX, WAIT, &[])?;
        if leased.is_empty() && ends() {
            return Ok(());
        }
        let (at, first) = (target.now(), deliveries.len());
        let delivery = |offset| Delivery { offset, asked, at, accepted: None };
        deliveries.extend(leased.iter().map(|it| delivery(it.offset)));
        if leased.is_empty() {
            continue;
        }
        let settles: Vec<_> = leased.iter().map(|it| it.settle(Settlement::Accept)).collect();
        member.acknowledge(&settles)?;
        let confirmed = target.now();
        deliveries[first..].iter_mut().for_each(|it| it.accepted = Some(confirmed));
        if ends() && target.stops() {
            return Ok(());
        }
    }
}
