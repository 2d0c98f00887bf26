//! AMQP 0-9-1 over the broker, as RabbitMQ speaks it.

pub mod names;
