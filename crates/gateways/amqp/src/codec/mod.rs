//! AMQP 0-9-1 as bytes, without I/O: what a frame, a method, a property is, and nothing of what
//! it means.
//!
//! An own codec and not a crate: reading a method copies nothing out of its frame, and bodies,
//! which are most of what is carried, are never looked at.
//!
//! * [`frame`]: where a frame ends, and how one is written
//! * [`methods`]: the table of all methods
//! * [`properties`]: what a message's header frame says
//! * [`fields`], [`table`](rabbitmq::table): the data types

pub mod fields;
pub mod frame;
pub mod methods;
pub mod properties;
pub use rabbitmq::table;

#[cfg(test)]
mod tests;
