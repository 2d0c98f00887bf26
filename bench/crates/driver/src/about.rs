use crate::{Style, Tier};

/// What a system can do, and what its words mean. Kept by the driver, printed with each result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// As users write it: `rabbitmq-quorum`.
    pub system: &'static str,
    /// For people: `RabbitMQ, quorum queues`.
    pub title: &'static str,
    /// The client library and its version.
    pub client: &'static str,
    /// What has happened when `send` returns.
    pub sent_means: &'static str,
    /// How what was received is hidden, and when it comes again.
    pub hidden_means: &'static str,
    pub tiers: &'static [Tier],
    pub styles: &'static [Style],
    pub lanes: Lanes,
    pub returns: Return,
    /// More than one subscription of a destination.
    pub subscriptions: bool,
    /// The system tells whether a message was delivered before.
    pub tells_redelivery: bool,
    /// When `settle` returns, the server has said that it is done.
    pub settles_confirmed: bool,
    /// `post` does not wait for the server.
    pub pipelined: bool,
}

/// How order is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lanes {
    /// By key, with any number of receivers.
    Ordered,
    /// By key, with one receiver to a partition at a time.
    Partitioned,
    /// All of a destination in one order, with one receiver.
    Single,
    Unordered,
}

/// How a message that nobody settled comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// After the lease, and when the connection ends.
    LeaseOrConnection,
    /// After the lease only.
    Lease,
    /// When the connection ends.
    Connection,
    /// It does not: at most once.
    Never,
}
