//! A node whose clock moves only when it is set.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId, headers};
use broker::delivery::{Events, SettleError};
use broker::{
    AppendBatch, AppendError, AppendedBatch, Broker, BrokerOptions, ConsumeOptions, Delivery,
    Event, LeaseSession, NewTopic, Settle, Settlement, TakeOptions,
};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions, Compression, Header};
use world::{Disk, Entropy, ManualClock, OsEntropy, SimulatedDisk, World};

pub(crate) const START_MS: i64 = 1_700_000_000_000;
pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const RELEASE: Settlement = Settlement::Release { delay_ms: None, count: true };

pub(crate) struct Node {
    pub(crate) broker: Broker,
    pub(crate) clock: Arc<ManualClock>,
}

/// A record to append.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestRecord {
    pub(crate) key: Option<String>,
    pub(crate) value: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Its timestamp; none: the start time.
    pub(crate) timestamp: Option<i64>,
}

pub(crate) fn new(value: impl Into<String>) -> TestRecord {
    TestRecord { value: value.into(), ..TestRecord::default() }
}

impl TestRecord {
    pub(crate) fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    pub(crate) fn at(mut self, timestamp: i64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }
}

pub(crate) fn values(count: usize) -> Vec<TestRecord> {
    (0..count).map(|number| new(format!("v{number}"))).collect()
}

pub(crate) fn batch(
    partition: PartitionId,
    compression: Compression,
    records: &[TestRecord],
) -> AppendBatch {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    for record in records {
        let headers: Vec<Header<'_>> = record
            .headers
            .iter()
            .map(|(key, value)| Header { key: key.as_bytes(), value: Some(value.as_bytes()) })
            .collect();
        let key = record.key.as_ref().map(|key| key.as_bytes());
        builder
            .push(
                record.timestamp.unwrap_or(START_MS),
                key,
                Some(record.value.as_bytes()),
                &headers,
            )
            .expect("a small record fits");
    }
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

pub(crate) async fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Node {
    open_at(disk, dir, START_MS).await
}

pub(crate) async fn open_at(disk: Arc<dyn Disk>, dir: &Path, now_ms: i64) -> Node {
    let clock = Arc::new(ManualClock::new(now_ms));
    let options = BrokerOptions {
        journal: journal::Options {
            segment_bytes: 1 << 20,
            disk_reserve_bytes: 0,
            ..journal::Options::default()
        },
        housekeeping_interval: Duration::from_millis(10),
        shards: Some(crate::SHARDS),
        ..BrokerOptions::default()
    };
    let broker = Broker::open(World::on(disk).with_clock(Arc::clone(&clock) as _), dir, options)
        .await
        .expect("opens");
    Node { broker, clock }
}

pub(crate) async fn open(disk: &SimulatedDisk) -> Node {
    open_on(Arc::new(disk.clone()), Path::new("/data")).await
}

fn overrides(config: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    config.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

impl Node {
    pub(crate) async fn topic(
        &self,
        name: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> TopicId {
        let topic = NewTopic {
            name: name.into(),
            uuid: OsEntropy.uuid(),
            partitions,
            config: overrides(config),
        };
        self.broker.create_topic(topic).await.expect("the topic is new")
    }

    /// A topic whose first partition is in the same shard as that of another one.
    pub(crate) async fn topic_beside(
        &self,
        other: TopicId,
        name: &str,
        partitions: u32,
        config: &[(&str, &str)],
    ) -> TopicId {
        // Each topic starts in the shard after that of the previous topic.
        for number in 0.. {
            let topic = self.topic(name, partitions, config).await;
            if topic.0.abs_diff(other.0).is_multiple_of(crate::SHARDS) {
                return topic;
            }
            self.broker.delete_topic(topic).await.expect("deleted");
            assert!(number < crate::SHARDS, "topics go round the shards");
        }
        unreachable!("a topic is made or a panic ends this")
    }

    pub(crate) async fn group(&self, topic: TopicId, config: &[(&str, &str)]) -> LeaseGroupId {
        self.group_named(topic, "main", config).await
    }

    pub(crate) async fn group_named(
        &self,
        topic: TopicId,
        name: &str,
        config: &[(&str, &str)],
    ) -> LeaseGroupId {
        let (name, config) = (name.to_string(), overrides(config));
        let made = self.broker.create_lease_group(topic, name, Vec::new(), config).await;
        made.expect("the group is new")
    }

    pub(crate) async fn append(&self, topic: TopicId, records: &[TestRecord]) -> u64 {
        self.try_append(topic, records).await.expect("taken").base_offset
    }

    pub(crate) async fn try_append(
        &self,
        topic: TopicId,
        records: &[TestRecord],
    ) -> Result<AppendedBatch, AppendError> {
        let batch = batch(PartitionId::new(topic, 0), Compression::None, records);
        self.broker.append(vec![batch]).await.remove(0)
    }

    pub(crate) async fn live_bytes(&self, partition: PartitionId) -> u64 {
        self.broker.shards().live_bytes(&[partition]).await.expect("answers")[0]
    }

    /// Number of unsettled records.
    pub(crate) async fn depth(&self, group: LeaseGroupId) -> u64 {
        self.broker.counters(group).await.expect("the group is there").depth
    }

    pub(crate) async fn wait_for_ready(&self, group: LeaseGroupId, ready: u64) {
        let is_so = async || self.broker.counters(group).await.expect("it is there").ready == ready;
        wait_for(is_so, || format!("{ready} records that are ready")).await;
    }

    pub(crate) async fn wait_for_depth(&self, group: LeaseGroupId, depth: u64) {
        wait_for(async || self.depth(group).await == depth, || format!("a depth of {depth}")).await;
    }
}

/// Waits until the condition holds.
pub(crate) async fn wait_for(mut condition: impl AsyncFnMut() -> bool, what: impl Fn() -> String) {
    for _ in 0..1_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} did not come about in 10 seconds", what());
}

pub(crate) struct Consumer {
    pub(crate) session: LeaseSession,
    pub(crate) events: Events,
    pub(crate) id: u64,
}

pub(crate) async fn consume(node: &Node, group: LeaseGroupId, options: ConsumeOptions) -> Consumer {
    let session = node.broker.lease_session();
    let events = session.events().expect("the first to ask");
    let id = session.consume(group, options).await.expect("may consume");
    Consumer { session, events, id }
}

impl Consumer {
    /// The next `count` deliveries.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<Delivery> {
        let mut all = Vec::new();
        while all.len() < count {
            let event = tokio::time::timeout(SOON, self.events.recv()).await;
            match event.unwrap_or_else(|_| panic!("{} of {count} came", all.len())) {
                Some(Event::Deliveries(deliveries)) => all.extend(deliveries),
                Some(Event::Active { .. }) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        assert_eq!(all.len(), count, "more came");
        all
    }

    /// Checks that no event comes for a while.
    pub(crate) async fn nothing(&mut self) {
        let event = tokio::time::timeout(Duration::from_millis(60), self.events.recv()).await;
        assert!(event.is_err(), "unexpected {event:?}");
    }

    pub(crate) async fn accept(&self, deliveries: &[Delivery]) {
        settle(&self.session, deliveries, Settlement::Accept).await;
    }

    pub(crate) async fn settle(&self, deliveries: &[Delivery], settlement: Settlement) {
        settle(&self.session, deliveries, settlement).await;
    }
}

pub(crate) async fn settle(
    session: &LeaseSession,
    deliveries: &[Delivery],
    settlement: Settlement,
) {
    for result in try_settle(session, deliveries, settlement).await {
        result.expect("settled");
    }
}

pub(crate) async fn try_settle(
    session: &LeaseSession,
    deliveries: &[Delivery],
    settlement: Settlement,
) -> Vec<Result<(), SettleError>> {
    let settles = deliveries.iter().map(|delivery| Settle {
        group: delivery.group,
        what: delivery.lease(),
        settlement,
    });
    session.settle(settles.collect()).await
}

pub(crate) async fn take(
    session: &LeaseSession,
    group: LeaseGroupId,
    records_max: u32,
) -> Vec<Delivery> {
    session
        .take(group, TakeOptions { records_max, ..TakeOptions::default() })
        .await
        .expect("may take")
}

/// All ready records.
pub(crate) async fn take_all(session: &LeaseSession, group: LeaseGroupId) -> Vec<Delivery> {
    let mut all = Vec::new();
    loop {
        let taken = take(session, group, 1_000).await;
        if taken.is_empty() {
            return all;
        }
        all.extend(taken);
    }
}

pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.value().expect("a value").to_vec()).expect("text")
}

pub(crate) fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

pub(crate) fn header(delivery: &Delivery, name: &str) -> Option<String> {
    let view = delivery.view();
    let value = view.headers.last(name.as_bytes())??;
    Some(String::from_utf8(value.to_vec()).expect("text"))
}

pub(crate) fn reason(delivery: &Delivery) -> String {
    header(delivery, headers::DEATH_REASON).expect("a dead letter says why")
}
