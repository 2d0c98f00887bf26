//! KMQ: messages of a Kafka topic that are settled one by one, by markers in a second topic
//! (github.com/softwaremill/kmq). On Apache Kafka, and on Postroad's Kafka gateway.
//!
//! *Sent* means the same as in [`crate::kafka`].
//!
//! *Hiding*: a receiver writes a start marker for each message, waits for that, and commits its
//! position. A settle writes an end marker without a wait. A redelivery tracker reads the markers.
//! It writes a message without an end marker within the lease to the end of the same partition
//! again, with a count in a header. A release just leaves the message to the tracker. After
//! `max-redeliveries` a message goes to the topic `..__undelivered-N`.
//!
//! KMQ runs its tracker as a separate process. Here it runs in the driver as long as the driver has
//! a receiver. A redelivered message is a new one for every group of the topic, so there is one
//! subscription. The lease is the test's (KMQ has no default; its authors measured with 15 s).
//!
//! Settings: `max-redeliveries` (3), and those of [`crate::kafka`], but for `commit-ms`.

mod marker;
mod open;
mod receiver;
mod redeliverer;
mod tracker;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Topology};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;

use crate::kafka::{self, Flavour, Kafka};
use tracker::{Plan, Trackers};
use writer::MarkerWriter;

const REDELIVERIES_MAX: i32 = 3;

pub(crate) fn connect_kafka(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(target, Flavour::Kafka, "kmq", "KMQ on Apache Kafka")
}

pub(crate) fn connect_postroad(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(target, Flavour::Postroad, "postroad-kmq", "KMQ on Postroad by Kafka's protocol")
}

fn connect(
    target: &Target,
    flavour: Flavour,
    system: &'static str,
    title: &'static str,
) -> Result<Arc<dyn Driver>, Failure> {
    let redeliveries_max = target.settings().take("max-redeliveries", REDELIVERIES_MAX)?;
    let mut target = target.clone();
    target.settings.remove("max-redeliveries");
    if target.settings.contains_key("commit-ms") {
        let why = "KMQ commits all that it receives at once".into();
        return Err(Failure::Setting { name: "commit-ms".into(), why });
    }
    let queues = kafka::open(flavour, &target)?;
    // All trackers of a partition then agree on due times.
    target.settings.insert("topic.message.timestamp.type".into(), "LogAppendTime".into());
    let markers = kafka::open(flavour, &target)?;
    let trackers = Trackers::default();
    Ok(Arc::new(Kmq { queues, markers, trackers, redeliveries_max, system, title }))
}

#[derive(Debug)]
struct Kmq {
    queues: Kafka,
    /// The same broker, configured for the markers topics.
    markers: Kafka,
    trackers: Trackers,
    redeliveries_max: i32,
    system: &'static str,
    title: &'static str,
}

/// Topics of a destination.
#[derive(Clone, Debug)]
struct Topics {
    queue: String,
    markers: String,
    undelivered: String,
}

/// Topology of the topics with this suffix.
fn beside(topology: &Topology, ending: &str) -> Topology {
    let prefix = format!("{}{ending}", topology.prefix);
    Topology { prefix, deduplicate: None, delivery_limit: None, ..topology.clone() }
}

fn markers(topology: &Topology) -> Topology {
    beside(topology, "-markers")
}

fn undelivered(topology: &Topology) -> Topology {
    beside(topology, "__undelivered")
}

fn topics(topology: &Topology, destination: u32) -> Topics {
    Topics {
        queue: topology.destination(destination),
        markers: markers(topology).destination(destination),
        undelivered: undelivered(topology).destination(destination),
    }
}

/// A client context that only logs.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!("librdkafka {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("librdkafka: {error}: {reason}");
    }
}

impl ConsumerContext for Quiet {}

impl Kmq {
    fn plan(&self, topology: &Topology) -> Plan {
        let group = markers(topology).subscription(0);
        Plan {
            topics: (0..topology.destinations).map(|index| topics(topology, index)).collect(),
            consumer: self.markers.consumer_config(&group),
            // It joins no group, but the client requires a group name.
            reader: self.queues.consumer_config(&group),
            producer: self.queues.producer_config(topology),
            redeliveries_max: self.redeliveries_max,
        }
    }
}

#[async_trait]
impl Driver for Kmq {
    fn about(&self) -> About {
        About {
            system: self.system,
            title: self.title,
            client: "rdkafka 0.39 (librdkafka 2.12.1); markers and tracker are the suite's own",
            hidden_means: "by a start marker, until its end marker; after the lease it is sent again",
            styles: &[Style::Queue],
            lanes: Lanes::Partitioned,
            returns: Return::Lease,
            subscriptions: false,
            tells_redelivery: true,
            settles_confirmed: false,
            ..self.queues.about()
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let mut settings = self.queues.settings(topology);
        settings.insert("max-redeliveries".into(), self.redeliveries_max.to_string());
        settings
    }

    fn deduplicates(&self) -> bool {
        self.queues.deduplicates()
    }

    /// First another receiver must get its partition, and then the tracker must read its marker.
    fn returns_within(&self, topology: &Topology) -> Duration {
        self.queues.returns_within(topology) + topology.lease + Duration::from_secs(2)
    }

    async fn version(&self) -> Result<String, Failure> {
        self.queues.version().await
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.queues.create(topology).await?;
        self.markers.create(&markers(topology)).await?;
        self.queues.create(&undelivered(topology)).await
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        self.queues.remove(topology).await?;
        self.markers.remove(&markers(topology)).await?;
        self.queues.remove(&undelivered(topology)).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        self.queues.sender(topology).await
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let consumer = self.queues.consumer_config(&topology.subscription(subscription));
        let writer = MarkerWriter::new(self.queues.producer_config(topology))?;
        let topics = destinations.iter().map(|&index| topics(topology, index)).collect();
        let lease_ms = topology.lease.as_millis() as i64;
        let tracked = self.trackers.tracked(&topology.prefix, || self.plan(topology))?;
        let receiver = receiver::KmqReceiver::new(&consumer, writer, topics, lease_ms, tracked)?;
        Ok(Box::new(receiver))
    }

    async fn gathered(&self, topology: &Topology, receivers: u32) -> Result<(), Failure> {
        self.queues.gathered(topology, receivers).await
    }
}
