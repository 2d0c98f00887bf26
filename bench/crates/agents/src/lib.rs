//! Several client machines that carry one load.
//!
//! * [`Server`]: an agent: waits for a coordinator, and sends and receives its share of a load
//! * [`Coordinator`]: turns several agents into the workers of a load: gives each its share, starts
//!   them at one moment, fetches their reports ten times a second, and keeps the account of all
//!
//! The protocol consists of requests and replies, one at a time, each with a time limit. Frames
//! hold JSON (`wire`); a report is followed by the agent's journal in bytes. An agent works for one
//! coordinator at a time, over one connection per load. When the connection ends, its work ends.

mod assignment;
mod coordinator;
mod link;
mod offset;
mod server;
mod wire;

pub use coordinator::Coordinator;
pub use server::{Connect, ServeError, Server};
