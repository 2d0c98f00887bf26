use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Tier;

/// What a test needs on the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Topology {
    /// Every name that the driver makes up begins with it; letters, digits and `-`.
    pub prefix: String,
    pub style: Style,
    pub tier: Tier,
    /// Topics or queues.
    pub destinations: u32,
    /// How many parts each has, where a system has parts (partitions).
    pub partitions: u32,
    /// Who reads all of every destination: each subscription gets each message once. For systems
    /// whose queues have one reader only, the driver makes a queue for each and an exchange.
    pub subscriptions: u32,
    /// Messages of one lane must come in order, whoever receives them.
    pub ordered: bool,
    /// After how long a message that was received and not settled is given to another, where the
    /// system does that by time.
    pub lease: Duration,
    /// Copies of each message.
    pub replicas: u32,
    /// A message that receivers gave back so often goes to the dead letters of its destination.
    pub delivery_limit: Option<u32>,
    /// A message that was sent within this time is taken once, however often it is sent: a driver
    /// gives the server [`Message::id`](crate::Message::id).
    pub deduplicate: Option<Duration>,
    /// Each message goes at once: a client that would hold one back for company does not.
    pub latency_first: bool,
}

/// How a destination is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Style {
    /// Each message is settled by itself and then gone.
    Queue,
    /// Read by position; a receiver remembers how far it is.
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

    /// Where dead letters go, destination by destination: made, and removed, together with this.
    pub fn dead_letters(&self) -> Self {
        let prefix = format!("{}-dead", self.prefix);
        let (partitions, subscriptions, ordered) = (1, 1, false);
        Self { prefix, partitions, subscriptions, ordered, delivery_limit: None, ..self.clone() }
    }

    /// Of systems whose leases are of whole seconds.
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
