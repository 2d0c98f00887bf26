//! The HTTP gateway: health, metrics and the API.
//!
//! Connections are accepted, limited and drained as in other protocols ([`gateway`]). Hyper serves each one as
//! HTTP/1.1 or HTTP/2, and every request passes one stack of layers that no route can skip.
//!
//! * [`listener`]: both ports; `connection`: one connection; `opening`: detects the HTTP version
//! * `http2`: HTTP/2 connections; `streams`: their concurrent requests; `admission`: limit of requests; `frames`: limit
//!   of frame floods
//! * [`front`]: state shared by connections, and the node once it is open; [`options`]: settings
//! * `routes`: all paths, and the layers around them
//! * `finishing`: common parts of responses: request id, security headers, problem documents
//! * `hosts`: accepted host names where there is no log-in; `origin`: protection against CSRF
//! * `login`: authentication and rights of requests; `sessions`: browser sessions
//! * `console`: the web console
//! * `problem`: errors, in the form of RFC 9457
//! * `health`: for probes; `metrics`: for Prometheus
//! * `api`: RabbitMQ's management API
//! * `v1`: topics, records and leases
//! * `slow_client`: disconnects clients that do not read their responses

#![recursion_limit = "256"]

mod admission;
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
pub mod limits;
pub mod listener;
mod login;
mod metrics;
mod opening;
pub mod options;
mod origin;
mod problem;
mod quotas;
mod routes;
mod sessions;
mod slow_client;
mod streams;
mod v1;

pub use front::{FrontEnd, ListeningPort, Node};
pub use listener::{HttpPorts, serve};
pub use metrics::ProcessSeen;
pub use options::{GatewayOptions, LoginOptions};

/// All endpoints of the management API, for exhaustive tests: method, path, and whether any tag grants access.
pub fn management_endpoints() -> Vec<(&'static str, &'static str, bool)> {
    api::listed()
}
