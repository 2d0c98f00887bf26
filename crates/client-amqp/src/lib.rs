//! A small AMQP 0-9-1 client: durable queues, persistent messages with confirms, and consumers that
//! settle in transactions, as `tx.commit-ok` is the one proof of a settle that AMQP has. For loads and
//! checkers, tests and simulations.
//!
//! It shares no code with the gateway, so that a fault there is not hidden by the same fault here. Its protocol is
//! written once, over a [`Transport`]: a stream of any kind under tokio's clock, or a blocking socket.
//!
//! * [`Channel`]: a connection with one channel, and its operations
//! * [`blocking`]: the same for a blocking thread, without a runtime
//! * [`transport`]: the byte stream below
//! * `codec`: frames, methods and messages, without I/O
//! * [`error`]: error types

pub mod blocking;
mod channel;
mod codec;
pub mod error;
pub mod transport;

pub use channel::{Channel, Confirm, Mode};
pub use codec::{Argument, Delivery};
pub use error::AmqpError;
pub use transport::{TimedStream, Transport};
