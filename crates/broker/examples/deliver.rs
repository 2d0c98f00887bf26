//! How fast records go from a producer through a lease to their settle, on a real disk, without
//! any protocol in between.
//!
//! `cargo run --release -p broker --example deliver -- [--dir DIR] [--records N] [--batch N]
//! [--consumers N] [--prefetch N] [--ordering free|key|partition] [--backlog]`
//!
//! With `--backlog` everything is produced first. CPU is that of the whole process: producers and
//! consumers included.

#![expect(clippy::disallowed_types, reason = "it measures the time of this machine")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::{
    AppendBatch, Broker, BrokerOptions, ConsumeOptions, Credit, Event, NewTopic, Settle, Settlement,
};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions};
use world::{Entropy, OsEntropy, World};

const VALUE_BYTES: usize = 1024;
/// Batches that a producer has under way.
const PRODUCED_AHEAD: usize = 8;

#[derive(Clone, Debug)]
struct Arguments {
    dir: PathBuf,
    records: usize,
    batch: usize,
    consumers: usize,
    prefetch: u32,
    ordering: String,
    backlog: bool,
}

fn arguments() -> Arguments {
    let mut parsed = Arguments {
        dir: std::env::temp_dir().join("postroad-deliver"),
        records: 1_000_000,
        batch: 100,
        consumers: 4,
        prefetch: 1_000,
        ordering: "free".into(),
        backlog: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        if name == "--backlog" {
            parsed.backlog = true;
            continue;
        }
        let value = given.next().unwrap_or_else(|| panic!("{name} needs a value"));
        let number = || value.parse::<usize>().unwrap_or_else(|_| panic!("{name} is a number"));
        match name.as_str() {
            "--dir" => parsed.dir = value.into(),
            "--records" => parsed.records = number(),
            "--batch" => parsed.batch = number().max(1),
            "--consumers" => parsed.consumers = number().max(1),
            "--prefetch" => parsed.prefetch = number() as u32,
            "--ordering" => parsed.ordering = value,
            _ => panic!("there is no {name}"),
        }
    }
    parsed
}

#[tokio::main]
async fn main() {
    let arguments = arguments();
    let _ = std::fs::remove_dir_all(&arguments.dir);
    let broker =
        Broker::open(World::real(), &arguments.dir, BrokerOptions::default()).await.expect("opens");
    let (topic, group) = prepare(&broker, &arguments).await;
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    if arguments.backlog {
        produce(broker.clone(), topic, arguments.clone()).await;
        report("produced", &arguments, begun, cpu);
    }
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let producing = (!arguments.backlog)
        .then(|| tokio::spawn(produce(broker.clone(), topic, arguments.clone())));
    let settled = Arc::new(tokio::sync::Semaphore::new(0));
    let consuming: Vec<_> = (0..arguments.consumers)
        .map(|_| tokio::spawn(consume(broker.clone(), group, arguments.prefetch, settled.clone())))
        .collect();
    let all = settled.acquire_many(arguments.records as u32).await.expect("never closed");
    report("delivered and settled", &arguments, begun, cpu);
    drop(all);
    if let Some(producing) = producing {
        producing.await.expect("no panic");
    }
    consuming.iter().for_each(tokio::task::JoinHandle::abort);
    println!("{:?}", broker.counters(group).await.expect("there"));
    println!("{:?}", broker.journal_stats().collect::<Vec<_>>());
    broker.shutdown().await;
    let _ = std::fs::remove_dir_all(&arguments.dir);
}

fn report(what: &str, arguments: &Arguments, begun: Instant, cpu_before: f64) {
    let (took, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    let records = arguments.records as f64;
    println!(
        "{what}: {:.0} records/s, {:.2} CPU-seconds per million records ({took:.2} s, {cpu:.2} s of CPU)",
        records / took,
        cpu / records * 1e6
    );
}

async fn prepare(broker: &Broker, arguments: &Arguments) -> (TopicId, LeaseGroupId) {
    let topic = NewTopic {
        name: "deliver".into(),
        uuid: OsEntropy.uuid(),
        partitions: 1,
        config: [("retention.settled".to_string(), "true".to_string())].into(),
    };
    let topic = broker.create_topic(topic).await.expect("made");
    let config = [("ordering".to_string(), arguments.ordering.clone())].into();
    let group = broker.create_lease_group(topic, "main".into(), Vec::new(), config).await;
    (topic, group.expect("made"))
}

async fn produce(broker: Broker, topic: TopicId, arguments: Arguments) {
    let partition = PartitionId::new(topic, 0);
    let value = vec![b'x'; VALUE_BYTES];
    let mut under_way = std::collections::VecDeque::new();
    let mut sent = 0;
    while sent < arguments.records {
        let count = arguments.batch.min(arguments.records - sent);
        let capacity = count * (VALUE_BYTES + 32);
        let now_ms = broker.clock().now_ms();
        let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), capacity);
        for number in sent..sent + count {
            let key = ((number % 10_000) as u32).to_be_bytes();
            builder.push(now_ms, Some(&key), Some(&value), &[]).expect("it fits");
        }
        sent += count;
        let bytes = BytesMut::from(bytes::Bytes::from(builder.finish()));
        let header = BatchHeader::parse(&bytes).expect("what was built can be read");
        let batch = AppendBatch::new(partition, header, bytes);
        under_way.push_back(broker.append(vec![batch]));
        if under_way.len() >= PRODUCED_AHEAD {
            taken(under_way.pop_front().expect("just put there").await);
        }
    }
    for reply in under_way {
        taken(reply.await);
    }
}

fn taken(answers: Vec<Result<broker::AppendedBatch, broker::AppendError>>) {
    for answer in answers {
        answer.expect("taken");
    }
}

async fn consume(
    broker: Broker,
    group: LeaseGroupId,
    prefetch: u32,
    settled: Arc<tokio::sync::Semaphore>,
) {
    let session = broker.lease_session();
    let mut events = session.events().expect("the first to ask");
    let options = ConsumeOptions { credit: Credit::records(prefetch), ..ConsumeOptions::default() };
    session.consume(group, options).await.expect("may consume");
    while let Some(event) = events.recv().await {
        let Event::Deliveries(deliveries) = event else { continue };
        let mut settles = Vec::with_capacity(deliveries.len());
        for delivery in &deliveries {
            let value = delivery.view().value.map_or(0, <[u8]>::len);
            assert_eq!(value, VALUE_BYTES);
            let what = delivery.lease();
            settles.push(Settle { group, what, settlement: Settlement::Accept });
        }
        let count = settles.len();
        let reply = session.settle(settles);
        let settled = Arc::clone(&settled);
        tokio::spawn(async move {
            let results = reply.await;
            let refused = results.iter().filter(|result| result.is_err()).count();
            assert_eq!(refused, 0, "settles were refused");
            settled.add_permits(count);
        });
    }
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|it| it.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS_PER_SECOND
}
