//! AMQP 0-9-1 as bytes, without I/O: frames, methods and properties, without their meaning.
//!
//! This is an own codec and not a crate: a method is read without a copy out of its frame, and bodies, which are most
//! of the traffic, are never inspected.
//!
//! * [`frame`]: where a frame ends, and how one is written
//! * [`methods`]: the table of all methods
//! * [`properties`]: the content of a message's header frame
//! * [`fields`], [`table`](rabbitmq::table): the data types

pub mod fields;
pub mod frame;
pub mod methods;
pub mod properties;
pub use rabbitmq::table;

#[cfg(test)]
mod tests;
