//! The clients of a cluster, and their knowledge of its state. They reach the nodes through `cluster::Shared`.
//!
//! * `producers`: clients that write records
//! * `consumers`: clients that lease records, in profile `relays`; `leased`: their shared knowledge
//! * `queues`: queues that are declared, filled and deleted by AMQP at any node, in profile `queues`
//! * `registers`: offsets that are committed and read at any node, in profile `registers`
//! * `readers`: clients that read, in profile `damage`
//! * `resender`: a client that repeats jobs with ids

pub(crate) mod consumers;
pub(crate) mod leased;
pub(crate) mod producers;
pub(crate) mod queues;
pub(crate) mod readers;
pub(crate) mod registers;
pub(crate) mod resender;
