//! All requests with their codecs, for tests: the wire format itself is in the crate `kafka-wire`.
//!
//! Produce requests and fetch responses have their own codecs, which copy no record ([`crate::produce::request`],
//! [`crate::fetch::response`]).

#[cfg(any(test, fuzzing))]
pub(crate) mod request_codec;
#[cfg(test)]
mod shape_tests;
