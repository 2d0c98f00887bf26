//! SCRAM (RFC 5802, RFC 7677): a client proves that it knows a password, and the server that it knows what is kept
//! of it, and neither says it.
//!
//! Both sides are here, apart from sockets, clocks and entropy: messages go in and come out, and whoever carries
//! them gives the random parts. It is our own because what there is on crates.io panics on short input, tells which users
//! exist, or refuses clients that are in use (docs/adr/0013-one-store-of-users-and-one-authorizer.md).
//!
//! * [`verifier`]: what is kept of a password
//! * [`server`], [`client`]: the two sides
//! * `message`: the pieces that messages are made of
//!
//! Names and passwords are taken as they are, without SASLprep: clients of Kafka do no such thing either, and a server
//! that did would compare something else than they hash.

pub mod client;
mod message;
pub mod server;
pub mod verifier;

pub use message::Malformed;
pub use server::{Challenge, ClientFirst, ScramError};
pub use verifier::{
    Hash, ITERATIONS_MADE, ITERATIONS_MAX, ITERATIONS_MIN, Verifier, VerifierError,
};
