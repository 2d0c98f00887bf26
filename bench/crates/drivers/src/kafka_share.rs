//! Kafka's share groups (KIP-932): Apache Kafka, and Postroad where it speaks Kafka. No Rust client
//! has them, so the receiver speaks the protocol itself; what is sent goes as in [`crate::kafka`].
//!
//! *Sent* means what it means there. *Hiding*: each record is leased by itself
//! (`share.record.lock.duration.ms`, which servers keep within 15 and 60 seconds: a shorter lease
//! of a test is 15 seconds here) until it is accepted or released, or the member leaves. Settling
//! waits for the server. A batch is leased whole, so a receiver may hold more than it was asked for.
//!
//! One broker only: all partitions are fetched where the first endpoint is. There is no login.
//!
//! Order by lane, where a test asks for it, is by Postroad's option of the group
//! (`share.ordering=key`); Kafka has none.
//!
//! Settings: those of [`crate::kafka`].

mod member;
mod wire;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{
    About, DeliveryId, Driver, Failure, Lanes, RECEIVE_WAIT, Received, Receiver, Return, Sender,
    Settle, Style, Target, Topology,
};

use crate::kafka;
use crate::told::told;
use member::{Member, Place};
use wire::Connection;

const ENDPOINT: &str = "127.0.0.1:9092";
const PATIENCE: Duration = Duration::from_secs(30);
/// What servers let a lease be.
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
    /// Topics, and what sends to them.
    inner: Arc<dyn Driver>,
    address: String,
    system: &'static str,
    title: &'static str,
    lanes: Lanes,
}

/// All that Kafka's protocol tells of the server's version.
pub(crate) async fn version(address: &str) -> Result<String, Failure> {
    let level = Connection::open(address).await?.metadata_level().await?;
    Ok(match level {
        Some(level) => format!("metadata.version {level}"),
        None => "not told by the protocol".to_owned(),
    })
}

/// Of a topology's lease, as much as servers give.
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
            client: "rdkafka 0.39 to send, the suite's own (kafka-protocol 0.18) to receive",
            hidden_means: "leased by record, until the lease ends or the member leaves",
            styles: &[Style::Queue],
            lanes: self.lanes,
            returns: Return::LeaseOrConnection,
            tells_redelivery: true,
            settles_confirmed: true,
            ..self.inner.about()
        }
    }

    /// What is said of consumers is of those of the client, which is none of these.
    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let mut settings = self.inner.settings(topology);
        settings.retain(|name, _| !name.starts_with("consumer."));
        let group = self.group_settings(topology).into_iter();
        settings.extend(group.map(|(name, value)| (format!("group.{name}"), value)));
        settings.extend(told(&[("receiver.fetch.max.bytes", &member::FETCH_BYTES)]));
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
        let mut connection = Connection::open(&self.address).await?;
        let brokers = connection.metadata(&[]).await?.brokers.len();
        if brokers > 1 {
            let what = format!("way to read from {brokers} brokers in this driver");
            return Err(Failure::Unsupported { system: self.system, what });
        }
        let settings = self.group_settings(topology);
        for subscription in 0..topology.subscriptions.max(1) {
            let group = topology.subscription(subscription);
            connection.configure_group(&group, &settings).await?;
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
        Ok(Box::new(ShareReceiver {
            member: Member::join(&self.address, &group, &topics).await?,
            waiting: VecDeque::new(),
            open: HashMap::new(),
            deliveries: 0,
        }))
    }
}

#[derive(Debug)]
struct ShareReceiver {
    member: Member,
    /// Leased with others and not asked for yet.
    waiting: VecDeque<(Place, Bytes, bool)>,
    open: HashMap<u64, Place>,
    deliveries: u64,
}

#[async_trait]
impl Receiver for ShareReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let deadline = Instant::now() + RECEIVE_WAIT;
        while self.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let leased = self.member.fetch(max, left).await?;
            self.waiting.extend(leased);
            if left.is_zero() {
                break;
            }
        }
        let count = max.min(self.waiting.len());
        let mut received = Vec::with_capacity(count);
        for (place, body, redelivered) in self.waiting.drain(..count) {
            self.deliveries += 1;
            self.open.insert(self.deliveries, place);
            let redelivered = Some(redelivered);
            received.push(Received { id: DeliveryId(self.deliveries), body, redelivered });
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let mut places = Vec::with_capacity(settles.len());
        for &(DeliveryId(delivery), settle) in settles {
            let Some(place) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            places.push((place, settle));
        }
        self.member.settle(places).await
    }

    /// The server takes back what the session still has.
    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.member.leave().await
    }
}
