//! The wire format below messages.
//!
//! The `kafka-protocol` crate decodes and encodes messages, except the two whose bodies carry records:
//! produce requests and fetch responses have their own codecs, which copy no record
//! ([`crate::produce::request`], [`crate::fetch::response`]).
//!
//! * [`primitives`]: the protocol's integers, strings and lengths, for those codecs
//! * [`shape`]: validates a request before it is decoded, since the crate trusts lengths
//! * `shapes`: the layout of each request; `request_codec`: all of them, for tests

pub(crate) mod primitives;
#[cfg(any(test, fuzzing))]
pub(crate) mod request_codec;
pub(crate) mod shape;
mod shapes;
