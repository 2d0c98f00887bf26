//! One driver for each system, and the conformance test for all drivers.
//!
//! Each system is a file (or a folder) that begins with its meaning of "sent" and its way of
//! hiding. Systems with the same protocol share a file. Every client is a feature of this crate, so
//! that a suite for a few systems builds quickly.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "amqp1")]
mod amqp1;
#[cfg_attr(
    not(any(
        feature = "amqp",
        feature = "kafka",
        feature = "mongodb",
        feature = "postgres",
        feature = "queen",
        feature = "redis",
        feature = "sqs"
    )),
    allow(dead_code, reason = "a build without clients has no use for it")
)]
mod batching;
pub mod conformance;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_share;
#[cfg(feature = "kafka")]
mod kmq;
#[cfg(feature = "kurrentdb")]
mod kurrentdb;
mod memory;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
#[cfg_attr(
    not(any(
        feature = "amqp",
        feature = "kafka",
        feature = "mongodb",
        feature = "postgres",
        feature = "queen",
        feature = "redis",
        feature = "sqs"
    )),
    allow(dead_code, reason = "a build without clients has no use for it")
)]
mod pending;
#[cfg(any(feature = "amqp", feature = "kafka"))]
mod positions;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "pulsar")]
mod pulsar;
#[cfg(feature = "queen")]
mod queen;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "rocketmq")]
mod rocketmq;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(all(test, any(feature = "mongodb", feature = "queen")))]
mod stand_in;
mod systems;
#[cfg(any(feature = "mongodb", feature = "postgres"))]
mod tables;
mod told;
#[cfg(any(feature = "amqp", feature = "kurrentdb", feature = "redis"))]
mod url;
#[cfg(feature = "zeromq")]
mod zeromq;

pub use memory::MemoryBroker;
pub use systems::{Connect, Support, System, all, connect};
