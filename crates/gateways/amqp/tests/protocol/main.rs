//! AMQP over a real socket against a broker in this process. The test client sends any frames, including those that
//! no library would send.

#![expect(clippy::disallowed_types, reason = "clients of a node in the kernel's network")]

mod administration;
mod another_client;
mod bad_input;
mod certificates;
mod channels;
mod connections;
mod consuming;
mod crossing;
mod harness;
mod large_messages;
mod permissions;
mod publishing;
mod quotas;
mod rules;
mod spread;
mod streams;
mod three_nodes;
mod tokens;
mod transactions;
