//! AMQP 0-9-1 as bytes, without I/O: what a frame, a method, a property is, and nothing of what
//! it means.
//!
//! An own codec and not a crate: reading a method copies nothing out of its frame, and bodies,
//! which are most of what is carried, are never looked at.

pub mod fields;
pub mod table;
