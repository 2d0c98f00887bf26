//! AMQP 0-9-1 over the broker, compatible with RabbitMQ.
//!
//! From the socket inwards:
//!
//! * `listener`: accepts connections, limits their number, drains them on shutdown
//! * `connection`: one socket: bytes in, bytes out, heartbeats; `input`, `output`: its two buffers
//! * [`codec`]: frames, methods, properties and field tables, without I/O
//! * `session`: the state of one connection; `handshake`: the methods of channel 0; `session_end`: the reasons and
//!   steps of its end; `failure`: closes a channel or connection with an exception
//! * `channel`: the state of a channel; `channel_methods`: dispatches its methods; `operation`: the asynchronous
//!   operation in flight
//! * `declare`: the methods that declare, bind and delete queues and exchanges. The rules of a declaration are in
//!   [`rabbitmq`], the entities in `topology`
//! * `content`, `publish`: the hot path in. The `message` crate converts between messages and records
//! * `in_flight`: batches that the broker has not answered yet
//! * `consume`, `stream`: consumers, by lease and by offset; `deliver`: the hot path out; `get`: one message at a
//!   time
//! * `settle`, `unacked`: acknowledgements; `answer_timeout`: deliveries that are not acknowledged in time
//! * `rejects`: rejected messages whose dead letters are pending
//! * `transaction`, `replies`: tx, and direct reply-to
//! * `session_snapshot`: the snapshot of a session for the management API
//! * `quotas`: the charges of a session, and the limits of connections and channels
//! * `rights`: permission checks before a method is executed; users are managed by `access`
//! * [`operations`]: operators' operations: vhosts, policies, users
//! * [`rabbitmq`]: shared by all gateways with RabbitMQ semantics: declarations, rights, batches of messages, dead
//!   letters

mod answer_timeout;
mod channel;
mod channel_methods;
pub mod codec;
mod connection;
mod consume;
mod content;
mod declare;
mod deliver;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gateway;
mod get;
mod handshake;
mod in_flight;
mod incoming_memory;
mod input;
pub mod limits;
mod listener;
mod operation;
pub mod operations;
mod options;
mod outgoing;
mod output;
mod publish;
mod quotas;
mod rejects;
mod replies;
mod rights;
mod session;
mod session_end;
mod session_snapshot;
mod settle;
mod stream;
mod transaction;
mod unacked;

pub use listener::serve;
pub use options::GatewayOptions;
pub(crate) use rabbitmq::declarations;
pub use rabbitmq::{dead_letter, errors};
