//! AMQP 0-9-1 over the broker, compatible with RabbitMQ.
//!
//! From the codec up; each module uses only those before it:
//!
//! * [`codec`]: frames, methods, properties and field tables, without I/O; `failure`: errors of a client
//! * `input`, `output`: the two buffers of a socket
//! * `posted`: messages of other tasks to a session
//! * `gateway`: state shared by all sessions: counts, receivers of direct replies, memory of transactions
//! * `channel`: the state of a channel: consumers, streams, the message being received, the transaction, unsettled
//!   deliveries
//! * `session`: the state of one connection, the operation and the batches in flight, flow control, rights, the end
//! * the methods of a client: `publish`; `deliveries` with consume, get and acknowledgements; `declare` for queues,
//!   exchanges and bindings; `transaction` for tx; `handshake` for channel 0
//! * `dispatch`: frames to their methods, and completed operations to their replies
//! * `connection`: one socket: bytes in, bytes out, heartbeats
//! * `listener`: accepts connections, limits their number, drains them on shutdown
//!
//! [`operations`] has operators' operations on vhosts, policies and users. The rules that all gateways with RabbitMQ
//! semantics share are in [`rabbitmq`]: declarations, rights, batches of messages, dead letters. The entities are in
//! `topology`, the users in `access`; the `message` crate converts between messages and records.

mod channel;
pub mod codec;
mod connection;
mod declare;
mod deliveries;
mod dispatch;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gateway;
mod handshake;
mod input;
pub mod limits;
mod listener;
pub mod operations;
mod options;
mod output;
mod posted;
mod publish;
mod session;
mod transaction;

pub use listener::serve;
pub use options::GatewayOptions;
pub(crate) use rabbitmq::declarations;
pub use rabbitmq::{dead_letter, errors};
