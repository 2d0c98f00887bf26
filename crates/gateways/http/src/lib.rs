//! The HTTP gateway: health, metrics and the API.
//!
//! Connections are accepted, limited and drained as in other protocols ([`gateway`]). Hyper serves each one as
//! HTTP/1.1 or HTTP/2, and every request passes one stack of layers that no route can skip.
//!
//! From the errors up; each module uses only those before it:
//!
//! * `problem`: errors, in the form of RFC 9457; `request`: properties of a request that several layers need
//! * `connection`: one connection of HTTP/1.1 or HTTP/2, and its limits
//! * `sessions`: browser sessions; `request_counts`: counters of requests; [`options`]: settings
//! * [`front`]: state shared by connections, and the node once it is open
//! * `request_input`: bodies and queries within limits
//! * `login`: authentication and rights of requests; `quotas`: their charges
//! * `health`: for probes; `metrics`: for Prometheus; `console`: the web console
//! * `v1`: topics, records and leases; `api`: RabbitMQ's management API
//! * `layers`: request ids, problem documents, hosts, protection against CSRF, freshness of the catalog
//! * `routes`: all paths, and the layers around them
//! * [`listener`]: both ports

#![recursion_limit = "256"]

mod api;
mod connection;
mod console;
pub mod front;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod health;
mod layers;
pub mod limits;
pub mod listener;
mod login;
mod metrics;
pub mod options;
mod problem;
mod quotas;
mod request;
mod request_counts;
mod request_input;
mod routes;
mod sessions;
mod v1;

pub use front::{FrontEnd, ListeningPort, Node, ProcessSeen};
pub use listener::{HttpPorts, serve};
pub use options::{GatewayOptions, LoginOptions};

/// All endpoints of the management API, for exhaustive tests: method, path, and whether any tag grants access.
pub fn management_endpoints() -> Vec<(&'static str, &'static str, bool)> {
    api::listed()
}
