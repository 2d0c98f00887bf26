//! A small AMQP 0-9-1 client: durable queues, persistent messages with confirms, and consumers that
//! settle in transactions, as `tx.commit-ok` is the one proof of a settle that AMQP has. For loads and
//! checkers, tests and simulations.
//!
//! The decision that shapes it: it shares nothing with the gateway, so that a fault there is not met by
//! the same fault here. And its protocol is written once, over a [`Transport`]: a stream of any kind
//! under tokio's clock, or a socket that blocks.
//!
//! * [`Channel`]: a connection with one channel, and all that is done on it
//! * [`blocking`]: the same for a thread that blocks, without a runtime
//! * [`transport`]: what it runs over
//! * `codec`: frames, methods and messages, without I/O
//! * [`error`]: what can go wrong

pub mod blocking;
mod channel;
mod codec;
pub mod error;
pub mod transport;

pub use channel::{Channel, Confirm, Mode};
pub use codec::{Argument, Delivery};
pub use error::AmqpError;
pub use transport::{Over, Transport};
