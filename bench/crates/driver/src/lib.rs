//! What a system under test must be able to do, in words that fit all of them.
//!
//! * [`Driver`]: one system that can be reached; makes [`Sender`]s and [`Receiver`]s
//! * [`About`]: what a system can do and what its "sent" means, read before a test is run on it
//! * [`Target`]: where a system is, and the settings that it was given
//! * [`Replication`]: which node takes the writes of a destination, and how many copies it has
//! * [`Receipt`]: how a sender says that a message it took earlier is safe
//!
//! The trait is narrow on purpose: what it cannot say, no test can measure of one system only.

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

/// The longest that [`Receiver::receive`] waits for a first message.
pub const RECEIVE_WAIT: Duration = Duration::from_secs(1);

/// One system that can be reached.
#[async_trait]
pub trait Driver: Send + Sync + Debug {
    fn about(&self) -> About;

    /// What the client is told for this topology other than by default, by the names that the
    /// settings have: a result without them could not be repeated.
    fn settings(&self, _topology: &Topology) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Whether it takes a message once that is sent twice ([`Topology::deduplicate`]).
    fn deduplicates(&self) -> bool {
        false
    }

    /// Whether it has dead letters ([`Topology::delivery_limit`]).
    fn has_dead_letters(&self) -> bool {
        false
    }

    /// The longest that what was received and not settled stays away from others once its receiver
    /// is gone without a word.
    fn returns_within(&self, topology: &Topology) -> Duration {
        match self.about().returns {
            Return::Lease | Return::LeaseOrConnection => topology.lease,
            Return::Connection | Return::Never => Duration::ZERO,
        }
    }

    /// The server's version, as it says it itself. Fails when it cannot be reached.
    async fn version(&self) -> Result<String, Failure>;

    /// Makes what the test needs. What is there already under these names is removed first.
    async fn create(&self, topology: &Topology) -> Result<(), Failure>;

    /// Removes what [`create`](Self::create) made.
    async fn remove(&self, topology: &Topology) -> Result<(), Failure>;

    /// A sender with a connection of its own, for all destinations of the topology.
    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure>;

    /// A receiver with a connection of its own, as one of those who share this subscription of
    /// these destinations.
    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure>;

    /// Waits until so many receivers of each subscription, all of which are receiving, have divided
    /// the work among themselves, where a system does that: before, nothing can be measured.
    async fn gathered(&self, _topology: &Topology, _receivers: u32) -> Result<(), Failure> {
        Ok(())
    }

    /// How the copies of each destination are, of a topology with one partition. The target's
    /// endpoints are its nodes, in order.
    async fn replication(&self, _topology: &Topology) -> Result<Vec<Replication>, Failure> {
        let what = "way to ask which node leads what".into();
        Err(Failure::Unsupported { system: self.about().system, what })
    }
}

/// Sends messages. What "safe" means is the tier of its topology.
#[async_trait]
pub trait Sender: Send + Debug {
    /// Returns once a message would go out at once: some clients have business of their own first.
    /// `posts`: messages will be posted, and not sent.
    async fn ready(&mut self, _posts: bool) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns when every message is safe, or with an error if one of them is not (or nobody
    /// knows). The messages of one lane stay in order.
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure>;

    /// Takes one message, waiting only for room in the client, and tells the receipt later. Of a
    /// client that cannot do that, the receipt is told before this returns: one at a time.
    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let sent = self.send(destination, &[message]).await;
        receipt.tell(sent);
    }

    /// Sends what waits in the client, if it waits for company there.
    async fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Waits until every receipt was told, and closes.
    async fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// Receives messages; what it has received is hidden from the others of its subscription until it
/// is settled, or the lease or the connection ends.
#[async_trait]
pub trait Receiver: Send + Debug {
    /// Some messages, at most `max` of them: waits up to [`RECEIVE_WAIT`] for the first one, and
    /// takes the rest only if they are there. Who wants nothing but to close the receiver may give
    /// it up while it waits; what it would have brought comes to others as late as what was left by
    /// a receiver that is gone without a word.
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure>;

    /// Settles what was received. Need not wait for the server, but the server must get it.
    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure>;

    /// Settles what is still on its way, gives back what was not settled, and closes.
    async fn close(self: Box<Self>) -> Result<(), Failure>;
}
