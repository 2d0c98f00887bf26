//! The wire format of Kafka's requests below messages.
//!
//! The `kafka-protocol` crate decodes and encodes messages, and trusts the lengths in them. So a request is validated
//! first, by the layout that it must have. The gateway's own codecs, for bodies with records, use the same primitives.
//!
//! * [`primitives`]: the protocol's integers, strings and lengths
//! * [`layout`]: the layout of a request, as data
//! * [`shape`]: validates a request before it is decoded
//! * [`shapes`]: the layout of each request

pub mod layout;
pub mod primitives;
pub mod shape;
pub mod shapes;
