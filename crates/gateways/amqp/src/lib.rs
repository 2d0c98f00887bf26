//! AMQP 0-9-1 over the broker, as RabbitMQ speaks it.

pub mod codec;
pub mod errors;
pub mod names;
mod properties;
