//! Snapshots of AMQP sessions for the management API, reported by each session's own task. A snapshot is built on
//! request, so that it costs nothing per record.

use std::sync::Arc;
use std::time::Duration;

use values::Table;

/// An AMQP connection, without the data that connections of every protocol have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SessionSeen {
    /// `None`: the connection is not open yet.
    pub virtual_host: Option<Arc<str>>,
    pub encrypted: bool,
    /// The client's own properties.
    pub client_properties: Table,
    /// The negotiated size, with head and end.
    pub frame_bytes_max: usize,
    pub channel_max: u16,
    /// Zero: disabled.
    pub heartbeat: Duration,
    /// The close was sent, and the client has not left yet.
    pub is_closing: bool,
    /// The client publishes, and the node has no room for messages.
    pub is_blocked: bool,
    /// Sorted by number.
    pub channels: Vec<ChannelSeen>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChannelSeen {
    pub number: u16,
    pub confirms: bool,
    pub is_transactional: bool,
    /// Applies to each consumer created from now on; 0: no limit.
    pub prefetch: u16,
    /// Applies to all consumers together; 0: no limit.
    pub prefetch_together: u16,
    /// Deliveries that the client has not acknowledged.
    pub unacknowledged: usize,
    /// Messages without a confirm yet.
    pub unconfirmed: u64,
    /// Sorted by tag.
    pub consumers: Vec<ConsumerSeen>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerSeen {
    pub tag: Arc<str>,
    /// `None`: direct replies, which belong to no queue.
    pub queue: Option<Arc<str>>,
    pub needs_ack: bool,
    pub is_exclusive: bool,
    /// Deliveries go to this consumer. With a single active consumer this holds for one consumer of the queue only.
    pub is_active: bool,
    /// Its queue has a single active consumer.
    pub is_single: bool,
    pub prefetch: u16,
    pub arguments: Table,
    /// Time limit of an acknowledgement.
    pub timeout: Option<Duration>,
}
