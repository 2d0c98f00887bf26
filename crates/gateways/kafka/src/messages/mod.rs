//! Frames of a connection, headers of requests and errors without a response, and responses as bytes. Independent of
//! the state of the gateway.
//!
//! * `frames`: reads frames from the socket; `header`: their first fields
//! * `response`, `list_response`: build responses
//! * `streams`: the messages of KIP-1071, which the message crate does not have

pub(crate) mod frames;
mod header;
pub(crate) mod list_response;
mod response;
pub(crate) mod streams;

pub(crate) use header::{Preamble, RequestError, RequestHead};
pub(crate) use response::{Response, Slices};
