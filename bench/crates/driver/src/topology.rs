use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Tier;

/// The objects on the server that a test needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Topology {
    /// Every name that the driver makes up begins with this prefix; letters, digits and `-`.
    pub prefix: String,
    pub style: Style,
    pub tier: Tier,
    /// Number of topics or queues.
    pub destinations: u32,
    /// Partitions of each destination, where a system has partitions.
    pub partitions: u32,
    /// Number of subscriptions that each receive every message once. For systems whose queues have
    /// one reader only, the driver creates a queue for each and an exchange.
    pub subscriptions: u32,
    /// Messages of one lane must arrive in order at any receiver.
    pub ordered: bool,
    /// Time after which an unsettled message is redelivered, where the system has such a timeout.
    pub lease: Duration,
    /// Copies of each message.
    pub replicas: u32,
    /// Number of releases after which a message goes to the dead letters of its destination.
    pub delivery_limit: Option<u32>,
    /// Deduplication window: duplicates of a message within this time are dropped. The driver
    /// passes [`Message::id`](crate::Message::id) to the server.
    pub deduplicate: Option<Duration>,
    /// The client sends each message at once and holds none back for batching.
    pub latency_first: bool,
}

/// How a destination is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Style {
    /// Each message is settled by itself and then removed.
    Queue,
    /// Read by position; a receiver remembers its own.
    Log,
}

impl Topology {
    pub fn new(prefix: &str, style: Style, tier: Tier) -> Self {
        Self {
            prefix: prefix.to_owned(),
            style,
            tier,
            destinations: 1,
            partitions: 1,
            subscriptions: 1,
            ordered: false,
            lease: Duration::from_secs(30),
            replicas: 1,
            delivery_limit: None,
            deduplicate: None,
            latency_first: false,
        }
    }

    /// The dead-letter destinations, one for each destination. They are created and removed
    /// together with it.
    pub fn dead_letters(&self) -> Self {
        let prefix = format!("{}-dead", self.prefix);
        let (partitions, subscriptions, ordered) = (1, 1, false);
        Self { prefix, partitions, subscriptions, ordered, delivery_limit: None, ..self.clone() }
    }

    /// The lease, rounded up for systems with leases of whole seconds.
    pub fn lease_seconds(&self) -> u64 {
        self.lease.as_millis().div_ceil(1_000) as u64
    }

    pub fn destination(&self, index: u32) -> String {
        format!("{}-{index}", self.prefix)
    }

    pub fn subscription(&self, index: u32) -> String {
        format!("{}-sub-{index}", self.prefix)
    }
}
