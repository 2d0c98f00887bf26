//! The wire format below messages.
//!
//! The `kafka-protocol` crate decodes and encodes messages, except the two whose bodies carry records:
//! produce requests and fetch responses have their own codecs, which copy no record
//! ([`crate::produce_request`], [`crate::fetch_response`]).
//!
//! * [`primitives`]: the protocol's integers, strings and lengths, for those codecs
//! * [`shape`]: validates a request before it is decoded, since the crate trusts lengths
//! * `shapes`: the layout of each request; `known`: all of them, for tests

#[cfg(any(test, fuzzing))]
pub(crate) mod known;
pub(crate) mod primitives;
pub(crate) mod shape;
mod shapes;
