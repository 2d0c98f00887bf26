//! Several client machines that carry one load.
//!
//! * [`Server`]: an agent: waits for a coordinator, and sends and receives what it is told
//! * [`Coordinator`]: makes of several agents the crew of a load: gives each its share, lets them
//!   begin at one moment, asks ten times a second what happened, and keeps the account of all
//!
//! The conversation is of requests and answers, one at a time, each with a time limit: frames of
//! JSON (`wire`), behind a report the agent's journal in bytes. An agent works for one coordinator
//! at a time, over one connection a load; when the connection ends, its work ends.

mod assignment;
mod coordinator;
mod link;
mod offset;
mod server;
mod wire;

pub use coordinator::Coordinator;
pub use server::{Connect, ServeError, Server};
