//! Kafka's share groups (KIP-932): Apache Kafka, and Postroad's Kafka gateway. Postroad's own
//! client is the only one in Rust that supports them, so it receives here. Its calls are made from
//! the receiver's task directly. Messages are sent as in [`crate::kafka`].
//!
//! *Sent* means the same as there. *Hiding*: each record has its own lease
//! (`share.record.lock.duration.ms`, which servers limit to 15 to 60 seconds: a shorter lease of a
//! test is 15 seconds here) until it is accepted or released, or the member leaves. Settling waits
//! for the server. A batch is leased as a whole, so a receiver may hold more records than it
//! requested.
//!
//! One broker only: all partitions are fetched from the first endpoint. There is no login.
//!
//! Order by lane, where a test requires it, uses Postroad's group option (`share.ordering=key`);
//! Kafka has none.
//!
//! Settings: those of [`crate::kafka`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use client::requests::{self, ConfigChange, ConfigResource};
use client::share::{LeasedRecord, Settlement, ShareLimits, ShareMember};
use client::{CallError, Pipeline, Tcp};
use driver::{
    About, DeliveryId, Driver, Failure, Lanes, RECEIVE_WAIT, Received, Receiver, Return, Sender,
    Settle, Style, Target, Topology,
};
use uuid::Uuid;

use crate::kafka;
use crate::told::named_values;

const ENDPOINT: &str = "127.0.0.1:9092";
const PATIENCE: Duration = Duration::from_secs(30);
/// Client id.
const NAME: &str = "postroad-bench";
/// Byte limit of one fetch.
const FETCH_BYTES: i32 = 8 << 20;
/// Lease limits of the servers.
const LEASE_MIN: Duration = Duration::from_secs(15);
const LEASE_MAX: Duration = Duration::from_secs(60);

pub(crate) fn connect_kafka(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let title = "Apache Kafka, share groups";
    connect(target, "kafka-share", title, Lanes::Unordered, kafka::connect_kafka)
}

pub(crate) fn connect_postroad(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let title = "Postroad by Kafka's protocol, share groups";
    connect(target, "postroad-share", title, Lanes::Ordered, kafka::connect_postroad)
}

fn connect(
    target: &Target,
    system: &'static str,
    title: &'static str,
    lanes: Lanes,
    connect: fn(&Target) -> Result<Arc<dyn Driver>, Failure>,
) -> Result<Arc<dyn Driver>, Failure> {
    if target.user.is_some() {
        return Err(Failure::Unsupported { system, what: "login in this driver".into() });
    }
    let address = target.endpoint(ENDPOINT).to_owned();
    Ok(Arc::new(Share { inner: connect(target)?, address, system, title, lanes }))
}

#[derive(Debug)]
struct Share {
    /// Driver of the topics and their senders.
    inner: Arc<dyn Driver>,
    address: String,
    system: &'static str,
    title: &'static str,
    lanes: Lanes,
}

async fn open(address: &str) -> Result<Pipeline, Failure> {
    let pipeline = Pipeline::open(&Tcp, address).await.map_err(|error| Failure::Unreachable {
        endpoint: address.to_owned(),
        why: error.to_string(),
    })?;
    Ok(pipeline.named(NAME).patient_for(PATIENCE))
}

fn failed(error: CallError) -> Failure {
    match error {
        CallError::Refused(refused) => Failure::refused(refused),
        error => Failure::unknown(error),
    }
}

/// Version level that Kafka's protocol reports.
pub(crate) async fn version(address: &str) -> Result<String, Failure> {
    let mut connection = open(address).await?;
    let asked = connection.call(requests::API_VERSIONS, &requests::api_versions(NAME)).await;
    let level = requests::finalized_level(&asked.map_err(failed)?, "metadata.version");
    Ok(match level {
        Some(level) => format!("metadata.version {level}"),
        None => "not told by the protocol".to_owned(),
    })
}

/// The topology's lease, within the servers' limits.
fn lease(topology: &Topology) -> Duration {
    topology.lease.clamp(LEASE_MIN, LEASE_MAX)
}

impl Share {
    fn group_settings(&self, topology: &Topology) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("share.auto.offset.reset", "earliest".to_owned()),
            ("share.record.lock.duration.ms", lease(topology).as_millis().to_string()),
        ];
        if topology.ordered && self.lanes == Lanes::Ordered {
            settings.push(("share.ordering", "key".to_owned()));
        }
        settings
    }
}

#[async_trait]
impl Driver for Share {
    fn about(&self) -> About {
        About {
            system: self.system,
            title: self.title,
            client: "rdkafka 0.39 to send, Postroad's own to receive",
            hidden_means: "leased by record, until the lease ends or the member leaves",
            styles: &[Style::Queue],
            lanes: self.lanes,
            returns: Return::LeaseOrConnection,
            tells_redelivery: true,
            settles_confirmed: true,
            ..self.inner.about()
        }
    }

    /// The inner driver's consumer settings do not apply to share groups.
    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let mut settings = self.inner.settings(topology);
        settings.retain(|name, _| !name.starts_with("consumer."));
        let group = self.group_settings(topology).into_iter();
        settings.extend(group.map(|(name, value)| (format!("group.{name}"), value)));
        settings.extend(named_values(&[("receiver.fetch.max.bytes", &FETCH_BYTES)]));
        settings
    }

    fn deduplicates(&self) -> bool {
        self.inner.deduplicates()
    }

    fn returns_within(&self, topology: &Topology) -> Duration {
        lease(topology)
    }

    async fn version(&self) -> Result<String, Failure> {
        self.inner.version().await
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        if topology.style == Style::Log {
            let what = "reading by position".into();
            return Err(Failure::Unsupported { system: self.system, what });
        }
        self.inner.create(topology).await?;
        let mut connection = open(&self.address).await?;
        let asked = connection.call(requests::METADATA, &requests::metadata([])).await;
        let brokers = asked.map_err(failed)?.brokers.len();
        if brokers > 1 {
            let what = format!("way to read from {brokers} brokers in this driver");
            return Err(Failure::Unsupported { system: self.system, what });
        }
        let settings = self.group_settings(topology).into_iter();
        let set = |(name, value): (&str, String)| ConfigChange::Set { name: name.into(), value };
        let settings: Vec<ConfigChange> = settings.map(set).collect();
        for subscription in 0..topology.subscriptions.max(1) {
            let group = topology.subscription(subscription);
            let request = requests::alter_configs(ConfigResource::Group, &group, &settings);
            let changed = connection.call(requests::ALTER_CONFIGS, &request).await;
            requests::altered(&changed.map_err(failed)?).map_err(Failure::refused)?;
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        self.inner.remove(topology).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        self.inner.sender(topology).await
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let topics: Vec<String> =
            destinations.iter().map(|&index| topology.destination(index)).collect();
        let group = topology.subscription(subscription);
        let (coordinator, leader) = (open(&self.address).await?, open(&self.address).await?);
        let member = ShareMember::join(coordinator, leader, &group, &topics, Uuid::new_v4()).await;
        Ok(Box::new(ShareReceiver {
            member: member.map_err(failed)?,
            waiting: VecDeque::new(),
            open: HashMap::new(),
            deliveries: 0,
        }))
    }
}

#[derive(Debug)]
struct ShareReceiver {
    member: ShareMember,
    /// Leased records that have not been requested yet.
    waiting: VecDeque<LeasedRecord>,
    /// How to accept each delivery.
    open: HashMap<u64, client::share::Settle>,
    deliveries: u64,
}

#[async_trait]
impl Receiver for ShareReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let deadline = Instant::now() + RECEIVE_WAIT;
        while self.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let limits = ShareLimits { records_max: max, bytes_max: FETCH_BYTES, wait: left };
            self.waiting.extend(self.member.fetch(limits, &[]).await.map_err(failed)?);
            if left.is_zero() {
                break;
            }
        }
        let count = max.min(self.waiting.len());
        let mut received = Vec::with_capacity(count);
        for record in self.waiting.drain(..count) {
            self.deliveries += 1;
            self.open.insert(self.deliveries, record.settle(Settlement::Accept));
            let redelivered = Some(record.attempt > 1);
            let id = DeliveryId(self.deliveries);
            received.push(Received { id, body: record.value, redelivered });
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let mut settled = Vec::with_capacity(settles.len());
        for &(DeliveryId(delivery), settle) in settles {
            let Some(accepted) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            let settlement = match settle {
                Settle::Accept => Settlement::Accept,
                Settle::Release => Settlement::Release,
            };
            settled.push(client::share::Settle { settlement, ..accepted });
        }
        self.member.acknowledge(&settled).await.map_err(failed)
    }

    /// The server releases the session's remaining records.
    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.member.leave().await.map_err(failed)
    }
}
