//! What a session of AMQP has open, as its own task tells those who look: the management API. It is made when it is asked
//! for, so that no record costs anything for it.

use std::sync::Arc;
use std::time::Duration;

use values::Table;

/// A connection, besides what the node knows of connections of every protocol.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SessionSeen {
    /// `None`: it is not open yet.
    pub virtual_host: Option<Arc<str>>,
    pub encrypted: bool,
    /// What the client says of itself.
    pub client_properties: Table,
    /// As negotiated: with its head and end.
    pub frame_bytes_max: usize,
    pub channel_max: u16,
    /// Zero: none.
    pub heartbeat: Duration,
    /// It was told that it is closed, and has not gone yet.
    pub is_closing: bool,
    /// It publishes, and the node has no room for messages.
    pub is_blocked: bool,
    /// By number.
    pub channels: Vec<ChannelSeen>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChannelSeen {
    pub number: u16,
    pub confirms: bool,
    pub is_transactional: bool,
    /// Of each consumer that is made from now on; 0: any number.
    pub prefetch: u16,
    /// Of all consumers together; 0: any number.
    pub prefetch_together: u16,
    /// Deliveries that the client has not answered.
    pub unacknowledged: usize,
    /// Messages that the client has not been told of.
    pub unconfirmed: u64,
    /// By tag.
    pub consumers: Vec<ConsumerSeen>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerSeen {
    pub tag: Arc<str>,
    /// `None`: direct replies, which are no queue's.
    pub queue: Option<Arc<str>>,
    pub needs_ack: bool,
    pub is_exclusive: bool,
    /// It is delivered to now, which only one of a queue with a single active consumer is.
    pub is_active: bool,
    /// Its queue has a single active consumer.
    pub is_single: bool,
    pub prefetch: u16,
    pub arguments: Table,
    /// How long a delivery may be unanswered.
    pub timeout: Option<Duration>,
}
