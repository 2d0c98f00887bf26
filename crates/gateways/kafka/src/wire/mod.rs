//! Bytes from the network, before they are messages.
//!
//! The messages themselves are decoded and encoded by the `kafka-protocol` crate, except the two
//! whose bodies carry records: a produce request and a fetch response have their own codecs, which
//! copy no record ([`crate::produce_request`], [`crate::fetch_response`]).
//!
//! * [`primitives`]: the protocol's integers, strings and lengths, for those codecs
//! * [`shape`]: looks through a request before it is decoded, since the crate believes lengths
//! * `shapes`: what each request looks like; `known`: all of them, for tests

#[cfg(any(test, fuzzing))]
pub(crate) mod known;
pub(crate) mod primitives;
pub(crate) mod shape;
mod shapes;
