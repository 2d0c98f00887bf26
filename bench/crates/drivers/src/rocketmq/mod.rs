//! Apache RocketMQ 5 by its remoting protocol, implemented here because its Rust clients are
//! unsuitable. The official one (`rocketmq`, on crates.io since 2023) cannot release a message and
//! depends on an unmaintained TLS stack. The other one (`rocketmq-client-rust`) is a port of the
//! whole server's code base with a runtime of its own.
//!
//! *Sent* means: the broker replied `SEND_OK`. Its guarantee depends on `flushDiskType` and
//! `brokerRole`: `SYNC_FLUSH` has synced (T3), `SYNC_MASTER` has a second copy in a page cache
//! (T2), otherwise it is in the mapped file (T1). `create` queries both, and rejects a tier that
//! does not hold. Messages are not batched; those of a lane are sent one after the other, since a
//! broker stores concurrent requests in any order. It rejects requests that waited for 200 ms.
//! Without order these are retried twice, as in the Java client; hence the small window.
//!
//! *Hiding*: a popped message is invisible for the lease, and is then redelivered by the group's
//! retry topic, some seconds late. A release, and the end of a receiver, shorten the lease to a
//! second. A broker replies to a settle from memory: when it is killed, recently settled messages
//! are redelivered, so a settle counts as not confirmed. Up to `prefetch` messages are popped in
//! advance. Where lanes must be in order, each lane belongs to one queue, and the broker delivers a
//! queue's next messages when the previous ones are settled.
//!
//! The address is a broker's (its master), not a name server's. A destination has `partitions`
//! queues.
//!
//! Settings: `window` (64, the number of threads of RocketMQ's own benchmark), `prefetch` (64).
//! There is no login (ACLs are not supported).

mod connection;
mod message;
mod receiver;
mod sender;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use serde_json::Value;

use crate::told::{ms, named_values};
use connection::Broker;
use wire::{Answer, Request, code};

const SYSTEM: &str = "rocketmq";
const TITLE: &str = "Apache RocketMQ";
const ENDPOINT: &str = "127.0.0.1:10911";
const WINDOW: u32 = 64;
const PREFETCH: usize = 64;
/// Largest delay of a redelivery after its lease.
const REVIVED_WITHIN: Duration = Duration::from_secs(15);
/// Template topic; the request requires its name, which has no effect.
const MODEL: &str = "TBW102";
const PERM_READ_WRITE: u32 = 6;
/// A broker may lack statistics for this long after its start.
const STATISTICS_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct RocketMq {
    endpoint: String,
    window: u32,
    prefetch: usize,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?.max(1);
    let prefetch = settings.take("prefetch", PREFETCH)?;
    settings.done()?;
    if target.user.is_some() || target.password.is_some() {
        let why = "this driver does not speak RocketMQ's ACLs".into();
        return Err(Failure::Setting { name: "user".into(), why });
    }
    let endpoint = target.endpoint(ENDPOINT).to_owned();
    Ok(Arc::new(RocketMq { endpoint, window, prefetch }))
}

/// This machine's clock; brokers reject outdated requests.
fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis())
}

/// A broker's runtime info; it fails until the first statistics exist.
async fn runtime_info(broker: &Broker) -> Result<Answer, Failure> {
    let until = Instant::now() + STATISTICS_WITHIN;
    loop {
        let answer = broker.request(Request::new(code::GET_BROKER_RUNTIME_INFO)).await?.succeeded();
        if answer.is_ok() || Instant::now() >= until {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A broker's configuration.
#[derive(Debug)]
struct Configuration(String);

impl Configuration {
    async fn of(broker: &Broker) -> Result<Self, Failure> {
        let answer = broker.request(Request::new(code::GET_BROKER_CONFIG)).await?.succeeded()?;
        Ok(Self(String::from_utf8_lossy(&answer.body).into_owned()))
    }

    fn value(&self, name: &str) -> &str {
        let pairs = self.0.lines().filter_map(|line| line.split_once('='));
        pairs
            .filter(|(found, _)| *found == name)
            .map(|(_, value)| value.trim())
            .next()
            .unwrap_or("")
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.value(name) == value
    }

    fn check(&self, topology: &Topology) -> Result<(), Failure> {
        let synced = self.is("flushDiskType", "SYNC_FLUSH");
        let copied = self.is("brokerRole", "SYNC_MASTER");
        let held = match topology.tier {
            Tier::T1 => true,
            Tier::T2 => copied,
            Tier::T3 => synced,
            Tier::T0 | Tier::T4 => false,
        };
        if held && (copied || topology.replicas <= 1) {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} with {} replicas was asked for, and the broker has flushDiskType={} and \
             brokerRole={}",
            topology.tier,
            topology.replicas,
            self.value("flushDiskType"),
            self.value("brokerRole"),
        )))
    }
}

impl RocketMq {
    async fn open(&self) -> Result<Broker, Failure> {
        Broker::connect(&self.endpoint).await
    }

    async fn remove_by(&self, broker: &Broker, topology: &Topology) -> Result<(), Failure> {
        for destination in 0..topology.destinations {
            let delete =
                Request::new(code::DELETE_TOPIC).field("topic", topology.destination(destination));
            broker.request(delete).await?.succeeded()?;
        }
        for subscription in 0..topology.subscriptions.max(1) {
            let delete = Request::new(code::DELETE_GROUP)
                .field("groupName", topology.subscription(subscription))
                .field("cleanOffset", true);
            broker.request(delete).await?.succeeded()?;
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for RocketMq {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "this suite's own",
            sent_means: "the broker answered SEND_OK, after what its flushDiskType and role say",
            hidden_means: "popped: invisible for the lease",
            tiers: &[Tier::T1, Tier::T2, Tier::T3],
            styles: &[Style::Queue],
            lanes: Lanes::Ordered,
            returns: Return::Lease,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("prefetch", &self.prefetch),
            ("messages a pop", &receiver::POP_MAX),
            ("invisible time", &ms(topology.lease)),
            ("consumeMessageOrderly", &topology.ordered),
            ("sent again when busy", &if topology.ordered { 0 } else { sender::AGAIN_MAX }),
            ("tcp nodelay", &true),
        ])
    }

    /// The broker needs some seconds to notice.
    fn returns_within(&self, topology: &Topology) -> Duration {
        topology.lease + REVIVED_WITHIN
    }

    async fn version(&self) -> Result<String, Failure> {
        let broker = self.open().await?;
        let answer = runtime_info(&broker).await?;
        let said: Value = serde_json::from_slice(&answer.body).map_err(Failure::unknown)?;
        let version = said["table"]["brokerVersionDesc"].as_str();
        let version = version.ok_or_else(|| Failure::unknown("the broker says no version"))?;
        Ok(version.trim_start_matches('V').replace('_', "."))
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        let broker = self.open().await?;
        Configuration::of(&broker).await?.check(topology)?;
        self.remove_by(&broker, topology).await?;
        for destination in 0..topology.destinations {
            let queues = topology.partitions.max(1);
            let create = Request::new(code::CREATE_TOPIC)
                .field("topic", topology.destination(destination))
                .field("defaultTopic", MODEL)
                .field("readQueueNums", queues)
                .field("writeQueueNums", queues)
                .field("perm", PERM_READ_WRITE)
                .field("topicFilterType", "SINGLE_TAG")
                .field("topicSysFlag", 0)
                .field("order", topology.ordered);
            broker.request(create).await?.succeeded()?;
        }
        for subscription in 0..topology.subscriptions.max(1) {
            let group = serde_json::json!({
                "groupName": topology.subscription(subscription),
                "consumeMessageOrderly": topology.ordered,
            });
            let create = Request::new(code::CREATE_GROUP).body(group.to_string());
            broker.request(create).await?.succeeded()?;
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        self.remove_by(&self.open().await?, topology).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let broker = self.open().await?;
        Ok(Box::new(sender::RocketSender::new(broker, topology, self.window)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let broker = self.open().await?;
        let name = Configuration::of(&broker).await?.value("brokerName").to_owned();
        let popping = receiver::Popping {
            topics: destinations.iter().map(|&index| topology.destination(index)).collect(),
            group: topology.subscription(subscription),
            ordered: topology.ordered,
            lease: topology.lease,
            prefetch: self.prefetch,
            broker_name: name,
        };
        Ok(Box::new(receiver::RocketReceiver::new(broker, popping)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tier_follows_the_brokers_configuration() {
        let of = |flush: &str, role: &str| {
            Configuration(format!("brokerName=b\nflushDiskType={flush}\nbrokerRole={role}\n"))
        };
        let topology =
            |tier, replicas| Topology { replicas, ..Topology::new("tier", Style::Queue, tier) };
        let plain = of("ASYNC_FLUSH", "ASYNC_MASTER");
        assert!(plain.check(&topology(Tier::T1, 1)).is_ok());
        assert!(plain.check(&topology(Tier::T3, 1)).is_err());
        assert!(plain.check(&topology(Tier::T1, 2)).is_err());
        let synced = of("SYNC_FLUSH", "ASYNC_MASTER");
        assert!(synced.check(&topology(Tier::T3, 1)).is_ok());
        assert!(synced.check(&topology(Tier::T2, 1)).is_err(), "one copy is no majority");
        assert!(of("ASYNC_FLUSH", "SYNC_MASTER").check(&topology(Tier::T2, 2)).is_ok());
        assert_eq!(plain.value("brokerName"), "b");
    }
}
