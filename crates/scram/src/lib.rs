//! SCRAM (RFC 5802, RFC 7677): the client proves that it knows a password and the server that it knows the verifier.
//! Neither is sent.
//!
//! Both sides are here, without sockets, clocks or entropy: messages go in and come out, and the caller supplies the
//! random parts. It is our own because the crates on crates.io panic on short input, reveal which users exist, or
//! refuse clients that are in use (docs/adr/0013-one-store-of-users-and-one-authorizer.md).
//!
//! * [`verifier`]: the stored keys that check a password
//! * [`server`], [`client`]: the two sides
//! * `message`: attributes and encodings of messages
//!
//! Names and passwords are used as they are, without SASLprep: Kafka's clients do not apply it, and a server that did
//! would compare a different string than they hash.

pub mod client;
mod message;
pub mod server;
pub mod verifier;

pub use message::MalformedMessage;
pub use server::{Challenge, ClientFirst, ScramError};
pub use verifier::{
    Hash, ITERATIONS_MADE, ITERATIONS_MAX, ITERATIONS_MIN, Verifier, VerifierError,
};
