//! HTTP: whether the node is well, what it counts, and the API.
//!
//! Connections are accepted, bounded and drained as those of other protocols ([`gateway`]); each is served by hyper
//! as HTTP/1.1 or HTTP/2, and what it asks for goes through one stack of layers that no route can leave out.
//!
//! * [`listener`]: both ports; `connection`: one connection; `opening`: which version it is of
//! * `http2`: connections with many requests at a time; `streams`: these requests; `places`: how many there may be; `frames`:
//!   floods
//! * [`front`]: what is there before the node is open, and the node once it is; [`options`]: what its operator decided
//! * `routes`: which paths there are, and the layers around them
//! * `finishing`: what every answer has: an id, headers that browsers obey, problems as documents
//! * `hosts`: names of this node, where nobody logs in; `origin`: which pages a browser may ask from
//! * `login`: who asks, and what that may do; `sessions`: browsers that have logged in
//! * `console`: the pages for people
//! * `problem`: what can go wrong, as RFC 9457 has it
//! * `health`: for probes; `metrics`: for Prometheus
//! * `api`: RabbitMQ's management API
//! * `v1`: topics, records and leases
//! * `slow_client`: a client that takes nothing is cut off

#![recursion_limit = "256"]

mod api;
mod connection;
mod console;
mod current;
mod finishing;
mod frames;
pub mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod health;
mod hosts;
mod http2;
pub mod listener;
mod login;
mod metrics;
mod opening;
pub mod options;
mod origin;
mod places;
mod problem;
mod quotas;
mod routes;
mod sessions;
mod slow_client;
mod streams;
mod v1;

pub use front::{Front, ListeningPort, Node, Operator};
pub use listener::{HttpPorts, serve};
pub use metrics::ProcessSeen;
pub use options::{GatewayOptions, LoginOptions};

/// Every endpoint of the management API, for whoever checks them all: method, path, and whether any tag is enough.
pub fn management_endpoints() -> Vec<(&'static str, &'static str, bool)> {
    api::listed()
}
