//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Values that `connection.tune` offers (RabbitMQ's `frame_max`, `channel_max`, `heartbeat`).
pub const AMQP_FRAME_BYTES_MAX: u32 = 128 << 10;
pub const AMQP_CHANNELS_PER_SESSION_MAX: u16 = 2047;
/// Bytes kept of a client's properties, for operators; larger properties are not kept.
pub const AMQP_CLIENT_PROPERTIES_BYTES_MAX: usize = 4 << 10;
pub const AMQP_HEARTBEAT: Duration = Duration::from_secs(60);
/// Bytes of messages over [`AMQP_READ_BYTES_MIN`] of which a part has arrived, of all connections of a node. Beyond
/// it one connection at a time continues, the others wait.
pub const AMQP_ARRIVING_BYTES_MAX: usize = 64 << 20;
/// The largest frame before the login.
pub const AMQP_HANDSHAKE_FRAME_BYTES_MAX: usize = 16 << 10;
/// From connecting to an open connection (RabbitMQ's `handshake_timeout`).
pub const AMQP_HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes read at once while the node's budget has room; the minimum applies without room, and at first.
pub const AMQP_READ_BYTES_MAX: usize = 256 << 10;
pub const AMQP_READ_BYTES_MIN: usize = 16 << 10;
/// Unsent bytes at which a session gets no more deliveries.
pub const AMQP_UNSENT_BYTES_SOFT: usize = 256 << 10;
/// Unsent bytes at which a session's socket is not read: the client reads no replies and sends further requests.
pub const AMQP_UNSENT_BYTES_MAX: usize = 4 << 20;
/// Unsettled deliveries of a consumer without a prefetch limit: each is remembered.
pub const AMQP_UNSETTLED_PER_CONSUMER_MAX: u32 = 250_000;
/// Bytes that a transaction holds until it is committed.
pub const AMQP_TRANSACTION_BYTES_MAX: usize = 16 << 20;
/// The same of all transactions of a node.
pub const AMQP_TRANSACTIONS_BYTES_MAX: usize = 128 << 20;
/// Settles that a transaction holds until it is committed.
pub const AMQP_TRANSACTION_SETTLES_MAX: usize = 250_000;
/// Replies (`amq.rabbitmq.reply-to`) and stream records in flight to one session.
pub const AMQP_POSTED_MAX: usize = 1_024;
