//! Memory of a queue in the broker, part by part: a topic of one partition, what a gateway
//! keeps of it, the lease group that its consumers share, and one record of 1 KiB.
//!
//! `cargo run --release -p broker --example queue_footprint -- [--dir DIR] [--queues N]`
//!
//! It is configured as the AMQP gateway configures a classic queue; that gateway's own memory is
//! not here. `at rest` is after what is durable has left memory.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::{AppendBatch, Broker, BrokerOptions, NewTopic};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use record::{BatchBuilder, BatchHeader, BatchOptions};
use world::{Entropy, OsEntropy, World};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE_BYTES: usize = 1024;
const UNDER_WAY: usize = 100;
const WARM_UP: u32 = 1_000;
const REST: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() {
    let (dir, queues) = arguments();
    let _ = std::fs::remove_dir_all(&dir);
    let broker = Broker::open(World::real(), &dir, BrokerOptions::default()).await.expect("opens");
    // Memory of the first topic, group and consumer is not counted to a queue.
    all(WARM_UP, |number| create_topic(broker.clone(), u32::MAX - number)).await;
    tokio::time::sleep(REST / 5).await;
    let mut report = Report { queues, resident: resident_bytes() };
    let topics: Vec<TopicId> = all(queues, |number| create_topic(broker.clone(), number)).await;
    report.step("topic");
    all(queues, |number| put_document(broker.clone(), number)).await;
    report.step("document");
    all(queues, |number| create_group(broker.clone(), topics[number as usize])).await;
    report.step("lease group");
    tokio::time::sleep(REST).await;
    report.step("at rest");
    all(queues, |number| append(broker.clone(), topics[number as usize])).await;
    report.step("record");
    tokio::time::sleep(REST).await;
    report.step("at rest");
    drop(broker);
    let _ = std::fs::remove_dir_all(&dir);
}

fn arguments() -> (PathBuf, u32) {
    let (mut dir, mut queues) = (std::env::temp_dir().join("postroad-queue-footprint"), 10_000);
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--dir" => dir = value.into(),
            "--queues" => queues = value.parse().expect("--queues is a number"),
            _ => panic!("there is no {name}"),
        }
    }
    (dir, queues)
}

struct Report {
    queues: u32,
    resident: u64,
}

impl Report {
    fn step(&mut self, what: &str) {
        let resident = resident_bytes();
        let grown = resident as f64 - self.resident as f64;
        println!("{what}: {:+.0} bytes a queue", grown / f64::from(self.queues));
        self.resident = resident;
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split_whitespace().nth(1).expect("resident").parse::<u64>();
    pages.expect("a number") * 4096
}

/// Does it for each queue, a number of them at once; the answers in order.
async fn all<T, F: Future<Output = T>>(queues: u32, act: impl Fn(u32) -> F) -> Vec<T> {
    stream::iter(0..queues).map(act).buffered(UNDER_WAY).collect().await
}

fn values(values: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn create_topic(broker: Broker, number: u32) -> TopicId {
    let topic = NewTopic {
        name: format!("bench-{number}"),
        uuid: OsEntropy.uuid(),
        partitions: 1,
        config: values(&[
            ("max.message.bytes", "16908288"),
            ("retention.ms", "-1"),
            ("retention.settled", "true"),
        ]),
    };
    broker.create_topic(topic).await.expect("made")
}

async fn put_document(broker: Broker, number: u32) {
    let name = format!("%2F/bench-{number}");
    let kept = broker.put_document("example.queues", name, vec![b'x'; 80], None).await;
    kept.expect("it is kept");
}

async fn create_group(broker: Broker, topic: TopicId) -> LeaseGroupId {
    let name = base::MAIN_LEASE_GROUP.to_owned();
    let config = values(&[("lease.ms", "0")]);
    broker.create_lease_group(topic, name, Vec::new(), config).await.expect("made")
}

async fn append(broker: Broker, topic: TopicId) {
    let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), VALUE_BYTES + 32);
    let now_ms = broker.clock().now_ms();
    builder.push(now_ms, None, Some(&[b'x'; VALUE_BYTES]), &[]).expect("it fits");
    let bytes = BytesMut::from(Bytes::from(builder.finish()));
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    let partition = PartitionId::new(topic, 0);
    let batch = AppendBatch::new(partition, header, bytes);
    for answer in broker.append(vec![batch]).await {
        answer.expect("taken");
    }
}
