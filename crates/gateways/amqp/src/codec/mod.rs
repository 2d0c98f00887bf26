//! AMQP 0-9-1 as bytes, without I/O: what a frame, a method, a property is, and nothing of what
//! it means.
//!
//! An own codec and not a crate: reading a method copies nothing out of its frame, and bodies,
//! which are most of what is carried, are never looked at.
//!
//! * [`frame`]: where a frame ends, and how one is written
//! * [`methods`]: the table of all methods
//! * [`properties`]: what a message's header frame says
//! * [`fields`], [`table`]: the data types
//! * `erlang`: how RabbitMQ's texts show bytes

pub(crate) mod erlang;
pub mod fields;
pub mod frame;
pub mod methods;
pub mod properties;
pub mod table;

#[cfg(test)]
mod tests;
