//! AMQP 0-9-1 over the broker, as RabbitMQ speaks it.
//!
//! From the socket inwards:
//!
//! * `listener`: accepts connections, bounds their number, sees them out
//! * `connection`: one socket: bytes in, bytes out, heartbeats; `input`, `output`: its two buffers
//! * [`codec`]: frames, methods, properties and field tables, without I/O
//! * `session`: the state of one connection; `handshake`: what is said on channel 0; `session_end`: how
//!   it ends; `failure`: how a client is told what it did wrong
//! * `channel`: what a channel has open; `channel_methods`: what comes on it; `operation`: what is waited
//!   for
//! * `declare`: the methods that make queues, exchanges and bindings; what a client
//!   may declare is [`rabbitmq`]'s, the entities themselves `topology`'s
//! * `content`, `publish`: the hot path in. Messages as records and back are `message`'s
//! * `in_flight`: batches that are not answered yet
//! * `consume`, `stream`: consumers, by lease and by offset; `deliver`: the hot path out; `get`: one message
//!   at a time
//! * `settle`, `unacked`: answers; `answer_timeout`: those that do not come
//! * `rejects`: those whose dead letters are on their way
//! * `transaction`, `replies`: tx, and direct reply-to
//! * `seen`: what a session tells of itself to those who look
//! * `quotas`: what a session is charged, how many connections and channels there may be
//! * `rights`: what a user may do, asked before it is done; who users are is `access`'s
//! * [`operations`]: what operators do: vhosts, policies, users
//! * [`rabbitmq`]: what all that speak RabbitMQ's language share: declarations, rights, batches of messages, dead letters

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
mod input;
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
mod seen;
mod session;
mod session_end;
mod settle;
mod stream;
mod transaction;
mod unacked;

pub use listener::serve;
pub use options::GatewayOptions;
pub(crate) use rabbitmq::declarations;
pub use rabbitmq::{dead_letter, errors};
