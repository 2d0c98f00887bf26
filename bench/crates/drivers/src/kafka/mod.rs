//! Kafka's protocol, by librdkafka: Apache Kafka, Redpanda, and Postroad's Kafka gateway.
//!
//! *Sent* means: the leader replied to the produce request, with `acks=all` and an idempotent
//! producer (T0: `acks=0`, it is in the client's socket). The guarantee of a reply depends on the
//! server, so `create` configures the tier: T3 and T4 set `flush.messages=1` on Apache Kafka (its
//! default is the page cache), T2 and T4 require at least two in-sync replicas. Redpanda and
//! Postroad sync before they reply; lower tiers set Redpanda's `write.caching`, and Postroad's
//! `durability=replicated` at T2.
//!
//! *Hiding* is by partition: one receiver of the group owns each at a time. Another gets it with
//! all uncommitted messages when the receiver is gone: at once if it left the group, else when its
//! session ends (6 s). There is no lease by message. Settling moves the position of the group once
//! all messages before it are settled. The position is committed every `commit-ms` (100) and when a
//! receiver closes or loses a partition. A release reads the partition again from that message on,
//! and delivers only it.
//!
//! `send` sends at once. `post` lingers as OpenMessaging Benchmark does (1 ms), and not at all
//! where latency comes first.
//!
//! Settings: `window`, `linger-ms` (of posted messages), `commit-ms`, `sasl-mechanism`,
//! `request-timeout-ms`, and any native setting of the client and the topic as `producer.X`,
//! `consumer.X` and `topic.X`.

pub(crate) mod client;
mod receiver;
pub(crate) mod replication;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Replication, Return, Sender, Style, Target, Tier,
    Topology,
};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use crate::kafka_share;
use crate::pending::WINDOW;
use client::{reached, refused};

/// The systems that speak Kafka's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flavour {
    Kafka,
    Redpanda,
    Postroad,
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Time for the deletion of a topic to reach all brokers.
const UNKNOWN_AFTER: Duration = Duration::from_millis(200);
const ENDPOINT: &str = "127.0.0.1:9092";
/// As in OpenMessaging Benchmark; the client's default is 5 ms.
const LINGER_MS: f64 = 1.0;
const SESSION_TIMEOUT: &str = "session.timeout.ms";
/// Minimum of the servers (`group.min.session.timeout.ms`), after which the partitions of a dead
/// member are reassigned. The client's default of 45 s allows for a restart of its server.
const SESSION_TIMEOUT_MS: u64 = 6_000;
/// Interval in which a member detects a rebalance.
const HEARTBEAT_MS: u64 = 500;
/// A killed server restarts within seconds; the client's default for the longest pause is 10 s.
const RECONNECT_MS_MAX: u64 = 500;

pub(crate) fn connect_kafka(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Kafka, target)
}

pub(crate) fn connect_redpanda(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Redpanda, target)
}

pub(crate) fn connect_postroad(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Postroad, target)
}

/// Names and values; the last one of a repeated name applies.
type Settings = Vec<(String, String)>;

#[derive(Debug)]
pub(crate) struct Kafka {
    flavour: Flavour,
    /// Base configuration of every client of this target.
    base: ClientConfig,
    /// The part of it without address and login.
    client: Settings,
    endpoint: String,
    user: String,
    options: Options,
}

#[derive(Clone, Debug)]
struct Options {
    window: u32,
    /// `None` if not set.
    linger_ms: Option<f64>,
    commit_every: Duration,
    producer: Settings,
    consumer: Settings,
    topic: Settings,
}

fn connect(flavour: Flavour, target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    Ok(Arc::new(open(flavour, target)?))
}

pub(crate) fn open(flavour: Flavour, target: &Target) -> Result<Kafka, Failure> {
    let mut settings = target.settings();
    let mut own = |prefix: &str| -> Result<Settings, Failure> {
        let named = target.settings.keys().filter_map(|name| name.strip_prefix(prefix));
        let taken = named.map(|name| {
            let value = settings.take(&format!("{prefix}{name}"), String::new())?;
            Ok((name.to_owned(), value))
        });
        taken.collect()
    };
    let (producer, consumer, topic) = (own("producer.")?, own("consumer.")?, own("topic.")?);
    let options = Options {
        window: settings.take("window", WINDOW)?,
        linger_ms: match target.settings.contains_key("linger-ms") {
            true => Some(settings.take("linger-ms", LINGER_MS)?),
            false => None,
        },
        commit_every: Duration::from_millis(settings.take("commit-ms", 100)?),
        producer,
        consumer,
        topic,
    };
    let mechanism = settings.take("sasl-mechanism", "PLAIN".to_owned())?;
    let request_timeout = settings.take("request-timeout-ms", 30_000_u32)?;
    settings.done()?;
    let endpoint = match &target.endpoints[..] {
        [] => ENDPOINT.to_owned(),
        endpoints => endpoints.join(","),
    };
    let mut base = ClientConfig::new();
    base.set("bootstrap.servers", &endpoint).set("client.id", "postroad-bench");
    let client = vec![
        ("broker.address.family".to_owned(), "v4".to_owned()),
        ("socket.nagle.disable".to_owned(), "true".to_owned()),
        ("socket.timeout.ms".to_owned(), request_timeout.to_string()),
        ("reconnect.backoff.max.ms".to_owned(), RECONNECT_MS_MAX.to_string()),
    ];
    set_all(&mut base, &client);
    let user = target.user.clone().unwrap_or_default();
    if !user.is_empty() {
        base.set("security.protocol", "sasl_plaintext")
            .set("sasl.mechanism", mechanism)
            .set("sasl.username", &user)
            .set("sasl.password", target.password.clone().unwrap_or_default());
    }
    Ok(Kafka { flavour, base, client, endpoint, user, options })
}

fn set_all(config: &mut ClientConfig, settings: &Settings) {
    for (name, value) in settings {
        config.set(name, value);
    }
}

impl Kafka {
    fn acks(tier: Tier) -> &'static str {
        if tier == Tier::T0 { "0" } else { "all" }
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, Failure> {
        self.base.create().map_err(refused)
    }

    /// Waits for a broker to reply, so that later failures have reasons of their own.
    async fn reach(&self) -> Result<(), Failure> {
        let (base, endpoint, user) = (self.base.clone(), self.endpoint.clone(), self.user.clone());
        let reached = tokio::task::spawn_blocking(move || reached(&base, &endpoint, &user));
        reached.await.map_err(Failure::unknown)?
    }

    /// Topic settings that the tier requires.
    fn configs(&self, topology: &Topology) -> Settings {
        let mut configs = Vec::new();
        let mut set = |name: &str, value: &str| configs.push((name.to_owned(), value.to_owned()));
        match (self.flavour, topology.tier) {
            (Flavour::Kafka, Tier::T3 | Tier::T4) => set("flush.messages", "1"),
            (Flavour::Postroad, Tier::T2) => set("durability", "replicated"),
            (Flavour::Redpanda, Tier::T0 | Tier::T1 | Tier::T2) => set("write.caching", "true"),
            _ => {}
        }
        if matches!(topology.tier, Tier::T2 | Tier::T4) && self.flavour != Flavour::Redpanda {
            set("min.insync.replicas", "2");
        }
        if let Some(window) = topology.deduplicate {
            set("dedup.window.ms", &window.as_millis().to_string());
        }
        configs.extend_from_slice(&self.options.topic);
        configs
    }

    fn linger(&self, topology: &Topology) -> String {
        let usual = if topology.latency_first { 0.0 } else { LINGER_MS };
        self.options.linger_ms.unwrap_or(usual).to_string()
    }

    fn producer(&self, topology: &Topology) -> Settings {
        let idempotent = topology.tier != Tier::T0;
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut settings = vec![
            set("acks", Self::acks(topology.tier)),
            set("enable.idempotence", if idempotent { "true" } else { "false" }),
            set("message.timeout.ms", "120000"),
            // Larger than the window, so that the window bounds the messages in flight.
            set("queue.buffering.max.messages", &self.options.window.max(100_000).to_string()),
        ];
        settings.extend_from_slice(&self.options.producer);
        settings
    }

    fn consumer(&self) -> Settings {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut settings = vec![
            set(SESSION_TIMEOUT, &SESSION_TIMEOUT_MS.to_string()),
            set("heartbeat.interval.ms", &HEARTBEAT_MS.to_string()),
            set("auto.offset.reset", "earliest"),
            set("enable.auto.commit", "false"),
            set("enable.auto.offset.store", "false"),
        ];
        settings.extend_from_slice(&self.options.consumer);
        settings
    }

    /// Configuration of a producer without `linger.ms`.
    pub(crate) fn producer_config(&self, topology: &Topology) -> ClientConfig {
        let mut config = self.base.clone();
        set_all(&mut config, &self.producer(topology));
        config
    }

    /// Configuration of a group member that commits explicitly.
    pub(crate) fn consumer_config(&self, group: &str) -> ClientConfig {
        let mut config = self.base.clone();
        config.set("group.id", group);
        set_all(&mut config, &self.consumer());
        config
    }

    /// Deletes topics and groups. Returns whether there was a topic.
    async fn delete(&self, topology: &Topology) -> Result<bool, Failure> {
        let names: Vec<_> =
            (0..topology.destinations).map(|index| topology.destination(index)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let admin = self.admin()?;
        let deleted = admin.delete_topics(&names, &patient()).await.map_err(refused)?;
        let mut any = false;
        for result in deleted {
            match result {
                Ok(_) => any = true,
                Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err((topic, code)) => {
                    return Err(Failure::refused(format!("removing {topic}: {code}")));
                }
            }
        }
        let groups: Vec<_> =
            (0..topology.subscriptions.max(1)).map(|index| topology.subscription(index)).collect();
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        // A missing group, or one with a member that is about to time out, does no harm.
        match admin.delete_groups(&groups, &patient()).await {
            Ok(_) | Err(KafkaError::AdminOp(_)) => Ok(any),
            Err(error) => Err(refused(error)),
        }
    }

    async fn create_topics(&self, topology: &Topology) -> Result<(), Failure> {
        let names: Vec<_> =
            (0..topology.destinations).map(|index| topology.destination(index)).collect();
        let configs = self.configs(topology);
        let partitions = topology.partitions.max(1) as i32;
        let replicas = topology.replicas.max(1) as i32;
        let topics: Vec<_> = names
            .iter()
            .map(|name| {
                let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
                configs.iter().fold(topic, |topic, (name, value)| topic.set(name, value))
            })
            .collect();
        let admin = self.admin()?;
        let created = admin.create_topics(&topics, &patient()).await.map_err(refused)?;
        for result in created {
            if let Err((topic, code)) = result {
                return Err(Failure::refused(format!("creating {topic}: {code}")));
            }
        }
        self.wait_until_led(&names, partitions as usize).await
    }

    /// A topic exists before its partitions have leaders; a send before that waits for a retry.
    async fn wait_until_led(&self, names: &[String], partitions: usize) -> Result<(), Failure> {
        let (base, names) = (self.base.clone(), names.to_vec());
        let waited = tokio::task::spawn_blocking(move || {
            client::wait_until_led(&base, &names, partitions, PATIENCE)
        });
        waited.await.map_err(Failure::unknown)?
    }
}

fn patient() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

#[async_trait]
impl Driver for Kafka {
    fn about(&self) -> About {
        let (system, title, tiers): (_, _, &[Tier]) = match self.flavour {
            Flavour::Kafka => ("kafka", "Apache Kafka, consumer groups", &Tier::ALL),
            Flavour::Redpanda => ("redpanda", "Redpanda, consumer groups", &Tier::ALL),
            Flavour::Postroad => {
                ("postroad-kafka", "Postroad by Kafka's protocol, consumer groups", &Tier::ALL)
            }
        };
        About {
            system,
            title,
            client: "rdkafka 0.39 (librdkafka 2.12.1)",
            sent_means: "the leader answered with acks=all, after what the topic's settings ask for",
            hidden_means: "by partition, until the member leaves the group",
            tiers,
            styles: &[Style::Log, Style::Queue],
            lanes: Lanes::Partitioned,
            returns: Return::Connection,
            subscriptions: true,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let mut producer = vec![("linger.ms".to_owned(), self.linger(topology))];
        producer.extend(self.producer(topology));
        let commit_ms = self.options.commit_every.as_millis().to_string();
        let mut consumer = vec![("commit every ms".to_owned(), commit_ms)];
        consumer.extend(self.consumer());
        let of = [
            ("client", self.client.clone()),
            ("producer", producer),
            ("consumer", consumer),
            ("topic", self.configs(topology)),
        ];
        let named = |(of, settings): (&str, Settings)| -> Settings {
            settings.into_iter().map(|(name, value)| (format!("{of}.{name}"), value)).collect()
        };
        let window = [("window".to_owned(), self.options.window.to_string())];
        of.into_iter().flat_map(named).chain(window).collect()
    }

    /// Kafka detects its own retries by sequence numbers, and has no deduplication by message id.
    fn deduplicates(&self) -> bool {
        self.flavour == Flavour::Postroad
    }

    fn returns_within(&self, _topology: &Topology) -> Duration {
        let settings = self.consumer();
        let timeout = settings.iter().rev().find(|(name, _)| name == SESSION_TIMEOUT);
        let millis = timeout.and_then(|(_, millis)| millis.parse().ok());
        Duration::from_millis(millis.unwrap_or(SESSION_TIMEOUT_MS))
    }

    async fn version(&self) -> Result<String, Failure> {
        self.reach().await?;
        match (self.user.is_empty(), self.endpoint.split(',').next()) {
            (true, Some(first)) => kafka_share::version(first).await,
            _ => Ok("not told by the protocol".to_owned()),
        }
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        let about = self.about();
        // The style does not matter to the server; share groups read these topics in the other
        // style.
        about.offers(&Topology { style: about.styles[0], ..topology.clone() })?;
        if matches!(topology.tier, Tier::T2 | Tier::T4) && topology.replicas < 2 {
            return Err(Failure::refused("a majority of nodes needs replicas of at least 2"));
        }
        self.reach().await?;
        if self.delete(topology).await? {
            // The reply to a delete precedes its propagation, and a new topic of the name would be
            // rejected.
            tokio::time::sleep(UNKNOWN_AFTER).await;
        }
        self.create_topics(topology).await
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        self.delete(topology).await.map(drop)
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let config = self.producer_config(topology);
        let (window, linger) = (self.options.window, self.linger(topology));
        Ok(Box::new(sender::KafkaSender::new(config, window, linger, topology)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let config = self.consumer_config(&topology.subscription(subscription));
        let every = self.options.commit_every;
        Ok(Box::new(receiver::KafkaReceiver::new(&config, topology, destinations, every)?))
    }

    async fn gathered(&self, topology: &Topology, receivers: u32) -> Result<(), Failure> {
        let groups = 0..topology.subscriptions.max(1);
        let groups: Vec<_> = groups.map(|index| topology.subscription(index)).collect();
        let base = self.base.clone();
        let waited = tokio::task::spawn_blocking(move || {
            client::wait_until_gathered(&base, &groups, receivers as usize, PATIENCE)
        });
        waited.await.map_err(Failure::unknown)?
    }

    async fn replication(&self, topology: &Topology) -> Result<Vec<Replication>, Failure> {
        let topics: Vec<_> =
            (0..topology.destinations).map(|index| topology.destination(index)).collect();
        let (base, endpoints) = (self.base.clone(), self.endpoint.clone());
        let asked = tokio::task::spawn_blocking(move || {
            replication::replication(&base, &topics, &endpoints)
        });
        asked.await.map_err(Failure::unknown)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(target: &Target, topology: &Topology) -> BTreeMap<String, String> {
        connect_kafka(target).expect("needs no server yet").settings(topology)
    }

    #[test]
    fn producer_does_not_linger_where_latency_comes_first() {
        let topology = Topology::new("t", Style::Log, Tier::T3);
        let latency = Topology { latency_first: true, ..topology.clone() };
        let mut target = Target::of("kafka");
        assert_eq!(settings(&target, &topology)["producer.linger.ms"], "1");
        assert_eq!(settings(&target, &latency)["producer.linger.ms"], "0");
        target.settings.insert("linger-ms".into(), "7".into());
        assert_eq!(settings(&target, &latency)["producer.linger.ms"], "7");
    }

    #[test]
    fn settings_show_client_and_topic_values_with_the_users_last() {
        let mut target = Target::of("kafka");
        target.settings.insert("producer.acks".into(), "1".into());
        target.settings.insert("topic.retention.ms".into(), "60000".into());
        let said = settings(&target, &Topology::new("t", Style::Log, Tier::T3));
        assert_eq!(said["producer.acks"], "1");
        assert_eq!(said["topic.flush.messages"], "1");
        assert_eq!(said["topic.retention.ms"], "60000");
        assert_eq!(said["client.socket.nagle.disable"], "true");
        assert!(!said.keys().any(|name| name.contains("bootstrap")), "{said:?}");
    }

    #[test]
    fn postroad_durability_is_set_only_below_its_default() {
        let driver = connect_postroad(&Target::of("postroad-kafka")).expect("needs no server yet");
        let at = |tier| driver.settings(&Topology::new("t", Style::Log, tier));
        assert_eq!(at(Tier::T2)["topic.durability"], "replicated");
        assert_eq!(at(Tier::T2)["topic.min.insync.replicas"], "2");
        for synced in [Tier::T3, Tier::T4] {
            assert!(!at(synced).contains_key("topic.durability"), "it is so by itself");
        }
    }

    #[test]
    fn messages_of_a_lost_member_return_after_its_session_timeout() {
        let topology = Topology::new("t", Style::Log, Tier::T3);
        let mut target = Target::of("kafka");
        let driver = connect_kafka(&target).expect("needs no server yet");
        assert_eq!(driver.returns_within(&topology), Duration::from_secs(6));
        target.settings.insert("consumer.session.timeout.ms".into(), "45000".into());
        let driver = connect_kafka(&target).expect("needs no server yet");
        assert_eq!(driver.returns_within(&topology), Duration::from_secs(45));
    }
}
