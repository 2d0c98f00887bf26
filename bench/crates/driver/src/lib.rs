//! The interface of a system under test, in terms that fit all systems.
//!
//! * [`Driver`]: one reachable system; makes [`Sender`]s and [`Receiver`]s
//! * [`About`]: capabilities of a system and the meaning of its "sent", read before a test is run
//!   on it
//! * [`Target`]: address of a system, and its settings
//! * [`Replication`]: the leader and the number of copies of a destination
//! * [`Receipt`]: reports the outcome of a message that a sender accepted earlier
//!
//! The trait is narrow on purpose: no test can measure a feature that only one system has.

mod about;
mod failure;
mod message;
mod receipt;
mod replication;
mod target;
mod topology;

pub use about::{About, Lanes, Return};
pub use failure::Failure;
pub use message::{DeliveryId, Message, Received, Settle};
pub use receipt::{Confirmed, Receipt};
pub use replication::Replication;
pub use target::{Settings, Target};
pub use tier::Tier;
pub use topology::{Style, Topology};

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

/// Longest wait of [`Receiver::receive`] for a first message.
pub const RECEIVE_WAIT: Duration = Duration::from_secs(1);

/// One reachable system.
#[async_trait]
pub trait Driver: Send + Sync + Debug {
    fn about(&self) -> About;

    /// Client settings for this topology that differ from their defaults, by the settings' own
    /// names. A result without them could not be repeated.
    fn settings(&self, _topology: &Topology) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Whether it drops duplicates of a message ([`Topology::deduplicate`]).
    fn deduplicates(&self) -> bool {
        false
    }

    /// Whether it supports dead lettering ([`Topology::delivery_limit`]).
    fn has_dead_letters(&self) -> bool {
        false
    }

    /// Longest time that unsettled messages stay hidden after their receiver disappears without
    /// closing.
    fn returns_within(&self, topology: &Topology) -> Duration {
        match self.about().returns {
            Return::Lease | Return::LeaseOrConnection => topology.lease,
            Return::Connection | Return::Never => Duration::ZERO,
        }
    }

    /// The version that the server reports. Fails when it cannot be reached.
    async fn version(&self) -> Result<String, Failure>;

    /// Creates the topology. Existing objects under its names are removed first.
    async fn create(&self, topology: &Topology) -> Result<(), Failure>;

    /// Removes the objects that [`create`](Self::create) made.
    async fn remove(&self, topology: &Topology) -> Result<(), Failure>;

    /// A sender with a connection of its own, for all destinations of the topology.
    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure>;

    /// A receiver with a connection of its own. It shares this subscription of these destinations
    /// with others.
    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure>;

    /// Waits until this many active receivers of each subscription have divided the work, where a
    /// system rebalances. A measurement before that would be meaningless.
    async fn gathered(&self, _topology: &Topology, _receivers: u32) -> Result<(), Failure> {
        Ok(())
    }

    /// Replication of each destination, for a topology with one partition. The target's endpoints
    /// are its nodes, in order.
    async fn replication(&self, _topology: &Topology) -> Result<Vec<Replication>, Failure> {
        let what = "way to ask which node leads what".into();
        Err(Failure::Unsupported { system: self.about().system, what })
    }
}

/// Sends messages. The tier of its topology defines "safe".
#[async_trait]
pub trait Sender: Send + Debug {
    /// Returns once a message would be sent without delay; some clients need to prepare first.
    /// `posts`: messages will be posted, and not sent.
    async fn ready(&mut self, _posts: bool) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns when every message is safe, or with an error if one of them is not or its outcome is
    /// unknown. The messages of one lane stay in order.
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure>;

    /// Accepts one message, waiting only for room in the client, and resolves the receipt later.
    /// With a client that cannot pipeline, the receipt is resolved before this returns: one message
    /// at a time.
    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let sent = self.send(destination, &[message]).await;
        receipt.resolve(sent);
    }

    /// Sends messages that the client holds back for batching.
    async fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Waits until every receipt is resolved, and closes.
    async fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// Receives messages. A received message is hidden from the other receivers of its subscription
/// until it is settled, or the lease or the connection ends.
#[async_trait]
pub trait Receiver: Send + Debug {
    /// Returns at most `max` messages. It waits up to [`RECEIVE_WAIT`] for the first one, and adds
    /// others only if they are available. The call may be cancelled if the receiver is only closed
    /// afterwards. Its messages are then redelivered as late as those of a receiver that
    /// disappeared.
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure>;

    /// Settles received messages. Need not wait for the server, but must ensure that it arrives
    /// there.
    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure>;

    /// Sends pending settles, returns unsettled messages, and closes.
    async fn close(self: Box<Self>) -> Result<(), Failure>;
}
